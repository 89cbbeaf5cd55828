/* vec_f64.isa.c - scalar functions over f64 registers. f64 serves tests, so transcendental
 * functions call libm; other expressions are the same as for f32. */
#include "cpu/vec/vec_map.h"

#include <float.h>
#include <math.h>

typedef double T;

static inline double sigmoid_one(double x)
{
    double e = exp(-fabs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

static inline double mod_one(double x, double y)
{
    double r = fmod(x, y);
    return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}

/* x times the cumulative normal distribution; erfc keeps the left tail accurate. */
static inline double gelu_one(double x)
{
    return x * (0.5 * erfc(-x * 0.70710678118654752));
}

static inline double gelu_slope_one(double x)
{
    double pdf = 0.39894228040143268 * exp(-0.5 * x * x);
    return 0.5 * erfc(-x * 0.70710678118654752) + (pdf > 0.0 ? x * pdf : 0.0 * pdf);
}

static inline double gelu_tanh_one(double x)
{
    return x * sigmoid_one(1.5957691216057308 * (x + 0.044715 * (x * x * x)));
}

MAP1(neg, -x)
MAP1(abs_, fabs(x))
MAP1(sign, x != x ? x : (x > 0.0 ? 1.0 : 0.0) - (x < 0.0 ? 1.0 : 0.0))
MAP1(floor_, floor(x))
MAP1(round_, rint(x))
MAP1(reciprocal, 1.0 / x)
MAP1(square, x *x)
MAP1(sqrt_, sqrt(x))
MAP1(rsqrt, 1.0 / sqrt(x))
#define PL_SCALAR_LIBM(NAME, name) MAP1(name##_, name(x))
#include "ir/scalar.def"
MAP1(sin_, sin(x))
MAP1(cos_, cos(x))
MAP1(sigmoid, sigmoid_one(x))
MAP1(softplus, (x <= 0.0 ? 0.0 : x) + log1p(exp(-fabs(x))))
MAP1(relu, x <= 0.0 ? 0.0 : x)
MAP1(silu, x *sigmoid_one(x))
MAP1(gelu, gelu_one(x))
MAP1(gelu_slope, gelu_slope_one(x))
MAP1(gelu_tanh, gelu_tanh_one(x))
CMP1(is_finite, fabs(x) <= DBL_MAX)
CMP1(is_nan, x != x)
MAP2(add, x + y)
MAP2(sub, x - y)
MAP2(mul, x *y)
MAP2(div_, x / y)
MAP2(pow, pow(x, y))
MAP2(max_, ((x > y) | (x != x)) ? x : y)
MAP2(min_, ((x < y) | (x != x)) ? x : y)
MAP2(mod, mod_one(x, y))
COMPARE_LOOPS
SELECT_LOOPS

MAP_HEAD(leaky_relu)
{
    MAP_UNUSED;
    double *d = dst;
    const double *a = pa;
    PL_VEC_LOOP for (int64_t i = 0; i < n; i++)
    {
        double x = a[i], y = x * imm;
        d[i] = x > 0.0 ? x : y;
    }
}

extern const pl_vec_map PL_VEC_NAME(pl_vec_f64);
const pl_vec_map PL_VEC_NAME(pl_vec_f64) = {{
    MAP_ROWS,
#define PL_SCALAR_LIBM ROW_LIBM
#include "ir/scalar.def"
}};
