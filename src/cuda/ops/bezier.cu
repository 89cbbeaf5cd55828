/* bezier.cu - the Bezier activation and its gradient: ops/math/bezier.c has the formula.
 *
 * A thread takes as many groups of five as make 16 bytes of output (one where sizes or pointers do
 * not allow it), so it reads five contiguous 16-byte accesses. It reads its x before it writes its
 * dx, which may lie in the same memory.
 */
#include "cuda/device/launch.h"

#include "ops/core/attr.h"

enum { THREADS = 256 };

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
static __device__ __forceinline__ double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* V groups of five in memory order; element k of the five of group v is at 5v + k. */
template <class T, int V> struct groups {
    pl_pack<T, V> p[5];
    __device__ __forceinline__ T &at(int i)
    {
        return p[i / V].v[i % V];
    }
};

template <class T, int V>
static __device__ __forceinline__ void read_groups(groups<T, V> &g, const T *x)
{
#pragma unroll
    for (int k = 0; k < 5; k++) g.p[k] = pl_read<T, V>(x + k * V);
}

template <class T, int V>
static __global__ void __launch_bounds__(THREADS) forward(const T *x, T *y, int64_t n, bool silu)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        groups<T, V> g;
        pl_pack<T, V> out;
        read_groups(g, x + i * 5 * V);
#pragma unroll
        for (int v = 0; v < V; v++) {
            A p[5];
#pragma unroll
            for (int k = 0; k < 5; k++) {
                p[k] = pl_get<T>(g.at(5 * v + k));
                if (k && silu) p[k] *= sigmoid(p[k]);
            }
            A s = sigmoid(p[0]), u = 1 - s;
            out.v[v] = pl_put<T>(u * u * u * p[1] + 3 * u * u * s * p[2] + 3 * u * s * s * p[3] +
                                 s * s * s * p[4]);
        }
        pl_write(y + i * V, out);
    }
}

template <class T, int V>
static __global__ void __launch_bounds__(THREADS)
    backward(const T *x, const T *dy, T *dx, int64_t n, bool silu)
{
    typedef typename pl_elem<T>::acc A;
    for (int64_t i = PL_ITEM; i < n; i += PL_ITEMS) {
        groups<T, V> g;
        pl_pack<T, V> flow = pl_read<T, V>(dy + i * V);
        read_groups(g, x + i * 5 * V);
#pragma unroll
        for (int v = 0; v < V; v++) {
            A p[5], slope[5], d = pl_get<T>(flow.v[v]);
#pragma unroll
            for (int k = 0; k < 5; k++) {
                A e = pl_get<T>(g.at(5 * v + k));
                p[k] = e;
                slope[k] = 1;
                if (k && silu) {
                    A q = sigmoid(e);
                    p[k] = e * q;
                    slope[k] = q + e * q * (1 - q);
                }
            }
            A s = sigmoid(p[0]), u = 1 - s;
            A w[5] = {0, u * u * u, 3 * u * u * s, 3 * u * s * s, s * s * s};
            A ds = 3 * (u * u * (p[2] - p[1]) + 2 * u * s * (p[3] - p[2]) + s * s * (p[4] - p[3]));
            g.at(5 * v) = pl_put<T>(d * ds * s * u);
#pragma unroll
            for (int k = 1; k < 5; k++) g.at(5 * v + k) = pl_put<T>(d * w[k] * slope[k]);
        }
#pragma unroll
        for (int k = 0; k < 5; k++) pl_write(dx + i * 5 * V + k * V, g.p[k]);
    }
}

/* y is the side with one element per group. */
template <class T> static bool is_wide(int64_t n, const void *x, const void *y, const void *z)
{
    return pl_widest_at(pl_widest_at(pl_widest_at(pl_widest(16, n * (int64_t)sizeof(T)), x), y),
                        z) == 16;
}

static bool silu_of(const pl_call *c)
{
    return static_cast<const pl_bezier_attr *>(c->attr)->silu_points;
}

template <class T, int V> static void launch_forward(const pl_call *c, int64_t n)
{
    PL_LAUNCH((forward<T, V>), dim3(pl_blocks(n / V, THREADS)), dim3(THREADS), 0,
              static_cast<const T *>(c->in[0]), static_cast<T *>(c->out[0]), n / V, silu_of(c));
}

template <class T, int V> static void launch_backward(const pl_call *c, int64_t n)
{
    PL_LAUNCH((backward<T, V>), dim3(pl_blocks(n / V, THREADS)), dim3(THREADS), 0,
              static_cast<const T *>(c->in[0]), static_cast<const T *>(c->in[1]),
              static_cast<T *>(c->out[0]), n / V, silu_of(c));
}

static pl_status bezier(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->out_type[0]);
    if (n == 0) return PL_OK;
    PL_FLOAT_TYPES(c->in_type[0].dtype, if (is_wide<T>(n, c->in[0], c->out[0], NULL))
                                            launch_forward<T, 16 / sizeof(T)>(c, n);
                   else launch_forward<T, 1>(c, n));
    PL_CUDA_LAUNCHED("bezier");
    return PL_OK;
}

static pl_status bezier_bwd(const pl_call *c)
{
    int64_t n = pl_type_elems(&c->in_type[1]);
    if (n == 0) return PL_OK;
    PL_FLOAT_TYPES(c->in_type[0].dtype, if (is_wide<T>(n, c->in[0], c->in[1], c->out[0]))
                                            launch_backward<T, 16 / sizeof(T)>(c, n);
                   else launch_backward<T, 1>(c, n));
    PL_CUDA_LAUNCHED("bezier_bwd");
    return PL_OK;
}

PL_CUDA_KERNEL(bezier_kernels, NULL, bezier);
PL_CUDA_KERNEL(bezier_bwd_kernels, NULL, bezier_bwd);

PL_CUDA_ENTRIES(pl_cuda_bezier) = {
    {"bezier", bezier_kernels}, {"bezier_bwd", bezier_bwd_kernels}, {NULL, NULL}};
