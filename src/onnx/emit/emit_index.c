/* emit_index.c - gathers and scatters, largest elements, running sums, triangles. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <string.h>

/* Indices below 0 count from the end of `size` elements. */
static pl_val wrapped(pl_graph *g, pl_val index, int64_t size)
{
    pl_val low = pl_lt(g, index, pl_full_like(g, index, 0));
    return pl_select(g, low, pl_shift(g, index, (double)size), index);
}

/* Input k as indices below `size`, in logical order. Known ones are checked and wrapped at once. */
static pl_status indices(pl_ox_call *c, int k, int64_t size, pl_ox_val **v, pl_val *x)
{
    if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
    *v = c->in[k];
    if (!pl_ox_known(c->b, *v)) {
        *x = wrapped(c->g, pl_ox_plain(c->b, *v), size);
        return PL_OK;
    }
    pl_ox_val *y = pl_ox_host_new(c->b, (*v)->dtype, (*v)->rank, (*v)->dim);
    if (!y || !y->host.i) return pl_ox_fail(c, PL_ERR_FILE, "indices are not whole numbers");
    y->name = (*v)->name;
    for (int64_t i = 0; i < y->host.n; i++) {
        int64_t j = (*v)->host.i[i];
        if (j < -size || j >= size)
            return pl_ox_fail(c, PL_ERR_FILE, "index %lld of %lld elements", (long long)j,
                              (long long)size);
        y->host.i[i] = j < 0 ? j + size : j;
    }
    *v = y;
    *x = pl_ox_any(c->b, y);
    return PL_OK;
}

/* ---- gathers --------------------------------------------------------------------------------- */
/* Known indices with a constant step, in their order, or one index: a slice. */
static bool as_slice(const pl_ox_val *index, int64_t *from, int64_t *n, int64_t *step)
{
    if (!index->known || index->host.n < 1) return false;
    const int64_t *p = index->host.i;
    *from = p[0];
    *n = index->host.n;
    *step = *n > 1 ? p[1] - p[0] : 1;
    for (int64_t i = 1; i < *n; i++)
        if (p[i] - p[i - 1] != *step) return false;
    return *step > 0;
}

/* Rows x of an embedding, [.., C], of which those with the index `row` have no gradient. */
static pl_val without_padding(pl_graph *g, pl_val x, pl_val index, int64_t row)
{
    pl_val hit = pl_eq(g, index, pl_full_like(g, index, (double)row));
    return pl_select(g, pl_unsqueeze(g, hit, pl_val_type(g, index).rank), pl_stop_gradient(g, x),
                     x);
}

pl_status pl_ox_emit_gather(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *index = NULL;
    pl_val x = PL_NO_VAL, i = PL_NO_VAL;
    int axis, perm[PL_MAX_RANK], order[PL_MAX_RANK], n = 0;
    int64_t from, count, step;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    PL_TRY(indices(c, 1, v->dim[axis], &index, &i));
    if (!v->rank || v->rank - 1 + index->rank > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d dimensions", v->rank - 1 + index->rank);
    if (as_slice(index, &from, &count, &step)) {
        x = pl_slice(c->g, x, pl_ox_axis(v, axis), from, from + (count - 1) * step + 1, step);
        pl_ox_val *y = pl_ox_val_new(c->b, x, v->perm);
        if (!y) return PL_ERR_MEMORY;
        if (index->rank == 1) return pl_ox_set_val(c, 0, y);
        int64_t dim[PL_MAX_RANK];
        for (int k = 0; k < axis; k++) dim[n++] = v->dim[k];
        for (int k = 0; k < index->rank; k++) dim[n++] = index->dim[k];
        for (int k = axis + 1; k < v->rank; k++) dim[n++] = v->dim[k];
        return pl_ox_set_val(c, 0, pl_ox_reshaped(c->b, y, n, dim));
    }
    order[n++] = axis;
    for (int k = 0; k < v->rank; k++)
        if (v->perm[k] != axis) order[n++] = v->perm[k];
    x = pl_take(c->g, pl_ox_ordered(c->b, v, v->rank, order), i);
    if (v->init && v->init->has_padding && !axis && c->b->m->training)
        x = without_padding(c->g, x, i, v->init->padding);
    for (int k = 0; k < index->rank; k++) perm[k] = axis + k;
    for (int k = 1; k < n; k++)
        perm[index->rank + k - 1] = order[k] < axis ? order[k] : order[k] + index->rank - 1;
    return pl_ox_set(c, 0, x, perm);
}

/* x cut to the sizes of `to` along all axes but one. */
static pl_val cut_to(pl_graph *g, pl_val x, const pl_ox_val *to, int axis)
{
    pl_type t = pl_val_type(g, x);
    for (int k = 0; k < t.rank; k++)
        if (k != axis && to->dim[k] < t.dim[k]) x = pl_slice(g, x, k, 0, to->dim[k], 1);
    return x;
}

pl_status pl_ox_emit_gather_elements(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *index = NULL;
    pl_val x = PL_NO_VAL, i = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    PL_TRY(indices(c, 1, v->dim[axis], &index, &i));
    if (index->rank != v->rank)
        return pl_ox_fail(c, PL_ERR_SHAPE, "indices of %d and data of %d dimensions", index->rank,
                          v->rank);
    return pl_ox_set(c, 0, pl_take_along(c->g, cut_to(c->g, x, index, axis), i, axis), NULL);
}

/* Rows of the first dimensions of data, flattened: data [rows, inner], and the row of each of the
 * n tuples in the last dimension of the indices, [n]. */
typedef struct tuples {
    int64_t batch, rows, inner, n;
    int batch_dims, q;
    pl_val row;
} tuples;

static pl_status read_tuples(pl_ox_call *c, const pl_ox_val *v, pl_ox_val *index, int batch_dims,
                             tuples *t)
{
    pl_graph *g = c->g;
    int last = index->rank - 1;
    if (last < 0 || batch_dims < 0 || batch_dims > last ||
        index->dim[last] + batch_dims > v->rank || index->dim[last] < 1)
        return pl_ox_fail(c, PL_ERR_SHAPE, "indices do not fit the data");
    *t = (tuples){.batch = 1, .rows = 1, .inner = 1, .n = 1, .batch_dims = batch_dims};
    t->q = (int)index->dim[last];
    for (int k = 0; k < batch_dims; k++) t->batch *= v->dim[k];
    for (int k = 0; k < last; k++) t->n *= index->dim[k];
    for (int k = batch_dims + t->q; k < v->rank; k++) t->inner *= v->dim[k];
    pl_val all = pl_reshape(g, pl_ox_plain(c->b, index), PL_DIMS(t->n, t->q));
    pl_val row = PL_NO_VAL;
    for (int k = 0; k < t->q; k++) {
        int64_t size = v->dim[batch_dims + k];
        pl_val one = pl_reshape(g, pl_slice(g, all, 1, k, k + 1, 1), PL_DIMS(t->n));
        one = wrapped(g, one, size);
        row = pl_val_ok(row) ? pl_add(g, pl_scale(g, row, (double)size), one) : one;
        t->rows *= size;
    }
    if (batch_dims) { /* tuples of batch b address the rows of batch b */
        int64_t each = t->n / t->batch;
        pl_type bt = pl_type_make(index->dtype, 2, (const int64_t[]){t->batch, each});
        pl_val base = pl_scale(g, pl_iota(g, bt, 0), (double)t->rows);
        row = pl_add(g, row, pl_reshape(g, base, PL_DIMS(t->n)));
        t->rows *= t->batch;
    }
    t->row = row;
    return PL_OK;
}

pl_status pl_ox_emit_gather_nd(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    tuples t;
    int64_t dim[2 * PL_MAX_RANK];
    int n = 0;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    if (!pl_ox_has(c, 1)) return pl_ox_fail(c, PL_ERR_FILE, "input 1 is missing");
    pl_ox_val *index = c->in[1];
    PL_TRY(read_tuples(c, v, index, (int)pl_ox_attr_int(c, "batch_dims", 0), &t));
    for (int k = 0; k < index->rank - 1; k++) dim[n++] = index->dim[k];
    for (int k = t.batch_dims + t.q; k < v->rank; k++) dim[n++] = v->dim[k];
    if (n > PL_MAX_RANK) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d dimensions", n);
    x = pl_take(c->g, pl_reshape(c->g, x, PL_DIMS(t.rows, t.inner)), t.row);
    return pl_ox_set(c, 0, pl_reshape(c->g, x, n, dim), NULL);
}

/* ---- scatters -------------------------------------------------------------------------------- */
typedef enum reduction { NONE, SUM, PRODUCT, LARGEST, SMALLEST } reduction;

static pl_status reduction_of(pl_ox_call *c, reduction *out)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    for (int k = 0; k < 5; k++) {
        *out = (reduction)k;
        if (pl_ox_attr_is(c, "reduction", "none", names[k])) return PL_OK;
    }
    return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "reduction %s",
                      pl_ox_attr_text(c, "reduction", "none"));
}

/* Products, maxima and minima: every update beside every row, so for small tensors only. data
 * [rows, inner], from [n, inner], row [n]. */
static pl_status reduce_rows(pl_ox_call *c, reduction how, pl_val data, pl_val from, pl_val row,
                             pl_val *out)
{
    pl_graph *g = c->g;
    pl_type t = pl_val_type(g, data);
    int64_t rows = t.dim[0], inner = t.dim[1], n = pl_val_type(g, from).dim[0];
    if ((double)rows * (double)inner * (double)n > 1 << 24)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "reductions mul, max and min of so many elements");
    pl_type all = PL_TYPE(pl_val_type(g, row).dtype, rows, n);
    pl_val hit = pl_eq(g, pl_iota(g, all, 0), pl_broadcast(g, row, 2, all.dim));
    hit = pl_unsqueeze(g, hit, 2); /* [rows, n, 1] */
    pl_val x = pl_unsqueeze(g, data, 1), u = pl_unsqueeze(g, from, 0);
    if (how != PRODUCT) {
        const int64_t wide[] = {rows, n, inner};
        u = pl_select(g, hit, u, pl_broadcast(g, x, 3, wide));
        u = how == LARGEST ? pl_max_over(g, u, PL_AXIS(1), false)
                           : pl_min_over(g, u, PL_AXIS(1), false);
        *out = how == LARGEST ? pl_max(g, u, data) : pl_min(g, u, data);
        return PL_OK;
    }
    for (int64_t k = 0; k < n; k++) {
        pl_val one = pl_slice(g, from, 0, k, k + 1, 1), on = pl_slice(g, hit, 1, k, k + 1, 1);
        on = pl_reshape(g, on, PL_DIMS(rows, 1));
        data = pl_mul(g, data, pl_select(g, on, one, pl_full_like(g, one, 1)));
    }
    *out = data;
    return PL_OK;
}

/* data where nothing was written, `put` elsewhere. `hits` counts the writes of each place. */
static pl_val merged(pl_graph *g, pl_val data, pl_val put, pl_val hits)
{
    return pl_select(g, pl_gt(g, hits, pl_full_like(g, hits, 0)), put, data);
}

/* The sum of writes must not pass through a type without arithmetic. */
static pl_dtype sum_type(pl_dtype d)
{
    return d == PL_BOOL ? PL_I32 : d;
}

pl_status pl_ox_emit_scatter_elements(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *index = NULL, *u = NULL;
    pl_val x = PL_NO_VAL, i = PL_NO_VAL, from = PL_NO_VAL;
    int axis;
    reduction how;
    PL_TRY(reduction_of(c, &how));
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    PL_TRY(indices(c, 1, v->dim[axis], &index, &i));
    PL_TRY(pl_ox_input_plain(c, 2, &u, &from));
    if (index->rank != v->rank || u->rank != v->rank)
        return pl_ox_fail(c, PL_ERR_SHAPE, "data, indices and updates differ in dimensions");
    pl_graph *g = c->g;
    pl_dtype sum = sum_type(v->dtype);
    if (how > SUM) {
        int64_t n = pl_ox_elems(u), stride = 1;
        pl_type ut = pl_type_make(pl_val_type(g, i).dtype, v->rank, u->dim);
        pl_val row = pl_fill(g, ut, 0), y;
        for (int k = v->rank - 1; k >= 0; k--) {
            pl_val at = k == axis ? i : pl_iota(g, ut, k);
            row = pl_add(g, row, pl_scale(g, at, (double)stride));
            stride *= v->dim[k];
        }
        PL_TRY(reduce_rows(c, how, pl_reshape(g, x, PL_DIMS(stride, 1)),
                           pl_reshape(g, from, PL_DIMS(n, 1)), pl_reshape(g, row, PL_DIMS(n)), &y));
        return pl_ox_set(c, 0, pl_reshape(g, y, v->rank, v->dim), NULL);
    }
    pl_val put = pl_put_along_add(g, pl_ox_cast(g, from, sum), i, axis, v->dim[axis]);
    pl_val ones = pl_full_like(g, pl_ox_cast(g, from, PL_F32), 1);
    pl_val hits = pl_put_along_add(g, ones, i, axis, v->dim[axis]);
    for (int k = 0; k < v->rank; k++) {
        if (k == axis || index->dim[k] == v->dim[k]) continue;
        put = pl_pad(g, put, k, 0, v->dim[k] - index->dim[k], 0, 0);
        hits = pl_pad(g, hits, k, 0, v->dim[k] - index->dim[k], 0, 0);
    }
    if (how == SUM) return pl_ox_set(c, 0, pl_add(g, x, put), NULL);
    pl_val y = merged(g, pl_ox_cast(g, x, sum), put, hits);
    return pl_ox_set(c, 0, sum == v->dtype ? y : pl_ne(g, y, pl_full_like(g, y, 0)), NULL);
}

pl_status pl_ox_emit_scatter_nd(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *u = NULL;
    pl_val x = PL_NO_VAL, from = PL_NO_VAL;
    tuples t;
    reduction how;
    PL_TRY(reduction_of(c, &how));
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 2, &u, &from));
    if (!pl_ox_has(c, 1)) return pl_ox_fail(c, PL_ERR_FILE, "input 1 is missing");
    PL_TRY(read_tuples(c, v, c->in[1], 0, &t));
    if (pl_ox_elems(u) != t.n * t.inner)
        return pl_ox_fail(c, PL_ERR_SHAPE, "%lld updates, wanted %lld", (long long)pl_ox_elems(u),
                          (long long)(t.n * t.inner));
    pl_graph *g = c->g;
    pl_dtype sum = sum_type(v->dtype);
    from = pl_ox_cast(g, pl_reshape(g, from, PL_DIMS(t.n, t.inner)), sum);
    pl_val put = pl_scatter_add(g, from, t.row, t.rows);
    pl_val y = pl_ox_cast(g, pl_reshape(g, x, PL_DIMS(t.rows, t.inner)), sum);
    if (how > SUM)
        PL_TRY(reduce_rows(c, how, y, from, t.row, &y));
    else if (how == SUM)
        y = pl_add(g, y, put);
    else {
        pl_val ones = pl_fill(g, PL_TYPE(PL_F32, t.n, 1), 1);
        y = merged(g, y, put, pl_scatter_add(g, ones, t.row, t.rows));
    }
    if (sum != v->dtype) y = pl_ne(g, y, pl_full_like(g, y, 0));
    return pl_ox_set(c, 0, pl_reshape(g, y, v->rank, v->dim), NULL);
}

pl_status pl_ox_emit_one_hot(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val i = PL_NO_VAL;
    double depth = 0;
    int axis, perm[PL_MAX_RANK];
    int64_t dim[PL_MAX_RANK];
    PL_TRY(pl_ox_in_number(c, 1, "depth", 0, &depth));
    PL_TRY(pl_ox_input_plain(c, 0, &v, &i));
    if (!pl_ox_has(c, 2) || depth < 1 || depth > 1e9 || v->rank >= PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_FILE, "a depth of %g for indices of %d dimensions%s", depth,
                          v->rank, pl_ox_has(c, 2) ? "" : ", without values");
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -1), v->rank + 1, &axis));
    pl_graph *g = c->g;
    i = wrapped(g, pl_ox_cast(g, i, PL_I64), (int64_t)depth);
    memcpy(dim, v->dim, sizeof dim);
    dim[v->rank] = 1;
    i = pl_reshape(g, i, v->rank + 1, dim);
    dim[v->rank] = (int64_t)depth;
    pl_val hit = pl_eq(g, pl_iota(g, pl_type_make(PL_I64, v->rank + 1, dim), v->rank),
                       pl_broadcast(g, i, v->rank + 1, dim));
    pl_val values = pl_ox_plain(c->b, c->in[2]), one[2];
    for (int k = 0; k < 2; k++)
        one[k] = pl_reshape(g, pl_slice(g, values, 0, k, k + 1, 1), 0, NULL);
    for (int k = 0; k < v->rank; k++) perm[k] = k < axis ? k : k + 1;
    perm[v->rank] = axis;
    return pl_ox_set(c, 0, pl_select(g, hit, one[1], one[0]), perm);
}

/* ---- largest elements ------------------------------------------------------------------------ */
static pl_status arg(pl_ox_call *c, bool smallest)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    pl_graph *g = c->g;
    bool last = pl_ox_attr_int(c, "select_last_index", 0) != 0;
    if (smallest) x = pl_neg(g, x);
    if (last) x = pl_flip(g, x, PL_AXIS(axis));
    pl_val i = pl_cast(g, pl_argmax(g, x, axis), PL_I64);
    if (last) i = pl_shift(g, pl_neg(g, i), (double)(v->dim[axis] - 1));
    if (pl_ox_attr_int(c, "keepdims", 1)) i = pl_unsqueeze(g, i, axis);
    return pl_ox_set(c, 0, i, NULL);
}
pl_status pl_ox_emit_arg_max(pl_ox_call *c)
{
    return arg(c, false);
}
pl_status pl_ox_emit_arg_min(pl_ox_call *c)
{
    return arg(c, true);
}

pl_status pl_ox_emit_top_k(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL, values, at;
    double k = 0;
    int axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_in_number(c, 1, "number of elements", (double)pl_ox_attr_int(c, "k", 1), &k));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -1), v->rank, &axis));
    if (k < 1 || k > (double)v->dim[axis])
        return pl_ox_fail(c, PL_ERR_SHAPE, "%g of %lld elements", k, (long long)v->dim[axis]);
    bool largest = pl_ox_attr_int(c, "largest", 1) != 0;
    if (!largest) x = pl_neg(c->g, x);
    pl_topk(c->g, x, (int64_t)k, pl_ox_axis(v, axis), &values, &at);
    if (!largest) values = pl_neg(c->g, values);
    PL_TRY(pl_ox_set(c, 0, values, v->perm));
    return pl_ox_set(c, 1, pl_cast(c->g, at, PL_I64), v->perm);
}

pl_status pl_ox_input_and_axis(pl_ox_call *c, pl_ox_val **v, pl_val *x, int *axis)
{
    double where = 0;
    PL_TRY(pl_ox_input(c, 0, v, x));
    PL_TRY(pl_ox_in_number(c, 1, "axis", 0, &where));
    return pl_ox_axis_of(c, (int64_t)where, (*v)->rank, axis);
}

pl_status pl_ox_emit_cumsum(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input_and_axis(c, &v, &x, &axis));
    bool back = pl_ox_attr_int(c, "reverse", 0) != 0;
    int at = pl_ox_axis(v, axis);
    pl_val y = pl_cumsum(c->g, x, at, back);
    if (pl_ox_attr_int(c, "exclusive", 0)) { /* moved by one element, with a zero */
        int64_t d = v->dim[axis];
        y = pl_pad(c->g, y, at, !back, back, 0, 0);
        y = pl_slice(c->g, y, at, back, d + back, 1);
    }
    return pl_ox_set(c, 0, y, v->perm);
}

pl_status pl_ox_emit_trilu(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    double k = 0;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_in_number(c, 1, "diagonal", 0, &k));
    if (v->rank < 2) return pl_ox_fail(c, PL_ERR_SHAPE, "it needs a matrix");
    pl_graph *g = c->g;
    pl_type t = PL_TYPE(PL_I32, v->dim[v->rank - 2], v->dim[v->rank - 1]);
    double most = (double)(t.dim[0] + t.dim[1]);
    k = k > most ? most : k < -most ? -most : k;
    pl_val row = pl_shift(g, pl_iota(g, t, 0), k), col = pl_iota(g, t, 1);
    bool upper = pl_ox_attr_int(c, "upper", 1) != 0;
    pl_val in = upper ? pl_ge(g, col, row) : pl_le(g, col, row);
    if (v->dtype == PL_BOOL) return pl_ox_set(c, 0, pl_and(g, x, in), NULL);
    return pl_ox_set(c, 0, pl_select(g, in, x, pl_full_like(g, x, 0)), NULL);
}

pl_status pl_ox_emit_reverse_sequence(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *length = NULL;
    pl_val x = PL_NO_VAL, n = PL_NO_VAL;
    int time, batch;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &length, &n));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "time_axis", 0), v->rank, &time));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "batch_axis", 1), v->rank, &batch));
    pl_graph *g = c->g;
    pl_type t = pl_type_make(PL_I64, v->rank, v->dim);
    int64_t dim[PL_MAX_RANK];
    for (int k = 0; k < v->rank; k++) dim[k] = k == batch ? v->dim[k] : 1;
    n = pl_broadcast(g, pl_reshape(g, pl_ox_cast(g, n, PL_I64), v->rank, dim), v->rank, v->dim);
    pl_val at = pl_iota(g, t, time);
    pl_val mirror = pl_shift(g, pl_sub(g, n, at), -1);
    at = pl_select(g, pl_lt(g, at, n), mirror, at);
    return pl_ox_set(c, 0, pl_take_along(g, x, at, time), NULL);
}

/* The condition is known: then the rows are. */
pl_status pl_ox_emit_compress(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    if (!pl_ox_has(c, 1) || !pl_ox_known(c->b, c->in[1])) return pl_ox_emit_known_only(c);
    const pl_ox_val *on = c->in[1];
    int axis = 0, n;
    bool flat = !pl_ox_attr_find(c, "axis");
    if (flat)
        x = pl_reshape(c->g, x, PL_DIMS(pl_ox_elems(v)));
    else
        PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    pl_type t = pl_val_type(c->g, x);
    pl_val *part = pl_arena_new(&c->b->mem, pl_val, on->host.n + 1);
    if (!part) return PL_ERR_MEMORY;
    n = 0;
    for (int64_t k = 0; k < on->host.n && k < t.dim[axis]; k++)
        if (pl_ox_host_int(on, k)) part[n++] = pl_slice(c->g, x, axis, k, k + 1, 1);
    if (!n) {
        t.dim[axis] = 0;
        return pl_ox_set_val(c, 0, pl_ox_host_new(c->b, t.dtype, t.rank, t.dim));
    }
    return pl_ox_set(c, 0, n > 1 ? pl_concat(c->g, n, part, axis) : part[0], NULL);
}
