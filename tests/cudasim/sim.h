/* sim.h - the simulator for tests in C: the kernels compiled for it, and its switches. */
#ifndef PL_CUDASIM_SIM_H
#define PL_CUDASIM_SIM_H

#include "ir/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef PL_CUDA_CUDA_H
/* Kernels of an op that run in the simulator; NULL if none. Operands are host memory. */
const pl_kernel *pl_cuda_kernels_of(const char *op);
/* Initial values of a slot as the card makes them (cuda/device/cuda.h). */
pl_status pl_cuda_start_values(void *to, pl_dtype dtype, uint64_t seed, uint32_t stream,
                               const pl_init *init, int64_t first, int64_t n);
#endif
/* Threads and blocks last to first: a result that changes has a race. */
void pl_sim_reverse(bool on);
/* A card's limits, and other ones: blocks of a launch along y and along z, items that its 32-bit
 * indices count. */
enum { PL_SIM_SIDE = 65535, PL_SIM_ITEMS = 0x7fffffff };
void pl_sim_limits(int64_t side, int64_t items);
int64_t pl_grid_side(void); /* cuda/device/limits.h */
int64_t pl_most_items(void);
void pl_counts(int64_t n, size_t bytes);
/* What went wrong in the last failed launch; "" if nothing did. */
const char *pl_sim_error(void);

#ifdef __cplusplus
}
#endif

#endif
