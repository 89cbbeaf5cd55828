/* many.h - consecutive kernel calls of a program that can share one launch.
 *
 * A step ends with a sum of squares and an update for each weight, hundreds of them, most of them
 * small. Where a kernel supports many calls at once, it gets a run of consecutive calls none of
 * which reads or writes what another one writes; the kernel chooses the order. It gives the bits of
 * single calls.
 */
#ifndef PL_CUDA_MANY_H
#define PL_CUDA_MANY_H

#include "ir/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_CUDA_MANY = 512 }; /* limit of calls that are looked at together */
typedef pl_status (*pl_cuda_many_fn)(const pl_call *const *calls, int n);
/* Returns NULL if the kernel takes one call at a time. */
pl_cuda_many_fn pl_cuda_many_of(const pl_kernel *k);
pl_cuda_many_fn pl_cuda_squares_many_of(const pl_kernel *k); /* the same, of squares.cu alone */

/* Returns how many of the n >= 1 units share a launch, starting with the first. Their calls go to
 * calls[] (room for PL_CUDA_MANY), *n_calls of them. With *n_calls 0 or 1, run the first unit
 * alone. */
struct pl_bound_unit;
uint32_t pl_cuda_together(const struct pl_bound_unit *l, uint32_t n, const pl_call **calls,
                          int *n_calls);

#ifdef __cplusplus
}
#endif

#endif
