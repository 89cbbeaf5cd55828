/* fluxflow.c - images compressed to tokens and back: a variational autoencoder trained with a
 * perceptual loss and against a discriminator.
 *
 * A step is two programs, the first of which comes in two forms:
 *
 *     disc      encode and decode without gradient, hinge loss of the discriminator     optim_d
 *     disc_r1   the same with the gradient penalty, every loss.r1_interval steps        optim_d
 *     train     encode, decode; reconstruction + LPIPS, KL, and a second decode of the
 *               tokens as they stand, judged by the discriminator                       optim
 *
 * Mended, each with its switch back: instance noise reaches the discriminator (the authors' never
 * does), and adaptive weights take the size of a term, not its sign. seed_compat: true is the authors'
 * behaviour in both, which is what the PyTorch peer has.
 */
#include "fluxflow.h"

#include <math.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"image", PL_CONFIG_INT, "256", 8, 16384, NULL, "Side of an image; a multiple of 2^model.scales."},
    {"model.dim", PL_CONFIG_INT, "128", 32, 65536, NULL, "Channels of a token; a multiple of 32."},
    {"model.scales", PL_CONFIG_INT, "4", 1, 8, NULL, "Halvings from image to tokens."},
    {"model.layers", PL_CONFIG_INT, "4", 0, 256, NULL, "Attention blocks of the compressor."},
    {"model.heads", PL_CONFIG_INT, "8", 1, 256, NULL, "Heads of an attention block."},
    {"model.rgb", PL_CONFIG_INTS, "[96, 48]", 8, 65536, NULL, "Two widths of the head to colours."},
    {"gan.on", PL_CONFIG_BOOL, "true", 0, 0, NULL, "Train against a discriminator."},
    {"gan.base", PL_CONFIG_INT, "64", 1, 65536, NULL, "First width of the discriminator."},
    {"gan.depth", PL_CONFIG_INT, "4", 1, 8, NULL, "Its halvings, each doubles the width."},
    {"gan.noise_std", PL_CONFIG_FLOAT, "0.01", 0, 10, NULL, "Instance noise on what it sees."},
    {"gan.noise_decay", PL_CONFIG_FLOAT, "0.9999", 0.001, 1, NULL, "Of the noise, a step."},
    {"lpips.on", PL_CONFIG_BOOL, "true", 0, 0, NULL, "Add a perceptual loss (VGG16)."},
    {"lpips.widths", PL_CONFIG_INTS, "[64, 128, 256, 512, 512]", 1, 65536, NULL,
     "Channels of the five stages of VGG."},
    {"loss.lambda_lpips", PL_CONFIG_FLOAT, "0.1", 0, 1e6, NULL, "Weight of LPIPS."},
    {"loss.lambda_adv", PL_CONFIG_FLOAT, "0.5", 0, 1e6, NULL, "Weight of the generator's loss."},
    {"loss.mse_weight", PL_CONFIG_FLOAT, "0.1", 0, 1e6, NULL, "Of MSE beside the two L1 terms."},
    {"loss.kl_beta", PL_CONFIG_FLOAT, "1e-4", 0, 1e6, NULL, "Weight of KL after its warm-up."},
    {"loss.kl_warmup", PL_CONFIG_FLOAT, "5000", 1, 1e12, NULL, "Steps of its cosine warm-up."},
    {"loss.kl_free_bits", PL_CONFIG_FLOAT, "0", 0, 1e6, NULL, "Floor of KL's elements."},
    {"loss.first_step", PL_CONFIG_INT, "0", 0, 1e12, NULL, "Where the warm-up starts."},
    {"loss.r1_gamma", PL_CONFIG_FLOAT, "5", 0, 1e6, NULL, "Gradient penalty, times one half."},
    {"loss.r1_interval", PL_CONFIG_INT, "16", 1, 1e9, NULL, "Steps from one penalty to the next."},
    {"loss.adaptive", PL_CONFIG_BOOL, "true", 0, 0, NULL,
     "Bring the terms to one size by their means over 100 steps."},
    {"seed_compat", PL_CONFIG_BOOL, "false", 0, 0, NULL,
     "The authors' way: no instance noise, adaptive weights with the sign of a term's mean."},
    {"data.samples", PL_CONFIG_INT, "4096", 1, 1e12, NULL, "Generated training images."},
    {"data.eval_samples", PL_CONFIG_INT, "64", 1, 1e12, NULL, "Generated evaluation images."},
    {0},
};

/* One program in the making. */
typedef struct flux {
    pl_builder *b;
    const pl_config *c;
    pl_nn *m;
    flux_sizes s;
    bool gan, lpips, compat;
} flux;

static pl_status sizes_from_config(flux *k)
{
    const pl_config *c = k->c;
    int n_rgb, n_vgg;
    const int64_t *rgb = pl_config_ints(c, "model.rgb", &n_rgb);
    const int64_t *vgg = pl_config_ints(c, "lpips.widths", &n_vgg);
    if (n_rgb != 2 || n_vgg != 5) {
        pl_nn_fail(k->m, PL_ERR_CONFIG, "model.rgb wants 2 numbers, lpips.widths 5; got %d and %d",
                   n_rgb, n_vgg);
        return PL_ERR_CONFIG;
    }
    k->s = (flux_sizes){.batch = pl_builder_batch(k->b),
                        .image = pl_config_int(c, "image"),
                        .dim = pl_config_int(c, "model.dim"),
                        .rgb = {rgb[0], rgb[1]},
                        .disc_base = pl_config_int(c, "gan.base"),
                        .scales = (int)pl_config_int(c, "model.scales"),
                        .layers = (int)pl_config_int(c, "model.layers"),
                        .heads = (int)pl_config_int(c, "model.heads"),
                        .disc_depth = (int)pl_config_int(c, "gan.depth")};
    memcpy(k->s.vgg, vgg, sizeof k->s.vgg);
    int64_t unit = (int64_t)1 << k->s.scales;
    if (k->s.image % unit || k->s.dim % 32) {
        pl_nn_fail(k->m, PL_ERR_CONFIG,
                   "image: %lld must be a multiple of %lld, model.dim: %lld of 32",
                   (long long)k->s.image, (long long)unit, (long long)k->s.dim);
        return PL_ERR_CONFIG;
    }
    return PL_OK;
}

static pl_status flux_of(pl_builder *b, pl_nn *m, flux *k)
{
    const pl_config *c = pl_builder_config(b);
    *k = (flux){.b = b,
                .c = c,
                .m = m,
                .gan = pl_config_bool(c, "gan.on"),
                .lpips = pl_config_bool(c, "lpips.on"),
                .compat = pl_config_bool(c, "seed_compat")};
    return sizes_from_config(k);
}

static pl_val real_input(flux *k)
{
    return pl_input(k->m->g, "real", PL_TYPE(PL_F32, k->s.batch, k->s.image, k->s.image, 3));
}

static pl_val draw_eps(flux *k, const char *name)
{
    int64_t side = k->s.image >> k->s.scales;
    return pl_draw_normal(k->b, k->m, name, PL_TYPE(PL_F32, k->s.batch, side, side, k->s.dim));
}

static double number(const flux *k, const char *key)
{
    return pl_config_float(k->c, key);
}

/* ---- the discriminator's programs ------------------------------------------------------- */
/* std * decay^step times normal numbers, added to the image. */
static pl_val with_noise(flux *k, pl_val image, const char *name)
{
    pl_graph *g = k->m->g;
    double std = number(k, "gan.noise_std");
    if (k->compat || std <= 0) return image;
    pl_val step = pl_cast(g, pl_builder_step(k->b, k->m, "optim_d"), PL_F64);
    pl_val size = pl_exp(g, pl_scale(g, step, log(number(k, "gan.noise_decay"))));
    size = pl_cast(g, pl_scale(g, size, std), PL_F32);
    pl_val noise = pl_draw_normal(k->b, k->m, name, pl_val_type(g, image));
    return pl_add(g, image, pl_mul(g, noise, size));
}

static pl_status build_disc(pl_builder *b, pl_nn *m, bool penalise)
{
    flux k;
    if (flux_of(b, m, &k) != PL_OK) return PL_OK; /* the context has the error */
    pl_graph *g = m->g;
    pl_val real = real_input(&k), mu, logvar;
    pl_val packed = flux_compressor(m, &k.s, real, draw_eps(&k, "eps_d"), &mu, &logvar);
    packed = pl_stop_gradient(g, packed); /* the penalty takes the condition as given */
    pl_val fake = flux_expander(m, &k.s, packed), condition = flux_token_mean(m, &k.s, packed);
    pl_val seen = with_noise(&k, real, "noise_real");
    pl_val on_real = flux_discriminator(m, &k.s, seen, condition);
    pl_val r1 = penalise ? pl_loss_r1(g, on_real, seen) : pl_fill(g, PL_RANK0(PL_F32), 0);
    fake = with_noise(&k, fake, "noise_fake");
    pl_val loss = pl_loss_hinge_d(g, on_real, flux_discriminator(m, &k.s, fake, condition));
    loss = pl_add(g, loss, pl_scale(g, r1, 0.5 * number(&k, "loss.r1_gamma")));
    pl_output(g, "d", loss);
    pl_output(g, "r1", r1);
    pl_builder_minimise_with(b, m, loss, &(pl_group){.slots = "disc.*", .optim = "optim_d"});
    return PL_OK;
}

/* ---- the training program --------------------------------------------------------------- */
/* Reconstruction with LPIPS; *lpips is that alone. */
static pl_val reconstruct(flux *k, pl_val image, pl_val real, pl_val *lpips)
{
    pl_graph *g = k->m->g;
    *lpips = k->lpips ? flux_lpips(k->m, &k->s, image, real) : pl_fill(g, PL_RANK0(PL_F32), 0);
    pl_scope_push(g, "losses");
    pl_scope_full(g);
    pl_val rec = flux_reconstruction(g, image, real, number(k, "loss.mse_weight"));
    pl_scope_pop(g);
    return pl_add(g, rec, pl_scale(g, *lpips, number(k, "loss.lambda_lpips")));
}

/* Sum of the terms, each with its factor and its adaptive weight. */
static pl_val weighted(flux *k, const pl_val *raw, const pl_val *factor, int n)
{
    pl_graph *g = k->m->g;
    pl_val part[3], loss = PL_NO_VAL;
    bool adaptive = pl_config_bool(k->c, "loss.adaptive");
    if (adaptive)
        pl_split(g, flux_rolling_weights(k->m, pl_stack(g, n, raw, 0), n, k->compat), 0, n, part);
    for (int i = 0; i < n; i++) {
        pl_val f = adaptive ? pl_mul(g, pl_squeeze(g, part[i], 0), factor[i]) : factor[i];
        pl_val term = pl_mul(g, f, raw[i]);
        loss = i ? pl_add(g, loss, term) : term;
    }
    return loss;
}

static pl_status build_train(pl_builder *b)
{
    flux k;
    pl_nn *m = pl_builder_train(b);
    if (flux_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_graph *g = m->g;
    pl_val real = real_input(&k), mu, logvar, lpips, raw[3], factor[3];
    pl_val packed = flux_compressor(m, &k.s, real, draw_eps(&k, "eps"), &mu, &logvar);
    raw[0] = reconstruct(&k, flux_expander(m, &k.s, packed), real, &lpips);
    raw[1] = flux_kl(g, mu, logvar, number(&k, "loss.kl_free_bits"));
    pl_val step = pl_shift(g, pl_builder_step(b, m, "optim"),
                           (double)pl_config_int(k.c, "loss.first_step"));
    factor[0] = pl_fill(g, PL_RANK0(PL_F32), 1);
    factor[1] = flux_kl_weight(g, step, number(&k, "loss.kl_beta"), number(&k, "loss.kl_warmup"));
    pl_output(g, "rec", raw[0]);
    pl_output(g, "kl", raw[1]);
    pl_output(g, "lpips", lpips);
    if (k.gan) {
        pl_val held = pl_stop_gradient(g, packed), again = flux_expander(m, &k.s, held);
        raw[2] = pl_loss_hinge_g(
            g, flux_discriminator(m, &k.s, again, flux_token_mean(m, &k.s, held)));
        factor[2] = pl_fill(g, PL_RANK0(PL_F32), number(&k, "loss.lambda_adv"));
        pl_output(g, "g", raw[2]);
    }
    pl_builder_minimise_with(b, m, weighted(&k, raw, factor, k.gan ? 3 : 2),
                             &(pl_group){.slots = "compressor.*,expander.*"});
    return PL_OK;
}

/* Images as they come back from their most likely tokens. */
static pl_status build_eval(pl_builder *b)
{
    flux k;
    pl_nn *m = pl_builder_eval(b);
    if (flux_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_graph *g = m->g;
    pl_val real = real_input(&k), mu, logvar, lpips;
    int64_t side = k.s.image >> k.s.scales;
    pl_val eps = pl_fill(g, PL_TYPE(PL_F32, k.s.batch, side, side, k.s.dim), 0);
    pl_val image =
        flux_expander(m, &k.s, flux_compressor(m, &k.s, real, eps, &mu, &logvar));
    pl_output(g, "loss", reconstruct(&k, image, real, &lpips));
    pl_output(g, "mse", pl_loss_mse(g, image, real));
    pl_output(g, "kl", pl_loss_kl(g, mu, logvar));
    if (k.lpips) pl_output(g, "lpips", lpips);
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    int64_t interval = pl_config_int(c, "loss.r1_interval");
    pl_status rc = PL_OK;
    if (pl_config_bool(c, "gan.on")) {
        if (interval > 1)
            rc = build_disc(b, pl_builder_program(b, "disc", (pl_when){.but_every = interval}), false);
        if (rc == PL_OK)
            rc = build_disc(b, pl_builder_program(b, "disc_r1", (pl_when){.every = interval}), true);
    }
    if (rc == PL_OK) rc = build_train(b);
    return rc == PL_OK ? build_eval(b) : rc;
}

/* Peak signal to noise ratio of images whose range is 2. */
static int derive(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap)
{
    for (int i = 0; i < n && cap > 0; i++) {
        if (strcmp(name[i], "mse") != 0) continue;
        new_name[0] = "psnr_db";
        new_value[0] = 10 * log10(4 / mean[i]);
        return 1;
    }
    return 0;
}

/* ---- the PyTorch peer ------------------------------------------------------------------- */
static const char *const workloads[] = {"fluxflow-vae", "fluxflow-vae+lpips",
                                        "fluxflow-vae+gan+lpips", NULL};
static const pl_peer_key peer_keys[] = {
    {"lpips", "lpips.on"},
    {"gan", "gan.on"},
    {"batch", "batch"},
    {"image", "image"},
    {"dim", "model.dim"},
    {"scales", "model.scales"},
    {"layers", "model.layers"},
    {"heads", "model.heads"},
    {"rgb", "model.rgb"},
    {"disc_base", "gan.base"},
    {"disc_depth", "gan.depth"},
    {"vgg", "lpips.widths"},
    {"lr", "optim.lr"},
    {"lr", "optim_d.lr"},
    {"clip", "clip.norm"},
    {"ema", "ema.decay"},
    {"kl_beta", "loss.kl_beta"},
    {"kl_warmup", "loss.kl_warmup"},
    {"r1_gamma", "loss.r1_gamma"},
    {"r1_interval", "loss.r1_interval"},
    {"first_step", "loss.first_step"},
    {"lambda_adv", "loss.lambda_adv"},
    {"lambda_lpips", "loss.lambda_lpips"},
    {"mse_weight", "loss.mse_weight"},
    {NULL, NULL},
};

/* The peer has channels in front of positions. */
static bool channels_last(const char *name, const pl_type *from, const void *src, const pl_type *to,
                          void *dst)
{
    (void)name;
    if (from->rank != 4 || from->dtype != PL_F32 || to->rank != 4 || to->dtype != PL_F32 ||
        from->dim[1] != to->dim[3] || from->dim[0] != to->dim[0] || from->dim[2] != to->dim[1] ||
        from->dim[3] != to->dim[2])
        return false;
    const float *x = src;
    float *y = dst;
    int64_t channels = to->dim[3], area = to->dim[1] * to->dim[2];
    for (int64_t n = 0; n < to->dim[0]; n++)
        for (int64_t p = 0; p < area; p++)
            for (int64_t c = 0; c < channels; c++) *y++ = x[(n * channels + c) * area + p];
    return true;
}

static const pl_peer peer = {
    .workloads = workloads, .preset = "peer", .keys = peer_keys, .convert = channels_last};

static const char *const optims[] = {"optim_d", NULL};

const pl_recipe pl_recipe_fluxflow;
const pl_recipe pl_recipe_fluxflow = {
    .abi = PL_RECIPE_ABI,
    .name = "fluxflow",
    .about = "images to tokens and back: variational autoencoder with LPIPS and a discriminator",
    .schema = schema,
    .presets = flux_presets,
    .build = build,
    .data_open = flux_data_open,
    .data_close = flux_data_close,
    .data_size = flux_data_size,
    .data_read = flux_data_read,
    .peer = &peer,
    .derive = derive,
    .metric = "psnr_db",
    .optims = optims,
};
