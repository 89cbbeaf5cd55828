/* write_math.c - scalar functions, reductions, sorting and values from nothing as ONNX nodes. */
#include "onnx/write/write.h"
#include "ops/core/attr.h"

#include <math.h>
#include <string.h>

/* ---- scalar functions that ONNX does not have: pl_ow_map_NAME(w, operands)
 * ---------------------- */
static pl_dtype dtype_of(const pl_ow *w)
{
    return pl_type_of(w->g, pl_ow_arg(w, 0))->dtype;
}

static const char *number(pl_ow *w, double v)
{
    return pl_ow_number(w, dtype_of(w), v);
}

/* ONNX rounds floats only. */
const char *pl_ow_map_floor(pl_ow *w, const char *const *in)
{
    return pl_dtype_is_float(dtype_of(w)) ? pl_ow_1(w, "Floor", in[0]) : in[0];
}

const char *pl_ow_map_round(pl_ow *w, const char *const *in)
{
    return pl_dtype_is_float(dtype_of(w)) ? pl_ow_1(w, "Round", in[0]) : in[0];
}

const char *pl_ow_map_square(pl_ow *w, const char *const *in)
{
    return pl_ow_2(w, "Mul", in[0], in[0]);
}

const char *pl_ow_map_rsqrt(pl_ow *w, const char *const *in)
{
    return pl_ow_1(w, "Reciprocal", pl_ow_1(w, "Sqrt", in[0]));
}

/* u = 1 + x is rounded: log(u) - ((u - 1) - x) / u corrects the rounding error, which keeps small x
 * accurate. An infinite u has no correction. */
const char *pl_ow_map_log1p(pl_ow *w, const char *const *in)
{
    const char *one = number(w, 1), *u = pl_ow_2(w, "Add", in[0], one);
    const char *lost = pl_ow_2(w, "Sub", pl_ow_2(w, "Sub", u, one), in[0]);
    const char *log = pl_ow_1(w, "Log", u);
    const char *exact = pl_ow_2(w, "Sub", log, pl_ow_2(w, "Div", lost, u));
    const char *huge = pl_ow_1(w, "IsInf", log); /* of u = 0 and of an infinite u */
    return pl_ow_op(w, "Where", OW_IN(huge, log, exact), NULL);
}

const char *pl_ow_map_leaky_relu(pl_ow *w, const char *const *in)
{
    const pl_leaky_attr *a = pl_ow_attr_of(w);
    return pl_ow_op(w, "LeakyRelu", OW_IN(in[0]), OW_ATTRS(OW_F("alpha", a->slope)));
}

const char *pl_ow_map_silu(pl_ow *w, const char *const *in)
{
    return pl_ow_2(w, "Mul", in[0], pl_ow_1(w, "Sigmoid", in[0]));
}

/* x (1 + f) / 2 */
static const char *half_of(pl_ow *w, const char *x, const char *f)
{
    const char *one = pl_ow_2(w, "Add", f, number(w, 1));
    return pl_ow_2(w, "Mul", pl_ow_2(w, "Mul", x, number(w, 0.5)), one);
}

const char *pl_ow_map_gelu(pl_ow *w, const char *const *in)
{
    const char *at = pl_ow_2(w, "Mul", in[0], number(w, 1 / sqrt(2)));
    return half_of(w, in[0], pl_ow_1(w, "Erf", at));
}

/* Phi(x) + x phi(x) */
const char *pl_ow_map_gelu_slope(pl_ow *w, const char *const *in)
{
    const char *x = in[0], *one = number(w, 1);
    const char *at = pl_ow_2(w, "Mul", x, number(w, 1 / sqrt(2)));
    const char *cdf = half_of(w, one, pl_ow_1(w, "Erf", at));
    const char *square = pl_ow_2(w, "Mul", pl_ow_2(w, "Mul", x, x), number(w, -0.5));
    const char *pdf = pl_ow_2(w, "Mul", pl_ow_1(w, "Exp", square), number(w, 0.3989422804014327));
    return pl_ow_2(w, "Add", cdf, pl_ow_2(w, "Mul", x, pdf));
}

const char *pl_ow_map_gelu_tanh(pl_ow *w, const char *const *in)
{
    const double pi = 3.14159265358979323846;
    const char *x = in[0], *cube = pl_ow_2(w, "Mul", pl_ow_2(w, "Mul", x, x), x);
    const char *sum = pl_ow_2(w, "Add", x, pl_ow_2(w, "Mul", cube, number(w, 0.044715)));
    return half_of(w, x, pl_ow_1(w, "Tanh", pl_ow_2(w, "Mul", sum, number(w, sqrt(2 / pi)))));
}

const char *pl_ow_map_is_finite(pl_ow *w, const char *const *in)
{
    const char *bad = pl_ow_2(w, "Or", pl_ow_1(w, "IsInf", in[0]), pl_ow_1(w, "IsNaN", in[0]));
    return pl_ow_1(w, "Not", bad);
}

/* The result has the sign of the divisor; ONNX computes that for whole numbers only. */
const char *pl_ow_map_mod(pl_ow *w, const char *const *in)
{
    if (!pl_dtype_is_float(dtype_of(w))) return pl_ow_2(w, "Mod", in[0], in[1]);
    const char *r = pl_ow_op(w, "Mod", OW_IN(in[0], in[1]), OW_ATTRS(OW_I("fmod", 1)));
    const char *zero = number(w, 0);
    const char *other = pl_ow_2(w, "Less", pl_ow_2(w, "Mul", r, in[1]), zero);
    return pl_ow_op(w, "Where", OW_IN(other, pl_ow_2(w, "Add", r, in[1]), r), NULL);
}

const char *pl_ow_map_ne(pl_ow *w, const char *const *in)
{
    return pl_ow_1(w, "Not", pl_ow_2(w, "Equal", in[0], in[1]));
}

/* ---- casts and values from nothing ------------------------------------------------------ */
void pl_ow_write_cast(pl_ow *w)
{
    const pl_cast_attr *a = pl_ow_attr_of(w);
    const int *order = pl_ow_order(w, pl_ow_arg(w, 0));
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), order);
    const char *y = pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(a->to))));
    pl_ow_set(w, pl_ow_result(w, 0), y, order);
}

void pl_ow_write_fill(pl_ow *w)
{
    (void)w; /* pl_ow_in and pl_ow_operand write it where it is used */
}

/* A sum of ramps, one for each dimension with a step. */
void pl_ow_write_iota(pl_ow *w)
{
    const pl_type *t = pl_type_of(w->g, pl_ow_result(w, 0));
    const pl_fill_attr *a = pl_ow_attr_of(w);
    const char *sum = NULL;
    for (int d = 0; d < t->rank; d++) {
        double step = a->steps.n ? (double)a->steps.v[d] : d == a->axis ? 1 : 0;
        if (step == 0) continue;
        int64_t dim[PL_MAX_RANK];
        double *v = pl_arena_new(&w->mem, double, t->dim[d] + 1);
        if (!v) {
            w->status = PL_ERR_MEMORY;
            return;
        }
        for (int i = 0; i < t->rank; i++) dim[i] = i == d ? t->dim[d] : 1;
        for (int64_t i = 0; i < t->dim[d]; i++) v[i] = (double)i * step;
        const char *ramp = pl_ow_numbers(w, pl_type_make(t->dtype, t->rank, dim), v);
        sum = sum ? pl_ow_2(w, "Add", sum, ramp) : ramp;
    }
    if (!sum) sum = pl_ow_number(w, t->dtype, 0);
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_2(w, "Expand", sum, pl_ow_ints(w, t->rank, t->dim)),
              NULL);
}

/* A draw is an input of the ONNX graph: its numbers are the engine's own. */
void pl_ow_write_draw(pl_ow *w)
{
    const char *name = pl_arena_printf(&w->mem, "draw.%d", w->info.draws++);
    if (!name) {
        w->status = PL_ERR_MEMORY;
        return;
    }
    pl_ow_declare(&w->inputs, 11, name, pl_type_of(w->g, pl_ow_result(w, 0)));
    pl_ow_set(w, pl_ow_result(w, 0), name, NULL);
}

/* ---- reductions ------------------------------------------------------------------------ */
typedef struct reduction {
    const char *x;
    int64_t axes[PL_MAX_RANK]; /* of the tensor x */
    int n, order[PL_MAX_RANK]; /* of the result */
    bool keep;
} reduction;

static reduction reduction_of(pl_ow *w)
{
    const pl_reduce_attr *a = pl_ow_attr_of(w);
    uint32_t val = pl_ow_arg(w, 0), mask = 0;
    const int *order = pl_ow_order(w, val);
    int rank = pl_type_of(w->g, val)->rank, n = 0;
    reduction r = {.x = pl_ow_in(w, val, order), .keep = a->keep};
    for (int i = 0; i < a->axes.n; i++) mask |= 1u << a->axes.v[i];
    for (int i = 0; i < rank; i++) {
        int d = order ? order[i] : i, before = 0;
        if (mask >> d & 1) r.axes[r.n++] = i;
        if (mask >> d & 1 && !a->keep) continue;
        for (int k = 0; k < d; k++) before += (mask >> k & 1) && !a->keep;
        r.order[n++] = d - before;
    }
    return r;
}

static const char *reduce(pl_ow *w, const char *op, const reduction *r, const char *x, bool keep)
{
    if (!r->n) return x;
    return pl_ow_op(w, op, OW_IN(x, pl_ow_ints(w, r->n, r->axes)),
                    OW_ATTRS(OW_I("keepdims", keep)));
}

static void write_reduction(pl_ow *w, const char *op)
{
    reduction r = reduction_of(w);
    const char *y = reduce(w, op, &r, r.x, r.keep);
    pl_ow_set(w, pl_ow_result(w, 0), y, r.order);
}

void pl_ow_write_sum(pl_ow *w)
{
    write_reduction(w, "ReduceSum");
}

void pl_ow_write_max_over(pl_ow *w)
{
    write_reduction(w, "ReduceMax");
}

void pl_ow_write_min_over(pl_ow *w)
{
    write_reduction(w, "ReduceMin");
}

void pl_ow_write_moments(pl_ow *w)
{
    reduction r = reduction_of(w);
    pl_dtype from = dtype_of(w), to = pl_type_of(w->g, pl_ow_result(w, 0))->dtype;
    if (from != to) r.x = pl_ow_op(w, "Cast", OW_IN(r.x), OW_ATTRS(OW_I("to", pl_ow_dtype(to))));
    const char *mean = reduce(w, "ReduceMean", &r, r.x, true);
    const char *d = pl_ow_2(w, "Sub", r.x, mean);
    const char *var = reduce(w, "ReduceMean", &r, pl_ow_2(w, "Mul", d, d), r.keep);
    if (!r.keep && r.n) mean = pl_ow_2(w, "Squeeze", mean, pl_ow_ints(w, r.n, r.axes));
    pl_ow_set(w, pl_ow_result(w, 0), mean, r.order);
    pl_ow_set(w, pl_ow_result(w, 1), var, r.order);
}

/* ---- along an axis --------------------------------------------------------------------- */
static const char *as_i32(pl_ow *w, const char *x)
{
    return pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(PL_I32))));
}

void pl_ow_write_argmax(pl_ow *w)
{
    const pl_argmax_attr *a = pl_ow_attr_of(w);
    const char *y = pl_ow_op(w, "ArgMax", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), NULL)),
                             OW_ATTRS(OW_I("axis", a->axis), OW_I("keepdims", 0)));
    pl_ow_set(w, pl_ow_result(w, 0), as_i32(w, y), NULL);
}

void pl_ow_write_cumsum(pl_ow *w)
{
    const pl_cumsum_attr *a = pl_ow_attr_of(w);
    const char *axis = pl_ow_number(w, PL_I64, (double)a->axis);
    const char *y = pl_ow_op(w, "CumSum", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), NULL), axis),
                             OW_ATTRS(OW_I("reverse", a->reverse)));
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}

void pl_ow_write_sort(pl_ow *w)
{
    const pl_sort_attr *a = pl_ow_attr_of(w);
    const char *out[2];
    pl_ow_op2(w, "TopK", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), NULL), pl_ow_int(w, a->count)),
              OW_ATTRS(OW_I("axis", a->axis), OW_I("largest", a->descending)), out);
    pl_ow_set(w, pl_ow_result(w, 0), out[0], NULL);
    pl_ow_set(w, pl_ow_result(w, 1), as_i32(w, out[1]), NULL);
}

/* ---- Bezier activation ----------------------------------------------------------------- */
/* y = u^3 p0 + 3 u^2 s p1 + 3 u s^2 p2 + s^3 p3 with s = sigmoid(t), u = 1 - s. */
void pl_ow_write_bezier(pl_ow *w)
{
    const pl_bezier_attr *a = pl_ow_attr_of(w);
    const pl_type *y = pl_type_of(w->g, pl_ow_result(w, 0));
    const int64_t dim[3] = {-1, y->dim[y->rank - 1], 5};
    const char *x = pl_ow_reshape(w, pl_ow_in(w, pl_ow_arg(w, 0), NULL), 3, dim), *p[5];
    for (int k = 0; k < 5; k++) {
        p[k] = pl_ow_slice(w, x, 2, k, k + 1, 1);
        if (k && a->silu_points) p[k] = pl_ow_map_silu(w, &p[k]);
    }
    const char *s = pl_ow_1(w, "Sigmoid", p[0]), *u = pl_ow_2(w, "Sub", number(w, 1), s);
    const char *sum = NULL;
    for (int k = 0; k < 4; k++) {
        const char *term = p[k + 1];
        for (int j = 0; j < 3; j++) term = pl_ow_2(w, "Mul", term, j < k ? s : u);
        if (k == 1 || k == 2) term = pl_ow_2(w, "Mul", term, number(w, 3));
        sum = sum ? pl_ow_2(w, "Add", sum, term) : term;
    }
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_reshape(w, sum, y->rank, y->dim), NULL);
}
