/* steps.c - builds the programs of a step; fluxflow.c lists them.
 *
 * All programs read the same images. Those of the discriminator and of the flow do not
 * differentiate through the compressor, so none of its activations are kept. All values have the
 * context's type, so that a replay in f64 computes in f64 throughout.
 */
#include "fluxflow.h"

#include <math.h>
#include <string.h>

/* ---- sizes ------------------------------------------------------------------------------ */
static bool refuse(pl_nn *m, const char *what, long long got, const char *want, long long n)
{
    pl_nn_fail(m, PL_ERR_CONFIG, "%s: %lld must be a %s %lld", what, got, want, n);
    return false;
}

static bool sizes_are_fit(flux *k, int64_t height, int64_t width)
{
    int64_t unit = (int64_t)1 << k->s.scales;
    if (height % unit)
        return refuse(k->m, "image", (long long)height, "multiple of", (long long)unit);
    if (width % unit)
        return refuse(k->m, "image_width", (long long)width, "multiple of", (long long)unit);
    if (k->s.dim % 4) return refuse(k->m, "model.dim", (long long)k->s.dim, "multiple of", 4);
    if (k->s.dim % k->s.spade_groups)
        return refuse(k->m, "model.dim", (long long)k->s.dim, "multiple of spade.groups,",
                      k->s.spade_groups);
    for (int i = 0; i < 2; i++)
        if (k->s.rgb[i] % 8)
            return refuse(k->m, "model.rgb", (long long)k->s.rgb[i], "multiple of", 8);
    if (k->s.dim % k->s.heads)
        return refuse(k->m, "model.dim", (long long)k->s.dim, "multiple of model.heads,",
                      k->s.heads);
    if (k->s.flow.width % (2 * k->s.flow.heads))
        return refuse(k->m, "flow.width", (long long)k->s.flow.width,
                      "multiple of twice flow.heads,", k->s.flow.heads);
    return true;
}

/* The nearest multiple of unit, at least that. */
static int64_t to_unit(double x, int64_t unit)
{
    int64_t n = (int64_t)(x / (double)unit + 0.5);
    return (n < 1 ? 1 : n) * unit;
}

/* The same picture with `side` as its shorter side. */
static void shrink(flux_sizes *s, int64_t side)
{
    double shorter = (double)(s->height < s->width ? s->height : s->width);
    int64_t unit = (int64_t)1 << s->scales;
    s->height = to_unit((double)(s->height * side) / shorter, unit);
    s->width = to_unit((double)(s->width * side) / shorter, unit);
}

static int64_t shorter_side(const flux_sizes *s)
{
    return s->height < s->width ? s->height : s->width;
}

/* Whether the image can be halved so often by a part that a key switches on. */
static bool halves_enough(flux *k, const char *key, const char *what, int times)
{
    if (!pl_config_bool(k->c, key) || shorter_side(&k->s) >> times) return true;
    pl_nn_fail(k->m, PL_ERR_CONFIG, "%s: %s halves %d times: images of %lld x %lld are too small",
               key, what, times, (long long)k->s.height, (long long)k->s.width);
    return false;
}

static bool sizes_from_config(flux *k)
{
    const pl_config *c = k->c;
    int n_rgb, n_vgg, n_more;
    const int64_t *rgb = pl_config_ints(c, "model.rgb", &n_rgb);
    const int64_t *vgg = pl_config_ints(c, "lpips.widths", &n_vgg);
    const int64_t *sides = pl_config_ints(c, "resolutions", &n_more);
    if (n_rgb != 2 || n_vgg != 5 || n_more >= FLUX_PASSES) {
        pl_nn_fail(
            k->m, PL_ERR_CONFIG,
            "model.rgb needs 2 numbers, lpips.widths 5, resolutions at most %d; got %d, %d and %d",
            FLUX_PASSES - 1, n_rgb, n_vgg, n_more);
        return false;
    }
    int64_t height = pl_config_int(c, "image"), width = pl_config_int(c, "image_width");
    int64_t dim = pl_config_int(c, "model.dim"), groups = pl_config_int(c, "spade.groups");
    int64_t scales = pl_config_int(c, "model.scales"), context = pl_config_int(c, "flow.context");
    k->passes = n_more + 1;
    k->s = (flux_sizes){.batch = pl_builder_batch(k->b),
                        .height = height,
                        .width = width ? width : height,
                        .dim = dim,
                        .ff_mult = pl_config_int(c, "model.ff_mult"),
                        .max_hw = pl_config_int(c, "model.max_hw"),
                        .spade_hidden = pl_config_int(c, "spade.hidden"),
                        .spade_groups = (int)(groups     ? groups
                                              : dim < 32 ? dim
                                                         : 32),
                        .rgb = {rgb[0], rgb[1]},
                        .disc_base = pl_config_int(c, "gan.base"),
                        .scales = (int)scales,
                        .layers = (int)pl_config_int(c, "model.layers"),
                        .heads = (int)pl_config_int(c, "model.heads"),
                        .disc_depth = (int)pl_config_int(c, "gan.depth"),
                        .flow = {.width = pl_config_int(c, "flow.width"),
                                 .text = pl_config_int(c, "flow.text"),
                                 .context = context ? context : scales,
                                 .heads = (int)pl_config_int(c, "flow.heads"),
                                 .layers = (int)pl_config_int(c, "flow.layers")},
                        .spade = pl_config_bool(c, "spade.on"),
                        .compat = pl_config_bool(c, "seed_compat")};
    memcpy(k->s.vgg, vgg, sizeof k->s.vgg);
    if (!sizes_are_fit(k, k->s.height, k->s.width)) return false;
    int64_t whole = shorter_side(&k->s);
    for (int i = 0; i < n_more; i++)
        if (sides[i] >= whole)
            return refuse(k->m, "resolutions", (long long)sides[i], "side below the image's,",
                          (long long)whole);
    if (k->pass) shrink(&k->s, sides[k->pass - 1]);
    return halves_enough(k, "lpips.on", "VGG", 4) &&
           halves_enough(k, "gan.on", "the discriminator (gan.depth)", k->s.disc_depth);
}

bool flux_of(pl_builder *b, pl_nn *m, int pass, flux *k)
{
    *k = (flux){.b = b, .c = pl_builder_config(b), .m = m, .pass = pass};
    return sizes_from_config(k);
}

static double number(const flux *k, const char *key)
{
    return pl_config_float(k->c, key);
}

static pl_val scalar(const flux *k, double x)
{
    return pl_fill(k->m->g, PL_RANK0(k->m->dtype), x);
}

/* ---- inputs and draws ------------------------------------------------------------------- */
const char *flux_image_name(int pass)
{
    static const char *const names[FLUX_PASSES] = {"real", "real_1", "real_2", "real_3"};
    return names[pass];
}

static pl_val real_input(flux *k)
{
    return pl_input(k->m->g, flux_image_name(k->pass),
                    PL_TYPE(k->m->dtype, k->s.batch, k->s.height, k->s.width, 3));
}

static pl_type latent_type(const flux *k)
{
    return PL_TYPE(k->m->dtype, k->s.batch, k->s.height >> k->s.scales, k->s.width >> k->s.scales,
                   k->s.dim);
}

static pl_val draw_eps(flux *k, const char *name)
{
    return pl_draw_normal(k->b, k->m, name, latent_type(k));
}

/* Updates per step: the schedule advances once per step; the authors' advances with each update. */
static int64_t updates(const flux *k)
{
    return k->s.compat ? 1 : k->passes;
}

/* Steps done, for any number of updates in a step. */
static pl_val steps_done(flux *k, const char *section)
{
    pl_val n = pl_builder_step(k->b, k->m, section);
    int64_t each = k->passes * pl_builder_updates(k->b);
    return each == 1 ? n : pl_div(k->m->g, n, pl_full_like(k->m->g, n, (double)each));
}

/* ---- the discriminator ------------------------------------------------------------------ */
/* std * decay^step times normal numbers, added to the image. */
static pl_val with_noise(flux *k, pl_val image, const char *name)
{
    pl_graph *g = k->m->g;
    double std = number(k, "gan.noise_std");
    if (k->s.compat || std <= 0) return image;
    pl_val step = pl_cast(g, steps_done(k, "optim_d"), PL_F64);
    pl_val size = pl_exp(g, pl_scale(g, step, log(number(k, "gan.noise_decay"))));
    size = pl_cast(g, pl_scale(g, size, std), k->m->dtype);
    pl_val noise = pl_draw_normal(k->b, k->m, name, pl_val_type(g, image));
    return pl_add(g, image, pl_mul(g, noise, size));
}

void flux_build_disc(flux *k, bool penalise)
{
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    pl_val real = real_input(k), mu, logvar;
    pl_val packed = flux_compressor(m, &k->s, real, draw_eps(k, "eps_d"), &mu, &logvar);
    packed = pl_stop_gradient(g, packed); /* the penalty treats the condition as a constant */
    pl_val fake = flux_expander(m, &k->s, packed), condition = flux_token_mean(m, packed);
    pl_val seen = with_noise(k, real, "noise_real");
    pl_val on_real = flux_discriminator(m, &k->s, seen, condition);
    pl_val r1 = penalise ? pl_loss_r1(g, on_real, seen) : scalar(k, 0);
    fake = with_noise(k, fake, "noise_fake");
    pl_val loss = pl_loss_hinge_d(g, on_real, flux_discriminator(m, &k->s, fake, condition));
    loss = pl_add(g, loss, pl_scale(g, r1, 0.5 * number(k, "loss.r1_gamma")));
    pl_output(g, "d", loss);
    pl_output(g, "r1", r1);
    pl_builder_minimise_with(k->b, m, loss,
                             &(pl_group){"disc.*", "optim_d", updates(k), k->s.compat});
}

/* ---- the autoencoder -------------------------------------------------------------------- */
/* Reconstruction with LPIPS; *lpips is the LPIPS term alone. */
static pl_val reconstruct(flux *k, pl_val image, pl_val real, pl_val *lpips)
{
    pl_graph *g = k->m->g;
    *lpips = pl_config_bool(k->c, "lpips.on") ? flux_lpips(k->m, &k->s, image, real) : scalar(k, 0);
    pl_scope_push(g, "losses");
    pl_scope_full(g);
    pl_val rec = flux_reconstruction(g, image, real, number(k, "loss.mse_weight"));
    pl_scope_pop(g);
    return pl_add(g, rec, pl_scale(g, *lpips, number(k, "loss.lambda_lpips")));
}

typedef struct terms {
    pl_val raw[3], factor[3];
    int n;
} terms;

/* Sum of the terms, each with its factor and its adaptive weight. */
static pl_val weighted(flux *k, const pl_val *raw, const pl_val *factor, int n)
{
    pl_graph *g = k->m->g;
    pl_val part[3], loss = PL_NO_VAL;
    bool adaptive = pl_config_bool(k->c, "loss.adaptive");
    if (adaptive)
        pl_split(g, flux_rolling_weights(k->m, pl_stack(g, n, raw, 0), n, k->s.compat), 0, n, part);
    for (int i = 0; i < n; i++) {
        pl_val f = adaptive ? pl_mul(g, pl_squeeze(g, part[i], 0), factor[i]) : factor[i];
        pl_val term = pl_mul(g, f, raw[i]);
        loss = i ? pl_add(g, loss, term) : term;
    }
    return loss;
}

/* Returns tokens that the discriminator's gradient does not reach. Decoding them repeats the
 * reconstruction. */
static pl_val as_given(flux *k, pl_val packed)
{
    bool twice = strcmp(pl_config_text(k->c, "gan.decode"), "twice") == 0;
    return twice ? pl_stop_gradient(k->m->g, packed) : pl_stop_gradient_shared(k->m->g, packed);
}

/* Adds one term of the loss: its value, which the adaptive weights average, and its factor besides
 * the adaptive weight. */
static void add_term(terms *t, pl_val raw, pl_val factor)
{
    t->raw[t->n] = raw;
    t->factor[t->n++] = factor;
}

void flux_build_vae(flux *k)
{
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    bool gan = pl_config_bool(k->c, "gan.on"), recon = pl_config_bool(k->c, "recon.on");
    pl_val real = real_input(k), mu, logvar, lpips;
    terms t = {.n = 0};
    pl_val packed = flux_compressor(m, &k->s, real, draw_eps(k, "eps"), &mu, &logvar);
    if (recon) {
        pl_val rec = reconstruct(k, flux_expander(m, &k->s, packed), real, &lpips);
        add_term(&t, rec, scalar(k, 1));
        pl_output(g, "rec", rec);
        pl_output(g, "lpips", lpips);
    }
    pl_val step =
        pl_shift(g, steps_done(k, "optim"), (double)pl_config_int(k->c, "loss.first_step"));
    pl_val beta = flux_kl_weight(g, step, number(k, "loss.kl_beta"), number(k, "loss.kl_warmup"));
    beta = pl_cast(g, beta, m->dtype);
    pl_val kl = flux_kl(g, mu, logvar, number(k, "loss.kl_free_bits"));
    add_term(&t, kl, beta);
    pl_output(g, "kl", kl);
    pl_output(g, "beta", beta);
    if (gan) {
        pl_val held = recon ? as_given(k, packed) : packed, again = flux_expander(m, &k->s, held);
        pl_val judged = flux_discriminator(m, &k->s, again, flux_token_mean(m, held));
        pl_val hinge = pl_loss_hinge_g(g, judged);
        add_term(&t, pl_scale(g, hinge, number(k, "loss.lambda_adv")), scalar(k, 1));
        pl_output(g, "g", hinge);
    }
    pl_builder_minimise_with(k->b, m, weighted(k, t.raw, t.factor, t.n),
                             &(pl_group){"compressor.*,expander.*", NULL, updates(k), k->s.compat});
}

/* ---- the flow --------------------------------------------------------------------------- */
static pl_val text_input(flux *k)
{
    return pl_input(k->m->g, "text", PL_TYPE(k->m->dtype, k->s.batch, k->s.flow.text));
}

/* Returns tokens (B,T,D) without a gradient. */
static pl_val given_tokens(flux *k, pl_val eps)
{
    pl_nn *m = k->m;
    pl_val mu, logvar;
    bool frozen = m->frozen;
    m->frozen = true;
    pl_val packed = flux_compressor(m, &k->s, real_input(k), eps, &mu, &logvar);
    m->frozen = frozen;
    return pl_stop_gradient(m->g, flux_image_tokens(m, packed));
}

static pl_val flow_loss(flux *k, pl_val tokens, pl_val noise, pl_val t)
{
    pl_graph *g = k->m->g;
    pl_val noised, velocity;
    flux_flow_noised(g, tokens, noise, t, k->s.compat, &noised, &velocity);
    return pl_loss_mse(g, flux_flow(k->m, &k->s, noised, text_input(k), t), velocity);
}

void flux_build_flow(flux *k)
{
    pl_graph *g = k->m->g;
    bool vae = pl_config_bool(k->c, "vae.on");
    pl_val tokens = given_tokens(k, draw_eps(k, "eps_flow"));
    pl_val noise = pl_draw_normal(k->b, k->m, "noise", pl_val_type(g, tokens));
    /* f64: a replay can give every time, and the last times are less likely than f32 resolves */
    pl_val u = pl_draw_uniform(k->b, k->m, "u", PL_TYPE(PL_F64, k->s.batch));
    pl_val loss = flow_loss(k, tokens, noise, flux_flow_time(g, u));
    pl_output(g, "v", loss);
    pl_builder_minimise_with(
        k->b, k->m, loss,
        &(pl_group){"flow_processor.*", "optim_flow", vae ? 1 : updates(k), k->s.compat});
}

/* ---- evaluation ------------------------------------------------------------------------- */
/* Returns the velocity's error at evenly spread times, with the same noise every time. */
static pl_val eval_flow(flux *k, pl_val tokens)
{
    pl_graph *g = k->m->g;
    pl_val key = pl_iota(g, PL_TYPE(PL_I64, 2), 0);
    pl_val noise = pl_random_normal(g, key, pl_val_type(g, tokens));
    pl_val part = pl_shift(g, pl_iota(g, PL_TYPE(PL_F64, k->s.batch), 0), 0.5);
    pl_val t = pl_cast(g, pl_floor(g, pl_scale(g, part, 1000.0 / (double)k->s.batch)), PL_I64);
    return flow_loss(k, tokens, noise, t);
}

void flux_build_eval(flux *k)
{
    pl_nn *m = k->m;
    pl_graph *g = m->g;
    bool vae = pl_config_bool(k->c, "vae.on"), flow = pl_config_bool(k->c, "flow.on");
    pl_val real = real_input(k), mu, logvar, lpips, v = PL_NO_VAL;
    pl_val packed = flux_compressor(m, &k->s, real, pl_fill(g, latent_type(k), 0), &mu, &logvar);
    if (flow) v = eval_flow(k, flux_image_tokens(m, packed));
    if (vae) {
        pl_val image = flux_expander(m, &k->s, packed);
        pl_output(g, "loss", reconstruct(k, image, real, &lpips));
        pl_output(g, "mse", pl_loss_mse(g, image, real));
        pl_output(g, "kl", pl_loss_kl(g, mu, logvar));
        if (pl_config_bool(k->c, "lpips.on")) pl_output(g, "lpips", lpips);
    }
    if (flow && !vae) pl_output(g, "loss", v);
    if (flow) pl_output(g, "v", v);
}

/* ---- pictures --------------------------------------------------------------------------- */
static void picture_reconstruction(flux *k)
{
    pl_nn *m = k->m;
    pl_val real = real_input(k), mu, logvar;
    pl_val packed = flux_compressor(m, &k->s, real, pl_fill(m->g, latent_type(k), 0), &mu, &logvar);
    pl_builder_array(k->b, "encoded", mu);
    pl_builder_picture(k->b, "real", real, -1, 1);
    pl_builder_picture(k->b, "reconstructed", flux_expander(m, &k->s, packed), -1, 1);
}

static void picture_flow(flux *k)
{
    pl_nn *m = k->m;
    pl_type t = latent_type(k);
    pl_type tokens = PL_TYPE(t.dtype, t.dim[0], t.dim[1] * t.dim[2], t.dim[3]);
    bool vae = pl_config_bool(k->c, "vae.on"), frozen = m->frozen;
    pl_val x = flux_flow_sample(m, &k->s, pl_draw_normal(k->b, m, "sample_noise", tokens),
                                text_input(k), (int)pl_config_int(k->c, "flow.sample_steps"));
    pl_builder_array(k->b, "latent", x);
    m->frozen = !vae;
    pl_builder_picture(k->b, "made", flux_expander(m, &k->s, flux_packed(m, &k->s, x)), -1, 1);
    m->frozen = frozen;
}

void flux_build_sample(flux *k)
{
    if (pl_config_bool(k->c, "vae.on")) picture_reconstruction(k);
    if (pl_config_bool(k->c, "flow.on")) picture_flow(k);
}
