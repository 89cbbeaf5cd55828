/* emit_attention.c - Attention and RotaryEmbedding.
 *
 * Without a mask and a cap on the scores, attention is the engine's op, which stores no
 * probabilities and takes [B, N, H, D]; that is the physical order of heads that an exporter made
 * by Reshape and Transpose, so nothing is copied. */
#include "onnx/emit/attention_op.h"
#include "onnx/emit/emit.h"

#include <math.h>
#include <string.h>

/* Repeats heads of keys and values [B, K, M, D] until there are `heads`. */
static pl_val repeated(pl_graph *g, pl_val x, int64_t heads)
{
    pl_type t = pl_val_type(g, x);
    if (t.rank != 4 || t.dim[1] < 1 || heads % t.dim[1]) return x; /* the product refuses it */
    int64_t n = heads / t.dim[1];
    if (n <= 1) return x;
    x = pl_broadcast(g, pl_unsqueeze(g, x, 2), PL_DIMS(t.dim[0], t.dim[1], n, t.dim[2], t.dim[3]));
    return pl_reshape(g, x, PL_DIMS(t.dim[0], heads, t.dim[2], t.dim[3]));
}

/* Truth values: which keys a query sees by its position, [N, M], or [B, 1, N, M] with lengths. */
static pl_val visible(pl_ox_build *b, const pl_ox_attention *a)
{
    pl_graph *g = b->g;
    int64_t n = a->q->dim[2], m = a->k->dim[2];
    int at = a->lengths ? 2 : 0;
    pl_type t = a->lengths ? PL_TYPE(PL_I32, a->q->dim[0], 1, n, m) : PL_TYPE(PL_I32, n, m);
    pl_val key = pl_iota(g, t, at + 1), query = pl_iota(g, t, at), on = PL_NO_VAL, length;
    if (a->lengths) {
        length = pl_ox_cast(g, pl_ox_plain(b, a->lengths), PL_I32);
        length = pl_reshape(g, length, PL_DIMS(t.dim[0], 1, 1, 1));
        query = pl_add(g, query, pl_shift(g, length, -(double)n));
        on = pl_lt(g, key, length);
    } else
        query = pl_shift(g, query, (double)a->offset);
    if (a->causal) {
        pl_val x = pl_le(g, key, query);
        on = pl_val_ok(on) ? pl_and(g, on, x) : x;
    }
    for (int k = 0; k < 2 && a->windowed; k++) {
        int64_t far = k ? a->right : a->left;
        pl_val x = k ? pl_sub(g, key, query) : pl_sub(g, query, key);
        if (far < 0) continue;
        x = pl_le(g, x, pl_full_like(g, x, (double)far));
        on = pl_val_ok(on) ? pl_and(g, on, x) : x;
    }
    return on;
}

pl_val pl_ox_attend(pl_ox_build *b, const pl_ox_attention *a, pl_val *scores)
{
    static const int tokens_first[] = {0, 2, 1, 3};
    pl_graph *g = b->g;
    int64_t n = a->q->dim[2], m = a->k->dim[2], d = a->q->dim[3], heads = a->q->dim[1];
    int64_t keys = a->k->dim[1];
    bool same = d == a->v->dim[3] && keys == a->v->dim[1] && a->q->dtype == a->v->dtype &&
                (heads == keys || (keys > 0 && heads % keys == 0));
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)d);
    bool plain = !a->bias && !(a->softcap > 0) && !scores && !a->windowed && !a->lengths;
    if (same && plain && !(a->causal && (n != m || a->offset)))
        return pl_attention(g, pl_ox_ordered(b, a->q, 4, tokens_first),
                            pl_ox_ordered(b, a->k, 4, tokens_first),
                            pl_ox_ordered(b, a->v, 4, tokens_first), scale, a->causal);
    pl_val q = pl_ox_plain(b, a->q), k = repeated(g, pl_ox_plain(b, a->k), heads);
    pl_val v = repeated(g, pl_ox_plain(b, a->v), heads);
    pl_val s = pl_scale(g, pl_matmul(g, q, k, false, true), scale);
    if (scores && a->scores_mode == 0) *scores = s;
    pl_dtype own = pl_val_type(g, s).dtype;
    if (a->softcap > 0) s = pl_scale(g, pl_tanh(g, pl_scale(g, s, 1 / a->softcap)), a->softcap);
    if (scores && a->scores_mode == 1) *scores = s;
    if (a->bias) s = pl_add(g, s, pl_ox_cast(g, pl_ox_plain(b, a->bias), own));
    pl_val on = a->causal || a->windowed || a->lengths ? visible(b, a) : PL_NO_VAL;
    if (pl_val_ok(on)) s = pl_select(g, on, s, pl_full_like(g, s, own == PL_F16 ? -6e4 : -1e30));
    if (scores && a->scores_mode == 2) *scores = s;
    s = pl_softmax(g, s, 3);
    /* a row without a key gives zeros */
    if (a->keep) s = pl_mul(g, s, pl_cast(g, pl_ox_plain(b, a->keep), own));
    if (pl_val_ok(on) && (a->keep || a->windowed || a->lengths))
        s = pl_mul(g, s, pl_cast(g, on, own));
    if (scores && a->scores_mode == 3) *scores = s;
    return pl_permute(g, pl_matmul(g, s, v, false, false), tokens_first);
}

/* Input k as [B, H, N, D]: 3 dimensions are [B, N, H*D]. */
static pl_status heads_of(pl_ox_call *c, int k, const char *attr, pl_ox_val **out)
{
    if (!pl_ox_has(c, k)) return pl_ox_fail(c, PL_ERR_FILE, "input %d is missing", k);
    pl_ox_val *v = c->in[k];
    pl_ox_any(c->b, v);
    *out = v;
    if (v->rank == 4) return PL_OK;
    int64_t heads = pl_ox_attr_int(c, attr, 0);
    if (v->rank != 3 || heads < 1 || v->dim[2] % heads)
        return pl_ox_fail(c, PL_ERR_SHAPE, "input %d has %d dimensions, %s is %lld", k, v->rank,
                          attr, (long long)heads);
    const int64_t dim[] = {v->dim[0], v->dim[1], heads, v->dim[2] / heads};
    pl_val x = pl_reshape(c->g, pl_ox_plain(c->b, v), 4, dim);
    *out = pl_ox_val_new(c->b, x, (const int[]){0, 2, 1, 3});
    return *out ? PL_OK : PL_ERR_MEMORY;
}

/* Keys or values, after the keys or values of the past. */
static pl_status with_past(pl_ox_call *c, int k, pl_ox_val **v)
{
    if (!pl_ox_has(c, k)) return PL_OK;
    pl_val part[] = {pl_ox_plain(c->b, c->in[k]), pl_ox_plain(c->b, *v)};
    *v = pl_ox_val_new(c->b, pl_concat(c->g, 2, part, 2), NULL);
    return *v ? PL_OK : PL_ERR_MEMORY;
}

/* A mask of truth values becomes numbers that are added to the scores. A mask that is shorter than
 * the keys hides the others. */
static pl_status bias_of(pl_ox_call *c, pl_ox_val *mask, pl_dtype dtype, int64_t keys,
                         pl_ox_val **out)
{
    pl_graph *g = c->g;
    pl_val x = pl_ox_plain(c->b, mask);
    double low = dtype == PL_F16 ? -6e4 : -1e30;
    if (mask->dtype == PL_BOOL) {
        pl_val zero = pl_full_like(g, pl_cast(g, x, dtype), 0);
        x = pl_select(g, x, zero, pl_full_like(g, zero, low));
    }
    int64_t have = mask->rank ? mask->dim[mask->rank - 1] : 1;
    if (have != 1 && have < keys) x = pl_pad(g, x, mask->rank - 1, 0, keys - have, 0, low);
    *out = pl_ox_val_new(c->b, pl_ox_cast(g, x, dtype), NULL);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl_ox_emit_attention(pl_ox_call *c)
{
    pl_ox_attention a = {.causal = pl_ox_attr_int(c, "is_causal", 0) != 0,
                         .scale = pl_ox_attr_float(c, "scale", 0),
                         .softcap = pl_ox_attr_float(c, "softcap", 0),
                         .scores_mode = (int)pl_ox_attr_int(c, "qk_matmul_output_mode", 0)};
    PL_TRY(heads_of(c, 0, "q_num_heads", &a.q));
    PL_TRY(heads_of(c, 1, "kv_num_heads", &a.k));
    PL_TRY(heads_of(c, 2, "kv_num_heads", &a.v));
    if (pl_ox_has(c, 4)) a.offset = c->in[4]->dim[2];
    PL_TRY(with_past(c, 4, &a.k));
    PL_TRY(with_past(c, 5, &a.v));
    if (pl_ox_has(c, 6)) a.lengths = c->in[6];
    a.left = pl_ox_attr_int(c, "left_window_size", -1);
    a.right = pl_ox_attr_int(c, "right_window_size", -1);
    a.windowed = a.left >= 0 || a.right >= 0;
    if (a.lengths && (a.lengths->rank != 1 || a.lengths->dim[0] != a.q->dim[0]))
        return pl_ox_fail(c, PL_ERR_SHAPE, "nonpad_kv_seqlen has not one number for each sample");
    static const char *const known =
        "is_causal,scale,softcap,q_num_heads,kv_num_heads,qk_matmul_output_mode,softmax_precision,"
        "left_window_size,right_window_size";
    for (size_t k = 0; k < c->node->n_attribute; k++)
        if (c->node->attribute[k]->name && !pl_nn_match(known, c->node->attribute[k]->name))
            return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "attribute %s", c->node->attribute[k]->name);
    if (a.scores_mode < 0 || a.scores_mode > 3)
        return pl_ox_fail(c, PL_ERR_FILE, "qk_matmul_output_mode %d", a.scores_mode);
    if (pl_ox_has(c, 3)) PL_TRY(bias_of(c, c->in[3], a.q->dtype, a.k->dim[2], &a.bias));
    bool truth = pl_ox_has(c, 3) && c->in[3]->dtype == PL_BOOL && c->in[3]->rank > 0;
    if (truth && c->in[3]->dim[c->in[3]->rank - 1] == a.k->dim[2]) a.keep = c->in[3];
    pl_val scores = PL_NO_VAL;
    bool wanted = pl_ox_is_read(c, 3);
    pl_val y = pl_ox_attend(c->b, &a, wanted ? &scores : NULL);
    if (c->n_out > 1) PL_TRY(pl_ox_set_val(c, 1, a.k));
    if (c->n_out > 2) PL_TRY(pl_ox_set_val(c, 2, a.v));
    if (wanted) PL_TRY(pl_ox_set(c, 3, scores, NULL));
    if (c->in[0]->rank == 4) return pl_ox_set(c, 0, y, (const int[]){0, 2, 1, 3});
    pl_type t = pl_val_type(c->g, y); /* [B, N, H, D] */
    return pl_ox_set(c, 0, pl_reshape(c->g, y, PL_DIMS(t.dim[0], t.dim[1], t.dim[2] * t.dim[3])),
                     NULL);
}

/* Attention whose scores and probabilities pass through subgraphs of the node. */
pl_status pl_ox_emit_flex_attention(pl_ox_call *c)
{
    pl_graph *g = c->g;
    pl_ox_attention a = {.scale = pl_ox_attr_float(c, "scale", 0)};
    const pl_ox_attr *mod[2] = {pl_ox_attr_find(c, "score_mod"), pl_ox_attr_find(c, "prob_mod")};
    static const int tokens_second[] = {0, 2, 1, 3};
    PL_TRY(heads_of(c, 0, "", &a.q));
    PL_TRY(heads_of(c, 1, "", &a.k));
    PL_TRY(heads_of(c, 2, "", &a.v));
    if (!mod[0] && !mod[1]) return pl_ox_set(c, 0, pl_ox_attend(c->b, &a, NULL), tokens_second);
    pl_dtype work = a.q->dtype == PL_F64 ? PL_F64 : PL_F32;
    int32_t asked = (int32_t)pl_ox_attr_int(c, "softmax_precision", 0);
    if (asked && !pl_ox_dtype(asked, &work))
        return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "softmax_precision %d", asked);
    int64_t heads = a.q->dim[1];
    double scale = a.scale != 0 ? a.scale : 1 / sqrt((double)a.q->dim[3]);
    pl_val k = repeated(g, pl_ox_plain(c->b, a.k), heads);
    pl_val v = repeated(g, pl_ox_plain(c->b, a.v), heads);
    pl_val s = pl_matmul(g, pl_ox_plain(c->b, a.q), k, false, true);
    s = pl_ox_cast(g, pl_scale(g, s, scale), work);
    for (int i = 0; i < 2; i++) {
        if (i) s = pl_softmax(g, s, 3);
        if (!mod[i] || !mod[i]->g) continue;
        pl_ox_val *in = pl_ox_val_new(c->b, s, NULL), *out;
        if (!in) return PL_ERR_MEMORY;
        PL_TRY(pl_ox_subgraph(c, mod[i]->g, 1, &in, 1, &out));
        s = pl_ox_cast(g, pl_ox_plain(c->b, out), work);
    }
    pl_val y = pl_matmul(g, s, pl_ox_cast(g, v, work), false, false);
    return pl_ox_set(c, 0, pl_ox_cast(g, y, a.v->dtype), NULL);
}

/* cos or sin as [B, S, 1, D/2]: rows by position, or given for each token. */
static pl_val angles_of(pl_ox_call *c, int k, int64_t half)
{
    pl_graph *g = c->g;
    pl_val x = pl_ox_plain(c->b, c->in[k]);
    if (pl_ox_has(c, 3)) x = pl_take(g, x, pl_ox_plain(c->b, c->in[3]));
    pl_type t = pl_val_type(g, x);
    if (t.dim[t.rank - 1] > half) x = pl_slice(g, x, t.rank - 1, 0, half, 1);
    return pl_unsqueeze(g, x, 2);
}

pl_status pl_ox_emit_rotary(pl_ox_call *c)
{
    pl_ox_val *v = NULL;
    PL_TRY(heads_of(c, 0, "num_heads", &v));
    if (!pl_ox_has(c, 1) || !pl_ox_has(c, 2))
        return pl_ox_fail(c, PL_ERR_FILE, "cos or sin is missing");
    pl_graph *g = c->g;
    pl_val x = pl_ox_ordered(c->b, v, 4, (const int[]){0, 2, 1, 3}); /* [B, S, H, D] */
    pl_type t = pl_val_type(g, x);
    int64_t d = t.dim[3], turn = pl_ox_attr_int(c, "rotary_embedding_dim", 0);
    if (turn <= 0 || turn > d) turn = d;
    int64_t half = turn / 2;
    pl_val cs = angles_of(c, 1, half), sn = angles_of(c, 2, half), part[3], y;
    bool pairs = pl_ox_attr_int(c, "interleaved", 0) != 0;
    pl_val a = pl_slice(g, x, 3, 0, pairs ? turn - 1 : half, pairs ? 2 : 1);
    pl_val b = pl_slice(g, x, 3, pairs ? 1 : half, turn, pairs ? 2 : 1);
    part[0] = pl_sub(g, pl_mul(g, a, cs), pl_mul(g, b, sn));
    part[1] = pl_add(g, pl_mul(g, b, cs), pl_mul(g, a, sn));
    if (pairs) {
        y = pl_reshape(g, pl_stack(g, 2, part, 4), PL_DIMS(t.dim[0], t.dim[1], t.dim[2], turn));
        part[0] = y;
        part[1] = pl_slice(g, x, 3, turn < d ? turn : 0, d, 1);
        if (turn < d) y = pl_concat(g, 2, part, 3);
    } else {
        if (turn < d) part[2] = pl_slice(g, x, 3, turn, d, 1);
        y = pl_concat(g, turn < d ? 3 : 2, part, 3);
    }
    if (c->in[0]->rank == 4) return pl_ox_set(c, 0, y, (const int[]){0, 2, 1, 3});
    return pl_ox_set(c, 0, pl_reshape(g, y, PL_DIMS(t.dim[0], t.dim[1], t.dim[2] * d)), NULL);
}
