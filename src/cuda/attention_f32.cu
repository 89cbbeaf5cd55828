/* attention_f32.cu - attention of f32 by multiplications and additions in f32.
 *
 * The three passes of attention_mma.cu, with a block of 16 x 16 threads: thread (y, x) owns R
 * rows and R columns of the scores and, of the results, R rows and D/16 dims. Scores go through
 * shared memory between the two products. Sums run in a fixed order and nothing is added by
 * atomics.
 */
#include "cuda/attention.h"
#include "cuda/launch.h"

#include <math.h>

static constexpr int SIDE = 16, THREADS = SIDE * SIDE;

typedef struct sizes {
    int n, m, heads, d;
    float scale;
    bool causal, wide; /* wide: rows are multiples of 16 bytes */
} sizes;

/* Tiles are [token][D + 4]: a row's start moves by four banks. */
template <int D> struct tile_of {
    enum { STRIDE = D + 4 };
};

template <int D, int ROWS>
static __device__ void fill(float *tile, const float *from, int64_t stride, int first, int limit,
                            const sizes &z)
{
    constexpr int S = tile_of<D>::STRIDE, quads = D / 4;
    for (int i = threadIdx.x; i < ROWS * quads; i += THREADS) {
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

/* s[i][j] = rows[y*R + i] . tile[x + 16 j] */
template <int D, int R>
static __device__ __forceinline__ void scores(float (*s)[R], const float *rows, const float *tile)
{
    constexpr int S = tile_of<D>::STRIDE;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) s[i][j] = 0;
#pragma unroll 4
    for (int c = 0; c < D; c += 4) {
        float4 a[R], b[R];
#pragma unroll
        for (int i = 0; i < R; i++) a[i] = *(const float4 *)(rows + (y * R + i) * S + c);
#pragma unroll
        for (int j = 0; j < R; j++) b[j] = *(const float4 *)(tile + (x + SIDE * j) * S + c);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) s[i][j] = dot4(a[i], b[j], s[i][j]);
    }
}

/* Dim e of thread x: vectors of V dims, SIDE of them side by side. */
template <int D> struct dims_of {
    enum { N = D / SIDE, V = N < 4 ? N : 4 };
    static __device__ __forceinline__ int at(int x, int e) { return x * V + e / V * SIDE * V + e % V; }
};

/* out[i][e] += sum_t p[y*R + i][t] tile[t][dim e], t in order */
template <int D, int R>
static __device__ __forceinline__ void weigh(float (*out)[D / SIDE], const float *p,
                                             const float *tile)
{
    constexpr int S = tile_of<D>::STRIDE, COLS = SIDE * R, N = dims_of<D>::N, V = dims_of<D>::V;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll 2
    for (int t = 0; t < COLS; t++) {
        float a[R], b[N];
#pragma unroll
        for (int i = 0; i < R; i++) a[i] = p[(y * R + i) * (COLS + 4) + t];
#pragma unroll
        for (int e = 0; e < N; e += V) {
            const float *at = tile + t * S + dims_of<D>::at(x, e);
            if (V == 4) {
                float4 v = *(const float4 *)at;
                b[e] = v.x, b[e + 1] = v.y, b[e + 2 < N ? e + 2 : 0] = v.z, b[e + 3 < N ? e + 3 : 0] = v.w;
            } else {
                for (int k = 0; k < V; k++) b[e + k] = at[k];
            }
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] = fmaf(a[i], b[e], out[i][e]);
    }
}

/* The block's scores to shared memory, [row][COLS + 4]. */
template <int R> static __device__ __forceinline__ void lay(float *p, float (*s)[R])
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) p[(y * R + i) * (SIDE * R + 4) + x + SIDE * j] = s[i][j];
}

template <int D, int R>
static __device__ void store(float *to, int64_t stride, float (*v)[D / SIDE], const float *factor,
                             int first, int limit, int d)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R; i++) {
        int t = first + y * R + i;
        if (t >= limit) continue;
#pragma unroll
        for (int e = 0; e < D / SIDE; e++) {
            int c = dims_of<D>::at(x, e);
            if (c < d) to[t * stride + c] = v[i][e] * factor[i];
        }
    }
}

/* Over the 16 threads of a row of the block: half a warp. */
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

/* grid: (tiles of queries, heads, batch) */
template <int D, int R>
static __global__ void __launch_bounds__(THREADS)
    forward(sizes z, const float *q, const float *k, const float *v, float *o, float *lse)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, N = D / SIDE;
    float *rows = shared, *tile = rows + ROWS * S, *p = tile + ROWS * S;
    int h = blockIdx.y, b = blockIdx.z, y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d;
    q += (int64_t)b * z.n * stride + h * z.d;
    o += (int64_t)b * z.n * stride + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    v += (int64_t)b * z.m * stride + h * z.d;
    int seen = z.causal ? min(z.m, first + ROWS) : z.m;
    float out[R][N], top[R], total[R], factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        top[i] = -INFINITY, total[i] = 0;
#pragma unroll
        for (int e = 0; e < N; e++) out[i][e] = 0;
    }
    fill<D, ROWS>(rows, q, stride, first, z.n, z);
    for (int c0 = 0; c0 < seen; c0 += ROWS) {
        float s[R][R];
        __syncthreads();
        fill<D, ROWS>(tile, k, stride, c0, z.m, z);
        __syncthreads();
        scores<D, R>(s, rows, tile);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int r = first + y * R + i;
            float most = top[i], sum = 0;
#pragma unroll
            for (int j = 0; j < R; j++) {
                int c = c0 + x + SIDE * j;
                s[i][j] = c < z.m && !(z.causal && c > r) ? s[i][j] * z.scale : -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = row_max(most);
            float fade = expf(top[i] - most);
            top[i] = most;
#pragma unroll
            for (int j = 0; j < R; j++) {
                s[i][j] = expf(s[i][j] - most);
                sum += s[i][j];
            }
            total[i] = fmaf(total[i], fade, sum);
#pragma unroll
            for (int e = 0; e < N; e++) out[i][e] *= fade;
        }
        lay<R>(p, s);
        __syncthreads();
        fill<D, ROWS>(tile, v, stride, c0, z.m, z);
        __syncthreads();
        weigh<D, R>(out, p, tile);
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
        float sum = row_sum(total[i]);
        int r = first + y * R + i;
        factor[i] = 1 / sum;
        if (x == 0 && r < z.n) lse[((int64_t)b * z.heads + h) * z.n + r] = top[i] + logf(sum);
    }
    store<D, R>(o, stride, out, factor, first, z.n, z.d);
}

/* grid: (tiles of queries, heads, batch) */
template <int D, int R>
static __global__ void __launch_bounds__(THREADS)
    to_query(sizes z, const float *q, const float *k, const float *v, const float *d_o,
             const float *lse, const float *delta, float *dq)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, N = D / SIDE;
    float *rows = shared, *d_rows = rows + ROWS * S, *keys = d_rows + ROWS * S;
    float *values = keys + ROWS * S, *p = values + ROWS * S;
    int h = blockIdx.y, b = blockIdx.z, y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = (z.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    int64_t stride = (int64_t)z.heads * z.d, l0 = ((int64_t)b * z.heads + h) * z.n;
    q += (int64_t)b * z.n * stride + h * z.d;
    d_o += (int64_t)b * z.n * stride + h * z.d;
    dq += (int64_t)b * z.n * stride + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    v += (int64_t)b * z.m * stride + h * z.d;
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
    for (int c0 = 0; c0 < seen; c0 += ROWS) {
        float s[R][R], dp[R][R];
        __syncthreads();
        fill<D, ROWS>(keys, k, stride, c0, z.m, z);
        fill<D, ROWS>(values, v, stride, c0, z.m, z);
        __syncthreads();
        scores<D, R>(s, rows, keys);
        scores<D, R>(dp, d_rows, values);
#pragma unroll
        for (int i = 0; i < R; i++) {
            int r = first + y * R + i;
            float l = r < z.n ? lse[l0 + r] : 0, minus = r < z.n ? delta[l0 + r] : 0;
#pragma unroll
            for (int j = 0; j < R; j++) {
                int c = c0 + x + SIDE * j;
                bool in = c < z.m && r < z.n && !(z.causal && c > r);
                s[i][j] = in ? expf(fmaf(s[i][j], z.scale, -l)) * (dp[i][j] - minus) : 0.0f;
            }
        }
        lay<R>(p, s);
        __syncthreads();
        weigh<D, R>(out, p, keys);
    }
    store<D, R>(dq, stride, out, factor, first, z.n, z.d);
}

/* grid: (tiles of keys, heads, batch) */
template <int D, int R>
static __global__ void __launch_bounds__(THREADS)
    to_key(sizes z, const float *q, const float *k, const float *v, const float *d_o,
           const float *lse, const float *delta, float *dk, float *dv)
{
    PL_SHARED(float, shared);
    constexpr int S = tile_of<D>::STRIDE, ROWS = SIDE * R, N = D / SIDE;
    float *rows = shared, *v_rows = rows + ROWS * S, *queries = v_rows + ROWS * S;
    float *d_outs = queries + ROWS * S, *p = d_outs + ROWS * S;
    int h = blockIdx.y, b = blockIdx.z, y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    int first = blockIdx.x * ROWS;
    int64_t stride = (int64_t)z.heads * z.d, l0 = ((int64_t)b * z.heads + h) * z.n;
    q += (int64_t)b * z.n * stride + h * z.d;
    d_o += (int64_t)b * z.n * stride + h * z.d;
    k += (int64_t)b * z.m * stride + h * z.d;
    v += (int64_t)b * z.m * stride + h * z.d;
    dk += (int64_t)b * z.m * stride + h * z.d;
    dv += (int64_t)b * z.m * stride + h * z.d;
    float to_k[R][N], to_v[R][N], factor[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        factor[i] = z.scale;
#pragma unroll
        for (int e = 0; e < N; e++) to_k[i][e] = to_v[i][e] = 0;
    }
    fill<D, ROWS>(rows, k, stride, first, z.m, z);
    fill<D, ROWS>(v_rows, v, stride, first, z.m, z);
    for (int c0 = z.causal ? first : 0; c0 < z.n; c0 += ROWS) {
        float s[R][R], ds[R][R];
        __syncthreads();
        fill<D, ROWS>(queries, q, stride, c0, z.n, z);
        fill<D, ROWS>(d_outs, d_o, stride, c0, z.n, z);
        __syncthreads();
        scores<D, R>(s, rows, queries);
        scores<D, R>(ds, v_rows, d_outs);
#pragma unroll
        for (int j = 0; j < R; j++) {
            int c = c0 + x + SIDE * j;
            float l = c < z.n ? lse[l0 + c] : 0, minus = c < z.n ? delta[l0 + c] : 0;
#pragma unroll
            for (int i = 0; i < R; i++) {
                int r = first + y * R + i;
                bool in = c < z.n && r < z.m && !(z.causal && r > c);
                s[i][j] = in ? expf(fmaf(s[i][j], z.scale, -l)) : 0.0f;
                ds[i][j] = s[i][j] * (ds[i][j] - minus);
            }
        }
        lay<R>(p, s);
        __syncthreads();
        weigh<D, R>(to_v, p, d_outs);
        __syncthreads();
        lay<R>(p, ds);
        __syncthreads();
        weigh<D, R>(to_k, p, queries);
    }
    store<D, R>(dk, stride, to_k, factor, first, z.m, z.d);
    for (int i = 0; i < R; i++) factor[i] = 1;
    store<D, R>(dv, stride, to_v, factor, first, z.m, z.d);
}

/* ---- launches ------------------------------------------------------------------------------- */
static sizes sizes_of(const pl_attend *a)
{
    const void *p[4] = {a->q, a->k, a->v, a->d_o};
    sizes z = {(int)a->n,       (int)a->m, (int)a->heads,
               (int)a->d,       (float)a->scale, a->causal,
               a->d % 4 == 0 && pl_cuda_aligned(p, 4)};
    return z;
}

static size_t shared_bytes(int d, int r, int tiles)
{
    int rows = SIDE * r;
    return sizeof(float) * (size_t)(rows * (d + 4) * tiles + rows * (rows + 4));
}

static pl_status allow(const void *kernel, size_t bytes)
{
    PL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    return PL_OK;
}

template <int D, int R> static pl_status run(const pl_attend *a, bool back)
{
    const float *q = (const float *)a->q, *k = (const float *)a->k, *v = (const float *)a->v;
    const float *d_o = (const float *)a->d_o, *lse = (const float *)pl_attend_lse(a);
    const float *delta = (const float *)a->work;
    size_t bytes = shared_bytes(D, R, back ? 4 : 2);
    unsigned rows = SIDE * R, heads = (unsigned)a->heads, batch = (unsigned)a->batch;
    dim3 queries((unsigned)((a->n + rows - 1) / rows), heads, batch);
    dim3 keys((unsigned)((a->m + rows - 1) / rows), heads, batch);
    if (!back) {
        PL_TRY(allow((const void *)forward<D, R>, bytes));
        PL_LAUNCH((forward<D, R>), queries, THREADS, bytes,
            sizes_of(a), q, k, v, (float *)a->out[0],
                                                      (float *)a->out[1]);
        return PL_OK;
    }
    PL_TRY(allow((const void *)to_query<D, R>, bytes));
    PL_TRY(allow((const void *)to_key<D, R>, bytes));
    PL_LAUNCH((to_query<D, R>), queries, THREADS, bytes,
            sizes_of(a), q, k, v, d_o, lse, delta,
                                                   (float *)a->out[0]);
    PL_LAUNCH((to_key<D, R>), keys, THREADS, bytes,
            sizes_of(a), q, k, v, d_o, lse, delta,
                                              (float *)a->out[1], (float *)a->out[2]);
    return PL_OK;
}

static pl_status run_sized(const pl_attend *a, bool back)
{
    if (a->d <= 32) PL_TRY((run<32, 4>(a, back)));
    else if (a->d <= 64) PL_TRY((run<64, 4>(a, back)));
    else if (a->d <= 128) PL_TRY((run<128, 4>(a, back)));
    else PL_TRY((run<256, 2>(a, back)));
    PL_CUDA_LAUNCHED("attention in f32");
    return PL_OK;
}

extern "C" bool pl_attend_f32_takes(const pl_attend *a)
{
    size_t need = a->d <= 128 ? shared_bytes(a->d <= 64 ? 64 : 128, 4, 4) : shared_bytes(256, 2, 4);
    return a->dtype == PL_F32 && a->d <= 256 && a->n < 1 << 30 && a->m < 1 << 30 &&
           a->heads < 65536 && a->batch < 65536 &&
           need <= (size_t)pl_cuda_card_get()->shared_limit;
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
