/* concat.c - joins tensors along one axis; stack joins them along a new axis.
 *
 * Each input is one strided copy into its part of the output. The gradient is the slice of each
 * part. Any number of inputs, at least one. Along the outermost axis a part is one run of bytes,
 * and the plan may let the producer write the input there: then nothing is copied.
 */
#include "cpu/kernels/strided.h"
#include "ops/core/attr.h"
#include "ops/core/labels.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

static const pl_attr attrs[] = {PL_ATTR(pl_concat_attr, axis, INT), PL_ATTR_END};

static pl_status infer(const pl_type *in, int n_in, void *attr, pl_type *out)
{
    pl_concat_attr *a = attr;
    PL_TRY(pl_shape_axis(&a->axis, &in[0]));
    out[0] = in[0];
    for (int i = 1; i < n_in; i++) {
        pl_type fits = in[0];
        char x[96], y[96];
        if (in[i].rank == fits.rank) fits.dim[a->axis] = in[i].dim[a->axis];
        PL_FAIL_IF(!pl_type_equal(&in[i], &fits), PL_ERR_SHAPE,
                   "input 0, %s, and input %d, %s, may differ only along axis %lld",
                   pl_type_text(&in[0], x, sizeof x), i, pl_type_text(&in[i], y, sizeof y),
                   (long long)a->axis);
        PL_FAIL_IF(
            __builtin_add_overflow(out[0].dim[a->axis], in[i].dim[a->axis], &out[0].dim[a->axis]),
            PL_ERR_SHAPE, "the sum of the sizes along axis %lld overflows", (long long)a->axis);
    }
    return PL_OK;
}

static void vjp(const pl_vjp *v)
{
    int axis = (int)((const pl_concat_attr *)v->attr)->axis;
    int64_t at = 0;
    for (int i = 0; i < v->n_in; i++) {
        int64_t n = pl_val_type(v->g, v->in[i]).dim[axis];
        if (v->need[i]) v->gin[i] = pl_slice(v->g, v->gout[0], axis, at, at + n, 1);
        at += n;
    }
}

/* Whether the part is one run of bytes: no axis outside. */
static bool join(const pl_call *c, int i, int64_t *byte_offset)
{
    int64_t axis = ((const pl_concat_attr *)c->attr)->axis, at = 0;
    if (pl_shape_lines(&c->out_type[0], axis).outer != 1) return false;
    for (int k = 0; k < i; k++) at += (int64_t)pl_type_bytes(&c->in_type[k]);
    *byte_offset = at;
    return true;
}

static pl_status ref(const pl_call *c)
{
    int64_t axis = ((const pl_concat_attr *)c->attr)->axis, at = 0;
    size_t elem = pl_dtype_bytes(c->out_type[0].dtype);
    pl_lines y = pl_shape_lines(&c->out_type[0], axis);
    for (int k = 0; k < c->n_in; k++) {
        pl_lines x = pl_shape_lines(&c->in_type[k], axis);
        size_t run = (size_t)(x.size * x.inner) * elem;
        for (int64_t o = 0; o < x.outer && run; o++) {
            char *to = (char *)c->out[0] + (size_t)((o * y.size + at) * y.inner) * elem;
            const char *from = (const char *)c->in[k] + (size_t)o * run;
            if (to != from) memcpy(to, from, run);
        }
        at += x.size;
    }
    return PL_OK;
}

static pl_status strided(const pl_call *c)
{
    int64_t axis = ((const pl_concat_attr *)c->attr)->axis, at = 0;
    const pl_type *y = &c->out_type[0];
    size_t elem = pl_dtype_bytes(y->dtype);
    pl_strided_box b = {.rank = y->rank};
    pl_shape_strides(y, b.to);
    for (int k = 0; k < c->n_in; k++) {
        memcpy(b.dim, c->in_type[k].dim, sizeof b.dim);
        pl_shape_strides(&c->in_type[k], b.from);
        char *to = (char *)c->out[0] + (size_t)(at * b.to[axis]) * elem;
        if (to != c->in[k]) pl_strided_copy(&b, elem, to, c->in[k]);
        at += c->in_type[k].dim[axis];
    }
    return PL_OK;
}

static const pl_kernel kernels[] = {
    {"strided", NULL, NULL, NULL, strided}, {"ref", NULL, NULL, NULL, ref}, PL_KERNEL_END};
static const pl_case cases[] = {
    {{"f32[3,2]", "f32[3,5]"}, "axis=-1", {{0}}},
    {{"f32[1,4]", "f32[3,4]", "f32[2,4]"}, "axis=0", {{0}}},
    {{"f32[2,3,5]", "f32[2,1,5]"}, "axis=1", {{0}}},
    {{"f32[7]"}, "axis=0", {{0}}},
    {{"f32[2,0]", "f32[2,3]"}, "axis=1", {{0}}},
    {{"u8[3,1]", "u8[3,2]"}, "axis=1", {{0, 255, false}}},
    PL_CASE_END,
};
static void labels(const pl_call *c, pl_labels *l)
{
    int64_t axis = ((const pl_concat_attr *)c->attr)->axis;
    pl_label_off_axis(c, l, axis);
    for (int i = 0; i < PL_LABEL_IN; i++) {
        memcpy(l->in[i], l->in[0], sizeof l->in[0]);
        l->in[i][axis] = PL_LABEL_JOIN;
    }
    l->out[0][axis] = PL_LABEL_JOIN;
    l->plus = ~(uint32_t)0;
}

const pl_op pl_op_concat = {
    .name = "concat",
    .min_in = 1,
    .max_in = -1,
    .n_out = 1,
    .width = PL_WIDTH_FOLLOW,
    .attr_bytes = sizeof(pl_concat_attr),
    .attrs = attrs,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernels,
    .cases = cases,
    .labels = labels,
    .join = join,
};

/* ---- constructors ----------------------------------------------------------------------- */
pl_val pl_concat(pl_graph *g, int n, const pl_val *x, int axis)
{
    pl_concat_attr a = {axis};
    if (n == 1) return x[0];
    return pl_build1(g, &pl_op_concat, &a, n, x);
}

pl_val pl_stack(pl_graph *g, int n, const pl_val *x, int axis)
{
    if (!g || g->status != PL_OK) return PL_NO_VAL;
    if (n < 1) {
        pl_graph_fail(g, PL_ERR_ARG, "stack of %d values", n);
        return PL_NO_VAL;
    }
    pl_arena scratch = PL_ARENA_INIT;
    pl_val *with_axis = pl_arena_new(&scratch, pl_val, n), y = PL_NO_VAL;
    if (!with_axis) {
        pl_graph_adopt_error(g, PL_ERR_MEMORY);
    } else {
        for (int i = 0; i < n; i++) with_axis[i] = pl_unsqueeze(g, x[i], axis);
        y = pl_concat(g, n, with_axis, axis);
    }
    pl_arena_release(&scratch);
    return y;
}
