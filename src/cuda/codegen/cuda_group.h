/* cuda_group.h - fused groups (ir/group/fused.h) as kernels compiled at run time. */
#ifndef PL_CUDA_GROUP_H
#define PL_CUDA_GROUP_H

#include "cuda/device/cuda.h"
#include "ir/units.h"

/* Generates the source of the group's kernels and starts their compilation in the background (or
 * takes them from memory or the disk cache). A unit of one map, reduction, fill or affine node is a
 * group of one. *inplace is the table of ir/group/inplace.h and lives as long as *prep. */
pl_status pl_cuda_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                                const bool **inplace, size_t *work_bytes) PL_MUST_USE;
/* run and release for the result of prepare. */
extern const pl_kernel pl_cuda_group_kernel;
/* Whether a map or reduction may be in a group at all. */
bool pl_cuda_group_takes(const pl_graph *g, uint32_t node);
/* Waits until everything prepared so far is compiled and loaded; returns the first failure. */
pl_status pl_cuda_group_wait(void) PL_MUST_USE;

#endif
