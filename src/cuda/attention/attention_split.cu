/* attention_split.cu - attention of f32 on tensor cores (attention_split.h): splitting operands,
 * and forward.
 *
 *   forward      rows q       tiles k, v      s = q k'      o += p v
 */
#include "cuda/attention/attention_split.h"
#include "cuda/device/launch.h"

/* ---- splitting ------------------------------------------------------------------------------ */
typedef struct whole {
    const float *x;
    pl_f16 *to;
    float *factor;
    int tokens;
} whole;

/* Four numbers per thread. grid: (tiles of tokens, heads from head0 on, tensors) */
template <int D>
static __global__ void __launch_bounds__(256)
    cut(pl_attend_shape z, whole q, whole k, whole v, whole d_o, int head0)
{
    if (!PL_HAS_MMA) return;
    constexpr int LANES = D / 4;
    whole w = blockIdx.z == 0 ? q : blockIdx.z == 1 ? k : blockIdx.z == 2 ? v : d_o;
    int t = blockIdx.x * (256 / LANES) + threadIdx.x / LANES, c = threadIdx.x % LANES * 4;
    int head = head0 + blockIdx.y;
    int64_t row = (int64_t)blockIdx.y * w.tokens + t;
    float x[4] = {0, 0, 0, 0};
    if (t < w.tokens) {
        const float *from =
            w.x + (((int64_t)(head / z.heads) * w.tokens + t) * z.heads + head % z.heads) * z.d + c;
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
    for (int far = LANES / 2; far; far /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, far));
    if (t >= w.tokens) return;
    float by = up_by(most >> 23);
    uint2 hi, lo;
    take_apart(x[0] * by, x[1] * by, hi.x, lo.x);
    take_apart(x[2] * by, x[3] * by, hi.y, lo.y);
    *(uint2 *)(w.to + row * 2 * D + c) = hi;
    *(uint2 *)(w.to + row * 2 * D + D + c) = lo;
    if (c == 0)
        w.factor[row] = most >> 23 == 255 ? __uint_as_float(0x7fffffffu) : back_by(most >> 23);
}

template <int D>
static pl_status run_cut(const pl_attend *a, const pl_attend_course &c, int tensors, int head0,
                         int heads)
{
    const void *x[4] = {a->q, a->k, a->v, a->d_o};
    whole w[4];
    memset(w, 0, sizeof w);
    for (int i = 0; i < tensors; i++) {
        parts p = cut_of(a, c, i);
        whole one = {(const float *)x[i], (pl_f16 *)p.x, (float *)p.factor,
                     (int)(i % 3 ? a->m : a->n)};
        w[i] = one;
    }
    dim3 grid(tiles_of(a->n > a->m ? a->n : a->m, 256 / (D / 4)), (unsigned)heads,
              (unsigned)tensors);
    PL_LAUNCH((cut<D>), grid, 256, 0, sizes_of(a, tensors == 4), w[0], w[1], w[2], w[3], head0);
    return PL_OK;
}

pl_status pl_attend_cut(const pl_attend *a, const pl_attend_course &c, int tensors, int head0,
                        int heads)
{
    switch (pl_attend_wide(a->d)) {
    case 32: return run_cut<32>(a, c, tensors, head0, heads);
    case 64: return run_cut<64>(a, c, tensors, head0, heads);
    default: return run_cut<128>(a, c, tensors, head0, heads);
    }
}

/* ---- forward -------------------------------------------------------------------------------- */
/* Turns one tile's scores into weights, with the running maximum and sum of each row; scales out
 * down. */
template <int MT, int COLS, int ND>
static __device__ __forceinline__ void soften(float (*s)[COLS / 8][4], float (*out)[ND][4],
                                              float (*top)[2], float (*total)[2])
{
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        int i = x / 2, up = x % 2;
        float most = top[i][up], sum = 0;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
            most = fmaxf(most, fmaxf(s[i][j][up * 2], s[i][j][up * 2 + 1]));
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
static __global__ void __launch_bounds__(THREADS, MT == 1 && D <= 64 ? 3 : 2)
    forward(pl_attend_shape z, int head0, parts q, parts k, parts v, float *o, float *lse)
{
    if (!PL_HAS_MMA) return;
    PL_SHARED(pl_f16, shared);
    constexpr int ROWS = WARPS * 16 * MT, TILE = COLS * 2 * D;
    pl_f16 *rows = shared, *keys = rows + ROWS * 2 * D, *values = keys + 2 * TILE;
    float *factors = (float *)(values + 2 * TILE); /* factors of k and v, two tiles */
    int head = head0 + blockIdx.y, h = head % z.heads, b = head / z.heads, lane = threadIdx.x % 32;
    /* The longest rows of a causal block start first: otherwise they finish last. */
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d;
    const pl_f16 *kx = k.x + (int64_t)blockIdx.y * z.m * 2 * D,
                 *vx = v.x + (int64_t)blockIdx.y * z.m * 2 * D;
    const float *lists[2] = {k.factor + (int64_t)blockIdx.y * z.m,
                             v.factor + (int64_t)blockIdx.y * z.m};
    o += (int64_t)b * z.n * stride + h * z.d;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int r0 = first + threadIdx.x / 32 * 16 * MT + lane / 4;
    float out[MT][D / 8][4], top[MT][2], total[MT][2], unit[MT][2];
    clear<MT, D / 8>(out);
#pragma unroll
    for (int x = 0; x < MT * 2; x++) {
        top[x / 2][x % 2] = -INFINITY, total[x / 2][x % 2] = 0;
        unit[x / 2][x % 2] =
            r0 + x * 8 < z.n ? q.factor[(int64_t)blockIdx.y * z.n + r0 + x * 8] * z.scale : 0;
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
                s[i][e / 4][e % 4] =
                    s[i][e / 4][e % 4] * unit[i][e / 2 % 2] * factor[e / 4 * 8 + e % 2];
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

static pl_attend_course forward_course(const pl_attend *a)
{
    pl_attend_sizes s = plan_sizes(a);
    return pl_attend_forward_course(&s);
}

template <int D, int MT, int COLS>
static pl_status run_rows(const pl_attend *a, const pl_attend_course &c, int head0, int heads)
{
    constexpr int ROWS = WARPS * 16 * MT;
    size_t bytes = shared_bytes(D, ROWS, COLS, 1, 2);
    auto kernel = forward<D, MT, COLS>;
    PL_TRY(allow((const void *)kernel, bytes));
    PL_LAUNCH((kernel), dim3(tiles_of(a->n, ROWS), (unsigned)heads), THREADS, bytes,
              sizes_of(a, false), head0, cut_of(a, c, 0), cut_of(a, c, 1), cut_of(a, c, 2),
              (float *)a->out[0], (float *)a->out[1]);
    return PL_OK;
}

extern "C" size_t pl_attend_split_work(const pl_attend *a)
{
    return a->n && a->m && a->d && a->batch && a->heads ? forward_course(a).bytes : 0;
}

/* Rows per warp: as many as the registers hold. */
template <int D> struct shape_of {
    enum { MT = D <= 64 ? 2 : 1, COLS = 32 };
};

template <int D> static pl_status run_forward(const pl_attend *a)
{
    constexpr int MT = shape_of<D>::MT, COLS = shape_of<D>::COLS;
    pl_attend_course c = forward_course(a);
    int64_t all = a->batch * a->heads;
    for (int64_t h = 0; h < all; h += c.heads) {
        int some = (int)(all - h < c.heads ? all - h : c.heads);
        PL_TRY(pl_attend_cut(a, c, 3, (int)h, some));
        PL_TRY((MT == 2 && halves_win(some, a->n) ? run_rows<D, 1, COLS>(a, c, (int)h, some)
                                                  : run_rows<D, MT, COLS>(a, c, (int)h, some)));
    }
    return PL_OK;
}

extern "C" pl_status pl_attend_split(const pl_attend *a)
{
    PL_TRY(a->d <= 32 ? run_forward<32>(a) : a->d <= 64 ? run_forward<64>(a) : run_forward<128>(a));
    PL_CUDA_LAUNCHED("attention in f32 on tensor cores");
    return PL_OK;
}

extern "C" bool pl_attend_split_takes(const pl_attend *a)
{
    const pl_cuda_props *card = pl_cuda_props_get();
    return a->dtype == PL_F32 && pl_cuda_split() && card->arch >= 80 && a->d <= 128 &&
           a->n < 1 << 30 && a->m < 1 << 30 && a->heads < 65536 && a->batch < 65536 &&
           a->batch * a->heads < 65536 &&
           shared_bytes(128, 64, 32, 1, 2) <= (size_t)card->shared_limit;
}
