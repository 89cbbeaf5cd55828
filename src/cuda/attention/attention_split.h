/* attention_split.h - attention of f32 on tensor cores with f32's accuracy: shared by its passes.
 *
 * An f32 is split into the sum of two f16 numbers, hi and lo, times a power of two that the numbers
 * of a row share: hi has 11 bits of x, lo the next 11. A product is lo hi + hi lo + hi hi; the
 * omitted term is 2^-24 of it. The power scales the row's largest number to between 2^14 and 2^15,
 * so that nothing overflows; the rounding error of a small number is 2^-40 of the largest. Three
 * f16 products take half of the time of three TF32 products, and TF32 has the same 11 bits.
 *
 * Tensor cores truncate sums instead of rounding. So that this error does not grow with the length
 * of a sum, they add 16 products from zero, small ones first, and an ordinary addition adds that to
 * the sum.
 *
 * q, k, v and d_o are split once, into scratch (cut): rows of D numbers hi and D lo, and the row's
 * factor. Scores and their gradients are split in registers, row by row of a tile, after
 * multiplying by the factors of the other side's tokens, because they are summed over.
 *
 * The passes are those of attention_mma.cu: a block keeps ROWS tokens of one side in shared memory
 * and walks the other side in tiles of COLS tokens, two in flight; a warp owns 16 MT of the rows;
 * scores stay in registers from one product to the next.
 *
 * The order of every sum depends on the sizes alone, and no atomics are used.
 *
 * A number that is not finite cannot be split: every result that its row contributes to is NaN,
 * also where f32 would give an infinity.
 */
#ifndef PL_CUDA_ATTENTION_SPLIT_H
#define PL_CUDA_ATTENTION_SPLIT_H

#include "cuda/attention/attention.h"
#include "cuda/attention/quad.h"
#include "cuda/device/launch.h"
#include "cuda/matmul/mma.h"
#include "plan/cost/kernel_sizes.h"

static constexpr int WARPS = 4, THREADS = WARPS * 32;

/* A split tensor: rows [head - head0][token] of D hi and D lo, and their factors. */
typedef struct parts {
    const pl_f16 *x;
    const float *factor;
} parts;

/* ---- splitting ------------------------------------------------------------------------------ */
/* For a largest number with exponent field e: 2^14 over its power of two, and the inverse. */
static __device__ __forceinline__ float up_by(unsigned e)
{
    return __uint_as_float((268 - max(e, 17u)) << 23);
}
static __device__ __forceinline__ float back_by(unsigned e)
{
    return __uint_as_float((max(e, 17u) - 14) << 23);
}

/* Splits two numbers below 2^16. */
static __device__ __forceinline__ void take_apart(float x, float y, unsigned &hi, unsigned &lo)
{
    __half2 h;
    hi = pl_pack2(x, y, pl_f16());
    memcpy(&h, &hi, 4);
    float2 f = __half22float2(h);
    lo = pl_pack2(x - f.x, y - f.y, pl_f16());
}

/* ---- tiles ---------------------------------------------------------------------------------- */
/* Returns the offset of 16-byte chunk c of token r, in elements; the chunks of lo follow the chunks
 * of hi. Chunks are swizzled by token, so that the 8 rows of a matrix load lie in different
 * banks. */
template <int D> static __device__ __forceinline__ int place(int r, int c)
{
    return r * 2 * D + ((c ^ (r & 7)) * 8);
}

/* Loads tokens [first, first + ROWS), zero past `limit`. */
template <int D, int ROWS>
static __device__ __forceinline__ void fill(pl_f16 *tile, const pl_f16 *from, int first, int limit)
{
    constexpr int chunks = D / 4;
    for (int i = threadIdx.x; i < ROWS * chunks; i += THREADS) {
        int r = i / chunks, c = i % chunks, t = first + r;
        pl_copy16(tile + place<D>(r, c), t < limit ? from + (int64_t)t * 2 * D + c * 8 : from,
                  t < limit);
    }
}

/* Loads numbers [first, first + N) of each of several lists, side by side, zero past `limit`. */
template <int N, int LISTS>
static __device__ __forceinline__ void fill_lists(float *to, const float *const (&from)[LISTS],
                                                  int first, int limit)
{
#pragma unroll
    for (int l = 0; l < LISTS; l++)
        for (int i = threadIdx.x; i < N; i += THREADS) {
            bool in = first + i < limit;
            pl_copy4(to + l * N + i, in ? from[l] + first + i : from[l], in);
        }
}

/* ---- products ------------------------------------------------------------------------------- */
template <int MT, int N> static __device__ __forceinline__ void clear(float (*v)[N][4])
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < N; j++) v[i][j][0] = v[i][j][1] = v[i][j][2] = v[i][j][3] = 0;
}

/* c[i * 2 + j] = a[i] b[j] over k = 16, j = 0, 1. */
template <int MT>
static __device__ __forceinline__ void multiply(float (*c)[4], const unsigned (*a_hi)[4],
                                                const unsigned (*a_lo)[4], const unsigned *b_hi,
                                                const unsigned *b_lo)
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) c[x][0] = c[x][1] = c[x][2] = c[x][3] = 0;
#pragma unroll
    for (int x = 0; x < MT * 2; x++) pl_multiply_f16(c[x], a_lo[x / 2], b_hi + x % 2 * 2, c[x]);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) pl_multiply_f16(c[x], a_hi[x / 2], b_lo + x % 2 * 2, c[x]);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) pl_multiply_f16(c[x], a_hi[x / 2], b_hi + x % 2 * 2, c[x]);
}

/* s = rows x tile', over D, without the factors. */
template <int D, int MT, int COLS>
static __device__ __forceinline__ void scores(float (*s)[COLS / 8][4], const pl_f16 *rows,
                                              const pl_f16 *tile)
{
    int lane = threadIdx.x % 32, r0 = threadIdx.x / 32 * 16 * MT;
    clear<MT, COLS / 8>(s);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned hi[MT][4], lo[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            int r = r0 + i * 16 + (lane & 15), c = k * 2 + (lane >> 4);
            pl_load4(hi[i], rows + place<D>(r, c));
            pl_load4(lo[i], rows + place<D>(r, c + D / 8));
        }
#pragma unroll
        for (int j = 0; j < COLS / 16; j++) {
            unsigned b_hi[4], b_lo[4];
            float part[MT * 2][4];
            int r = j * 16 + (lane & 7) + ((lane >> 4) << 3), c = k * 2 + ((lane >> 3) & 1);
            pl_load4(b_hi, tile + place<D>(r, c));
            pl_load4(b_lo, tile + place<D>(r, c + D / 8));
            multiply<MT>(part, hi, lo, b_hi, b_lo);
#pragma unroll
            for (int x = 0; x < MT * 2; x++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[x / 2][2 * j + x % 2][e] += part[x][e];
        }
    }
}

/* Left operands of weigh over 16 T tokens, and the factors of its rows. */
template <int MT, int T> struct left {
    unsigned hi[T][MT][4], lo[T][MT][4];
    float back[MT][2];
};

/* out += a x tile, over 16 T tokens. */
template <int D, int MT, int T>
static __device__ __forceinline__ void weigh(float (*out)[D / 8][4], const left<MT, T> &a,
                                             const pl_f16 *tile)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            unsigned b_hi[4], b_lo[4];
            float part[MT * 2][4];
            int r = t * 16 + (lane & 15), c = j * 2 + (lane >> 4);
            pl_load4t(b_hi, tile + place<D>(r, c));
            pl_load4t(b_lo, tile + place<D>(r, c + D / 8));
            multiply<MT>(part, a.hi[t], a.lo[t], b_hi, b_lo);
#pragma unroll
            for (int x = 0; x < MT * 2; x++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float *to = &out[x / 2][2 * j + x % 2][e];
                    *to = fmaf(part[x][e], a.back[x / 2][e / 2], *to);
                }
        }
}

/* Multiplies scores by the factors of their columns; `factor` points at the factor of the thread's
 * first column. */
template <int MT, int COLS>
static __device__ __forceinline__ void take_scores(left<MT, COLS / 16> &a, float (*p)[COLS / 8][4],
                                                   const float *factor)
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int i = x / 2, up = x % 2;
        float v[COLS / 4], most = 0;
#pragma unroll
        for (int e = 0; e < COLS / 4; e++) {
            v[e] = p[i][e / 2][up * 2 + e % 2] * factor[e / 2 * 8 + e % 2];
            most = fmaxf(most, fabsf(v[e]));
        }
        unsigned field = __float_as_uint(over_quad_max(most)) >> 23;
        float by = up_by(field);
        a.back[i][up] = back_by(field);
#pragma unroll
        for (int e = 0; e < COLS / 4; e += 2)
            take_apart(v[e] * by, v[e + 1] * by, a.hi[e / 4][i][e / 2 % 2 * 2 + up],
                       a.lo[e / 4][i][e / 2 % 2 * 2 + up]);
    }
}

/* ---- results -------------------------------------------------------------------------------- */
/* Stores one row of a thread: half `up` of v. add: adds to the stored row. */
template <int D>
static __device__ __forceinline__ void store_row(float *row, float (*v)[4], int up, float factor,
                                                 bool add, const pl_attend_shape &z)
{
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        int c = j * 8 + threadIdx.x % 4 * 2;
        float x = v[j][up * 2] * factor, y = v[j][up * 2 + 1] * factor;
        if (add && c < z.d) x += row[c];
        if (add && c + 1 < z.d) y += row[c + 1];
        if (z.wide) {
            if (c < z.d) *(float2 *)(row + c) = make_float2(x, y);
            continue;
        }
        if (c < z.d) row[c] = x;
        if (c + 1 < z.d) row[c + 1] = y;
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static inline pl_attend_shape sizes_of(const pl_attend *a, bool back)
{
    const void *p[7] = {a->q, a->k, a->v, a->d_o, a->out[0]};
    for (int i = 1; back && i < 3; i++) p[4 + i] = a->out[i];
    return pl_attend_shape_of(a, p, 7);
}

static inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline unsigned tiles_of(int64_t tokens, int rows)
{
    return (unsigned)div_up(tokens, rows);
}

/* Returns the shared memory for the rows of `sides` tensors, two tiles of each of two tensors, and
 * `lists` numbers per token of two tiles. */
static inline size_t shared_bytes(int d, int rows, int cols, int sides, int lists)
{
    return (size_t)((rows * sides + 4 * cols) * 4 * d + 2 * cols * lists * 4);
}

/* Allows a kernel its shared memory; more than 48 KiB must be requested. */
static inline pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

/* Multiprocessors of a large GPU. Decisions that use this number are the same on all GPUs. */
static constexpr int64_t LARGE = 132;

/* Returns the time of that many blocks; alone[j]: time of j concurrent blocks, of which `most`
 * fit. */
static inline int64_t time_of(int64_t blocks, const int *alone, int most)
{
    return blocks / (most * LARGE) * alone[most] + alone[div_up(blocks % (most * LARGE), LARGE)];
}

/* Whether blocks of half the tokens finish sooner: then three of them are concurrent instead of
 * two. */
static inline bool halves_win(int64_t heads, int64_t tokens)
{
    const int all[3] = {0, 7, 12}, halves[4] = {0, 5, 7, 10}, rows = WARPS * 32;
    return time_of(heads * tiles_of(tokens, rows / 2), halves, 3) <
           time_of(heads * tiles_of(tokens, rows), all, 2);
}

static inline pl_attend_sizes plan_sizes(const pl_attend *a)
{
    pl_attend_sizes s = {a->batch * a->heads, a->n, a->m, a->d, a->room};
    return s;
}

static inline parts cut_of(const pl_attend *a, const pl_attend_course &c, int i)
{
    const char *at = (const char *)a->work + c.split_at[i];
    int64_t rows = c.heads * (i % 3 ? a->m : a->n);
    parts p = {(const pl_f16 *)at, (const float *)(at + rows * 4 * pl_attend_wide(a->d))};
    return p;
}

/* Splits `heads` heads from head0 on of the first `tensors` of q, k, v, d_o. attention_split.cu */
pl_status pl_attend_cut(const pl_attend *a, const pl_attend_course &c, int tensors, int head0,
                        int heads) PL_MUST_USE;

#endif
