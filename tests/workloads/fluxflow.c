/* fluxflow.c - variational autoencoder with SPADE decoder, hinge GAN with R1, LPIPS; the networks
 * and losses are the recipe's. */
#include "workloads.h"

const flux_config flux_full = {.lpips = true,
                               .gan = true,
                               .sizes = {.batch = 2,
                                         .height = 256,
                                         .width = 256,
                                         .dim = 128,
                                         .ff_mult = 2,
                                         .max_hw = 1024,
                                         .spade_hidden = 128,
                                         .spade_groups = 32,
                                         .scales = 4,
                                         .layers = 4,
                                         .heads = 8,
                                         .rgb = {96, 48},
                                         .disc_base = 64,
                                         .disc_depth = 4,
                                         .vgg = {64, 128, 256, 512, 512},
                                         .lpips_buffers = true,
                                         .spade = true},
                               .lr = 5e-7,
                               .clip = 1,
                               .ema = 0.999,
                               .kl_beta = 1e-4,
                               .kl_warmup = 5000,
                               .r1_gamma = 5,
                               .lambda_adv = 0.5,
                               .lambda_lpips = 0.1,
                               .mse_weight = 0.1};
#define TINY                                                                                       \
 .sizes = {.batch = 2,                                                                             \
           .height = 16,                                                                           \
           .width = 16,                                                                            \
           .dim = 32,                                                                              \
           .ff_mult = 2,                                                                           \
           .max_hw = 1024,                                                                         \
           .spade_hidden = 32,                                                                     \
           .spade_groups = 32,                                                                     \
           .scales = 2,                                                                            \
           .layers = 1,                                                                            \
           .heads = 2,                                                                             \
           .rgb = {16, 8},                                                                         \
           .disc_base = 8,                                                                         \
           .disc_depth = 2,                                                                        \
           .vgg = {8, 8, 16, 16, 16},                                                              \
           .lpips_buffers = true,                                                                  \
           .spade = true},                                                                         \
 .lr = 1e-4, .clip = 1, .ema = 0.999, .kl_beta = 1e-4, .kl_warmup = 8, .r1_gamma = 5,              \
 .first_step = 2, .lambda_adv = 0.5, .lambda_lpips = 0.1, .mse_weight = 0.1
const flux_config flux_tiny_vae = {TINY};
const flux_config flux_tiny_gan = {TINY, .lpips = true, .gan = true};

/* ---- training steps --------------------------------------------------------------------- */
static pl_val real_input(pl_nn *m, const flux_config *c)
{
    return pl_input(m->g, "real",
                    PL_TYPE(PL_F32, c->sizes.batch, c->sizes.height, c->sizes.width, 3));
}

static pl_val eps_input(pl_nn *m, const flux_config *c, const char *name)
{
    int64_t side = c->sizes.height >> c->sizes.scales;
    return pl_input(m->g, name, PL_TYPE(PL_F32, c->sizes.batch, side, side, c->sizes.dim));
}

static void disc_step(pl_nn *m, const flux_config *c, bool penalise)
{
    pl_graph *g = m->g;
    pl_val real = real_input(m, c), mu, logvar;
    pl_val packed = flux_compressor(m, &c->sizes, real, eps_input(m, c, "eps_d"), &mu, &logvar);
    packed = pl_stop_gradient(g, packed); /* the penalty takes the condition as given */
    pl_val fake = flux_expander(m, &c->sizes, packed), condition = flux_token_mean(m, packed);
    pl_val on_real = flux_discriminator(m, &c->sizes, real, condition);
    pl_val r1 = penalise ? pl_loss_r1(g, on_real, real) : pl_fill(g, PL_RANK0(PL_F32), 0);
    pl_val loss = pl_loss_hinge_d(g, on_real, flux_discriminator(m, &c->sizes, fake, condition));
    loss = pl_add(g, loss, pl_scale(g, r1, 0.5 * c->r1_gamma));
    pl_output(g, "d", loss);
    pl_output(g, "r1", r1);
    pl_optim o = PL_OPTIM_INIT;
    o.name = "optim_d";
    o.params = "disc.*";
    o.lr.lr = c->lr;
    o.beta1 = 0;
    o.beta2 = 0.9;
    o.weight_decay = 0.001;
    o.amsgrad = true;
    work_minimise(m, loss, &o);
}

void flux_disc_r1(pl_nn *m, const void *config)
{
    disc_step(m, config, true);
}

void flux_disc(pl_nn *m, const void *config)
{
    disc_step(m, config, false);
}

/* kl_beta*(1 - cos(pi*min(step/warmup, 1)))/2 */
static pl_val kl_weight(pl_nn *m, const flux_config *c)
{
    pl_graph *g = m->g;
    pl_slot s = {.name = "optim.step", .type = PL_RANK0(PL_I64), .kind = PL_SLOT_COUNTER};
    pl_val step = pl_nn_read(m, pl_store_add(pl_graph_store(g), &s));
    step = pl_shift(g, step, (double)c->first_step);
    return pl_cast(g, flux_kl_weight(g, step, c->kl_beta, c->kl_warmup), PL_F32);
}

void flux_generator(pl_nn *m, const void *config)
{
    const flux_config *c = config;
    pl_graph *g = m->g;
    int n = c->gan ? 3 : 2;
    pl_val real = real_input(m, c), mu, logvar, raw[3], factor[3], part[3];
    pl_val packed = flux_compressor(m, &c->sizes, real, eps_input(m, c, "eps"), &mu, &logvar);
    pl_val recon = flux_expander(m, &c->sizes, packed);
    pl_val lpips =
        c->lpips ? flux_lpips(m, &c->sizes, recon, real) : pl_fill(g, PL_RANK0(PL_F32), 0);
    raw[0] = flux_reconstruction(g, recon, real, c->mse_weight);
    raw[0] = pl_add(g, raw[0], pl_scale(g, lpips, c->lambda_lpips));
    raw[1] = pl_loss_kl(g, mu, logvar);
    factor[0] = pl_fill(g, PL_RANK0(PL_F32), 1);
    factor[1] = kl_weight(m, c);
    if (c->gan) {
        pl_val held = pl_stop_gradient(g, packed);
        pl_val logits = flux_discriminator(m, &c->sizes, flux_expander(m, &c->sizes, held),
                                           flux_token_mean(m, held));
        pl_val hinge = pl_loss_hinge_g(g, logits);
        pl_output(g, "g", hinge);
        raw[2] = pl_scale(g, hinge, c->lambda_adv);
        factor[2] = pl_fill(g, PL_RANK0(PL_F32), 1);
    }
    pl_split(g, flux_rolling_weights(m, pl_stack(g, n, raw, 0), n, true), 0, n, part);
    pl_val loss = PL_NO_VAL;
    for (int i = 0; i < n; i++) {
        pl_val term = pl_mul(g, pl_mul(g, pl_squeeze(g, part[i], 0), factor[i]), raw[i]);
        loss = i ? pl_add(g, loss, term) : term;
    }
    pl_output(g, "rec", raw[0]);
    pl_output(g, "kl", raw[1]);
    pl_output(g, "lpips", lpips);
    pl_output(g, "loss", loss);
    pl_optim o = PL_OPTIM_INIT;
    o.params = "compressor.*,expander.*";
    o.lr.lr = c->lr;
    o.beta2 = 0.95;
    o.clip_norm = c->clip;
    o.ema = c->ema;
    work_minimise(m, loss, &o);
}
