/* flip.c - reverses elements along a set of axes. Its own inverse, so its own gradient. */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_flip_attr, axes, DIMS), PL_ATTR_END};

static uint32_t axes_mask(const void *attr)
{
    const pl_dims *d = &((const pl_flip_attr *)attr)->axes;
    uint32_t m = 0;
    for (int i = 0; i < d->n; i++) m |= (uint32_t)1 << d->v[i];
    return m;
}

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_dims *d = &((pl_flip_attr *)attr)->axes;
    uint32_t seen = 0;
    for (int i = 0; i < d->n; i++) {
        PL_TRY(pl_shape_axis(&d->v[i], &in[0]));
        PL_FAIL_IF(seen >> d->v[i] & 1, PL_ERR_ARG, "axis %lld is named twice", (long long)d->v[i]);
        seen |= (uint32_t)1 << d->v[i];
    }
    memset(d, 0, sizeof *d);
    for (int i = 0; i < in[0].rank; i++)
        if (seen >> i & 1) d->v[d->n++] = i;
    out[0] = in[0];
    return PL_OK;
}

static bool affine(const pl_call *c, pl_affine *out)
{
    const pl_type *x = &c->in_type[0];
    uint32_t mask = axes_mask(c->attr);
    memset(out, 0, sizeof *out);
    pl_shape_strides(x, out->stride);
    for (int i = 0; i < x->rank; i++) {
        if (!(mask >> i & 1)) continue;
        out->offset += (x->dim[i] - 1) * out->stride[i];
        out->stride[i] = -out->stride[i];
    }
    return true;
}

static void vjp(const pl_vjp *v)
{
    v->gin[0] = pl_flip(v->g, v->gout[0], axes_mask(v->attr));
}

PL_AFFINE_KERNELS(affine)
static const pl_case cases[] = {
    {{"f32[7]"}, "axes=[0]", {{0}}},
    {{"f32[3,5,2]"}, "axes=[-1,0]", {{0}}},
    {{"f32[3,5,2]"}, "axes=[1]", {{0}}},
    {{"f32[1,4]"}, "axes=[0]", {{0}}},
    {{"u8[3,5]"}, "axes=[0,1]", {{0, 255, false}}},
    PL_CASE_END,
};
const pl_op pl_op_flip = {
    .name = "flip",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_AFFINE,
    .attr_bytes = sizeof(pl_flip_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .affine = affine,
};

pl_val pl_flip(pl_graph *g, pl_val x, uint32_t axes)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    pl_flip_attr a;
    memset(&a, 0, sizeof a);
    if (!pl__axes_of_mask(g, "flip", &t, axes, &a.axes)) return PL_NO_VAL;
    return a.axes.n == 0 ? x : pl_build1(g, &pl_op_flip, &a, 1, &x);
}
