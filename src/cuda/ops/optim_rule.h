/* optim_rule.h - optimiser updates on a GPU: the arguments of a launch, and the rules for one
 * element.
 *
 * Formulas and order of operations are those of ops/net/optim.c. optim.cu has the kernels for
 * tensors of floats, optim_tiles.h those for weights and states in fewer bits.
 */
#ifndef PL_CUDA_OPTIM_RULE_H
#define PL_CUDA_OPTIM_RULE_H

#include "cuda/device/launch.h"

enum update_rule {
    ADAM,
    ADAM_MAX,
    SGD,
    SGD_MOMENTUM,
    SGD_NESTEROV,
    LION,
    RMSPROP,
    RMSPROP_CENTERED,
    RMSPROP_MOMENTUM,
    RMSPROP_FULL
};
/* FEW, MOST: weights of a launch that fit 4 KB and 32 KB of parameters; KINDS: see batch_of. */
enum { THREADS = 256, STATES = 3, FEW = 36, MOST = 300, KINDS = 8 };

/* One weight of a launch; `end` is the block, or in update_f32 the tile, after its last one. */
struct update_piece {
    void *grad, *w, *s[STATES], *w_out, *s_out[STATES];
    int64_t n;
    int end, kind;
    uint32_t stream; /* with a key: the first of two streams of random bits */
};

/* The weights of a launch and their common settings: the kernel's parameter. Weights of one kind
 * have one learning rate and one decay, so their coefficients are computed once. */
template <int N> struct batch_of {
    update_piece at[N];
    const void *lr[KINDS];
    double weight_decay[KINDS];
    const void *scale;
    const int64_t *step, *key;
    double beta1, beta2, eps, momentum, dampening, alpha;
    double log_beta1, log_beta2; /* computed on the host: a power costs the device many times an
                                  * exp */
    int64_t chunk;               /* elements per block, a multiple of 4 */
    int grad_type, w_type, s_type[STATES], lr_type, scale_type;
    int n, kinds;
    bool decoupled;
};
typedef batch_of<FEW> update_batch;
typedef batch_of<MOST> update_large;
static_assert(sizeof(update_batch) <= 4096 && sizeof(update_large) <= 32764,
              "parameters of a kernel");

template <class C> struct coeffs {
    C scale, decay, keep, rate, beta1, beta2, mix1, mix2, eps, root;
    bool skip; /* the scale is not finite: nothing changes */
};

/* ---- elements of any float type --------------------------------------------------------- */
template <class C> static __device__ __forceinline__ C get(int dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case PL_F64: return (C) static_cast<const double *>(p)[i];
    case PL_F16: return (C)pl_get(static_cast<const pl_f16 *>(p)[i]);
    case PL_BF16: return (C)pl_get(static_cast<const pl_bf16 *>(p)[i]);
    default: return (C) static_cast<const float *>(p)[i];
    }
}

template <class C> static __device__ __forceinline__ void set(int dtype, void *p, int64_t i, C v)
{
    switch (dtype) {
    case PL_F64: static_cast<double *>(p)[i] = (double)v; break;
    case PL_F16: static_cast<pl_f16 *>(p)[i] = pl_put<pl_f16>((float)v); break;
    case PL_BF16: static_cast<pl_bf16 *>(p)[i] = pl_put<pl_bf16>((float)v); break;
    default: static_cast<float *>(p)[i] = (float)v; break;
    }
}

/* Returns the bits of an element of any type. */
static __device__ uint64_t get_bits(int dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case PL_F64: return static_cast<const uint64_t *>(p)[i];
    case PL_F32: return static_cast<const uint32_t *>(p)[i];
    default: return static_cast<const uint16_t *>(p)[i];
    }
}

static __device__ void set_bits(int dtype, void *p, int64_t i, uint64_t v)
{
    switch (dtype) {
    case PL_F64: static_cast<uint64_t *>(p)[i] = v; break;
    case PL_F32: static_cast<uint32_t *>(p)[i] = (uint32_t)v; break;
    default: static_cast<uint16_t *>(p)[i] = (uint16_t)v; break;
    }
}

/* ---- coefficients ----------------------------------------------------------------------- */
template <int RULE, class C, class U>
static __device__ void find_coeffs(const U &u, int kind, coeffs<C> *out)
{
    const double weight_decay = u.weight_decay[kind];
    double lr = get<double>(u.lr_type, u.lr[kind], 0),
           scale = get<double>(u.scale_type, u.scale, 0);
    double step = u.step ? (double)*u.step : 1;
    coeffs<double> k = {};
    k.scale = scale;
    k.decay = weight_decay;
    k.keep = k.root = 1;
    k.rate = lr;
    k.eps = u.eps;
    if (RULE == ADAM || RULE == ADAM_MAX) {
        double c1 = -expm1(step * u.log_beta1), c2 = -expm1(step * u.log_beta2);
        k.decay = u.decoupled ? 0 : weight_decay;
        k.keep = u.decoupled ? 1 - lr * weight_decay : 1;
        k.rate = lr / c1;
        k.beta2 = u.beta2;
        k.mix1 = 1 - u.beta1;
        k.mix2 = 1 - u.beta2;
        k.root = sqrt(c2);
    } else if (RULE == SGD_MOMENTUM || RULE == SGD_NESTEROV) {
        k.beta1 = step <= 1 ? 0 : u.momentum;
        k.mix1 = step <= 1 ? 1 : 1 - u.dampening;
        k.beta2 = u.momentum;
    } else if (RULE == LION) {
        k.keep = 1 - lr * weight_decay;
        k.beta1 = u.beta1;
        k.beta2 = u.beta2;
        k.mix1 = 1 - u.beta1;
        k.mix2 = 1 - u.beta2;
    } else if (RULE != SGD) {
        k.beta1 = u.momentum;
        k.beta2 = u.alpha;
        k.mix2 = 1 - u.alpha;
    }
    *out = coeffs<C>{(C)k.scale,
                     (C)k.decay,
                     (C)k.keep,
                     (C)k.rate,
                     (C)k.beta1,
                     (C)k.beta2,
                     (C)k.mix1,
                     (C)k.mix2,
                     (C)k.eps,
                     (C)k.root,
                     !(fabs(scale) <= 1.7976931348623157e308)};
}

/* ---- one element ------------------------------------------------------------------------ */
static __device__ __forceinline__ float root_of(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double root_of(double x)
{
    return sqrt(x);
}

template <int RULE> struct states_of {
    enum {
        n = RULE == SGD                                                            ? 0
            : RULE == ADAM || RULE == RMSPROP_CENTERED || RULE == RMSPROP_MOMENTUM ? 2
            : RULE == ADAM_MAX || RULE == RMSPROP_FULL                             ? 3
                                                                                   : 1
    };
};

template <int RULE, class C>
static __device__ __forceinline__ void apply(const coeffs<C> &k, C g, C *w, C (&s)[STATES])
{
    if (k.skip) return;
    if (RULE == LION) {
        g = g * k.scale;
        C mixed = k.beta1 * s[0] + k.mix1 * g;
        C sign = (mixed > 0 ? (C)1 : (C)0) - (mixed < 0 ? (C)1 : (C)0);
        *w = *w * k.keep - k.rate * sign;
        s[0] = k.beta2 * s[0] + k.mix2 * g;
        return;
    }
    g = g * k.scale + k.decay * *w;
    if (RULE == ADAM || RULE == ADAM_MAX) {
        s[0] = s[0] + (g - s[0]) * k.mix1;
        s[1] = s[1] * k.beta2 + k.mix2 * (g * g);
        C top = s[1];
        if (RULE == ADAM_MAX) top = s[2] = s[2] > top ? s[2] : top;
        *w = *w * k.keep - k.rate * (s[0] / (root_of(top) / k.root + k.eps));
    } else if (RULE == SGD) {
        *w = *w - k.rate * g;
    } else if (RULE == SGD_MOMENTUM || RULE == SGD_NESTEROV) {
        s[0] = k.beta1 * s[0] + k.mix1 * g;
        *w = *w - k.rate * (RULE == SGD_NESTEROV ? g + k.beta2 * s[0] : s[0]);
    } else {
        const bool centered = RULE == RMSPROP_CENTERED || RULE == RMSPROP_FULL;
        const bool momentum = RULE == RMSPROP_MOMENTUM || RULE == RMSPROP_FULL;
        s[0] = k.beta2 * s[0] + k.mix2 * (g * g);
        C spread = s[0];
        if (centered) {
            s[1] = s[1] + (g - s[1]) * k.mix2;
            spread = s[0] - s[1] * s[1];
        }
        C move = g / (root_of(spread) + k.eps);
        const int b = centered ? 2 : 1;
        if (momentum) move = s[b] = k.beta1 * s[b] + move;
        *w = *w - k.rate * move;
    }
}

/* ---- blocks ----------------------------------------------------------------------------- */
/* The work of a block: elements [lo, hi) of a weight. */
struct update_share {
    int piece;
    int64_t lo, hi;
};

/* Returns the weight that block or tile `i` belongs to, and in *begin its first one. */
template <class U> static __device__ __forceinline__ int piece_at(const U &u, int i, int *begin)
{
    int lo = 0, hi = u.n - 1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (i < u.at[mid].end)
            hi = mid;
        else
            lo = mid + 1;
    }
    *begin = lo ? u.at[lo - 1].end : 0;
    return lo;
}

static __device__ __forceinline__ update_share share_of(const update_batch &u)
{
    update_share b = {0, 0, 0};
    int begin, block = (int)blockIdx.x;
    b.piece = piece_at(u, block, &begin);
    int64_t n = u.at[b.piece].n;
    b.lo = (int64_t)(block - begin) * u.chunk;
    b.hi = n - b.lo < u.chunk ? n : b.lo + u.chunk;
    return b;
}

/* A skipped step: the new values equal the old ones. */
template <class U>
static __device__ void keep(const U &u, const update_piece &p, const update_share &b, int n_s)
{
    bool same = p.w_out == p.w;
    for (int j = 0; j < n_s; j++) same = same && p.s_out[j] == p.s[j];
    if (same) return;
    for (int64_t i = b.lo + threadIdx.x; i < b.hi; i += THREADS) {
        uint64_t w = get_bits(u.w_type, p.w, i), s[STATES];
        for (int j = 0; j < n_s; j++) s[j] = get_bits(u.s_type[j], p.s[j], i);
        set_bits(u.w_type, p.w_out, i, w);
        for (int j = 0; j < n_s; j++) set_bits(u.s_type[j], p.s_out[j], i, s[j]);
    }
}

#endif
