/* many.h - launches that follow each other in a program and can be one launch on the card.
 *
 * A step ends with an update for each weight, often hundreds of them and most of them small. Where
 * a kernel knows how to take many calls at once, a run of its launches of which none reads or
 * writes what another one writes is handed to it as a whole; in which order it works on them is
 * then its own affair. Elementwise kernels give the same bits either way.
 */
#ifndef PL_CUDA_MANY_H
#define PL_CUDA_MANY_H

#include "ir/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_CUDA_MANY = 128 }; /* calls that are handed over at once */
typedef pl_status (*pl_cuda_many_fn)(const pl_call *const *calls, int n);
/* NULL: one call at a time. */
pl_cuda_many_fn pl_cuda_many_of(const pl_kernel *k);

/* How many of the n >= 1 launches go together from the first one on: their calls in calls[] (room
 * for PL_CUDA_MANY), *n_calls of them. One launch is all there is where *n_calls is 0 or 1. */
struct pl_bound_unit;
uint32_t pl_cuda_together(const struct pl_bound_unit *l, uint32_t n, const pl_call **calls,
                          int *n_calls);

#ifdef __cplusplus
}
#endif

#endif
