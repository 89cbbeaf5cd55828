/* write_shape.c - ops that move elements as ONNX nodes. */
#include "onnx/write/write.h"
#include "ops/core/attr.h"

#include <string.h>

void pl_ow_write_broadcast(pl_ow *w)
{
    (void)w; /* pl_ow_in and pl_ow_operand write it where it is used */
}

/* All orders of the operand are orders of the result. */
void pl_ow_write_same(pl_ow *w)
{
    uint32_t x = pl_ow_arg(w, 0);
    if (!w->form[x]) (void)pl_ow_in(w, x, NULL);
    for (const pl_ow_form *f = w->form[x]; f; f = f->next)
        pl_ow_set(w, pl_ow_result(w, 0), f->name, f->perm);
}

void pl_ow_write_exchange(pl_ow *w)
{
    const pl_collective_attr *a = pl_ow_attr_of(w);
    if (a->ranks != 1)
        pl_ow_fail(w, "values are exchanged between %lld ranks; export with ranks=1",
                   (long long)a->ranks);
    pl_ow_write_same(w);
}

void pl_ow_write_reshape(pl_ow *w)
{
    const pl_type *t = pl_type_of(w->g, pl_ow_result(w, 0));
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL);
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_reshape(w, x, t->rank, t->dim), NULL);
}

/* Dimension i of the result is dimension perm[i] of the operand: no node, another order. */
void pl_ow_write_permute(pl_ow *w)
{
    const pl_permute_attr *a = pl_ow_attr_of(w);
    uint32_t x = pl_ow_arg(w, 0);
    int inverse[PL_MAX_RANK] = {0}, perm[PL_MAX_RANK] = {0};
    for (int i = 0; i < a->perm.n; i++) inverse[a->perm.v[i]] = i;
    if (!w->form[x]) (void)pl_ow_in(w, x, NULL);
    for (const pl_ow_form *f = w->form[x]; f; f = f->next) {
        for (int i = 0; i < a->perm.n; i++) perm[i] = inverse[f->perm[i]];
        pl_ow_set(w, pl_ow_result(w, 0), f->name, perm);
    }
}

/* Slice along the axes of the tensor where bounds differ from the whole. */
static const char *slices(pl_ow *w, const char *x, int n, const int64_t *axes, const int64_t *lo,
                          const int64_t *hi, const int64_t *step)
{
    if (!n) return x;
    return pl_ow_op(w, "Slice",
                    OW_IN(x, pl_ow_ints(w, n, lo), pl_ow_ints(w, n, hi), pl_ow_ints(w, n, axes),
                          pl_ow_ints(w, n, step)),
                    NULL);
}

void pl_ow_write_slice(pl_ow *w)
{
    const pl_slice_attr *a = pl_ow_attr_of(w);
    uint32_t x = pl_ow_arg(w, 0);
    const pl_type *t = pl_type_of(w->g, x);
    const int *order = pl_ow_order(w, x);
    int64_t axes[PL_MAX_RANK], lo[PL_MAX_RANK], hi[PL_MAX_RANK], step[PL_MAX_RANK];
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        int d = order ? order[i] : i;
        if (a->start.v[d] == 0 && a->stop.v[d] == t->dim[d] && a->step.v[d] == 1) continue;
        axes[n] = i;
        lo[n] = a->start.v[d];
        hi[n] = a->stop.v[d];
        step[n++] = a->step.v[d];
    }
    const char *y = slices(w, pl_ow_in(w, x, order), n, axes, lo, hi, step);
    pl_ow_set(w, pl_ow_result(w, 0), y, order);
}

void pl_ow_write_flip(pl_ow *w)
{
    const pl_flip_attr *a = pl_ow_attr_of(w);
    int64_t lo[PL_MAX_RANK], hi[PL_MAX_RANK], step[PL_MAX_RANK];
    for (int i = 0; i < a->axes.n; i++) {
        lo[i] = -1;
        hi[i] = INT64_MIN + 1;
        step[i] = -1;
    }
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL);
    pl_ow_set(w, pl_ow_result(w, 0), slices(w, x, a->axes.n, a->axes.v, lo, hi, step), NULL);
}

void pl_ow_write_roll(pl_ow *w)
{
    const pl_roll_attr *a = pl_ow_attr_of(w);
    int64_t n = pl_type_of(w->g, pl_ow_arg(w, 0))->dim[a->axis];
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL);
    if (a->shift % (n ? n : 1)) {
        const char *end = pl_ow_slice(w, x, (int)a->axis, n - a->shift, n, 1);
        const char *begin = pl_ow_slice(w, x, (int)a->axis, 0, n - a->shift, 1);
        x = pl_ow_op(w, "Concat", OW_IN(end, begin), OW_ATTRS(OW_I("axis", a->axis)));
    }
    pl_ow_set(w, pl_ow_result(w, 0), x, NULL);
}

void pl_ow_write_concat(pl_ow *w)
{
    const pl_concat_attr *a = pl_ow_attr_of(w);
    int n = pl_node_get(w->g, w->node)->n_in, axis = (int)a->axis;
    const int *order = NULL;
    for (int i = 0; i < n && !order; i++) order = pl_ow_order(w, pl_ow_arg(w, i));
    const char **in = pl_arena_new(&w->mem, const char *, n + 1);
    if (!in) {
        w->status = PL_ERR_MEMORY;
        return;
    }
    for (int i = 0; i < n; i++) in[i] = pl_ow_in(w, pl_ow_arg(w, i), order);
    for (int i = 0; order && i < pl_type_of(w->g, pl_ow_arg(w, 0))->rank; i++)
        if (order[i] == a->axis) axis = i;
    pl_ow_set(w, pl_ow_result(w, 0), pl_ow_op(w, "Concat", in, OW_ATTRS(OW_I("axis", axis))),
              order);
}

/* ---- borders --------------------------------------------------------------------------- */
static const char *padded(pl_ow *w, const char *x, int rank, const int64_t *lo, const int64_t *hi,
                          const char *value)
{
    int64_t pads[2 * PL_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        pads[i] = lo[i];
        pads[rank + i] = hi[i];
    }
    return pl_ow_op(w, "Pad", OW_IN(x, pl_ow_ints(w, 2 * rank, pads), value), NULL);
}

/* Gaps along an axis: each element becomes a row [element, gap, ..], and rows are joined; the gap
 * after the last element is cut off. */
static const char *spaced(pl_ow *w, const char *x, const int64_t *dim, int rank, int axis,
                          int64_t inner, const char *value)
{
    int64_t rows[3] = {1, dim[axis], 1}, lo[3] = {0}, hi[3] = {0, 0, inner}, all[PL_MAX_RANK];
    for (int i = 0; i < axis; i++) rows[0] *= dim[i];
    for (int i = axis + 1; i < rank; i++) rows[2] *= dim[i];
    /* [before, n, after] -> [before * n, 1, after] -> [before * n, 1 + inner, after] */
    const int64_t split[3] = {rows[0] * rows[1], 1, rows[2]};
    hi[1] = inner;
    hi[2] = 0;
    const char *y = padded(w, pl_ow_reshape(w, x, 3, split), 3, lo, hi, value);
    for (int i = 0; i < rank; i++) all[i] = dim[i];
    all[axis] = dim[axis] * (1 + inner);
    y = pl_ow_reshape(w, y, rank, all);
    return pl_ow_slice(w, y, axis, 0, all[axis] - inner, 1);
}

void pl_ow_write_pad(pl_ow *w)
{
    const pl_pad_attr *a = pl_ow_attr_of(w);
    const pl_type *t = pl_type_of(w->g, pl_ow_arg(w, 0));
    bool small = t->dtype == PL_BOOL;
    pl_dtype dtype = small ? PL_I32 : t->dtype;
    const char *x = pl_ow_in(w, pl_ow_arg(w, 0), NULL);
    if (small) x = pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(dtype))));
    int64_t dim[PL_MAX_RANK];
    memcpy(dim, t->dim, sizeof dim);
    bool border = false, gaps = false;
    for (int i = 0; i < t->rank; i++) {
        border |= a->lo.v[i] || a->hi.v[i];
        gaps |= a->inner.v[i] && dim[i] > 1;
    }
    const char *value = border || gaps ? pl_ow_number(w, dtype, a->value) : "";
    for (int i = 0; i < t->rank; i++) {
        if (!a->inner.v[i] || dim[i] < 2) continue;
        x = spaced(w, x, dim, t->rank, i, a->inner.v[i], value);
        dim[i] += (dim[i] - 1) * a->inner.v[i];
    }
    if (border) x = padded(w, x, t->rank, a->lo.v, a->hi.v, value);
    if (small) x = pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(PL_BOOL))));
    pl_ow_set(w, pl_ow_result(w, 0), x, NULL);
}

/* ---- by index -------------------------------------------------------------------------- */
void pl_ow_write_take(pl_ow *w)
{
    const char *y = pl_ow_op(
        w, "Gather", OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), NULL), pl_ow_in(w, pl_ow_arg(w, 1), NULL)),
        OW_ATTRS(OW_I("axis", 0)));
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}

static const char *as_i64(pl_ow *w, uint32_t val)
{
    const char *x = pl_ow_in(w, val, NULL);
    if (pl_type_of(w->g, val)->dtype == PL_I64) return x;
    return pl_ow_op(w, "Cast", OW_IN(x), OW_ATTRS(OW_I("to", pl_ow_dtype(PL_I64))));
}

static const char *zeros(pl_ow *w, const pl_type *t)
{
    return pl_ow_2(w, "Expand", pl_ow_number(w, t->dtype, 0), pl_ow_ints(w, t->rank, t->dim));
}

void pl_ow_write_scatter_add(pl_ow *w)
{
    const pl_type *t = pl_type_of(w->g, pl_ow_result(w, 0)), *i = pl_type_of(w->g, pl_ow_arg(w, 1));
    int64_t rows[PL_MAX_RANK + 1] = {pl_type_elems(i), 1}, flat[PL_MAX_RANK];
    memcpy(flat, t->dim, sizeof flat);
    flat[0] = rows[0];
    const char *at = pl_ow_reshape(w, as_i64(w, pl_ow_arg(w, 1)), 2, rows);
    const char *from = pl_ow_reshape(w, pl_ow_in(w, pl_ow_arg(w, 0), NULL), t->rank, flat);
    const char *y = pl_ow_op(w, "ScatterND", OW_IN(zeros(w, t), at, from),
                             OW_ATTRS(OW_TEXT("reduction", "add")));
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}

void pl_ow_write_take_along(pl_ow *w)
{
    const pl_along_attr *a = pl_ow_attr_of(w);
    const char *y = pl_ow_op(w, "GatherElements",
                             OW_IN(pl_ow_in(w, pl_ow_arg(w, 0), NULL), as_i64(w, pl_ow_arg(w, 1))),
                             OW_ATTRS(OW_I("axis", a->axis)));
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}

void pl_ow_write_put_along_add(pl_ow *w)
{
    const pl_put_attr *a = pl_ow_attr_of(w);
    const char *into = zeros(w, pl_type_of(w->g, pl_ow_result(w, 0)));
    const char *y =
        pl_ow_op(w, "ScatterElements",
                 OW_IN(into, as_i64(w, pl_ow_arg(w, 1)), pl_ow_in(w, pl_ow_arg(w, 0), NULL)),
                 OW_ATTRS(OW_I("axis", a->axis), OW_TEXT("reduction", "add")));
    pl_ow_set(w, pl_ow_result(w, 0), y, NULL);
}
