/* fluxflow.c - variational autoencoder with SPADE decoder, hinge GAN with R1, LPIPS. */
#include "workloads.h"

#include <math.h>

const flux_config flux_full = {.lpips = true,
                               .gan = true,
                               .batch = 2,
                               .image = 256,
                               .dim = 128,
                               .scales = 4,
                               .layers = 4,
                               .heads = 8,
                               .rgb = {96, 48},
                               .disc_base = 64,
                               .disc_depth = 4,
                               .vgg = {64, 128, 256, 512, 512},
                               .lr = 5e-7,
                               .clip = 1,
                               .ema = 0.999,
                               .kl_beta = 1e-4,
                               .kl_warmup = 5000,
                               .r1_gamma = 5,
                               .lambda_adv = 0.5,
                               .lambda_lpips = 0.1,
                               .mse_weight = 0.1};
#define TINY                                                                                   \
 .batch = 2, .image = 16, .dim = 32, .scales = 2, .layers = 1, .heads = 2, .rgb = {16, 8},     \
 .disc_base = 8, .disc_depth = 2, .vgg = {8, 8, 16, 16, 16}, .lr = 1e-4, .clip = 1,            \
 .ema = 0.999, .kl_beta = 1e-4, .kl_warmup = 8, .r1_gamma = 5, .first_step = 2,                \
 .lambda_adv = 0.5, .lambda_lpips = 0.1, .mse_weight = 0.1
const flux_config flux_tiny_vae = {TINY};
const flux_config flux_tiny_gan = {TINY, .lpips = true, .gan = true};

static const pl_nn_lin biased;
static const pl_nn_norm plain;

static pl_val bezier(pl_nn *m, pl_val x)
{
    return pl_bezier(m->g, x, true);
}

/* ---- compressor ------------------------------------------------------------------------- */
static pl_val bezier_head(pl_nn *m, pl_val x, const char *name, int64_t d)
{
    pl_nn_push(m, "%s", name);
    x = bezier(m, work_conv1(m, x, "a", 5 * d));
    x = bezier(m, work_conv1(m, x, "b", 5 * d));
    pl_nn_pop(m);
    return x;
}

/* The image with two more channels: x, then y, from -1 to 1. */
static pl_val with_coordinates(pl_nn *m, const flux_config *c, pl_val image)
{
    pl_graph *g = m->g;
    int64_t s = c->image;
    pl_val line = pl_nn_linspace(g, m->dtype, -1, 1, s);
    pl_val xs =
        pl_broadcast(g, pl_reshape(g, line, PL_DIMS(1, 1, s, 1)), PL_DIMS(c->batch, s, s, 1));
    pl_val ys =
        pl_broadcast(g, pl_reshape(g, line, PL_DIMS(1, s, 1, 1)), PL_DIMS(c->batch, s, s, 1));
    return pl_concat(g, 3, (pl_val[]){image, xs, ys}, 3);
}

/* Widths go from 5 to dim in equal steps, halves rounded to even as Python's round does. */
static int64_t stage_width(const flux_config *c, int i)
{
    return (int64_t)nearbyint(5 + (double)(c->dim - 5) * i / c->scales);
}

static pl_val encode(pl_nn *m, const flux_config *c, pl_val x)
{
    for (int i = 0; i < c->scales; i++) {
        int64_t w = stage_width(c, i + 1);
        x = bezier(m, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.0", i), 5 * w,
                                   (pl_nn_conv){.kernel = 3, .pad = 1, .no_bias = true}));
        x = bezier(m, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.1", i), 5 * w,
                                   (pl_nn_conv){.kernel = 8, .stride = 2, .pad = 3}));
    }
    return x;
}

static pl_val token_block(pl_nn *m, const flux_config *c, pl_val x, int i)
{
    pl_graph *g = m->g;
    pl_nn_push(m, "blocks.%d", i);
    pl_val h = pl_nn_layer_norm(m, x, "norm1", plain);
    x = pl_add(g, x, pl_nn_multi_head_attention(m, h, h, "attn", c->heads));
    h = pl_nn_linear(m, pl_nn_layer_norm(m, x, "norm2", plain), "up", 10 * c->dim, biased);
    x = pl_add(g, x, pl_nn_linear(m, bezier(m, h), "down", c->dim, biased));
    pl_nn_pop(m);
    return x;
}

/* One token (h/1024, w/1024, 0 ..) for every sample. */
static pl_val size_token(pl_nn *m, const flux_config *c, int64_t side)
{
    pl_graph *g = m->g;
    pl_val at = pl_iota(g, PL_TYPE(m->dtype, c->batch, 1, c->dim), 2);
    pl_val first = pl_lt(g, at, pl_full_like(g, at, 2));
    return pl_select(g, first, pl_full_like(g, at, (double)side / 1024),
                     pl_full_like(g, at, 0));
}

pl_val flux_compressor(pl_nn *m, const flux_config *c, pl_val image, pl_val eps, pl_val *mu,
                       pl_val *logvar)
{
    static const double mu_start[4] = {-2, -0.5, 0.5, 2}, logvar_start[4] = {-3, -1, 1, 3};
    pl_graph *g = m->g;
    int64_t d = c->dim, side = c->image >> c->scales;
    pl_nn_push(m, "compressor");
    pl_val latent = bezier_head(m, encode(m, c, with_coordinates(m, c, image)), "latent", d);
    *mu = pl_nn_trainable_bezier(m, bezier_head(m, latent, "mu", d), "mu_curve", mu_start);
    *logvar = pl_nn_trainable_bezier(m, bezier_head(m, latent, "logvar", d), "logvar_curve",
                                     logvar_start);
    pl_val std = pl_exp(g, pl_scale(g, *logvar, 0.5));
    pl_val z = pl_add(g, *mu, pl_mul(g, eps, std));
    pl_val x = pl_reshape(g, pl_add(g, z, latent), PL_DIMS(c->batch, side * side, d));
    x = pl_add(g, x, pl_cast(g, pl_nn_position_2d(g, side, side, d), m->dtype));
    for (int i = 0; i < c->layers; i++) x = token_block(m, c, x, i);
    x = pl_concat(g, 2, (pl_val[]){x, size_token(m, c, side)}, 1);
    pl_nn_pop(m);
    return x;
}

/* ---- expander --------------------------------------------------------------------------- */
static pl_val spade(pl_nn *m, pl_val x, pl_val context, int64_t d)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    pl_nn_push(m, "spade");
    context = pl_resize(g, context, &t.dim[1], PL_RESIZE_LINEAR, false);
    pl_val a = pl_relu(g, pl_nn_conv2d(m, context, "shared", d, work_conv3()));
    pl_val gamma = pl_nn_conv2d(m, a, "gamma", d, work_conv3());
    pl_val beta = pl_nn_conv2d(m, a, "beta", d, work_conv3());
    x = pl_nn_group_norm(m, x, "norm", 32, (pl_nn_norm){.no_affine = true});
    x = pl_nn_modulate(g, x, gamma, beta);
    pl_nn_pop(m);
    return x;
}

static pl_val up_block(pl_nn *m, const flux_config *c, pl_val x, pl_val context, int i)
{
    int64_t d = c->dim;
    pl_nn_push(m, "blocks.%d", i);
    pl_val y = pl_nn_conv_transpose2d(m, spade(m, x, context, d), "up", 5 * d,
                                      (pl_nn_conv){.kernel = 16, .stride = 2, .pad = 7});
    y = bezier(m, pl_nn_conv2d(m, bezier(m, y), "conv", 5 * d,
                               (pl_nn_conv){.kernel = 5, .pad = 4, .dilation = 2}));
    pl_nn_pop(m);
    return pl_add(m->g, y, pl_scale(m->g, pl_nn_upsample_nearest(m->g, x, 2), 0.1));
}

/* Parameters that the decoder owns and never uses. */
static void unused_mixer(pl_nn *m, int64_t d)
{
    double bound = 1 / sqrt((double)d);
    pl_nn_push(m, "mixer");
    pl_nn_declare(m, "query", PL_DIMS(d), pl_nn_normal(0, 0.02));
    for (int i = 0; i < 4; i++) {
        pl_nn_declare(m, pl_nn_name(m, "linears.%d.weight", i), PL_DIMS(d, d),
                      pl_nn_uniform(-bound, bound));
        pl_nn_declare(m, pl_nn_name(m, "linears.%d.bias", i), PL_DIMS(d),
                      pl_nn_uniform(-bound, bound));
    }
    for (int i = 0; i < 2; i++) {
        pl_nn_declare(m, pl_nn_name(m, "norms.%d.weight", i), PL_DIMS(d), pl_nn_constant(1));
        pl_nn_declare(m, pl_nn_name(m, "norms.%d.bias", i), PL_DIMS(d), pl_nn_constant(0));
    }
    pl_nn_pop(m);
}

pl_val flux_expander(pl_nn *m, const flux_config *c, pl_val packed)
{
    static const double start[4] = {-1, 0.25, 0.75, 1};
    pl_graph *g = m->g;
    int64_t side = c->image >> c->scales;
    pl_nn_push(m, "expander");
    unused_mixer(m, c->dim);
    pl_val feat = pl_slice(g, packed, 1, 0, side * side, 1);
    feat = pl_reshape(g, feat, PL_DIMS(c->batch, side, side, c->dim));
    pl_val x = feat;
    for (int i = 0; i < c->scales; i++) x = up_block(m, c, x, feat, i);
    for (int i = 0; i < 2; i++) {
        x = pl_nn_conv2d(m, x, pl_nn_name(m, "rgb.%d", 3 * i), c->rgb[i], work_conv3());
        x = pl_nn_group_norm(m, x, pl_nn_name(m, "rgb.%d", 3 * i + 1), 8, plain);
        x = pl_silu(g, x);
    }
    x = pl_nn_trainable_bezier(m, work_conv1(m, x, "rgb.6", 3), "rgb.7", start);
    pl_nn_pop(m);
    return x;
}

/* ---- discriminator ---------------------------------------------------------------------- */
static pl_val leaky(pl_nn *m, pl_val x)
{
    return pl_leaky_relu(m->g, x, 0.2);
}

static pl_val pair(pl_nn *m, pl_val x, int index, int64_t out)
{
    pl_nn_conv o = {.kernel = 3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN};
    x = leaky(m, pl_nn_conv2d(m, x, pl_nn_name(m, "body.%d.0", index), out, o));
    return leaky(m, pl_nn_conv2d(m, x, pl_nn_name(m, "body.%d.2", index), out, o));
}

pl_val flux_discriminator(pl_nn *m, const flux_config *c, pl_val image, pl_val condition)
{
    pl_graph *g = m->g;
    pl_nn_lin spectral = {.spectral = PL_SPECTRAL_PLAIN};
    int64_t w = c->disc_base;
    int index = 0;
    pl_nn_push(m, "disc");
    pl_val h = pair(m, image, index++, w);
    for (int i = 0; i < c->disc_depth; i++) {
        w *= 2;
        h = pair(m, h, index++, w);
        h = pair(m, h, index++, w);
        h = pl_avg_pool(g, h, &(pl_pool_opts){.kernel = {2, 2}});
        index++;
    }
    pl_val p = leaky(m, pl_nn_linear(m, condition, "project.0", w, spectral));
    p = pl_nn_linear(m, p, "project.2", w, spectral);
    p = pl_sum(g, pl_mul(g, p, pl_nn_global_average(g, h)), PL_AXIS(1), false);
    h = pl_nn_conv2d(m, h, "head", 1,
                     (pl_nn_conv){.kernel = 3, .pad = 1, .spectral = PL_SPECTRAL_PLAIN});
    pl_nn_pop(m);
    return pl_add(g, pl_mean(g, h, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false), p);
}

/* ---- LPIPS ------------------------------------------------------------------------------ */
/* VGG features after the last ReLU of each of five stages. */
static void vgg(pl_nn *m, const flux_config *c, pl_val x, pl_val out[5])
{
    static const int depth[5] = {2, 2, 3, 3, 3};
    pl_graph *g = m->g;
    pl_type t = PL_TYPE(m->dtype, 3);
    int shift =
        pl_nn_buffer_as(m, "shift", t, PL_DIMS(3, 1, 1), (pl_init){PL_INIT_CONST, 0, 0});
    int scale =
        pl_nn_buffer_as(m, "scale", t, PL_DIMS(3, 1, 1), (pl_init){PL_INIT_CONST, 1, 0});
    x = pl_div(g, pl_sub(g, x, pl_nn_read(m, shift)), pl_nn_read(m, scale));
    for (int s = 0; s < 5; s++) {
        int index = s ? 1 : 0;
        if (s) x = pl_max_pool(g, x, &(pl_pool_opts){.kernel = {2, 2}});
        for (int i = 0; i < depth[s]; i++, index += 2) {
            pl_nn_conv o = work_conv3();
            o.init = pl_nn_kaiming_normal(PL_FAN_IN, pl_nn_gain("relu", 0));
            x = pl_relu(
                g, pl_nn_conv2d(m, x, pl_nn_name(m, "stages.%d.%d", s, index), c->vgg[s], o));
        }
        out[s] = x;
    }
}

pl_val flux_lpips(pl_nn *m, const flux_config *c, pl_val x, pl_val target)
{
    pl_graph *g = m->g;
    bool frozen = m->frozen;
    pl_val got[5], want[5], sum = PL_NO_VAL;
    m->frozen = true;
    pl_nn_push(m, "lpips");
    vgg(m, c, x, got);
    vgg(m, c, target, want);
    for (int s = 0; s < 5; s++) {
        int64_t w = c->vgg[s];
        pl_val weight = pl_nn_param_as(m, pl_nn_name(m, "weights.%d", s), PL_DIMS(w),
                                       PL_DIMS(1, w, 1, 1), pl_nn_uniform(0, 1.0 / (double)w));
        pl_val d = pl_loss_lpips_level(g, got[s], want[s], weight);
        sum = s ? pl_add(g, sum, d) : d;
    }
    pl_nn_pop(m);
    m->frozen = frozen;
    return sum;
}

/* ---- training steps --------------------------------------------------------------------- */
/* Mean of the image tokens, (B,D). */
static pl_val token_mean(pl_nn *m, const flux_config *c, pl_val packed)
{
    int64_t side = c->image >> c->scales;
    return pl_mean(m->g, pl_slice(m->g, packed, 1, 0, side * side, 1), PL_AXIS(1), false);
}

static pl_val real_input(pl_nn *m, const flux_config *c)
{
    return pl_input(m->g, "real", PL_TYPE(PL_F32, c->batch, c->image, c->image, 3));
}

static pl_val eps_input(pl_nn *m, const flux_config *c, const char *name)
{
    int64_t side = c->image >> c->scales;
    return pl_input(m->g, name, PL_TYPE(PL_F32, c->batch, side, side, c->dim));
}

static void disc_step(pl_nn *m, const flux_config *c, bool penalise)
{
    pl_graph *g = m->g;
    pl_val real = real_input(m, c), mu, logvar;
    pl_val packed = flux_compressor(m, c, real, eps_input(m, c, "eps_d"), &mu, &logvar);
    packed = pl_stop_gradient(g, packed); /* the penalty takes the condition as given */
    pl_val fake = flux_expander(m, c, packed), condition = token_mean(m, c, packed);
    pl_val on_real = flux_discriminator(m, c, real, condition);
    pl_val r1 = penalise ? pl_loss_r1(g, on_real, real) : pl_fill(g, PL_RANK0(PL_F32), 0);
    pl_val loss = pl_loss_hinge_d(g, on_real, flux_discriminator(m, c, fake, condition));
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

/* Frequency-split L1 plus weighted MSE. */
static pl_val reconstruction(pl_nn *m, const flux_config *c, pl_val x, pl_val target)
{
    pl_graph *g = m->g;
    pl_pool_opts o = {.kernel = {3, 3},
                      .stride = {1, 1},
                      .pad_lo = {1, 1},
                      .pad_hi = {1, 1},
                      .count_pad = true};
    pl_val low = pl_avg_pool(g, x, &o), want = pl_avg_pool(g, target, &o);
    pl_val split = pl_loss_l1(g, low, want);
    split = pl_add(g, split, pl_loss_l1(g, pl_sub(g, x, low), pl_sub(g, target, want)));
    return pl_add(g, split, pl_scale(g, pl_loss_mse(g, x, target), c->mse_weight));
}

/* Weights (n) from the running means of the last 100 values of each of n terms (n). */
static pl_val rolling_weights(pl_nn *m, pl_val raw, int64_t n)
{
    enum { WINDOW = 100 };
    pl_graph *g = m->g;
    pl_init zero = {PL_INIT_CONST, 0, 0};
    pl_store *s = pl_graph_store(g);
    int ring = pl_store_add(s, &(pl_slot){.name = "rolling.values",
                                          .kind = PL_SLOT_COUNTER,
                                          .type = PL_TYPE(PL_F32, n, WINDOW),
                                          .init = zero});
    int count = pl_store_add(s, &(pl_slot){.name = "rolling.count",
                                           .kind = PL_SLOT_COUNTER,
                                           .type = PL_RANK0(PL_I64),
                                           .init = zero});
    pl_val values = pl_nn_read(m, ring), done = pl_nn_read(m, count);
    pl_val column = pl_iota(g, PL_TYPE(PL_I64, n, WINDOW), 1);
    pl_val here = pl_eq(g, column, pl_mod(g, done, pl_full_like(g, done, WINDOW)));
    values = pl_select(g, here, pl_unsqueeze(g, pl_stop_gradient(g, raw), 1), values);
    done = pl_shift(g, done, 1);
    pl_nn_update(m, ring, values);
    pl_nn_update(m, count, done);
    pl_val filled = pl_cast(g, pl_min(g, done, pl_full_like(g, done, WINDOW)), PL_F32);
    pl_val mean = pl_div(g, pl_sum(g, values, PL_AXIS(1), false), filled);
    pl_val positive = pl_cast(g, pl_gt(g, mean, pl_full_like(g, mean, 0)), PL_F32);
    pl_val total = pl_sum(g, pl_mul(g, mean, positive), PL_AXES_ALL, false);
    pl_val many = pl_sum(g, positive, PL_AXES_ALL, false);
    many = pl_max(g, many, pl_full_like(g, many, 1));
    return pl_div(g, pl_div(g, total, many), pl_shift(g, mean, 1e-8));
}

/* kl_beta*(1 - cos(pi*min(step/warmup, 1)))/2 */
static pl_val kl_weight(pl_nn *m, const flux_config *c)
{
    pl_graph *g = m->g;
    pl_slot s = {.name = "optim.step", .type = PL_RANK0(PL_I64), .kind = PL_SLOT_COUNTER};
    pl_val step = pl_nn_read(m, pl_store_add(pl_graph_store(g), &s));
    pl_val part = pl_shift(g, pl_cast(g, step, PL_F64), (double)c->first_step);
    part = pl_clamp(g, pl_scale(g, part, 1 / c->kl_warmup), 0, 1);
    pl_val wave = pl_cos(g, pl_scale(g, part, 3.14159265358979323846));
    wave = pl_scale(g, pl_shift(g, pl_neg(g, wave), 1), c->kl_beta / 2);
    return pl_cast(g, wave, PL_F32);
}

void flux_generator(pl_nn *m, const void *config)
{
    const flux_config *c = config;
    pl_graph *g = m->g;
    int n = c->gan ? 3 : 2;
    pl_val real = real_input(m, c), mu, logvar, raw[3], factor[3], part[3];
    pl_val packed = flux_compressor(m, c, real, eps_input(m, c, "eps"), &mu, &logvar);
    pl_val recon = flux_expander(m, c, packed);
    pl_val lpips = c->lpips ? flux_lpips(m, c, recon, real) : pl_fill(g, PL_RANK0(PL_F32), 0);
    raw[0] = reconstruction(m, c, recon, real);
    raw[0] = pl_add(g, raw[0], pl_scale(g, lpips, c->lambda_lpips));
    raw[1] = pl_loss_kl(g, mu, logvar);
    factor[0] = pl_fill(g, PL_RANK0(PL_F32), 1);
    factor[1] = kl_weight(m, c);
    if (c->gan) {
        pl_val held = pl_stop_gradient(g, packed);
        pl_val logits =
            flux_discriminator(m, c, flux_expander(m, c, held), token_mean(m, c, held));
        raw[2] = pl_loss_hinge_g(g, logits);
        factor[2] = pl_fill(g, PL_RANK0(PL_F32), c->lambda_adv);
    }
    pl_split(g, rolling_weights(m, pl_stack(g, n, raw, 0), n), 0, n, part);
    pl_val loss = PL_NO_VAL;
    for (int i = 0; i < n; i++) {
        pl_val term = pl_mul(g, pl_mul(g, pl_squeeze(g, part[i], 0), factor[i]), raw[i]);
        loss = i ? pl_add(g, loss, term) : term;
    }
    pl_output(g, "rec", raw[0]);
    pl_output(g, "kl", raw[1]);
    if (c->gan) pl_output(g, "g", raw[2]);
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
