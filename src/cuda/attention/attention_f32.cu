/* attention_f32.cu - attention of f32 on f32 units.
 *
 * The three passes of attention_mma.cu, with a block of 16 x 16 threads: thread (y, x) owns the
 * rows y + 16 i (R of them) and the columns x + 16 j (C) of the scores and, of the results, those
 * rows and D/16 dims. Both products read four numbers at once, along the dims of two tokens and
 * along the columns of a row of scores; the larger R and C, the more arithmetic per number read.
 * Scores go through shared memory between the products. Sums run in a fixed order, without atomics.
 * R and C are as large as the GPU's shared memory allows.
 *
 * Backward: the gradients of keys and values are computed tile by tile, and so are the gradients of
 * scores. Where the gradients of scores of a few heads fit a bounded scratch, they are stored there
 * and the gradient of the queries is one more product (from_scores). Otherwise it is computed from
 * the start (to_query): two more products, and no scratch.
 */
#include "cuda/attention/f32_tiles.h"
#include "cuda/device/launch.h"

/* grid: (tiles of queries, heads, batch) */
template <int D, int R, int C, bool MASKED>
static __global__ void __launch_bounds__(THREADS, R *C <= 32 && D <= 64 ? 2 : 1)
    forward(pl_attend_shape z, const float *q, const float *k, const float *v, float *o, float *lse)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, COLS = SIDE * C, N = D / SIDE;
    float *rows = shared, *tile = rows + ROWS * S, *p = tile + COLS * S;
    int h = blockIdx.y, b = blockIdx.z, y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d;
    q += (int64_t)b * z.n * stride + h * z.d;
    o += (int64_t)b * z.n * stride + h * z.d;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    int seen = z.causal ? min(z.m, first + ROWS) : z.m;
    float out[R][N], top[R], total[R] = {}, factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        top[i] = MASKED ? PL_MASK_HIDDEN : -INFINITY;
#pragma unroll
        for (int e = 0; e < N; e++) out[i][e] = 0;
    }
    fill<D, ROWS>(rows, q, stride, first, z.n, z);
    for (int c0 = 0; c0 < seen; c0 += COLS) {
        float s[R][C];
        __syncthreads();
        fill<D, COLS>(tile, k, z.keys_row, c0, z.m, z);
        __syncthreads();
        scores<D, R, C>(s, rows, tile);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int r = first + y + SIDE * i;
            float most = top[i], sum = 0;
#pragma unroll
            for (int j = 0; j < C; j++) {
                int c = c0 + x + SIDE * j;
                bool in = c < z.m && !(z.causal && c > r);
                s[i][j] =
                    in ? fmaf(s[i][j], z.scale, pl_mask_of<MASKED>(z, b, h, r, c)) : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = row_max(most);
            float fade = expf(top[i] - most);
            top[i] = most;
#pragma unroll
            for (int j = 0; j < C; j++) {
                s[i][j] = expf(s[i][j] - most);
                sum += s[i][j];
            }
            total[i] = fmaf(total[i], fade, sum);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] *= fade;
        }
        lay<R, C>(p, s);
        __syncthreads();
        fill<D, COLS>(tile, v, z.keys_row, c0, z.m, z);
        __syncthreads();
        weigh<D, R, C>(out, p, tile);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
        float sum = row_sum(total[i]);
        int r = first + y + SIDE * i;
        float *to = lse + ((int64_t)b * z.heads + h) * z.n + r;
        factor[i] = sum == 0 ? 0 : 1 / sum;
        if (x == 0 && r < z.n) *to = sum == 0 ? 0 : top[i] + logf(sum);
    }
    store<D, R>(o, stride, out, factor, first, z.n, z.d);
}

/* grid: (tiles of queries, heads, batch) */
template <int D, int R, int C, bool MASKED>
static __global__ void __launch_bounds__(THREADS)
    to_query(pl_attend_shape z, const float *q, const float *k, const float *v, const float *d_o,
             const float *lse, const float *delta, float *dq)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, COLS = SIDE * C, N = D / SIDE;
    float *rows = shared, *d_rows = rows + ROWS * S, *keys = d_rows + ROWS * S;
    float *values = keys + COLS * S, *p = values + COLS * S;
    int h = blockIdx.y, b = blockIdx.z, y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d, l0 = ((int64_t)b * z.heads + h) * z.n;
    q += (int64_t)b * z.n * stride + h * z.d;
    d_o += (int64_t)b * z.n * stride + h * z.d;
    dq += (int64_t)b * z.n * stride + h * z.d;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    int seen = z.causal ? min(z.m, first + ROWS) : z.m;
    float out[R][N], factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        factor[i] = z.scale;
#pragma unroll
        for (int e = 0; e < N; e++) out[i][e] = 0;
    }
    fill<D, ROWS>(rows, q, stride, first, z.n, z);
    fill<D, ROWS>(d_rows, d_o, stride, first, z.n, z);
    for (int c0 = 0; c0 < seen; c0 += COLS) {
        float s[R][C];
        __syncthreads();
        fill<D, COLS>(keys, k, z.keys_row, c0, z.m, z);
        fill<D, COLS>(values, v, z.keys_row, c0, z.m, z);
        __syncthreads();
        scores<D, R, C>(s, rows, keys);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int r = first + y + SIDE * i;
            float l = r < z.n ? lse[l0 + r] : 0;
#pragma unroll
            for (int j = 0; j < C; j++) {
                int c = c0 + x + SIDE * j;
                bool in = c < z.m && r < z.n && !(z.causal && c > r);
                float base = in ? pl_mask_of<MASKED>(z, b, h, r, c) - l : 0;
                p[score_at<C>(i, j)] = in ? expf(fmaf(s[i][j], z.scale, base)) : 0.0f;
            }
        }
        scores<D, R, C>(s, d_rows, values);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int r = first + y + SIDE * i;
            float minus = r < z.n ? delta[l0 + r] : 0;
#pragma unroll
            for (int j = 0; j < C; j++) p[score_at<C>(i, j)] *= s[i][j] - minus;
        }
        __syncthreads();
        weigh<D, R, C>(out, p, keys);
    }
    store<D, R>(dq, stride, out, factor, first, z.n, z.d);
}

/* Stores a tile of the gradients of scores in kept[key][query]. */
template <int R, int C>
static __device__ __forceinline__ void keep(float *kept, const float *p, int key, int query,
                                            const pl_attend_shape &z)
{
    constexpr int ROWS = SIDE * R, COLS = SIDE * C, P = scores_of<C>::STRIDE;
    if (z.n % 4 == 0) {
        for (int i = threadIdx.x; i < ROWS * COLS / 4; i += THREADS) {
            int r = i / (COLS / 4), c = i % (COLS / 4) * 4;
            if (key + r < z.m && query + c < z.n)
                *(float4 *)(kept + (int64_t)(key + r) * z.n + query + c) =
                    *(const float4 *)(p + r * P + c);
        }
        return;
    }
    for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
        int r = i / COLS, c = i % COLS;
        if (key + r < z.m && query + c < z.n)
            kept[(int64_t)(key + r) * z.n + query + c] = p[r * P + c];
    }
}

/* grid: (tiles of keys, heads from head0 on); kept: if not NULL, [head - head0][key][query] */
template <int D, int R, int C, bool MASKED>
static __global__ void __launch_bounds__(THREADS)
    to_key(pl_attend_shape z, const float *q, const float *k, const float *v, const float *d_o,
           const float *lse, const float *delta, float *dk, float *dv, float *kept, int head0)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, COLS = SIDE * C, N = D / SIDE;
    float *rows = shared, *v_rows = rows + ROWS * S, *queries = v_rows + ROWS * S;
    float *d_outs = queries + COLS * S, *p = d_outs + COLS * S;
    int h = (head0 + blockIdx.y) % z.heads, b = (head0 + blockIdx.y) / z.heads;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = blockIdx.x * ROWS;
    int64_t stride = (int64_t)z.heads * z.d, l0 = ((int64_t)b * z.heads + h) * z.n;
    q += (int64_t)b * z.n * stride + h * z.d;
    d_o += (int64_t)b * z.n * stride + h * z.d;
    k += pl_attend_keys_at(z, b, h);
    v += pl_attend_keys_at(z, b, h);
    if (kept) kept += (int64_t)blockIdx.y * z.m * z.n;
    dk += (int64_t)b * z.m * stride + h * z.d;
    dv += (int64_t)b * z.m * stride + h * z.d;
    float to_k[R][N], to_v[R][N], factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        factor[i] = z.scale;
#pragma unroll
        for (int e = 0; e < N; e++) to_k[i][e] = to_v[i][e] = 0;
    }
    fill<D, ROWS>(rows, k, z.keys_row, first, z.m, z);
    fill<D, ROWS>(v_rows, v, z.keys_row, first, z.m, z);
    for (int c0 = z.causal ? first : 0; c0 < z.n; c0 += COLS) {
        float s[R][C];
        __syncthreads();
        fill<D, COLS>(queries, q, stride, c0, z.n, z);
        fill<D, COLS>(d_outs, d_o, stride, c0, z.n, z);
        __syncthreads();
        scores<D, R, C>(s, rows, queries);
#pragma unroll
        for (int j = 0; j < C; j++) {
            int c = c0 + x + SIDE * j;
            float l = c < z.n ? lse[l0 + c] : 0;
#pragma unroll
            for (int i = 0; i < R; i++) {
                int r = first + y + SIDE * i;
                bool in = c < z.n && r < z.m && !(z.causal && r > c);
                float base = in ? pl_mask_of<MASKED>(z, b, h, c, r) - l : 0;
                p[score_at<C>(i, j)] = in ? expf(fmaf(s[i][j], z.scale, base)) : 0.0f;
            }
        }
        __syncthreads();
        weigh<D, R, C>(to_v, p, d_outs);
        scores<D, R, C>(s, v_rows, d_outs);
#pragma unroll
        for (int j = 0; j < C; j++) {
            int c = c0 + x + SIDE * j;
            float minus = c < z.n ? delta[l0 + c] : 0;
#pragma unroll
            for (int i = 0; i < R; i++) s[i][j] = p[score_at<C>(i, j)] * (s[i][j] - minus);
        }
        __syncthreads();
        lay<R, C>(p, s);
        __syncthreads();
        if (kept) keep<R, C>(kept, p, first, c0, z);
        weigh<D, R, C>(to_k, p, queries);
    }
    store<D, R>(dk, stride, to_k, factor, first, z.m, z.d);
    for (int i = 0; i < R; i++) factor[i] = 1;
    store<D, R>(dv, stride, to_v, factor, first, z.m, z.d);
}

/* dq = scale * sum over keys of kept[key][query] k[key], keys in order. A thread of 16 x 8 owns
 * eight queries and D/8 dims. grid: (tiles of 128 queries, heads from head0 on) */
static constexpr int WIDE = 128, KEYS = 32;
template <int D>
static __global__ void __launch_bounds__(128)
    from_scores(pl_attend_shape z, const float *k, const float *kept, float *dq, int head0)
{
    constexpr int S = D + 4, N = D / 8, P = WIDE + 4;
    __shared__ __align__(16) float keys[KEYS * S], ds[KEYS * P];
    int h = (head0 + blockIdx.y) % z.heads, b = (head0 + blockIdx.y) / z.heads;
    int y = threadIdx.x / 8, x = threadIdx.x % 8, first = blockIdx.x * WIDE;
    int64_t stride = (int64_t)z.heads * z.d;
    k += pl_attend_keys_at(z, b, h);
    dq += (int64_t)b * z.n * stride + h * z.d;
    kept += (int64_t)blockIdx.y * z.m * z.n;
    int seen = z.causal ? min(z.m, first + WIDE) : z.m;
    float out[8][N];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int e = 0; e < N; e++) out[i][e] = 0;
    for (int t0 = 0; t0 < seen; t0 += KEYS) {
        __syncthreads();
        fill<D, KEYS, 128>(keys, k, z.keys_row, t0, seen, z);
        if (z.n % 4 == 0) {
            for (int i = threadIdx.x; i < KEYS * WIDE / 4; i += 128) {
                int r = i / (WIDE / 4), c = i % (WIDE / 4) * 4;
                float4 v = make_float4(0, 0, 0, 0);
                if (t0 + r < seen && first + c < z.n)
                    v = *(const float4 *)(kept + (int64_t)(t0 + r) * z.n + first + c);
                *(float4 *)(ds + r * P + c) = v;
            }
        } else {
            for (int i = threadIdx.x; i < KEYS * WIDE; i += 128) {
                int r = i / WIDE, c = i % WIDE;
                bool in = t0 + r < seen && first + c < z.n;
                ds[r * P + c] = in ? kept[(int64_t)(t0 + r) * z.n + first + c] : 0;
            }
        }
        __syncthreads();
#pragma unroll 4
        for (int t = 0; t < KEYS; t++) {
            float4 lo = *(const float4 *)(ds + t * P + y * 4);
            float4 hi = *(const float4 *)(ds + t * P + 64 + y * 4);
            float a[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w}, c[N];
#pragma unroll
            for (int e = 0; e < N; e += 4) {
                float4 v = *(const float4 *)(keys + t * S + x * 4 + e * 8);
                c[e] = v.x, c[e + 1] = v.y, c[e + 2] = v.z, c[e + 3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int e = 0; e < N; e++) out[i][e] = fmaf(a[i], c[e], out[i][e]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int r = first + y * 4 + i % 4 + i / 4 * 64;
#pragma unroll
        for (int e = 0; e < N; e++) {
            int c = x * 4 + e / 4 * 32 + e % 4;
            if (r < z.n && c < z.d) dq[r * stride + c] = out[i][e] * z.scale;
        }
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static pl_attend_shape sizes_of(const pl_attend *a)
{
    const void *p[4] = {a->q, a->k, a->v, a->d_o};
    return pl_attend_shape_of(a, p, 4);
}

/* Returns the shared memory of a block: `own` tiles of rows, as many tiles of columns (one fewer
 * where keys and values alternate), and the scores. */
static size_t shared_bytes(int d, int r, int c, bool back)
{
    int own = back ? 2 : 1, tokens = SIDE * (r + c) * own;
    return sizeof(float) * (size_t)(tokens * (d + 4) + SIDE * r * SIDE * (c + 1));
}

static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

template <int D, int R, int C, bool MASKED = false> static pl_status run_forward(const pl_attend *a)
{
    unsigned rows = SIDE * R;
    size_t bytes = shared_bytes(D, R, C, false);
    dim3 queries((unsigned)((a->n + rows - 1) / rows), (unsigned)a->heads, (unsigned)a->batch);
    PL_TRY(allow((const void *)forward<D, R, C, MASKED>, bytes));
    PL_LAUNCH((forward<D, R, C, MASKED>), queries, THREADS, bytes, sizes_of(a), (const float *)a->q,
              (const float *)a->k, (const float *)a->v, (float *)a->out[0], (float *)a->out[1]);
    return PL_OK;
}

/* Whether a block of such tiles fits the GPU. */
static bool fits(int d, int r, int c, bool back)
{
    return shared_bytes(d, r, c, back) <= (size_t)pl_cuda_props_get()->shared_limit;
}

/* Returns the heads whose gradients of scores are kept at once; 0 where that would leave
 * multiprocessors idle or the tiles differ from those of from_scores. */
static int64_t heads_kept(const pl_attend *a)
{
    const int64_t room = (int64_t)272 << 20, enough = 120;
    int64_t all = a->batch * a->heads, each = 4 * a->n * a->m, tiles = (a->m + WIDE - 1) / WIDE;
    int64_t some = room / each < all ? room / each : all;
    if (a->masked || a->d > 64 || !fits(64, 8, 8, true) || some == 0) return 0;
    return some == all || some * tiles >= enough ? some : 0;
}

extern "C" size_t pl_attend_f32_work(const pl_attend *a)
{
    size_t rows = (pl_attend_work(a) + 255) / 256 * 256;
    if (!pl_attend_f32_takes(a)) return pl_attend_work(a);
    return rows + (size_t)(heads_kept(a) * a->n * a->m) * sizeof(float);
}

template <int D, int R, int C, bool MASKED = false>
static pl_status run_backward(const pl_attend *a, int64_t kept)
{
    const float *q = (const float *)a->q, *k = (const float *)a->k, *v = (const float *)a->v;
    const float *d_o = (const float *)a->d_o, *lse = (const float *)pl_attend_lse(a);
    const float *delta = (const float *)a->work;
    float *dq = (float *)a->out[0], *dk = (float *)a->out[1], *dv = (float *)a->out[2];
    float *scores = (float *)((char *)a->work + (pl_attend_work(a) + 255) / 256 * 256);
    unsigned rows = SIDE * R, all = (unsigned)(a->heads * a->batch);
    unsigned queries = (unsigned)((a->n + rows - 1) / rows),
             keys = (unsigned)((a->m + rows - 1) / rows);
    size_t bytes = shared_bytes(D, R, C, true);
    PL_TRY(allow((const void *)to_key<D, R, C, MASKED>, bytes));
    for (unsigned first = 0; kept && first < all; first += (unsigned)kept) {
        unsigned some = all - first < kept ? all - first : (unsigned)kept;
        PL_LAUNCH((to_key<D, R, C, MASKED>), dim3(keys, some), THREADS, bytes, sizes_of(a), q, k, v,
                  d_o, lse, delta, dk, dv, scores, (int)first);
        dim3 wide((unsigned)((a->n + WIDE - 1) / WIDE), some);
        PL_LAUNCH((from_scores<(D > 64 ? 64 : D)>), wide, 128, 0, sizes_of(a), k,
                  (const float *)scores, dq, (int)first);
    }
    if (kept) return PL_OK;
    PL_TRY(allow((const void *)to_query<D, R, C, MASKED>, bytes));
    PL_LAUNCH((to_query<D, R, C, MASKED>), dim3(queries, (unsigned)a->heads, (unsigned)a->batch),
              THREADS, bytes, sizes_of(a), q, k, v, d_o, lse, delta, dq);
    PL_LAUNCH((to_key<D, R, C, MASKED>), dim3(keys, all), THREADS, bytes, sizes_of(a), q, k, v, d_o,
              lse, delta, dk, dv, (float *)NULL, 0);
    return PL_OK;
}

template <int D> static pl_status run_narrow(const pl_attend *a, bool back)
{
    if (back && fits(D, 8, 8, true)) return run_backward<D, 8, 8>(a, heads_kept(a));
    if (back) return run_backward<D, 4, 4>(a, 0);
    return fits(D, 8, 4, false) ? run_forward<D, 8, 4>(a) : run_forward<D, 4, 4>(a);
}

/* One size of tiles for each head size: reading the mask takes registers. */
template <int D, int R, int C> static pl_status run_masked(const pl_attend *a, bool back)
{
    return back ? run_backward<D, R, C, true>(a, 0) : run_forward<D, R, C, true>(a);
}

static pl_status run_masked_sized(const pl_attend *a, bool back)
{
    if (a->d <= 32) return run_masked<32, 4, 4>(a, back);
    if (a->d <= 64) return run_masked<64, 4, 4>(a, back);
    return a->d <= 128 ? run_masked<128, 4, 4>(a, back) : run_masked<256, 2, 2>(a, back);
}

static pl_status run_sized(const pl_attend *a, bool back)
{
    if (a->masked)
        PL_TRY(run_masked_sized(a, back));
    else if (a->d <= 32)
        PL_TRY(run_narrow<32>(a, back));
    else if (a->d <= 64)
        PL_TRY(run_narrow<64>(a, back));
    else if (a->d <= 128 && back)
        PL_TRY((run_backward<128, 4, 4>(a, 0)));
    else if (a->d <= 128)
        PL_TRY((fits(128, 8, 4, false) ? run_forward<128, 8, 4>(a) : run_forward<128, 4, 4>(a)));
    else
        PL_TRY((back ? run_backward<256, 2, 2>(a, 0) : run_forward<256, 2, 2>(a)));
    PL_CUDA_LAUNCHED("attention in f32");
    return PL_OK;
}

extern "C" bool pl_attend_f32_takes(const pl_attend *a)
{
    bool room = a->d <= 64    ? fits(64, 4, 4, true)
                : a->d <= 128 ? fits(128, 4, 4, true)
                              : fits(256, 2, 2, true);
    return a->dtype == PL_F32 && a->d <= 256 && a->n < 1 << 30 && a->m < 1 << 30 &&
           a->heads < 65536 && a->batch < 65536 && room;
}

extern "C" pl_status pl_attend_f32(const pl_attend *a)
{
    return run_sized(a, false);
}

extern "C" pl_status pl_attend_f32_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    return run_sized(a, true);
}
