/* f32_tiles.h - tiles of attention_f32.cu in shared memory: tokens, scores, and the products of
 * both. A block has 16 x 16 threads; attention_f32.cu says what each of them owns. */
#ifndef PL_CUDA_ATTENTION_F32_TILES_H
#define PL_CUDA_ATTENTION_F32_TILES_H

#include "cuda/attention/keys.h"
#include "cuda/attention/mask.h"
#include "cuda/device/launch.h"

#include <math.h>

static constexpr int SIDE = 16, THREADS = SIDE * SIDE;

/* Tiles are [token][D + 4]: the start of a row moves by four banks. */
template <int D> struct tile_of {
    enum { STRIDE = D + 4 };
};

template <int D, int ROWS, int BLOCK = THREADS>
static __device__ void fill(float *tile, const float *from, int64_t stride, int first, int limit,
                            const pl_attend_shape &z)
{
    constexpr int S = tile_of<D>::STRIDE, quads = D / 4;
    for (int i = threadIdx.x; i < ROWS * quads; i += BLOCK) {
        int r = i / quads, c = i % quads * 4, t = first + r;
        float4 v = make_float4(0, 0, 0, 0);
        if (t < limit && c < z.d) {
            const float *p = from + t * stride + c;
            if (z.wide) {
                v = *(const float4 *)p;
            } else {
                v.x = p[0];
                if (c + 1 < z.d) v.y = p[1];
                if (c + 2 < z.d) v.z = p[2];
                if (c + 3 < z.d) v.w = p[3];
            }
        }
        *(float4 *)(tile + r * S + c) = v;
    }
}

static __device__ __forceinline__ float dot4(float4 a, float4 b, float s)
{
    s = fmaf(a.x, b.x, s);
    s = fmaf(a.y, b.y, s);
    s = fmaf(a.z, b.z, s);
    return fmaf(a.w, b.w, s);
}

/* s[i][j] = rows[y + 16 i] . tile[x + 16 j] */
template <int D, int R, int C>
static __device__ __forceinline__ void scores(float (*s)[C], const float *rows, const float *tile)
{
    constexpr int S = tile_of<D>::STRIDE;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) s[i][j] = 0;
#pragma unroll 2
    for (int c = 0; c < D; c += 4) {
        float4 b[C];
#pragma unroll
        for (int j = 0; j < C; j++) b[j] = *(const float4 *)(tile + (x + SIDE * j) * S + c);
#pragma unroll
        for (int i = 0; i < R; i++) {
            float4 a = *(const float4 *)(rows + (y + SIDE * i) * S + c);
#pragma unroll
            for (int j = 0; j < C; j++) s[i][j] = dot4(a, b[j], s[i][j]);
        }
    }
}

/* Returns dim e of thread x: vectors of V dims, SIDE of them side by side. */
template <int D> struct dims_of {
    enum { N = D / SIDE, V = N < 4 ? N : 4 };
    static __device__ __forceinline__ int at(int x, int e)
    {
        return x * V + e / V * SIDE * V + e % V;
    }
};

/* Scores lie as [row][COLS + 16]: the two rows that a warp writes use different banks. */
template <int C> struct scores_of {
    enum { COLS = SIDE * C, STRIDE = COLS + SIDE };
};

/* Loads the dims of thread x in row t of the tile. */
template <int D> static __device__ __forceinline__ void pick(float *b, const float *tile, int t)
{
    constexpr int S = tile_of<D>::STRIDE, N = dims_of<D>::N, V = dims_of<D>::V;
#pragma unroll
    for (int e = 0; e < N; e += V) {
        const float *at = tile + t * S + dims_of<D>::at(threadIdx.x % SIDE, e);
        if (V == 4) {
            float4 v = *(const float4 *)at;
            b[e] = v.x, b[e + 1] = v.y, b[e + 2 < N ? e + 2 : 0] = v.z,
            b[e + 3 < N ? e + 3 : 0] = v.w;
        } else {
            for (int k = 0; k < V; k++) b[e + k] = at[k];
        }
    }
}

/* out[i][e] += sum_t p[y + 16 i][t] tile[t][dim e], t in order */
template <int D, int R, int C>
static __device__ __forceinline__ void weigh(float (*out)[D / SIDE], const float *p,
                                             const float *tile)
{
    constexpr int N = dims_of<D>::N, P = scores_of<C>::STRIDE;
    int y = threadIdx.x / SIDE;
#pragma unroll 1
    for (int t = 0; t < scores_of<C>::COLS; t += 4) {
        float b[4][N];
#pragma unroll
        for (int k = 0; k < 4; k++) pick<D>(b[k], tile, t + k);
#pragma unroll
        for (int i = 0; i < R; i++) {
            float4 a = *(const float4 *)(p + (y + SIDE * i) * P + t);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] = fmaf(a.x, b[0][e], out[i][e]);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] = fmaf(a.y, b[1][e], out[i][e]);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] = fmaf(a.z, b[2][e], out[i][e]);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] = fmaf(a.w, b[3][e], out[i][e]);
        }
    }
}

/* Returns the offset of score (i, j) of this thread. */
template <int C> static __device__ __forceinline__ int score_at(int i, int j)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    return (y + SIDE * i) * scores_of<C>::STRIDE + x + SIDE * j;
}

template <int R, int C> static __device__ __forceinline__ void lay(float *p, float (*s)[C])
{
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) p[score_at<C>(i, j)] = s[i][j];
}

template <int D, int R>
static __device__ void store(float *to, int64_t stride, float (*v)[D / SIDE], const float *factor,
                             int first, int limit, int d)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R; i++) {
        int t = first + y + SIDE * i;
        if (t >= limit) continue;
#pragma unroll
        for (int e = 0; e < D / SIDE; e++) {
            int c = dims_of<D>::at(x, e);
            if (c < d) to[t * stride + c] = v[i][e] * factor[i];
        }
    }
}

/* Reduces over the 16 threads of a row of the block: half a warp. */
static __device__ __forceinline__ float row_max(float v)
{
    for (int k = 8; k; k /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, k));
    return v;
}
static __device__ __forceinline__ float row_sum(float v)
{
    for (int k = 8; k; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}

#endif
