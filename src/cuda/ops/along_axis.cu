/* along_axis.cu - along one axis: running sums, and the position of the largest element.
 *
 * A tensor is [outer, size, inner]. Where inner is wide, a thread owns a column and walks down it:
 * neighbouring threads read neighbouring elements. Where inner is narrow, a block owns a line and
 * its threads take pieces. Either way the order of every sum follows from the shape alone.
 *
 * Running sums are kept in double (integers in integers) and rounded when they are written, so a
 * long line of 16-bit numbers does not drift. cumsum may overwrite its input: the thread that
 * writes an element has read it before.
 */
#include "cuda/device/launch.h"

#include "ops/core/attr.h"

#include <math.h>

enum { THREADS = 256, WARPS = THREADS / 32, NARROW = 32 };

/* ---- cumsum ----------------------------------------------------------------------------- */
template <class T> struct total {
    typedef double type;
};
template <> struct total<int32_t> {
    typedef uint32_t type;
};
template <> struct total<int64_t> {
    typedef uint64_t type;
};

struct lines {
    int64_t outer, size, inner;
};

template <class T>
static __global__ void cumsum_columns(const T *x, T *y, const lines l, bool reverse)
{
    typedef typename total<T>::type S;
    for (int64_t i = PL_ITEM; i < l.outer * l.inner; i += PL_ITEMS) {
        int64_t at = i / l.inner * l.size * l.inner + i % l.inner, step = l.inner;
        if (reverse) {
            at += (l.size - 1) * l.inner;
            step = -step;
        }
        S sum = 0;
        for (int64_t k = 0; k < l.size; k++, at += step) {
            sum += (S)pl_get<T>(x[at]);
            y[at] = pl_put<T>((typename pl_elem<T>::acc)sum);
        }
    }
}

/* Returns the sum over the threads up to and including this one; *all: over all threads. */
template <class S> static __device__ S block_scan(S v, S *all)
{
    __shared__ S warp[WARPS];
    unsigned lane = threadIdx.x & 31u, w = threadIdx.x >> 5;
    for (unsigned d = 1; d < 32; d *= 2) {
        S up = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += up;
    }
    if (lane == 31) warp[w] = v;
    __syncthreads();
    S before = 0, sum = 0;
    for (unsigned k = 0; k < WARPS; k++) {
        if (k == w) before = sum;
        sum += warp[k];
    }
    __syncthreads();
    *all = sum;
    return before + v;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    cumsum_lines(const T *x, T *y, const lines l, bool reverse)
{
    typedef typename total<T>::type S;
    for (int64_t i = blockIdx.x; i < l.outer * l.inner; i += gridDim.x) {
        int64_t base = i / l.inner * l.size * l.inner + i % l.inner;
        S carry = 0;
        for (int64_t k0 = 0; k0 < l.size; k0 += THREADS) {
            int64_t k = k0 + threadIdx.x, at = base + (reverse ? l.size - 1 - k : k) * l.inner;
            S v = 0, all;
            if (k < l.size) v = (S)pl_get<T>(x[at]);
            v = carry + block_scan(v, &all);
            if (k < l.size) y[at] = pl_put<T>((typename pl_elem<T>::acc)v);
            carry += all;
        }
    }
}

static lines lines_of(const pl_type *t, int64_t axis)
{
    pl_axis_view v = pl_along_axis(t, axis);
    lines l = {v.outer, v.size, v.inner};
    return l;
}

static unsigned line_blocks(const lines &l)
{
    return pl_blocks(l.outer * l.inner, 1);
}

static pl_status cumsum(const pl_call *c)
{
    const pl_cumsum_attr *a = static_cast<const pl_cumsum_attr *>(c->attr);
    lines l = lines_of(&c->in_type[0], a->axis);
    if (pl_type_elems(&c->in_type[0]) == 0) return PL_OK;
    PL_ALL_TYPES(c->in_type[0].dtype, const T *x = static_cast<const T *>(c->in[0]);
                 T *y = static_cast<T *>(c->out[0]); if (l.inner >= NARROW || l.size < NARROW)
                     PL_LAUNCH((cumsum_columns<T>), dim3(pl_blocks(l.outer * l.inner, THREADS)),
                               dim3(THREADS), 0, x, y, l, a->reverse);
                 else PL_LAUNCH((cumsum_lines<T>), dim3(line_blocks(l)), dim3(THREADS), 0, x, y, l,
                                a->reverse));
    PL_CUDA_LAUNCHED("cumsum");
    return PL_OK;
}

/* ---- argmax ----------------------------------------------------------------------------- */
/* The first maximum wins; NaN is larger than any number. */
template <class A> struct best {
    A value;
    int32_t at; /* -1: none yet */
    __device__ __forceinline__ void meet(A v, int32_t i)
    {
        bool more = v > value || (v != v && value == value);
        bool tie = v == value || (v != v && value != value);
        if (i >= 0 && (at < 0 || more || (tie && i < at))) {
            value = v;
            at = i;
        }
    }
};

template <class T> static __global__ void argmax_columns(const T *x, int32_t *y, const lines l)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < l.outer * l.inner; i += PL_ITEMS) {
        const T *p = x + i / l.inner * l.size * l.inner + i % l.inner;
        best<A> b = {pl_get<T>(*p), 0};
        for (int32_t k = 1; k < l.size; k++) b.meet(pl_get<T>(p[k * l.inner]), k);
        y[i] = b.at;
    }
}

/* One warp per line. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    argmax_lines(const T *x, int32_t *y, const lines l)
{
    typedef typename pl_elem<T>::acc A;
    unsigned lane = threadIdx.x & 31u;
    for (int64_t i = blockIdx.x * (int64_t)WARPS + (threadIdx.x >> 5); i < l.outer * l.inner;
         i += gridDim.x * (int64_t)WARPS) {
        const T *p = x + i / l.inner * l.size * l.inner + i % l.inner;
        best<A> b = {0, -1};
        for (int64_t k = lane; k < l.size; k += 32) b.meet(pl_get<T>(p[k * l.inner]), (int32_t)k);
        for (int d = 16; d > 0; d /= 2) {
            A v = __shfl_xor_sync(0xffffffffu, b.value, d);
            int32_t at = __shfl_xor_sync(0xffffffffu, b.at, d);
            b.meet(v, at);
        }
        if (lane == 0) y[i] = b.at;
    }
}

static pl_status argmax(const pl_call *c)
{
    lines l = lines_of(&c->in_type[0], static_cast<const pl_argmax_attr *>(c->attr)->axis);
    if (pl_type_elems(&c->out_type[0]) == 0) return PL_OK;
    PL_ALL_TYPES(c->in_type[0].dtype, const T *x = static_cast<const T *>(c->in[0]);
                 int32_t *y = static_cast<int32_t *>(c->out[0]);
                 if (l.inner >= NARROW || l.size < NARROW)
                     PL_LAUNCH((argmax_columns<T>), dim3(pl_blocks(l.outer * l.inner, THREADS)),
                               dim3(THREADS), 0, x, y, l);
                 else PL_LAUNCH((argmax_lines<T>), dim3(pl_blocks(l.outer * l.inner, WARPS)),
                                dim3(THREADS), 0, x, y, l));
    PL_CUDA_LAUNCHED("argmax");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
PL_CUDA_KERNEL(cumsum_kernels, NULL, cumsum);
PL_CUDA_KERNEL(argmax_kernels, NULL, argmax);

PL_CUDA_ENTRIES(pl_cuda_along_axis) = {
    {"cumsum", cumsum_kernels}, {"argmax", argmax_kernels}, {NULL, NULL}};
