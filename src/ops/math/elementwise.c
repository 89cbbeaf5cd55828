/* elementwise.c - every op of scalar.def, and cast: y[i] = f(a[i], b[i], c[i]).
 *
 * The IR form is strict: operands have one shape. Constructors broadcast first, so a gradient rule
 * here sees equal shapes and the broadcast's own gradient does the summing. Gradients are written
 * in primitives and fuse with their neighbours; a value of the forward pass that they need is an
 * ordinary edge. Kinks: relu'(0) = 0, leaky_relu'(0) = slope, abs'(0) = sign(0) = 0, max and min
 * give a tie's gradient to both halves equally.
 *
 * The kernel is the reference (scalar_fn.c), one element at a time in double; the fast path is the
 * tile interpreter, which runs these nodes in groups.
 */
#include "base/dtype.h"
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"
#include "ops/math/scalar_fn.h"

#include <string.h>

static double leaky_slope(const void *attr);

/* ---- shape rules ------------------------------------------------------------------------ */
static pl_status same_type(const pl_type *a, const pl_type *b)
{
    char x[96], y[96];
    PL_FAIL_IF(!pl_type_equal(a, b), PL_ERR_SHAPE,
               "operands %s and %s have shapes or types that do not match",
               pl_type_text(a, x, sizeof x), pl_type_text(b, y, sizeof y));
    return PL_OK;
}

static bool takes_bool(pl_scalar_fn f)
{
    return f == PL_SCALAR_NOT || f == PL_SCALAR_AND || f == PL_SCALAR_OR || f == PL_SCALAR_XOR;
}

static bool needs_float(pl_scalar_fn f)
{
    return (f >= PL_SCALAR_RECIPROCAL && f <= PL_SCALAR_GELU_TANH && f != PL_SCALAR_SQUARE) ||
           f == PL_SCALAR_POW;
}

static pl_status map_infer(pl_scalar_fn f, const pl_type *in, int n_in, bool to_bool, pl_type *out)
{
    for (int i = 1; i + 1 <= n_in && f != PL_SCALAR_SELECT; i++) PL_TRY(same_type(&in[0], &in[i]));
    char x[96];
    PL_FAIL_IF(takes_bool(f) && in[0].dtype != PL_BOOL, PL_ERR_SHAPE, "needs bool, got %s",
               pl_type_text(&in[0], x, sizeof x));
    PL_FAIL_IF(needs_float(f) && !pl_dtype_is_float(in[0].dtype), PL_ERR_SHAPE,
               "needs a float type, got %s", pl_type_text(&in[0], x, sizeof x));
    if (f == PL_SCALAR_SELECT) {
        pl_type cond = in[1];
        cond.dtype = PL_BOOL;
        PL_TRY(same_type(&in[0], &cond));
        PL_TRY(same_type(&in[1], &in[2]));
    }
    out[0] = in[n_in - 1];
    if (to_bool) out[0].dtype = PL_BOOL;
    return PL_OK;
}

/* ---- gradients: d is the gradient of the output ----------------------------------------- */
#define D (v->gout[0])
#define A (v->in[0])
#define B (v->in[1])
#define Y (v->out[0])
#define VJP1(name, expr)                                                                           \
 static void vjp_##name(const pl_vjp *v)                                                           \
 {                                                                                                 \
  pl_graph *g = v->g;                                                                              \
  v->gin[0] = (expr);                                                                              \
 }
#define VJP2(name, ea, eb)                                                                         \
 static void vjp_##name(const pl_vjp *v)                                                           \
 {                                                                                                 \
  pl_graph *g = v->g;                                                                              \
  (void)g;                                                                                         \
  if (v->need[0]) v->gin[0] = (ea);                                                                \
  if (v->need[1]) v->gin[1] = (eb);                                                                \
 }

static pl_val zeros(pl_graph *g, pl_val like)
{
    return pl_full_like(g, like, 0);
}

/* d where mask holds, else 0 */
static pl_val masked(pl_graph *g, pl_val mask, pl_val d)
{
    return pl_select(g, mask, d, zeros(g, d));
}

VJP1(neg, pl_neg(g, D))
VJP1(abs, pl_mul(g, D, pl_sign(g, A)))
VJP1(reciprocal, pl_neg(g, pl_mul(g, D, pl_square(g, Y))))
VJP1(square, pl_scale(g, pl_mul(g, D, A), 2))
VJP1(sqrt, pl_div(g, pl_scale(g, D, 0.5), Y))
VJP1(rsqrt, pl_scale(g, pl_mul(g, D, pl_mul(g, Y, pl_square(g, Y))), -0.5))
VJP1(exp, pl_mul(g, D, Y))
VJP1(log, pl_div(g, D, A))
VJP1(log1p, pl_div(g, D, pl_shift(g, A, 1)))
VJP1(sin, pl_mul(g, D, pl_cos(g, A)))
VJP1(cos, pl_neg(g, pl_mul(g, D, pl_sin(g, A))))
VJP1(tanh, pl_mul(g, D, pl_shift(g, pl_neg(g, pl_square(g, Y)), 1)))
VJP1(erf, pl_mul(g, D, pl_scale(g, pl_exp(g, pl_neg(g, pl_square(g, A))), 1.1283791670955126)))
VJP1(sigmoid, pl_mul(g, D, pl_mul(g, Y, pl_shift(g, pl_neg(g, Y), 1))))
VJP1(softplus, pl_mul(g, D, pl_sigmoid(g, A)))
/* The sign of the result equals the sign of the input, and the next layer keeps the result for its
 * own gradient anyway: the input is not kept (M13 of docs/MEMORY.md). */
VJP1(relu, masked(g, pl_gt(g, Y, zeros(g, Y)), D))
VJP2(add, D, D)
VJP2(sub, D, pl_neg(g, D))
VJP2(mul, pl_mul(g, D, B), pl_mul(g, D, A))
VJP2(div, pl_div(g, D, B), pl_neg(g, pl_div(g, pl_mul(g, D, Y), B)))

/* Uses the sign of the result, like relu: a slope >= 0 preserves the sign of the input. */
static void vjp_leaky_relu(const pl_vjp *v)
{
    pl_graph *g = v->g;
    double slope = leaky_slope(v->attr);
    pl_val sign = slope >= 0 ? Y : A;
    v->gin[0] = pl_select(g, pl_gt(g, sign, zeros(g, sign)), D, pl_scale(g, D, slope));
}

/* silu' = s + x s (1 - s), s = sigmoid(x) */
static void vjp_silu(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_val s = pl_sigmoid(g, A);
    pl_val t = pl_mul(g, pl_mul(g, A, s), pl_shift(g, pl_neg(g, s), 1));
    v->gin[0] = pl_mul(g, D, pl_add(g, s, t));
}

/* gelu' = Phi(x) + x phi(x), one function: both share an exponential. */
static void vjp_gelu(const pl_vjp *v)
{
    v->gin[0] = pl_mul(v->g, D, pl_gelu_slope(v->g, A));
}

/* gelu'' = phi(x) (2 - x^2) */
static void vjp_gelu_slope(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_val x2 = pl_square(g, A);
    pl_val pdf = pl_scale(g, pl_exp(g, pl_scale(g, x2, -0.5)), 0.3989422804014327);
    v->gin[0] = pl_mul(g, D, pl_mul(g, pdf, pl_shift(g, pl_neg(g, x2), 2)));
}

/* with u = k (x + c x^3), t = tanh u: y' = (1 + t)/2 + x/2 (1 - t^2) k (1 + 3 c x^2) */
static void vjp_gelu_tanh(const pl_vjp *v)
{
    pl_graph *g = v->g;
    const double k = 0.7978845608028654, c = 0.044715;
    pl_val x2 = pl_square(g, A);
    pl_val u = pl_mul(g, pl_scale(g, A, k), pl_shift(g, pl_scale(g, x2, c), 1));
    pl_val t = pl_tanh(g, u);
    pl_val du = pl_shift(g, pl_scale(g, x2, 3 * c * k), k);
    pl_val second =
        pl_mul(g, pl_mul(g, pl_scale(g, A, 0.5), du), pl_shift(g, pl_neg(g, pl_square(g, t)), 1));
    pl_val first = pl_shift(g, pl_scale(g, t, 0.5), 0.5);
    v->gin[0] = pl_mul(g, D, pl_add(g, first, second));
}

/* Where the factors are 0 and infinite the derivative is 0, as in PyTorch: x^0 does not depend on
 * x, 0^y not on y >= 0. */
static void vjp_pow(const pl_vjp *v)
{
    pl_graph *g = v->g;
    if (v->need[0]) {
        pl_val p = pl_mul(g, B, pl_pow(g, A, pl_shift(g, B, -1)));
        v->gin[0] = pl_mul(g, D, pl_select(g, pl_eq(g, B, zeros(g, B)), zeros(g, p), p));
    }
    if (v->need[1]) {
        pl_val p = pl_mul(g, Y, pl_log(g, A));
        pl_val flat = pl_and(g, pl_eq(g, A, zeros(g, A)), pl_ge(g, B, zeros(g, B)));
        v->gin[1] = pl_mul(g, D, pl_select(g, flat, zeros(g, p), p));
    }
}

/* a mod b = a - q b with a whole q. */
static void vjp_mod(const pl_vjp *v)
{
    pl_graph *g = v->g;
    v->gin[0] = D;
    if (v->need[1]) v->gin[1] = pl_neg(g, pl_mul(g, D, pl_round(g, pl_div(g, pl_sub(g, A, Y), B))));
}

/* The winning side gets the gradient; a tie shares it. */
static void vjp_extreme(const pl_vjp *v, bool is_max)
{
    pl_graph *g = v->g;
    pl_val half = pl_scale(g, D, 0.5);
    pl_val tie = pl_eq(g, A, B), first = is_max ? pl_gt(g, A, B) : pl_lt(g, A, B);
    if (v->need[0]) v->gin[0] = pl_select(g, tie, half, masked(g, first, D));
    if (v->need[1]) v->gin[1] = pl_select(g, tie, half, masked(g, pl_not(g, first), D));
}

static void vjp_max(const pl_vjp *v)
{
    vjp_extreme(v, true);
}

static void vjp_min(const pl_vjp *v)
{
    vjp_extreme(v, false);
}

static void vjp_select(const pl_vjp *v)
{
    pl_graph *g = v->g;
    if (v->need[1]) v->gin[1] = masked(g, A, D);
    if (v->need[2]) v->gin[2] = masked(g, pl_not(g, A), D);
}

/* ---- test cases ------------------------------------------------------------------------- */
#define SHAPES1(lo, hi)                                                                            \
 {{"f32[7]"}, "", {{lo, hi, false}}}, {{"f32[3,1,5]"}, "", {{lo, hi, false}}},                     \
     {{"f32[]"}, "", {{lo, hi, false}}}, PL_CASE_END
#define SHAPES2(la, ha, lb, hb, apart)                                                             \
 {{"f32[7]", "f32[7]"}, "", {{la, ha, apart}, {lb, hb, apart}}},                                   \
     {{"f32[3,1,5]", "f32[3,1,5]"}, "", {{la, ha, apart}, {lb, hb, apart}}},                       \
     {{"f32[]", "f32[]"}, "", {{la, ha, apart}, {lb, hb, apart}}}, PL_CASE_END

static const pl_case cases_any[] = {SHAPES1(-2, 2)};
static const pl_case cases_kink[] = {{{"f32[7]"}, "", {{-2, 2, true}}},
                                     {{"f32[3,1,5]"}, "", {{-2, 2, true}}},
                                     {{"f32[]"}, "", {{-2, 2, true}}},
                                     PL_CASE_END};
static const pl_case cases_positive[] = {SHAPES1(0.3, 3)};
static const pl_case cases_log1p[] = {SHAPES1(-0.7, 3)};
static const pl_case cases_leaky[] = {{{"f32[7]"}, "slope=0.01", {{-2, 2, true}}},
                                      {{"f32[3,1,5]"}, "slope=0.2", {{-2, 2, true}}},
                                      PL_CASE_END};
static const pl_case cases_bool1[] = {{{"bool[7]"}, "", {{0, 0, false}}}, PL_CASE_END};
static const pl_case cases_bool2[] = {{{"bool[7]", "bool[7]"}, "", {{0, 0, false}}}, PL_CASE_END};
static const pl_case cases_two[] = {SHAPES2(-2, 2, -2, 2, false)};
static const pl_case cases_apart[] = {SHAPES2(-2, 2, -2, 2, true)};
static const pl_case cases_divide[] = {SHAPES2(-2, 2, 0.5, 2, false)};
static const pl_case cases_mod[] = {SHAPES2(-2.8, -2.2, 1.05, 1.08, false)}; /* between two jumps */
static const pl_case cases_pow[] = {SHAPES2(0.3, 2, -2, 2, false)};
static const pl_case cases_select[] = {{{"bool[3,4]", "f32[3,4]", "f32[3,4]"}, "", {{0, 0, false}}},
                                       PL_CASE_END};

/* ---- descriptors ------------------------------------------------------------------------ */
/* Each scalar function gets: ref kernel, infer, descriptor, constructor. */
#define SAME 0
#define BOOL 1
#define MAP(NAME, fn, arity, result, bits, grad, no_grad, case_list)                               \
 MAP_SIMPLE(NAME, fn, arity, result, bits, grad, no_grad, case_list, NULL)
#define MAP_SIMPLE(NAME, fn, arity, result, bits, grad, no_grad, case_list, simple)                \
 static pl_status ref_##fn(const pl_call *c)                                                       \
 {                                                                                                 \
  pl_map_ref(PL_SCALAR_##NAME, c, 0);                                                              \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static pl_status infer_##fn(const pl_type *in, int n_in, void *attr, pl_type *out)                \
 {                                                                                                 \
  (void)attr;                                                                                      \
  return map_infer(PL_SCALAR_##NAME, in, n_in, result, out);                                       \
 }                                                                                                 \
 static const pl_kernel kernels_##fn[] = {{"ref", NULL, NULL, NULL, ref_##fn}, PL_KERNEL_END};     \
 const pl_op pl_op_##fn = {.name = #fn,                                                            \
                           .min_in = arity,                                                        \
                           .max_in = arity,                                                        \
                           .n_out = 1,                                                             \
                           .scalar = PL_SCALAR_##NAME,                                             \
                           .flags = PL_OP_MAP | ((no_grad) ? PL_OP_NO_GRAD : 0) |                  \
                                    (PL_SCALAR_##NAME == PL_SCALAR_ADD ? PL_OP_PLUS : 0) |         \
                                    (PL_SCALAR_##NAME == PL_SCALAR_MUL ? PL_OP_TIMES : 0),         \
                           .inplace = {bits},                                                      \
                           .infer = infer_##fn,                                                    \
                           .vjp = grad,                                                            \
                           .cpu = kernels_##fn,                                                    \
                           .cases = case_list,                                                     \
                           .simplify = simple,                                                     \
                           .scaling = &pl_map_scaling[PL_SCALAR_##NAME]};
#define UNARY(NAME, fn, grad, no_grad, case_list)                                                  \
 MAP(NAME, fn, 1, SAME, 1, grad, no_grad, case_list)                                               \
 pl_val pl_##fn(pl_graph *g, pl_val x)                                                             \
 {                                                                                                 \
  return pl_build1(g, &pl_op_##fn, NULL, 1, &x);                                                   \
 }
#define TEST_BOOL(NAME, fn)                                                                        \
 MAP(NAME, fn, 1, BOOL, 0, NULL, true, cases_any)                                                  \
 pl_val pl_##fn(pl_graph *g, pl_val x)                                                             \
 {                                                                                                 \
  return pl_build1(g, &pl_op_##fn, NULL, 1, &x);                                                   \
 }
#define BINARY(NAME, fn, result, bits, grad, no_grad, case_list)                                   \
 MAP(NAME, fn, 2, result, bits, grad, no_grad, case_list)                                          \
 pl_val pl_##fn(pl_graph *g, pl_val a, pl_val b)                                                   \
 {                                                                                                 \
  return binary(g, &pl_op_##fn, a, b);                                                             \
 }

/* Computes the shape that two operands broadcast to; false (and the graph's error set) if they do
 * not. */
static bool common_shape(pl_graph *g, const char *what, const pl_type *a, const pl_type *b,
                         pl_type *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    for (int i = 1; i <= out->rank; i++) {
        int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1) {
            char s[96], t[96];
            pl_graph_fail(g, PL_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", what,
                          pl_type_text(a, s, sizeof s), pl_type_text(b, t, sizeof t));
            return false;
        }
        out->dim[out->rank - i] = x == 1 ? y : x;
    }
    return true;
}

static pl_val stretch(pl_graph *g, pl_val x, const pl_type *to)
{
    pl_type t = pl_val_type(g, x);
    if (t.rank == to->rank && memcmp(t.dim, to->dim, sizeof t.dim) == 0) return x;
    return pl_broadcast(g, x, to->rank, to->dim);
}

static pl_val binary(pl_graph *g, const pl_op *op, pl_val a, pl_val b)
{
    pl_type ta = pl_val_type(g, a), tb = pl_val_type(g, b), t;
    if (!pl_val_ok(a) || !pl_val_ok(b)) return PL_NO_VAL;
    if (!common_shape(g, op->name, &ta, &tb, &t)) return PL_NO_VAL;
    pl_val in[2] = {stretch(g, a, &t), stretch(g, b, &t)};
    return pl_build1(g, op, NULL, 2, in);
}

/* Gradients are sums: those of adjacent slices become one concat. */
pl_val pl_add(pl_graph *g, pl_val a, pl_val b)
{
    pl_val joined = pl__add_pads(g, a, b);
    return pl_val_ok(joined) ? joined : binary(g, &pl_op_add, a, b);
}

/* x * 1 and x / 1 are x to the bit; x + 0 is not (it turns -0 into 0), so it stays. */
static bool is_one(const pl_graph *g, pl_val v)
{
    double c;
    return pl_fill_of(g, v, &c) && c == 1;
}

static pl_val simplify_mul(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)attr, (void)n_in;
    return is_one(g, in[0]) ? in[1] : is_one(g, in[1]) ? in[0] : PL_NO_VAL;
}

static pl_val simplify_div(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)attr, (void)n_in;
    return is_one(g, in[1]) ? in[0] : PL_NO_VAL;
}

UNARY(NEG, neg, vjp_neg, false, cases_any)
UNARY(ABS, abs, vjp_abs, false, cases_kink)
UNARY(SIGN, sign, NULL, true, cases_kink)
UNARY(FLOOR, floor, NULL, true, cases_any)
UNARY(ROUND, round, NULL, true, cases_any)
UNARY(RECIPROCAL, reciprocal, vjp_reciprocal, false, cases_positive)
UNARY(SQUARE, square, vjp_square, false, cases_any)
UNARY(SQRT, sqrt, vjp_sqrt, false, cases_positive)
UNARY(RSQRT, rsqrt, vjp_rsqrt, false, cases_positive)
UNARY(EXP, exp, vjp_exp, false, cases_any)
UNARY(LOG, log, vjp_log, false, cases_positive)
UNARY(LOG1P, log1p, vjp_log1p, false, cases_log1p)
UNARY(SIN, sin, vjp_sin, false, cases_any)
UNARY(COS, cos, vjp_cos, false, cases_any)
UNARY(TANH, tanh, vjp_tanh, false, cases_any)
UNARY(ERF, erf, vjp_erf, false, cases_any)
UNARY(SIGMOID, sigmoid, vjp_sigmoid, false, cases_any)
UNARY(SOFTPLUS, softplus, vjp_softplus, false, cases_any)
UNARY(RELU, relu, vjp_relu, false, cases_kink)
UNARY(SILU, silu, vjp_silu, false, cases_any)
UNARY(GELU, gelu, vjp_gelu, false, cases_any)
UNARY(GELU_SLOPE, gelu_slope, vjp_gelu_slope, false, cases_any)
UNARY(GELU_TANH, gelu_tanh, vjp_gelu_tanh, false, cases_any)
UNARY(NOT, not, NULL, true, cases_bool1)
TEST_BOOL(IS_FINITE, is_finite)
TEST_BOOL(IS_NAN, is_nan)
MAP(ADD, add, 2, SAME, 3, vjp_add, false, cases_two)
BINARY(SUB, sub, SAME, 3, vjp_sub, false, cases_two)
MAP_SIMPLE(MUL, mul, 2, SAME, 3, vjp_mul, false, cases_two, simplify_mul)
MAP_SIMPLE(DIV, div, 2, SAME, 3, vjp_div, false, cases_divide, simplify_div)
BINARY(POW, pow, SAME, 3, vjp_pow, false, cases_pow)
BINARY(MAX, max, SAME, 3, vjp_max, false, cases_apart)
BINARY(MIN, min, SAME, 3, vjp_min, false, cases_apart)
BINARY(MOD, mod, SAME, 3, vjp_mod, false, cases_mod)
BINARY(AND, and, SAME, 3, NULL, true, cases_bool2)
BINARY(OR, or, SAME, 3, NULL, true, cases_bool2)
BINARY(XOR, xor, SAME, 3, NULL, true, cases_bool2)
BINARY(EQ, eq, BOOL, 0, NULL, true, cases_two)
BINARY(NE, ne, BOOL, 0, NULL, true, cases_two)
BINARY(LT, lt, BOOL, 0, NULL, true, cases_two)
BINARY(LE, le, BOOL, 0, NULL, true, cases_two)
BINARY(GT, gt, BOOL, 0, NULL, true, cases_two)
BINARY(GE, ge, BOOL, 0, NULL, true, cases_two)

pl_val pl_mul(pl_graph *g, pl_val a, pl_val b)
{
    return binary(g, &pl_op_mul, a, b);
}

pl_val pl_div(pl_graph *g, pl_val a, pl_val b)
{
    return binary(g, &pl_op_div, a, b);
}

MAP(SELECT, select, 3, SAME, 6, vjp_select, false, cases_select)

pl_val pl_select(pl_graph *g, pl_val cond, pl_val a, pl_val b)
{
    pl_type tc = pl_val_type(g, cond), ta = pl_val_type(g, a), tb = pl_val_type(g, b), t, u;
    if (!pl_val_ok(cond) || !pl_val_ok(a) || !pl_val_ok(b)) return PL_NO_VAL;
    if (!common_shape(g, "select", &ta, &tb, &t) || !common_shape(g, "select", &tc, &t, &u))
        return PL_NO_VAL;
    pl_val in[3] = {stretch(g, cond, &u), stretch(g, a, &u), stretch(g, b, &u)};
    return pl_build1(g, &pl_op_select, NULL, 3, in);
}

/* ---- leaky_relu: the function with an immediate ----------------------------------------- */
static const pl_attr leaky_attrs[] = {PL_ATTR(pl_leaky_attr, slope, FLOAT), PL_ATTR_END};

static double leaky_slope(const void *attr)
{
    return ((const pl_leaky_attr *)attr)->slope;
}

static pl_status ref_leaky_relu(const pl_call *c)
{
    pl_map_ref(PL_SCALAR_LEAKY_RELU, c, leaky_slope(c->attr));
    return PL_OK;
}

static pl_status infer_leaky_relu(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)attr;
    return map_infer(PL_SCALAR_LEAKY_RELU, in, n_in, false, out);
}

static const pl_kernel kernels_leaky_relu[] = {{"ref", NULL, NULL, NULL, ref_leaky_relu},
                                               PL_KERNEL_END};
const pl_op pl_op_leaky_relu = {
    .name = "leaky_relu",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .scalar = PL_SCALAR_LEAKY_RELU,
    .flags = PL_OP_MAP,
    .inplace = {1},
    .attr_bytes = sizeof(pl_leaky_attr),
    .attrs = leaky_attrs,
    .infer = infer_leaky_relu,
    .vjp = vjp_leaky_relu,
    .cpu = kernels_leaky_relu,
    .cases = cases_leaky,
    .immediate = leaky_slope,
    .scaling = &pl_map_scaling[PL_SCALAR_LEAKY_RELU],
};

pl_val pl_leaky_relu(pl_graph *g, pl_val x, double slope)
{
    pl_leaky_attr a = {slope};
    return pl_build1(g, &pl_op_leaky_relu, &a, 1, &x);
}

/* ---- cast ------------------------------------------------------------------------------- */
static const pl_attr cast_attrs[] = {PL_ATTR(pl_cast_attr, to, DTYPE), PL_ATTR_END};

static pl_status cast_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    PL_FAIL_IF(((pl_cast_attr *)attr)->to >= PL_N_DTYPES, PL_ERR_ARG,
               "the element type is invalid");
    out[0] = in[0];
    out[0].dtype = ((pl_cast_attr *)attr)->to;
    return PL_OK;
}

static pl_status cast_ref(const pl_call *c)
{
    pl_map_ref(PL_SCALAR_CAST, c, 0);
    return PL_OK;
}

static void cast_vjp(const pl_vjp *v)
{
    v->gin[0] = pl_cast(v->g, D, pl_val_type(v->g, A).dtype);
}

/* A weight is dequantized to the type that its reader needs. */
static pl_val simplify_cast(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)n_in;
    return pl_dequantize_as(g, in[0], ((const pl_cast_attr *)attr)->to);
}

static const pl_kernel cast_kernels[] = {{"ref", NULL, NULL, NULL, cast_ref}, PL_KERNEL_END};
static const pl_case cast_cases[] = {{{"f32[3,5]"}, "to=f64", {{-2, 2, false}}},
                                     {{"f32[7]"}, "to=bf16", {{-2, 2, false}}},
                                     {{"f32[7]"}, "to=f16", {{-2, 2, false}}},
                                     {{"f32[7]"}, "to=i32", {{-9, 9, false}}},
                                     {{"u8[7]"}, "to=f32", {{0, 255, false}}},
                                     {{"i64[7]"}, "to=f32", {{-99, 99, false}}},
                                     PL_CASE_END};
const pl_op pl_op_cast = {
    .name = "cast",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .scalar = PL_SCALAR_CAST,
    .flags = PL_OP_MAP,
    .attr_bytes = sizeof(pl_cast_attr),
    .attrs = cast_attrs,
    .infer = cast_infer,
    .vjp = cast_vjp,
    .cpu = cast_kernels,
    .cases = cast_cases,
    .simplify = simplify_cast,
    .scaling = &pl_map_scaling[PL_SCALAR_CAST],
};

pl_val pl_cast(pl_graph *g, pl_val x, pl_dtype to)
{
    if (!pl_val_ok(x) || pl_val_type(g, x).dtype == to) return x;
    pl_cast_attr a = {to};
    return pl_build1(g, &pl_op_cast, &a, 1, &x);
}

/* ---- sugar ------------------------------------------------------------------------------ */
pl_val pl_scale(pl_graph *g, pl_val x, double by)
{
    return pl_mul(g, x, pl_full_like(g, x, by));
}

pl_val pl_shift(pl_graph *g, pl_val x, double by)
{
    return pl_add(g, x, pl_full_like(g, x, by));
}

/* Not max and min: an element on a bound gets the whole gradient. */
pl_val pl_clamp(pl_graph *g, pl_val x, double lo, double hi)
{
    pl_val low = pl_full_like(g, x, lo), high = pl_full_like(g, x, hi);
    return pl_select(g, pl_lt(g, x, low), low, pl_select(g, pl_gt(g, x, high), high, x));
}

pl_val pl_nan_to_num(pl_graph *g, pl_val x)
{
    static const double largest[PL_N_DTYPES] = {[PL_F32] = 3.4028234663852886e38,
                                                [PL_F64] = 1.7976931348623157e308,
                                                [PL_BF16] = 3.3895313892515355e38,
                                                [PL_F16] = 65504};
    double big = largest[pl_val_type(g, x).dtype];
    pl_val clean = pl_select(g, pl_is_nan(g, x), pl_full_like(g, x, 0), x);
    return pl_clamp(g, clean, -big, big);
}
