/* update.isa.c - see update.h. Element i reads and writes index i only, so a loop may be vectorised
 * even where an output is its input; the pragma says so to the compiler. */
#include "cpu/kernels/update.h"

#include <math.h>
#include <stdbool.h>

#if defined(__clang__)
# define EACH _Pragma("clang loop vectorize(assume_safety)")
#else
# define EACH _Pragma("GCC ivdep")
#endif

static inline float grad_of(const pl_update *u, float g, float w)
{
    return g * u->scale + u->decay * w;
}

static inline void adam_any(const pl_update *p, int64_t lo, int64_t hi, const bool max)
{
    const pl_update u = *p;
    const float *grad = u.grad, *w = u.w, *m = u.s[0], *v = u.s[1], *x = u.s[2];
    float *wo = u.w_out, *mo = u.s_out[0], *vo = u.s_out[1], *xo = u.s_out[2];
    EACH for (int64_t i = lo; i < hi; i++)
    {
        float g = grad_of(&u, grad[i], w[i]);
        float m1 = m[i] + (g - m[i]) * u.mix1;
        float v1 = v[i] * u.beta2 + u.mix2 * (g * g);
        float top = v1;
        if (max) {
            top = x[i] > v1 ? x[i] : v1;
            xo[i] = top;
        }
        float denom = sqrtf(top) / u.root + u.eps;
        wo[i] = w[i] * u.keep - u.rate * (m1 / denom);
        mo[i] = m1;
        vo[i] = v1;
    }
}

static void adam(const pl_update *u, int64_t lo, int64_t hi)
{
    adam_any(u, lo, hi, false);
}

static void adam_max(const pl_update *u, int64_t lo, int64_t hi)
{
    adam_any(u, lo, hi, true);
}

static void sgd(const pl_update *p, int64_t lo, int64_t hi)
{
    const pl_update u = *p;
    const float *grad = u.grad, *w = u.w;
    float *wo = u.w_out;
    EACH for (int64_t i = lo; i < hi; i++) wo[i] = w[i] - u.rate * grad_of(&u, grad[i], w[i]);
}

static inline void sgd_any(const pl_update *p, int64_t lo, int64_t hi, const bool nesterov)
{
    const pl_update u = *p;
    const float *grad = u.grad, *w = u.w, *b = u.s[0];
    float *wo = u.w_out, *bo = u.s_out[0];
    EACH for (int64_t i = lo; i < hi; i++)
    {
        float g = grad_of(&u, grad[i], w[i]);
        float b1 = u.beta1 * b[i] + u.mix1 * g;
        wo[i] = w[i] - u.rate * (nesterov ? g + u.beta2 * b1 : b1);
        bo[i] = b1;
    }
}

static void sgd_momentum(const pl_update *u, int64_t lo, int64_t hi)
{
    sgd_any(u, lo, hi, false);
}

static void sgd_nesterov(const pl_update *u, int64_t lo, int64_t hi)
{
    sgd_any(u, lo, hi, true);
}

static void lion(const pl_update *p, int64_t lo, int64_t hi)
{
    const pl_update u = *p;
    const float *grad = u.grad, *w = u.w, *m = u.s[0];
    float *wo = u.w_out, *mo = u.s_out[0];
    EACH for (int64_t i = lo; i < hi; i++)
    {
        float g = grad[i] * u.scale;
        float c = u.beta1 * m[i] + u.mix1 * g;
        float sign = (c > 0.0f ? 1.0f : 0.0f) - (c < 0.0f ? 1.0f : 0.0f);
        wo[i] = w[i] * u.keep - u.rate * sign;
        mo[i] = u.beta2 * m[i] + u.mix2 * g;
    }
}

static inline void rmsprop_any(const pl_update *p, int64_t lo, int64_t hi, const bool centered,
                               const bool momentum)
{
    const pl_update u = *p;
    const float *grad = u.grad, *w = u.w, *q = u.s[0], *a = u.s[1], *b = u.s[centered ? 2 : 1];
    float *wo = u.w_out, *qo = u.s_out[0], *ao = u.s_out[1], *bo = u.s_out[centered ? 2 : 1];
    EACH for (int64_t i = lo; i < hi; i++)
    {
        float g = grad_of(&u, grad[i], w[i]);
        float q1 = u.beta2 * q[i] + u.mix2 * (g * g), spread = q1;
        if (centered) {
            float a1 = a[i] + (g - a[i]) * u.mix2;
            spread = q1 - a1 * a1;
            ao[i] = a1;
        }
        float step = g / (sqrtf(spread) + u.eps);
        if (momentum) {
            step = u.beta1 * b[i] + step;
            bo[i] = step;
        }
        wo[i] = w[i] - u.rate * step;
        qo[i] = q1;
    }
}

#define RMSPROP(name, centered, momentum)                                                          \
 static void name(const pl_update *u, int64_t lo, int64_t hi)                                      \
 {                                                                                                 \
  rmsprop_any(u, lo, hi, centered, momentum);                                                      \
 }
RMSPROP(rmsprop, false, false)
RMSPROP(rmsprop_centered, true, false)
RMSPROP(rmsprop_momentum, false, true)
RMSPROP(rmsprop_full, true, true)

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
extern const pl_update_fn JOIN(pl_update_, PL_ISA)[PL_N_UPDATES];
const pl_update_fn JOIN(pl_update_, PL_ISA)[PL_N_UPDATES] = {
    [PL_UPDATE_ADAM] = adam,
    [PL_UPDATE_ADAM_MAX] = adam_max,
    [PL_UPDATE_SGD] = sgd,
    [PL_UPDATE_SGD_MOMENTUM] = sgd_momentum,
    [PL_UPDATE_SGD_NESTEROV] = sgd_nesterov,
    [PL_UPDATE_LION] = lion,
    [PL_UPDATE_RMSPROP] = rmsprop,
    [PL_UPDATE_RMSPROP_CENTERED] = rmsprop_centered,
    [PL_UPDATE_RMSPROP_MOMENTUM] = rmsprop_momentum,
    [PL_UPDATE_RMSPROP_FULL] = rmsprop_full,
};
