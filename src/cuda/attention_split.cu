/* attention_split.cu - attention of f32 on the TF32 units of tensor cores, as exact as in f32.
 *
 * An f32 is the sum of two TF32 numbers, hi = x rounded to 11 bits and lo = x - hi. A product is
 * lo hi + hi lo + hi hi; what is left out is 2^-22 of it. The units cut what they add up instead of
 * rounding it. So that this does not grow with the length of a sum, they add up 16 products from
 * zero, small ones first, and an ordinary addition brings that to the sum.
 *
 * The passes are those of attention_mma.cu: a block keeps ROWS tokens of one side in shared memory
 * and walks the other in tiles of COLS tokens, two in flight; a warp owns 16 MT of the rows; scores
 * stay in registers from one product to the next. Operands are split there, too.
 *
 *   forward      rows q       tiles k, v      s = q k'                 o  += p v
 *   to_key       rows k, v    tiles q, d_o    s' = k q'  dp' = v d_o'  dv += p' d_o, dk += ds' q
 *   from_scores  rows ds      tiles k                                  dq = ds k
 *
 * ds' lies between to_key and from_scores in a bounded scratch: of all heads, or of some at a time,
 * or of some queries of a head, whose dk and dv then follow one another. Where keys are few,
 * to_key's blocks share the queries, and what each has found is added in their order. All that
 * depends on the sizes alone, and nothing is added by atomics.
 *
 * Tiles are [token][D + 4]: eight rows of a matrix load lie in different banks, and so do the eight
 * places of four tokens that weigh reads. The order of k in a product is free: scores read 4 dims
 * at a time, weigh takes tokens 2r and 2r + 1 for k = r and r + 4, which is how scores lie in
 * registers. The order of n is free, too: weigh's pair of products has dims 2q and 2q + 1 for q, so
 * that a thread has four dims side by side.
 *
 * A number that is not finite has no split: where it takes part the result is NaN, also where f32
 * would have an infinity.
 */
#include "cuda/attention.h"
#include "cuda/launch.h"
#include "cuda/mma.h"

static constexpr int WARPS = 4, THREADS = WARPS * 32;
/* Queries of a block of from_scores, and what a causal walk over queries starts at a multiple of. */
static constexpr int WIDE = WARPS * 32;

typedef struct sizes {
    int n, m, heads, d;
    float scale;
    bool causal, wide; /* wide: rows of operands and results are multiples of 16 bytes */
} sizes;

/* ---- tiles ---------------------------------------------------------------------------------- */
template <int D> struct tile_of {
    enum { STRIDE = D + 4 };
};

/* Tokens [first, first + ROWS) of one head, zero past `limit` and past the head's d. */
template <int D, int ROWS>
static __device__ __forceinline__ void fill(float *tile, const float *from, int64_t stride, int first,
                                            int limit, const sizes &z)
{
    constexpr int S = tile_of<D>::STRIDE, quads = D / 4;
    for (int i = threadIdx.x; i < ROWS * quads; i += THREADS) {
        int r = i / quads, c = i % quads * 4, t = first + r;
        float *to = tile + r * S + c;
        if (z.wide) {
            bool in = t < limit && c < z.d;
            pl_copy16(to, in ? from + t * stride + c : from, in);
        } else {
            for (int e = 0; e < 4; e++) to[e] = t < limit && c + e < z.d ? from[t * stride + c + e] : 0;
        }
    }
}

/* ---- products ------------------------------------------------------------------------------- */
/* Halfway goes away from zero. NaN stays one by its lo. */
static __device__ __forceinline__ void split(unsigned x, unsigned &hi, unsigned &lo)
{
    hi = (x + 0x1000u) & 0xffffe000u;
    lo = __float_as_uint(__uint_as_float(x) - __uint_as_float(hi));
}

/* The left operands of MT products over k = 16: [product][half of k][register]. */
template <int MT> struct left {
    unsigned hi[MT][2][4], lo[MT][2][4];
};

/* sum[i][j0 + j] += a[i] b[j], j = 0, 1; b: [j][half of k][register], not split. */
template <int MT, int N>
static __device__ __forceinline__ void multiply(float (*sum)[N][4], int j0, const left<MT> &a, const unsigned *b)
{
    unsigned hi[8], lo[8];
    float c[MT * 2][4];
#pragma unroll
    for (int e = 0; e < 8; e++) split(b[e], hi[e], lo[e]);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) c[x][0] = c[x][1] = c[x][2] = c[x][3] = 0;
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int x = 0; x < MT * 2; x++)
            pl_multiply_tf32(c[x], a.lo[x / 2][k], hi + x % 2 * 4 + k * 2, c[x]);
#pragma unroll
        for (int x = 0; x < MT * 2; x++)
            pl_multiply_tf32(c[x], a.hi[x / 2][k], lo + x % 2 * 4 + k * 2, c[x]);
    }
#pragma unroll
    for (int k = 0; k < 2; k++)
#pragma unroll
        for (int x = 0; x < MT * 2; x++)
            pl_multiply_tf32(c[x], a.hi[x / 2][k], hi + x % 2 * 4 + k * 2, c[x]);
#pragma unroll
    for (int x = 0; x < MT * 2; x++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[x / 2][j0 + x % 2][e] += c[x][e];
}

template <int MT, int N> static __device__ __forceinline__ void clear(float (*v)[N][4])
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < N; j++) v[i][j][0] = v[i][j][1] = v[i][j][2] = v[i][j][3] = 0;
}

/* s = rows x tile', over D. */
template <int D, int MT, int COLS>
static __device__ __forceinline__ void scores(float (*s)[COLS / 8][4], const float *rows, const float *tile)
{
    constexpr int S = tile_of<D>::STRIDE;
    int lane = threadIdx.x % 32, r0 = threadIdx.x / 32 * 16 * MT;
    clear<MT, COLS / 8>(s);
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        left<MT> a;
#pragma unroll
        for (int x = 0; x < MT * 2; x++) {
            unsigned v[4];
            pl_load4(v, rows + (r0 + x / 2 * 16 + (lane & 15)) * S + c + x % 2 * 8 + (lane >> 4) * 4);
#pragma unroll
            for (int e = 0; e < 4; e++) split(v[e], a.hi[x / 2][x % 2][e], a.lo[x / 2][x % 2][e]);
        }
#pragma unroll
        for (int j = 0; j < COLS / 8; j += 2) {
            unsigned b[8];
            const float *at = tile + (j * 8 + (lane & 7)) * S + c + (lane >> 3) * 4;
            pl_load4(b, at);
            pl_load4(b + 4, at + 8 * S);
            multiply<MT, COLS / 8>(s, j, a, b);
        }
    }
}

/* out[:][from..from + 16) += a x 16 tokens of the tile. */
template <int D, int MT>
static __device__ __forceinline__ void weigh16(float (*out)[D / 8][4], const left<MT> &a, const float *tile)
{
    constexpr int S = tile_of<D>::STRIDE;
    int lane = threadIdx.x % 32;
    const float *at = tile + lane % 4 * 2 * S + lane / 4 * 2;
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        unsigned b[8];
#pragma unroll
        for (int u = 0; u < 4; u++) {
            float2 v = *(const float2 *)(at + (u / 2 * 8 + u % 2) * S + c);
            b[u] = __float_as_uint(v.x), b[4 + u] = __float_as_uint(v.y);
        }
        multiply<MT, D / 8>(out, c / 8, a, b);
    }
}

/* out += p x tile */
template <int D, int MT, int COLS>
static __device__ __forceinline__ void weigh(float (*out)[D / 8][4], float (*p)[COLS / 8][4], const float *tile)
{
#pragma unroll
    for (int t = 0; t < COLS; t += 16) {
        left<MT> a;
#pragma unroll
        for (int x = 0; x < MT * 2; x++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                split(__float_as_uint(p[x / 2][t / 8 + x % 2][e % 2 * 2 + e / 2]), a.hi[x / 2][x % 2][e],
                      a.lo[x / 2][x % 2][e]);
        weigh16<D, MT>(out, a, tile + t * tile_of<D>::STRIDE);
    }
}

/* ---- results -------------------------------------------------------------------------------- */
/* One row of a thread: half `up` of v. add: to what is there. */
template <int D>
static __device__ __forceinline__ void store_row(float *row, float (*v)[4], int up, float factor, bool add,
                                                 const sizes &z)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < D / 8; j += 2) {
        int c = j * 8 + lane % 4 * 4;
        float w[4] = {v[j][up * 2] * factor, v[j + 1][up * 2] * factor, v[j][up * 2 + 1] * factor,
                      v[j + 1][up * 2 + 1] * factor};
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (add && c + e < z.d) w[e] += row[c + e];
        if (z.wide) {
            if (c < z.d) *(float4 *)(row + c) = make_float4(w[0], w[1], w[2], w[3]);
            continue;
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (c + e < z.d) row[c + e] = w[e];
    }
}

/* ---- forward -------------------------------------------------------------------------------- */
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

/* One tile's scores to weights, with the running maximum and sum of each row; out fades. */
template <int MT, int COLS, int ND>
static __device__ __forceinline__ void soften(float (*s)[COLS / 8][4], float (*out)[ND][4], float (*top)[2],
                                              float (*total)[2], float scale)
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int i = x / 2, up = x % 2;
        float most = top[i][up], sum = 0;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
#pragma unroll
            for (int e = up * 2; e < up * 2 + 2; e++) {
                s[i][j][e] *= scale;
                most = fmaxf(most, s[i][j][e]);
            }
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

/* grid: (tiles of queries, heads, batch) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    forward(sizes z, const float *q, const float *k, const float *v, float *o, float *lse)
{
    PL_SHARED(float, shared);
    constexpr int ROWS = WARPS * 16 * MT, TILE = COLS * tile_of<D>::STRIDE;
    float *rows = shared, *keys = rows + ROWS * tile_of<D>::STRIDE, *values = keys + 2 * TILE;
    int h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32;
    /* The longest rows of a causal block come first: they finish last otherwise. */
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d;
    q += (int64_t)b * z.n * stride + h * z.d;
    o += (int64_t)b * z.n * stride + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    v += (int64_t)b * z.m * stride + h * z.d;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    float out[MT][D / 8][4], top[MT][2], total[MT][2];
    clear<MT, D / 8>(out);
#pragma unroll
    for (int i = 0; i < MT; i++) top[i][0] = top[i][1] = -INFINITY, total[i][0] = total[i][1] = 0;
    fill<D, ROWS>(rows, q, stride, first, z.n, z);
    fill<D, COLS>(keys, k, stride, 0, z.m, z);
    fill<D, COLS>(values, v, stride, 0, z.m, z);
    pl_copies_end();
    for (int t = 0; t < tiles; t++) {
        int at = t % 2 * TILE, next = TILE - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<D, COLS>(keys + next, k, stride, c0 + COLS, z.m, z);
            fill<D, COLS>(values + next, v, stride, c0 + COLS, z.m, z);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        float s[MT][COLS / 8][4];
        scores<D, MT, COLS>(s, rows, keys + at);
        if (c0 + COLS > z.m || (z.causal && c0 + COLS > first))
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int e = 0; e < COLS / 2; e++) {
                    int c = c0 + e / 4 * 8 + lane % 4 * 2 + e % 2, r = r0 + i * 16 + e / 2 % 2 * 8;
                    /* A negative scale turns this over. */
                    if (c >= z.m || (z.causal && c > r)) s[i][e / 4][e % 4] = z.scale < 0 ? INFINITY : -INFINITY;
                }
        soften<MT, COLS, D / 8>(s, out, top, total, z.scale);
        weigh<D, MT, COLS>(out, s, values + at);
        __syncthreads();
    }
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        float sum = over_quad_sum(total[x / 2][x % 2]);
        int r = r0 + x * 8;
        if (r >= z.n) continue;
        store_row<D>(o + r * stride, out[x / 2], x % 2, 1 / sum, false, z);
        if (lane % 4 == 0) lse[((int64_t)b * z.heads + h) * z.n + r] = top[x / 2][x % 2] + logf(sum);
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

/* lse and delta of a tile of queries. */
template <int COLS>
static __device__ __forceinline__ void fill_sums(float *sums, const float *lse, const float *delta, int first, int limit)
{
    for (int i = threadIdx.x; i < 2 * COLS; i += THREADS) {
        int c = first + i % COLS;
        const float *from = i < COLS ? lse : delta;
        pl_copy4(sums + i, c < limit ? from + c : from, c < limit);
    }
}

/* grid: (tiles of keys, heads, slices of queries) */
template <int D, int MT, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    to_key(sizes z, share w, const float *q, const float *k, const float *v, const float *d_o, const float *lse,
           const float *delta, float *dk, float *dv)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = WARPS * 16 * MT, TILE = COLS * S;
    float *rows = shared, *v_rows = rows + ROWS * S, *queries = v_rows + ROWS * S, *d_outs = queries + 2 * TILE;
    float *sums = d_outs + 2 * TILE;
    int h = (w.head0 + blockIdx.y) % z.heads, b = (w.head0 + blockIdx.y) / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * ROWS, r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    int64_t stride = (int64_t)z.heads * z.d, l0 = ((int64_t)b * z.heads + h) * z.n;
    q += (int64_t)b * z.n * stride + h * z.d;
    d_o += (int64_t)b * z.n * stride + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    v += (int64_t)b * z.m * stride + h * z.d;
    lse += l0;
    delta += l0;
    float *kept = w.kept + (int64_t)blockIdx.y * z.m * w.queries;
    int begin = w.query0 + blockIdx.z * w.per, end = min(w.query0 + w.queries, begin + w.per);
    if (z.causal) begin = max(begin, first / WIDE * WIDE);
    float to_k[MT][D / 8][4], to_v[MT][D / 8][4];
    clear<MT, D / 8>(to_k);
    clear<MT, D / 8>(to_v);
    fill<D, ROWS>(rows, k, stride, first, z.m, z);
    fill<D, ROWS>(v_rows, v, stride, first, z.m, z);
    if (begin < end) {
        fill<D, COLS>(queries, q, stride, begin, end, z);
        fill<D, COLS>(d_outs, d_o, stride, begin, end, z);
        fill_sums<COLS>(sums, lse, delta, begin, end);
    }
    pl_copies_end();
    for (int c0 = begin, t = 0; c0 < end; c0 += COLS, t ^= 1) {
        int at = t * TILE, next = TILE - at;
        if (c0 + COLS < end) {
            fill<D, COLS>(queries + next, q, stride, c0 + COLS, end, z);
            fill<D, COLS>(d_outs + next, d_o, stride, c0 + COLS, end, z);
            fill_sums<COLS>(sums + (t ^ 1) * 2 * COLS, lse, delta, c0 + COLS, end);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        __syncthreads();
        const float *base = sums + t * 2 * COLS + lane % 4 * 2;
        float p[MT][COLS / 8][4], s[MT][COLS / 8][4];
        scores<D, MT, COLS>(p, rows, queries + at);
        /* Rows and columns past the end are zeros, which are either not stored or add nothing. */
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++) {
                int c = c0 + e / 4 * 8 + lane % 4 * 2 + e % 2, r = r0 + i * 16 + e / 2 % 2 * 8;
                float x = expf(fmaf(p[i][e / 4][e % 4], z.scale, -base[e / 4 * 8 + e % 2]));
                p[i][e / 4][e % 4] = z.causal && r > c ? 0 : x;
            }
        weigh<D, MT, COLS>(to_v, p, d_outs + at);
        scores<D, MT, COLS>(s, v_rows, d_outs + at);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int e = 0; e < COLS / 2; e++)
                p[i][e / 4][e % 4] *= s[i][e / 4][e % 4] - base[COLS + e / 4 * 8 + e % 2];
        keep<MT, COLS>(kept, p, r0, c0 - w.query0 + lane % 4 * 2, z.m, w.queries);
        weigh<D, MT, COLS>(to_k, p, queries + at);
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

/* dq of a block's WIDE queries, four side by side to a thread. grid: (tiles of queries, heads) */
template <int D, int COLS>
static __global__ void __launch_bounds__(THREADS, 2)
    from_scores(sizes z, share w, const float *k, float *dq)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, P = WIDE + 4, TILE = COLS * S, DS = COLS * P;
    float *keys = shared, *ds = keys + 2 * TILE;
    int h = (w.head0 + blockIdx.y) % z.heads, b = (w.head0 + blockIdx.y) / z.heads;
    int lane = threadIdx.x % 32, first = blockIdx.x * WIDE, own = threadIdx.x / 32 * 32 + lane / 4 * 4;
    int64_t stride = (int64_t)z.heads * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    dq += ((int64_t)b * z.n + w.query0) * stride + h * z.d;
    const float *kept = w.kept + (int64_t)blockIdx.y * z.m * w.queries + first;
    int seen = z.causal ? min(z.m, w.query0 + first + WIDE) : z.m;
    float out[2][D / 8][4];
    clear<2, D / 8>(out);
    auto fetch = [&](int t0, int turn) {
        fill<D, COLS>(keys + turn * TILE, k, stride, t0, seen, z);
        int quad = w.queries % 4 == 0 ? 4 : 1;
        for (int i = threadIdx.x * quad; i < COLS * WIDE; i += THREADS * quad) {
            int r = i / WIDE, c = i % WIDE;
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
#pragma unroll
        for (int t = 0; t < COLS; t += 16) {
            left<2> a;
#pragma unroll
            for (int u = 0; u < 4; u++) {
                const float *at = ds + turn * DS + (t + u / 2 * 8 + lane % 4 * 2 + u % 2) * P + own;
                float4 v = *(const float4 *)at;
                float x[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int e = 0; e < 4; e++)
                    split(__float_as_uint(x[e]), a.hi[e / 2][u / 2][e % 2 + u % 2 * 2],
                          a.lo[e / 2][u / 2][e % 2 + u % 2 * 2]);
            }
            weigh16<D, 2>(out, a, keys + turn * TILE + t * S);
        }
        __syncthreads();
    }
    pl_copies_wait<0>();
#pragma unroll
    for (int x = 0; x < 4; x++)
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

static unsigned tiles_of(int64_t tokens, int rows)
{
    return (unsigned)((tokens + rows - 1) / rows);
}

static size_t shared_bytes(int d, int rows, int cols, bool back)
{
    int sides = back ? 2 : 1;
    return sizeof(float) * (size_t)((rows * sides + 4 * cols) * (d + 4) + (back ? 4 * cols : 0));
}

/* Allows a kernel its shared memory; more than 48 KiB must be asked for. */
static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

/* Blocks that keep a large card busy. */
static constexpr int64_t ENOUGH = 264;

template <int D, int MT, int COLS> static pl_status run_forward(const pl_attend *a)
{
    constexpr int ROWS = WARPS * 16 * MT;
    size_t bytes = shared_bytes(D, ROWS, COLS, false);
    auto kernel = forward<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    dim3 grid(tiles_of(a->n, ROWS), (unsigned)a->heads, (unsigned)a->batch);
    PL_LAUNCH((kernel), grid, THREADS, bytes, sizes_of(a, false), (const float *)a->q, (const float *)a->k,
              (const float *)a->v, (float *)a->out[0], (float *)a->out[1]);
    return PL_OK;
}

/* How backward goes about its scratch: `heads` heads and `queries` queries at a time, in slices of `per`. */
typedef struct course {
    int64_t heads, queries, slices, per;
    size_t kept_at, part_at, bytes; /* of scratch */
} course;

/* Keys of a block. */
static int key_rows(const pl_attend *a)
{
    return WARPS * 16 * (a->d <= 64 && a->m > 64 ? 2 : 1);
}

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static course course_of(const pl_attend *a)
{
    const int64_t least = 64, room = (a->room ? a->room : (int64_t)272 << 20) / 4 / a->m;
    int64_t all = a->batch * a->heads, fit = room / a->n;
    course c = {1, a->n, 1, 0, 0, 0, 0};
    if (fit) c.heads = div_up(all, div_up(all, fit)); /* as many each time */
    else c.queries = room / WIDE * WIDE > WIDE ? room / WIDE * WIDE : WIDE;
    int64_t blocks = c.heads * tiles_of(a->m, key_rows(a)), most = div_up(c.queries, least);
    c.slices = div_up(2 * ENOUGH, blocks) < most ? div_up(2 * ENOUGH, blocks) : most;
    c.per = div_up(div_up(c.queries, c.slices), 32) * 32;
    c.slices = div_up(c.queries, c.per);
    c.kept_at = (size_t)div_up((int64_t)pl_attend_work(a), 256) * 256;
    c.part_at = c.kept_at + (size_t)div_up(c.heads * c.queries * a->m * 4, 256) * 256;
    c.bytes = c.part_at + (c.slices > 1 ? (size_t)(c.slices * c.heads * 2 * a->m * a->d * 4) : 0);
    return c;
}

extern "C" size_t pl_attend_split_work(const pl_attend *a)
{
    return a->n && a->m && a->d && a->batch && a->heads ? course_of(a).bytes : pl_attend_work(a);
}

template <int D, int MT, int COLS>
static pl_status run_keys(const pl_attend *a, const share &w, unsigned heads, unsigned slices)
{
    constexpr int ROWS = WARPS * 16 * MT;
    size_t bytes = shared_bytes(D, ROWS, COLS, true);
    auto kernel = to_key<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(a->m, ROWS), heads, slices), THREADS, bytes, sizes_of(a, true), w,
              (const float *)a->q, (const float *)a->k, (const float *)a->v, (const float *)a->d_o,
              (const float *)pl_attend_lse(a), (const float *)a->work, (float *)a->out[1], (float *)a->out[2]);
    if (w.part)
        PL_LAUNCH(add_parts, pl_blocks(2 * heads * a->m * a->d, 256), 256, 0, sizes_of(a, true), w, (int)slices,
                  (int)heads, (float *)a->out[1], (float *)a->out[2]);
    return PL_OK;
}

template <int D> static pl_status run_scores(const pl_attend *a, const share &w, unsigned heads)
{
    constexpr int COLS = 32;
    size_t bytes = sizeof(float) * 2 * COLS * (D + 4 + WIDE + 4);
    auto kernel = from_scores<D, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(w.queries, WIDE), heads), THREADS, bytes, sizes_of(a, true), w,
              (const float *)a->k, (float *)a->out[0]);
    return PL_OK;
}

/* Rows a warp and columns a tile: as many as the registers hold. */
template <int D> struct shape_of {
    enum { MT = D <= 64 ? 2 : 1, COLS = 32, KEY_COLS = 16 };
};

template <int D> static pl_status run_backward(const pl_attend *a)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::KEY_COLS;
    course c = course_of(a);
    int64_t all = a->batch * a->heads;
    char *work = (char *)a->work;
    for (int64_t h = 0; h < all; h += c.heads)
        for (int64_t i = 0; i < a->n; i += c.queries) {
            int64_t some = all - h < c.heads ? all - h : c.heads, left = a->n - i;
            share w = {(int)h,  (int)i, (int)(left < c.queries ? left : c.queries),         (int)c.per,
                       i > 0, (float *)(work + c.kept_at), c.slices > 1 ? (float *)(work + c.part_at) : NULL};
            unsigned slices = tiles_of(w.queries, w.per);
            PL_TRY((key_rows(a) == WARPS * 16 * MT ? run_keys<D, MT, COLS>(a, w, (unsigned)some, slices)
                                                   : run_keys<D, 1, COLS>(a, w, (unsigned)some, slices)));
            PL_TRY(run_scores<D>(a, w, (unsigned)some));
        }
    return PL_OK;
}

template <int D> static pl_status run_sized(const pl_attend *a, bool back)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::COLS;
    if (back) return run_backward<D>(a);
    bool few = a->batch * a->heads * tiles_of(a->n, WARPS * 16 * MT) < ENOUGH * 3 / 4;
    return few ? run_forward<D, 1, COLS>(a) : run_forward<D, MT, COLS>(a);
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
           shared_bytes(128, 64, 32, false) <= (size_t)card->shared_limit;
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
