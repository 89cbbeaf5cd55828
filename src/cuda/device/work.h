/* work.h - shared by kernels that use libraries; independent of the libraries.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_WORK_H
#define PL_CUDA_WORK_H

#include "cuda/device/cuda.h"
#include "ops/net/tail.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The libraries need workspaces at multiples of 256 bytes, the plan promises 64: request
 * pl_cuda_work_room(bytes) and use pl_cuda_work_at(call->work). */
static inline size_t pl_cuda_work_room(size_t bytes)
{
    return bytes ? bytes + 192 : 0;
}
static inline void *pl_cuda_work_at(void *work)
{
    return (void *)(((uintptr_t)work + 255) & ~(uintptr_t)255);
}
/* Whether every pointer of a list is a multiple of 16 bytes: vector accesses require it, and only a
 * slice that is a view can break it. */
static inline bool pl_cuda_aligned(const void *const *p, int n)
{
    for (int i = 0; i < n; i++)
        if ((uintptr_t)p[i] & 15) return false;
    return true;
}

/* The tail of a product, in place over rows of n: y + bias + add, which is stored in keep, then
 * act; with slope_at instead y times act's slope there. Pointers may be NULL. Rounded once to y's
 * type. tail.cu */
typedef struct pl_cuda_tail {
    const void *bias, *add, *slope_at;
    void *keep;
    int32_t act; /* pl_act */
    double slope;
} pl_cuda_tail;
pl_status pl_cuda_tail_run(pl_dtype dtype, void *y, int64_t rows, int64_t n,
                           const pl_cuda_tail *t) PL_MUST_USE;
static inline pl_status pl_cuda_add_bias(pl_dtype dtype, void *y, const void *bias, int64_t rows,
                                         int64_t n)
{
    pl_cuda_tail t = {bias, NULL, NULL, NULL, PL_ACT_NONE, 0};
    return pl_cuda_tail_run(dtype, y, rows, n, &t);
}

#ifdef __cplusplus
}
#endif

#endif
