/* write_net.c - products, convolutions, attention and cross-entropy as ONNX nodes. */
#include "onnx/write/write.h"
#include "ops/core/attr.h"
#include "ops/net/attention.h"
#include "ops/net/window.h"

#include <math.h>
#include <string.h>

/* ---- products -------------------------------------------------------------------------- */
/* The order of an operand whose last two dimensions are swapped. */
static const char *swapped(pl_ow *w, uint32_t val, bool swap)
{
    int rank = pl_type_of(w->g, val)->rank, perm[PL_MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 2] = rank - 1;
    perm[rank - 1] = rank - 2;
    return pl_ow_in(w, val, swap ? perm : NULL);
}

void pl_ow_write_matmul(pl_ow *w)
{
    const pl_matmul_attr *m = pl_ow_attr_of(w);
    uint32_t a = pl_ow_arg(w, 0), b = pl_ow_arg(w, 1);
    bool bias = pl_node_get(w->g, w->node)->n_in > 2;
    const char *c = bias ? pl_ow_in(w, pl_ow_arg(w, 2), NULL) : NULL, *y;
    if (pl_type_of(w->g, a)->rank == 2 && pl_type_of(w->g, b)->rank == 2) {
        y = pl_ow_op(w, "Gemm", OW_IN(pl_ow_in(w, a, NULL), pl_ow_in(w, b, NULL), c),
                     OW_ATTRS(OW_I("transA", m->ta), OW_I("transB", m->tb)));
    } else {
        y = pl_ow_2(w, "MatMul", swapped(w, a, m->ta), swapped(w, b, m->tb));
        if (bias) y = pl_ow_2(w, "Add", y, c);
    }
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}

/* ---- convolutions ---------------------------------------------------------------------- */
typedef struct conv_attrs {
    int64_t kernel[3], pads[6], extra[3];
} conv_attrs;

static conv_attrs attrs_of(const pl_window_attr *a, const pl_type *filter, int n)
{
    conv_attrs c = {{0}, {0}, {0}};
    for (int d = 0; d < n; d++) {
        c.kernel[d] = filter->dim[1 + d];
        c.pads[d] = a->pad_lo.v[d];
        c.pads[n + d] = a->pad_hi.v[d];
    }
    return c;
}

void pl_ow_write_conv(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    const pl_type *f = pl_type_of(w->g, pl_ow_arg(w, 1));
    int n = f->rank - 2, first[PL_MAX_RANK];
    conv_attrs c = attrs_of(a, f, n);
    pl_ow_first(f->rank, first);
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), first), *k = pl_ow_in(w, pl_ow_arg(w, 1), first);
    const char *bias =
        pl_node_get(w->g, w->node)->n_in > 2 ? pl_ow_in(w, pl_ow_arg(w, 2), NULL) : NULL;
    const char *y =
        pl_ow_op(w, "Conv", OW_IN(x, k, bias),
                 OW_ATTRS(OW_INTS("kernel_shape", n, c.kernel), OW_INTS("strides", n, a->stride.v),
                          OW_INTS("dilations", n, a->dilation.v), OW_INTS("pads", 2 * n, c.pads),
                          OW_I("group", a->groups)));
    pl_ow_set(w, pl_ow_result(w, 0), y, first);
}

/* The size of the result is in + extra, where in follows from the operand. */
void pl_ow_write_conv_dx(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    const pl_type *x = pl_type_of(w->g, pl_ow_arg(w, 0)), *f = pl_type_of(w->g, pl_ow_arg(w, 1));
    int n = f->rank - 2, first[PL_MAX_RANK];
    conv_attrs c = attrs_of(a, f, n);
    for (int d = 0; d < n; d++)
        c.extra[d] =
            a->in.v[d] - ((x->dim[1 + d] - 1) * a->stride.v[d] +
                          a->dilation.v[d] * (c.kernel[d] - 1) + 1 - c.pads[d] - c.pads[n + d]);
    pl_ow_first(f->rank, first);
    const char *y =
        pl_ow_op(w, "ConvTranspose",
                 OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), first), pl_ow_in(w, pl_ow_arg(w, 1), first)),
                 OW_ATTRS(OW_INTS("kernel_shape", n, c.kernel), OW_INTS("strides", n, a->stride.v),
                          OW_INTS("dilations", n, a->dilation.v), OW_INTS("pads", 2 * n, c.pads),
                          OW_INTS("output_padding", n, c.extra), OW_I("group", a->groups)));
    pl_ow_set(w, pl_ow_result(w, 0), y, first);
}

/* One convolution whose groups are the channels of all samples. */
void pl_ow_write_depthwise_per_sample(pl_ow *w)
{
    const pl_window_attr *a = pl_ow_attr_of(w);
    const pl_type *t[3] = {pl_type_of(w->g, pl_ow_arg(w, 0)), pl_type_of(w->g, pl_ow_arg(w, 1)),
                           pl_type_of(w->g, pl_ow_result(w, 0))};
    int rank = t[0]->rank, n = rank - 2, first[PL_MAX_RANK];
    int64_t groups = t[0]->dim[0] * t[0]->dim[rank - 1], dim[3][PL_MAX_RANK];
    conv_attrs c = attrs_of(a, t[1], n);
    pl_ow_first(rank, first);
    for (int k = 0; k < 3; k++) {
        dim[k][0] = k == 0 ? 1 : k == 1 ? groups : t[2]->dim[0];
        dim[k][1] = k == 0 ? groups : k == 1 ? 1 : t[2]->dim[rank - 1];
        for (int d = 0; d < n; d++) dim[k][2 + d] = t[k]->dim[1 + d];
    }
    const char *x = pl_ow_reshape(w, pl_ow_in(w, pl_ow_arg(w, 0), first), rank, dim[0]);
    const char *k = pl_ow_reshape(w, pl_ow_in(w, pl_ow_arg(w, 1), first), rank, dim[1]);
    const char *y =
        pl_ow_op(w, "Conv", OW_IN(x, k),
                 OW_ATTRS(OW_INTS("kernel_shape", n, c.kernel), OW_INTS("strides", n, a->stride.v),
                          OW_INTS("dilations", n, a->dilation.v), OW_INTS("pads", 2 * n, c.pads),
                          OW_I("group", groups)));
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_reshape(w, y, rank, dim[2]), first);
}

/* ---- attention ------------------------------------------------------------------------- */
/* True where query i sees key k: k <= i. */
static const char *earlier(pl_ow *w, int64_t queries, int64_t keys)
{
    double *v = pl_arena_new(&w->mem, double, (queries > keys ? queries : keys) + 1);
    if (!v) {
        w->status = PL_ERR_MEMORY;
        return "";
    }
    for (int64_t i = 0; i < queries || i < keys; i++) v[i] = (double)i;
    const char *row = pl_ow_numbers(w, PL_TYPE(PL_I64, queries, 1), v);
    return pl_ow_2(w, "LessOrEqual", pl_ow_numbers(w, PL_TYPE(PL_I64, 1, keys), v), row);
}

/* q [B,H,N,D], k [B,H,D,M], v [B,H,M,D]: softmax(q k scale) v, and the logarithm of the sum of
 * exponentials [B,H,N]. */
static void attend(pl_ow *w, const pl_type *o, int64_t keys, const char *const *qkv, double scale,
                   bool causal)
{
    static const int heads[] = {0, 2, 1, 3};
    const char *s = pl_ow_2(w, "MatMul", qkv[0], qkv[1]);
    s = pl_ow_2(w, "Mul", s, pl_ow_number(w, o->dtype, scale));
    if (causal)
        s = pl_ow_op(
            w, "Where",
            OW_IN(earlier(w, o->dim[1], keys), s, pl_ow_number(w, o->dtype, (double)-INFINITY)),
            NULL);
    const char *p = pl_ow_op(w, "Softmax", OW_IN(s), OW_ATTRS(OW_I("axis", -1)));
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_2(w, "MatMul", p, qkv[2]), heads);
    if (!w->used[pl_ow_result(w, 1)]) return;
    pl_ow_set(
        w, pl_ow_result(w, 1),
        pl_ow_op(w, "ReduceLogSumExp", OW_IN(s, pl_ow_int(w, -1)), OW_ATTRS(OW_I("keepdims", 0))),
        NULL);
}

/* An operand [B,M,G,D] of attention in another order, its heads second and repeated until there are
 * as many as the result has: ONNX's products need equal numbers of them. */
static const char *keys_of(pl_ow *w, uint32_t operand, const int *order)
{
    const pl_type *t = pl_type_of(w->g, operand);
    int64_t heads = pl_type_of(w->g, pl_ow_result(w, 0))->dim[2], x = t->dim[order[2]];
    int64_t y = t->dim[order[3]], times = t->dim[2] > 0 ? heads / t->dim[2] : 1;
    const char *k = pl_ow_in(w, operand, order);
    if (times <= 1) return k;
    k = pl_ow_reshape(w, k, PL_DIMS(t->dim[0], t->dim[2], 1, x, y));
    const int64_t more[] = {t->dim[0], t->dim[2], times, x, y};
    k = pl_ow_2(w, "Expand", k, pl_ow_ints(w, 5, more));
    return pl_ow_reshape(w, k, PL_DIMS(t->dim[0], heads, x, y));
}

/* q [B,N,H,D], k and v [B,M,G,D] */
void pl_ow_write_attention(pl_ow *w)
{
    static const int heads[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const pl_attention_attr *a = pl_ow_attr_of(w);
    const char *qkv[3] = {pl_ow_in(w, pl_ow_arg(w, 0), heads), keys_of(w, pl_ow_arg(w, 1), turned),
                          keys_of(w, pl_ow_arg(w, 2), heads)};
    attend(w, pl_type_of(w->g, pl_ow_result(w, 0)), pl_type_of(w->g, pl_ow_arg(w, 1))->dim[1], qkv,
           a->scale, a->causal);
}

static const char *cast_to(pl_ow *w, const char *x, pl_dtype to)
{
    return pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(to))));
}

/* The values that a mask adds to scores of type `wide`. */
static const char *mask_of(pl_ow *w, uint32_t mask, pl_dtype wide)
{
    pl_dtype type = pl_type_of(w->g, mask)->dtype;
    const char *x = pl_ow_in(w, mask, NULL), *least = pl_ow_number(w, wide, PL_ATTENTION_LEAST);
    if (type == PL_BOOL)
        return pl_ow_op(w, "Where", OW_IN(x, pl_ow_number(w, wide, 0), least), NULL);
    return pl_ow_2(w, "Max", type == wide ? x : cast_to(w, x, wide), least);
}

/* As attention, plus a mask; a query that sees no key gets zeros. Scores are f32 where f16 has no
 * number as small as what hides a key. */
void pl_ow_write_attention_masked(pl_ow *w)
{
    static const int heads[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const pl_attention_attr *a = pl_ow_attr_of(w);
    const pl_type *o = pl_type_of(w->g, pl_ow_result(w, 0));
    pl_dtype type = o->dtype, wide = type == PL_F64 ? PL_F64 : PL_F32;
    const char *last = pl_ow_int(w, -1);
    const char *s = pl_ow_2(w, "MatMul", pl_ow_in(w, pl_ow_arg(w, 0), heads),
                            keys_of(w, pl_ow_arg(w, 1), turned));
    if (type != wide) s = cast_to(w, s, wide);
    s = pl_ow_2(w, "Mul", s, pl_ow_number(w, wide, a->scale));
    s = pl_ow_2(w, "Add", s, mask_of(w, pl_ow_arg(w, 3), wide));
    if (a->causal)
        s = pl_ow_op(w, "Where",
                     OW_IN(earlier(w, o->dim[1], pl_type_of(w->g, pl_ow_arg(w, 1))->dim[1]), s,
                           pl_ow_number(w, wide, PL_ATTENTION_LEAST)),
                     NULL);
    const char *top = pl_ow_op(w, "ReduceMax", OW_IN(s, last), OW_ATTRS(OW_I("keepdims", 1)));
    const char *seen = pl_ow_2(w, "Greater", top, pl_ow_number(w, wide, PL_ATTENTION_HIDDEN));
    const char *p = pl_ow_op(w, "Softmax", OW_IN(s), OW_ATTRS(OW_I("axis", -1)));
    p = pl_ow_op(w, "Where", OW_IN(seen, p, pl_ow_number(w, wide, 0)), NULL);
    if (type != wide) p = cast_to(w, p, type);
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_2(w, "MatMul", p, keys_of(w, pl_ow_arg(w, 2), heads)),
              heads);
    if (!w->used[pl_ow_result(w, 1)]) return;
    const char *lse = pl_ow_op(w, "ReduceLogSumExp", OW_IN(s, last), OW_ATTRS(OW_I("keepdims", 1)));
    lse = pl_ow_op(w, "Where", OW_IN(seen, lse, pl_ow_number(w, wide, 0)), NULL);
    pl_ow_set(w, pl_ow_result(w, 1), pl_ow_2(w, "Squeeze", lse, last), NULL);
}

/* Parts of rows [B,N,3HD] (ops/net/attention_rows.c). */
void pl_ow_write_attention_rows(pl_ow *w)
{
    static const int heads[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const pl_attention_rows_attr *a = pl_ow_attr_of(w);
    const pl_type *o = pl_type_of(w->g, pl_ow_result(w, 0));
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL), *qkv[3];
    int64_t d = o->dim[3], at[3] = {a->q_at, a->k_at, a->v_at};
    const int64_t apart[5] = {o->dim[0], o->dim[1], a->heads, 3, d};
    bool whole = a->step == d; /* all heads of a part are adjacent */
    if (!whole) x = pl_ow_reshape(w, x, 5, apart);
    for (int i = 0; i < 3; i++) {
        int64_t from = whole ? at[i] : at[i] / d, n = whole ? a->heads * d : 1;
        const char *part = pl_ow_slice(w, x, whole ? 2 : 3, from, from + n, 1);
        part = pl_ow_reshape(w, part, 4, o->dim);
        qkv[i] = pl_ow_transpose(w, part, 4, i == 1 ? turned : heads);
    }
    attend(w, o, o->dim[1], qkv, a->scale, a->causal);
}

/* ---- cross-entropy --------------------------------------------------------------------- */
/* The formula of ops/net/cross_entropy.c, in the type of its sums. */
void pl_ow_write_cross_entropy(pl_ow *w)
{
    const pl_cross_entropy_attr *a = pl_ow_attr_of(w);
    uint32_t logits = pl_ow_arg(w, 0), labels = pl_ow_arg(w, 1);
    const pl_type *t = pl_type_of(w->g, logits);
    pl_dtype wide = pl_type_of(w->g, pl_ow_result(w, 0))->dtype, whole = PL_I64;
    int64_t n = a->classes ? a->classes : t->dim[t->rank - 1];
    double classes = (double)n, s = a->smoothing;
    const char *last = pl_ow_int(w, -1), *x = pl_ow_in(w, logits, NULL);
    if (n < t->dim[t->rank - 1]) x = pl_ow_slice(w, x, t->rank - 1, 0, n, 1);
    if (t->dtype != wide)
        x = pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(wide))));
    const char *y = pl_ow_op(w, "Cast", OW_IN(pl_ow_in(w, labels, NULL)),
                             OW_ATTRS(OW_I("to", pl_ow_dtype(whole))));
    const char *zero = pl_ow_number(w, whole, 0);
    const char *known = pl_ow_2(w, "And", pl_ow_2(w, "GreaterOrEqual", y, zero),
                                pl_ow_2(w, "Less", y, pl_ow_number(w, whole, classes)));
    const char *safe = pl_ow_op(w, "Where", OW_IN(known, y, zero), NULL);
    const char *lse = pl_ow_op(w, "ReduceLogSumExp", OW_IN(x, last), OW_ATTRS(OW_I("keepdims", 1)));
    const char *lost = pl_ow_2(w, "Sub", lse, x); /* -log softmax */
    const char *loss =
        pl_ow_op(w, "GatherElements", OW_IN(lost, pl_ow_2(w, "Unsqueeze", safe, last)),
                 OW_ATTRS(OW_I("axis", -1)));
    loss = pl_ow_2(w, "Squeeze", loss, last);
    const char *weight = a->weighted ? pl_ow_in(w, pl_ow_arg(w, 2), NULL) : NULL;
    if (weight)
        loss = pl_ow_2(w, "Mul", loss,
                       pl_ow_op(w, "Gather", OW_IN(weight, safe), OW_ATTRS(OW_I("axis", 0))));
    if (s > 0) {
        const char *all = weight ? pl_ow_2(w, "Mul", lost, weight) : lost;
        all = pl_ow_op(w, "ReduceSum", OW_IN(all, last), OW_ATTRS(OW_I("keepdims", 0)));
        loss = pl_ow_2(w, "Add", pl_ow_2(w, "Mul", loss, pl_ow_number(w, wide, 1 - s)),
                       pl_ow_2(w, "Mul", all, pl_ow_number(w, wide, s / classes)));
    }
    lse = pl_ow_2(w, "Squeeze", lse, last);
    if (a->z_loss != 0)
        loss = pl_ow_2(
            w, "Add", loss,
            pl_ow_2(w, "Mul", pl_ow_2(w, "Mul", lse, lse), pl_ow_number(w, wide, a->z_loss)));
    loss = pl_ow_op(w, "Where", OW_IN(known, loss, pl_ow_number(w, wide, (double)NAN)), NULL);
    if (a->ignores) {
        const char *out = pl_ow_2(w, "Equal", y, pl_ow_number(w, whole, (double)a->ignore));
        loss = pl_ow_op(w, "Where", OW_IN(out, pl_ow_number(w, wide, 0), loss), NULL);
    }
    pl_ow_set(w, pl_ow_result(w, 0), loss, NULL);
    pl_ow_set(w, pl_ow_result(w, 1), lse, NULL);
}
