/* attention_second.c - the second derivative of attention, and the gradient of its mask: what
 * attention.c computes, in primitives and differentiated. They do store the probabilities.
 */
#include "ops/core/attr.h"
#include "ops/net/attention.h"

/* Returns [B, N, H, D] as [B, H, 1, N, D], and [B, H, N] as [B, H, 1, N, 1], in the type of the
 * arithmetic. The rank differs from the operand's, so this is a separate value for all sizes. */
static pl_val heads_first(pl_graph *g, pl_val x, pl_dtype dt)
{
    pl_type t = pl_val_type(g, x);
    if (t.rank == 3)
        return pl_cast(
            g, pl_reshape(g, x, 5, (const int64_t[]){t.dim[0], t.dim[1], 1, t.dim[2], 1}), dt);
    pl_val y = pl_permute(g, x, (const int[]){0, 2, 1, 3});
    return pl_cast(
        g, pl_reshape(g, y, 5, (const int64_t[]){t.dim[0], t.dim[2], 1, t.dim[1], t.dim[3]}), dt);
}

/* The inverse, in the type of `like`. */
static pl_val tokens_first(pl_graph *g, pl_val x, pl_val like)
{
    pl_type t = pl_val_type(g, like);
    if (t.rank == 3) return pl_cast(g, pl_reshape(g, x, 3, t.dim), t.dtype);
    const int64_t dim[4] = {t.dim[0], t.dim[2], t.dim[1], t.dim[3]};
    pl_val y = pl_permute(g, pl_reshape(g, x, 4, dim), (const int[]){0, 2, 1, 3});
    return pl_cast(g, y, t.dtype);
}

/* Repeats the heads of keys and values, of [B,G,1,M,D], until there are `heads`. */
static pl_val repeated(pl_graph *g, pl_val x, int64_t heads)
{
    pl_type t = pl_val_type(g, x);
    if (t.dim[1] == heads) return x;
    x = pl_broadcast(g, x, PL_DIMS(t.dim[0], t.dim[1], heads / t.dim[1], t.dim[3], t.dim[4]));
    return pl_reshape(g, x, PL_DIMS(t.dim[0], heads, 1, t.dim[3], t.dim[4]));
}

/* The sum of a gradient over the heads that `repeated` copied from one head. */
static pl_val summed(pl_graph *g, pl_val x, int64_t keys_heads)
{
    pl_type t = pl_val_type(g, x);
    if (t.dim[1] == keys_heads) return x;
    x = pl_reshape(g, x, PL_DIMS(t.dim[0], keys_heads, t.dim[1] / keys_heads, t.dim[3], t.dim[4]));
    return pl_sum(g, x, PL_AXIS(2), true);
}

/* Replaces scores that a query must not see by a large negative number: their probability is
 * exactly 0. */
static pl_val only_earlier(pl_graph *g, pl_val p)
{
    pl_type t = pl_val_type(g, p), index = t;
    index.dtype = PL_I32;
    pl_val seen = pl_ge(g, pl_iota(g, index, 3), pl_iota(g, index, 4));
    return pl_select(g, seen, p, pl_full_like(g, p, 0));
}

/* The operands of a gradient, in this order; d_lse and mask may be missing. */
enum { Q, K, V, O, LSE, D_O, D_LSE, MASK, ROLES };

/* The values that a mask adds to scores: numbers in the type of the arithmetic, [B,H,1,N,M]. */
static pl_val added(pl_graph *g, pl_val mask, pl_dtype dt)
{
    pl_type t = pl_val_type(g, mask);
    pl_val x = pl_cast(g, mask, dt), least = pl_full_like(g, x, PL_ATTENTION_LEAST);
    if (t.dtype == PL_BOOL)
        x = pl_select(g, mask, pl_full_like(g, x, 0), least);
    else
        x = pl_max(g, x, least);
    return pl_reshape(g, x, 5, (const int64_t[]){t.dim[0], t.dim[1], 1, t.dim[2], t.dim[3]});
}

/* p and the gradient of the scores, by the formulas of the head comment; operands with heads
 * first. */
static pl_val probabilities(pl_graph *g, const pl_attention_attr *a, const pl_val *x,
                            pl_val *d_score)
{
    pl_val s = pl_scale(g, pl_matmul(g, x[Q], x[K], false, true), a->scale);
    if (pl_val_ok(x[MASK])) s = pl_add(g, s, x[MASK]);
    pl_val p = pl_exp(g, pl_sub(g, s, x[LSE]));
    if (a->causal) p = only_earlier(g, p);
    pl_val delta = pl_sum(g, pl_mul(g, x[O], x[D_O]), PL_AXIS(4), true);
    if (pl_val_ok(x[D_LSE])) delta = pl_sub(g, delta, x[D_LSE]);
    pl_val dp = pl_matmul(g, x[D_O], x[V], false, true);
    *d_score = pl_mul(g, p, pl_sub(g, dp, delta));
    return p;
}

/* y: dq, dk, dv. */
static void decomposed(pl_graph *g, const pl_attention_attr *a, const pl_val *x, pl_val *y)
{
    pl_val d_score, p = probabilities(g, a, x, &d_score), ds = pl_scale(g, d_score, a->scale);
    y[0] = pl_matmul(g, ds, x[K], false, false);
    y[1] = pl_matmul(g, ds, x[Q], true, false);
    y[2] = pl_matmul(g, p, x[D_O], true, false);
}

static pl_dtype sum_type(const pl_graph *g, pl_val q)
{
    return pl_val_type(g, q).dtype == PL_F64 ? PL_F64 : PL_F32;
}

/* Which operand comes i-th. */
static int role_of(int i, bool masked)
{
    return !masked || i < 3 ? i : i == 3 ? MASK : i - 1;
}

/* Sums a gradient of [B,H,1,N,M], or of what `added` made, over the axes along which the mask is
 * broadcast. */
static pl_val like_mask(pl_graph *g, pl_val x, pl_val mask)
{
    pl_type t = pl_val_type(g, mask), from = pl_val_type(g, x);
    static const int axis_of[4] = {0, 1, 3, 4};
    uint32_t axes = 0;
    for (int i = 0; i < 4; i++)
        if (t.dim[i] == 1 && from.dim[axis_of[i]] != 1) axes |= PL_AXIS(axis_of[i]);
    if (axes) x = pl_sum(g, x, axes, true);
    return pl_cast(g, pl_reshape(g, x, 4, t.dim), t.dtype);
}

/* Gradients stop at the rearranged operands: o and lse count as separate inputs here, though they
 * were computed from q, k and v. */
static void second_vjp(const pl_vjp *v, bool masked)
{
    pl_graph *g = v->g;
    pl_dtype dt = sum_type(g, v->in[0]);
    int64_t heads = pl_val_type(g, v->in[0]).dim[2], keys_heads = pl_val_type(g, v->in[1]).dim[2];
    pl_val x[ROLES] = {PL_NO_VAL}, all[ROLES], y[3], e[3], from[ROLES];
    for (int i = 0; i < v->n_in; i++) {
        int role = role_of(i, masked);
        all[i] = role == MASK ? added(g, v->in[i], dt) : heads_first(g, v->in[i], dt);
        x[role] = role == K || role == V ? repeated(g, all[i], heads) : all[i];
    }
    decomposed(g, v->attr, x, y);
    for (int k = 1; k < 3; k++) y[k] = summed(g, y[k], keys_heads);
    for (int k = 0; k < 3; k++)
        e[k] = pl_val_ok(v->gout[k]) ? heads_first(g, v->gout[k], dt) : PL_NO_VAL;
    pl_grad_seeded(g, y, e, 3, all, v->n_in, from);
    for (int i = 0; i < v->n_in; i++) {
        if (!pl_val_ok(from[i]) || !v->need[i]) continue;
        v->gin[i] = role_of(i, masked) == MASK ? like_mask(g, from[i], v->in[i])
                                               : tokens_first(g, from[i], v->in[i]);
    }
}

void pl_attention_bwd_vjp(const pl_vjp *v)
{
    second_vjp(v, false);
}

void pl_attention_masked_bwd_vjp(const pl_vjp *v)
{
    second_vjp(v, true);
}

pl_val pl_attention_mask_grad(pl_graph *g, const void *attr, const pl_val *in, pl_val o, pl_val lse,
                              pl_val d_o, pl_val d_lse)
{
    pl_dtype dt = sum_type(g, in[0]);
    pl_val x[ROLES] = {PL_NO_VAL}, d_score, of[] = {in[0], in[1], in[2], o, lse, d_o, d_lse};
    int64_t heads = pl_val_type(g, in[0]).dim[2];
    for (int i = Q; i <= D_LSE; i++)
        if (pl_val_ok(of[i])) x[i] = heads_first(g, of[i], dt);
    for (int i = K; i <= V; i++) x[i] = repeated(g, x[i], heads);
    x[MASK] = added(g, in[3], dt);
    probabilities(g, attr, x, &d_score);
    return like_mask(g, d_score, in[3]);
}
