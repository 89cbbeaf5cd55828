/* mask.h - what a mask adds to a score, for the kernels of attention. */
#ifndef PL_CUDA_ATTENTION_MASK_H
#define PL_CUDA_ATTENTION_MASK_H

#include "cuda/attention/attention.h"
#include "cuda/device/launch.h"

/* See ops/net/attention.h. */
#define PL_MASK_LEAST  (-2e30f)
#define PL_MASK_HIDDEN (-1e30f)

/* The place of the first key of a query. */
static __device__ __forceinline__ int64_t pl_mask_row(const pl_attend_mask &m, int64_t b, int64_t h,
                                                      int64_t i)
{
    return b * m.batch + h * m.head + i * m.query;
}

template <typename A>
static __device__ __forceinline__ A pl_mask_number(const pl_attend_mask &m, int64_t at)
{
    A x;
    switch (m.type) {
    case PL_BOOL: return ((const unsigned char *)m.at)[at] ? (A)0 : (A)PL_MASK_LEAST;
    case PL_F64: x = (A)((const double *)m.at)[at]; break;
    case PL_F16: x = (A)__half2float(((const pl_f16 *)m.at)[at]); break;
    case PL_BF16: x = (A)__bfloat162float(((const pl_bf16 *)m.at)[at]); break;
    default: x = (A)((const float *)m.at)[at];
    }
    return x < (A)PL_MASK_LEAST ? (A)PL_MASK_LEAST : x;
}

#endif
