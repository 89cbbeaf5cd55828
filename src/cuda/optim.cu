/* optim.cu - optimiser updates: one pass over a weight, its gradient and its moments.
 *
 * Formulas and order of operations are those of ops/optim.c. Learning rate, gradient scale and
 * step number lie on the device, so the coefficients (bias corrections and the like) are computed
 * there, in double, by one thread of each block, and rounded once. A scale that is not finite
 * leaves weight and states as they are, to the bit. Outputs may be their inputs' bytes: a thread
 * reads an element of every tensor before it writes it.
 *
 * f32 tensors, with a gradient in any float type, move 16 bytes at a time. Other mixtures go
 * element by element, converted on the way; f64 among them is computed in double.
 */
#include "cuda/launch.h"

#include "ops/attr.h"

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
enum { THREADS = 256, STATES = 3 };

struct tensor {
    void *p;
    int dtype;
};

struct update {
    tensor grad, w, s[STATES], w_out, s_out[STATES];
    tensor lr, scale;
    const int64_t *step;
    int64_t n;
    double beta1, beta2, eps, weight_decay, momentum, dampening, alpha;
    double log_beta1, log_beta2; /* the host's: a power costs the device many times an exp */
    bool decoupled;
};

template <class C> struct coeffs {
    C scale, decay, keep, rate, beta1, beta2, mix1, mix2, eps, root;
    bool skip; /* the scale is not finite: everything stays as it is */
};

/* ---- elements of any float type --------------------------------------------------------- */
template <class C> static __device__ __forceinline__ C get(const tensor &t, int64_t i)
{
    switch (t.dtype) {
    case PL_F64: return (C)static_cast<const double *>(t.p)[i];
    case PL_F16: return (C)pl_get(static_cast<const pl_f16 *>(t.p)[i]);
    case PL_BF16: return (C)pl_get(static_cast<const pl_bf16 *>(t.p)[i]);
    default: return (C)static_cast<const float *>(t.p)[i];
    }
}

template <class C> static __device__ __forceinline__ void set(const tensor &t, int64_t i, C v)
{
    switch (t.dtype) {
    case PL_F64: static_cast<double *>(t.p)[i] = (double)v; break;
    case PL_F16: static_cast<pl_f16 *>(t.p)[i] = pl_put<pl_f16>((float)v); break;
    case PL_BF16: static_cast<pl_bf16 *>(t.p)[i] = pl_put<pl_bf16>((float)v); break;
    default: static_cast<float *>(t.p)[i] = (float)v; break;
    }
}

/* ---- coefficients ----------------------------------------------------------------------- */
template <int RULE, class C>
static __device__ void find_coeffs(const update &u, coeffs<C> *out)
{
    double lr = get<double>(u.lr, 0), scale = get<double>(u.scale, 0);
    double step = u.step ? (double)*u.step : 1;
    coeffs<double> k = {scale, u.weight_decay, 1, lr, 0, 0, 0, 0, u.eps, 1, false};
    if (RULE == ADAM || RULE == ADAM_MAX) {
        double c1 = -expm1(step * u.log_beta1), c2 = -expm1(step * u.log_beta2);
        k.decay = u.decoupled ? 0 : u.weight_decay;
        k.keep = u.decoupled ? 1 - lr * u.weight_decay : 1;
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
        k.keep = 1 - lr * u.weight_decay;
        k.beta1 = u.beta1;
        k.beta2 = u.beta2;
        k.mix1 = 1 - u.beta1;
        k.mix2 = 1 - u.beta2;
    } else if (RULE != SGD) {
        k.beta1 = u.momentum;
        k.beta2 = u.alpha;
        k.mix2 = 1 - u.alpha;
    }
    *out = coeffs<C>{(C)k.scale, (C)k.decay, (C)k.keep, (C)k.rate, (C)k.beta1,
                     (C)k.beta2, (C)k.mix1,  (C)k.mix2, (C)k.eps,  (C)k.root,
                     !(fabs(scale) <= 1.7976931348623157e308)};
}

/* ---- one element ------------------------------------------------------------------------ */
static __device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
static __device__ __forceinline__ double root_of(double x) { return sqrt(x); }

template <int RULE> struct states_of {
    enum {
        n = RULE == SGD ? 0
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
/* One element of f32 tensors. */
template <int RULE, class G>
static __device__ __forceinline__ void update_one(const update &u, const coeffs<float> &k, int64_t i)
{
    const int n_s = states_of<RULE>::n;
    float w = static_cast<const float *>(u.w.p)[i], s[STATES] = {0, 0, 0};
#pragma unroll
    for (int j = 0; j < n_s; j++) s[j] = static_cast<const float *>(u.s[j].p)[i];
    apply<RULE, float>(k, (float)pl_get(static_cast<const G *>(u.grad.p)[i]), &w, s);
    static_cast<float *>(u.w_out.p)[i] = w;
#pragma unroll
    for (int j = 0; j < n_s; j++) static_cast<float *>(u.s_out[j].p)[i] = s[j];
}

/* f32 tensors, a gradient of G: four elements at a time, the last ones by one thread each. */
template <int RULE, class G>
static __global__ void __launch_bounds__(THREADS) update_f32(const update u)
{
    const int n_s = states_of<RULE>::n;
    __shared__ coeffs<float> shared_k;
    if (threadIdx.x == 0) find_coeffs<RULE, float>(u, &shared_k);
    __syncthreads();
    const coeffs<float> k = shared_k;
    const int64_t fours = u.n / 4 * 4;
    for (int64_t i = 4 * PL_ITEM; i < fours; i += 4 * PL_ITEMS) {
        pl_pack<G, 4> pg = pl_read<G, 4>(static_cast<const G *>(u.grad.p) + i);
        pl_pack<float, 4> pw = pl_read<float, 4>(static_cast<const float *>(u.w.p) + i);
        pl_pack<float, 4> ps[STATES];
#pragma unroll
        for (int j = 0; j < n_s; j++)
            ps[j] = pl_read<float, 4>(static_cast<const float *>(u.s[j].p) + i);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float s[STATES] = {0, 0, 0};
#pragma unroll
            for (int j = 0; j < n_s; j++) s[j] = ps[j].v[e];
            apply<RULE, float>(k, (float)pl_get(pg.v[e]), &pw.v[e], s);
#pragma unroll
            for (int j = 0; j < n_s; j++) ps[j].v[e] = s[j];
        }
        pl_write<float, 4>(static_cast<float *>(u.w_out.p) + i, pw);
#pragma unroll
        for (int j = 0; j < n_s; j++)
            pl_write<float, 4>(static_cast<float *>(u.s_out[j].p) + i, ps[j]);
    }
    if (PL_ITEM < u.n - fours) update_one<RULE, G>(u, k, fours + PL_ITEM);
}

/* Any float types. */
template <int RULE, class C>
static __global__ void __launch_bounds__(THREADS) update_any(const update u)
{
    const int n_s = states_of<RULE>::n;
    __shared__ coeffs<C> shared_k;
    if (threadIdx.x == 0) find_coeffs<RULE, C>(u, &shared_k);
    __syncthreads();
    const coeffs<C> k = shared_k;
    for (int64_t i = PL_ITEM; i < u.n; i += PL_ITEMS) {
        C w = get<C>(u.w, i), s[STATES] = {0, 0, 0};
#pragma unroll
        for (int j = 0; j < n_s; j++) s[j] = get<C>(u.s[j], i);
        apply<RULE, C>(k, get<C>(u.grad, i), &w, s);
        set<C>(u.w_out, i, w);
#pragma unroll
        for (int j = 0; j < n_s; j++) set<C>(u.s_out[j], i, s[j]);
    }
}

/* ---- launches --------------------------------------------------------------------------- */
static tensor tensor_of(const pl_type *t, const void *p)
{
    tensor x = {const_cast<void *>(p), (int)t->dtype};
    return x;
}

static update update_of(const pl_call *c, int scalars)
{
    const pl_optim_attr *a = static_cast<const pl_optim_attr *>(c->attr);
    update u = {};
    u.lr = tensor_of(&c->in_type[0], c->in[0]);
    u.scale = tensor_of(&c->in_type[1], c->in[1]);
    u.step = scalars == 3 ? static_cast<const int64_t *>(c->in[2]) : NULL;
    u.grad = tensor_of(&c->in_type[scalars], c->in[scalars]);
    u.w = tensor_of(&c->in_type[scalars + 1], c->in[scalars + 1]);
    u.w_out = tensor_of(&c->out_type[0], c->out[0]);
    for (int i = 0; i + 1 < c->n_out; i++) {
        u.s[i] = tensor_of(&c->in_type[scalars + 2 + i], c->in[scalars + 2 + i]);
        u.s_out[i] = tensor_of(&c->out_type[1 + i], c->out[1 + i]);
    }
    u.n = pl_type_elems(&c->out_type[0]);
    u.beta1 = a->beta1, u.beta2 = a->beta2, u.eps = a->eps, u.weight_decay = a->weight_decay;
    u.momentum = a->momentum, u.dampening = a->dampening, u.alpha = a->alpha;
    u.log_beta1 = log(a->beta1), u.log_beta2 = log(a->beta2);
    u.decoupled = a->decoupled;
    return u;
}

/* Weights and states in f32, all pointers on 16 bytes. */
static bool by_fours(const pl_call *c, int scalars)
{
    for (int i = scalars; i < c->n_in; i++)
        if ((i > scalars && c->in_type[i].dtype != PL_F32) || pl_widest_at(16, c->in[i]) < 16)
            return false;
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

template <int RULE> static pl_status run(const pl_call *c, int scalars)
{
    update u = update_of(c, scalars);
    if (u.n == 0) return PL_OK;
    bool fours = by_fours(c, scalars);
    /* few blocks: each computes the coefficients */
    int64_t most = (int64_t)pl_cuda_card_get()->sms * 8, want = pl_ceil_div(u.n, (fours ? 4 : 1) * THREADS);
    dim3 grid((unsigned)(want < most ? want : most)), block(THREADS);
    if (fours && u.grad.dtype == PL_F32)
        PL_LAUNCH((update_f32<RULE, float>), grid, block, 0, u);
    else if (fours && u.grad.dtype == PL_F16)
        PL_LAUNCH((update_f32<RULE, pl_f16>), grid, block, 0, u);
    else if (fours && u.grad.dtype == PL_BF16)
        PL_LAUNCH((update_f32<RULE, pl_bf16>), grid, block, 0, u);
    else if (any_f64(c, scalars))
        PL_LAUNCH((update_any<RULE, double>), grid, block, 0, u);
    else
        PL_LAUNCH((update_any<RULE, float>), grid, block, 0, u);
    PL_CUDA_LAUNCHED("an optimiser update");
    return PL_OK;
}

/* ---- the table -------------------------------------------------------------------------- */
#define UPDATE(op, rule, scalars)                                                              \
    static pl_status op##_run(const pl_call *c) { return run<rule>(c, scalars); }              \
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
