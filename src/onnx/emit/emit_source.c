/* emit_source.c - constants, shapes, random numbers, dropout and branches. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

/* ---- constants ------------------------------------------------------------------------------- */
pl_status pl_ox_emit_constant(pl_ox_call *c)
{
    const pl_ox_attr *a;
    pl_ox_val *v = NULL;
    if ((a = pl_ox_attr_find(c, "value")) && a->t) {
        pl_type t;
        PL_TRY(pl_ox_tensor_type_of(c->b->model, a->t, &t));
        v = pl_arena_new(&c->b->mem, pl_ox_val, 1);
        if (!v) return PL_ERR_MEMORY;
        v->dtype = t.dtype;
        v->rank = t.rank;
        memcpy(v->dim, t.dim, sizeof v->dim);
        for (int i = 0; i < v->rank; i++) v->perm[i] = i;
        PL_TRY(pl_ox_tensor_read(c->b->model, a->t, &c->b->mem, &v->host));
        v->known = true;
        return pl_ox_set_val(c, 0, v);
    }
    bool ints = false, list = false;
    if ((a = pl_ox_attr_find(c, "value_int")))
        ints = true;
    else if ((a = pl_ox_attr_find(c, "value_ints")))
        ints = list = true;
    else if ((a = pl_ox_attr_find(c, "value_floats")))
        list = true;
    else if (!(a = pl_ox_attr_find(c, "value_float")))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "a constant of texts or a sparse one");
    int64_t n = list ? (int64_t)(ints ? a->n_ints : a->n_floats) : 1;
    v = pl_ox_host_new(c->b, ints ? PL_I64 : PL_F32, list, &n);
    if (!v) return PL_ERR_MEMORY;
    for (int64_t k = 0; k < n; k++) {
        if (ints)
            v->host.i[k] = list ? a->ints[k] : a->i;
        else
            v->host.d[k] = (double)(list ? a->floats[k] : a->f);
    }
    return pl_ox_set_val(c, 0, v);
}

static pl_status type_of(pl_ox_call *c, const int64_t *dim, int n, pl_dtype dtype, pl_type *t)
{
    if (n > PL_MAX_RANK)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%d dimensions; Plimsoll supports at most %d", n,
                          PL_MAX_RANK);
    double size = 1;
    for (int i = 0; i < n; i++) {
        if (dim[i] < 0) return pl_ox_fail(c, PL_ERR_FILE, "a dimension of %lld", (long long)dim[i]);
        size *= (double)dim[i];
    }
    if (size > 1e15) return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%g elements", size);
    *t = pl_type_make(dtype, n, dim);
    return PL_OK;
}

pl_status pl_ox_emit_constant_of_shape(pl_ox_call *c)
{
    const int64_t *dim;
    int n;
    pl_type t;
    pl_ox_host value = {0};
    pl_dtype dtype = PL_F32;
    PL_TRY(pl_ox_in_ints(c, 0, "shape", &dim, &n));
    const pl_ox_attr *a = pl_ox_attr_find(c, "value");
    if (a && a->t) {
        pl_type own;
        PL_TRY(pl_ox_tensor_type_of(c->b->model, a->t, &own));
        PL_TRY(pl_ox_tensor_read(c->b->model, a->t, &c->b->mem, &value));
        dtype = own.dtype;
    }
    double x = !value.n ? 0 : value.i ? (double)value.i[0] : value.d[0];
    PL_TRY(type_of(c, dim, n, dtype, &t));
    int64_t elems = pl_type_elems(&t);
    if (elems > PL_OX_HOST_ELEMS) return pl_ox_set(c, 0, pl_fill(c->g, t, x), NULL);
    pl_ox_val *v = pl_ox_host_new(c->b, dtype, n, t.dim);
    if (!v) return PL_ERR_MEMORY;
    for (int64_t k = 0; k < elems; k++) {
        if (value.i)
            v->host.i[k] = value.i[0];
        else
            v->host.d[k] = x;
    }
    return pl_ox_set_val(c, 0, v);
}

pl_status pl_ox_emit_shape(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0)) return pl_ox_fail(c, PL_ERR_FILE, "input 0 is missing");
    const pl_ox_val *v = c->in[0];
    int64_t from = pl_ox_attr_int(c, "start", 0), to = pl_ox_attr_int(c, "end", v->rank);
    if (from < 0) from += v->rank;
    if (to < 0) to += v->rank;
    from = from < 0 ? 0 : from > v->rank ? v->rank : from;
    to = to < from ? from : to > v->rank ? v->rank : to;
    int64_t n = to - from;
    pl_ox_val *y = pl_ox_host_new(c->b, PL_I64, 1, &n);
    if (!y) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) y->host.i[i] = v->dim[from + i];
    return pl_ox_set_val(c, 0, y);
}

pl_status pl_ox_emit_size(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0)) return pl_ox_fail(c, PL_ERR_FILE, "input 0 is missing");
    pl_ox_val *y = pl_ox_host_new(c->b, PL_I64, 0, NULL);
    if (!y) return PL_ERR_MEMORY;
    y->host.i[0] = pl_ox_elems(c->in[0]);
    return pl_ox_set_val(c, 0, y);
}

/* Range and NonZero are computed by folding, or not at all. */
pl_status pl_ox_emit_known_only(pl_ox_call *c)
{
    bool known = true;
    for (int i = 0; i < c->n_in; i++) known &= !c->in[i] || pl_ox_known(c->b, c->in[i]);
    if (known)
        return pl_ox_fail(c, PL_ERR_FILE,
                          "its inputs have no result, or one of more than %d elements",
                          PL_OX_HOST_ELEMS);
    return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                      "the size of its result depends on data; the engine plans memory before the "
                      "first step. Export the model with fixed sizes, or replace this part");
}

/* Bits of numbers are computed by folding, too. */
pl_status pl_ox_emit_bits(pl_ox_call *c)
{
    bool narrow = false;
    for (int i = 0; i < c->n_in; i++) narrow |= c->in[i] && c->in[i]->narrow;
    return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                      narrow ? "elements of this type have fewer bits in the file than in the "
                               "engine, so that the result would differ"
                             : "its inputs depend on data, and the engine computes bits of numbers "
                               "at import only");
}

pl_status pl_ox_emit_eye_like(pl_ox_call *c)
{
    if (!pl_ox_has(c, 0) || c->in[0]->rank != 2)
        return pl_ox_fail(c, PL_ERR_SHAPE, "it needs a matrix");
    pl_dtype dtype = c->in[0]->dtype;
    int32_t want = (int32_t)pl_ox_attr_int(c, "dtype", 0);
    if (want && !pl_ox_dtype(want, &dtype))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "elements of type %s", pl_ox_type_name(want));
    int64_t k = pl_ox_attr_int(c, "k", 0);
    pl_type t = pl_type_make(PL_I32, 2, c->in[0]->dim);
    pl_val hit = pl_eq(c->g, pl_shift(c->g, pl_iota(c->g, t, 0), (double)k), pl_iota(c->g, t, 1));
    return pl_ox_set(c, 0, pl_ox_cast(c->g, hit, dtype), NULL);
}

/* ---- random numbers -------------------------------------------------------------------------- */
static pl_status draw_type(pl_ox_call *c, pl_type *t)
{
    int n;
    pl_dtype dtype = PL_F32;
    bool like = c->n_in > 0 && c->in[0];
    const int64_t *dim = pl_ox_attr_ints(c, "shape", &n);
    int32_t want = (int32_t)pl_ox_attr_int(c, "dtype", 0);
    if (want && !pl_ox_dtype(want, &dtype))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "elements of type %s", pl_ox_type_name(want));
    if (!want && like && pl_dtype_is_float(c->in[0]->dtype)) dtype = c->in[0]->dtype;
    return like ? type_of(c, c->in[0]->dim, c->in[0]->rank, dtype, t)
                : type_of(c, dim, n, dtype, t);
}

pl_status pl_ox_emit_random_normal(pl_ox_call *c)
{
    pl_type t;
    PL_TRY(draw_type(c, &t));
    pl_val x = pl_random_normal(c->g, pl_nn_key(c->b->m), t);
    x = pl_scale(c->g, x, pl_ox_attr_float(c, "scale", 1));
    return pl_ox_set(c, 0, pl_shift(c->g, x, pl_ox_attr_float(c, "mean", 0)), NULL);
}

pl_status pl_ox_emit_random_uniform(pl_ox_call *c)
{
    pl_type t;
    PL_TRY(draw_type(c, &t));
    double lo = pl_ox_attr_float(c, "low", 0), hi = pl_ox_attr_float(c, "high", 1);
    pl_val x = pl_scale(c->g, pl_random_uniform(c->g, pl_nn_key(c->b->m), t), hi - lo);
    return pl_ox_set(c, 0, pl_shift(c->g, x, lo), NULL);
}

pl_status pl_ox_emit_bernoulli(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    pl_dtype dtype;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    if (!pl_ox_dtype((int32_t)pl_ox_attr_int(c, "dtype", 0), &dtype)) dtype = v->dtype;
    pl_val u = pl_random_uniform(c->g, pl_nn_key(c->b->m), pl_val_type(c->g, x));
    return pl_ox_set(c, 0, pl_ox_cast(c->g, pl_lt(c->g, u, x), dtype), v->perm);
}

/* Training programs drop; others pass x on. */
/* The package for Python writes x.detach() of TorchScript as a Dropout of nothing with this seed:
 * ONNX has no op that ends a gradient, and every runtime computes this node. */
enum { DETACH_SEED = 6579572 };

pl_status pl_ox_emit_dropout(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    double p = pl_ox_attr_float(c, "ratio", 0.5), on = 1;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_in_number(c, 1, "ratio", p, &p));
    /* training_mode as in the file: an exporter in evaluation mode leaves it out */
    PL_TRY(pl_ox_in_number(c, 2, "training_mode", 1, &on));
    pl_ox_val *y = v;
    if (p == 0 && pl_ox_attr_int(c, "seed", 0) == DETACH_SEED && pl_dtype_is_float(v->dtype))
        return pl_ox_set(c, 0, pl_stop_gradient(c->g, x), v->perm);
    bool mask = pl_ox_is_read(c, 1), drops = c->b->m->training && on != 0 && p > 0;
    if (drops && p >= 1) return pl_ox_fail(c, PL_ERR_FILE, "a ratio of %g", p);
    if (drops && !mask) {
        y = pl_ox_val_new(c->b, pl_nn_dropout(c->b->m, x, p), v->perm);
    } else if (drops) {
        pl_val u = pl_random_uniform(c->g, pl_nn_key(c->b->m),
                                     pl_type_make(PL_F32, v->rank, pl_val_type(c->g, x).dim));
        pl_val keep = pl_ge(c->g, u, pl_full_like(c->g, u, p));
        pl_val zero = pl_full_like(c->g, x, 0);
        y = pl_ox_val_new(c->b, pl_select(c->g, keep, pl_scale(c->g, x, 1 / (1 - p)), zero),
                          v->perm);
        PL_TRY(pl_ox_set(c, 1, keep, v->perm));
        return pl_ox_set_val(c, 0, y);
    }
    if (mask) {
        pl_type t = pl_type_make(PL_BOOL, v->rank, v->dim);
        PL_TRY(pl_ox_set(c, 1, pl_fill(c->g, t, 1), NULL));
    }
    return pl_ox_set_val(c, 0, y);
}

/* ---- control --------------------------------------------------------------------------------- */
pl_status pl_ox_emit_if(pl_ox_call *c)
{
    double on;
    if (!pl_ox_has(c, 0) || !pl_ox_known(c->b, c->in[0]))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                          "its condition depends on data; only conditions that are known at import "
                          "can be built");
    PL_TRY(pl_ox_in_number(c, 0, "condition", 0, &on));
    const pl_ox_attr *a = pl_ox_attr_find(c, on != 0 ? "then_branch" : "else_branch");
    if (!a || !a->g) return pl_ox_fail(c, PL_ERR_FILE, "a branch is missing");
    int n = a->g->n_output < (size_t)c->n_out ? (int)a->g->n_output : c->n_out;
    return pl_ox_subgraph(c, a->g, 0, NULL, n, c->out);
}
