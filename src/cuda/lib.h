/* lib.h - cuBLASLt and cuDNN: one handle each, and checks that carry the libraries' own words.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_LIB_H
#define PL_CUDA_LIB_H

#include "cuda/cuda.h"

#include <cublasLt.h>
#include <cudnn_graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The process's handles, made on first use; cuDNN's enqueues on pl_cuda_stream(). */
pl_status pl_cuda_lt(cublasLtHandle_t *out) PL_MUST_USE;
pl_status pl_cuda_dnn(cudnnHandle_t *out) PL_MUST_USE;

pl_status pl_cuda_lt_failed(cublasStatus_t rc, const char *call, const char *file, int line);
pl_status pl_cuda_dnn_failed(cudnnStatus_t rc, const char *call, const char *file, int line);
#define PL_LT(call)                                                                            \
    do {                                                                                       \
        cublasStatus_t pl_lt_rc_ = (call);                                                     \
        if (pl_lt_rc_ != CUBLAS_STATUS_SUCCESS)                                                \
            return pl_cuda_lt_failed(pl_lt_rc_, #call, __FILE__, __LINE__);                    \
    } while (0)
#define PL_DNN(call)                                                                           \
    do {                                                                                       \
        cudnnStatus_t pl_dnn_rc_ = (call);                                                     \
        if (pl_dnn_rc_ != CUDNN_STATUS_SUCCESS)                                                \
            return pl_cuda_dnn_failed(pl_dnn_rc_, #call, __FILE__, __LINE__);                  \
    } while (0)

/* Both libraries want workspaces at multiples of 256 bytes, the plan promises 64: ask for
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

/* What a prepared product runs, for people. matmul.c */
void pl_cuda_matmul_describe(const void *prep, char *buf, size_t cap);

/* y[r, i] += bias[i] for rows of n, rounded once to y's type. bias.cu */
pl_status pl_cuda_add_bias(pl_dtype dtype, void *y, const void *bias, int64_t rows,
                           int64_t n) PL_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
