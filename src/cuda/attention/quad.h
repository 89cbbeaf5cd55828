/* quad.h - for .cu files of attention: over the four threads that have a row of a product. */
#ifndef PL_CUDA_ATTENTION_QUAD_H
#define PL_CUDA_ATTENTION_QUAD_H

#include "cuda/device/launch.h"

static __device__ __forceinline__ float over_quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
static __device__ __forceinline__ float over_quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

#endif
