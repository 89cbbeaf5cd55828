/* emit_elementwise.c - ops that work element by element, in the order of the operands. */
#include "onnx/emit/emit.h"

#include <math.h>
#include <string.h>

pl_status pl_ox_input(pl_ox_call *c, int k, pl_ox_val **v, pl_val *x)
{
    if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
    *v = c->in[k];
    if ((*v)->item) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "input %d is a sequence", k);
    *x = pl_ox_any(c->b, *v);
    return PL_OK;
}

pl_status pl_ox_input_plain(pl_ox_call *c, int k, pl_ox_val **v, pl_val *x)
{
    PL_TRY(pl_ox_input(c, k, v, x));
    *x = pl_ox_plain(c->b, *v);
    return PL_OK;
}

pl_val pl_ox_cast(pl_graph *g, pl_val x, pl_dtype to)
{
    return pl_val_ok(x) && pl_val_type(g, x).dtype == to ? x : pl_cast(g, x, to);
}

pl_val pl_ox_wide(pl_graph *g, pl_val x)
{
    pl_dtype d = pl_val_ok(x) ? pl_val_type(g, x).dtype : PL_F32;
    return d == PL_F16 || d == PL_BF16 ? pl_cast(g, x, PL_F32) : x;
}

/* The order of the largest operand with the full rank is kept; others follow. */
pl_status pl_ox_align(pl_ox_call *c, int n, pl_ox_val *const *in, pl_val *x, int *perm)
{
    int rank = 0, best = -1;
    int64_t most = -1;
    for (int i = 0; i < n; i++) {
        if (!in[i]) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", i);
        pl_ox_any(c->b, in[i]);
        if (in[i]->rank > rank) rank = in[i]->rank;
    }
    for (int i = 0; i < n; i++) {
        int64_t size = 2 * pl_ox_elems(in[i]);
        for (int k = 0; k < in[i]->rank; k++)
            if (in[i]->perm[k] != k) size |= 1;
        if (in[i]->rank == rank && size > most) {
            most = size;
            best = i;
        }
    }
    for (int i = 0; i < rank; i++) perm[i] = in[best]->perm[i];
    for (int i = 0; i < n; i++) x[i] = pl_ox_ordered(c->b, in[i], rank, perm);
    return PL_OK;
}

/* Before opset 7 the dimensions of the second operand are those from `axis` of the first. */
static pl_status old_broadcast(pl_ox_call *c, const pl_ox_val *a, pl_ox_val **b)
{
    int64_t dim[PL_MAX_RANK];
    int axis, own = (*b)->rank;
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), a->rank, &axis));
    if (axis + own > a->rank)
        return pl_ox_fail(c, PL_ERR_SHAPE, "%d dimensions from axis %d of %d", own, axis, a->rank);
    for (int i = 0; i < a->rank - axis; i++) dim[i] = i < own ? (*b)->dim[i] : 1;
    pl_ox_any(c->b, *b);
    *b = pl_ox_reshaped(c->b, *b, a->rank - axis, dim);
    return *b ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl_ox_together(pl_ox_call *c, int first, int n, pl_val *x, int *perm)
{
    if (first + n > c->n_in) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", c->n_in);
    if (c->b->opset < 7 && n == 2 && pl_ox_attr_find(c, "axis") && c->in[first] && c->in[first + 1])
        PL_TRY(old_broadcast(c, c->in[first], &c->in[first + 1]));
    return pl_ox_align(c, n, c->in + first, x, perm);
}

/* ---- one operand ----------------------------------------------------------------------------- */
#define UNARY(name, expr)                                                                          \
 pl_status pl_ox_emit_##name(pl_ox_call *c)                                                        \
 {                                                                                                 \
  pl_graph *g = c->g;                                                                              \
  (void)g;                                                                                         \
  pl_ox_val *v = NULL;                                                                             \
  pl_val x = PL_NO_VAL;                                                                            \
  PL_TRY(pl_ox_input(c, 0, &v, &x));                                                               \
  return pl_ox_set(c, 0, (expr), v->perm);                                                         \
 }

static double attr(const pl_ox_call *c, const char *name, double fallback)
{
    return pl_ox_attr_float(c, name, fallback);
}

static pl_val asinh_of(pl_graph *g, pl_val x)
{
    pl_val a = pl_abs(g, x);
    return pl_mul(g, pl_sign(g, x),
                  pl_log(g, pl_add(g, a, pl_sqrt(g, pl_shift(g, pl_square(g, a), 1)))));
}

static pl_val acosh_of(pl_graph *g, pl_val x)
{
    return pl_log(g, pl_add(g, x, pl_sqrt(g, pl_shift(g, pl_square(g, x), -1))));
}

/* Arcus tangent: |x| above tan(3 pi/8) and tan(pi/8) is reduced to the interval below, where a
 * polynomial has an error of 2e-8 (Cephes' atanf). Unused branches get a harmless operand, so that
 * gradients are finite. */
static pl_val atan_of(pl_graph *g, pl_val x)
{
    pl_val a = pl_abs(g, x), one = pl_full_like(g, x, 1), zero = pl_full_like(g, x, 0);
    pl_val far = pl_gt(g, a, pl_full_like(g, x, 2.414213562373095));
    pl_val mid = pl_gt(g, a, pl_full_like(g, x, 0.4142135623730950));
    pl_val over = pl_neg(g, pl_reciprocal(g, pl_select(g, far, a, one)));
    pl_val ratio = pl_div(g, pl_shift(g, pl_select(g, far, one, a), -1),
                          pl_shift(g, pl_select(g, far, one, a), 1));
    pl_val t = pl_select(g, far, over, pl_select(g, mid, ratio, a));
    pl_val base = pl_select(g, far, pl_full_like(g, x, 1.5707963267948966),
                            pl_select(g, mid, pl_full_like(g, x, 0.7853981633974483), zero));
    static const double p[] = {8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1,
                               -3.33329491539e-1};
    pl_val z = pl_square(g, t), y = pl_full_like(g, x, p[0]);
    for (int i = 1; i < 4; i++) y = pl_shift(g, pl_mul(g, y, z), p[i]);
    y = pl_add(g, pl_mul(g, pl_mul(g, y, z), t), t);
    return pl_mul(g, pl_sign(g, x), pl_add(g, base, y));
}

static pl_val asin_of(pl_graph *g, pl_val x)
{
    pl_val root = pl_sqrt(g, pl_shift(g, pl_neg(g, pl_square(g, x)), 1));
    return atan_of(g, pl_div(g, x, root));
}

static pl_val elu_of(pl_graph *g, pl_val x, double alpha, double over)
{
    pl_val zero = pl_full_like(g, x, 0), low = pl_min(g, x, zero);
    pl_val e = pl_shift(g, pl_exp(g, over == 1 ? low : pl_scale(g, low, 1 / over)), -1);
    return pl_add(g, pl_relu(g, x), pl_scale(g, e, alpha));
}

static pl_val hard_sigmoid_of(pl_graph *g, pl_val x, double alpha, double beta)
{
    return pl_clamp(g, pl_shift(g, pl_scale(g, x, alpha), beta), 0, 1);
}

static pl_val shrink_of(pl_graph *g, pl_val x, double lambda, double bias)
{
    pl_dtype type = pl_val_type(g, x).dtype;
    if (!pl_dtype_is_float(type)) /* the bias may have a fraction */
        return pl_cast(g, shrink_of(g, pl_cast(g, x, PL_F64), lambda, bias), type);
    pl_val zero = pl_full_like(g, x, 0);
    pl_val up = pl_select(g, pl_gt(g, x, pl_full_like(g, x, lambda)), pl_shift(g, x, -bias), zero);
    return pl_select(g, pl_lt(g, x, pl_full_like(g, x, -lambda)), pl_shift(g, x, bias), up);
}

static pl_val is_inf(pl_graph *g, pl_val x, bool negative, bool positive)
{
    pl_val big = pl_and(g, pl_not(g, pl_is_finite(g, x)), pl_not(g, pl_is_nan(g, x)));
    pl_val zero = pl_full_like(g, x, 0);
    if (!negative) big = pl_and(g, big, pl_gt(g, x, zero));
    return positive ? big : pl_and(g, big, pl_lt(g, x, zero));
}

/* Bessel-free gelu and mish in the wider type. */
static pl_val mish_of(pl_graph *g, pl_val x)
{
    return pl_mul(g, x, pl_tanh(g, pl_softplus(g, x)));
}

static pl_val ceil_of(pl_graph *g, pl_val x)
{
    return pl_neg(g, pl_floor(g, pl_neg(g, x)));
}

static pl_val thresholded(pl_graph *g, pl_val x, double alpha)
{
    return pl_select(g, pl_gt(g, x, pl_full_like(g, x, alpha)), x, pl_full_like(g, x, 0));
}

/* ONNX has no op that ends a gradient. torch's dynamo exporter writes x.detach() as an Identity
 * named node_detach, node_detach_1, ... */
static bool detaches(const pl_ox_call *c)
{
    static const char name[] = "node_detach";
    const char *own = c->node->name ? c->node->name : "";
    if (strncmp(own, name, sizeof name - 1) != 0) return false;
    own += sizeof name - 1;
    if (*own == '_') own++;
    return own[strspn(own, "0123456789")] == 0;
}

pl_status pl_ox_emit_identity(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0)) return pl_ox_fail(c, PL_ERR_FILE, "input 0 is missing");
    pl_ox_val *v = c->in[0];
    if (!detaches(c) || v->item || pl_ox_known(c->b, v) || !pl_dtype_is_float(v->dtype))
        return pl_ox_set_val(c, 0, v);
    pl_val x = pl_ox_any(c->b, v);
    return pl_ox_set(c, 0, pl_stop_gradient(c->g, x), v->perm);
}

UNARY(neg, pl_neg(g, x))
UNARY(abs, pl_abs(g, x))
UNARY(sign, pl_sign(g, x))
UNARY(floor, pl_floor(g, x))
UNARY(ceil, ceil_of(g, x))
UNARY(round, pl_round(g, x))
UNARY(reciprocal, pl_reciprocal(g, x))
UNARY(sqrt, pl_sqrt(g, x))
UNARY(exp, pl_exp(g, x))
UNARY(log, pl_log(g, x))
UNARY(sin, pl_sin(g, x))
UNARY(cos, pl_cos(g, x))
UNARY(tan, pl_div(g, pl_sin(g, x), pl_cos(g, x)))
UNARY(atan, atan_of(g, x))
UNARY(asin, asin_of(g, x))
UNARY(acos, pl_shift(g, pl_neg(g, asin_of(g, x)), 1.5707963267948966))
UNARY(sinh, pl_scale(g, pl_sub(g, pl_exp(g, x), pl_exp(g, pl_neg(g, x))), 0.5))
UNARY(cosh, pl_scale(g, pl_add(g, pl_exp(g, x), pl_exp(g, pl_neg(g, x))), 0.5))
UNARY(tanh, pl_tanh(g, x))
UNARY(asinh, asinh_of(g, x))
UNARY(acosh, acosh_of(g, x))
UNARY(atanh, pl_scale(g, pl_sub(g, pl_log1p(g, x), pl_log1p(g, pl_neg(g, x))), 0.5))
UNARY(erf, pl_erf(g, x))
UNARY(sigmoid, pl_sigmoid(g, x))
UNARY(softplus, pl_softplus(g, x))
UNARY(softsign, pl_div(g, x, pl_shift(g, pl_abs(g, x), 1)))
UNARY(relu, pl_relu(g, x))
UNARY(leaky_relu, pl_leaky_relu(g, x, attr(c, "alpha", 0.01)))
UNARY(elu, elu_of(g, x, attr(c, "alpha", 1), 1))
UNARY(celu, elu_of(g, x, attr(c, "alpha", 1), attr(c, "alpha", 1)))
UNARY(selu, pl_scale(g, elu_of(g, x, attr(c, "alpha", 1.67326319217681884765625), 1),
                     attr(c, "gamma", 1.05070102214813232421875)))
UNARY(hard_sigmoid, hard_sigmoid_of(g, x, attr(c, "alpha", 0.2), attr(c, "beta", 0.5)))
UNARY(hard_swish, pl_mul(g, x, hard_sigmoid_of(g, x, 1.0 / 6, 0.5)))
UNARY(mish, mish_of(g, x))
UNARY(thresholded_relu, thresholded(g, x, attr(c, "alpha", 1)))
UNARY(shrink, shrink_of(g, x, attr(c, "lambd", 0.5), attr(c, "bias", 0)))
UNARY(swish, pl_mul(g, x, pl_sigmoid(g, pl_scale(g, x, attr(c, "alpha", 1)))))
UNARY(gelu, pl_ox_attr_is(c, "approximate", "none", "tanh") ? pl_gelu_tanh(g, x) : pl_gelu(g, x))
UNARY(not, pl_not(g, x))
UNARY(is_nan, pl_is_nan(g, x))
UNARY(is_inf, is_inf(g, x, pl_ox_attr_int(c, "detect_negative", 1) != 0,
                     pl_ox_attr_int(c, "detect_positive", 1) != 0))

pl_status pl_ox_emit_cast(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    pl_dtype to = PL_F32;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    bool like = strcmp(c->op, "CastLike") == 0;
    int32_t type = (int32_t)pl_ox_attr_int(c, "to", 0);
    if (like && !pl_ox_has(c, 1)) return pl_ox_fail(c, PL_ERR_FILE, "input 1 is missing");
    if (like && c->in[1]->widened)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "input 1 has elements of a type that the engine does not have");
    if (like)
        to = c->in[1]->dtype;
    else if (!pl_ox_dtype(type, &to) || type >= PL_OX_FLOAT8E4M3FN)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "the engine has no elements of type %s",
                          pl_ox_type_name(type));
    /* A number is a truth value when it is not 0. */
    if (to == PL_BOOL && v->dtype != PL_BOOL)
        return pl_ox_set(c, 0, pl_ne(c->g, x, pl_full_like(c->g, x, 0)), v->perm);
    return pl_ox_set(c, 0, pl_ox_cast(c->g, x, to), v->perm);
}

/* Bounds are constants as a rule. */
pl_status pl_ox_emit_clip(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    double bound[2] = {attr(c, "min", -HUGE_VAL), attr(c, "max", HUGE_VAL)};
    bool constant = true;
    for (int k = 1; k < 3; k++)
        if (pl_ox_has(c, k)) constant &= pl_ox_known(c->b, c->in[k]);
    if (constant) {
        PL_TRY(pl_ox_in_number(c, 1, "minimum", bound[0], &bound[0]));
        PL_TRY(pl_ox_in_number(c, 2, "maximum", bound[1], &bound[1]));
        if (bound[0] > -HUGE_VAL) x = pl_max(c->g, x, pl_full_like(c->g, x, bound[0]));
        if (bound[1] < HUGE_VAL) x = pl_min(c->g, x, pl_full_like(c->g, x, bound[1]));
        return pl_ox_set(c, 0, x, v->perm);
    }
    for (int k = 1; k < 3; k++) {
        if (!pl_ox_has(c, k)) continue;
        pl_val y = pl_reshape(c->g, pl_ox_any(c->b, c->in[k]), 0, NULL);
        x = k == 1 ? pl_max(c->g, x, y) : pl_min(c->g, x, y);
    }
    return pl_ox_set(c, 0, x, v->perm);
}

/* ---- two and more operands ------------------------------------------------------------------- */
typedef pl_val binary_fn(pl_graph *g, pl_val a, pl_val b);

static pl_status binary(pl_ox_call *c, binary_fn *fn)
{
    pl_val x[2];
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_together(c, 0, 2, x, perm));
    return pl_ox_set(c, 0, fn(c->g, x[0], x[1]), perm);
}
#define BINARY(name, fn)                                                                           \
 pl_status pl_ox_emit_##name(pl_ox_call *c)                                                        \
 {                                                                                                 \
  return binary(c, fn);                                                                            \
 }

/* Truncates towards zero. */
static pl_val trunc_of(pl_graph *g, pl_val x)
{
    return pl_mul(g, pl_sign(g, x), pl_floor(g, pl_abs(g, x)));
}

static bool is_float(pl_graph *g, pl_val x)
{
    return pl_val_ok(x) && pl_dtype_is_float(pl_val_type(g, x).dtype);
}

/* Truth values compare as numbers. */
static pl_val number(pl_graph *g, pl_val x)
{
    return pl_val_ok(x) && pl_val_type(g, x).dtype == PL_BOOL ? pl_cast(g, x, PL_I32) : x;
}

static pl_val equal(pl_graph *g, pl_val a, pl_val b)
{
    return pl_eq(g, number(g, a), number(g, b));
}

BINARY(add, pl_add)
BINARY(sub, pl_sub)
BINARY(mul, pl_mul)
BINARY(div, pl_div)
BINARY(and, pl_and)
BINARY(or, pl_or)
BINARY(xor, pl_xor)
BINARY(equal, equal)
BINARY(less, pl_lt)
BINARY(less_equal, pl_le)
BINARY(greater, pl_gt)
BINARY(greater_equal, pl_ge)

pl_status pl_ox_emit_mod(pl_ox_call *c)
{
    pl_val x[2];
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_together(c, 0, 2, x, perm));
    pl_graph *g = c->g;
    bool floats = is_float(g, x[0]);
    if (!pl_ox_attr_int(c, "fmod", 0)) return pl_ox_set(c, 0, pl_mod(g, x[0], x[1]), perm);
    pl_val q = pl_div(g, pl_abs(g, x[0]), pl_abs(g, x[1]));
    if (floats) q = pl_floor(g, q);
    pl_val rest = pl_sub(g, pl_abs(g, x[0]), pl_mul(g, q, pl_abs(g, x[1])));
    return pl_ox_set(c, 0, pl_mul(g, pl_sign(g, x[0]), rest), perm);
}

pl_status pl_ox_emit_pow(pl_ox_call *c)
{
    pl_val x[2];
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_together(c, 0, 2, x, perm));
    pl_graph *g = c->g;
    pl_dtype own = c->in[0]->dtype;
    double e = (double)NAN;
    if (pl_ox_known(c->b, c->in[1]) && c->in[1]->host.n == 1 && c->in[1]->rank <= c->in[0]->rank)
        PL_TRY(pl_ox_in_number(c, 1, "exponent", (double)NAN, &e));
    if (!pl_dtype_is_float(own)) {
        /* whole numbers: through f64, which is exact up to 2^53 */
        pl_val y = pl_pow(g, pl_cast(g, x[0], PL_F64), pl_ox_cast(g, x[1], PL_F64));
        return pl_ox_set(c, 0, pl_cast(g, trunc_of(g, y), own), perm);
    }
    pl_val y;
    if (e == 2)
        y = pl_square(g, x[0]);
    else if (e == 3)
        y = pl_mul(g, pl_square(g, x[0]), x[0]);
    else if (e == 1)
        y = x[0];
    else if (e == 0.5)
        y = pl_sqrt(g, x[0]);
    else if (e == -0.5)
        y = pl_rsqrt(g, x[0]);
    else if (e == -1)
        y = pl_reciprocal(g, x[0]);
    else
        y = pl_pow(g, x[0], pl_ox_cast(g, x[1], own));
    return pl_ox_set(c, 0, y, perm);
}

static pl_status many(pl_ox_call *c, binary_fn *fn, double scale)
{
    pl_val *x = pl_arena_new(&c->b->mem, pl_val, c->n_in + 1);
    int perm[PL_MAX_RANK];
    if (!x) return PL_ERR_MEMORY;
    if (!c->n_in) return pl_ox_fail(c, PL_ERR_FILE, "there are no inputs");
    PL_TRY(pl_ox_together(c, 0, c->n_in, x, perm));
    pl_val y = x[0];
    for (int i = 1; i < c->n_in; i++) y = fn(c->g, y, x[i]);
    return pl_ox_set(c, 0, scale == 1 ? y : pl_scale(c->g, y, scale), perm);
}
pl_status pl_ox_emit_min(pl_ox_call *c)
{
    return many(c, pl_min, 1);
}
pl_status pl_ox_emit_max(pl_ox_call *c)
{
    return many(c, pl_max, 1);
}
pl_status pl_ox_emit_sum(pl_ox_call *c)
{
    return many(c, pl_add, 1);
}
pl_status pl_ox_emit_mean(pl_ox_call *c)
{
    return many(c, pl_add, 1.0 / (c->n_in ? c->n_in : 1));
}

/* A Swish of the first input gates the second. */
pl_status pl_ox_emit_swiglu(pl_ox_call *c)
{
    pl_val x[2];
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_together(c, 0, 2, x, perm));
    double alpha = attr(c, "alpha", 1);
    pl_val gate = alpha == 1 ? pl_silu(c->g, x[0])
                             : pl_mul(c->g, x[0], pl_sigmoid(c->g, pl_scale(c->g, x[0], alpha)));
    return pl_ox_set(c, 0, pl_mul(c->g, gate, x[1]), perm);
}

pl_status pl_ox_emit_where(pl_ox_call *c)
{
    pl_val x[3];
    int perm[PL_MAX_RANK];
    PL_TRY(pl_ox_together(c, 0, 3, x, perm));
    return pl_ox_set(c, 0, pl_select(c->g, x[0], x[1], x[2]), perm);
}

/* The slope broadcasts to x from the last dimension on; exporters give it the shape [C, 1, 1]. Old
 * ones write a vector of C, which is then one slope a channel. */
pl_status pl_ox_emit_prelu(pl_ox_call *c)
{
    pl_val x[2];
    int perm[PL_MAX_RANK];
    if (!pl_ox_has(c, 0) || !pl_ox_has(c, 1)) return pl_ox_fail(c, PL_ERR_FILE, "no slope");
    pl_ox_val *in[] = {c->in[0], c->in[1]};
    int last = in[0]->rank - 1;
    if (in[1]->rank == 1 && last > 1 && in[1]->dim[0] == in[0]->dim[1] && in[1]->dim[0] > 1 &&
        in[0]->dim[last] != in[1]->dim[0]) {
        const int64_t dim[PL_MAX_RANK] = {in[1]->dim[0], 1, 1, 1, 1, 1, 1, 1};
        in[1] = pl_ox_reshaped(c->b, in[1], last, dim);
        if (!in[1]) return PL_ERR_MEMORY;
    }
    PL_TRY(pl_ox_align(c, 2, in, x, perm));
    pl_graph *g = c->g;
    pl_val zero = pl_full_like(g, x[0], 0), low = pl_min(g, x[0], zero);
    pl_val high = pl_dtype_is_float(in[0]->dtype) ? pl_relu(g, x[0]) : pl_max(g, x[0], zero);
    return pl_ox_set(c, 0, pl_add(g, high, pl_mul(g, low, x[1])), perm);
}
