/* emit_state.c - ops that carry something along a sequence: running products, linear attention,
 * causal convolutions with a state, writes into a cache. Sequences have a fixed length, so the
 * steps are unrolled. */
#include "onnx/emit/emit.h"
#include "onnx/host.h"

#include <math.h>
#include <string.h>

enum { MAX_STEPS = 4096 };

/* Part [at, at + 1) of an axis. */
static pl_val one_of(pl_graph *g, pl_val x, int axis, int64_t at)
{
    return pl_slice(g, x, axis, at, at + 1, 1);
}

pl_status pl_ox_emit_cumprod(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    int axis;
    PL_TRY(pl_ox_input_and_axis(c, &v, &x, &axis));
    pl_graph *g = c->g;
    int at = pl_ox_axis(v, axis);
    bool back = pl_ox_attr_int(c, "reverse", 0) != 0;
    bool before = pl_ox_attr_int(c, "exclusive", 0) != 0;
    int64_t n = v->dim[axis];
    if (n > MAX_STEPS)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%lld elements; at most %d are supported",
                          (long long)n, MAX_STEPS);
    pl_val *part = pl_arena_new(&c->b->mem, pl_val, (int)n + 1);
    if (!part) return PL_ERR_MEMORY;
    pl_val product = pl_full_like(g, one_of(g, x, at, 0), 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = back ? n - 1 - i : i;
        pl_val next = pl_mul(g, product, one_of(g, x, at, k));
        part[k] = before ? product : next;
        product = next;
    }
    return pl_ox_set(c, 0, pl_concat(g, (int)n, part, at), v->perm);
}

/* ---- linear attention ------------------------------------------------------------------------ */
/* Input k [B, T, H*D] as [B, T, H, D] in f32, or in f64 when it is f64. */
static pl_status heads_of(pl_ox_call *c, int k, int64_t heads, pl_val *out)
{
    pl_ox_val *v = NULL;
    pl_val x = PL_NO_VAL;
    PL_TRY(pl_ox_input_plain(c, k, &v, &x));
    if (v->rank != 3 || heads < 1 || v->dim[2] % heads)
        return pl_ox_fail(c, PL_ERR_SHAPE, "input %d has %d dimensions, %lld heads", k, v->rank,
                          (long long)heads);
    *out = pl_reshape(c->g, pl_ox_wide(c->g, x),
                      PL_DIMS(v->dim[0], v->dim[1], heads, v->dim[2] / heads));
    return PL_OK;
}

/* Step t of [B, T, H, D] as [B, H, D, 1], or as [B, H, 1, D]. */
static pl_val step_of(pl_graph *g, pl_val x, int64_t t, bool column)
{
    pl_type s = pl_val_type(g, x);
    x = one_of(g, x, 1, t);
    return column ? pl_reshape(g, x, PL_DIMS(s.dim[0], s.dim[2], s.dim[3], 1))
                  : pl_reshape(g, x, PL_DIMS(s.dim[0], s.dim[2], 1, s.dim[3]));
}

/* The state is a matrix [D, E] for each head of keys: it decays, gets the outer product of key and
 * value, and is read by the queries. The delta rules write the difference from the value that the
 * state already returns for the key. */
pl_status pl_ox_emit_linear_attention(pl_ox_call *c)
{
    pl_graph *g = c->g;
    int64_t hq = pl_ox_attr_int(c, "q_num_heads", 0), hk = pl_ox_attr_int(c, "kv_num_heads", 0);
    const char *rule = pl_ox_attr_text(c, "update_rule", "gated_delta");
    bool gated = strncmp(rule, "gated", 5) == 0, delta = strstr(rule, "delta") != NULL;
    pl_val q, k, v, decay = PL_NO_VAL, beta = PL_NO_VAL, state;
    PL_TRY(heads_of(c, 0, hq, &q));
    PL_TRY(heads_of(c, 1, hk, &k));
    PL_TRY(heads_of(c, 2, hk, &v));
    if (hq % hk) return pl_ox_fail(c, PL_ERR_SHAPE, "%lld heads", (long long)hq);
    if (gated) PL_TRY(heads_of(c, 4, hk, &decay));
    if (delta)
        PL_TRY(heads_of(c, 5, c->n_in > 5 && c->in[5] && c->in[5]->dim[2] == 1 ? 1 : hk, &beta));
    pl_type qt = pl_val_type(g, q), vt = pl_val_type(g, v);
    int64_t b = qt.dim[0], steps = qt.dim[1], d = qt.dim[3], e = vt.dim[3], each = hq / hk;
    pl_dtype own = c->in[0]->dtype;
    if (steps > MAX_STEPS || steps < 1)
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "%lld steps; at most %d are supported",
                          (long long)steps, MAX_STEPS);
    bool past = pl_ox_has(c, 3);
    state = past ? pl_ox_wide(g, pl_ox_plain(c->b, c->in[3]))
                 : pl_fill(g, PL_TYPE(qt.dtype, b, hk, d, e), 0);
    double scale = pl_ox_attr_float(c, "scale", 0);
    if (scale == 0) scale = 1 / sqrt((double)d);
    pl_val *out = pl_arena_new(&c->b->mem, pl_val, (int)steps);
    if (!out) return PL_ERR_MEMORY;
    for (int64_t t = 0; t < steps; t++) {
        pl_val key = step_of(g, k, t, true), value = step_of(g, v, t, false);
        if (gated) state = pl_mul(g, state, pl_exp(g, step_of(g, decay, t, true)));
        if (delta)
            value = pl_mul(g, step_of(g, beta, t, false),
                           pl_sub(g, value, pl_matmul(g, key, state, true, false)));
        state = pl_add(g, state, pl_mul(g, key, value));
        /* queries of one head of keys are rows of one product: [B, K, each, D] */
        pl_val rows = pl_reshape(g, one_of(g, q, 1, t), PL_DIMS(b, hk, each, d));
        out[t] = pl_reshape(g, pl_matmul(g, rows, state, false, false), PL_DIMS(b, 1, hq * e));
    }
    pl_val y = pl_scale(g, pl_concat(g, (int)steps, out, 1), scale);
    PL_TRY(pl_ox_set(c, 0, pl_ox_cast(g, y, own), NULL));
    if (c->n_out < 2) return PL_OK;
    return pl_ox_set(c, 1, pl_ox_cast(g, state, past ? c->in[3]->dtype : own), NULL);
}

/* ---- convolutions with a state --------------------------------------------------------------- */
/* A depthwise convolution over [B, C, L] that sees the past only; the state has the last elements
 * of what came before. */
pl_status pl_ox_emit_causal_conv(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *w = NULL;
    pl_val x = PL_NO_VAL, f = PL_NO_VAL;
    pl_graph *g = c->g;
    PL_TRY(pl_ox_input(c, 0, &v, &x));
    PL_TRY(pl_ox_input(c, 1, &w, &f));
    if (v->rank != 3 || w->rank != 3 || w->dim[1] != 1 || w->dim[0] != v->dim[1])
        return pl_ox_fail(c, PL_ERR_SHAPE, "an input of %d and a weight of %d dimensions", v->rank,
                          w->rank);
    int64_t before = w->dim[2] - 1, channels = v->dim[1];
    x = pl_ox_last(c->b, v); /* [B, L, C] */
    if (pl_ox_has(c, 3) && before) {
        pl_val part[] = {pl_ox_last(c->b, c->in[3]), x};
        x = pl_concat(g, 2, part, 1);
    } else
        x = pl_pad(g, x, 1, before, 0, 0, 0);
    pl_conv_opts o = {.groups = (int)channels};
    o.stride[0] = o.dilation[0] = 1;
    pl_val bias = pl_ox_has(c, 2) ? pl_ox_plain(c->b, c->in[2]) : PL_NO_VAL;
    pl_val y = pl_conv(g, x, pl_ox_last(c->b, w), bias, &o);
    if (!pl_ox_attr_is(c, "activation", "none", "none")) y = pl_silu(g, y); /* silu, swish */
    PL_TRY(pl_ox_set(c, 0, y, (const int[]){0, 2, 1}));
    if (c->n_out < 2) return PL_OK;
    int64_t n = pl_val_type(g, x).dim[1];
    return pl_ox_set(c, 1, pl_slice(g, x, 1, n - before, n, 1), (const int[]){0, 2, 1});
}

/* ---- caches ---------------------------------------------------------------------------------- */
/* Writes `update` into the cache along an axis, from a position of each sample on; circular: around
 * the end. */
pl_status pl_ox_emit_tensor_scatter(pl_ox_call *c)
{
    pl_ox_val *v = NULL, *u = NULL;
    pl_val x = PL_NO_VAL, new = PL_NO_VAL;
    int axis;
    pl_graph *g = c->g;
    PL_TRY(pl_ox_input_plain(c, 0, &v, &x));
    PL_TRY(pl_ox_input_plain(c, 1, &u, &new));
    PL_TRY(pl_ox_axis_of(c, pl_ox_attr_int(c, "axis", -2), v->rank, &axis));
    if (u->rank != v->rank || !axis || u->dim[axis] > v->dim[axis])
        return pl_ox_fail(c, PL_ERR_SHAPE, "an update that does not fit the cache");
    int64_t n = v->dim[axis], ones[PL_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    pl_type t = pl_type_make(PL_I64, v->rank, v->dim);
    /* element j of the cache is element j - start of the update */
    pl_val at = pl_iota(g, t, axis);
    ones[0] = v->dim[0];
    if (pl_ox_has(c, 2))
        at = pl_sub(
            g, at,
            pl_reshape(g, pl_ox_cast(g, pl_ox_plain(c->b, c->in[2]), PL_I64), v->rank, ones));
    if (pl_ox_attr_is(c, "mode", "linear", "circular")) {
        pl_val low = pl_lt(g, at, pl_full_like(g, at, 0));
        at = pl_select(g, low, pl_shift(g, at, (double)n), at);
    }
    pl_val last = pl_full_like(g, at, (double)(u->dim[axis] - 1));
    pl_val in = pl_and(g, pl_ge(g, at, pl_full_like(g, at, 0)), pl_le(g, at, last));
    pl_val from = pl_take_along(g, new, pl_clamp(g, at, 0, (double)(u->dim[axis] - 1)), axis);
    return pl_ox_set(c, 0, pl_select(g, in, from, x), NULL);
}
