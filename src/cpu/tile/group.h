/* group.h - runs a group unit on the CPU: its form (ir/form.h) as a tile program (cpu/tile/tile.h).
 */
#ifndef PL_CPU_GROUP_H
#define PL_CPU_GROUP_H

#include "ir/units.h"

/* Whether the node may be in a group: the tile interpreter has its function for its dtype. For
 * the fuser, beside pl_group_limits. */
bool pl_group_takes(const pl_graph *g, uint32_t node);

/* Compiles a group. *prep goes to pl_group_kernel's calls, which get the unit's in[] and out[]
 * in order, and is released by the kernel's release. *work_bytes is for the pool's present
 * number of threads. */
pl_status pl_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                           size_t *work_bytes) PL_MUST_USE;
extern const pl_kernel pl_group_kernel;

/* Output k of the prepared group may take over the bytes of its input i. */
bool pl_group_inplace(const void *prep, uint32_t k, uint32_t i);

#endif
