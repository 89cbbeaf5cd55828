/* copy.h - a graph written anew, node by node: what every rewriting pass begins with. */
#ifndef PL_PASS_COPY_H
#define PL_PASS_COPY_H

#include "ir/graph.h"

/* The writing of a new graph over the same store. */
typedef struct pl_copy {
    pl_arena mem; /* of the arrays below, and for the pass itself */
    const pl_graph *in;
    pl_graph *out;
    uint32_t *map; /* old value -> new value */
    pl_val *args;  /* as many as the widest node has inputs */
} pl_copy;

pl_status pl_copy_begin(pl_copy *c, const pl_graph *in) PL_MUST_USE;
/* Goes to old node n: its scope and phase hold for what is built next; args are its inputs. */
void pl_copy_at(pl_copy *c, uint32_t n);
/* Writes old node n as it is; after pl_copy_at. */
void pl_copy_node(pl_copy *c, uint32_t n);
/* Ends the writing: the new graph is the caller's, or freed when rc or it failed. */
pl_status pl_copy_end(pl_copy *c, pl_status rc, pl_graph **out) PL_MUST_USE;

#endif
