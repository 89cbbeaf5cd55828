/* work.h - what kernels that lean on libraries share without knowing the libraries.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_WORK_H
#define PL_CUDA_WORK_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The libraries want workspaces at multiples of 256 bytes, the plan promises 64: ask for
 * pl_cuda_work_room(bytes) and use pl_cuda_work_at(call->work). */
static inline size_t pl_cuda_work_room(size_t bytes)
{
    return bytes ? bytes + 192 : 0;
}
static inline void *pl_cuda_work_at(void *work)
{
    return (void *)(((uintptr_t)work + 255) & ~(uintptr_t)255);
}
/* Whether every pointer of a list is a multiple of 16 bytes: what vector accesses want, and
 * what only a slice that is a view can break. */
static inline bool pl_cuda_aligned(const void *const *p, int n)
{
    for (int i = 0; i < n; i++)
        if ((uintptr_t)p[i] & 15) return false;
    return true;
}

/* y[r, i] += bias[i] for rows of n, rounded once to y's type. bias.cu */
pl_status pl_cuda_add_bias(pl_dtype dtype, void *y, const void *bias, int64_t rows,
                           int64_t n) PL_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
