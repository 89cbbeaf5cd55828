/* tail.cu - the tail of a product in a separate pass: for products whose library kernel supports no
 * bias or no tail (ops/net/tail.h). */
#include "cuda/device/launch.h"
#include "cuda/device/work.h"

template <typename A> static __device__ __forceinline__ A gelu_inner(A x)
{
    return (A)0.7978845608028654 * (x + (A)0.044715 * x * x * x);
}

template <typename A> static __device__ A activated(int act, A v, A slope)
{
    switch (act) {
    case PL_ACT_RELU: return v < 0 ? (A)0 : v; /* NaN stays */
    case PL_ACT_LEAKY_RELU: return v > 0 ? v : v * slope;
    case PL_ACT_SILU: return v / ((A)1 + exp(-v));
    case PL_ACT_GELU: return (A)0.5 * v * ((A)1 + erf(v * (A)0.7071067811865476));
    case PL_ACT_GELU_TANH: return (A)0.5 * v * ((A)1 + tanh(gelu_inner(v)));
    case PL_ACT_SIGMOID: return (A)1 / ((A)1 + exp(-v));
    case PL_ACT_TANH: return tanh(v);
    default: return v;
    }
}

/* Returns v times the function's slope at z. */
template <typename A> static __device__ A sloped(int act, A v, A z)
{
    if (act == PL_ACT_RELU) return z > 0 ? v : (A)0;
    A t = tanh(gelu_inner(z));
    A second = (A)0.5 * z * ((A)1 - t * t) * (A)0.7978845608028654 * ((A)1 + (A)0.134145 * z * z);
    return v * ((A)0.5 * ((A)1 + t) + second);
}

struct operands {
    const void *bias, *add, *slope_at;
    void *keep;
    int act;
    double slope;
};

/* Packs of V elements; n_packs of them are a row. */
template <typename T, int V>
static __global__ void follow(T *y, operands o, int64_t packs, pl_long_divisor n_packs)
{
    typedef typename pl_elem<T>::acc A;
    typedef pl_pack<T, V> P;
    for (int64_t i = PL_ITEM; i < packs; i += PL_ITEMS) {
        P a = ((P *)y)[i], other = a, bias = a, z;
        int64_t at = 0;
        if (o.bias) {
            pl_long_divmod(i, n_packs, &at);
            bias = ((const P *)o.bias)[at];
        }
        if (o.add) other = ((const P *)o.add)[i];
        if (o.slope_at) other = ((const P *)o.slope_at)[i];
        for (int k = 0; k < V; k++) {
            A v = pl_get(a.v[k]);
            if (o.bias) v += pl_get(bias.v[k]);
            if (o.add) v += pl_get(other.v[k]);
            z.v[k] = pl_put<T>(v);
            a.v[k] = pl_put<T>(o.slope_at ? sloped(o.act, v, (A)pl_get(other.v[k]))
                                          : activated(o.act, v, (A)o.slope));
        }
        if (o.keep) ((P *)o.keep)[i] = z;
        ((P *)y)[i] = a;
    }
}

template <typename T> static void launch(void *y, const operands &o, int64_t rows, int64_t n)
{
    enum { V = 16 / sizeof(T), THREADS = 256 };
    const void *p[5] = {y, o.bias, o.add, o.slope_at, o.keep};
    bool wide = n % V == 0 && pl_cuda_aligned(p, 5);
    int64_t packs = rows * n / (wide ? V : 1);
    if (wide)
        PL_LAUNCH((follow<T, V>), pl_blocks(packs, THREADS), THREADS, 0, (T *)y, o, packs,
                  pl_long_div_by(n / V));
    else
        PL_LAUNCH((follow<T, 1>), pl_blocks(packs, THREADS), THREADS, 0, (T *)y, o, packs,
                  pl_long_div_by(n));
}

extern "C" pl_status pl_cuda_tail_run(pl_dtype dtype, void *y, int64_t rows, int64_t n,
                                      const pl_cuda_tail *t)
{
    if (rows * n == 0) return PL_OK;
    operands o = {t->bias, t->add, t->slope_at, t->keep, t->act, t->slope};
    PL_FLOAT_TYPES(dtype, launch<T>(y, o, rows, n))
    PL_CUDA_LAUNCHED("what follows a product");
    return PL_OK;
}
