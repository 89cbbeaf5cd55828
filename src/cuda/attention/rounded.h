/* rounded.h - for .cu files of attention: operands of f32 that were rounded to 16 bits, times a
 * power of two for each tensor (attention_tf32.cu), with results of f32. R is the results' type;
 * where it is the operands' own type, all powers are 1.
 */
#ifndef PL_CUDA_ATTENTION_ROUNDED_H
#define PL_CUDA_ATTENTION_ROUNDED_H

#include "cuda/attention/attention.h"
#include "cuda/attention/quad.h"
#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"

/* ---- powers of two of operands -------------------------------------------------------------- */
/* For the bits of a tensor's largest number: the power of two that the tensor is multiplied by, and
 * its inverse. Zeros and numbers that are not finite are not changed. */
static __device__ __forceinline__ float up_by(unsigned most)
{
    unsigned e = most >> 23;
    return e == 0 || e == 255 ? 1 : __uint_as_float((257 - max(e, 5u)) << 23);
}
static __device__ __forceinline__ float back_by(unsigned most)
{
    unsigned e = most >> 23;
    return e == 0 || e == 255 ? 1 : __uint_as_float((max(e, 5u) - 3) << 23);
}

/* What results are multiplied by because operands were. Results of the operands' own type: 1. */
struct powers {
    float scores, d_scores; /* q k, the inverse of v d_o */
    float o, dq, dk, dv;
};
template <class R> static __device__ __forceinline__ powers powers_of(const unsigned *most)
{
    powers p = {1, 1, 1, 1, 1, 1};
    if (sizeof(R) < sizeof(float)) return p;
    float q = back_by(most[0]), k = back_by(most[1]), v = back_by(most[2]), d = back_by(most[3]);
    p.scores = q * k;
    p.d_scores = up_by(most[2]) * up_by(most[3]);
    p.o = v;
    p.dq = v * d * k;
    p.dk = v * d * q;
    p.dv = d;
    return p;
}

/* Operands that were rounded to another type are dense; results lie as the operands of the call. */
struct shape : pl_attend_shape {
    int to_row, to_step;
};

template <typename T, typename R> static shape sizes_of(const pl_attend *a)
{
    const void *p[4] = {a->q, a->k, a->v, a->d_o};
    shape z = {};
    (pl_attend_shape &)z = pl_attend_shape_of(a, p, 4);
    z.to_row = z.row;
    z.to_step = z.step;
    if (sizeof(T) != sizeof(R)) {
        z.row = z.heads * z.d;
        z.keys_row = z.heads / z.group * z.d;
        z.step = z.keys_step = z.d;
    }
    return z;
}

/* Allows a kernel its shared memory; more than 48 KiB must be requested. */
static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

/* Stores two results next to each other. */
template <typename T> static __device__ __forceinline__ void store_two(T *to, float x, float y)
{
    *(unsigned *)to = pl_pack2(x, y, T());
}
static __device__ __forceinline__ void store_two(float *to, float x, float y)
{
    *(float2 *)to = make_float2(x, y);
}

#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f

#endif
