/* attention_mma.h - attention of 16-bit operands on tensor cores (compute capability 8.0 on):
 * shared by attention_mma.cu and attention_tf32.cu.
 *
 * A block keeps ROWS tokens of one side in shared memory and walks the other side in tiles of COLS
 * tokens, two tiles in flight. A warp owns 16*MT of the rows:
 *
 *   forward   rows q          tiles k, v      s = q k'            o  += p v
 *   dq        rows q, d_o     tiles k, v      s = q k'  dp = d_o v'   dq += ds k
 *   dk, dv    rows k, v       tiles q, d_o    s' = k q' dp' = v d_o'  dv += p' d_o, dk += ds' q
 *
 * so in all three the scores lie in registers as the product's result with one row per thread quad,
 * and become the left operand of the next product without leaving the registers. No atomics are
 * used: results do not depend on the order of blocks. Sums are f32; p and ds are rounded to the
 * operands' type before they are multiplied.
 *
 * Tiles are [token][D] with 16-byte chunks swizzled by token (chunk ^ token), so that the 8 rows of
 * a matrix load lie in different banks. D is the head's size rounded up to 32, 64, 128 or 256; the
 * rest of a row is zero.
 */
#ifndef PL_CUDA_ATTENTION_MMA_H
#define PL_CUDA_ATTENTION_MMA_H

#include "cuda/attention/keys.h"
#include "cuda/attention/mask.h"
#include "cuda/attention/rounded.h"

static constexpr int WARPS = 4, THREADS = WARPS * 32;

/* ---- tiles ---------------------------------------------------------------------------------- */
/* Returns the offset of 16-byte chunk c of token r, in elements. */
template <int D> static __device__ __forceinline__ int place(int r, int c)
{
    constexpr int chunks = D / 8;
    int turn = chunks >= 8 ? r & 7 : (r / (8 / chunks)) & (chunks - 1);
    return r * D + ((c ^ turn) * 8);
}

/* Loads tokens [first, first + ROWS) of one head, zero past `limit` and past the head's d. wide:
 * rows are multiples of 16 bytes, copied asynchronously. */
template <typename T, int D, int ROWS>
static __device__ __forceinline__ void fill(T *tile, const T *from, int64_t stride, int first,
                                            int limit, int d, bool wide)
{
    constexpr int chunks = D / 8;
    for (int i = threadIdx.x; i < ROWS * chunks; i += THREADS) {
        int r = i / chunks, c = i % chunks, t = first + r;
        T *to = tile + place<D>(r, c);
        if (wide) {
            bool in = t < limit && c * 8 < d;
            pl_copy16(to, in ? from + t * stride + c * 8 : from, in);
        } else {
            for (int e = 0; e < 8; e++)
                to[e] = t < limit && c * 8 + e < d ? from[t * stride + c * 8 + e] : pl_put<T>(0.0f);
        }
    }
}

/* s[MT][COLS/8][4] += rows x tile', over D. */
template <typename T, int D, int MT, int COLS>
static __device__ __forceinline__ void scores(float (*s)[COLS / 8][4], const T *rows, const T *tile)
{
    int lane = threadIdx.x % 32, r0 = threadIdx.x / 32 * 16 * MT;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned a[MT][4], b[4];
#pragma unroll
        for (int i = 0; i < MT; i++)
            pl_load4(a[i], rows + place<D>(r0 + i * 16 + (lane & 15), k * 2 + (lane >> 4)));
#pragma unroll
        for (int j = 0; j < COLS / 16; j++) {
            pl_load4(b, tile + place<D>(j * 16 + (lane & 7) + ((lane >> 4) << 3),
                                        k * 2 + ((lane >> 3) & 1)));
#pragma unroll
            for (int i = 0; i < MT; i++) {
                pl_multiply(s[i][2 * j], a[i], b, T());
                pl_multiply(s[i][2 * j + 1], a[i], b + 2, T());
            }
        }
    }
}

/* out[MT][W/8][4] += p x tile[:, from..from+W); p are scores rounded to T. */
template <typename T, int D, int W, int MT, int COLS>
static __device__ __forceinline__ void weigh(float (*out)[W / 8][4], float (*p)[COLS / 8][4],
                                             const T *tile, int from)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        unsigned a[MT][4], b[4];
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float *f = p[i][2 * k + e / 2] + e % 2 * 2;
                a[i][e] = pl_pack2(f[0], f[1], T());
            }
#pragma unroll
        for (int j = 0; j < W / 16; j++) {
            pl_load4t(b, tile + place<D>(k * 16 + (lane & 15), from / 8 + j * 2 + (lane >> 4)));
#pragma unroll
            for (int i = 0; i < MT; i++) {
                pl_multiply(out[i][2 * j], a[i], b, T());
                pl_multiply(out[i][2 * j + 1], a[i], b + 2, T());
            }
        }
    }
}

/* Stores rows of results: token first + r, dims from.. , times factor[row of the thread]. */
template <int W, int MT, typename T>
static __device__ __forceinline__ void store(T *to, int64_t stride, float (*v)[W / 8][4],
                                             const float (*factor)[2], int first, int limit,
                                             int from, int d)
{
    int lane = threadIdx.x % 32, r0 = threadIdx.x / 32 * 16 * MT + lane / 4;
    bool pairs = (d & 1) == 0 && ((uintptr_t)to & (2 * sizeof(T) - 1)) == 0;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            int t = first + r0 + i * 16 + up * 8;
            if (t >= limit) continue;
            T *row = to + t * stride;
#pragma unroll
            for (int j = 0; j < W / 8; j++) {
                int c = from + j * 8 + lane % 4 * 2;
                float x = v[i][j][up * 2] * factor[i][up];
                float y = v[i][j][up * 2 + 1] * factor[i][up];
                if (pairs && c < d)
                    store_two(row + c, x, y);
                else {
                    if (c < d) row[c] = pl_put<T>(x);
                    if (c + 1 < d) row[c + 1] = pl_put<T>(y);
                }
            }
        }
}

template <int MT, int N> static __device__ __forceinline__ void clear(float (*v)[N][4])
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) v[i][j][e] = 0;
}

/* ---- forward --------------------------------------------------------------------------------- */
/* Turns one tile's scores into weights, with the running maximum and sum of each row; scales out
 * down. */
template <int MT, int COLS, int ND>
static __device__ __forceinline__ void soften(float (*s)[COLS / 8][4], float (*out)[ND][4],
                                              float (*top)[2], float (*total)[2], float unit)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            float most = top[i][up], sum = 0;
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
                most = fmaxf(most, fmaxf(s[i][j][up * 2], s[i][j][up * 2 + 1]));
            most = over_quad_max(most);
            float fade = pl_power2((top[i][up] - most) * unit), base = most * unit;
            top[i][up] = most;
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = up * 2; e < up * 2 + 2; e++) {
                    s[i][j][e] = pl_power2(fmaf(s[i][j][e], unit, -base));
                    sum += s[i][j][e];
                }
            total[i][up] = total[i][up] * fade + sum;
#pragma unroll
            for (int j = 0; j < ND; j++) {
                out[i][j][up * 2] *= fade;
                out[i][j][up * 2 + 1] *= fade;
            }
        }
}

/* grid: (tiles of queries, heads, batch) */
template <typename T, typename R, int D, int MT, int COLS, bool MASKED>
static __global__ void __launch_bounds__(THREADS)
    forward(shape z, const T *q, const T *k, const T *v, const unsigned *largest, R *o, float *lse)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(unsigned char, bytes);
    constexpr int ROWS = WARPS * 16 * MT;
    T *rows = (T *)bytes, *keys = rows + ROWS * D, *values = keys + 2 * COLS * D;
    int h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32;
    /* The longest rows of a causal block start first: otherwise they finish last. */
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = z.row;
    q += (int64_t)b * z.n * stride + h * z.step;
    o += ((int64_t)b * z.n * z.heads + h) * z.d;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    const powers by = powers_of<R>(largest);
    float out[MT][D / 8][4], top[MT][2], total[MT][2], scale = z.scale * by.scores;
    float unit = MASKED ? LOG2E : scale * LOG2E; /* scores with a mask are multiplied by scale */
    clear<MT, D / 8>(out);
    for (int i = 0; i < MT; i++)
        for (int e = 0; e < 2; e++) {
            top[i][e] = MASKED ? PL_MASK_HIDDEN : -INFINITY;
            total[i][e] = 0;
        }
    fill<T, D, ROWS>(rows, q, stride, first, z.n, z.d, z.wide);
    fill<T, D, COLS>(keys, k, z.keys_row, 0, z.m, z.d, z.wide);
    fill<T, D, COLS>(values, v, z.keys_row, 0, z.m, z.d, z.wide);
    pl_copies_end();
    for (int t = 0; t < tiles; t++) {
        int at = t % 2 * COLS * D, next = COLS * D - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<T, D, COLS>(keys + next, k, z.keys_row, c0 + COLS, z.m, z.d, z.wide);
            fill<T, D, COLS>(values + next, v, z.keys_row, c0 + COLS, z.m, z.d, z.wide);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        float s[MT][COLS / 8][4];
        clear<MT, COLS / 8>(s);
        scores<T, D, MT, COLS>(s, rows, keys + at);
        int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
        if (MASKED) pl_mask_add<T, MT, COLS, false>(s, z, b, h, r0, c0, scale, 1);
        if (c0 + COLS > z.m || (z.causal && c0 + COLS > first))
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int c = c0 + j * 8 + lane % 4 * 2 + e % 2, r = r0 + i * 16 + e / 2 * 8;
                        if (c >= z.m || (z.causal && c > r)) s[i][j][e] = -INFINITY;
                    }
        soften<MT, COLS, D / 8>(s, out, top, total, unit);
        weigh<T, D, D, MT, COLS>(out, s, values + at, 0);
        __syncthreads();
    }
    float factor[MT][2];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            float sum = over_quad_sum(total[i][up]);
            int r = first + threadIdx.x / 32 * 16 * MT + i * 16 + up * 8 + lane / 4;
            bool none = MASKED && sum == 0;
            factor[i][up] = none ? 0 : by.o / sum;
            if (lane % 4 == 0 && r < z.n)
                lse[((int64_t)b * z.heads + h) * z.n + r] =
                    none ? 0 : fmaf(top[i][up], MASKED ? 1 : scale, logf(sum));
        }
    store<D, MT>(o, (int64_t)z.heads * z.d, out, factor, first, z.n, 0, z.d);
}

/* ---- backward -------------------------------------------------------------------------------- */
/* grid: (tiles of queries, heads, batch) */
template <typename T, typename R, int D, int MT, int COLS, bool MASKED>
static __global__ void __launch_bounds__(THREADS)
    to_query(shape z, const T *q, const T *k, const T *v, const T *d_o, const unsigned *largest,
             const float *lse, const float *delta, R *dq)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(unsigned char, bytes);
    constexpr int ROWS = WARPS * 16 * MT;
    T *rows = (T *)bytes, *d_rows = rows + ROWS * D;
    T *keys = d_rows + ROWS * D, *values = keys + 2 * COLS * D;
    int h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = z.row, outs = (int64_t)z.heads * z.d, head = (int64_t)b * z.heads + h;
    q += (int64_t)b * z.n * stride + h * z.step;
    d_o += (int64_t)b * z.n * outs + h * z.d;
    dq += (int64_t)b * z.n * z.to_row + h * z.to_step;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    const powers by = powers_of<R>(largest);
    float out[MT][D / 8][4], base[MT][2], minus[MT][2], unit = z.scale * by.scores * LOG2E;
    clear<MT, D / 8>(out);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            int r = r0 + i * 16 + up * 8;
            base[i][up] = r < z.n ? lse[head * z.n + r] * LOG2E : 0;
            minus[i][up] = r < z.n ? delta[head * z.n + r] * by.d_scores : 0;
        }
    fill<T, D, ROWS>(rows, q, stride, first, z.n, z.d, z.wide);
    fill<T, D, ROWS>(d_rows, d_o, outs, first, z.n, z.d, z.wide);
    fill<T, D, COLS>(keys, k, z.keys_row, 0, z.m, z.d, z.wide);
    fill<T, D, COLS>(values, v, z.keys_row, 0, z.m, z.d, z.wide);
    pl_copies_end();
    for (int t = 0; t < tiles; t++) {
        int at = t % 2 * COLS * D, next = COLS * D - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<T, D, COLS>(keys + next, k, z.keys_row, c0 + COLS, z.m, z.d, z.wide);
            fill<T, D, COLS>(values + next, v, z.keys_row, c0 + COLS, z.m, z.d, z.wide);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        float s[MT][COLS / 8][4], dp[MT][COLS / 8][4];
        clear<MT, COLS / 8>(s);
        clear<MT, COLS / 8>(dp);
        scores<T, D, MT, COLS>(s, rows, keys + at);
        scores<T, D, MT, COLS>(dp, d_rows, values + at);
        if (MASKED) pl_mask_add<T, MT, COLS, false>(s, z, b, h, r0, c0, unit, LOG2E);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int c = c0 + j * 8 + lane % 4 * 2 + e % 2, r = r0 + i * 16 + e / 2 * 8;
                    bool in = c < z.m && !(z.causal && c > r);
                    float x = fmaf(s[i][j][e], MASKED ? 1 : unit, -base[i][e / 2]);
                    float p = in ? pl_power2(x) : 0.0f;
                    s[i][j][e] = p * (dp[i][j][e] - minus[i][e / 2]);
                }
        weigh<T, D, D, MT, COLS>(out, s, keys + at, 0);
        __syncthreads();
    }
    float factor[MT][2];
    for (int i = 0; i < MT; i++) factor[i][0] = factor[i][1] = z.scale * by.dq;
    store<D, MT>(dq, z.to_row, out, factor, first, z.n, 0, z.d);
}

/* grid: (tiles of keys, heads, batch * slices of W dims of the results) */
template <typename T, typename R, int D, int W, int MT, int COLS, bool MASKED>
static __global__ void __launch_bounds__(THREADS)
    to_key(shape z, const T *q, const T *k, const T *v, const T *d_o, const unsigned *largest,
           const float *lse, const float *delta, R *dk, R *dv)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(unsigned char, bytes);
    constexpr int ROWS = WARPS * 16 * MT;
    T *rows = (T *)bytes, *v_rows = rows + ROWS * D;
    T *queries = v_rows + ROWS * D, *d_outs = queries + 2 * COLS * D;
    float *sums = (float *)(d_outs + 2 * COLS * D); /* lse * LOG2E, delta of the tile */
    int h = blockIdx.y, b = blockIdx.z / (D / W), from = blockIdx.z % (D / W) * W;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS;
    int64_t stride = z.row, outs = (int64_t)z.heads * z.d, head = (int64_t)b * z.heads + h;
    q += (int64_t)b * z.n * stride + h * z.step;
    d_o += (int64_t)b * z.n * outs + h * z.d;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    dk += (int64_t)b * z.m * z.to_row + h * z.to_step;
    dv += (int64_t)b * z.m * z.to_row + h * z.to_step;
    int t0 = z.causal ? first / COLS : 0, tiles = (z.n + COLS - 1) / COLS;
    int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    const powers by = powers_of<R>(largest);
    float to_k[MT][W / 8][4], to_v[MT][W / 8][4], unit = z.scale * by.scores * LOG2E;
    clear<MT, W / 8>(to_k), clear<MT, W / 8>(to_v);
    fill<T, D, ROWS>(rows, k, z.keys_row, first, z.m, z.d, z.wide);
    fill<T, D, ROWS>(v_rows, v, z.keys_row, first, z.m, z.d, z.wide);
    if (t0 < tiles) {
        fill<T, D, COLS>(queries, q, stride, t0 * COLS, z.n, z.d, z.wide);
        fill<T, D, COLS>(d_outs, d_o, outs, t0 * COLS, z.n, z.d, z.wide);
    }
    pl_copies_end();
    for (int t = t0; t < tiles; t++) {
        int at = (t - t0) % 2 * COLS * D, next = COLS * D - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<T, D, COLS>(queries + next, q, stride, c0 + COLS, z.n, z.d, z.wide);
            fill<T, D, COLS>(d_outs + next, d_o, outs, c0 + COLS, z.n, z.d, z.wide);
        }
        pl_copies_end();
        for (int i = threadIdx.x; i < 2 * COLS; i += THREADS) {
            int c = c0 + i % COLS;
            float x = c >= z.n ? 0 : (i < COLS ? lse : delta)[head * z.n + c];
            sums[i] = x * (i < COLS ? LOG2E : by.d_scores);
        }
        pl_copies_wait<1>();
        __syncthreads();
        float s[MT][COLS / 8][4], dp[MT][COLS / 8][4];
        clear<MT, COLS / 8>(s), clear<MT, COLS / 8>(dp);
        scores<T, D, MT, COLS>(s, rows, queries + at);
        if (MASKED) pl_mask_add<T, MT, COLS, true>(s, z, b, h, r0, c0, unit, LOG2E);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int in_tile = j * 8 + lane % 4 * 2 + e % 2, c = c0 + in_tile;
                    int r = r0 + i * 16 + e / 2 * 8;
                    bool in = c < z.n && r < z.m && !(z.causal && r > c);
                    float x = fmaf(s[i][j][e], MASKED ? 1 : unit, -sums[in_tile]);
                    s[i][j][e] = in ? pl_power2(x) : 0;
                }
        weigh<T, D, W, MT, COLS>(to_v, s, d_outs + at, from);
        scores<T, D, MT, COLS>(dp, v_rows, d_outs + at);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[i][j][e] *= dp[i][j][e] - sums[COLS + j * 8 + lane % 4 * 2 + e % 2];
        weigh<T, D, W, MT, COLS>(to_k, s, queries + at, from);
        __syncthreads();
    }
    pl_copies_wait<0>();
    float factor[MT][2];
    for (int i = 0; i < 2 * MT; i++) factor[i / 2][i % 2] = z.scale * by.dk;
    store<W, MT>(dk, z.to_row, to_k, factor, first, z.m, from, z.d);
    for (int i = 0; i < MT; i++) factor[i][0] = factor[i][1] = by.dv;
    store<W, MT>(dv, z.to_row, to_v, factor, first, z.m, from, z.d);
}

/* ---- launches ------------------------------------------------------------------------------- */
static int div_up(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

/* Rows per warp and columns per tile for each head size: as many as the registers hold. */
template <int D> struct shape_of {
    enum { MT = D <= 128 ? 2 : 1, COLS = D <= 128 ? 64 : 32 };
    enum { Q_MT = D <= 128 ? 2 : 1, Q_COLS = D <= 64 ? 64 : 32 };
    enum { K_W = D <= 128 ? D : 128, K_MT = D <= 64 ? 2 : 1, K_COLS = 32 };
};

/* T: the operands' type, R: the results'; `largest` of f32 operands. */
template <typename T, typename R, int D, bool MASKED>
static pl_status run_forward(const pl_attend *a, const unsigned *largest)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::COLS, ROWS = WARPS * 16 * MT;
    size_t bytes = sizeof(T) * D * (ROWS + 4 * COLS);
    auto kernel = forward<T, R, D, MT, COLS, MASKED>;
    PL_TRY(allow((const void *)kernel, bytes));
    dim3 grid(div_up(a->n, ROWS), (unsigned)a->heads, (unsigned)a->batch);
    PL_LAUNCH((kernel), grid, THREADS, bytes, sizes_of<T, R>(a), (const T *)a->q, (const T *)a->k,
              (const T *)a->v, largest, (R *)a->out[0], (float *)a->out[1]);
    return PL_OK;
}

template <typename T, typename R, int D, bool MASKED>
static pl_status run_backward(const pl_attend *a, const unsigned *largest)
{
    constexpr int QM = shape_of<D>::Q_MT, QC = shape_of<D>::Q_COLS, QR = WARPS * 16 * QM;
    constexpr int KM = shape_of<D>::K_MT, KC = shape_of<D>::K_COLS, KR = WARPS * 16 * KM;
    constexpr int W = shape_of<D>::K_W;
    size_t q_bytes = sizeof(T) * D * (2 * QR + 4 * QC);
    size_t k_bytes = sizeof(T) * D * (2 * KR + 4 * KC) + sizeof(float) * 2 * KC;
    auto for_q = to_query<T, R, D, QM, QC, MASKED>;
    auto for_k = to_key<T, R, D, W, KM, KC, MASKED>;
    const T *q = (const T *)a->q, *k = (const T *)a->k, *v = (const T *)a->v;
    const T *d_o = (const T *)a->d_o;
    const float *lse = (const float *)pl_attend_lse(a), *delta = (const float *)a->work;
    PL_TRY(allow((const void *)for_q, q_bytes));
    PL_TRY(allow((const void *)for_k, k_bytes));
    dim3 q_grid(div_up(a->n, QR), (unsigned)a->heads, (unsigned)a->batch);
    dim3 k_grid(div_up(a->m, KR), (unsigned)a->heads, (unsigned)a->batch * (D / W));
    PL_LAUNCH((for_k), k_grid, THREADS, k_bytes, sizes_of<T, R>(a), q, k, v, d_o, largest, lse,
              delta, (R *)a->out[1], (R *)a->out[2]);
    PL_LAUNCH((for_q), q_grid, THREADS, q_bytes, sizes_of<T, R>(a), q, k, v, d_o, largest, lse,
              delta, (R *)a->out[0]);
    return PL_OK;
}

template <typename T, typename R, int D, bool MASKED>
static pl_status run_sized(const pl_attend *a, bool back, const unsigned *largest)
{
    return back ? run_backward<T, R, D, MASKED>(a, largest)
                : run_forward<T, R, D, MASKED>(a, largest);
}

/* Heads of up to 256 of 16-bit results, of up to 128 of f32 results. */
template <typename T, typename R, bool MASKED>
static pl_status run_typed(const pl_attend *a, bool back, const unsigned *largest)
{
    if (a->d <= 32) return run_sized<T, R, 32, MASKED>(a, back, largest);
    if (a->d <= 64) return run_sized<T, R, 64, MASKED>(a, back, largest);
    if (a->d <= 128 || sizeof(R) > 2) return run_sized<T, R, 128, MASKED>(a, back, largest);
    return run_sized<T, R, (sizeof(R) > 2 ? 128 : 256), MASKED>(a, back, largest);
}

/* Bytes of the largest tiles of the three kernels. */
static inline bool fits(const pl_attend *a)
{
    size_t need = a->d <= 64 ? 66 << 10 : a->d <= 128 ? 97 << 10 : 129 << 10;
    const pl_cuda_props *card = pl_cuda_props_get();
    bool known =
        !a->masked || a->mask.type == PL_BOOL || a->mask.type == PL_F32 || a->mask.type == a->dtype;
    return card->arch >= 80 && known && a->d <= 256 && a->scale > 0 && a->n < 1 << 30 &&
           a->m < 1 << 30 && a->heads < 65536 && a->batch < 32768 &&
           need <= (size_t)card->shared_limit;
}

#endif
