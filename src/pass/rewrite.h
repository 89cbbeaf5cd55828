/* rewrite.h - a graph written anew, node by node: what every rewriting pass begins with. */
#ifndef PL_PASS_REWRITE_H
#define PL_PASS_REWRITE_H

#include "ir/graph.h"

/* The writing of a new graph over the same store. */
typedef struct pl_rewrite {
    pl_arena mem; /* of the arrays below, and for the pass itself */
    const pl_graph *in;
    pl_graph *out;
    uint32_t *map; /* old value -> new value */
    pl_val *args;  /* as many as the widest node has inputs */
} pl_rewrite;

pl_status pl_rewrite_begin(pl_rewrite *c, const pl_graph *in) PL_MUST_USE;
/* Goes to old node n: its scope and phase hold for what is built next; args are its inputs. */
void pl_rewrite_at(pl_rewrite *c, uint32_t n);
/* Writes old node n as it is, after pl_rewrite_at, and returns the new node; 0: the graph failed. */
uint32_t pl_rewrite_node(pl_rewrite *c, uint32_t n);
/* Ends the writing: the new graph is the caller's, or freed when rc or it failed. */
pl_status pl_rewrite_end(pl_rewrite *c, pl_status rc, pl_graph **out) PL_MUST_USE;

#endif
