/* slice.c - every step-th element from start to below stop, on each axis.
 *
 * The attributes hold start and stop as 0 <= start <= stop <= size; in constructors negative ones
 * count from the end, and a stop of INT64_MAX is the end. A slice out of range is an error: shapes
 * are static, so it is a mistake in the model. The gradient is a pad with zeros. A slice that is
 * one run of memory (leading axis cut, the rest whole) is a view.
 */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {
    PL_ATTR(pl_slice_attr, start, DIMS),
    PL_ATTR(pl_slice_attr, stop, DIMS),
    PL_ATTR(pl_slice_attr, step, DIMS),
    PL_ATTR_END,
};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_slice_attr *a = attr;
    const pl_type *x = &in[0];
    char t[96];
    PL_FAIL_IF(a->start.n != x->rank || a->stop.n != x->rank || a->step.n != x->rank, PL_ERR_ARG,
               "%d starts, %d stops and %d steps were given for %s; give one of each per dimension",
               a->start.n, a->stop.n, a->step.n, pl_type_text(x, t, sizeof t));
    out[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t lo = a->start.v[i], hi = a->stop.v[i], step = a->step.v[i], n = x->dim[i];
        if (lo < 0) lo += n;
        if (hi < 0) hi += n;
        if (hi == INT64_MAX) hi = n;
        PL_FAIL_IF(lo < 0 || lo > hi || hi > n || step < 1, PL_ERR_SHAPE,
                   "start %lld, stop %lld and step %lld are not a range of axis %d of %s",
                   (long long)a->start.v[i], (long long)a->stop.v[i], (long long)step, i,
                   pl_type_text(x, t, sizeof t));
        a->start.v[i] = lo;
        a->stop.v[i] = hi;
        out[0].dim[i] = lo == hi ? 0 : (hi - lo - 1) / step + 1;
    }
    return PL_OK;
}

static bool affine(const pl_call *c, pl_affine *out)
{
    const pl_slice_attr *a = c->attr;
    int64_t stride[PL_MAX_RANK];
    memset(out, 0, sizeof *out);
    pl_shape_strides(&c->in_type[0], stride);
    for (int i = 0; i < c->in_type[0].rank; i++) {
        out->offset += a->start.v[i] * stride[i];
        out->stride[i] = a->step.v[i] * stride[i];
    }
    return true;
}

static bool view(const pl_call *c, int64_t *byte_offset)
{
    const pl_type *y = &c->out_type[0];
    pl_affine m;
    affine(c, &m);
    int64_t run = 1;
    for (int i = y->rank - 1; i >= 0; i--) {
        if (y->dim[i] != 1 && m.stride[i] != run) return false;
        run *= y->dim[i];
    }
    *byte_offset = run ? m.offset * (int64_t)pl_dtype_bytes(y->dtype) : 0;
    return true;
}

static void vjp(const pl_vjp *v)
{
    const pl_slice_attr *a = v->attr;
    pl_type x = pl_val_type(v->g, v->in[0]), y = pl_val_type(v->g, v->gout[0]);
    int64_t hi[PL_MAX_RANK], inner[PL_MAX_RANK];
    if (pl_type_elems(&y) == 0) return;
    for (int i = 0; i < x.rank; i++) {
        inner[i] = a->step.v[i] - 1;
        hi[i] = x.dim[i] - (a->start.v[i] + (y.dim[i] - 1) * a->step.v[i] + 1);
    }
    v->gin[0] = pl__pad_all(v->g, v->gout[0], a->start.v, hi, inner, 0);
}

PL_AFFINE_KERNELS(affine)
static const pl_case cases[] = {
    {{"f32[7]"}, "start=[2], stop=[6], step=[1]", {{0}}},
    {{"f32[5,3]"}, "start=[0,1], stop=[5,-1], step=[2,1]", {{0}}},
    {{"f32[4,5,6]"}, "start=[1,0,1], stop=[4,5,6], step=[1,3,2]", {{0}}},
    {{"f32[1,9]"}, "start=[0,-1], stop=[1,9], step=[1,1]", {{0}}},
    {{"f32[3,4]"}, "start=[1,2], stop=[1,4], step=[1,1]", {{0}}},
    {{"u8[3,5]"}, "start=[0,1], stop=[3,4], step=[1,1]", {{0, 255, false}}},
    PL_CASE_END,
};
const pl_op pl_op_slice = {
    .name = "slice",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_AFFINE | PL_OP_VIEW,
    .attr_bytes = sizeof(pl_slice_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .view = view,
    .affine = affine,
};

/* ---- constructors ----------------------------------------------------------------------- */
pl_val pl__slice_all(pl_graph *g, pl_val x, const int64_t *start, const int64_t *stop,
                     const int64_t *step)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_slice_attr a;
    memset(&a, 0, sizeof a);
    pl_type t = pl_val_type(g, x);
    bool whole = true;
    a.start.n = a.stop.n = a.step.n = t.rank;
    for (int i = 0; i < t.rank; i++) {
        a.start.v[i] = start[i];
        a.stop.v[i] = stop[i];
        a.step.v[i] = step[i];
        whole &= start[i] == 0 && stop[i] == t.dim[i] && step[i] == 1;
    }
    return whole ? x : pl_build1(g, &pl_op_slice, &a, 1, &x);
}

pl_val pl_slice(pl_graph *g, pl_val x, int axis, int64_t start, int64_t stop, int64_t step)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t lo[PL_MAX_RANK] = {0}, hi[PL_MAX_RANK], by[PL_MAX_RANK], at = axis;
    if (pl_shape_axis(&at, &t) != PL_OK) {
        pl_graph_adopt_error(g, PL_ERR_ARG);
        return PL_NO_VAL;
    }
    for (int i = 0; i < t.rank; i++) hi[i] = t.dim[i], by[i] = 1;
    lo[at] = start;
    hi[at] = stop;
    by[at] = step;
    return pl__slice_all(g, x, lo, hi, by);
}

void pl_split(pl_graph *g, pl_val x, int axis, int n, pl_val *out)
{
    for (int i = 0; i < n; i++) out[i] = PL_NO_VAL;
    if (!pl_val_ok(x)) return;
    pl_type t = pl_val_type(g, x);
    int64_t at = axis;
    if (pl_shape_axis(&at, &t) != PL_OK) {
        pl_graph_adopt_error(g, PL_ERR_ARG);
        return;
    }
    if (n < 1 || t.dim[at] % n != 0) {
        char s[96];
        pl_graph_fail(g, PL_ERR_SHAPE, "split: axis %lld of %s into %d equal parts", (long long)at,
                      pl_type_text(&t, s, sizeof s), n);
        return;
    }
    int64_t part = t.dim[at] / n;
    for (int i = 0; i < n; i++) out[i] = pl_slice(g, x, (int)at, i * part, (i + 1) * part, 1);
}
