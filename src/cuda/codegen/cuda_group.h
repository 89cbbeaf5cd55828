/* cuda_group.h - fused groups (ir/group/fused.h) as kernels compiled at run time. */
#ifndef PL_CUDA_GROUP_H
#define PL_CUDA_GROUP_H

#include "cuda/codegen/codegen.h"
#include "cuda/device/cuda.h"
#include "ir/units.h"
#include "rt/device.h"

/* Generates the source of the group's kernels and starts their compilation in the background (or
 * takes them from memory or the disk cache). A unit of one map, reduction, fill or affine node is a
 * group of one. *inplace is the table of ir/group/inplace.h and lives as long as *prep. */
pl_status pl_cuda_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                                const bool **inplace, size_t *work_bytes) PL_MUST_USE;
/* Generated kernels that are compiled or being compiled: what launches need of them. */
typedef struct pl_cuda_code pl_cuda_code;
/* A tensor's shape as the copy engine reads it (CUtensorMap). */
typedef struct pl_cuda_map {
    _Alignas(64) uint64_t word[16];
} pl_cuda_map;
/* Copies what launches need, and starts the compilation. */
pl_status pl_cuda_code_keep(const pl_code *made, pl_cuda_code **out) PL_MUST_USE;
const pl_code *pl_cuda_code_of(const pl_cuda_code *k);
/* Whether a kernel keeps registers in memory; after pl_cuda_group_wait. */
bool pl_cuda_code_spills(const pl_cuda_code *k);
void pl_cuda_code_release(void *code);
/* Enqueues the kernels. map: of both operands of a product that the first kernel begins with; NULL:
 * it does not begin with one. */
pl_status pl_cuda_code_run(const pl_cuda_code *k, const void *const *in, void *const *out,
                           void *work, pl_cuda_map *map) PL_MUST_USE;

/* The same as pl_cuda_group_prepare for a group that begins with a product (ir/group/product.h).
 * head prepares a unit of the product alone. cuda/ops/product_group.c */
typedef pl_status pl_cuda_prepare_fn(const pl_graph *g, const pl_unit *u, const pl_call *call,
                                     bool reference, pl_exec *out);
pl_status pl_cuda_product_prepare(const pl_graph *g, const pl_unit *u, pl_cuda_prepare_fn *head,
                                  pl_exec *out) PL_MUST_USE;
/* run and release for the result of prepare. */
extern const pl_kernel pl_cuda_group_kernel;
/* Whether a map or reduction may be in a group at all. */
bool pl_cuda_group_takes(const pl_graph *g, uint32_t node);
/* Waits until everything prepared so far is compiled and loaded; returns the first failure. */
pl_status pl_cuda_group_wait(void) PL_MUST_USE;

#endif
