/* loss.c - the objective of stablesr: predicts the noise in a latent, given its degraded form and
 * its edges.
 *
 *     x_t = sqrt(a_t) z + sqrt(1-a_t) eps, a the cumulative product of 1-beta
 *     loss = MSE(unet(fusion[x_t, edge], t, context, struct(lq, t)), eps)
 */
#include "stablesr.h"

/* sqrt(a_t) and sqrt(1-a_t) for every t, a = cumulative product of 1-beta, in f64. */
static void noise_tables(pl_graph *g, pl_dtype dtype, pl_val *signal, pl_val *noise)
{
    pl_val beta =
        pl_square(g, pl_nn_linspace(g, PL_F64, 0.029154759474226504, 0.10954451150103323, 1000));
    pl_val keep = pl_exp(g, pl_cumsum(g, pl_log(g, pl_shift(g, pl_neg(g, beta), 1)), 0, false));
    *signal = pl_cast(g, pl_sqrt(g, keep), dtype);
    *noise = pl_cast(g, pl_sqrt(g, pl_shift(g, pl_neg(g, keep), 1)), dtype);
}

pl_val sr_noised(pl_nn *m, const sr_config *c, const sr_batch *b)
{
    pl_graph *g = m->g;
    pl_val signal, noise;
    noise_tables(g, m->dtype, &signal, &noise);
    signal = pl_reshape(g, pl_take(g, signal, b->t), PL_DIMS(c->batch, 1, 1, 1));
    noise = pl_reshape(g, pl_take(g, noise, b->t), PL_DIMS(c->batch, 1, 1, 1));
    return pl_add(g, pl_mul(g, signal, b->z), pl_mul(g, noise, b->eps));
}

pl_val sr_fused(pl_nn *m, pl_val x, pl_val edges)
{
    pl_graph *g = m->g;
    x = pl_concat(g, 2, (pl_val[]){x, edges}, 3);
    x = pl_nn_conv2d(m, x, "fusion.0", 8, (pl_nn_conv){.kernel = 3, .pad = 1});
    return pl_relu(g, pl_nn_batch_norm(m, x, "fusion.1", (pl_nn_norm){0}));
}

pl_val sr_predicted(pl_nn *m, const sr_config *c, const sr_batch *b, pl_val x_t)
{
    pl_val maps[SR_MAX_LEVELS], x = sr_fused(m, x_t, sr_edge(m, c, b->edge));
    sr_struct_encoder(m, c, b->lq, b->t, maps);
    return sr_unet(m, c, x, b->t, b->context, maps);
}

pl_val sr_loss(pl_nn *m, const sr_config *c, const sr_batch *b)
{
    return pl_loss_mse(m->g, sr_predicted(m, c, b, sr_noised(m, c, b)), b->eps);
}
