/* reshape.c - the same bytes under another shape, and stop_gradient; both are views.
 *
 * reshape keeps row-major order, so its output is always its input's memory, at offset 0. A
 * constructor that would change nothing creates no node. stop_gradient is the identity with
 * gradient zero by definition.
 */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_reshape_attr, shape, DIMS), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_dims *s = &((pl_reshape_attr *)attr)->shape;
    int64_t have = pl_type_elems(&in[0]), known = 1, open = -1;
    char x[96], y[96];
    pl_type asked = pl_type_make(in[0].dtype, s->n, s->v);
    for (int i = 0; i < s->n; i++) {
        if (s->v[i] != -1) {
            PL_FAIL_IF(s->v[i] < 0 || __builtin_mul_overflow(known, s->v[i], &known), PL_ERR_ARG,
                       "size %lld of dimension %d is invalid: give a size of 0 or more, or -1 once",
                       (long long)s->v[i], i);
            continue;
        }
        PL_FAIL_IF(open >= 0, PL_ERR_ARG, "two sizes are -1 in the reshape of %s; one may be",
                   pl_type_text(&asked, y, sizeof y));
        open = i;
    }
    if (open >= 0 && known > 0 && have % known == 0) {
        s->v[open] = have / known;
        known = have;
    }
    PL_FAIL_IF(known != have || (open >= 0 && s->v[open] < 0), PL_ERR_SHAPE,
               "%s has %lld elements, but the shape %s needs %s%lld",
               pl_type_text(&in[0], x, sizeof x), (long long)have,
               pl_type_text(&asked, y, sizeof y), open >= 0 ? "a multiple of " : "",
               (long long)known);
    out[0] = pl_type_make(in[0].dtype, s->n, s->v);
    return PL_OK;
}

static bool view(const pl_call *c, int64_t *byte_offset)
{
    (void)c;
    *byte_offset = 0;
    return true;
}

/* memmove: a caller may hand in the same memory. */
static pl_status copy(const pl_call *c)
{
    memmove(c->out[0], c->in[0], pl_type_bytes(&c->in_type[0]));
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    pl_type x = pl_val_type(v->g, v->in[0]);
    v->gin[0] = pl_reshape(v->g, v->gout[0], x.rank, x.dim);
}

/* A reshape of a reshape is one reshape, or none. */
static pl_val simplify(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)n_in;
    const pl_reshape_attr *a = attr;
    const pl_node_rec *r = pl_node_get(g, pl_producer(g, in[0].id));
    if (r->op != &pl_op_reshape) return PL_NO_VAL;
    return pl_reshape(g, (pl_val){g->edges[r->in]}, a->shape.n, a->shape.v);
}

/* A reshape of padded rows, before the slice instead of after it. */
static bool padded(pl_graph *g, const pl_padding *p, const void *attr, const pl_val *in, int n_in,
                   pl_val *out)
{
    (void)p, (void)n_in;
    pl_dims to = ((const pl_reshape_attr *)attr)->shape;
    pl_val wide = pl__wide_with_zeros_of(g, in[0]);
    if (!pl_val_ok(wide) || to.n == 0) return false;
    pl_type x = pl_val_type(g, in[0]), w = pl_val_type(g, wide);
    int64_t row = x.dim[x.rank - 1];
    if (to.v[to.n - 1] != row) return false;
    to.v[to.n - 1] = w.dim[w.rank - 1];
    out[0] = pl_slice(g, pl_reshape(g, wide, to.n, to.v), -1, 0, row, 1);
    return true;
}

static const pl_kernel kernels[] = {{"ref", NULL, NULL, NULL, copy}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[3,4]"}, "shape=[2,6]", {{0}}}, {{"f32[3,4]"}, "shape=[-1]", {{0}}},
    {{"f32[1]"}, "shape=[]", {{0}}},      {{"f32[3,5,1]"}, "shape=[1,5,-1,1]", {{0}}},
    {{"i64[0,3]"}, "shape=[3,0]", {{0}}}, PL_CASE_END,
};
const pl_op pl_op_reshape = {
    .name = "reshape",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_VIEW,
    .inplace = {1},
    .attr_bytes = sizeof(pl_reshape_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .view = view,
    .simplify = simplify,
    .padded = padded,
};

static pl_status stop_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in, (void)attr;
    out[0] = in[0];
    return PL_OK;
}

/* Passes run after all gradients were taken: the node then equals its input. */
static pl_val stop_simplify(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)g, (void)n_in;
    return ((const pl_stop_attr *)attr)->shared ? in[0] : PL_NO_VAL;
}

static const pl_attr stop_attrs[] = {PL_ATTR(pl_stop_attr, shared, BOOL), PL_ATTR_END};
static const pl_case stop_cases[] = {
    {{"f32[3,5]"}, "shared=false", {{0}}}, {{"f32[]"}, "shared=true", {{0}}}, PL_CASE_END};
const pl_op pl_op_stop_gradient = {
    .name = "stop_gradient",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_stop_attr),
    .attrs = stop_attrs,
    .flags = PL_OP_VIEW | PL_OP_NO_GRAD,
    .inplace = {1},
    .infer = stop_infer,
    .cpu = kernels,
    .cases = stop_cases,
    .view = view,
    .simplify = stop_simplify,
};

/* ---- constructors ----------------------------------------------------------------------- */
pl_val pl_reshape(pl_graph *g, pl_val x, int rank, const int64_t *dim)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    if (rank < 0 || rank > PL_MAX_RANK) {
        pl_graph_fail(g, PL_ERR_ARG, "reshape to rank %d; at most %d", rank, PL_MAX_RANK);
        return PL_NO_VAL;
    }
    pl_type t = pl_val_type(g, x), to = pl_type_make(t.dtype, rank, dim);
    if (pl_type_equal(&t, &to)) return x;
    pl_reshape_attr a;
    memset(&a, 0, sizeof a);
    a.shape.n = rank;
    memcpy(a.shape.v, to.dim, sizeof a.shape.v);
    return pl_build1(g, &pl_op_reshape, &a, 1, &x);
}

static pl_val stop(pl_graph *g, pl_val x, bool shared)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_stop_attr a;
    memset(&a, 0, sizeof a);
    a.shared = shared;
    return pl_build1(g, &pl_op_stop_gradient, &a, 1, &x);
}

pl_val pl_stop_gradient(pl_graph *g, pl_val x)
{
    return stop(g, x, false);
}

pl_val pl_stop_gradient_shared(pl_graph *g, pl_val x)
{
    return stop(g, x, true);
}

/* A negative axis counts from the end; *axis is made positive and must be below n. */
static bool axis_in(pl_graph *g, const char *what, int *axis, int n)
{
    int at = *axis < 0 ? *axis + n : *axis;
    if (at < 0 || at >= n) {
        pl_graph_fail(g, PL_ERR_ARG, "%s: axis %d, allowed are %d to %d", what, *axis, -n, n - 1);
        return false;
    }
    *axis = at;
    return true;
}

pl_val pl_flatten(pl_graph *g, pl_val x, int first, int last)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    if (!axis_in(g, "flatten", &first, t.rank) || !axis_in(g, "flatten", &last, t.rank))
        return PL_NO_VAL;
    if (first > last) {
        pl_graph_fail(g, PL_ERR_ARG, "flatten: first axis %d is after last axis %d", first, last);
        return PL_NO_VAL;
    }
    int64_t dim[PL_MAX_RANK], size = 1;
    int rank = 0;
    for (int i = 0; i < t.rank; i++) {
        if (i >= first && i <= last) size *= t.dim[i];
        if (i == last)
            dim[rank++] = size;
        else if (i < first || i > last)
            dim[rank++] = t.dim[i];
    }
    return pl_reshape(g, x, rank, dim);
}

pl_val pl_unsqueeze(pl_graph *g, pl_val x, int axis)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    if (t.rank == PL_MAX_RANK) {
        pl_graph_fail(g, PL_ERR_ARG, "unsqueeze: the rank is %d already", t.rank);
        return PL_NO_VAL;
    }
    if (!axis_in(g, "unsqueeze", &axis, t.rank + 1)) return PL_NO_VAL;
    int64_t dim[PL_MAX_RANK];
    for (int i = 0; i <= t.rank; i++) dim[i] = i < axis ? t.dim[i] : i == axis ? 1 : t.dim[i - 1];
    return pl_reshape(g, x, t.rank + 1, dim);
}

pl_val pl_squeeze(pl_graph *g, pl_val x, int axis)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    if (!axis_in(g, "squeeze", &axis, t.rank)) return PL_NO_VAL;
    if (t.dim[axis] != 1) {
        char s[96];
        pl_graph_fail(g, PL_ERR_SHAPE, "squeeze: axis %d of %s is not 1", axis,
                      pl_type_text(&t, s, sizeof s));
        return PL_NO_VAL;
    }
    int64_t dim[PL_MAX_RANK] = {0};
    for (int i = 0; i + 1 < t.rank; i++) dim[i] = t.dim[i < axis ? i : i + 1];
    return pl_reshape(g, x, t.rank - 1, dim);
}
