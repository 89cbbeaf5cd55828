/* inplace.h - the in-place rule: when output k of a unit may overwrite the bytes of input i (M3 of
 * docs/MEMORY.md).
 *
 * One rule for the planner, the checker and all devices. It has two steps, because one fact is
 * known to the device only, not to the description of a group: whether the group becomes several
 * kernels, so that an input is read again after outputs are written.
 *
 *   device, at prepare    pl_inplace_group(f, u, read_late, ...)  ->  a table of the group
 *   planner and checker   pl_inplace_unit(g, u, table, k, i)
 *
 * The planner adds the facts that only the planner has: equal sizes, equal offsets, no later reader
 * of the input.
 */
#ifndef PL_IR_INPLACE_H
#define PL_IR_INPLACE_H

#include "ir/group/fused.h"

PL_SHARED_BEGIN

/* Returns whether output `output` of a group that is one kernel may be the memory that operand
 * `operand` reads. True if the output stores the whole space, the operand reads the whole space
 * densely from its first element, elements are equally wide and not bits, and no other operand
 * reads the same input: then each element is read before it is written, at the same place. */
bool pl_inplace_operand(const pl_fused *f, int operand, int output);

/* Makes the table of a group: (*out)[k * u->n_in + i] says whether output k may overwrite input i.
 * read_late[o]: a kernel of the group reads operand o after another kernel of it has stored
 * outputs; NULL: the group is one kernel. The table lives in the arena. */
pl_status pl_inplace_group(const pl_fused *f, const pl_unit *u, const bool *read_late, pl_arena *a,
                           bool **out) PL_MUST_USE;

/* Returns whether output k of the unit may overwrite input i. A kernel's op says so for each
 * operand (pl_op.inplace); a value that is several operands needs the permission of all. A group's
 * table says so; NULL: never. */
bool pl_inplace_unit(const pl_graph *g, const pl_unit *u, const bool *table, uint32_t k,
                     uint32_t i);

PL_SHARED_END

#endif
