/* rewrite.h - copies a graph node by node: the start of every rewriting pass. */
#ifndef PL_PASS_REWRITE_H
#define PL_PASS_REWRITE_H

#include "ir/graph.h"

/* A new graph over the same store, under construction. */
typedef struct pl_rewrite {
    pl_arena mem; /* of the arrays below, and for the pass itself */
    const pl_graph *in;
    pl_graph *out;
    uint32_t *map; /* old value -> new value */
    pl_val *args;  /* as many as the widest node has inputs */
} pl_rewrite;

pl_status pl_rewrite_begin(pl_rewrite *c, const pl_graph *in) PL_MUST_USE;
/* Moves to old node n: its scope and phase apply to what is built next; args are its inputs. */
void pl_rewrite_at(pl_rewrite *c, uint32_t n);
/* Copies old node n unchanged and returns the new node; 0: the graph failed. Call it after
 * pl_rewrite_at. */
uint32_t pl_rewrite_node(pl_rewrite *c, uint32_t n);
/* Ends the copy: the caller gets the new graph, or it is freed when rc or the graph failed. */
pl_status pl_rewrite_end(pl_rewrite *c, pl_status rc, pl_graph **out) PL_MUST_USE;

#endif
