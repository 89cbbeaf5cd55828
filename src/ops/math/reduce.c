/* reduce.c - sum, max_over, min_over and moments over a set of axes; mean, softmax, log_softmax.
 *
 *   sum       y = sum of x                      empty: 0
 *   max_over  y = largest x, NaN if any is NaN  empty: an error
 *   moments   mean and biased variance, two outputs
 *
 * The attributes hold the axes sorted and non-negative; keep leaves them in the shape with size 1.
 * Accumulation is in f32 or better and rounds once: bf16 and f16 never accumulate in 16 bits.
 * Moments of bf16 and f16 come out in f32, since what is computed from them (a norm's scale) needs
 * the precision. A maximum or minimum shared by several elements shares its gradient equally among
 * them.
 *
 * softmax and log_softmax are compositions: the largest element is subtracted first (as a constant:
 * the result does not depend on it, so no gradient flows there), and the nodes fuse.
 *
 * The kernels here are the reference; reductions run in tile groups.
 */
#include "base/dtype.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <math.h>
#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_reduce_attr, axes, DIMS),
    PL_ATTR(pl_reduce_attr, keep, BOOL),
    PL_ATTR_END,
};

static uint32_t axes_mask(const void *attr)
{
    const pl_dims *d = &((const pl_reduce_attr *)attr)->axes;
    uint32_t m = 0;
    for (int i = 0; i < d->n; i++) m |= (uint32_t)1 << d->v[i];
    return m;
}

/* ---- shape rules ------------------------------------------------------------------------ */
/* Sorts the axes and makes them non-negative; *elems = number of elements reduced to one. */
static pl_status normalise(const pl_type *x, pl_dims *axes, int64_t *elems)
{
    uint32_t mask = 0;
    *elems = 1;
    for (int i = 0; i < axes->n; i++) {
        PL_TRY(pl_shape_axis(&axes->v[i], x));
        PL_FAIL_IF(mask >> axes->v[i] & 1, PL_ERR_ARG, "axis %lld is named twice",
                   (long long)axes->v[i]);
        mask |= (uint32_t)1 << axes->v[i];
        *elems *= x->dim[axes->v[i]];
    }
    memset(axes, 0, sizeof *axes);
    for (int i = 0; i < x->rank; i++)
        if (mask >> i & 1) axes->v[axes->n++] = i;
    return PL_OK;
}

static pl_type reduced(const pl_type *x, uint32_t mask, bool keep)
{
    pl_type y = pl_type_make(x->dtype, 0, NULL);
    for (int i = 0; i < x->rank; i++) {
        if (!(mask >> i & 1))
            y.dim[y.rank++] = x->dim[i];
        else if (keep)
            y.dim[y.rank++] = 1;
    }
    return y;
}

static pl_status sum_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_reduce_attr *a = attr;
    int64_t elems;
    char x[96];
    PL_TRY(normalise(&in[0], &a->axes, &elems));
    PL_FAIL_IF(in[0].dtype == PL_BOOL || in[0].dtype == PL_U8, PL_ERR_SHAPE,
               "%s would overflow; cast it to i32 or f32 first", pl_type_text(&in[0], x, sizeof x));
    out[0] = reduced(&in[0], axes_mask(a), a->keep);
    return PL_OK;
}

static pl_status extreme_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_reduce_attr *a = attr;
    int64_t elems;
    char x[96];
    PL_TRY(normalise(&in[0], &a->axes, &elems));
    PL_FAIL_IF(elems == 0, PL_ERR_SHAPE,
               "%s has size 0 along the reduced axes, so it has no minimum or maximum",
               pl_type_text(&in[0], x, sizeof x));
    out[0] = reduced(&in[0], axes_mask(a), a->keep);
    return PL_OK;
}

static pl_status moments_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    char x[96];
    PL_FAIL_IF(!pl_dtype_is_float(in[0].dtype), PL_ERR_SHAPE, "needs a float type, got %s",
               pl_type_text(&in[0], x, sizeof x));
    PL_TRY(extreme_infer(in, n_in, attr, out));
    if (in[0].dtype != PL_F64) out[0].dtype = PL_F32;
    out[1] = out[0];
    return PL_OK;
}

/* ---- reference -------------------------------------------------------------------------- */
/* The input as two nested shapes: the kept dims and the reduced dims. */
typedef struct folding {
    int64_t keep_dim[PL_MAX_RANK], keep_stride[PL_MAX_RANK];
    int64_t fold_dim[PL_MAX_RANK], fold_stride[PL_MAX_RANK];
    int64_t n_keep, n_fold; /* elements of each */
    int keep_rank, fold_rank;
} folding;

static folding folding_of(const pl_call *c)
{
    folding f = {.n_keep = 1, .n_fold = 1};
    const pl_type *x = &c->in_type[0];
    int64_t stride[PL_MAX_RANK];
    uint32_t mask = axes_mask(c->attr);
    pl_shape_strides(x, stride);
    for (int i = 0; i < x->rank; i++) {
        if (mask >> i & 1) {
            f.fold_dim[f.fold_rank] = x->dim[i];
            f.fold_stride[f.fold_rank++] = stride[i];
            f.n_fold *= x->dim[i];
        } else {
            f.keep_dim[f.keep_rank] = x->dim[i];
            f.keep_stride[f.keep_rank++] = stride[i];
            f.n_keep *= x->dim[i];
        }
    }
    return f;
}

/* Returns element j of the elements reduced to output element i. */
static int64_t folded_at(const folding *f, int64_t i, int64_t j)
{
    return pl_shape_at(i, f->keep_rank, f->keep_dim, f->keep_stride) +
           pl_shape_at(j, f->fold_rank, f->fold_dim, f->fold_stride);
}

static pl_status sum_ref(const pl_call *c)
{
    folding f = folding_of(c);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t i = 0; i < f.n_keep; i++) {
        double s = 0;
        uint64_t whole = 0; /* a double does not hold every i64 */
        for (int64_t j = 0; j < f.n_fold; j++) {
            if (d == PL_I64)
                whole += (uint64_t)((const int64_t *)c->in[0])[folded_at(&f, i, j)];
            else
                s += pl_elem_get(d, c->in[0], folded_at(&f, i, j));
        }
        if (d == PL_I64)
            ((int64_t *)c->out[0])[i] = (int64_t)whole;
        else
            pl_elem_set(d, c->out[0], i, s);
    }
    return PL_OK;
}

static pl_status extreme_ref(const pl_call *c, bool is_max)
{
    folding f = folding_of(c);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t i = 0; i < f.n_keep; i++) {
        int64_t best = folded_at(&f, i, 0);
        for (int64_t j = 1; j < f.n_fold; j++) {
            int64_t at = folded_at(&f, i, j);
            double v = pl_elem_get(d, c->in[0], at), b = pl_elem_get(d, c->in[0], best);
            if (!isnan(b) && (isnan(v) || (is_max ? v > b : v < b))) best = at;
        }
        pl_elem_set(d, c->out[0], i, pl_elem_get(d, c->in[0], best));
    }
    return PL_OK;
}

static pl_status max_ref(const pl_call *c)
{
    return extreme_ref(c, true);
}

static pl_status min_ref(const pl_call *c)
{
    return extreme_ref(c, false);
}

/* Two passes: the variance of numbers far from zero stays accurate. */
static pl_status moments_ref(const pl_call *c)
{
    folding f = folding_of(c);
    pl_dtype d = c->in_type[0].dtype;
    for (int64_t i = 0; i < f.n_keep; i++) {
        double s = 0, q = 0;
        for (int64_t j = 0; j < f.n_fold; j++) s += pl_elem_get(d, c->in[0], folded_at(&f, i, j));
        double mean = s / (double)f.n_fold;
        for (int64_t j = 0; j < f.n_fold; j++) {
            double e = pl_elem_get(d, c->in[0], folded_at(&f, i, j)) - mean;
            q += e * e;
        }
        pl_elem_set(c->out_type[0].dtype, c->out[0], i, mean);
        pl_elem_set(c->out_type[1].dtype, c->out[1], i, q / (double)f.n_fold);
    }
    return PL_OK;
}

/* ---- gradients -------------------------------------------------------------------------- */
/* Broadcasts a reduced value back over the input's shape; keeps its dtype. */
static pl_val spread(const pl_vjp *v, pl_val y)
{
    pl_type x = pl_val_type(v->g, v->in[0]);
    pl_type kept = reduced(&x, axes_mask(v->attr), true);
    return pl_broadcast(v->g, pl_reshape(v->g, y, kept.rank, kept.dim), x.rank, x.dim);
}

static void sum_vjp(const pl_vjp *v)
{
    v->gin[0] = spread(v, v->gout[0]);
}

static void extreme_vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    const pl_reduce_attr *a = v->attr;
    pl_val hit = pl_eq(g, v->in[0], spread(v, v->out[0]));
    pl_val count =
        pl_sum(g, pl_cast(g, hit, pl_val_type(g, v->in[0]).dtype), axes_mask(a), a->keep);
    pl_val share = spread(v, pl_div(g, v->gout[0], count));
    v->gin[0] = pl_select(g, hit, share, pl_full_like(g, share, 0));
}

/* d mean/dx = 1/n; d var/dx = 2 (x - mean)/n, because the change of the mean cancels. */
static void moments_vjp(const pl_vjp *v)
{
    pl_graph *g = v->g;
    pl_type x = pl_val_type(g, v->in[0]), y = pl_val_type(g, v->out[0]);
    int64_t n = pl_type_elems(&x) / (pl_type_elems(&y) ? pl_type_elems(&y) : 1);
    pl_val d = PL_NO_VAL, by_n = PL_NO_VAL;
    if (pl_val_ok(v->gout[1])) {
        pl_val off = pl_sub(g, pl_cast(g, v->in[0], y.dtype), spread(v, v->out[0]));
        d = pl_mul(g, off, spread(v, pl_scale(g, v->gout[1], 2.0 / (double)n)));
    }
    if (pl_val_ok(v->gout[0])) {
        by_n = spread(v, pl_scale(g, v->gout[0], 1.0 / (double)n));
        d = pl_val_ok(d) ? pl_add(g, d, by_n) : by_n;
    }
    v->gin[0] = pl_cast(g, d, x.dtype);
}

/* ---- descriptors ------------------------------------------------------------------------ */
static pl_cost one_flop(const pl_call *c, double flops)
{
    pl_cost k = {flops * (double)pl_type_elems(&c->in_type[0]),
                 (double)pl_type_bytes(&c->in_type[0])};
    for (int i = 0; i < c->n_out; i++) k.bytes += (double)pl_type_bytes(&c->out_type[i]);
    return k;
}

static pl_cost cost(const pl_call *c)
{
    return one_flop(c, 1);
}

static pl_cost moments_cost(const pl_call *c)
{
    return one_flop(c, 4);
}

#define REDUCTION(fn, FN)                                                                          \
 static void fn##_reduction(const pl_call *c, pl_reduction *out)                                   \
 {                                                                                                 \
  *out = (pl_reduction){PL_REDUCE_##FN, axes_mask(c->attr)};                                       \
 }
REDUCTION(sum, SUM)
REDUCTION(max, MAX)
REDUCTION(min, MIN)
REDUCTION(moments, MOMENTS)

static const pl_kernel sum_kernels[] = {{"ref", NULL, NULL, NULL, sum_ref}, PL_KERNEL_END};
static const pl_kernel max_kernels[] = {{"ref", NULL, NULL, NULL, max_ref}, PL_KERNEL_END};
static const pl_kernel min_kernels[] = {{"ref", NULL, NULL, NULL, min_ref}, PL_KERNEL_END};
static const pl_kernel moments_kernels[] = {{"ref", NULL, NULL, NULL, moments_ref}, PL_KERNEL_END};

static const pl_case sum_cases[] = {
    {{"f32[7]"}, "axes=[0], keep=false", {{0}}},
    {{"f32[3,5,2]"}, "axes=[-1,0], keep=false", {{0}}},
    {{"f32[3,5,2]"}, "axes=[1], keep=true", {{0}}},
    {{"f32[1,9,1]"}, "axes=[0,1,2], keep=false", {{0}}},
    {{"f32[4,3]"}, "axes=[], keep=false", {{0}}},
    {{"f32[0,3]"}, "axes=[0], keep=false", {{0}}},
    {{"i64[4,3]"}, "axes=[0], keep=false", {{-9, 9, false}}},
    PL_CASE_END,
};
static const pl_case extreme_cases[] = {
    {{"f32[7]"}, "axes=[0], keep=false", {{-2, 2, true}}},
    {{"f32[3,5,2]"}, "axes=[-1,0], keep=false", {{-2, 2, true}}},
    {{"f32[3,5,2]"}, "axes=[1], keep=true", {{-2, 2, true}}},
    {{"f32[1,1]"}, "axes=[0,1], keep=false", {{-2, 2, true}}},
    {{"i32[4,3]"}, "axes=[1], keep=false", {{-9, 9, false}}},
    PL_CASE_END,
};
static const pl_case moments_cases[] = {
    {{"f32[7]"}, "axes=[0], keep=false", {{-2, 2, false}}},
    {{"f32[3,5,2]"}, "axes=[0,1], keep=false", {{-2, 2, false}}},
    {{"f32[3,5,2]"}, "axes=[-1], keep=true", {{1, 2, false}}},
    {{"f32[3,1]"}, "axes=[1], keep=false", {{-2, 2, false}}},
    PL_CASE_END,
};

#define REDUCE_OP(op, fn, infer_fn, vjp_fn, cost_fn, case_list, outs)                              \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = 1,                                                                                  \
     .max_in = 1,                                                                                  \
     .n_out = outs,                                                                                \
     .flags = PL_OP_REDUCE,                                                                        \
     .attr_bytes = sizeof(pl_reduce_attr),                                                         \
     .attrs = attrs,                                                                               \
     .infer = infer_fn,                                                                            \
     .vjp = vjp_fn,                                                                                \
     .cost = cost_fn,                                                                              \
     .cpu = fn##_kernels,                                                                          \
     .cases = case_list,                                                                           \
     .reduction = fn##_reduction,                                                                  \
 };
REDUCE_OP(sum, sum, sum_infer, sum_vjp, cost, sum_cases, 1)
REDUCE_OP(max_over, max, extreme_infer, extreme_vjp, cost, extreme_cases, 1)
REDUCE_OP(min_over, min, extreme_infer, extreme_vjp, cost, extreme_cases, 1)
REDUCE_OP(moments, moments, moments_infer, moments_vjp, moments_cost, moments_cases, 2)

/* ---- constructors ----------------------------------------------------------------------- */
static bool attr_of(pl_graph *g, pl_val x, uint32_t mask, bool keep, pl_reduce_attr *a)
{
    pl_type t = pl_val_type(g, x);
    memset(a, 0, sizeof *a);
    a->keep = keep;
    return pl_val_ok(x) && pl__axes_of_mask(g, "reduction", &t, mask, &a->axes);
}

static pl_val reduce_build(pl_graph *g, const pl_op *op, pl_val x, uint32_t axes, bool keep)
{
    pl_reduce_attr a;
    if (!attr_of(g, x, axes, keep, &a)) return PL_NO_VAL;
    return a.axes.n == 0 ? x : pl_build1(g, op, &a, 1, &x);
}

pl_val pl_sum(pl_graph *g, pl_val x, uint32_t axes, bool keep)
{
    return reduce_build(g, &pl_op_sum, x, axes, keep);
}

pl_val pl_max_over(pl_graph *g, pl_val x, uint32_t axes, bool keep)
{
    return reduce_build(g, &pl_op_max_over, x, axes, keep);
}

pl_val pl_min_over(pl_graph *g, pl_val x, uint32_t axes, bool keep)
{
    return reduce_build(g, &pl_op_min_over, x, axes, keep);
}

void pl_moments(pl_graph *g, pl_val x, uint32_t axes, bool keep, pl_val *mean, pl_val *var)
{
    pl_reduce_attr a;
    pl_val out[2] = {PL_NO_VAL, PL_NO_VAL};
    if (attr_of(g, x, axes, keep, &a)) pl_build(g, &pl_op_moments, &a, 1, &x, out);
    *mean = out[0];
    *var = out[1];
}

/* Returns bf16 and f16 in f32, other types unchanged: for compositions that would round at every
 * node. */
static pl_val widened(pl_graph *g, pl_val x)
{
    pl_dtype d = pl_val_type(g, x).dtype;
    return d == PL_BF16 || d == PL_F16 ? pl_cast(g, x, PL_F32) : x;
}

pl_val pl_mean(pl_graph *g, pl_val x, uint32_t axes, bool keep)
{
    pl_val s = pl_sum(g, widened(g, x), axes, keep);
    if (!pl_val_ok(s)) return PL_NO_VAL;
    pl_type tx = pl_val_type(g, x), ts = pl_val_type(g, s);
    if (!pl_dtype_is_float(tx.dtype) || pl_type_elems(&tx) == 0) {
        char text[96];
        pl_graph_fail(g, PL_ERR_SHAPE, "mean of %s", pl_type_text(&tx, text, sizeof text));
        return PL_NO_VAL;
    }
    double n = (double)(pl_type_elems(&tx) / pl_type_elems(&ts));
    return pl_cast(g, pl_scale(g, s, 1 / n), tx.dtype);
}

/* x minus its largest element along the axis, in f32 or better; *mask gets the axis's bit. */
static pl_val centred(pl_graph *g, pl_val x, int axis, uint32_t *mask)
{
    int rank = pl_val_type(g, x).rank;
    if (!pl_val_ok(x)) return PL_NO_VAL;
    if (axis < -rank || axis >= rank) {
        pl_graph_fail(g, PL_ERR_ARG, "softmax along axis %d of rank %d", axis, rank);
        return PL_NO_VAL;
    }
    *mask = PL_AXIS(axis < 0 ? axis + rank : axis);
    pl_val w = widened(g, x);
    return pl_sub(g, w, pl_stop_gradient(g, pl_max_over(g, w, *mask, true)));
}

pl_val pl_softmax(pl_graph *g, pl_val x, int axis)
{
    uint32_t mask = 0;
    pl_val e = pl_exp(g, centred(g, x, axis, &mask));
    pl_val y = pl_div(g, e, pl_sum(g, e, mask, true));
    return pl_cast(g, y, pl_val_type(g, x).dtype);
}

pl_val pl_log_softmax(pl_graph *g, pl_val x, int axis)
{
    uint32_t mask = 0;
    pl_val z = centred(g, x, axis, &mask);
    pl_val y = pl_sub(g, z, pl_log(g, pl_sum(g, pl_exp(g, z), mask, true)));
    return pl_cast(g, y, pl_val_type(g, x).dtype);
}
