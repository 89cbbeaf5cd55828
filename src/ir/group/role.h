/* role.h - what a node can be in a fused group (fused.h).
 *
 * Core nodes compute: a map of elements, or a reduction. Inline nodes only say how elements are
 * found: a constant, a random draw, a strided reading, the same bytes in another shape. Inline
 * nodes cost nothing in a group: they become constants and strides.
 */
#ifndef PL_IR_ROLE_H
#define PL_IR_ROLE_H

#include "ir/graph.h"

PL_SHARED_BEGIN

typedef enum pl_role {
    PL_ROLE_NONE,   /* source or effect: never runs */
    PL_ROLE_KERNEL, /* runs alone, through its op's kernel */
    PL_ROLE_MAP,    /* core: one scalar function of the elements at the same position */
    PL_ROLE_REDUCE, /* core: sum, max, min or moments over dims */
    PL_ROLE_FILL,   /* inline: a constant or a ramp */
    PL_ROLE_DRAW,   /* inline: random numbers whose key is a source node */
    PL_ROLE_AFFINE, /* inline: reads input 0 through strides */
    PL_ROLE_SAME    /* inline: input 0's elements in the same order */
} pl_role;

pl_role pl_role_of(const pl_graph *g, uint32_t node);

static inline bool pl_role_inline(pl_role r)
{
    return r >= PL_ROLE_FILL;
}
/* An inline node without an operand in memory: its elements are computed where they are read. */
static inline bool pl_role_made(pl_role r)
{
    return r == PL_ROLE_FILL || r == PL_ROLE_DRAW;
}
static inline bool pl_role_core(pl_role r)
{
    return r == PL_ROLE_MAP || r == PL_ROLE_REDUCE;
}

/* Sets how output element c of an AFFINE node reads its input. */
void pl_node_affine(const pl_graph *g, uint32_t node, pl_affine *out);
/* Sets which dims a REDUCE node reduces, and how. */
void pl_node_reduction(const pl_graph *g, uint32_t node, pl_reduction *out);
/* Returns the number of elements of a row if the reduction is over the innermost dims, else 0. */
int64_t pl_node_row(const pl_graph *g, uint32_t node);

PL_SHARED_END

#endif
