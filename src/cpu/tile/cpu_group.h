/* cpu_group.h - runs a fused group on the CPU: describes it (ir/group/fused.h) and compiles the
 * description with the tile interpreter (cpu/tile/tile.h).
 */
#ifndef PL_CPU_GROUP_H
#define PL_CPU_GROUP_H

#include "ir/units.h"

/* Returns whether the node may be in a group: whether the tile interpreter has its function for
 * its dtype. It is `takes` of the CPU's fusion options. */
bool pl_cpu_group_takes(const pl_graph *g, uint32_t node);

/* Compiles a group. *prep is passed to pl_cpu_group_kernel, whose calls get the unit's in[] and
 * out[] in order; the kernel's release frees it. *inplace is the group's table of
 * ir/group/inplace.h and lives as long as *prep. *work_bytes is the scratch for the current number
 * of threads. */
/* Returns the bytes that what pl_cpu_group_prepare returned holds. */
size_t pl_cpu_group_bytes(const void *prep);
pl_status pl_cpu_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                               const bool **inplace, size_t *work_bytes) PL_MUST_USE;
extern const pl_kernel pl_cpu_group_kernel;

#endif
