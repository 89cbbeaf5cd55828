/* cuda_runtime_api.h - the few host calls of the CUDA runtime that launchers use, on the host.
 *
 * Stands in for the toolkit's header of this name when .cu files and generated kernels are compiled
 * for the simulator (cudasim.h). Streams do nothing: every launch has happened when it returns.
 */
#ifndef PL_CUDASIM_RUNTIME_API_H
#define PL_CUDASIM_RUNTIME_API_H

#define PL_CUDASIM 1

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorLaunchFailure = 719
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;

/* Only where a program of the tests has a card to ask about (tests/fake). */
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);

typedef enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
} cudaMemcpyKind;

typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
} cudaFuncAttribute;

/* The error of the last launch, which it forgets; its text. */
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t rc);

static inline cudaError_t cudaMalloc(void **p, size_t n)
{
    *p = malloc(n);
    return *p ? cudaSuccess : cudaErrorInvalidValue;
}

static inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

static inline cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s)
{
    (void)s;
    if (n) memset(p, byte, n);
    return cudaSuccess;
}

static inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                            size_t from_pitch, size_t width, size_t height,
                                            cudaMemcpyKind k, cudaStream_t s)
{
    (void)k;
    (void)s;
    for (size_t i = 0; i < height; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind k,
                                          cudaStream_t s)
{
    (void)k;
    (void)s;
    if (n) memcpy(to, from, n);
    return cudaSuccess;
}

#ifdef __cplusplus
}

template <class F> static inline cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
#endif

#endif
