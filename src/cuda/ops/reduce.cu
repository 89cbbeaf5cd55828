/* reduce.cu - sum, max_over, min_over and moments outside groups: empty reductions, and wherever no
 * group contains the reduction.
 *
 * A warp computes one element of the result: its lanes walk the reduced elements 32 at a time and
 * then combine in a fixed tree. The input is two nested shapes, the kept dims and the reduced dims.
 */
#include "cuda/device/launch.h"

#include "ops/core/attr.h"

enum { THREADS = 256, WARPS = THREADS / 32 };
enum fold_kind { SUM, MAX, MIN };

struct dims {
    int rank;
    int64_t n, dim[PL_MAX_RANK], stride[PL_MAX_RANK];
};

static void add_dim(dims *d, int64_t size, int64_t stride)
{
    d->n *= size;
    /* Merges dims that are contiguous. */
    if (d->rank && d->stride[d->rank - 1] == size * stride) {
        d->dim[d->rank - 1] *= size;
        d->stride[d->rank - 1] = stride;
        return;
    }
    d->dim[d->rank] = size;
    d->stride[d->rank++] = stride;
}

struct folding {
    dims keep, gone;
};

static folding folding_of(const pl_call *c)
{
    const pl_dims *axes = &static_cast<const pl_reduce_attr *>(c->attr)->axes;
    const pl_type *x = &c->in_type[0];
    folding f;
    int64_t stride = 1;
    uint32_t mask = 0;
    f.keep.rank = f.gone.rank = 0;
    f.keep.n = f.gone.n = 1;
    for (int i = 0; i < axes->n; i++) mask |= 1u << axes->v[i];
    for (int i = 0; i < x->rank; i++) stride *= x->dim[i];
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i]) stride /= x->dim[i];
        add_dim(mask >> i & 1u ? &f.gone : &f.keep, x->dim[i], stride);
    }
    return f;
}

static __device__ __forceinline__ int64_t place(const dims &d, int64_t i)
{
    int64_t at = 0;
    for (int k = d.rank - 1; k > 0; k--) {
        int64_t q = i / d.dim[k];
        at += (i - q * d.dim[k]) * d.stride[k];
        i = q;
    }
    return d.rank ? at + i * d.stride[0] : at;
}

/* The type of accumulators: integers wrap. */
template <class T> struct sum_of {
    typedef typename pl_elem<T>::acc type;
};
template <> struct sum_of<int32_t> {
    typedef uint32_t type;
};
template <> struct sum_of<int64_t> {
    typedef uint64_t type;
};

/* NaN wins. */
template <int KIND, class A> static __device__ __forceinline__ A join(A a, A b)
{
    if (KIND == SUM) return a + b;
    bool second = KIND == MAX ? b > a : b < a;
    return a != a || (b == b && !second) ? a : b;
}

template <class A> static __device__ __forceinline__ A warp_sum(A v)
{
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

#define EACH_WARP(i, n)                                                                            \
 for (int64_t i = blockIdx.x * (int64_t)WARPS + (threadIdx.x >> 5); i < (n);                       \
      i += gridDim.x * (int64_t)WARPS)

template <class T, int KIND>
static __global__ void __launch_bounds__(THREADS, 4) fold_elems(const T *x, T *y, const folding f)
{
    typedef typename sum_of<T>::type S;
    typedef typename pl_elem<T>::acc E;
    int lane = (int)(threadIdx.x & 31u);
    EACH_WARP(i, f.keep.n)
    {
        const T *from = x + place(f.keep, i);
        /* A maximum or minimum starts with the first element; lanes without an element repeat
         * it. */
        S sum = 0;
        E best = KIND == SUM ? E(0) : E(pl_get<T>(*from));
        for (int64_t j = lane; j < f.gone.n; j += 32) {
            E v = pl_get<T>(from[place(f.gone, j)]);
            if (KIND == SUM)
                sum += (S)v;
            else
                best = join<KIND>(best, v);
        }
        if (KIND == SUM) {
            best = (E)warp_sum(sum);
        } else {
            for (int d = 16; d > 0; d /= 2)
                best = join<KIND, E>(best, __shfl_xor_sync(0xffffffffu, best, d));
        }
        if (lane == 0) y[i] = pl_put<T>(best);
    }
}

/* Computes the mean, then the squares about it. */
template <class T, class R>
static __global__ void __launch_bounds__(THREADS, 4)
    fold_moments(const T *x, R *mean, R *variance, const folding f)
{
    int lane = (int)(threadIdx.x & 31u);
    EACH_WARP(i, f.keep.n)
    {
        const T *from = x + place(f.keep, i);
        R sum = 0, squares = 0;
        for (int64_t j = lane; j < f.gone.n; j += 32) sum += (R)pl_get<T>(from[place(f.gone, j)]);
        R m = warp_sum(sum) / (R)f.gone.n;
        for (int64_t j = lane; j < f.gone.n; j += 32) {
            R e = (R)pl_get<T>(from[place(f.gone, j)]) - m;
            squares += e * e;
        }
        squares = warp_sum(squares) / (R)f.gone.n;
        if (lane == 0) {
            mean[i] = m;
            variance[i] = squares;
        }
    }
}

template <int KIND> static pl_status run_fold(const pl_call *c)
{
    folding f = folding_of(c);
    if (f.keep.n == 0) return PL_OK;
    PL_ALL_TYPES(c->in_type[0].dtype,
                 PL_LAUNCH((fold_elems<T, KIND>), dim3(pl_blocks(f.keep.n, WARPS)), dim3(THREADS),
                           0, static_cast<const T *>(c->in[0]), static_cast<T *>(c->out[0]), f));
    PL_CUDA_LAUNCHED("reduction");
    return PL_OK;
}

static pl_status sum(const pl_call *c)
{
    return run_fold<SUM>(c);
}

static pl_status max_over(const pl_call *c)
{
    return run_fold<MAX>(c);
}

static pl_status min_over(const pl_call *c)
{
    return run_fold<MIN>(c);
}

static pl_status moments(const pl_call *c)
{
    folding f = folding_of(c);
    if (f.keep.n == 0) return PL_OK;
    PL_FLOAT_TYPES(c->in_type[0].dtype, typedef pl_elem<T>::acc R;
                   PL_LAUNCH((fold_moments<T, R>), dim3(pl_blocks(f.keep.n, WARPS)), dim3(THREADS),
                             0, static_cast<const T *>(c->in[0]), static_cast<R *>(c->out[0]),
                             static_cast<R *>(c->out[1]), f));
    PL_CUDA_LAUNCHED("moments");
    return PL_OK;
}

PL_CUDA_KERNEL(sum_kernels, NULL, sum);
PL_CUDA_KERNEL(max_kernels, NULL, max_over);
PL_CUDA_KERNEL(min_kernels, NULL, min_over);
PL_CUDA_KERNEL(moments_kernels, NULL, moments);

PL_CUDA_ENTRIES(pl_cuda_reduce) = {{"sum", sum_kernels},
                                   {"max_over", max_kernels},
                                   {"min_over", min_kernels},
                                   {"moments", moments_kernels},
                                   {NULL, NULL}};
