/* cross_entropy.cu - cross-entropy of rows of logits and its gradient, one pass over the logits
 * each (formulas: ops/net/cross_entropy.c).
 *
 * A team of threads works on one row: a warp where rows are short, else a block. The threads of a
 * team read 16 bytes at a time. Rows need not begin at a multiple of 16 bytes, so a row is a head
 * of single elements, packs, and a tail; where head and packs lie follows from the row's index and
 * length, never from an address: the order of every sum depends on shapes alone. A tensor that does
 * not begin at a multiple of 16 bytes is read element by element in the same order.
 *
 * Each thread keeps the largest logit so far and the sum of exp(x - largest), and scales the sum
 * when a larger one comes: once for PACKS packs, not once an element. It reads PACKS packs before
 * it uses the first, so that memory is busy while it computes. dx may lie over the logits: the
 * thread that writes an element is the one that has read it, and the label's logit is read before.
 *
 * Exponentials of 16-bit logits are the hardware's: x - largest is exact or nearly so, and the
 * relative error of a term, (2 + |x - largest|) 2^-23, is far below that of a 16-bit logit.
 */
#include "cuda/device/launch.h"

#include "ops/core/attr.h"

#include <float.h>
#include <math.h>

enum { WARP = 32, BLOCK = 256, SHORT = 1024 /* classes; shorter rows take a warp */, PACKS = 4 };

template <class T> struct wide {
    enum { N = 16 / (int)sizeof(T) };
};

/* The operands of a launch. A: f32, or f64 for f64 logits. */
template <class A> struct rows_of {
    int64_t rows, k, ignore;
    int64_t pitch; /* logits from one row to the next: those from k on are not read */
    A smoothing, z_loss;
    bool ignores, packs, long_labels;
    const void *labels;
    const A *w; /* NULL: all 1 */
};

struct row_parts {
    int64_t head, packs; /* elements before the first pack; packs */
};

template <class T>
static __device__ __forceinline__ row_parts parts_of(int64_t row, int64_t pitch, int64_t k)
{
    int64_t n = wide<T>::N, off = row * pitch % n;
    row_parts p;
    p.head = off ? n - off : 0;
    if (p.head > k) p.head = k;
    p.packs = (k - p.head) / n;
    return p;
}

template <class T>
static __device__ __forceinline__ pl_pack<T, wide<T>::N> read_pack(const T *p, bool packs)
{
    if (packs) return pl_read<T, wide<T>::N>(p);
    pl_pack<T, wide<T>::N> v;
    for (int i = 0; i < wide<T>::N; i++) v.v[i] = p[i];
    return v;
}

template <class A>
static __device__ __forceinline__ int64_t label_at(const rows_of<A> &o, int64_t row)
{
    return o.long_labels ? static_cast<const int64_t *>(o.labels)[row]
                         : static_cast<const int32_t *>(o.labels)[row];
}

static __device__ __forceinline__ float power(float x)
{
    return expf(x);
}
static __device__ __forceinline__ double power(double x)
{
    return exp(x);
}
/* The exponential for terms of logits of T. */
template <class T>
static __device__ __forceinline__ typename pl_elem<T>::acc term(typename pl_elem<T>::acc x)
{
    return power(x);
}
template <> __device__ __forceinline__ float term<pl_f16>(float x)
{
    return __expf(x);
}
template <> __device__ __forceinline__ float term<pl_bf16>(float x)
{
    return __expf(x);
}
static __device__ __forceinline__ float lowest(float)
{
    return -FLT_MAX;
}
static __device__ __forceinline__ double lowest(double)
{
    return -DBL_MAX;
}

/* ---- sums over a team -------------------------------------------------------------------- */
/* The largest logit, the sum of exp(x - top); with smoothing, sum of w (x - x_0) and of w. */
template <class A> struct sums {
    A top, powers, spread, weights;
};

template <class A> static __device__ __forceinline__ sums<A> no_sums()
{
    sums<A> s = {lowest(A(0)), 0, 0, 0};
    return s;
}

/* Joins the sums of the 32 lanes; all of them get the result. Both sides of an exchange add the
 * same two numbers, so all lanes have the same bits. */
template <class A> static __device__ __forceinline__ sums<A> warp_join(sums<A> s, bool spread)
{
    A top = s.top;
    for (int d = 1; d < WARP; d *= 2) top = fmax(top, __shfl_xor_sync(0xffffffffu, top, d));
    s.powers *= power(s.top - top);
    s.top = top;
    for (int d = 1; d < WARP; d *= 2) s.powers += __shfl_xor_sync(0xffffffffu, s.powers, d);
    for (int d = 1; spread && d < WARP; d *= 2) {
        s.spread += __shfl_xor_sync(0xffffffffu, s.spread, d);
        s.weights += __shfl_xor_sync(0xffffffffu, s.weights, d);
    }
    return s;
}

/* Joins the sums of a team's threads; all get the result. spread: with the last two sums. */
template <class A, int TEAM> static __device__ sums<A> team_join(sums<A> s, bool spread)
{
    int lane = (int)(threadIdx.x & 31u);
    s = warp_join(s, spread);
    if (TEAM == WARP) return s;
    __shared__ sums<A> warp[TEAM / WARP];
    __syncthreads(); /* the sums of the row before have been read */
    if (lane == 0) warp[threadIdx.x / WARP] = s;
    __syncthreads();
    return warp_join(lane < TEAM / WARP ? warp[lane] : no_sums<A>(), spread);
}

/* Adds n logits to the sums. n is known where the function is inlined. */
template <class T, class A>
static __device__ __forceinline__ void meet(sums<A> *s, const T *v, int n)
{
    A t = s->top, more = 0;
#pragma unroll
    for (int i = 0; i < n; i++) t = fmax(t, pl_get<T>(v[i]));
#pragma unroll
    for (int i = 0; i < n; i++) more += term<T>(pl_get<T>(v[i]) - t);
    s->powers = s->powers * term<T>(s->top - t) + more;
    s->top = t;
}

template <class T, class A>
static __device__ __forceinline__ void meet_spread(sums<A> *s, const T *v, int n, A first,
                                                   const A *w)
{
    for (int i = 0; i < n; i++) {
        A by = w ? w[i] : A(1);
        s->spread += (pl_get<T>(v[i]) - first) * by;
        s->weights += by;
    }
}

/* ---- forward ----------------------------------------------------------------------------- */
/* One element or pack, and with smoothing its part of the spread. */
template <class T, class A, int N>
static __device__ __forceinline__ void meet_at(sums<A> *s, const T *v, const rows_of<A> &o, A first,
                                               int64_t at)
{
    meet<T, A>(s, v, N);
    if (o.smoothing > 0) meet_spread<T, A>(s, v, N, first, o.w ? o.w + at : NULL);
}

template <class T, class A, int TEAM>
static __device__ sums<A> row_sums(const T *x, int64_t row, const rows_of<A> &o, A first)
{
    constexpr int N = wide<T>::N;
    sums<A> s = no_sums<A>();
    int64_t i = threadIdx.x % TEAM, t = i;
    row_parts p = parts_of<T>(row, o.pitch, o.k);
    if (t < p.head) meet_at<T, A, 1>(&s, x + t, o, first, t);
    for (; i + (PACKS - 1) * TEAM < p.packs; i += PACKS * TEAM) {
        T all[PACKS * N];
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            pl_pack<T, N> v = read_pack<T>(x + p.head + (i + k * TEAM) * N, o.packs);
#pragma unroll
            for (int e = 0; e < N; e++) all[k * N + e] = v.v[e];
        }
        meet<T, A>(&s, all, PACKS * N);
        for (int k = 0; o.smoothing > 0 && k < PACKS; k++) {
            int64_t at = p.head + (i + k * TEAM) * N;
            meet_spread<T, A>(&s, all + k * N, N, first, o.w ? o.w + at : NULL);
        }
    }
    for (; i < p.packs; i += TEAM) {
        pl_pack<T, N> v = read_pack<T>(x + p.head + i * N, o.packs);
        meet_at<T, A, N>(&s, v.v, o, first, p.head + i * N);
    }
    int64_t at = p.head + p.packs * N + t;
    if (at < o.k) meet_at<T, A, 1>(&s, x + at, o, first, at);
    return team_join<A, TEAM>(s, o.smoothing > 0);
}

/* lse - x is computed as (top - x) + powers, the log of their sum: next to logits of 1e8, powers
 * would vanish in lse. */
template <class A>
static __device__ A loss_of(const rows_of<A> &o, const sums<A> &s, int64_t label, A x_y, A first,
                            A powers)
{
    if (o.ignores && label == o.ignore) return 0;
    if (label < 0 || label >= o.k) return A(NAN);
    A lse = s.top + powers, w = o.w ? o.w[label] : A(1);
    A loss = (1 - o.smoothing) * w * ((s.top - x_y) + powers) + o.z_loss * lse * lse;
    if (o.smoothing > 0)
        loss += o.smoothing / A(o.k) * (s.weights * ((s.top - first) + powers) - s.spread);
    return loss;
}

template <class T, class A, int TEAM, int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    entropy_forward(const T *x, A *loss, A *lse_out, const rows_of<A> o)
{
    const int64_t teams = THREADS / TEAM;
    for (int64_t row = blockIdx.x * teams + threadIdx.x / TEAM; row < o.rows;
         row += gridDim.x * teams) {
        const T *p = x + row * o.pitch;
        A first = pl_get<T>(p[0]);
        sums<A> s = row_sums<T, A, TEAM>(p, row, o, first);
        if (threadIdx.x % TEAM != 0) continue;
        int64_t label = label_at(o, row);
        A x_y = label >= 0 && label < o.k ? pl_get<T>(p[label]) : A(0);
        A powers = log(s.powers);
        loss[row] = loss_of(o, s, label, x_y, first, powers);
        lse_out[row] = s.top + powers;
    }
}

/* ---- backward ---------------------------------------------------------------------------- */
/* dx_k = power exp(x_k - lse) - even w_k - [k = label] at_label */
template <class A> struct slopes {
    A lse, power, even, at_label;
    int64_t label; /* -1: none */
    bool still;    /* dx is 0 */
};

template <class A>
static __device__ slopes<A> slopes_of(const rows_of<A> &o, int64_t row, const A *lse, const A *d,
                                      const A *d_lse, A weights)
{
    int64_t label = label_at(o, row);
    bool counts = !(o.ignores && label == o.ignore), valid = label >= 0 && label < o.k;
    A by = counts ? (valid ? d[row] : A(NAN)) : A(0), w = valid && o.w ? o.w[label] : A(1);
    slopes<A> s;
    s.lse = lse[row];
    s.even = by * o.smoothing / A(o.k);
    s.at_label = by * (1 - o.smoothing) * w;
    s.power = 0;
    if (counts)
        s.power =
            by * ((1 - o.smoothing) * w + o.smoothing * weights / A(o.k) + 2 * o.z_loss * s.lse);
    if (d_lse) s.power += d_lse[row];
    s.label = counts && valid ? label : -1;
    s.still = s.power == 0 && s.even == 0 && s.at_label == 0;
    return s;
}

template <class T, class A>
static __device__ __forceinline__ T slope_at(const slopes<A> &s, T x, int64_t k, const A *w)
{
    if (s.still) return pl_put<T>(A(0));
    A y = s.power * term<T>(pl_get<T>(x) - s.lse) - s.even * (w ? w[k] : A(1));
    return pl_put<T>(k == s.label ? y - s.at_label : y);
}

/* The slopes of N logits that begin with logit k. Most packs do not hold the label, and most
 * problems have neither smoothing nor weights. */
template <class T, class A, int N>
static __device__ __forceinline__ pl_pack<T, N>
slopes_at(const slopes<A> &s, const pl_pack<T, N> &x, int64_t k, const A *w)
{
    pl_pack<T, N> y;
    bool plain = !s.still && s.even == 0 && (uint64_t)(s.label - k) >= (uint64_t)N;
    if (plain) {
#pragma unroll
        for (int e = 0; e < N; e++)
            y.v[e] = pl_put<T>(s.power * term<T>(pl_get<T>(x.v[e]) - s.lse));
    } else {
        for (int e = 0; e < N; e++) y.v[e] = slope_at<T, A>(s, x.v[e], k + e, w);
    }
    return y;
}

template <class T>
static __device__ __forceinline__ void write_pack(T *p, const pl_pack<T, wide<T>::N> &v, bool packs)
{
    if (packs)
        pl_write<T, wide<T>::N>(p, v);
    else
        for (int k = 0; k < wide<T>::N; k++) p[k] = v.v[k];
}

/* Sum of the weights of the classes: every team adds them in the same order. */
template <class A, int TEAM> static __device__ A weight_sum(const rows_of<A> &o)
{
    if (!o.w) return A(o.k);
    if (!(o.smoothing > 0)) return 0;
    sums<A> s = no_sums<A>();
    for (int64_t i = threadIdx.x % TEAM; i < o.k; i += TEAM) s.weights += o.w[i];
    return team_join<A, TEAM>(s, true).weights;
}

template <class T, class A, int TEAM, int THREADS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    entropy_backward(const T *x, T *y, const A *lse, const A *d, const A *d_lse, const rows_of<A> o)
{
    constexpr int N = wide<T>::N;
    const int64_t teams = THREADS / TEAM, t = threadIdx.x % TEAM;
    A weights = weight_sum<A, TEAM>(o);
    for (int64_t row = blockIdx.x * teams + threadIdx.x / TEAM; row < o.rows;
         row += gridDim.x * teams) {
        const T *from = x + row * o.pitch;
        T *to = y + row * o.pitch;
        slopes<A> s = slopes_of(o, row, lse, d, d_lse, weights);
        row_parts p = parts_of<T>(row, o.pitch, o.k);
        if (t < p.head) to[t] = slope_at<T, A>(s, from[t], t, o.w);
        int64_t i = t;
        for (; i + (PACKS - 1) * TEAM < p.packs; i += PACKS * TEAM) {
            pl_pack<T, N> v[PACKS];
#pragma unroll
            for (int k = 0; k < PACKS; k++)
                v[k] = read_pack<T>(from + p.head + (i + k * TEAM) * N, o.packs);
#pragma unroll
            for (int k = 0; k < PACKS; k++) {
                int64_t at = p.head + (i + k * TEAM) * N;
                write_pack<T>(to + at, slopes_at<T, A, N>(s, v[k], at, o.w), o.packs);
            }
        }
        for (; i < p.packs; i += TEAM) {
            int64_t at = p.head + i * N;
            pl_pack<T, N> v = read_pack<T>(from + at, o.packs);
            write_pack<T>(to + at, slopes_at<T, A, N>(s, v, at, o.w), o.packs);
        }
        int64_t at = p.head + p.packs * N + t;
        if (at < o.k) to[at] = slope_at<T, A>(s, from[at], at, o.w);
        for (at = o.k + t; at < o.pitch; at += TEAM) to[at] = pl_put<T>(A(0));
    }
}

/* ---- host -------------------------------------------------------------------------------- */
static bool at_pack(const void *p)
{
    return pl_widest_at(16, p) == 16;
}

template <class A> static rows_of<A> rows_in(const pl_call *c)
{
    const pl_cross_entropy_attr *a = static_cast<const pl_cross_entropy_attr *>(c->attr);
    const pl_type *x = &c->in_type[0];
    rows_of<A> o;
    o.pitch = x->dim[x->rank - 1];
    o.k = a->classes ? a->classes : o.pitch;
    o.rows = pl_type_elems(x) / o.pitch;
    o.ignore = a->ignore;
    o.ignores = a->ignores;
    o.smoothing = A(a->smoothing);
    o.z_loss = A(a->z_loss);
    o.packs = at_pack(c->in[0]) && (c->n_out == 2 || at_pack(c->out[0]));
    o.long_labels = c->in_type[1].dtype == PL_I64;
    o.labels = c->in[1];
    o.w = a->weighted ? static_cast<const A *>(c->in[c->n_in - 1]) : NULL;
    return o;
}

template <class T, class A> static void launch_forward(const pl_call *c)
{
    rows_of<A> o = rows_in<A>(c);
    const T *x = static_cast<const T *>(c->in[0]);
    A *loss = static_cast<A *>(c->out[0]), *lse = static_cast<A *>(c->out[1]);
    if (o.k < SHORT)
        PL_LAUNCH((entropy_forward<T, A, WARP, 128>), dim3(pl_blocks(o.rows, 4)), dim3(128), 0, x,
                  loss, lse, o);
    else
        PL_LAUNCH((entropy_forward<T, A, BLOCK, BLOCK>), dim3(pl_blocks(o.rows, 1)), dim3(BLOCK), 0,
                  x, loss, lse, o);
}

template <class T, class A> static void launch_backward(const pl_call *c)
{
    rows_of<A> o = rows_in<A>(c);
    const T *x = static_cast<const T *>(c->in[0]);
    T *y = static_cast<T *>(c->out[0]);
    const A *lse = static_cast<const A *>(c->in[2]), *d = static_cast<const A *>(c->in[3]);
    const A *d_lse = NULL;
    if (c->n_in - (o.w ? 1 : 0) == 5) d_lse = static_cast<const A *>(c->in[4]);
    if (o.k < SHORT)
        PL_LAUNCH((entropy_backward<T, A, WARP, 128>), dim3(pl_blocks(o.rows, 4)), dim3(128), 0, x,
                  y, lse, d, d_lse, o);
    else
        PL_LAUNCH((entropy_backward<T, A, BLOCK, BLOCK>), dim3(pl_blocks(o.rows, 1)), dim3(BLOCK),
                  0, x, y, lse, d, d_lse, o);
}

static pl_status forward(const pl_call *c)
{
    if (pl_type_elems(&c->in_type[0]) == 0) return PL_OK;
    PL_FLOAT_TYPES(c->in_type[0].dtype, typedef typename pl_elem<T>::acc A;
                   launch_forward<T, A>(c));
    PL_CUDA_LAUNCHED("cross_entropy");
    return PL_OK;
}

static pl_status backward(const pl_call *c)
{
    if (pl_type_elems(&c->in_type[0]) == 0) return PL_OK;
    PL_FLOAT_TYPES(c->in_type[0].dtype, typedef typename pl_elem<T>::acc A;
                   launch_backward<T, A>(c));
    PL_CUDA_LAUNCHED("cross_entropy_bwd");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(forward_kernels, NULL, forward);
PL_CUDA_KERNEL(backward_kernels, NULL, backward);

PL_CUDA_ENTRIES(pl_cuda_cross_entropy) = {
    {"cross_entropy", forward_kernels}, {"cross_entropy_bwd", backward_kernels}, {NULL, NULL}};
