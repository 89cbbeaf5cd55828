/* mask.h - the value that a mask adds to a score, for the kernels of attention. */
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

/* Returns the value that the mask adds to the score of query i and key j, where the key exists. */
template <bool MASKED>
static __device__ __forceinline__ float pl_mask_of(const pl_attend_shape &z, int b, int h, int i,
                                                   int j)
{
    if (!MASKED) return 0;
    return i < z.n ? pl_mask_number<float>(z.mask, pl_mask_row(z.mask, b, h, i) + j * z.mask.key)
                   : 0;
}

/* ---- scores in the registers of attention_mma.h --------------------------------------------- */
template <typename E> static __device__ __forceinline__ float pl_mask_value(E x)
{
    return fmaxf(pl_elem<E>::get(x), PL_MASK_LEAST);
}
static __device__ __forceinline__ float pl_mask_value(unsigned char seen)
{
    return seen ? 0 : PL_MASK_LEAST;
}

/* s = s * by + mask * unit. Row r0 + 16 i + 8 up and column c0 + .. of the scores are query and
 * key, or key and query if TURNED. at: the mask of this batch and head. */
template <typename E, int MT, int COLS, bool TURNED>
static __device__ __forceinline__ void pl_mask_add_numbers(float (*s)[COLS / 8][4],
                                                           const pl_attend_shape &z, const E *at,
                                                           int r0, int c0, float by, float unit)
{
    int rows = TURNED ? z.m : z.n, cols = TURNED ? z.n : z.m, lane = threadIdx.x % 32;
    int64_t of_row = TURNED ? z.mask.key : z.mask.query,
            of_col = TURNED ? z.mask.query : z.mask.key;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            int r = r0 + i * 16 + up * 8;
            const E *row = at + r * of_row;
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int c = c0 + j * 8 + lane % 4 * 2 + e;
                    float x = r < rows && c < cols ? pl_mask_value(row[c * of_col]) : 0;
                    s[i][j][up * 2 + e] = fmaf(s[i][j][up * 2 + e], by, x * unit);
                }
        }
}

/* The same for the types that a mask has here: bool, f32, or T. */
template <typename T, int MT, int COLS, bool TURNED>
static __device__ __forceinline__ void pl_mask_add(float (*s)[COLS / 8][4],
                                                   const pl_attend_shape &z, int b, int h, int r0,
                                                   int c0, float by, float unit)
{
    int64_t at = pl_mask_row(z.mask, b, h, 0);
    if (z.mask.type == PL_BOOL)
        pl_mask_add_numbers<unsigned char, MT, COLS, TURNED>(
            s, z, (const unsigned char *)z.mask.at + at, r0, c0, by, unit);
    else if (z.mask.type == PL_F32)
        pl_mask_add_numbers<float, MT, COLS, TURNED>(s, z, (const float *)z.mask.at + at, r0, c0,
                                                     by, unit);
    else
        pl_mask_add_numbers<T, MT, COLS, TURNED>(s, z, (const T *)z.mask.at + at, r0, c0, by, unit);
}

#endif
