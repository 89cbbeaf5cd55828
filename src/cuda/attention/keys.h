/* keys.h - for .cu files of attention: where the keys and values of a head lie. */
#ifndef PL_CUDA_ATTENTION_KEYS_H
#define PL_CUDA_ATTENTION_KEYS_H

#include "cuda/attention/attention.h"
#include "cuda/device/launch.h"

/* Returns the first number of the keys, or values, that head h of batch b reads. */
static __device__ __forceinline__ int64_t pl_attend_keys_at(const pl_attend_shape &z, int64_t b,
                                                            int h)
{
    return b * z.m * z.keys_row + (int64_t)(h / z.group) * z.keys_step;
}

#endif
