/* wgmma_tiles.h - tiles of attention for warpgroup products (wgmma.h), in the gradient
 * (attention_wgmma.cu) and forward (attention_wgmma_forward.cu): a tile has COLS tokens of one
 * head, in columns of 64 numbers.
 */
#ifndef PL_CUDA_ATTENTION_WGMMA_TILES_H
#define PL_CUDA_ATTENTION_WGMMA_TILES_H

#include "cuda/attention/keys.h"
#include "cuda/attention/rounded.h"
#include "cuda/attention/wgmma.h"
#include "plan/cost/kernel_sizes.h"

static constexpr int COLS = PL_ATTEND_WG_QUERIES;

/* Loads tokens [first, first + ROWS) of one head, zero past `limit` and past the head's d. A thread
 * has the same chunk of every STEP-th row, so that swizzles are the same. */
template <typename T, int D, int ROWS, int THREADS>
static __device__ __forceinline__ void fill(T *tile, const T *from, int64_t stride, int first,
                                            int limit, int d)
{
    constexpr int chunks = D / 8, STEP = THREADS / chunks;
    static_assert(THREADS % chunks == 0 && STEP % 8 == 0, "a thread has one chunk");
    int r0 = threadIdx.x / chunks, c = threadIdx.x % chunks;
    T *to = tile + c / 8 * ROWS * 64 + r0 * 64 + ((c ^ r0) & 7) * 8;
    const T *at = from + (first + r0) * stride + c * 8;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP) {
        if (ROWS % STEP && r + r0 >= ROWS) break;
        bool in = first + r0 + r < limit && c * 8 < d;
        pl_copy16(to + r * 64, in ? at + r * stride : from, in);
    }
}

#if PL_HAS_WGMMA
/* s [64][COLS] = 64 rows times all rows of the tile, over D. R: rows of the tile of `rows`. */
template <typename T, int D, int R>
static __device__ __forceinline__ void scores(float (&s)[COLS / 2], unsigned rows, unsigned tile)
{
# pragma unroll
    for (int k = 0; k < D / 16; k++)
        pl_wg_along(s, pl_wg_operand(rows + pl_wg_step(k / 4 * R * 64 + k % 4 * 16), 16),
                    pl_wg_operand(tile + pl_wg_step(k / 4 * COLS * 64 + k % 4 * 16), 16), k > 0,
                    T());
}

/* out [64][D] += p [64][COLS] times the tile. */
template <typename T, int D>
static __device__ __forceinline__ void weigh(float (&out)[D / 2], const unsigned *p, unsigned tile)
{
# pragma unroll
    for (int k = 0; k < COLS / 16; k++)
        pl_wg_across(out, p + 4 * k, pl_wg_operand(tile + pl_wg_step(k * 16 * 64), COLS * 128),
                     T());
}
#endif

/* The operand's registers that hold columns 8 j + .. of the row `up` of this thread. */
static __device__ __forceinline__ int packed_at(int j, int up)
{
    return j / 2 * 4 + j % 2 * 2 + up;
}

template <typename T> static __device__ __forceinline__ float2 unpacked(unsigned u, T)
{
    T v[2];
    memcpy(v, &u, 4);
    return make_float2(pl_get(v[0]), pl_get(v[1]));
}

/* Stores rows of results times `by`; rows r0 and r0 + 8 are this thread's. */
template <int D, typename R>
static __device__ __forceinline__ void store(R *to, int64_t stride, const float (&v)[D / 2],
                                             float2 by, int r0, int limit, int d)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int up = 0; up < 2; up++) {
        int r = r0 + up * 8;
        if (r >= limit) continue;
        float f = up ? by.y : by.x;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            int c = j * 8 + lane % 4 * 2;
            if (c < d)
                store_two(to + r * stride + c, v[4 * j + 2 * up] * f, v[4 * j + 2 * up + 1] * f);
        }
    }
}

/* Shared memory begins at a multiple of 1024 bytes, which swizzled tiles need. */
static __device__ __forceinline__ unsigned char *tiles_at(void)
{
    extern __shared__ __align__(1024) unsigned char wg_shared[];
    unsigned at = (unsigned)__cvta_generic_to_shared(wg_shared);
    return wg_shared + ((1024 - at % 1024) & 1023);
}

#endif
