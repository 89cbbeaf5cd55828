/* attention_wgmma.cu - the gradient of attention of f16 and bf16 on Hopper's warpgroup products.
 *
 * The two passes of attention_mma.h, with warpgroups in the place of warps:
 *
 *   dq        rows q, d_o     tiles k, v      s = q k'  dp = d_o v'   dq += ds k
 *   dk, dv    rows k, v       tiles q, d_o    s' = k q' dp' = v d_o'  dv += p' d_o, dk += ds' q
 *
 * A block of GROUPS warpgroups keeps 64 rows for each in shared memory and walks the other side in
 * tiles of COLS tokens, two tiles in flight. Both operands of the first two products lie in shared
 * memory; scores become the left operand of the next product in registers. While one warpgroup
 * computes exponentials, the products of the others run. No atomics, no stored scores: results do
 * not depend on the order of blocks. p and ds are rounded to the operands' type.
 *
 * Heads of up to 64 or 128 whose size is a multiple of 8; the rest of a row is zero.
 */
#include "cuda/attention/attention.h"
#include "cuda/attention/wgmma.h"

static constexpr int COLS = 64;
#define LOG2E 1.4426950408889634f

/* ---- tiles ---------------------------------------------------------------------------------- */
/* Loads tokens [first, first + ROWS) of one head, zero past `limit` and past the head's d. */
template <typename T, int D, int ROWS, int THREADS>
static __device__ __forceinline__ void fill(T *tile, const T *from, int64_t stride, int first,
                                            int limit, int d)
{
    constexpr int chunks = D / 8;
    for (int i = threadIdx.x; i < ROWS * chunks; i += THREADS) {
        int r = i / chunks, c = i % chunks, t = first + r;
        bool in = t < limit && c * 8 < d;
        T *to = tile + c / 8 * ROWS * 64 + r * 64 + ((c ^ r) & 7) * 8;
        pl_copy16(to, in ? from + t * stride + c * 8 : from, in);
    }
}

#if PL_HAS_WGMMA
/* s [64][COLS] = 64 rows times all rows of the tile, over D. R: rows of the tile of `rows`. */
template <typename T, int D, int R>
static __device__ __forceinline__ void scores(float (&s)[COLS / 2], const T *rows, const T *tile)
{
# pragma unroll
    for (int k = 0; k < D / 16; k++)
        pl_wg_along(s, pl_wg_operand(rows + k / 4 * R * 64 + k % 4 * 16, 16),
                    pl_wg_operand(tile + k / 4 * COLS * 64 + k % 4 * 16, 16), k > 0, T());
}

/* out [64][D] += p [64][COLS] times the tile. */
template <typename T, int D>
static __device__ __forceinline__ void weigh(float (&out)[D / 2], const unsigned *p, const T *tile)
{
# pragma unroll
    for (int k = 0; k < COLS / 16; k++)
        pl_wg_across(out, p + 4 * k, pl_wg_operand(tile + k * 16 * 64, COLS * 128), T());
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

/* Stores rows of results times `by`. */
template <typename T, int D>
static __device__ __forceinline__ void store(T *to, int64_t stride, const float (&v)[D / 2],
                                             float by, int r0, int limit, int d)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int up = 0; up < 2; up++) {
        int r = r0 + up * 8;
        if (r >= limit) continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            int c = j * 8 + lane % 4 * 2;
            if (c < d)
                *(unsigned *)(to + r * stride + c) =
                    pl_pack2(v[4 * j + 2 * up] * by, v[4 * j + 2 * up + 1] * by, T());
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

/* ---- dq ------------------------------------------------------------------------------------- */
/* grid: (tiles of queries, heads, batch) */
template <typename T, int D, int GROUPS>
static __global__ void __launch_bounds__(GROUPS * 128, 1)
    to_query(pl_attend_shape z, const T *q, const T *k, const T *v, const T *d_o, const float *lse,
             const float *delta, T *dq)
{
#if PL_HAS_WGMMA
    constexpr int ROWS = GROUPS * 64, THREADS = GROUPS * 128;
    T *rows = (T *)tiles_at(), *d_rows = rows + ROWS * D;
    T *keys = d_rows + ROWS * D, *values = keys + 2 * COLS * D;
    int h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32,
        group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = z.row, outs = (int64_t)z.heads * z.d, head = (int64_t)b * z.heads + h;
    q += (int64_t)b * z.n * stride + h * z.step;
    d_o += (int64_t)b * z.n * outs + h * z.d;
    dq += (int64_t)b * z.n * stride + h * z.step;
    k += (int64_t)b * z.m * stride + h * z.step;
    v += (int64_t)b * z.m * stride + h * z.step;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m, tiles = (seen + COLS - 1) / COLS;
    int own = first + group * 64, r0 = own + threadIdx.x / 32 % 4 * 16 + lane / 4;
    float out[D / 2], base[2], minus[2], unit = z.scale * LOG2E;
# pragma unroll
    for (int i = 0; i < D / 2; i++) out[i] = 0;
# pragma unroll
    for (int up = 0; up < 2; up++) {
        int r = r0 + up * 8;
        base[up] = r < z.n ? lse[head * z.n + r] * LOG2E : 0;
        minus[up] = r < z.n ? delta[head * z.n + r] : 0;
    }
    fill<T, D, ROWS, THREADS>(rows, q, stride, first, z.n, z.d);
    fill<T, D, ROWS, THREADS>(d_rows, d_o, outs, first, z.n, z.d);
    fill<T, D, COLS, THREADS>(keys, k, stride, 0, z.m, z.d);
    fill<T, D, COLS, THREADS>(values, v, stride, 0, z.m, z.d);
    pl_copies_end();
    for (int t = 0; t < tiles; t++) {
        int at = t % 2 * COLS * D, next = COLS * D - at, c0 = t * COLS;
        if (t + 1 < tiles) {
            fill<T, D, COLS, THREADS>(keys + next, k, stride, c0 + COLS, z.m, z.d);
            fill<T, D, COLS, THREADS>(values + next, v, stride, c0 + COLS, z.m, z.d);
        }
        pl_copies_end();
        pl_copies_wait<1>();
        pl_wg_written();
        __syncthreads();
        /* All keys of the tile come after all queries of this warpgroup. */
        bool none = z.causal && c0 > own + 63;
        if (!none) {
            float s[COLS / 2], dp[COLS / 2];
            unsigned p[COLS / 4];
            pl_wg_begin();
            scores<T, D, ROWS>(s, rows + group * 64 * 64, keys + at);
            pl_wg_end();
            scores<T, D, ROWS>(dp, d_rows + group * 64 * 64, values + at);
            pl_wg_end();
            pl_wg_wait<1>();
            pl_wg_done(s);
            bool edge = c0 + COLS > z.m || (z.causal && c0 + COLS - 1 > own);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++)
# pragma unroll
                for (int e = 0; e < 4; e++) {
                    s[4 * j + e] = pl_power2(fmaf(s[4 * j + e], unit, -base[e / 2]));
                    int c = c0 + j * 8 + lane % 4 * 2 + e % 2, r = r0 + e / 2 * 8;
                    if (edge && (c >= z.m || (z.causal && c > r))) s[4 * j + e] = 0;
                }
            pl_wg_wait<0>();
            pl_wg_done(dp);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++)
# pragma unroll
                for (int up = 0; up < 2; up++) {
                    const float *x = s + 4 * j + 2 * up, *y = dp + 4 * j + 2 * up;
                    p[packed_at(j, up)] =
                        pl_pack2(x[0] * (y[0] - minus[up]), x[1] * (y[1] - minus[up]), T());
                }
            pl_wg_begin();
            weigh<T, D>(out, p, keys + at);
            pl_wg_end();
            pl_wg_wait<0>();
            pl_wg_done(out);
            pl_wg_done(p);
        }
        __syncthreads();
    }
    store<T, D>(dq, stride, out, z.scale, r0, z.n, z.d);
#endif
}

/* ---- dk, dv --------------------------------------------------------------------------------- */
/* grid: (tiles of keys, heads, batch) */
template <typename T, int D, int GROUPS>
static __global__ void __launch_bounds__(GROUPS * 128, 1)
    to_key(pl_attend_shape z, const T *q, const T *k, const T *v, const T *d_o, const float *lse,
           const float *delta, T *dk, T *dv)
{
#if PL_HAS_WGMMA
    constexpr int ROWS = GROUPS * 64, THREADS = GROUPS * 128;
    T *rows = (T *)tiles_at(), *v_rows = rows + ROWS * D;
    T *queries = v_rows + ROWS * D, *d_outs = queries + 2 * COLS * D;
    float *sums = (float *)(d_outs + 2 * COLS * D); /* lse * LOG2E and delta of two tiles */
    int h = blockIdx.y, b = blockIdx.z, lane = threadIdx.x % 32,
        group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    int first = blockIdx.x * ROWS;
    int64_t stride = z.row, outs = (int64_t)z.heads * z.d, head = (int64_t)b * z.heads + h;
    q += (int64_t)b * z.n * stride + h * z.step;
    d_o += (int64_t)b * z.n * outs + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.step;
    v += (int64_t)b * z.m * stride + h * z.step;
    dk += (int64_t)b * z.m * stride + h * z.step;
    dv += (int64_t)b * z.m * stride + h * z.step;
    int t0 = z.causal ? first / COLS : 0, tiles = (z.n + COLS - 1) / COLS;
    int own = first + group * 64, r0 = own + threadIdx.x / 32 % 4 * 16 + lane / 4;
    float to_k[D / 2], to_v[D / 2], unit = z.scale * LOG2E;
# pragma unroll
    for (int i = 0; i < D / 2; i++) to_k[i] = to_v[i] = 0;
    fill<T, D, ROWS, THREADS>(rows, k, stride, first, z.m, z.d);
    fill<T, D, ROWS, THREADS>(v_rows, v, stride, first, z.m, z.d);
    if (t0 < tiles) {
        fill<T, D, COLS, THREADS>(queries, q, stride, t0 * COLS, z.n, z.d);
        fill<T, D, COLS, THREADS>(d_outs, d_o, outs, t0 * COLS, z.n, z.d);
    }
    pl_copies_end();
    for (int t = t0; t < tiles; t++) {
        int odd = (t - t0) % 2, at = odd * COLS * D, next = COLS * D - at, c0 = t * COLS;
        float *base = sums + odd * 2 * COLS, *minus = base + COLS;
        if (t + 1 < tiles) {
            fill<T, D, COLS, THREADS>(queries + next, q, stride, c0 + COLS, z.n, z.d);
            fill<T, D, COLS, THREADS>(d_outs + next, d_o, outs, c0 + COLS, z.n, z.d);
        }
        pl_copies_end();
        for (int i = threadIdx.x; i < 2 * COLS; i += THREADS) {
            int c = c0 + i % COLS;
            float x = c >= z.n ? 0 : (i < COLS ? lse : delta)[head * z.n + c];
            base[i] = i < COLS ? x * LOG2E : x;
        }
        pl_copies_wait<1>();
        pl_wg_written();
        __syncthreads();
        /* All queries of the tile come before all keys of this warpgroup. */
        bool none = z.causal && c0 + COLS - 1 < own;
        if (!none) {
            float s[COLS / 2], dp[COLS / 2];
            unsigned p[COLS / 4], ds[COLS / 4];
            pl_wg_begin();
            scores<T, D, ROWS>(s, rows + group * 64 * 64, queries + at);
            pl_wg_end();
            scores<T, D, ROWS>(dp, v_rows + group * 64 * 64, d_outs + at);
            pl_wg_end();
            pl_wg_wait<1>();
            pl_wg_done(s);
            bool edge = c0 + COLS > z.n || (z.causal && c0 < own + 63);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++) {
                float2 l = *(const float2 *)(base + j * 8 + lane % 4 * 2);
# pragma unroll
                for (int up = 0; up < 2; up++) {
                    float x = pl_power2(fmaf(s[4 * j + 2 * up], unit, -l.x));
                    float y = pl_power2(fmaf(s[4 * j + 2 * up + 1], unit, -l.y));
                    int c = c0 + j * 8 + lane % 4 * 2, r = r0 + up * 8;
                    if (edge && (c >= z.n || (z.causal && r > c))) x = 0;
                    if (edge && (c + 1 >= z.n || (z.causal && r > c + 1))) y = 0;
                    p[packed_at(j, up)] = pl_pack2(x, y, T());
                }
            }
            pl_wg_begin();
            weigh<T, D>(to_v, p, d_outs + at);
            pl_wg_end();
            pl_wg_wait<1>();
            pl_wg_done(dp);
# pragma unroll
            for (int j = 0; j < COLS / 8; j++) {
                float2 m = *(const float2 *)(minus + j * 8 + lane % 4 * 2);
# pragma unroll
                for (int up = 0; up < 2; up++) {
                    const float *y = dp + 4 * j + 2 * up;
                    float2 x = unpacked(p[packed_at(j, up)], T());
                    ds[packed_at(j, up)] = pl_pack2(x.x * (y[0] - m.x), x.y * (y[1] - m.y), T());
                }
            }
            pl_wg_begin();
            weigh<T, D>(to_k, ds, queries + at);
            pl_wg_end();
            pl_wg_wait<0>();
            pl_wg_done(to_v);
            pl_wg_done(to_k);
            pl_wg_done(p);
            pl_wg_done(ds);
        }
        __syncthreads();
    }
    pl_copies_wait<0>();
    store<T, D>(dk, stride, to_k, z.scale, r0, z.m, z.d);
    store<T, D>(dv, stride, to_v, 1, r0, z.m, z.d);
#endif
}

/* ---- launches ------------------------------------------------------------------------------- */
static int div_up(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

template <typename T, int D> static pl_status run_sized(const pl_attend *a)
{
    constexpr int QG = 3, KG = D <= 64 ? 3 : 2;
    constexpr size_t tile = sizeof(T) * D * 64;
    size_t q_bytes = tile * (2 * QG + 4) + 1024;
    size_t k_bytes = tile * (2 * KG + 4) + 4 * COLS * sizeof(float) + 1024;
    const void *at[4] = {a->q, a->k, a->v, a->d_o};
    pl_attend_shape z = pl_attend_shape_of(a, at, 4);
    const T *q = (const T *)a->q, *k = (const T *)a->k, *v = (const T *)a->v;
    const T *d_o = (const T *)a->d_o;
    const float *lse = (const float *)pl_attend_lse(a), *delta = (const float *)a->work;
    auto for_q = to_query<T, D, QG>;
    auto for_k = to_key<T, D, KG>;
    PL_TRY(allow((const void *)for_q, q_bytes));
    PL_TRY(allow((const void *)for_k, k_bytes));
    dim3 q_grid(div_up(a->n, QG * 64), (unsigned)a->heads, (unsigned)a->batch);
    dim3 k_grid(div_up(a->m, KG * 64), (unsigned)a->heads, (unsigned)a->batch);
    PL_LAUNCH((for_k), k_grid, KG * 128, k_bytes, z, q, k, v, d_o, lse, delta, (T *)a->out[1],
              (T *)a->out[2]);
    PL_LAUNCH((for_q), q_grid, QG * 128, q_bytes, z, q, k, v, d_o, lse, delta, (T *)a->out[0]);
    return PL_OK;
}

template <typename T> static pl_status run_typed(const pl_attend *a)
{
    return a->d <= 64 ? run_sized<T, 64>(a) : run_sized<T, 128>(a);
}

extern "C" bool pl_attend_wgmma_takes(const pl_attend *a)
{
    const pl_cuda_props *card = pl_cuda_props_get();
    bool half = a->dtype == PL_F16 || a->dtype == PL_BF16;
    return half && !a->masked && card->arch == 90 && a->d % 8 == 0 && a->d > 32 && a->d <= 128 &&
           a->row % 8 == 0 && a->step % 8 == 0 && a->scale > 0 && a->n < 1 << 30 &&
           a->m < 1 << 30 && a->heads < 65536 && a->batch < 32768 &&
           (size_t)card->shared_limit >= 170 << 10;
}

extern "C" pl_status pl_attend_wgmma_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    PL_TRY((a->dtype == PL_F16 ? run_typed<pl_f16>(a) : run_typed<pl_bf16>(a)));
    PL_CUDA_LAUNCHED("gradient of attention on warpgroup products");
    return PL_OK;
}
