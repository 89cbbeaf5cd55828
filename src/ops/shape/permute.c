/* permute.c - dimensions in another order: output dimension i is input dimension perm[i].
 *
 * The gradient is the inverse permutation. When only dimensions of size 1 move, the bytes do not
 * move and the constructor makes a reshape, which is free. Alone it runs as a tiled transposition:
 * reading through strides, as a group would, wastes most of each cache line.
 */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_permute_attr, perm, DIMS), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    (void)n_in;
    pl_dims *p = &((pl_permute_attr *)attr)->perm;
    char x[96];
    uint32_t seen = 0;
    PL_FAIL_IF(p->n != in[0].rank, PL_ERR_ARG,
               "%d dimensions were given for %s; give each dimension once", p->n,
               pl_type_text(&in[0], x, sizeof x));
    out[0] = in[0];
    for (int i = 0; i < p->n; i++) {
        PL_TRY(pl_shape_axis(&p->v[i], &in[0]));
        PL_FAIL_IF(seen >> p->v[i] & 1, PL_ERR_ARG, "dimension %lld of %s is given twice",
                   (long long)p->v[i], pl_type_text(&in[0], x, sizeof x));
        seen |= (uint32_t)1 << p->v[i];
        out[0].dim[i] = in[0].dim[p->v[i]];
    }
    return PL_OK;
}

static bool affine(const pl_call *c, pl_affine *out)
{
    const pl_dims *p = &((const pl_permute_attr *)c->attr)->perm;
    int64_t stride[PL_MAX_RANK];
    memset(out, 0, sizeof *out);
    pl_shape_strides(&c->in_type[0], stride);
    for (int i = 0; i < p->n; i++) out->stride[i] = stride[p->v[i]];
    return true;
}

static void vjp(const pl_vjp *v)
{
    const pl_dims *p = &((const pl_permute_attr *)v->attr)->perm;
    int back[PL_MAX_RANK];
    for (int i = 0; i < p->n; i++) back[p->v[i]] = i;
    v->gin[0] = pl_permute(v->g, v->gout[0], back);
}

PL_AFFINE_KERNELS(affine)
static const pl_case cases[] = {
    {{"f32[3,5]"}, "perm=[1,0]", {{0}}},
    {{"f32[2,3,4,5]"}, "perm=[0,2,-1,1]", {{0}}},
    {{"f32[37,1,41]"}, "perm=[2,1,0]", {{0}}},
    {{"f32[2,3,5,7]"}, "perm=[0,2,1,3]", {{0}}},
    {{"f32[3,1]"}, "perm=[1,0]", {{0}}},
    {{"u8[5,34]"}, "perm=[1,0]", {{0, 255, false}}},
    {{"i64[33,6]"}, "perm=[1,0]", {{-9, 9, false}}},
    PL_CASE_END,
};
const pl_op pl_op_permute = {
    .name = "permute",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .flags = PL_OP_AFFINE,
    .attr_bytes = sizeof(pl_permute_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .affine = affine,
};

/* ---- constructors ----------------------------------------------------------------------- */
/* True when the dimensions larger than 1 keep their order. */
static bool keeps_order(const pl_type *t, const int *perm)
{
    int before = -1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[perm[i]] == 1) continue;
        if (perm[i] < before) return false;
        before = perm[i];
    }
    return true;
}

pl_val pl_permute(pl_graph *g, pl_val x, const int *perm)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    pl_permute_attr a;
    memset(&a, 0, sizeof a);
    a.perm.n = t.rank;
    int at[PL_MAX_RANK];
    int64_t dim[PL_MAX_RANK] = {0};
    uint32_t seen = 0;
    for (int i = 0; i < t.rank; i++) {
        a.perm.v[i] = perm[i];
        at[i] = perm[i] < 0 ? perm[i] + t.rank : perm[i];
        if (at[i] < 0 || at[i] >= t.rank) continue;
        seen |= (uint32_t)1 << at[i];
        dim[i] = t.dim[at[i]];
    }
    /* infer reports a malformed permutation. */
    if (seen == ((uint32_t)1 << t.rank) - 1 && keeps_order(&t, at))
        return pl_reshape(g, x, t.rank, dim);
    return pl_build1(g, &pl_op_permute, &a, 1, &x);
}

pl_val pl_transpose(pl_graph *g, pl_val x, int a, int b)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t i = a, j = b;
    if (pl_shape_axis(&i, &t) != PL_OK || pl_shape_axis(&j, &t) != PL_OK) {
        pl_graph_adopt_error(g, PL_ERR_ARG);
        return PL_NO_VAL;
    }
    int perm[PL_MAX_RANK];
    for (int k = 0; k < t.rank; k++) perm[k] = k == i ? (int)j : k == j ? (int)i : k;
    return pl_permute(g, x, perm);
}
