/* loss.c - losses in primitives; see plimsoll_nn.h. Reductions are means unless stated otherwise.
 *
 * A loss and its gradient are computed in f32 in every precision of the program: each function
 * calls begin and end for that.
 */
#include "nn/nn.h"

static void begin(pl_graph *g)
{
    pl_scope_push(g, "loss");
    pl_scope_full(g);
}

static pl_val end(pl_graph *g, pl_val v)
{
    pl_scope_pop(g);
    return v;
}

static pl_val mean_all(pl_graph *g, pl_val x)
{
    return pl_mean(g, x, PL_AXES_ALL, false);
}

static uint32_t axes_but_first(int rank)
{
    uint32_t axes = 0;
    for (int i = 1; i < rank; i++) axes |= PL_AXIS(i);
    return axes;
}

pl_val pl_loss_mse(pl_graph *g, pl_val x, pl_val y)
{
    begin(g);
    return end(g, mean_all(g, pl_square(g, pl_sub(g, x, y))));
}

pl_val pl_loss_l1(pl_graph *g, pl_val x, pl_val y)
{
    begin(g);
    return end(g, mean_all(g, pl_abs(g, pl_sub(g, x, y))));
}

pl_val pl_loss_huber(pl_graph *g, pl_val x, pl_val y, double delta)
{
    begin(g);
    pl_val e = pl_abs(g, pl_sub(g, x, y));
    pl_val near = pl_scale(g, pl_square(g, e), 0.5);
    pl_val far = pl_scale(g, pl_shift(g, e, -0.5 * delta), delta);
    return end(g, pl_select(g, pl_le(g, e, pl_full_like(g, e, delta)), near, far));
}

pl_val pl_loss_smooth_l1(pl_graph *g, pl_val x, pl_val y, double beta)
{
    begin(g);
    if (beta <= 0) return end(g, pl_abs(g, pl_sub(g, x, y)));
    pl_val e = pl_abs(g, pl_sub(g, x, y));
    pl_val near = pl_scale(g, pl_square(g, e), 0.5 / beta);
    pl_val far = pl_shift(g, e, -0.5 * beta);
    return end(g, pl_select(g, pl_lt(g, e, pl_full_like(g, e, beta)), near, far));
}

pl_val pl_loss_cross_entropy(pl_graph *g, pl_val logits, pl_val labels)
{
    return pl_loss_cross_entropy_with(g, logits, labels, (pl_cross_entropy){0});
}

/* The weight of each row in the mean, f32; PL_NO_VAL: all 1. */
static pl_val row_weights(pl_graph *g, pl_val labels, pl_val rows, const pl_cross_entropy *o)
{
    pl_val weight = PL_NO_VAL, valid = PL_NO_VAL;
    if (o->ignore != 0 || o->ignore_zero) { /* rows that do not count read class 0 */
        valid = pl_ne(g, labels, pl_full_like(g, labels, (double)o->ignore));
        labels = pl_select(g, valid, labels, pl_full_like(g, labels, 0));
        weight = pl_cast(g, valid, pl_val_type(g, rows).dtype);
    }
    if (!pl_val_ok(o->weight)) return weight;
    pl_val each = pl_take(g, o->weight, labels);
    return pl_val_ok(weight) ? pl_mul(g, each, weight) : each;
}

/* The op reads logits as they are stored, in 16 bits too, and computes in f32; so it is outside the
 * scope that requires f32 operands. Logits of one dimension of rows are what the product before
 * gives: with a large vocabulary, product and loss are computed in chunks of these rows
 * (pass/chunk_rows.c). */
pl_val pl_loss_cross_entropy_with(pl_graph *g, pl_val logits, pl_val labels, pl_cross_entropy o)
{
    if (!pl_val_ok(logits) || !pl_val_ok(labels)) return PL_NO_VAL;
    pl_scope_push(g, "loss");
    int rank = pl_val_type(g, logits).rank;
    if (rank > 2) {
        logits = pl_reshape(g, logits, PL_DIMS(-1, pl_val_type(g, logits).dim[rank - 1]));
        labels = pl_reshape(g, labels, PL_DIMS(-1));
    }
    pl_val rows = pl_cross_entropy_rows(g, logits, labels, o, NULL);
    pl_scope_pop(g);
    begin(g);
    pl_val weight = row_weights(g, labels, rows, &o);
    if (!pl_val_ok(weight)) return end(g, mean_all(g, rows));
    pl_val n = pl_sum(g, weight, PL_AXES_ALL, false), one = pl_full_like(g, n, 1);
    pl_val some = pl_gt(g, n, pl_full_like(g, n, 0));
    return end(g, pl_div(g, pl_sum(g, rows, PL_AXES_ALL, false), pl_select(g, some, n, one)));
}

pl_val pl_loss_cross_entropy_mixed(pl_graph *g, pl_val logits, pl_val labels, pl_val mixed,
                                   pl_val share, pl_cross_entropy o)
{
    if (!pl_val_ok(logits) || !pl_val_ok(labels) || !pl_val_ok(mixed)) return PL_NO_VAL;
    pl_scope_push(g, "loss");
    pl_val own = pl_cross_entropy_rows(g, logits, labels, o, NULL),
           other = pl_cross_entropy_rows(g, logits, mixed, o, NULL);
    pl_scope_pop(g);
    begin(g);
    pl_val apart = pl_mul(g, share, pl_sub(g, own, other));
    return end(g, mean_all(g, pl_add(g, other, apart)));
}

pl_val pl_loss_bce_with_logits(pl_graph *g, pl_val logits, pl_val target)
{
    begin(g);
    return end(g, mean_all(g, pl_sub(g, pl_softplus(g, logits), pl_mul(g, logits, target))));
}

pl_val pl_loss_hinge_d(pl_graph *g, pl_val on_real, pl_val on_fake)
{
    begin(g);
    pl_val real = mean_all(g, pl_relu(g, pl_shift(g, pl_neg(g, on_real), 1)));
    pl_val fake = mean_all(g, pl_relu(g, pl_shift(g, on_fake, 1)));
    return end(g, pl_add(g, real, fake));
}

pl_val pl_loss_hinge_g(pl_graph *g, pl_val on_fake)
{
    begin(g);
    return end(g, pl_neg(g, mean_all(g, on_fake)));
}

pl_val pl_loss_kl(pl_graph *g, pl_val mu, pl_val logvar)
{
    if (!pl_val_ok(mu)) return mu;
    begin(g);
    pl_val s = pl_shift(g, pl_add(g, pl_square(g, mu), pl_exp(g, logvar)), -1);
    s = pl_scale(g, pl_sub(g, s, logvar), 0.5);
    return end(g, mean_all(g, pl_sum(g, s, axes_but_first(pl_val_type(g, mu).rank), false)));
}

pl_val pl_loss_cosine_similarity(pl_graph *g, pl_val x, pl_val y, int axis)
{
    begin(g);
    pl_val a = pl_nn_normalize(g, x, axis, 1e-8), b = pl_nn_normalize(g, y, axis, 1e-8);
    return end(g, pl_sum(g, pl_mul(g, a, b), PL_AXIS(axis), false));
}

/* No gradient flows through the choice of hard samples. */
pl_val pl_loss_hard_mining(pl_graph *g, pl_val per_sample, double fraction, double factor)
{
    if (!pl_val_ok(per_sample)) return per_sample;
    pl_type t = pl_val_type(g, per_sample);
    int64_t k = (int64_t)((double)t.dim[0] * fraction);
    begin(g);
    if (k < 1) return end(g, mean_all(g, per_sample));
    pl_val values, hard;
    pl_topk(g, pl_stop_gradient(g, per_sample), k, 0, &values, &hard);
    pl_val extra = pl_fill(g, PL_TYPE(t.dtype, k), factor - 1);
    pl_val weight = pl_shift(g, pl_scatter_add(g, extra, hard, t.dim[0]), 1);
    return end(g, mean_all(g, pl_mul(g, per_sample, weight)));
}

pl_val pl_loss_r1(pl_graph *g, pl_val logits, pl_val x)
{
    if (!pl_val_ok(logits) || !pl_val_ok(x)) return PL_NO_VAL;
    pl_val slope = PL_NO_VAL;
    begin(g);
    pl_grad(g, logits, &x, 1, &slope);
    pl_val power = pl_sum(g, pl_square(g, slope), axes_but_first(pl_val_type(g, x).rank), false);
    return end(g, mean_all(g, power));
}

/* Returns the sorted projections [rows, P] of the patches of one map. */
static pl_val swd_side(pl_graph *g, pl_val x, int k, pl_val rows, pl_val directions)
{
    pl_conv_opts o = {.pad_lo = {k / 2, k / 2}, .pad_hi = {k / 2, k / 2}};
    int64_t c = pl_val_type(g, x).dim[3];
    pl_val patches = pl_unfold(g, x, &o, (const int[]){k, k});
    patches = pl_reshape(g, patches, PL_DIMS(-1, k * k * c));
    if (pl_val_ok(rows)) patches = pl_take(g, patches, rows);
    pl_val sorted;
    pl_sort(g, pl_matmul(g, patches, directions, false, false), 0, false, &sorted, NULL);
    return sorted;
}

pl_val pl_loss_patch_swd(pl_graph *g, pl_val x, pl_val y, int k, pl_val rows, pl_val directions)
{
    if (!pl_val_ok(x) || !pl_val_ok(y) || !pl_val_ok(directions)) return PL_NO_VAL;
    int64_t c = pl_val_type(g, x).dim[3], p = pl_val_type(g, directions).dim[1];
    begin(g);
    pl_val d = pl_nn_normalize(g, directions, 0, 1e-12);
    /* patches are window first, channel last */
    d = pl_reshape(g, d, PL_DIMS(c, k * k, p));
    d = pl_reshape(g, pl_transpose(g, d, 0, 1), PL_DIMS(k * k * c, p));
    return end(g, pl_loss_mse(g, swd_side(g, x, k, rows, d), swd_side(g, y, k, rows, d)));
}

/* Cosines between the chosen positions of each sample, [N, S, S]. */
static pl_val cosines(pl_graph *g, pl_val x, pl_val positions)
{
    pl_type t = pl_val_type(g, x);
    pl_val z = pl_reshape(g, x, PL_DIMS(t.dim[0], -1, t.dim[3]));
    if (pl_val_ok(positions)) {
        /* rows are picked along axis 0 */
        z = pl_take(g, pl_transpose(g, z, 0, 1), positions);
        z = pl_transpose(g, z, 0, 1);
    }
    z = pl_nn_normalize(g, z, -1, 1e-12);
    return pl_matmul(g, z, z, false, true);
}

pl_val pl_loss_cosine_ssm(pl_graph *g, pl_val x, pl_val y, pl_val positions)
{
    if (!pl_val_ok(x) || !pl_val_ok(y)) return PL_NO_VAL;
    begin(g);
    return end(g, pl_loss_mse(g, cosines(g, x, positions), cosines(g, y, positions)));
}

/* x / (|x| + 1e-10). The floor under the root is far below 1e-10 and keeps the gradient of a zero
 * vector finite. */
static pl_val channel_unit(pl_graph *g, pl_val x)
{
    pl_val power = pl_sum(g, pl_square(g, x), PL_AXIS(-1), true);
    pl_val norm = pl_sqrt(g, pl_max(g, power, pl_full_like(g, power, 1e-30)));
    return pl_div(g, x, pl_shift(g, norm, 1e-10));
}

pl_val pl_loss_lpips_level(pl_graph *g, pl_val x, pl_val y, pl_val weights)
{
    begin(g);
    pl_val d = pl_square(g, pl_sub(g, channel_unit(g, x), channel_unit(g, y)));
    return end(g, mean_all(g, pl_sum(g, pl_mul(g, d, weights), PL_AXIS(-1), false)));
}
