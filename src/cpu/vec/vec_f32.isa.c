/* vec_f32.isa.c - scalar functions over f32 registers (f32, and bf16 and f16 before rounding). */
#include "cpu/kernels/vecmath.h"
#include "cpu/vec/vec_map.h"

#include <float.h>

typedef float T;

MAP1(neg, -x)
MAP1(abs_, fabsf(x))
MAP1(sign, x != x ? x : (x > 0.0f ? 1.0f : 0.0f) - (x < 0.0f ? 1.0f : 0.0f))
MAP1(floor_, floorf(x))
MAP1(round_, rintf(x))
MAP1(reciprocal, 1.0f / x)
MAP1(square, x *x)
MAP1(sqrt_, sqrtf(x))
MAP1(rsqrt, 1.0f / sqrtf(x))
#define PL_SCALAR_LIBM(NAME, name) MAP1(name##_, vm_##name(x))
#include "ir/scalar.def"
MAP1(sigmoid, vm_sigmoid(x))
MAP1(softplus, vm_softplus(x))
MAP1(relu, x <= 0.0f ? 0.0f : x)
MAP1(silu, vm_silu(x))
MAP1(gelu, vm_gelu(x))
MAP1(gelu_slope, vm_gelu_slope(x))
MAP1(gelu_tanh, vm_gelu_tanh(x))
CMP1(is_finite, fabsf(x) <= FLT_MAX)
CMP1(is_nan, x != x)
MAP2(add, x + y)
MAP2(sub, x - y)
MAP2(mul, x *y)
MAP2(div_, x / y)
MAP2(max_, ((x > y) | (x != x)) ? x : y)
MAP2(min_, ((x < y) | (x != x)) ? x : y)
COMPARE_LOOPS
SELECT_LOOPS

MAP_HEAD(leaky_relu)
{
    MAP_UNUSED;
    float *d = dst;
    const float *a = pa, slope = (float)imm;
    PL_VEC_LOOP for (int64_t i = 0; i < n; i++)
    {
        float x = a[i], y = x * slope;
        d[i] = x > 0.0f ? x : y;
    }
}

static inline float mod_one(float x, float y)
{
    float r = fmodf(x, y);
    return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r;
}
MAP2(mod, mod_one(x, y))

/* Functions with a fast path for most arguments and libm for the rest: a block is computed in a
 * temporary, since dst may be the operand, and corrected where needed. */
enum { BLOCK = 256 };

static void trig(float *d, const float *a, int64_t n, bool cosine)
{
    float t[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        const float *x = a + at;
        int m = (int)(n - at < BLOCK ? n - at : BLOCK), far = 0;
        if (cosine)
            for (int i = 0; i < m; i++) t[i] = vm_cos(x[i]);
        else
            for (int i = 0; i < m; i++) t[i] = vm_sin(x[i]);
        for (int i = 0; i < m; i++) far |= !(fabsf(x[i]) <= VM_TRIG_MAX);
        for (int i = 0; far && i < m; i++)
            if (!(fabsf(x[i]) <= VM_TRIG_MAX))
                t[i] = (float)(cosine ? cos((double)x[i]) : sin((double)x[i]));
        memcpy(d + at, t, sizeof(float) * (size_t)m);
    }
}

MAP_HEAD(sin_)
{
    MAP_UNUSED;
    trig(dst, pa, n, false);
}

MAP_HEAD(cos_)
{
    MAP_UNUSED;
    trig(dst, pa, n, true);
}

static inline bool pow_plain(float x, float y)
{
    return (x > 0.0f) & (x <= FLT_MAX) & (fabsf(y) <= FLT_MAX);
}

/* step_a, step_b: 0 for a scalar operand. */
static void pow_any(float *d, const float *a, int64_t step_a, const float *b, int64_t step_b,
                    int64_t n)
{
    float t[BLOCK], u[BLOCK], v[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int m = (int)(n - at < BLOCK ? n - at : BLOCK), odd = 0;
        for (int i = 0; i < m; i++) u[i] = a[(at + i) * step_a], v[i] = b[(at + i) * step_b];
        for (int i = 0; i < m; i++) t[i] = vm_pow(u[i], v[i]);
        for (int i = 0; i < m; i++) odd |= !pow_plain(u[i], v[i]);
        for (int i = 0; odd && i < m; i++)
            if (!pow_plain(u[i], v[i])) t[i] = (float)pow((double)u[i], (double)v[i]);
        memcpy(d + at, t, sizeof(float) * (size_t)m);
    }
}

MAP_HEAD(pow_vv)
{
    MAP_UNUSED;
    pow_any(dst, pa, 1, pb, 1, n);
}
MAP_HEAD(pow_vs)
{
    MAP_UNUSED;
    float y = *(const float *)pb;
    pow_any(dst, pa, 1, &y, 0, n);
}
MAP_HEAD(pow_sv)
{
    MAP_UNUSED;
    float x = *(const float *)pa;
    pow_any(dst, &x, 0, pb, 1, n);
}

extern const pl_vec_map PL_VEC_NAME(pl_vec_f32);
const pl_vec_map PL_VEC_NAME(pl_vec_f32) = {{
    MAP_ROWS,
#define PL_SCALAR_LIBM ROW_LIBM
#include "ir/scalar.def"
}};
