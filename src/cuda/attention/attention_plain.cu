/* attention_plain.cu - attention with one block per query (forward, dq) or per key (dk, dv).
 *
 * A block walks the other side in chunks of THREADS tokens: each thread computes one score, then
 * the threads share the head's dims and add the chunk up in order. Any head size, MAX_D dims per
 * block, any type, the order of sums fixed by the sizes. Slow: for f64, for odd sizes and for
 * checking.
 */
#include "cuda/attention/attention.h"
#include "cuda/attention/mask.h"
#include "cuda/device/launch.h"
#include "cuda/device/limits.h"

#include <math.h>

static constexpr int THREADS = 128, MAX_D = 1024, PER = MAX_D / THREADS;

typedef struct sizes {
    int64_t n, m, heads, group, d;
    double scale;
    bool causal;
    pl_attend_mask mask;
} sizes;

static sizes sizes_of(const pl_attend *a)
{
    sizes s = {a->n, a->m, a->heads, a->group, a->d, a->scale, a->causal, a->mask};
    return s;
}

static __device__ int64_t row(const sizes &s, int64_t b, int64_t i, int64_t h, int64_t tokens)
{
    return ((b * tokens + i) * s.heads + h) * s.d;
}

/* Key or value j as head h of the queries reads it. */
static __device__ int64_t key_row(const sizes &s, int64_t b, int64_t j, int64_t h)
{
    return ((b * s.m + j) * (s.heads / s.group) + h / s.group) * s.d;
}

/* Returns the value that the mask adds to the score of query i and key j. */
template <typename A>
static __device__ A added(const sizes &s, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (!s.mask.at) return 0;
    return pl_mask_number<A>(s.mask, pl_mask_row(s.mask, b, h, i) + j * s.mask.key);
}

template <typename T>
static __device__ typename pl_elem<T>::acc dot(const T *a, const T *b, int64_t d)
{
    typename pl_elem<T>::acc sum = 0;
    for (int64_t i = 0; i < d; i++) sum += pl_elem<T>::get(a[i]) * pl_elem<T>::get(b[i]);
    return sum;
}

/* Reduces one number per thread to the sum or maximum, in a tree; all threads get the result. */
template <typename A, bool MAX> static __device__ A over_block(A v, A *part)
{
    part[threadIdx.x] = v;
    __syncthreads();
    for (int step = THREADS / 2; step; step /= 2) {
        if ((int)threadIdx.x < step) {
            A x = part[threadIdx.x], y = part[threadIdx.x + step];
            part[threadIdx.x] = MAX ? (x > y ? x : y) : x + y;
        }
        __syncthreads();
    }
    A r = part[0];
    __syncthreads();
    return r;
}

/* Returns dim e of this thread. */
static __device__ __forceinline__ int64_t dim_of(int e)
{
    return (int64_t)blockIdx.y * MAX_D + threadIdx.x + e * THREADS;
}

/* blocks: (query, head, batch) in x, parts of the dims in y */
template <typename T, typename L>
static __global__ void forward(sizes s, const T *q, const T *k, const T *v, T *o, L *lse)
{
    typedef typename pl_elem<T>::acc acc;
    __shared__ acc part[THREADS], p[THREADS];
    int64_t i = blockIdx.x % s.n, h = blockIdx.x / s.n % s.heads, b = blockIdx.x / s.n / s.heads;
    int64_t seen = s.causal && i + 1 < s.m ? i + 1 : s.m;
    const T *qi = q + row(s, b, i, h, s.n);
    acc top = s.mask.at ? (acc)PL_MASK_HIDDEN : -INFINITY, total = 0, out[PER] = {};
    for (int64_t j0 = 0; j0 < seen; j0 += THREADS) {
        int64_t j = j0 + threadIdx.x;
        acc x = -INFINITY;
        if (j < seen)
            x = dot(qi, k + key_row(s, b, j, h), s.d) * (acc)s.scale + added<acc>(s, b, h, i, j);
        acc most = over_block<acc, true>(x, part);
        most = most > top ? most : top;
        acc fade = exp(top - most);
        p[threadIdx.x] = j < seen ? exp(x - most) : (acc)0;
        total = total * fade + over_block<acc, false>(p[threadIdx.x], part);
        int64_t end = seen - j0 < THREADS ? seen - j0 : THREADS;
        for (int e = 0; e < PER; e++) {
            int64_t c = dim_of(e);
            if (c >= s.d) break;
            acc sum = out[e] * fade;
            for (int64_t t = 0; t < end; t++)
                sum += p[t] * pl_elem<T>::get(v[key_row(s, b, j0 + t, h) + c]);
            out[e] = sum;
        }
        top = most;
        __syncthreads();
    }
    for (int e = 0; e < PER; e++) {
        int64_t c = dim_of(e);
        if (c < s.d)
            o[row(s, b, i, h, s.n) + c] = pl_elem<T>::put(total == 0 ? (acc)0 : out[e] / total);
    }
    if (threadIdx.x == 0 && blockIdx.y == 0)
        lse[(b * s.heads + h) * s.n + i] = total == 0 ? (L)0 : (L)(top + log(total));
}

template <typename T, typename L>
static __global__ void to_query(sizes s, const T *q, const T *k, const T *v, const T *d_o,
                                const L *lse, const L *delta, T *dq)
{
    typedef typename pl_elem<T>::acc acc;
    __shared__ acc ds[THREADS];
    int64_t i = blockIdx.x % s.n, h = blockIdx.x / s.n % s.heads, b = blockIdx.x / s.n / s.heads;
    int64_t seen = s.causal && i + 1 < s.m ? i + 1 : s.m, li = (b * s.heads + h) * s.n + i;
    int64_t qi = row(s, b, i, h, s.n);
    acc out[PER] = {};
    for (int64_t j0 = 0; j0 < seen; j0 += THREADS) {
        int64_t j = j0 + threadIdx.x, end = seen - j0 < THREADS ? seen - j0 : THREADS;
        if (j < seen) {
            int64_t kj = key_row(s, b, j, h);
            acc p = exp(dot(q + qi, k + kj, s.d) * (acc)s.scale + added<acc>(s, b, h, i, j) -
                        (acc)lse[li]);
            ds[threadIdx.x] = p * (dot(d_o + qi, v + kj, s.d) - (acc)delta[li]) * (acc)s.scale;
        }
        __syncthreads();
        for (int e = 0; e < PER; e++) {
            int64_t c = dim_of(e);
            if (c >= s.d) break;
            for (int64_t t = 0; t < end; t++)
                out[e] += ds[t] * pl_elem<T>::get(k[key_row(s, b, j0 + t, h) + c]);
        }
        __syncthreads();
    }
    for (int e = 0; e < PER; e++) {
        int64_t c = dim_of(e);
        if (c < s.d) dq[qi + c] = pl_elem<T>::put(out[e]);
    }
}

template <typename T, typename L>
static __global__ void to_key(sizes s, const T *q, const T *k, const T *v, const T *d_o,
                              const L *lse, const L *delta, T *dk, T *dv)
{
    typedef typename pl_elem<T>::acc acc;
    __shared__ acc ds[THREADS], p[THREADS];
    int64_t j = blockIdx.x % s.m, h = blockIdx.x / s.m % s.heads, b = blockIdx.x / s.m / s.heads;
    int64_t kj = key_row(s, b, j, h), to = row(s, b, j, h, s.m), l0 = (b * s.heads + h) * s.n;
    acc to_k[PER] = {}, to_v[PER] = {};
    for (int64_t i0 = s.causal ? j : 0; i0 < s.n; i0 += THREADS) {
        int64_t i = i0 + threadIdx.x, end = s.n - i0 < THREADS ? s.n - i0 : THREADS;
        if (i < s.n) {
            int64_t qi = row(s, b, i, h, s.n);
            p[threadIdx.x] = exp(dot(q + qi, k + kj, s.d) * (acc)s.scale +
                                 added<acc>(s, b, h, i, j) - (acc)lse[l0 + i]);
            ds[threadIdx.x] =
                p[threadIdx.x] * (dot(d_o + qi, v + kj, s.d) - (acc)delta[l0 + i]) * (acc)s.scale;
        }
        __syncthreads();
        for (int e = 0; e < PER; e++) {
            int64_t c = dim_of(e);
            if (c >= s.d) break;
            for (int64_t t = 0; t < end; t++) {
                int64_t qi = row(s, b, i0 + t, h, s.n) + c;
                to_k[e] += ds[t] * pl_elem<T>::get(q[qi]);
                to_v[e] += p[t] * pl_elem<T>::get(d_o[qi]);
            }
        }
        __syncthreads();
    }
    for (int e = 0; e < PER; e++) {
        int64_t c = dim_of(e);
        if (c >= s.d) break;
        dk[to + c] = pl_elem<T>::put(to_k[e]);
        dv[to + c] = pl_elem<T>::put(to_v[e]);
    }
}

template <typename A> static __device__ A widened(const void *p, pl_dtype type, int64_t i)
{
    switch (type) {
    case PL_F64: return (A)((const double *)p)[i];
    case PL_F16: return (A)__half2float(((const pl_f16 *)p)[i]);
    case PL_BF16: return (A)__bfloat162float(((const pl_bf16 *)p)[i]);
    default: return (A)((const float *)p)[i];
    }
}

/* One warp per query. wide_lse: destination of lse in the type of sums, or NULL. */
template <typename T, typename L>
static __global__ void deltas(sizes s, int64_t rows, const T *o, const T *d_o, const void *d_lse,
                              pl_dtype d_lse_type, L *delta, const void *lse, pl_dtype lse_type,
                              L *wide_lse)
{
    typedef typename pl_elem<T>::acc acc;
    int64_t r = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (r >= rows) return;
    int64_t i = r % s.n, h = r / s.n % s.heads, b = r / s.n / s.heads;
    int64_t at = row(s, b, i, h, s.n);
    acc sum = 0;
    for (int64_t c = threadIdx.x % 32; c < s.d; c += 32)
        sum += pl_elem<T>::get(o[at + c]) * pl_elem<T>::get(d_o[at + c]);
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32) return;
    if (d_lse) sum -= widened<acc>(d_lse, d_lse_type, r);
    if (wide_lse) wide_lse[r] = widened<L>(lse, lse_type, r);
    delta[r] = (L)sum;
}

/* n: elements of the sums. */
template <typename T>
static __global__ void sum_groups(int64_t n, int64_t d, int64_t group, const T *from, T *to)
{
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        const T *x = from + i / d * group * d + i % d;
        typename pl_elem<T>::acc sum = 0;
        for (int64_t k = 0; k < group; k++) sum += pl_elem<T>::get(x[k * d]);
        to[i] = pl_elem<T>::put(sum);
    }
}

/* ---- launches ------------------------------------------------------------------------------- */
static dim3 grid_of(const pl_attend *a, int64_t tokens)
{
    return dim3((unsigned)(a->batch * a->heads * tokens), (unsigned)pl_ceil_div(a->d, MAX_D));
}

/* f64 operands keep lse and delta in f64, all others in f32: the type of their sums. */
template <typename T> static void launch_forward(const pl_attend *a)
{
    typedef typename pl_elem<T>::acc L;
    dim3 blocks = grid_of(a, a->n);
    PL_LAUNCH((forward<T, L>), blocks, THREADS, 0, sizes_of(a), (const T *)a->q, (const T *)a->k,
              (const T *)a->v, (T *)a->out[0], (L *)a->out[1]);
}

template <typename T> static void launch_delta(const pl_attend *a)
{
    typedef typename pl_elem<T>::acc L;
    int64_t rows = a->batch * a->heads * a->n;
    unsigned blocks = (unsigned)((rows * 32 + THREADS - 1) / THREADS);
    PL_LAUNCH((deltas<T, L>), blocks, THREADS, 0, sizes_of(a), rows, (const T *)a->o,
              (const T *)a->d_o, a->d_lse, a->d_lse_type, (L *)a->work, a->lse, a->lse_type,
              pl_attend_lse(a) == a->lse ? (L *)NULL : (L *)a->work + rows);
}

template <typename T> static void launch_backward(const pl_attend *a)
{
    typedef typename pl_elem<T>::acc L;
    dim3 queries = grid_of(a, a->n), keys = grid_of(a, a->m);
    const T *q = (const T *)a->q, *k = (const T *)a->k, *v = (const T *)a->v;
    const T *d_o = (const T *)a->d_o;
    const L *lse = (const L *)pl_attend_lse(a), *delta = (const L *)a->work;
    PL_LAUNCH((to_query<T, L>), queries, THREADS, 0, sizes_of(a), q, k, v, d_o, lse, delta,
              (T *)a->out[0]);
    PL_LAUNCH((to_key<T, L>), keys, THREADS, 0, sizes_of(a), q, k, v, d_o, lse, delta,
              (T *)a->out[1], (T *)a->out[2]);
}

static pl_status check(const pl_attend *a)
{
    int64_t most = a->n > a->m ? a->n : a->m;
    PL_FAIL_IF(a->d / MAX_D >= pl_grid_side(), PL_ERR_UNSUPPORTED, "attention heads of %lld",
               (long long)a->d);
    PL_FAIL_IF(a->batch * a->heads * most > INT32_MAX, PL_ERR_UNSUPPORTED,
               "attention over %lld rows", (long long)(a->batch * a->heads * most));
    return PL_OK;
}

extern "C" size_t pl_attend_work(const pl_attend *a)
{
    return (size_t)(a->batch * a->heads * a->n) * (a->dtype == PL_F64 ? 16u : 8u);
}

extern "C" pl_status pl_attend_delta(const pl_attend *a)
{
    PL_TRY(check(a));
    PL_FLOAT_TYPES(a->dtype, launch_delta<T>(a))
    PL_CUDA_LAUNCHED("delta of attention");
    return PL_OK;
}

extern "C" pl_status pl_attend_sum_groups(const pl_attend *a, const void *from, void *to)
{
    int64_t n = a->batch * a->m * (a->heads / a->group) * a->d;
    PL_FLOAT_TYPES(a->dtype, PL_LAUNCH((sum_groups<T>), dim3(pl_blocks(n, THREADS)), dim3(THREADS),
                                       0, n, a->d, a->group, (const T *)from, (T *)to))
    PL_CUDA_LAUNCHED("gradients of keys and values");
    return PL_OK;
}

extern "C" pl_status pl_attend_plain(const pl_attend *a)
{
    PL_TRY(check(a));
    PL_FLOAT_TYPES(a->dtype, launch_forward<T>(a))
    PL_CUDA_LAUNCHED("attention");
    return PL_OK;
}

extern "C" pl_status pl_attend_plain_bwd(const pl_attend *a)
{
    PL_TRY(pl_attend_delta(a));
    PL_FLOAT_TYPES(a->dtype, launch_backward<T>(a))
    PL_CUDA_LAUNCHED("gradient of attention");
    return PL_OK;
}
