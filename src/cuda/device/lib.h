/* lib.h - cuBLASLt and cuDNN: one handle each, and checks that report the libraries' own messages.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_LIB_H
#define PL_CUDA_LIB_H

#include "cuda/device/cuda.h"
#include "cuda/device/work.h"

#include <cublasLt.h>
#include <cudnn_graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return the process's handles, created on first use; cuDNN's handle enqueues on
 * pl_cuda_stream(). */
pl_status pl_cuda_lt(cublasLtHandle_t *out) PL_MUST_USE;
pl_status pl_cuda_dnn(cudnnHandle_t *out) PL_MUST_USE;
/* Creates both handles in a background thread, and waits for it: loading the libraries takes a
 * while that the host can use. */
void pl_cuda_lib_begin(void);
void pl_cuda_lib_wait(void);

pl_status pl_cuda_lt_failed(cublasStatus_t rc, const char *call, const char *file, int line);
pl_status pl_cuda_dnn_failed(cudnnStatus_t rc, const char *call, const char *file, int line);
#define PL_LT(call)                                                                                \
 do {                                                                                              \
  cublasStatus_t pl_lt_rc_ = (call);                                                               \
  if (pl_lt_rc_ != CUBLAS_STATUS_SUCCESS)                                                          \
   return pl_cuda_lt_failed(pl_lt_rc_, #call, __FILE__, __LINE__);                                 \
 } while (0)
#define PL_DNN(call)                                                                               \
 do {                                                                                              \
  cudnnStatus_t pl_dnn_rc_ = (call);                                                               \
  if (pl_dnn_rc_ != CUDNN_STATUS_SUCCESS)                                                          \
   return pl_cuda_dnn_failed(pl_dnn_rc_, #call, __FILE__, __LINE__);                               \
 } while (0)

/* Describes the kernel of a prepared product, for reports. matmul.c */
void pl_cuda_matmul_describe(const void *prep, char *buf, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
