/* attention_split.cu - attention of f32 on tensor cores, as exact as in f32.
 *
 * An f32 is the sum of two numbers of f16, hi and lo, times a power of two that the numbers of a row
 * share: hi has 11 bits of x, lo the next 11. A product is lo hi + hi lo + hi hi; what is left out is
 * 2^-24 of it. The power makes the row's largest number 2^14 and something, so that nothing
 * overflows; what f16 cannot hold of a small number is 2^-40 of the largest. Three products of f16
 * take half of the time of three of TF32, which has the same 11 bits.
 *
 * Tensor cores cut what they add up instead of rounding it. So that this does not grow with the
 * length of a sum, they add up 16 products from zero, small ones first, and an ordinary addition
 * brings that to the sum.
 *
 * q, k, v and d_o are taken apart once, into scratch (cut): rows of D numbers hi and D lo, and the
 * row's factor. Scores and their gradients are taken apart in registers, row by row of a tile, with
 * the factors of the other side's tokens multiplied in: they are summed over.
 *
 *   forward      rows q       tiles k, v      s = q k'                 o  += p v
 *   to_key       rows k, v    tiles q, d_o    s' = k q'  dp' = v d_o'  dv += p' d_o, dk += ds' q
 *   from_scores  rows ds      tiles k                                  dq = ds k
 *
 * The passes are those of attention_mma.cu: a block keeps ROWS tokens of one side in shared memory
 * and walks the other in tiles of COLS tokens, two in flight; a warp owns 16 MT of the rows; scores
 * stay in registers from one product to the next.
 *
 * ds' lies between to_key and from_scores in a bounded scratch: of all heads, or of some at a time,
 * or of some queries of a head, whose dk and dv then follow one another. Where keys are few,
 * to_key's blocks share the queries, and what each has found is added in their order. All that
 * depends on the sizes alone, and nothing is added by atomics.
 *
 * A number that is not finite has no parts: where it takes part the result is NaN, also where f32
 * would have an infinity.
 */
#include "cuda/attention.h"
#include "cuda/launch.h"
#include "cuda/mma.h"

static constexpr int WARPS = 4, THREADS = WARPS * 32;
/* A causal walk over queries starts at a multiple of it; tiles of from_scores divide it. */
static constexpr int WIDE = WARPS * 32;

typedef struct sizes {
    int n, m, heads, d;
    float scale;
    bool causal, wide; /* wide: rows of operands and results are multiples of 16 bytes */
} sizes;

/* A tensor taken apart: rows [head - head0][token] of D hi and D lo, and their factors. */
typedef struct parts {
    const pl_f16 *x;
    const float *factor;
} parts;

/* ---- taking apart --------------------------------------------------------------------------- */
/* For a largest number with exponent field e: 2^14 over its power of two, and the way back. */
static __device__ __forceinline__ float up_by(unsigned e)
{
    return __uint_as_float((268 - max(e, 17u)) << 23);
}
static __device__ __forceinline__ float back_by(unsigned e)
{
    return __uint_as_float((max(e, 17u) - 14) << 23);
}

/* Two numbers below 2^16. */
static __device__ __forceinline__ void take_apart(float x, float y, unsigned &hi, unsigned &lo)
{
    __half2 h;
    hi = pl_pack2(x, y, pl_f16());
    memcpy(&h, &hi, 4);
    float2 f = __half22float2(h);
    lo = pl_pack2(x - f.x, y - f.y, pl_f16());
}

typedef struct whole {
    const float *x;
    pl_f16 *to;
    float *factor;
    int tokens;
} whole;

/* Four numbers a thread. grid: (tiles of tokens, heads from head0 on, tensors) */
template <int D>
static __global__ void __launch_bounds__(256) cut(sizes z, whole q, whole k, whole v, whole d_o, int head0)
{
    constexpr int LANES = D / 4;
    whole w = blockIdx.z == 0 ? q : blockIdx.z == 1 ? k : blockIdx.z == 2 ? v : d_o;
    int t = blockIdx.x * (256 / LANES) + threadIdx.x / LANES, c = threadIdx.x % LANES * 4;
    int head = head0 + blockIdx.y;
    int64_t row = (int64_t)blockIdx.y * w.tokens + t;
    float x[4] = {0, 0, 0, 0};
    if (t < w.tokens) {
        const float *from = w.x + (((int64_t)(head / z.heads) * w.tokens + t) * z.heads + head % z.heads) * z.d + c;
        if (z.wide && c < z.d) {
            float4 f = *(const float4 *)from;
            x[0] = f.x, x[1] = f.y, x[2] = f.z, x[3] = f.w;
        } else {
            for (int e = 0; e < 4; e++)
                if (c + e < z.d) x[e] = from[e];
        }
    }
    unsigned most = 0;
    for (int e = 0; e < 4; e++) most = max(most, __float_as_uint(x[e]) & 0x7fffffffu);
    for (int far = LANES / 2; far; far /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, far));
    if (t >= w.tokens) return;
    float by = up_by(most >> 23);
    uint2 hi, lo;
    take_apart(x[0] * by, x[1] * by, hi.x, lo.x);
    take_apart(x[2] * by, x[3] * by, hi.y, lo.y);
    *(uint2 *)(w.to + row * 2 * D + c) = hi;
    *(uint2 *)(w.to + row * 2 * D + D + c) = lo;
    if (c == 0) w.factor[row] = back_by(most >> 23);
}

/* ---- tiles ---------------------------------------------------------------------------------- */
/* Where 16-byte chunk c of token r lies, in elements; the chunks of lo follow those of hi. Chunks are
 * exchanged by token, which keeps the 8 rows of a matrix load in different banks. */
template <int D> static __device__ __forceinline__ int place(int r, int c)
{
    return r * 2 * D + ((c ^ (r & 7)) * 8);
}

/* Tokens [first, first + ROWS), zero past `limit`. */
template <int D, int ROWS>
static __device__ __forceinline__ void fill(pl_f16 *tile, const pl_f16 *from, int first, int limit)
{
    constexpr int chunks = D / 4;
    for (int i = threadIdx.x; i < ROWS * chunks; i += THREADS) {
        int r = i / chunks, c = i % chunks, t = first + r;
        pl_copy16(tile + place<D>(r, c), t < limit ? from + (int64_t)t * 2 * D + c * 8 : from, t < limit);
    }
}

/* Numbers [first, first + N) of each of several lists, side by side, zero past `limit`. */
template <int N, int LISTS>
static __device__ __forceinline__ void fill_lists(float *to, const float *const (&from)[LISTS], int first, int limit)
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
static __device__ __forceinline__ void multiply(float (*c)[4], const unsigned (*a_hi)[4], const unsigned (*a_lo)[4],
                                                const unsigned *b_hi, const unsigned *b_lo)
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
static __device__ __forceinline__ void scores(float (*s)[COLS / 8][4], const pl_f16 *rows, const pl_f16 *tile)
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

/* The left operands of weigh over 16 T tokens, and the factors of its rows. */
template <int MT, int T> struct left {
    unsigned hi[T][MT][4], lo[T][MT][4];
    float back[MT][2];
};

/* out += a x tile, over 16 T tokens. */
template <int D, int MT, int T>
static __device__ __forceinline__ void weigh(float (*out)[D / 8][4], const left<MT, T> &a, const pl_f16 *tile)
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

/* Scores times the factors of their columns; `factor` is that of the thread's first one. */
template <int MT, int COLS>
static __device__ __forceinline__ void take_scores(left<MT, COLS / 16> &a, float (*p)[COLS / 8][4], const float *factor)
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
            take_apart(v[e] * by, v[e + 1] * by, a.hi[e / 4][i][e / 2 % 2 * 2 + up], a.lo[e / 4][i][e / 2 % 2 * 2 + up]);
    }
}

/* ---- results -------------------------------------------------------------------------------- */
/* One row of a thread: half `up` of v. add: to what is there. */
template <int D>
static __device__ __forceinline__ void store_row(float *row, float (*v)[4], int up, float factor, bool add,
                                                 const sizes &z)
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

/* ---- forward -------------------------------------------------------------------------------- */
/* One tile's scores to weights, with the running maximum and sum of each row; out fades. */
template <int MT, int COLS, int ND>
static __device__ __forceinline__ void soften(float (*s)[COLS / 8][4], float (*out)[ND][4], float (*top)[2],
                                              float (*total)[2])
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int i = x / 2, up = x % 2;
        float most = top[i][up], sum = 0;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) most = fmaxf(most, fmaxf(s[i][j][up * 2], s[i][j][up * 2 + 1]));
        most = over_quad_max(most);
        float fade = expf(top[i][up] - most);
        top[i][up] = most;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
#pragma unroll
            for (int e = up * 2; e < up * 2 + 2; e++) {
                s[i][j][e] = expf(s[i][j][e] - most);
                sum += s[i][j][e];
            }
        total[i][up] = fmaf(total[i][up], fade, sum);
#pragma unroll
        for (int j = 0; j < ND; j++) {
            out[i][j][up * 2] *= fade;
            out[i][j][up * 2 + 1] *= fade;
        }
    }
}

/* grid: (tiles of queries, heads from head0 on) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    forward(sizes z, int head0, parts q, parts k, parts v, float *o, float *lse)
{
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, TILE = COLS * 2 * D;
    pl_f16 *rows = shared, *keys = rows + ROWS * 2 * D, *values = keys + 2 * TILE;
    float *factors = (float *)(values + 2 * TILE); /* two tiles' of k and v */
    int head = head0 + blockIdx.y, h = head % z.heads, b = head / z.heads, lane = threadIdx.x % 32;
    /* The longest rows of a causal block come first: they finish last otherwise. */
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d;
    const pl_f16 *kx = k.x + (int64_t)blockIdx.y * z.m * 2 * D, *vx = v.x + (int64_t)blockIdx.y * z.m * 2 * D;
    const float *lists[2] = {k.factor + (int64_t)blockIdx.y * z.m, v.factor + (int64_t)blockIdx.y * z.m};
    o += (int64_t)b * z.n * stride + h * z.d;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    float out[MT][D / 8][4], top[MT][2], total[MT][2], unit[MT][2];
    clear<MT, D / 8>(out);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        top[x / 2][x % 2] = -INFINITY, total[x / 2][x % 2] = 0;
        unit[x / 2][x % 2] = r0 + x * 8 < z.n ? q.factor[(int64_t)blockIdx.y * z.n + r0 + x * 8] * z.scale : 0;
    }
    fill<D, ROWS>(rows, q.x + (int64_t)blockIdx.y * z.n * 2 * D, first, z.n);
    fill<D, COLS>(keys, kx, 0, z.m);
    fill<D, COLS>(values, vx, 0, z.m);
    fill_lists<COLS, 2>(factors, lists, 0, z.m);
    pl_copies_end();
    for (int t = 0; t < tiles; t++) {
        int at = t % 2 * TILE, next = TILE - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<D, COLS>(keys + next, kx, c0 + COLS, z.m);
            fill<D, COLS>(values + next, vx, c0 + COLS, z.m);
            fill_lists<COLS, 2>(factors + (t + 1) % 2 * 2 * COLS, lists, c0 + COLS, z.m);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const float *factor = factors + t % 2 * 2 * COLS + lane % 4 * 2;
        float s[MT][COLS / 8][4];
        left<MT, COLS / 16> a;
        scores<D, MT, COLS>(s, rows, keys + at);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++)
                s[i][e / 4][e % 4] = s[i][e / 4][e % 4] * unit[i][e / 2 % 2] * factor[e / 4 * 8 + e % 2];
        if (c0 + COLS > z.m || (z.causal && c0 + COLS > first))
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int e = 0; e < COLS / 2; e++) {
                    int c = c0 + e / 4 * 8 + lane % 4 * 2 + e % 2, r = r0 + i * 16 + e / 2 % 2 * 8;
                    if (c >= z.m || (z.causal && c > r)) s[i][e / 4][e % 4] = -INFINITY;
                }
        soften<MT, COLS, D / 8>(s, out, top, total);
        take_scores<MT, COLS>(a, s, factor + COLS);
        weigh<D, MT, COLS / 16>(out, a, values + at);
        __syncthreads();
    }
    pl_copies_wait<0>();
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        float sum = over_quad_sum(total[x / 2][x % 2]);
        int r = r0 + x * 8;
        if (r >= z.n) continue;
        store_row<D>(o + r * stride, out[x / 2], x % 2, 1 / sum, false, z);
        if (lane % 4 == 0) lse[(int64_t)head * z.n + r] = top[x / 2][x % 2] + logf(sum);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */
/* What a launch of to_key and from_scores is about: heads from head0 on, `queries` queries from
 * query0 on, `per` of them a slice of blocks. */
typedef struct share {
    int head0, query0, queries, per;
    bool add;    /* to the dk and dv that are there */
    float *kept; /* [head - head0][key][query - query0] */
    float *part; /* [slice][head - head0][dk, dv][key][d], or NULL where there is one slice */
} share;

/* A warp's scores' gradients; kept is that of query0. */
template <int MT, int COLS>
static __device__ __forceinline__ void keep(float *kept, float (*ds)[COLS / 8][4], int key, int query, int keys,
                                            int queries)
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        if (key + x * 8 >= keys) continue;
        float *row = kept + (int64_t)(key + x * 8) * queries;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            int c = query + j * 8;
            float2 v = make_float2(ds[x / 2][j][x % 2 * 2], ds[x / 2][j][x % 2 * 2 + 1]);
            if (queries % 2 == 0) {
                if (c < queries) *(float2 *)(row + c) = v;
                continue;
            }
            if (c < queries) row[c] = v.x;
            if (c + 1 < queries) row[c + 1] = v.y;
        }
    }
}

/* grid: (tiles of keys, heads, slices of queries) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    to_key(sizes z, share w, parts q, parts k, parts v, parts d_o, const float *lse, const float *delta, float *dk,
           float *dv)
{
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, TILE = COLS * 2 * D;
    pl_f16 *rows = shared, *v_rows = rows + ROWS * 2 * D, *queries = v_rows + ROWS * 2 * D;
    pl_f16 *d_outs = queries + 2 * TILE;
    float *numbers = (float *)(d_outs + 2 * TILE); /* two tiles' factors of q and d_o, lse, delta */
    int head = w.head0 + blockIdx.y, h = head % z.heads, b = head / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS, r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    int64_t stride = (int64_t)z.heads * z.d, n0 = (int64_t)blockIdx.y * z.n, m0 = (int64_t)blockIdx.y * z.m;
    const pl_f16 *qx = q.x + n0 * 2 * D, *dx = d_o.x + n0 * 2 * D;
    const float *lists[4] = {q.factor + n0, d_o.factor + n0, lse + (int64_t)head * z.n, delta + (int64_t)head * z.n};
    float *kept = w.kept + (int64_t)blockIdx.y * z.m * w.queries;
    int begin = w.query0 + blockIdx.z * w.per, end = min(w.query0 + w.queries, begin + w.per);
    if (z.causal) begin = max(begin, first / WIDE * WIDE);
    float to_k[MT][D / 8][4], to_v[MT][D / 8][4], unit[MT][2], v_unit[MT][2];
    clear<MT, D / 8>(to_k);
    clear<MT, D / 8>(to_v);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        bool in = r0 + x * 8 < z.m;
        unit[x / 2][x % 2] = in ? k.factor[m0 + r0 + x * 8] * z.scale : 0;
        v_unit[x / 2][x % 2] = in ? v.factor[m0 + r0 + x * 8] : 0;
    }
    fill<D, ROWS>(rows, k.x + m0 * 2 * D, first, z.m);
    fill<D, ROWS>(v_rows, v.x + m0 * 2 * D, first, z.m);
    if (begin < end) {
        fill<D, COLS>(queries, qx, begin, end);
        fill<D, COLS>(d_outs, dx, begin, end);
        fill_lists<COLS, 4>(numbers, lists, begin, end);
    }
    pl_copies_end();
    for (int c0 = begin, t = 0; c0 < end; c0 += COLS, t ^= 1) {
        int at = t * TILE, next = TILE - at;
        if (c0 + COLS < end) {
            fill<D, COLS>(queries + next, qx, c0 + COLS, end);
            fill<D, COLS>(d_outs + next, dx, c0 + COLS, end);
            fill_lists<COLS, 4>(numbers + (t ^ 1) * 4 * COLS, lists, c0 + COLS, end);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const float *number = numbers + t * 4 * COLS + lane % 4 * 2;
        float p[MT][COLS / 8][4], s[MT][COLS / 8][4];
        left<MT, COLS / 16> a;
        scores<D, MT, COLS>(p, rows, queries + at);
        /* Rows and columns past the end are zeros, which are either not stored or add nothing. */
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++) {
                int in = e / 4 * 8 + e % 2, c = c0 + in + lane % 4 * 2, r = r0 + i * 16 + e / 2 % 2 * 8;
                float x = expf(fmaf(p[i][e / 4][e % 4] * unit[i][e / 2 % 2], number[in], -number[2 * COLS + in]));
                p[i][e / 4][e % 4] = z.causal && r > c ? 0 : x;
            }
        take_scores<MT, COLS>(a, p, number + COLS);
        weigh<D, MT, COLS / 16>(to_v, a, d_outs + at);
        scores<D, MT, COLS>(s, v_rows, d_outs + at);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++) {
                int in = e / 4 * 8 + e % 2;
                p[i][e / 4][e % 4] *=
                    fmaf(s[i][e / 4][e % 4] * v_unit[i][e / 2 % 2], number[COLS + in], -number[3 * COLS + in]);
            }
        keep<MT, COLS>(kept, p, r0, c0 - w.query0 + lane % 4 * 2, z.m, w.queries);
        take_scores<MT, COLS>(a, p, number);
        weigh<D, MT, COLS / 16>(to_k, a, queries + at);
        __syncthreads();
    }
    pl_copies_wait<0>();
    bool add = w.add && !w.part;
    if (w.part) {
        stride = z.d;
        dk = w.part + ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * 2 * z.m * z.d;
        dv = dk + (int64_t)z.m * z.d;
    } else {
        dk += (int64_t)b * z.m * stride + h * z.d;
        dv += (int64_t)b * z.m * stride + h * z.d;
    }
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int t = r0 + x * 8;
        if (t >= z.m) continue;
        store_row<D>(dk + t * stride, to_k[x / 2], x % 2, z.scale, add, z);
        store_row<D>(dv + t * stride, to_v[x / 2], x % 2, 1, add, z);
    }
}

/* dk and dv of `heads` heads from head0 on, the slices in their order. */
static __global__ void __launch_bounds__(256)
    add_parts(sizes z, share w, int slices, int heads, float *dk, float *dv)
{
    int64_t each = (int64_t)z.m * z.d, step = 2 * each * heads;
    for (int64_t i = PL_ITEM; i < step; i += PL_ITEMS) {
        int64_t head = w.head0 + i / each / 2, in = i % each, b = head / z.heads, h = head % z.heads;
        float *to = (i / each % 2 ? dv : dk) + ((b * z.m + in / z.d) * z.heads + h) * z.d + in % z.d;
        float sum = w.part[i];
        for (int s = 1; s < slices; s++) sum += w.part[i + s * step];
        *to = w.add ? *to + sum : sum;
    }
}

/* dq of a block's queries, 2 MT side by side to a thread. grid: (tiles of queries, heads) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, MT == 1 && D <= 64 ? 3 : 2)
    from_scores(sizes z, share w, parts k, float *dq)
{
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, P = ROWS + 4, TILE = COLS * 2 * D, DS = COLS * P, OWN = 2 * MT;
    pl_f16 *keys = shared;
    float *ds = (float *)(keys + 2 * TILE), *factors = ds + 2 * DS;
    int h = (w.head0 + blockIdx.y) % z.heads, b = (w.head0 + blockIdx.y) / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS, own = threadIdx.x / 32 * 16 * MT + lane / 4 * OWN;
    int64_t stride = (int64_t)z.heads * z.d, m0 = (int64_t)blockIdx.y * z.m;
    dq += ((int64_t)b * z.n + w.query0) * stride + h * z.d;
    const float *kept = w.kept + m0 * w.queries + first, *lists[1] = {k.factor + m0};
    int seen = z.causal ? min(z.m, w.query0 + first + ROWS) : z.m;
    float out[MT][D / 8][4];
    clear<MT, D / 8>(out);
    auto fetch = [&](int t0, int turn) {
        int quad = w.queries % 4 == 0 ? 4 : 1;
        fill<D, COLS>(keys + turn * TILE, k.x + m0 * 2 * D, t0, seen);
        fill_lists<COLS, 1>(factors + turn * COLS, lists, t0, seen);
        for (int i = threadIdx.x * quad; i < COLS * ROWS; i += THREADS * quad) {
            int r = i / ROWS, c = i % ROWS;
            bool in = t0 + r < seen && first + c < w.queries;
            const float *from = in ? kept + (int64_t)(t0 + r) * w.queries + c : w.kept;
            float *to = ds + turn * DS + r * P + c;
            quad == 4 ? pl_copy16(to, from, in) : pl_copy4(to, from, in);
        }
    };
    fetch(0, 0);
    pl_copies_end();
    for (int t0 = 0, turn = 0; t0 < seen; t0 += COLS, turn ^= 1) {
        if (t0 + COLS < seen) fetch(t0 + COLS, turn ^ 1);
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        float v[OWN][COLS / 4], most[OWN]; /* [query][key: 2r, 2r + 1 of each eight] */
        left<MT, COLS / 16> a;
#pragma unroll
        for (int e = 0; e < OWN; e++) most[e] = 0;
#pragma unroll
        for (int u = 0; u < COLS / 4; u++) {
            int t = u / 2 * 8 + lane % 4 * 2 + u % 2;
            pl_pack<float, OWN> x = pl_read<float, OWN>(ds + turn * DS + t * P + own);
            float f = factors[turn * COLS + t];
#pragma unroll
            for (int e = 0; e < OWN; e++) {
                v[e][u] = x.v[e] * f;
                most[e] = fmaxf(most[e], fabsf(v[e][u]));
            }
        }
#pragma unroll
        for (int e = 0; e < OWN; e++) {
            unsigned field = __float_as_uint(over_quad_max(most[e])) >> 23;
            float by = up_by(field);
            a.back[e / 2][e % 2] = back_by(field);
#pragma unroll
            for (int u = 0; u < COLS / 4; u += 2)
                take_apart(v[e][u] * by, v[e][u + 1] * by, a.hi[u / 4][e / 2][u / 2 % 2 * 2 + e % 2],
                           a.lo[u / 4][e / 2][u / 2 % 2 * 2 + e % 2]);
        }
        weigh<D, MT, COLS / 16>(out, a, keys + turn * TILE);
        __syncthreads();
    }
    pl_copies_wait<0>();
#pragma unroll
    for (int x = 0; x < OWN; x++)
        if (first + own + x < w.queries)
            store_row<D>(dq + (first + own + x) * stride, out[x / 2], x % 2, z.scale, false, z);
}

/* ---- launches ------------------------------------------------------------------------------- */
static sizes sizes_of(const pl_attend *a, bool back)
{
    const void *p[7] = {a->q, a->k, a->v, a->d_o, a->out[0], back ? a->out[1] : NULL, back ? a->out[2] : NULL};
    sizes z = {(int)a->n, (int)a->m, (int)a->heads, (int)a->d, (float)a->scale, a->causal,
               a->d % 4 == 0 && pl_cuda_aligned(p, 7)};
    return z;
}

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static unsigned tiles_of(int64_t tokens, int rows)
{
    return (unsigned)div_up(tokens, rows);
}

/* Of `sides` tensors' rows and two tiles of each of two, and `lists` numbers a token of two tiles. */
static size_t shared_bytes(int d, int rows, int cols, int sides, int lists)
{
    return (size_t)((rows * sides + 4 * cols) * 4 * d + 2 * cols * lists * 4);
}

/* Allows a kernel its shared memory; more than 48 KiB must be asked for. */
static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

/* D of the kernels: the head's size rounded up. */
static int64_t wide_of(const pl_attend *a)
{
    return a->d <= 32 ? 32 : a->d <= 64 ? 64 : 128;
}

/* Blocks that a large card works on at a time. What is made of the sizes by it is the same on all cards. */
static constexpr int64_t SLOTS = 264;

/* Whether blocks of half the tokens have done sooner. */
static bool halves_win(int64_t heads, int64_t tokens)
{
    const int rows = WARPS * 32;
    int64_t all = div_up(heads * tiles_of(tokens, rows), SLOTS), halves = div_up(heads * tiles_of(tokens, rows / 2), SLOTS);
    return halves < 2 * all;
}

/* How a pass goes about its scratch: `heads` heads and `queries` queries at a time, in slices of `per`. */
typedef struct course {
    int64_t heads, queries, slices, per;
    size_t kept_at, part_at, cut_at[4], bytes; /* of scratch; cut: q, k, v, d_o */
} course;

static size_t round_up(int64_t bytes)
{
    return (size_t)div_up(bytes, 256) * 256;
}

/* Room behind c->bytes for what cut makes. */
static void lay_cuts(course *c, const pl_attend *a, int tensors)
{
    for (int i = 0; i < tensors; i++) {
        c->cut_at[i] = c->bytes;
        c->bytes += round_up(c->heads * (i % 3 ? a->m : a->n) * 4 * (wide_of(a) + 1));
    }
}

static parts cut_of(const pl_attend *a, const course &c, int i)
{
    const char *at = (const char *)a->work + c.cut_at[i];
    int64_t rows = c.heads * (i % 3 ? a->m : a->n);
    parts p = {(const pl_f16 *)at, (const float *)(at + rows * 4 * wide_of(a))};
    return p;
}

template <int D> static pl_status run_cut(const pl_attend *a, const course &c, int tensors, int head0, int heads)
{
    const void *x[4] = {a->q, a->k, a->v, a->d_o};
    whole w[4];
    memset(w, 0, sizeof w);
    for (int i = 0; i < tensors; i++) {
        parts p = cut_of(a, c, i);
        whole one = {(const float *)x[i], (pl_f16 *)p.x, (float *)p.factor, (int)(i % 3 ? a->m : a->n)};
        w[i] = one;
    }
    dim3 grid(tiles_of(a->n > a->m ? a->n : a->m, 256 / (D / 4)), (unsigned)heads, (unsigned)tensors);
    PL_LAUNCH((cut<D>), grid, 256, 0, sizes_of(a, tensors == 4), w[0], w[1], w[2], w[3], head0);
    return PL_OK;
}

/* ---- forward: launches ---------------------------------------------------------------------- */
static course forward_course(const pl_attend *a)
{
    const int64_t room = (int64_t)96 << 20;
    int64_t all = a->batch * a->heads, fit = room / ((a->n + 2 * a->m) * 4 * wide_of(a));
    course c = {1, a->n, 1, 0, 0, 0, {0}, 0};
    if (fit) c.heads = div_up(all, div_up(all, fit)); /* as many each time */
    lay_cuts(&c, a, 3);
    return c;
}

template <int D, int MT, int COLS> static pl_status run_rows(const pl_attend *a, const course &c, int head0, int heads)
{
    constexpr int ROWS = WARPS * 16 * MT;
    size_t bytes = shared_bytes(D, ROWS, COLS, 1, 2);
    auto kernel = forward<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(a->n, ROWS), (unsigned)heads), THREADS, bytes, sizes_of(a, false), head0,
              cut_of(a, c, 0), cut_of(a, c, 1), cut_of(a, c, 2), (float *)a->out[0], (float *)a->out[1]);
    return PL_OK;
}

/* Rows a warp and columns a tile: as many as the registers hold. */
template <int D> struct shape_of {
    enum { MT = D <= 64 ? 2 : 1, COLS = 32, KEY_COLS = 16 };
};

template <int D> static pl_status run_forward(const pl_attend *a)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::COLS;
    course c = forward_course(a);
    int64_t all = a->batch * a->heads;
    for (int64_t h = 0; h < all; h += c.heads) {
        int some = (int)(all - h < c.heads ? all - h : c.heads);
        PL_TRY(run_cut<D>(a, c, 3, (int)h, some));
        PL_TRY((halves_win(some, a->n) ? run_rows<D, 1, COLS>(a, c, (int)h, some) : run_rows<D, MT, COLS>(a, c, (int)h, some)));
    }
    return PL_OK;
}

/* ---- backward: launches --------------------------------------------------------------------- */
/* Keys of a block. */
static int key_rows(const pl_attend *a)
{
    return WARPS * 16 * (a->d <= 64 && a->m > 64 ? 2 : 1);
}

/* Slices of queries for to_key: those with which its blocks have done first, each with a little work of its own. */
static int64_t slices_for(int64_t blocks, int64_t queries)
{
    const int64_t least = 64, own = 48;
    int64_t best = 1, cost = INT64_MAX;
    for (int64_t s = 1; s <= div_up(queries, least) && blocks * s <= 4 * SLOTS + blocks; s++) {
        int64_t c = div_up(blocks * s, SLOTS) * (div_up(queries, s) + own);
        if (c < cost) best = s, cost = c;
    }
    return best;
}

static course backward_course(const pl_attend *a)
{
    const int64_t room = (a->room ? a->room : (int64_t)272 << 20) / 4 / a->m;
    int64_t all = a->batch * a->heads, fit = room / a->n;
    course c = {1, a->n, 1, 0, 0, 0, {0}, 0};
    if (fit) c.heads = div_up(all, div_up(all, fit));
    else c.queries = room / WIDE * WIDE > WIDE ? room / WIDE * WIDE : WIDE;
    c.slices = slices_for(c.heads * tiles_of(a->m, key_rows(a)), c.queries);
    c.per = div_up(div_up(c.queries, c.slices), 32) * 32;
    c.slices = div_up(c.queries, c.per);
    c.kept_at = round_up((int64_t)pl_attend_work(a));
    c.part_at = c.kept_at + round_up(c.heads * c.queries * a->m * 4);
    c.bytes = c.part_at + (c.slices > 1 ? round_up(c.slices * c.heads * 2 * a->m * a->d * 4) : 0);
    lay_cuts(&c, a, 4);
    return c;
}

extern "C" size_t pl_attend_split_work(const pl_attend *a, bool back)
{
    bool some = a->n && a->m && a->d && a->batch && a->heads;
    if (!some) return back ? pl_attend_work(a) : 0;
    return back ? backward_course(a).bytes : forward_course(a).bytes;
}

template <int D, int MT, int COLS>
static pl_status run_keys(const pl_attend *a, const course &c, const share &w, unsigned heads, unsigned slices)
{
    constexpr int ROWS = WARPS * 16 * MT;
    size_t bytes = shared_bytes(D, ROWS, COLS, 2, 4);
    auto kernel = to_key<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(a->m, ROWS), heads, slices), THREADS, bytes, sizes_of(a, true), w,
              cut_of(a, c, 0), cut_of(a, c, 1), cut_of(a, c, 2), cut_of(a, c, 3), (const float *)pl_attend_lse(a),
              (const float *)a->work, (float *)a->out[1], (float *)a->out[2]);
    if (w.part)
        PL_LAUNCH(add_parts, pl_blocks(2 * heads * a->m * a->d, 256), 256, 0, sizes_of(a, true), w, (int)slices,
                  (int)heads, (float *)a->out[1], (float *)a->out[2]);
    return PL_OK;
}

template <int D, int MT> static pl_status run_scores(const pl_attend *a, const course &c, const share &w, unsigned heads)
{
    constexpr int COLS = 32, ROWS = WARPS * 16 * MT;
    size_t bytes = 2 * COLS * (4 * D + 4 * (ROWS + 4) + 4);
    auto kernel = from_scores<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(w.queries, ROWS), heads), THREADS, bytes, sizes_of(a, true), w, cut_of(a, c, 1),
              (float *)a->out[0]);
    return PL_OK;
}

template <int D> static pl_status run_backward(const pl_attend *a)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::KEY_COLS;
    course c = backward_course(a);
    int64_t all = a->batch * a->heads;
    char *work = (char *)a->work;
    for (int64_t h = 0; h < all; h += c.heads) {
        unsigned some = (unsigned)(all - h < c.heads ? all - h : c.heads);
        PL_TRY(run_cut<D>(a, c, 4, (int)h, (int)some));
        for (int64_t i = 0; i < a->n; i += c.queries) {
            int64_t rest = a->n - i;
            share w = {(int)h, (int)i, (int)(rest < c.queries ? rest : c.queries), (int)c.per, i > 0,
                       (float *)(work + c.kept_at), c.slices > 1 ? (float *)(work + c.part_at) : NULL};
            unsigned slices = tiles_of(w.queries, w.per);
            PL_TRY((key_rows(a) == WARPS * 16 * MT ? run_keys<D, MT, COLS>(a, c, w, some, slices)
                                                   : run_keys<D, 1, COLS>(a, c, w, some, slices)));
            PL_TRY((halves_win(some, w.queries) ? run_scores<D, 1>(a, c, w, some) : run_scores<D, 2>(a, c, w, some)));
        }
    }
    return PL_OK;
}

template <int D> static pl_status run_sized(const pl_attend *a, bool back)
{
    return back ? run_backward<D>(a) : run_forward<D>(a);
}

static pl_status run(const pl_attend *a, bool back)
{
    PL_TRY(a->d <= 32 ? run_sized<32>(a, back) : a->d <= 64 ? run_sized<64>(a, back) : run_sized<128>(a, back));
    PL_CUDA_LAUNCHED("attention in f32 on tensor cores");
    return PL_OK;
}

extern "C" bool pl_attend_split_takes(const pl_attend *a)
{
    const pl_cuda_card *card = pl_cuda_card_get();
    return a->dtype == PL_F32 && pl_cuda_split() && card->arch >= 80 && a->d <= 128 && a->n < 1 << 30 &&
           a->m < 1 << 30 && a->heads < 65536 && a->batch < 65536 && a->batch * a->heads < 65536 &&
           shared_bytes(128, 64, 32, 1, 2) <= (size_t)card->shared_limit;
}

extern "C" pl_status pl_attend_split(const pl_attend *a)
{
    return run(a, false);
}

extern "C" pl_status pl_attend_split_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    return run(a, true);
}
