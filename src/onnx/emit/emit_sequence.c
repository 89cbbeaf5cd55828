/* emit_sequence.c - sequences of tensors whose length is known at import: lists of values. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

static pl_ox_val *list_new(pl_ox_build *b, int n)
{
    pl_ox_val *v = pl_arena_new(&b->mem, pl_ox_val, 1);
    if (!v) return NULL;
    v->item = pl_arena_new(&b->mem, pl_ox_val *, n + 1);
    v->n_item = n;
    return v->item ? v : NULL;
}

/* Input k, which must be a list. */
static pl_status list_of(const pl_ox_call *c, int k, pl_ox_val **v)
{
    if (!pl_ox_has(c, k) || !c->in[k]->item)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "input %d is not a sequence that is known", k);
    *v = c->in[k];
    return PL_OK;
}

/* A position in a list of n: input k, or the fallback. */
static pl_status position_of(const pl_ox_call *c, int k, int n, double fallback, int *at)
{
    double x;
    PL_TRY(pl_ox_in_number(c, k, "position", fallback, &x));
    if (x < 0) x += n;
    if (x < 0 || x > n) return pl_ox_fail(c, PL_ERR_FILE, "position %g of %d tensors", x, n);
    *at = (int)x;
    return PL_OK;
}

pl_status pl_ox_emit_split_to_sequence(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    const int64_t *sizes = NULL;
    int n = 0, axis;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), v->rank, &axis));
    if (pl_ox_has(c, 1)) PL_TRY(pl_ox_in_ints(c, 1, "split", &sizes, &n));
    bool scalar = !sizes || c->in[1]->rank == 0;
    int64_t d = v->dim[axis], step = scalar && sizes ? sizes[0] : 1;
    if (scalar && step < 1) return pl_ox_fail(c, PL_ERR_FILE, "parts of %lld", (long long)step);
    int64_t parts = scalar ? (d + step - 1) / step : n, from = 0;
    if (parts > 1 << 16) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "more than 65536 parts");
    pl_ox_val *list = list_new(c->b, (int)parts);
    if (!list) return PL_ERR_MEMORY;
    bool drop = !sizes && !pl_ox_attr_int(c, "keepdims", 1);
    for (int i = 0; i < parts; i++) {
        int64_t size = !scalar ? sizes[i] : step < d - from ? step : d - from;
        if (size < 1 || size > d - from) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "an empty part");
        pl_val y = pl_slice(c->g, x, pl_ox_axis(v, axis), from, from + size, 1);
        pl_ox_val *part = pl_ox_val_new(c->b, y, v->perm);
        if (part && drop) {
            int64_t dim[PL_MAX_RANK];
            int rank = 0;
            for (int k = 0; k < v->rank; k++)
                if (k != axis) dim[rank++] = v->dim[k];
            part = pl_ox_reshaped(c->b, part, rank, dim);
        }
        if (!part) return PL_ERR_MEMORY;
        list->item[i] = part;
        from += size;
    }
    return pl_ox_set_val(c, 0, list);
}

pl_status pl_ox_emit_sequence_construct(pl_ox_call *c)
{
    pl_ox_val *list = list_new(c->b, c->n_in);
    if (!list) return PL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i]) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", i);
        list->item[i] = c->in[i];
    }
    return pl_ox_set_val(c, 0, list);
}

pl_status pl_ox_emit_sequence_at(pl_ox_call *c)
{
    pl_ox_val *list = NULL;
    int at;
    PL_TRY(list_of(c, 0, &list));
    PL_TRY(position_of(c, 1, list->n_item, 0, &at));
    if (at >= list->n_item) return pl_ox_fail(c, PL_ERR_FILE, "position %d is outside", at);
    return pl_ox_set_val(c, 0, list->item[at]);
}

pl_status pl_ox_emit_sequence_length(pl_ox_call *c)
{
    pl_ox_val *list = NULL, *n = pl_ox_host_new(c->b, PL_I64, 0, NULL);
    PL_TRY(list_of(c, 0, &list));
    if (!n) return PL_ERR_MEMORY;
    n->host.i[0] = list->n_item;
    return pl_ox_set_val(c, 0, n);
}

pl_status pl_ox_emit_sequence_insert(pl_ox_call *c)
{
    pl_ox_val *list = NULL;
    int at;
    PL_TRY(list_of(c, 0, &list));
    PL_TRY(position_of(c, 2, list->n_item, list->n_item, &at));
    pl_ox_val *more = list_new(c->b, list->n_item + 1);
    if (!more) return PL_ERR_MEMORY;
    for (int i = 0; i <= list->n_item; i++)
        more->item[i] = i < at ? list->item[i] : i == at ? c->in[1] : list->item[i - 1];
    return pl_ox_set_val(c, 0, more);
}

pl_status pl_ox_emit_sequence_erase(pl_ox_call *c)
{
    pl_ox_val *list = NULL;
    int at;
    PL_TRY(list_of(c, 0, &list));
    PL_TRY(position_of(c, 1, list->n_item, list->n_item - 1, &at));
    if (at >= list->n_item) return pl_ox_fail(c, PL_ERR_FILE, "position %d is outside", at);
    pl_ox_val *less = list_new(c->b, list->n_item - 1);
    if (!less) return PL_ERR_MEMORY;
    for (int i = 0; i + 1 < list->n_item; i++) less->item[i] = list->item[i + (i >= at)];
    return pl_ox_set_val(c, 0, less);
}

/* Joins the tensors as Concat does, or along a new axis. */
pl_status pl_ox_emit_concat_from_sequence(pl_ox_call *c)
{
    pl_ox_val *list = NULL;
    int axis;
    PL_TRY(list_of(c, 0, &list));
    bool fresh = pl_ox_attr_int(c, "new_axis", 0) != 0;
    pl_val *x = pl_arena_new(&c->b->mem, pl_val, list->n_item + 1);
    if (!x) return PL_ERR_MEMORY;
    if (!list->n_item) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "the sequence is empty");
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", 0), list->item[0]->rank + fresh, &axis));
    for (int i = 0; i < list->n_item; i++) {
        if (list->item[i]->item) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "a list of lists");
        x[i] = pl_ox_plain(c->b, list->item[i]);
    }
    return pl_ox_set(c, 0,
                     fresh ? pl_stack(c->g, list->n_item, x, axis)
                           : pl_concat(c->g, list->n_item, x, axis),
                     NULL);
}

/* ---- optional values: known at import whether there is one ----------------------------------- */
pl_status pl_ox_emit_optional(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "an optional value that is never there");
    return pl_ox_set_val(c, 0, c->in[0]);
}

pl_status pl_ox_emit_optional_get(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0)) return pl_ox_fail(c, PL_ERR_FILE, "there is no value to take");
    return pl_ox_set_val(c, 0, c->in[0]);
}

pl_status pl_ox_emit_optional_has(pl_ox_call *c)
{
    pl_ox_val *y = pl_ox_host_new(c->b, PL_BOOL, 0, NULL);
    if (!y) return PL_ERR_MEMORY;
    y->host.i[0] = pl_ox_has(c, 0);
    return pl_ox_set_val(c, 0, y);
}
