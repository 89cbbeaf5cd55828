/* optim.cu - optimiser updates: one pass over a weight, its gradient and its moments; one launch
 * updates many consecutive weights.
 *
 * Formulas and order of operations are those of ops/net/optim.c. Learning rate, gradient scale and
 * step number lie on the device, so one thread of each block computes the coefficients (bias
 * corrections and the like) there, in double, and rounds them once. A scale that is not finite
 * changes no bit of weights and states. Outputs may be the bytes of their inputs: a thread reads an
 * element of every tensor before it writes it.
 *
 * f32 tensors, with a gradient in any float type, move 16 bytes at a time. Other mixtures are
 * processed element by element with conversions; with f64 among them, in double.
 */
#include "cuda/device/launch.h"
#include "cuda/ops/many.h"

#include "ops/core/attr.h"

enum rule {
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
enum { THREADS = 256, STATES = 3, MOST = 36 };

/* One weight of a launch; `end` is the block after its last block. */
struct piece {
    void *grad, *w, *s[STATES], *w_out, *s_out[STATES];
    const void *lr;
    double weight_decay;
    int64_t n;
    int end;
};

/* What all weights of a launch share. It is the kernel's parameter, which may have 4 KB. */
struct batch {
    piece at[MOST];
    const void *scale;
    const int64_t *step;
    double beta1, beta2, eps, momentum, dampening, alpha;
    double log_beta1, log_beta2; /* computed on the host: a power costs the device many times an
                                  * exp */
    int64_t chunk;               /* elements per block, a multiple of 4 */
    int grad_type, w_type, s_type[STATES], lr_type, scale_type;
    int n;
    bool decoupled;
};
static_assert(sizeof(batch) <= 4096, "parameters of a kernel");

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

/* Returns the bits of an element, whatever its type. */
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
template <int RULE, class C>
static __device__ void find_coeffs(const batch &u, const piece &p, coeffs<C> *out)
{
    double lr = get<double>(u.lr_type, p.lr, 0), scale = get<double>(u.scale_type, u.scale, 0);
    double step = u.step ? (double)*u.step : 1;
    coeffs<double> k = {};
    k.scale = scale;
    k.decay = p.weight_decay;
    k.keep = k.root = 1;
    k.rate = lr;
    k.eps = u.eps;
    if (RULE == ADAM || RULE == ADAM_MAX) {
        double c1 = -expm1(step * u.log_beta1), c2 = -expm1(step * u.log_beta2);
        k.decay = u.decoupled ? 0 : p.weight_decay;
        k.keep = u.decoupled ? 1 - lr * p.weight_decay : 1;
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
        k.keep = 1 - lr * p.weight_decay;
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

/* ---- kernels ---------------------------------------------------------------------------- */
/* The work of a block: elements [lo, hi) of a weight. */
struct share {
    int piece;
    int64_t lo, hi;
};

static __device__ __forceinline__ share share_of(const batch &u)
{
    share b = {0, 0, 0};
    int begin = 0, block = (int)blockIdx.x;
    for (; b.piece + 1 < u.n && block >= u.at[b.piece].end; b.piece++) begin = u.at[b.piece].end;
    int64_t n = u.at[b.piece].n;
    b.lo = (int64_t)(block - begin) * u.chunk;
    b.hi = n - b.lo < u.chunk ? n : b.lo + u.chunk;
    return b;
}

/* A skipped step: the new values equal the old ones. */
static __device__ void keep(const batch &u, const piece &p, const share &b, int n_s)
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

/* One element of f32 tensors. */
template <int RULE, class G>
static __device__ __forceinline__ void update_one(const piece &p, const coeffs<float> &k, int64_t i)
{
    const int n_s = states_of<RULE>::n;
    float w = static_cast<const float *>(p.w)[i], s[STATES] = {0, 0, 0};
#pragma unroll
    for (int j = 0; j < n_s; j++) s[j] = static_cast<const float *>(p.s[j])[i];
    apply<RULE, float>(k, (float)pl_get(static_cast<const G *>(p.grad)[i]), &w, s);
    static_cast<float *>(p.w_out)[i] = w;
#pragma unroll
    for (int j = 0; j < n_s; j++) static_cast<float *>(p.s_out[j])[i] = s[j];
}

/* f32 tensors, a gradient of G: four elements at a time, the last ones by one thread each. */
template <int RULE, class G>
static __global__ void __launch_bounds__(THREADS) update_f32(const __grid_constant__ batch u)
{
    const int n_s = states_of<RULE>::n;
    const share b = share_of(u);
    const piece &p = u.at[b.piece];
    __shared__ coeffs<float> shared_k;
    if (threadIdx.x == 0) find_coeffs<RULE, float>(u, p, &shared_k);
    __syncthreads();
    const coeffs<float> k = shared_k;
    if (!isfinite(get<double>(u.scale_type, u.scale, 0))) {
        keep(u, p, b, n_s);
        return;
    }
    const int64_t fours = b.lo + (b.hi - b.lo) / 4 * 4;
    for (int64_t i = b.lo + 4 * threadIdx.x; i < fours; i += 4 * THREADS) {
        pl_pack<G, 4> pg = pl_read<G, 4>(static_cast<const G *>(p.grad) + i);
        pl_pack<float, 4> pw = pl_read<float, 4>(static_cast<const float *>(p.w) + i);
        pl_pack<float, 4> ps[STATES];
#pragma unroll
        for (int j = 0; j < n_s; j++)
            ps[j] = pl_read<float, 4>(static_cast<const float *>(p.s[j]) + i);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float s[STATES] = {0, 0, 0};
#pragma unroll
            for (int j = 0; j < n_s; j++) s[j] = ps[j].v[e];
            apply<RULE, float>(k, (float)pl_get(pg.v[e]), &pw.v[e], s);
#pragma unroll
            for (int j = 0; j < n_s; j++) ps[j].v[e] = s[j];
        }
        pl_write<float, 4>(static_cast<float *>(p.w_out) + i, pw);
#pragma unroll
        for (int j = 0; j < n_s; j++)
            pl_write<float, 4>(static_cast<float *>(p.s_out[j]) + i, ps[j]);
    }
    if (fours + threadIdx.x < b.hi) update_one<RULE, G>(p, k, fours + threadIdx.x);
}

/* Any float types. */
template <int RULE, class C>
static __global__ void __launch_bounds__(THREADS) update_any(const __grid_constant__ batch u)
{
    const int n_s = states_of<RULE>::n;
    const share b = share_of(u);
    const piece &p = u.at[b.piece];
    __shared__ coeffs<C> shared_k;
    if (threadIdx.x == 0) find_coeffs<RULE, C>(u, p, &shared_k);
    __syncthreads();
    const coeffs<C> k = shared_k;
    if (!isfinite(get<double>(u.scale_type, u.scale, 0))) {
        keep(u, p, b, n_s);
        return;
    }
    for (int64_t i = b.lo + threadIdx.x; i < b.hi; i += THREADS) {
        C w = get<C>(u.w_type, p.w, i), s[STATES] = {0, 0, 0};
#pragma unroll
        for (int j = 0; j < n_s; j++) s[j] = get<C>(u.s_type[j], p.s[j], i);
        apply<RULE, C>(k, get<C>(u.grad_type, p.grad, i), &w, s);
        set<C>(u.w_type, p.w_out, i, w);
#pragma unroll
        for (int j = 0; j < n_s; j++) set<C>(u.s_type[j], p.s_out[j], i, s[j]);
    }
}

/* ---- launches --------------------------------------------------------------------------- */
static piece piece_of(const pl_call *c, int scalars)
{
    piece p = {};
    p.lr = c->in[0];
    p.grad = const_cast<void *>(c->in[scalars]);
    p.w = const_cast<void *>(c->in[scalars + 1]);
    p.w_out = c->out[0];
    for (int i = 0; i + 1 < c->n_out; i++) {
        p.s[i] = const_cast<void *>(c->in[scalars + 2 + i]);
        p.s_out[i] = c->out[1 + i];
    }
    p.n = pl_type_elems(&c->out_type[0]);
    p.weight_decay = static_cast<const pl_optim_attr *>(c->attr)->weight_decay;
    return p;
}

static batch batch_of(const pl_call *c, int scalars)
{
    const pl_optim_attr *a = static_cast<const pl_optim_attr *>(c->attr);
    batch u = {};
    u.lr_type = (int)c->in_type[0].dtype, u.scale_type = (int)c->in_type[1].dtype;
    u.scale = c->in[1];
    u.step = scalars == 3 ? static_cast<const int64_t *>(c->in[2]) : NULL;
    u.grad_type = (int)c->in_type[scalars].dtype, u.w_type = (int)c->in_type[scalars + 1].dtype;
    for (int i = 0; i + 1 < c->n_out; i++) u.s_type[i] = (int)c->in_type[scalars + 2 + i].dtype;
    u.beta1 = a->beta1, u.beta2 = a->beta2, u.eps = a->eps;
    u.momentum = a->momentum, u.dampening = a->dampening, u.alpha = a->alpha;
    u.log_beta1 = log(a->beta1), u.log_beta2 = log(a->beta2);
    u.decoupled = a->decoupled;
    return u;
}

/* Whether weights and states are f32 and all pointers multiples of 16 bytes. */
static bool by_fours(const pl_call *c, int scalars)
{
    for (int i = scalars; i < c->n_in; i++)
        if ((i > scalars && c->in_type[i].dtype != PL_F32) || pl_widest_at(16, c->in[i]) < 16)
            return false;
    if (c->in_type[scalars].dtype == PL_F64) return false;
    for (int i = 0; i < c->n_out; i++)
        if (pl_widest_at(16, c->out[i]) < 16) return false;
    return true;
}

static bool any_f64(const pl_call *c, int scalars)
{
    bool any = false;
    for (int i = scalars; i < c->n_in; i++) any |= c->in_type[i].dtype == PL_F64;
    return any;
}

/* Whether b may share a's launch. */
static bool same_kind(const pl_call *a, const pl_call *b, int scalars)
{
    const pl_optim_attr *x = static_cast<const pl_optim_attr *>(a->attr);
    const pl_optim_attr *y = static_cast<const pl_optim_attr *>(b->attr);
    for (int i = 0; i < a->n_in; i++)
        if (a->in_type[i].dtype != b->in_type[i].dtype) return false;
    for (int i = 1; i < scalars; i++)
        if (a->in[i] != b->in[i]) return false;
    return x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->eps == y->eps &&
           x->momentum == y->momentum && x->dampening == y->dampening && x->alpha == y->alpha &&
           x->decoupled == y->decoupled && by_fours(a, scalars) == by_fours(b, scalars);
}

/* Assigns blocks: few, because each computes the coefficients, and with equal work. */
static int deal(batch *u, bool fours)
{
    int64_t most = (int64_t)pl_cuda_props_get()->sms * 8, sum = 0, blocks = 0;
    int64_t least = (fours ? 4 : 1) * THREADS;
    for (int i = 0; i < u->n; i++) sum += u->at[i].n;
    if (sum == 0) return 0;
    u->chunk = pl_ceil_div(pl_ceil_div(sum, most), least) * least;
    for (int i = 0; i < u->n; i++)
        u->at[i].end = (int)(blocks += pl_ceil_div(u->at[i].n, u->chunk));
    return (int)blocks;
}

template <int RULE> static pl_status launch(batch *u, bool fours, bool f64)
{
    int blocks = deal(u, fours);
    if (blocks == 0) return PL_OK;
    dim3 grid((unsigned)blocks), block(THREADS);
    if (fours && u->grad_type == PL_F32)
        PL_LAUNCH((update_f32<RULE, float>), grid, block, 0, *u);
    else if (fours && u->grad_type == PL_F16)
        PL_LAUNCH((update_f32<RULE, pl_f16>), grid, block, 0, *u);
    else if (fours)
        PL_LAUNCH((update_f32<RULE, pl_bf16>), grid, block, 0, *u);
    else if (f64)
        PL_LAUNCH((update_any<RULE, double>), grid, block, 0, *u);
    else
        PL_LAUNCH((update_any<RULE, float>), grid, block, 0, *u);
    PL_CUDA_LAUNCHED("an optimiser update");
    return PL_OK;
}

/* Runs all calls; calls that can share a launch do. */
template <int RULE> static pl_status run(const pl_call *const *c, int n, int scalars)
{
    bool gone[PL_CUDA_MANY] = {false};
    for (int i = 0; i < n; i++) {
        if (gone[i]) continue;
        batch u = batch_of(c[i], scalars);
        for (int j = i; j < n && u.n < MOST; j++) {
            if (gone[j] || (j > i && !same_kind(c[i], c[j], scalars))) continue;
            u.at[u.n++] = piece_of(c[j], scalars);
            gone[j] = true;
        }
        PL_TRY(launch<RULE>(&u, by_fours(c[i], scalars), any_f64(c[i], scalars)));
    }
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
#define UPDATE(op, rule, scalars)                                                                  \
 static pl_status op##_many(const pl_call *const *c, int n)                                        \
 {                                                                                                 \
  return run<rule>(c, n, scalars);                                                                 \
 }                                                                                                 \
 static pl_status op##_run(const pl_call *c)                                                       \
 {                                                                                                 \
  return op##_many(&c, 1);                                                                         \
 }                                                                                                 \
 PL_CUDA_KERNEL(op##_kernels, NULL, op##_run);
UPDATE(adam, ADAM, 3)
UPDATE(adam_max, ADAM_MAX, 3)
UPDATE(sgd, SGD, 3)
UPDATE(sgd_momentum, SGD_MOMENTUM, 3)
UPDATE(sgd_nesterov, SGD_NESTEROV, 3)
UPDATE(lion, LION, 2)
UPDATE(rmsprop, RMSPROP, 2)
UPDATE(rmsprop_centered, RMSPROP_CENTERED, 2)
UPDATE(rmsprop_momentum, RMSPROP_MOMENTUM, 2)
UPDATE(rmsprop_full, RMSPROP_FULL, 2)

PL_CUDA_ENTRIES(pl_cuda_optim) = {{"adam", adam_kernels},
                                  {"adam_max", adam_max_kernels},
                                  {"sgd", sgd_kernels},
                                  {"sgd_momentum", sgd_momentum_kernels},
                                  {"sgd_nesterov", sgd_nesterov_kernels},
                                  {"lion", lion_kernels},
                                  {"rmsprop", rmsprop_kernels},
                                  {"rmsprop_centered", rmsprop_centered_kernels},
                                  {"rmsprop_momentum", rmsprop_momentum_kernels},
                                  {"rmsprop_full", rmsprop_full_kernels},
                                  {NULL, NULL}};

extern "C" pl_cuda_many_fn pl_cuda_many_of(const pl_kernel *k)
{
#define MANY(op)                                                                                   \
 if (k == op##_kernels) return op##_many;
    MANY(adam)
    MANY(adam_max)
    MANY(sgd)
    MANY(sgd_momentum)
    MANY(sgd_nesterov)
    MANY(lion)
    MANY(rmsprop)
    MANY(rmsprop_centered)
    MANY(rmsprop_momentum)
    MANY(rmsprop_full)
#undef MANY
    return NULL;
}
