/* segment.h - scopes that the model marks, as checkpoint segments.
 *
 * A segment is all forward units inside a scope marked by pl_scope_checkpoint (the outermost mark
 * counts). A segment keeps only the values that forward units outside it read. The first backward
 * unit that reads another value makes the segment's forward units run a second time, as far as the
 * backward pass needs them. This is what torch.utils.checkpoint does around the same code.
 */
#ifndef PL_PLAN_SEGMENT_H
#define PL_PLAN_SEGMENT_H

#include "ir/units.h"

/* order: ids of the n units that run, each once. *list is the order with the recomputed units
 * inserted; it lives in mem. */
pl_status pl_segment_list(const pl_graph *g, const pl_units *units, const uint32_t *order,
                          uint32_t n, pl_arena *mem, uint32_t **list, uint32_t *n_list) PL_MUST_USE;

#endif
