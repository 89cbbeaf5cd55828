/* broadcast.c - broadcasts x to a larger shape, NumPy's rule (dims align at the end).
 *
 * Its gradient is the sum over the broadcast dims. In a group it is a read with stride 0.
 */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_broadcast_attr, shape, DIMS), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    const pl_dims *s = &((pl_broadcast_attr *)attr)->shape;
    out[0] = pl_type_make(in[0].dtype, s->n, s->v);
    char x[96], y[96];
    bool ok = in[0].rank <= s->n;
    for (int i = 1; ok && i <= in[0].rank; i++) {
        int64_t d = in[0].dim[in[0].rank - i];
        ok = d == 1 || d == s->v[s->n - i];
    }
    PL_FAIL_IF(!ok, PL_ERR_SHAPE, "%s cannot be broadcast to %s", pl_type_text(&in[0], x, sizeof x),
               pl_type_text(&out[0], y, sizeof y));
    return PL_OK;
}

static bool affine(const pl_call *c, pl_affine *out)
{
    const pl_type *x = &c->in_type[0], *y = &c->out_type[0];
    memset(out, 0, sizeof *out);
    int64_t stride = 1;
    for (int i = 1; i <= x->rank; i++) {
        int64_t d = x->dim[x->rank - i];
        if (d != 1) out->stride[y->rank - i] = stride;
        stride *= d;
    }
    return true;
}

static void vjp(const pl_vjp *v)
{
    pl_type x = pl_val_type(v->g, v->in[0]), y = pl_val_type(v->g, v->gout[0]);
    uint32_t axes = 0;
    for (int i = 0; i < y.rank; i++) {
        int k = i - (y.rank - x.rank);
        if (k < 0 || (x.dim[k] == 1 && y.dim[i] != 1)) axes |= PL_AXIS(i);
    }
    pl_val s = axes ? pl_sum(v->g, v->gout[0], axes, true) : v->gout[0];
    v->gin[0] = pl_reshape(v->g, s, x.rank, x.dim);
}

/* A broadcast to the same shape is x; of a constant it is a larger constant. */
static pl_val simplify(pl_graph *g, const void *attr, const pl_val *in, int n_in)
{
    (void)n_in;
    const pl_dims *s = &((const pl_broadcast_attr *)attr)->shape;
    pl_type x = pl_val_type(g, in[0]), y = pl_type_make(x.dtype, s->n, s->v);
    double c;
    if (pl_type_equal(&x, &y)) return in[0];
    return pl_fill_of(g, in[0], &c) ? pl_fill(g, y, c) : PL_NO_VAL;
}

PL_AFFINE_KERNELS(affine)
static const pl_case cases[] = {{{"f32[3,1]"}, "shape=[2,3,4]", {{0}}},
                                {{"f32[]"}, "shape=[5]", {{0}}},
                                {{"f32[1,4]"}, "shape=[3,4]", {{0}}},
                                PL_CASE_END};
const pl_op pl_op_broadcast = {
    .name = "broadcast",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_AFFINE,
    .attr_bytes = sizeof(pl_broadcast_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .affine = affine,
    .simplify = simplify,
};

pl_val pl_broadcast(pl_graph *g, pl_val x, int rank, const int64_t *dim)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_broadcast_attr a;
    memset(&a, 0, sizeof a);
    if (rank < 0 || rank > PL_MAX_RANK) {
        pl_graph_fail(g, PL_ERR_ARG, "broadcast to rank %d; at most %d", rank, PL_MAX_RANK);
        return PL_NO_VAL;
    }
    a.shape.n = rank;
    memcpy(a.shape.v, dim, (size_t)rank * sizeof *dim);
    return pl_build1(g, &pl_op_broadcast, &a, 1, &x);
}
