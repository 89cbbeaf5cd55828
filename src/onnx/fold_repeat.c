/* fold_repeat.c - known values that repeat along their first dimension, the batch.
 *
 * Exporters compute masks for every sample: [batch, 1, tokens, tokens], equal in each. Such a value
 * is too large to be computed at import, and one of its samples is not. Elementwise ops and Expand
 * are computed for one sample when all their inputs repeat; the value keeps it (pl_ox_val.one), so
 * that patterns see the mask. */
#include "onnx/host.h"

#include <string.h>

/* The value for one sample, its first dimension 1, in a result of `rank` dimensions; NULL: samples
 * differ, or there is no memory. */
static pl_ox_val *one_of(pl_ox_build *b, pl_ox_val *v, int rank)
{
    if (v->one) return v->one;
    if (v->rank < rank || v->dim[0] == 1) return v;
    if (v->dim[0] < 1) return NULL;
    int64_t n = v->host.n / v->dim[0], dim[PL_MAX_RANK];
    for (int64_t k = n; k < v->host.n; k++) {
        bool same = v->host.i ? v->host.i[k] == v->host.i[k % n]
                              : memcmp(&v->host.d[k], &v->host.d[k % n], sizeof *v->host.d) == 0;
        if (!same) return NULL;
    }
    memcpy(dim, v->dim, sizeof dim);
    dim[0] = 1;
    pl_ox_val *y = pl_ox_host_new(b, v->dtype, v->rank, dim);
    for (int64_t k = 0; y && k < n; k++) pl_ox_host_copy(y, k, v, k);
    return y;
}

/* The first dimension and the rank of the result, from n inputs and, for Expand, its shape. */
static int64_t first_dim(int n, pl_ox_val *const *in, const pl_ox_val *shape, int *rank)
{
    int64_t first = 1;
    *rank = shape ? (int)shape->host.n : 0;
    for (int i = 0; i < n; i++)
        if (in[i]->rank > *rank) *rank = in[i]->rank;
    for (int i = 0; i < n; i++)
        if (in[i]->rank == *rank && *rank && in[i]->dim[0] > first) first = in[i]->dim[0];
    if (shape && shape->host.n == *rank && *rank && shape->host.i[0] > first)
        first = shape->host.i[0];
    return first;
}

pl_status pl_ox_fold_repeated(pl_ox_call *c, pl_ox_fold_fn *fn, bool *done)
{
    enum { MOST = 4 };
    bool expand = strcmp(c->op, "Expand") == 0;
    int n = expand || strcmp(c->op, "CastLike") == 0 ? 1 : c->n_in, rank;
    if (c->n_in < 1 || c->n_in > MOST || (!expand && fn != pl_ox_fold_elementwise(c->op)))
        return PL_OK;
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i] || (!c->in[i]->one && !pl_ox_known(c->b, c->in[i]))) return PL_OK;
    pl_ox_val *shape = expand && c->n_in > 1 ? c->in[1] : NULL, *in[MOST], *out[1] = {NULL};
    if (expand && (!shape || !shape->host.i || shape->host.n > PL_MAX_RANK)) return PL_OK;
    int64_t first = first_dim(n, c->in, shape, &rank);
    if (first <= 1) return PL_OK;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = i < n ? one_of(c->b, c->in[i], rank) : c->in[i];
        if (!in[i]) return PL_OK;
    }
    if (shape && shape->host.n == rank) {
        in[1] = pl_ox_host_new(c->b, shape->dtype, shape->rank, shape->dim);
        if (!in[1] || !in[1]->host.i) return PL_ERR_MEMORY;
        for (int k = 0; k < rank; k++) in[1]->host.i[k] = k ? shape->host.i[k] : 1;
    }
    pl_ox_call one = *c;
    one.in = in;
    one.out = out;
    one.n_out = 1;
    bool folded = false;
    PL_TRY(fn(&one, &folded));
    if (!folded || !out[0] || out[0]->rank != rank || out[0]->dim[0] != 1) return PL_OK;
    pl_ox_val *y = pl_arena_new(&c->b->mem, pl_ox_val, 1);
    if (!y) return PL_ERR_MEMORY;
    *y = *out[0];
    y->known = false;
    y->host = (pl_ox_host){0};
    y->dim[0] = first;
    y->one = out[0];
    *done = true;
    return pl_ox_set_val(c, 0, y);
}
