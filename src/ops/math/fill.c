/* fill.c - values without inputs: fill (one constant) and iota (a coordinate, or a sum of
 * coordinates times whole steps).
 *
 * In a group they are immediates and cost nothing; alone they are written to memory.
 */
#include "base/dtype.h"
#include "base/err.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

#include <string.h>

static const pl_attr fill_attrs[] = {
    PL_ATTR(pl_fill_attr, dtype, DTYPE),
    PL_ATTR(pl_fill_attr, shape, DIMS),
    PL_ATTR(pl_fill_attr, value, FLOAT),
    PL_ATTR_END,
};
static const pl_attr iota_attrs[] = {
    PL_ATTR(pl_fill_attr, dtype, DTYPE),
    PL_ATTR(pl_fill_attr, shape, DIMS),
    PL_ATTR(pl_fill_attr, axis, INT),
    PL_ATTR(pl_fill_attr, steps, DIMS),
    PL_ATTR_END,
};

static pl_status fill_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)in, (void)n_in;
    pl_fill_attr *a = attr;
    PL_FAIL_IF(a->dtype >= PL_N_DTYPES, PL_ERR_ARG, "the element type is invalid");
    for (int i = 0; i < a->shape.n; i++)
        PL_FAIL_IF(a->shape.v[i] < 0, PL_ERR_SHAPE, "size %lld", (long long)a->shape.v[i]);
    out[0] = pl_type_make(a->dtype, a->shape.n, a->shape.v);
    return PL_OK;
}

static pl_status iota_infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_fill_attr *a = attr;
    if (a->axis < 0) a->axis += a->shape.n;
    PL_FAIL_IF(a->axis < 0 || a->axis >= a->shape.n, PL_ERR_ARG,
               "axis %lld does not exist: the rank is %d", (long long)a->axis, a->shape.n);
    PL_FAIL_IF(a->steps.n && a->steps.n != a->shape.n, PL_ERR_ARG,
               "%d steps were given for rank %d; give one step per dimension", a->steps.n,
               a->shape.n);
    return fill_infer(in, n_in, attr, out);
}

static void fill_ramp(const pl_call *c, pl_ramp *out)
{
    memset(out, 0, sizeof *out);
    out->base = ((const pl_fill_attr *)c->attr)->value;
}

static void iota_ramp(const pl_call *c, pl_ramp *out)
{
    const pl_fill_attr *a = c->attr;
    memset(out, 0, sizeof *out);
    if (!a->steps.n) out->step[a->axis] = 1;
    for (int i = 0; i < a->steps.n; i++) out->step[i] = (double)a->steps.v[i];
}

static pl_status fill_ref(const pl_call *c)
{
    double v = ((const pl_fill_attr *)c->attr)->value;
    int64_t n = pl_type_elems(c->out_type);
    for (int64_t i = 0; i < n; i++) pl_elem_set(c->out_type->dtype, c->out[0], i, v);
    return PL_OK;
}

static pl_status iota_ref(const pl_call *c)
{
    const pl_type *t = c->out_type;
    pl_ramp r;
    iota_ramp(c, &r);
    for (int64_t i = 0, n = pl_type_elems(t); i < n; i++) {
        double v = 0;
        int64_t left = i;
        for (int d = t->rank - 1; d >= 0; d--) {
            v += r.step[d] * (double)(left % t->dim[d]);
            left /= t->dim[d];
        }
        pl_elem_set(t->dtype, c->out[0], i, v);
    }
    return PL_OK;
}

static const pl_kernel fill_kernels[] = {{"ref", NULL, NULL, NULL, fill_ref}, PL_KERNEL_END};
static const pl_kernel iota_kernels[] = {{"ref", NULL, NULL, NULL, iota_ref}, PL_KERNEL_END};
static const pl_case fill_cases[] = {{{NULL}, "dtype=f32, shape=[3,5], value=2.5", {{0}}},
                                     {{NULL}, "dtype=i64, shape=[], value=-7", {{0}}},
                                     PL_CASE_END};
static const pl_case iota_cases[] = {
    {{NULL}, "dtype=f32, shape=[3,5], axis=1", {{0}}},
    {{NULL}, "dtype=i32, shape=[4,2,3], axis=0", {{0}}},
    {{NULL}, "dtype=u8, shape=[2,3,4], axis=0, steps=[8,0,1]", {{0}}},
    PL_CASE_END};

const pl_op pl_op_fill = {
    .name = "fill",
    .n_out = 1,
    .flags = PL_OP_FILL | PL_OP_NO_GRAD,
    .attr_bytes = sizeof(pl_fill_attr),
    .attrs = fill_attrs,
    .infer = fill_infer,
    .cpu = fill_kernels,
    .cases = fill_cases,
    .ramp = fill_ramp,
};
const pl_op pl_op_iota = {
    .name = "iota",
    .n_out = 1,
    .flags = PL_OP_FILL | PL_OP_NO_GRAD,
    .attr_bytes = sizeof(pl_fill_attr),
    .attrs = iota_attrs,
    .infer = iota_infer,
    .cpu = iota_kernels,
    .cases = iota_cases,
    .ramp = iota_ramp,
};

static pl_fill_attr attr_of(const pl_type *t)
{
    pl_fill_attr a;
    memset(&a, 0, sizeof a);
    a.dtype = t->dtype;
    a.shape.n = t->rank;
    memcpy(a.shape.v, t->dim, sizeof a.shape.v);
    return a;
}

pl_val pl_fill(pl_graph *g, pl_type type, double value)
{
    pl_fill_attr a = attr_of(&type);
    a.value = value;
    return pl_build1(g, &pl_op_fill, &a, 0, NULL);
}

pl_val pl_iota(pl_graph *g, pl_type type, int axis)
{
    pl_fill_attr a = attr_of(&type);
    a.axis = axis;
    return pl_build1(g, &pl_op_iota, &a, 0, NULL);
}

pl_val pl_full_like(pl_graph *g, pl_val x, double value)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    return pl_fill(g, pl_val_type(g, x), value);
}
