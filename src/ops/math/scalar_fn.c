/* scalar_fn.c - see scalar_fn.h. */
#include "ops/math/scalar_fn.h"

#include "base/dtype.h"

#include <math.h>

/* ---- scaling: one row per function that factors pass through --------------------------------- */
#define KNOWN .known = true
/* clang-format off */
#define LINEAR  {KNOWN, .halves = {2}, .plus = 1}
#define SIZE    {KNOWN, .halves = {2}}
#define SIGN    {KNOWN}
#define TERMS   {KNOWN, .halves = {2, 2}, .terms = 3, .plus = 3}
#define EXTREME {KNOWN, .halves = {2, 2}, .terms = 3}
#define COMPARE {KNOWN, .terms = 3}
const pl_scaling pl_map_scaling[PL_N_SCALARS] = {
    [PL_SCALAR_NEG] = LINEAR,
    [PL_SCALAR_CAST] = {KNOWN, .float_only = true, .halves = {2}, .plus = 1},
    [PL_SCALAR_ABS] = SIZE,
    [PL_SCALAR_RELU] = SIZE,
    [PL_SCALAR_LEAKY_RELU] = SIZE,
    [PL_SCALAR_SIGN] = SIGN,
    [PL_SCALAR_IS_FINITE] = SIGN,
    [PL_SCALAR_IS_NAN] = SIGN,
    [PL_SCALAR_RECIPROCAL] = {KNOWN, .halves = {-2}},
    [PL_SCALAR_SQUARE] = {KNOWN, .halves = {4}},
    [PL_SCALAR_SQRT] = {KNOWN, .halves = {1}},
    [PL_SCALAR_RSQRT] = {KNOWN, .halves = {-1}},
    [PL_SCALAR_ADD] = TERMS,
    [PL_SCALAR_SUB] = TERMS,
    [PL_SCALAR_MUL] = {KNOWN, .halves = {2, 2}, .times = 3},
    [PL_SCALAR_DIV] = {KNOWN, .halves = {2, -2}, .times = 1},
    [PL_SCALAR_MAX] = EXTREME,
    [PL_SCALAR_MIN] = EXTREME,
    [PL_SCALAR_EQ] = COMPARE,
    [PL_SCALAR_NE] = COMPARE,
    [PL_SCALAR_LT] = COMPARE,
    [PL_SCALAR_LE] = COMPARE,
    [PL_SCALAR_GT] = COMPARE,
    [PL_SCALAR_GE] = COMPARE,
    [PL_SCALAR_SELECT] = {KNOWN, .halves = {0, 2, 2}, .terms = 6, .plus = 6},
};
/* clang-format on */

/* ---- reference -------------------------------------------------------------------------- */
static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The second term is 0 where its factors are infinite and 0. */
static double gelu_slope(double x)
{
    double pdf = 0.3989422804014327 * exp(-0.5 * x * x);
    return 0.5 * erfc(-x * 0.7071067811865476) + (pdf > 0 ? x * pdf : 0 * pdf);
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double modulo(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double max2(double a, double b)
{
    return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
}

static double min2(double a, double b)
{
    return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
}

double pl_scalar_apply(pl_scalar_fn f, double a, double b, double c, double imm)
{
    switch (f) {
/* clang-format off */
#define PL_SCALAR_LIBM(NAME, name) case PL_SCALAR_##NAME: return name(a);
#include "ir/scalar.def"
        /* clang-format on */
    case PL_SCALAR_NEG: return -a;
    case PL_SCALAR_ABS: return fabs(a);
    case PL_SCALAR_SIGN: return isnan(a) ? a : (a > 0) - (a < 0);
    case PL_SCALAR_FLOOR: return floor(a);
    case PL_SCALAR_ROUND: return nearbyint(a);
    case PL_SCALAR_RECIPROCAL: return 1 / a;
    case PL_SCALAR_SQUARE: return a * a;
    case PL_SCALAR_SQRT: return sqrt(a);
    case PL_SCALAR_RSQRT: return 1 / sqrt(a);
    case PL_SCALAR_SIN: return sin(a);
    case PL_SCALAR_COS: return cos(a);
    case PL_SCALAR_SIGMOID: return 1 / (1 + exp(-a));
    case PL_SCALAR_SOFTPLUS: return softplus(a);
    case PL_SCALAR_RELU: return isnan(a) ? a : a > 0 ? a : 0;
    case PL_SCALAR_LEAKY_RELU: return a > 0 ? a : a * imm;
    case PL_SCALAR_SILU: return a / (1 + exp(-a));
    case PL_SCALAR_GELU: return 0.5 * a * (1 + erf(a * 0.7071067811865476));
    case PL_SCALAR_GELU_SLOPE: return gelu_slope(a);
    case PL_SCALAR_GELU_TANH: return gelu_tanh(a);
    case PL_SCALAR_IS_FINITE: return isfinite(a) != 0;
    case PL_SCALAR_IS_NAN: return isnan(a) != 0;
    case PL_SCALAR_NOT: return a == 0;
    case PL_SCALAR_ADD: return a + b;
    case PL_SCALAR_SUB: return a - b;
    case PL_SCALAR_MUL: return a * b;
    case PL_SCALAR_DIV: return a / b;
    case PL_SCALAR_POW: return pow(a, b);
    case PL_SCALAR_MAX: return max2(a, b);
    case PL_SCALAR_MIN: return min2(a, b);
    case PL_SCALAR_MOD: return modulo(a, b);
    case PL_SCALAR_AND: return a != 0 && b != 0;
    case PL_SCALAR_OR: return a != 0 || b != 0;
    case PL_SCALAR_XOR: return (a != 0) != (b != 0);
    case PL_SCALAR_EQ: return a == b;
    case PL_SCALAR_NE: return a != b;
    case PL_SCALAR_LT: return a < b;
    case PL_SCALAR_LE: return a <= b;
    case PL_SCALAR_GT: return a > b;
    case PL_SCALAR_GE: return a >= b;
    case PL_SCALAR_SELECT: return a != 0 ? b : c;
    case PL_SCALAR_CAST: return a;
    case PL_SCALAR_NONE:
    case PL_N_SCALARS: break;
    }
    return (double)NAN;
}

/* Integer arithmetic stays in integers: a double does not hold every i64. */
static int64_t int_apply(pl_scalar_fn f, int64_t a, int64_t b)
{
    if (f == PL_SCALAR_ADD) return (int64_t)((uint64_t)a + (uint64_t)b);
    if (f == PL_SCALAR_SUB) return (int64_t)((uint64_t)a - (uint64_t)b);
    if (f == PL_SCALAR_MUL) return (int64_t)((uint64_t)a * (uint64_t)b);
    if (f == PL_SCALAR_DIV) return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static bool int_exact(pl_scalar_fn f)
{
    return f == PL_SCALAR_ADD || f == PL_SCALAR_SUB || f == PL_SCALAR_MUL || f == PL_SCALAR_DIV ||
           f == PL_SCALAR_MOD;
}

void pl_map_ref(pl_scalar_fn f, const pl_call *c, double imm)
{
    int64_t n = pl_type_elems(c->out_type);
    pl_dtype dt = c->in_type[0].dtype;
    for (int64_t i = 0; i < n; i++) {
        if (dt == PL_I64 && c->n_in == 2 && int_exact(f)) {
            const int64_t *a = c->in[0], *b = c->in[1];
            ((int64_t *)c->out[0])[i] = int_apply(f, a[i], b[i]);
            continue;
        }
        double v[3] = {0, 0, 0};
        for (int k = 0; k < c->n_in; k++) v[k] = pl_elem_get(c->in_type[k].dtype, c->in[k], i);
        double r = dt != PL_F32 && !pl_dtype_is_float(dt) && int_exact(f)
                       ? (double)int_apply(f, (int64_t)v[0], (int64_t)v[1])
                       : pl_scalar_apply(f, v[0], v[1], v[2], imm);
        pl_elem_set(c->out_type[0].dtype, c->out[0], i, r);
    }
}
