/* authors_fluxflow.c - FluxFlow: networks alone, three steps of autoencoder and discriminator, one
 * step of the flow. */
#include "recipes/fluxflow/fluxflow.h"
#include "tests/authors/authors.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CF AUTHORS_CHANNELS_FIRST

/* ---- configuration ---------------------------------------------------------------------- */
static void sizes(authors *a, authors_keys *k, const char *image)
{
    pl_type t = {0};
    if (!authors_tensor(a, image, AUTHORS_PLAIN, &t)) authors_fail(a, image, "missing");
    authors_key(k, "batch=%lld", (long long)t.dim[0]);
    authors_key(k, "image=%lld", (long long)t.dim[2]);
    authors_key(k, "image_width=%lld", (long long)t.dim[3]);
    static const char *const pairs[][2] = {
        {"model.dim", "constructed.FluxCompressor.d_model"},
        {"model.scales", "constructed.FluxCompressor.downscales"},
        {"model.layers", "constructed.FluxCompressor.attn_layers"},
        {"model.heads", "constructed.FluxCompressor.attn_heads"},
        {"model.ff_mult", "constructed.FluxCompressor.attn_ff_mult"},
        {"model.max_hw", "constructed.FluxCompressor.max_hw"},
        {"spade.hidden", "fixed_in_authors_code.spade_hidden"},
        {"gan.base", "constructed.PatchDiscriminator.base_ch"},
        {"gan.depth", "constructed.PatchDiscriminator.depth"},
        {"flow.width", "constructed.FluxFlowProcessor.d_model"},
        {"flow.text", "constructed.FluxFlowProcessor.embedding_size"},
        {"flow.heads", "constructed.FluxFlowProcessor.n_head"},
        {"flow.layers", "constructed.FluxFlowProcessor.n_layers"},
        {"flow.context", "constructed.FluxFlowProcessor.ctx_tokens"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(k, "%s=%lld", pairs[i][0], (long long)authors_int(a, pairs[i][1]));
    authors_key(k, "model.rgb=[%lld,%lld]",
                (long long)authors_int(a, "fixed_in_authors_code.rgb_widths.0"),
                (long long)authors_int(a, "fixed_in_authors_code.rgb_widths.1"));
    authors_key(k, "seed_compat=true");
    authors_key(k, "init_from=%s", a->dir);
}

static void optimiser(authors *a, authors_keys *k, const char *section, const char *theirs)
{
    char path[128], prefix[32] = "";
    const char *const fields[] = {"lr", "weight_decay"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "trainer.%s.%s", theirs, fields[i]);
        authors_key(k, "%s.%s=%.17g", section, fields[i], authors_number(a, path));
    }
    snprintf(path, sizeof path, "trainer.%s.betas.0", theirs);
    double beta = authors_number(a, path);
    snprintf(path, sizeof path, "trainer.%s.betas.1", theirs);
    authors_key(k, "%s.betas=[%.17g,%.17g]", section, beta, authors_number(a, path));
    snprintf(path, sizeof path, "trainer.%s.lr", theirs);
    double lr = authors_number(a, path);
    if (strcmp(section, "optim") != 0) snprintf(prefix, sizeof prefix, "%s.", section);
    authors_key(k, "%sschedule.name=cosine", prefix);
    authors_key(k, "%sschedule.total_steps=%lld", prefix,
                (long long)authors_int(a, "trainer.schedule.T_max"));
    authors_key(k, "%sschedule.eta_min=%.17g", prefix, 0.1 * lr);
    authors_key(k, "%sclip.norm=%.17g", prefix,
                strcmp(section, "optim_d") ? authors_number(a, "trainer.gradient_clip_norm") : 0);
}

static pl_run *open_vae(authors *a, bool f64)
{
    authors_keys k = {.a = a};
    sizes(a, &k, "in/image");
    authors_key(&k, "flow.on=false");
    authors_key(&k, "gan.decode=twice");
    authors_key(&k, "lpips.on=false");
    optimiser(a, &k, "optim", "optimiser_vae");
    optimiser(a, &k, "optim_d", "optimiser_discriminator");
    authors_key(&k, "optim_d.amsgrad=true");
    authors_key(&k, "ema.decay=%.17g", authors_number(a, "trainer.ema_vae"));
    static const char *const pairs[][2] = {
        {"loss.lambda_adv", "trainer.lambda_adv"},
        {"loss.mse_weight", "trainer.mse_weight"},
        {"loss.kl_beta", "trainer.kl_beta"},
        {"loss.kl_warmup", "trainer.kl_warmup_steps"},
        {"loss.kl_free_bits", "trainer.kl_free_bits"},
        {"loss.r1_gamma", "trainer.r1_gamma"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        authors_key(&k, "%s=%.17g", pairs[i][0], authors_number(a, pairs[i][1]));
    authors_key(&k, "loss.adaptive=%s",
                json_is_false(authors_at(a, "trainer.adaptive_weights")) ? "false" : "true");
    authors_key(&k, "loss.r1_interval=%lld", (long long)authors_int(a, "trainer.r1_interval"));
    authors_key(&k, "loss.first_step=%lld", (long long)authors_int(a, "trainer.first_global_step"));
    return authors_run_open(a, "fluxflow/tiny", &k, f64);
}

static pl_run *open_flow(authors *a, bool f64)
{
    authors_keys k = {.a = a};
    sizes(a, &k, "in/flow.image");
    authors_key(&k, "optim_flow.decoupled_weight_decay=true");
    optimiser(a, &k, "optim_flow", "optimiser_flow");
    authors_key(&k, "optim_flow.ema.decay=%.17g", authors_number(a, "trainer.ema_flow"));
    return authors_run_open(a, "fluxflow/flow-tiny", &k, f64);
}

/* io's names are the authors' names of modules, without the pipeline that holds them. */
static bool name_of(const pl_run *run, const char *slot, char name[512])
{
    static const char pipeline[] = "diffuser.", disc[] = "D_img.";
    const pl_slot *s = pl_store_slot(run->store, pl_store_find(run->store, slot));
    pl_published to;
    if (!pl__naming_find(flux_start.naming, run->config, s, &to)) return false;
    if (strncmp(to.name, pipeline, strlen(pipeline)) == 0)
        return snprintf(name, 512, "%s", to.name + strlen(pipeline)) < 512;
    if (strncmp(to.name, disc, strlen(disc)) == 0)
        return snprintf(name, 512, "discriminator.%s", to.name + strlen(disc)) < 512;
    return false;
}

/* ---- networks alone --------------------------------------------------------------------- */
static flux_sizes sizes_of(const pl_run *run)
{
    const pl_config *c = run->config;
    int n;
    const int64_t *rgb = pl_config_ints(c, "model.rgb", &n);
    int64_t dim = pl_config_int(c, "model.dim");
    return (flux_sizes){.batch = pl_config_int(c, "batch"),
                        .height = pl_config_int(c, "image"),
                        .width = pl_config_int(c, "image_width"),
                        .dim = dim,
                        .ff_mult = pl_config_int(c, "model.ff_mult"),
                        .max_hw = pl_config_int(c, "model.max_hw"),
                        .rgb = {rgb[0], rgb[1]},
                        .spade_hidden = pl_config_int(c, "spade.hidden"),
                        .spade_groups = (int)(dim < 32 ? dim : 32),
                        .disc_base = pl_config_int(c, "gan.base"),
                        .disc_depth = (int)pl_config_int(c, "gan.depth"),
                        .scales = (int)pl_config_int(c, "model.scales"),
                        .layers = (int)pl_config_int(c, "model.layers"),
                        .heads = (int)pl_config_int(c, "model.heads"),
                        .flow = {.width = pl_config_int(c, "flow.width"),
                                 .text = pl_config_int(c, "flow.text"),
                                 .context = pl_config_int(c, "flow.context"),
                                 .heads = (int)pl_config_int(c, "flow.heads"),
                                 .layers = (int)pl_config_int(c, "flow.layers")},
                        .spade = true,
                        .compat = true};
}

static void check_autoencoder(authors *a, pl_run *run)
{
    flux_sizes s = sizes_of(run), without = s;
    without.spade = false;
    authors_net *net = authors_net_new(a, run, false);
    pl_nn *m = authors_net_nn(net);
    pl_val mu, logvar, image = authors_net_in(net, "in/image", CF);
    pl_val packed = flux_compressor(m, &s, image, authors_net_in(net, "in/eps", CF), &mu, &logvar);
    int64_t h = s.height >> s.scales, w = s.width >> s.scales;
    authors_net_out(net, "out/compressor.position_code", AUTHORS_PLAIN,
                    pl_nn_position_2d(m->g, m->dtype, h, w, s.dim));
    authors_net_out(net, "out/compressor.mu", CF, mu);
    authors_net_out(net, "out/compressor.logvar", CF, logvar);
    authors_net_out(net, "out/compressor.packed", AUTHORS_PLAIN, packed);
    authors_net_out(net, "out/expander.image", CF, flux_expander(m, &s, packed));
    authors_net_out(net, "out/expander.image_without_spade", CF,
                    flux_expander(m, &without, packed));
    authors_net_run(net);
}

/* The authors' map of logits (B,h,w,1). */
static pl_val patches(pl_nn *m, const flux_sizes *s, pl_val image, pl_val condition)
{
    pl_val p, h = flux_patch_logits(m, s, image, condition, &p);
    return pl_add(m->g, h, pl_reshape(m->g, p, PL_DIMS(s->batch, 1, 1, 1)));
}

/* Returns tokens of image and noise, and the mean token, without a gradient. */
static pl_val encode(authors_net *net, const flux_sizes *s, pl_val image, const char *eps,
                     pl_val *condition)
{
    pl_nn *m = authors_net_nn(net);
    pl_val mu, logvar,
        packed = flux_compressor(m, s, image, authors_net_in(net, eps, CF), &mu, &logvar);
    packed = pl_stop_gradient(m->g, packed);
    *condition = flux_token_mean(m, packed);
    return packed;
}

static void check_discriminator(authors *a, pl_run *run)
{
    flux_sizes s = sizes_of(run);
    for (int training = 0; training < 2; training++) {
        authors_net *net = authors_net_new(a, run, training);
        pl_nn *m = authors_net_nn(net);
        pl_val condition, image = authors_net_in(net, "in/image", CF);
        encode(net, &s, image, "in/eps", &condition);
        pl_val logits = patches(m, &s, image, condition);
        if (training) {
            pl_val each = pl_mean(m->g, logits, PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3), false);
            pl_val r1 = pl_loss_r1(m->g, each, image);
            authors_net_out(net, "r1_alone/patch_logits", CF, logits);
            authors_net_out(net, "r1_alone/value", AUTHORS_PLAIN, r1);
            authors_net_gradients(net, r1, "grad_r1", "disc.*", name_of, AUTHORS_R1);
        } else {
            authors_net_out(net, "out/discriminator.patch_logits_eval", CF, logits);
        }
        authors_net_run(net);
    }
}

/* ---- steps of autoencoder and discriminator --------------------------------------------- */
/* Scalar NAME of step k. */
static double step_number(authors *a, int k, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "steps.%d.%s", k, name);
    return authors_number(a, path);
}

static void step_term(authors *a, int k, const char *name, double got, double tolerance)
{
    char what[96];
    snprintf(what, sizeof what, "step %d %s", k, name);
    authors_term(a, what, got, step_number(a, k, name), tolerance);
}

/* Relative rounding of f32 in a mean of logits, numbers around 1, that cancel to g. */
static double rounding_of(double g)
{
    return 0x1p-24 / fmax(fabs(g), 0x1p-24);
}

/* Mean of g_hinge over the steps up to k. The adaptive weight divides by this mean, so gradients
 * have its rounding. */
static double mean_hinge(authors *a, int k)
{
    double sum = 0;
    for (int i = 0; i <= k; i++) sum += step_number(a, i, "g_hinge");
    return sum / (k + 1);
}

static void feed(const authors_program *p, int k, const char *input, const char *draw)
{
    char tensor[96];
    snprintf(tensor, sizeof tensor, "in/step%d.%s", k, draw);
    authors_set(p, "real", "in/image", CF);
    authors_set(p, input, tensor, CF);
}

/* What the discriminator sees in its first step: two passes, each after a power iteration. */
static void check_first_judgement(authors *a, pl_run *run)
{
    flux_sizes s = sizes_of(run);
    authors_net *net = authors_net_new(a, run, true);
    pl_nn *m = authors_net_nn(net);
    pl_val condition, image = authors_net_in(net, "in/image", CF);
    pl_val packed = encode(net, &s, image, "in/step0.eps_discriminator", &condition);
    authors_net_out(net, "step0/patch_logits_real", CF, patches(m, &s, image, condition));
    pl_val fake = flux_expander(m, &s, packed);
    authors_net_out(net, "step0/patch_logits_fake", CF, patches(m, &s, fake, condition));
    authors_net_run(net);
}

/* A term of step k that a network gives. */
static void net_term(authors_net *net, authors *a, int k, const char *name, pl_val v,
                     double tolerance)
{
    char what[96];
    snprintf(what, sizeof what, "step %d %s", k, name);
    authors_net_term(net, pl_arena_strdup(&a->mem, what), v, step_number(a, k, name), tolerance);
}

/* The adaptive weights of the step: its terms enter the history before they are weighed. */
static void weigh(authors_net *net, authors *a, int k)
{
    static const char *const terms[] = {"recon", "kl", "generator"}, *const weights[] = {
                                                                         "weight_recon",
                                                                         "weight_kl", "weight_gan"};
    pl_nn *m = authors_net_nn(net);
    pl_val raw[3], part[3];
    for (int i = 0; i < 3; i++)
        raw[i] = pl_fill(m->g, pl_type_make(m->dtype, 0, NULL), step_number(a, k, terms[i]));
    pl_split(m->g, flux_rolling_weights(m, pl_stack(m->g, 3, raw, 0), 3, true), 0, 3, part);
    for (int i = 0; i < 3; i++)
        net_term(net, a, k, weights[i], pl_squeeze(m->g, part[i], 0),
                 AUTHORS_TERM + rounding_of(mean_hinge(a, k)));
}

/* The autoencoder in step k, after the discriminator's update. */
static void check_reconstruction(authors *a, pl_run *run, int k)
{
    flux_sizes s = sizes_of(run);
    authors_net *net = authors_net_new(a, run, true);
    pl_nn *m = authors_net_nn(net);
    char eps[64];
    snprintf(eps, sizeof eps, "in/step%d.eps_generator", k);
    pl_val condition, image = authors_net_in(net, "in/image", CF);
    pl_val packed = encode(net, &s, image, pl_arena_strdup(&a->mem, eps), &condition);
    pl_val made = flux_expander(m, &s, packed);
    if (!k) authors_net_out(net, "step0/reconstruction", CF, made);
    if (!k)
        authors_net_out(net, "step0/patch_logits_generator", CF, patches(m, &s, made, condition));
    net_term(net, a, k, "frequency_l1", flux_reconstruction(m->g, made, image, 0), AUTHORS_TERM);
    net_term(net, a, k, "mse", pl_loss_mse(m->g, made, image), AUTHORS_TERM);
    if (json_is_true(authors_at(a, "trainer.adaptive_weights"))) weigh(net, a, k);
    authors_net_run(net);
}

/* The norm that clipping leaves of a norm. */
static double clipped(authors *a, double norm)
{
    double most = authors_number(a, "trainer.gradient_clip_norm");
    return norm * fmin(1, most / (norm + 1e-6));
}

/* The discriminator's program in step k: with the gradient penalty if that is due. */
static authors_program disc_of(authors *a, pl_run *run, int k)
{
    int64_t step = authors_int(a, "trainer.first_global_step") + k;
    bool due = step % authors_int(a, "trainer.r1_interval") == 0;
    return (authors_program){a, run, due ? "disc_r1" : "disc"};
}

static void check_step(authors *a, pl_run *run, int k)
{
    authors_program disc = disc_of(a, run, k), train = {a, run, NULL};
    feed(&disc, k, "eps_d", "eps_discriminator");
    if (!authors_run_program(&disc)) return;
    double d = authors_scalar(&disc, "d"), r1 = authors_scalar(&disc, "r1");
    step_term(a, k, "discriminator", d, AUTHORS_TERM);
    step_term(a, k, "d_hinge", d - 0.5 * authors_number(a, "trainer.r1_gamma") * r1, AUTHORS_TERM);
    step_term(a, k, "r1", r1, AUTHORS_R1);
    if (k) step_term(a, k - 1, "lr_disc", authors_scalar(&disc, "lr"), AUTHORS_TERM);
    if (!k) authors_gradients(&disc, "grad", "disc.*", name_of, AUTHORS_GRADIENT);
    check_reconstruction(a, run, k);
    feed(&train, k, "eps", "eps_generator");
    if (!authors_run_program(&train)) return;
    double g = authors_scalar(&train, "g"), loose = rounding_of(mean_hinge(a, k)),
           hinge = AUTHORS_TERM + rounding_of(step_number(a, k, "g_hinge"));
    step_term(a, k, "total", authors_scalar(&train, "loss"), AUTHORS_TERM);
    step_term(a, k, "recon", authors_scalar(&train, "rec"), AUTHORS_TERM);
    step_term(a, k, "kl", authors_scalar(&train, "kl"), AUTHORS_TERM);
    step_term(a, k, "kl_beta", authors_scalar(&train, "beta"), AUTHORS_TERM);
    step_term(a, k, "g_hinge", g, hinge);
    step_term(a, k, "generator", g * authors_number(a, "trainer.lambda_adv"), hinge);
    step_term(a, k, "vae", authors_scalar(&train, "rec"), AUTHORS_TERM);
    step_term(a, k, "grad_norm_before_clip", authors_scalar(&train, "grad_norm"),
              AUTHORS_GRADIENT + loose);
    step_term(a, k, "grad_norm_vae", clipped(a, authors_scalar(&train, "grad_norm")),
              AUTHORS_GRADIENT + loose);
    if (k) step_term(a, k - 1, "lr_vae", authors_scalar(&train, "lr"), AUTHORS_TERM);
    if (k) return;
    authors_gradients(&train, "grad", "compressor.*", name_of, AUTHORS_GRADIENT + loose);
    authors_gradients(&train, "grad", "expander.*", name_of, AUTHORS_GRADIENT + loose);
}

static void check_steps(authors *a, pl_run *run)
{
    int steps = (int)json_array_size(authors_at(a, "steps"));
    check_first_judgement(a, run);
    for (int k = 0; k < steps; k++) {
        check_step(a, run, k);
        if (!k) authors_state(a, run, "after_step0", "disc.*", name_of, AUTHORS_OUTPUT);
    }
}

/* What the steps change, in f64. */
static void check_changes(authors *a, pl_run *run)
{
    static const char *const parts[] = {"compressor.*", "expander.*", "disc.*"};
    double **before = authors_snapshot(a, run);
    int steps = (int)json_array_size(authors_at(a, "steps"));
    for (int k = 0; k < steps; k++) {
        authors_program disc = disc_of(a, run, k), train = {a, run, NULL};
        feed(&disc, k, "eps_d", "eps_discriminator");
        if (!authors_run_program(&disc)) return;
        feed(&train, k, "eps", "eps_generator");
        if (!authors_run_program(&train)) return;
        if (k) continue;
        for (int i = 0; i < 3; i++)
            authors_deltas(a, run, before, "delta", parts[i], name_of, false);
        for (int i = 0; i < 2; i++)
            authors_deltas(a, run, before, "ema_delta", parts[i], name_of, true);
    }
    for (int i = 0; i < 3; i++) authors_deltas(a, run, before, "delta3", parts[i], name_of, false);
}

/* ---- the flow --------------------------------------------------------------------------- */
/* Tokens without the token of the size; with it again. */
static pl_val flow_packed(authors_net *net, const flux_sizes *s, pl_val packed)
{
    pl_nn *m = authors_net_nn(net);
    pl_val t = authors_net_in(net, "in/flow.t", AUTHORS_PLAIN);
    pl_val text = authors_net_in(net, "in/flow.text", AUTHORS_PLAIN);
    return flux_packed(m, s, flux_flow(m, s, flux_image_tokens(m, packed), text, t));
}

/* Mean and deviation of the predicted tokens. The mean is small beside the deviation. */
static void check_spread(authors_net *net, authors *a, pl_val x)
{
    pl_graph *g = authors_net_nn(net)->g;
    pl_type t = pl_val_type(g, x);
    double n = (double)pl_type_elems(&t), want = authors_number(a, "flow_step.pred_mean"),
           spread = authors_number(a, "flow_step.pred_std");
    pl_val mean = pl_mean(g, x, PL_AXES_ALL, false),
           square = pl_mean(g, pl_square(g, pl_sub(g, x, mean)), PL_AXES_ALL, false);
    authors_net_term(net, "flow pred_mean", mean, want,
                     AUTHORS_TERM * fmax(1, spread / fmax(fabs(want), 1e-30)));
    authors_net_term(net, "flow pred_std", pl_sqrt(g, pl_scale(g, square, n / (n - 1))), spread,
                     AUTHORS_TERM);
}

static void check_flow_networks(authors *a, pl_run *run)
{
    flux_sizes s = sizes_of(run), scales = s;
    scales.flow.context = s.scales;
    for (int k = 0; k < 3; k++) {
        authors_net *net = authors_net_new(a, run, false);
        pl_nn *m = authors_net_nn(net);
        pl_val mu, logvar, image = authors_net_in(net, "in/flow.image", CF);
        pl_val packed =
            flux_compressor(m, &s, image, authors_net_in(net, "in/flow.eps", CF), &mu, &logvar);
        if (k == 0) {
            authors_net_out(net, "out/flow.given_packed", AUTHORS_PLAIN, packed);
            authors_net_out(net, "out/flow.packed", AUTHORS_PLAIN, flow_packed(net, &s, packed));
        } else if (k == 1) {
            authors_net_out(net, "out/flow.packed_context_tokens_as_downscales", AUTHORS_PLAIN,
                            flow_packed(net, &scales, packed));
        } else {
            pl_val noised, velocity, t = authors_net_in(net, "in/flow.t", AUTHORS_PLAIN);
            pl_val noise = authors_net_in(net, "in/flow.noise", AUTHORS_PLAIN);
            flux_flow_noised(m->g, flux_image_tokens(m, packed), noise, t, true, &noised,
                             &velocity);
            authors_net_out(net, "flow_step/noised_tokens", AUTHORS_PLAIN, noised);
            pl_val text = authors_net_in(net, "in/flow.text", AUTHORS_PLAIN);
            pl_val made = flux_flow(m, &s, noised, text, t);
            authors_net_out(net, "flow_step/predicted_packed", AUTHORS_PLAIN,
                            flux_packed(m, &s, made));
            check_spread(net, a, made);
        }
        authors_net_run(net);
    }
}

/* A number in [0,1] for which the time drawn is t: the middle of its part of the distribution. */
static double uniform_of(int64_t t)
{
    double below = 0, total = 0, own = 0;
    for (int i = 0; i < 1000; i++) {
        double x = cos((i / 999.0 + 0.008) / 1.008 * 1.57079632679489661923);
        if (i == t) below = total, own = x * x;
        total += x * x;
    }
    return t >= 999 ? 1 : (below + 0.5 * own) / total;
}

/* changes: the weights' change alone, in f64; else loss and gradients. */
static void check_flow_step(authors *a, pl_run *run, bool changes)
{
    authors_program p = {a, run, NULL};
    double **before = authors_snapshot(a, run), u[256];
    pl_type t;
    const double *times = authors_tensor(a, "in/flow.t", AUTHORS_PLAIN, &t);
    int64_t n = times ? pl_type_elems(&t) : 0;
    if (n < 1 || n > 256) {
        authors_fail(a, "in/flow.t", "wants 1 to 256 times");
        return;
    }
    for (int64_t i = 0; i < n; i++) u[i] = uniform_of((int64_t)times[i]);
    authors_set_values(&p, "u", u, n);
    authors_set(&p, "real", "in/flow.image", CF);
    authors_set(&p, "eps_flow", "in/flow.eps", CF);
    authors_set(&p, "noise", "in/flow.noise", AUTHORS_PLAIN);
    authors_set(&p, "text", "in/flow.text", AUTHORS_PLAIN);
    if (!authors_run_program(&p)) return;
    if (changes) {
        authors_deltas(a, run, before, "delta", "flow_processor.*", name_of, false);
        return;
    }
    authors_term(a, "flow loss", authors_scalar(&p, "v"), authors_number(a, "flow_step.loss"),
                 AUTHORS_TERM);
    authors_term(a, "flow grad_norm_before_clip", authors_scalar(&p, "grad_norm"),
                 authors_number(a, "flow_step.grad_norm_before_clip"), AUTHORS_GRADIENT);
    authors_gradients(&p, "grad", "flow_processor.*", name_of, AUTHORS_GRADIENT);
    authors_term(a, "flow flow_loss", authors_scalar(&p, "v"),
                 authors_number(a, "flow_step.flow_loss"), AUTHORS_TERM);
    authors_term(a, "flow diff_loss", authors_scalar(&p, "v"),
                 authors_number(a, "flow_step.diff_loss"), AUTHORS_TERM);
    authors_term(a, "flow grad_norm_flow", clipped(a, authors_scalar(&p, "grad_norm")),
                 authors_number(a, "flow_step.grad_norm_flow"), AUTHORS_GRADIENT);
    if (!authors_run_program(&p)) return; /* a second step has the rate after the first */
    authors_term(a, "flow lr_flow", authors_scalar(&p, "lr"),
                 authors_number(a, "flow_step.lr_flow"), AUTHORS_TERM);
}

/* The share of the signal at the times of in/flow.t. */
static void check_noise(authors *a)
{
    pl_type t;
    const double *times = authors_tensor(a, "in/flow.t", AUTHORS_PLAIN, &t);
    double share[256];
    int64_t n = times ? pl_type_elems(&t) : 0;
    for (int64_t i = 0; i < n && i < 256; i++) share[i] = flux_signal_share((int64_t)times[i]);
    t.dtype = PL_F64;
    if (n) authors_output(a, "alphas_cumprod", AUTHORS_PLAIN, &t, share);
}

/* A step with all networks, so that the run has every weight of the files. */
static void check_round_trip(authors *a)
{
    authors_keys k = {.a = a};
    char files[2100];
    sizes(a, &k, "in/image");
    authors_key(&k, "flow.on=true");
    authors_key(&k, "lpips.on=false");
    snprintf(files, sizeof files, "%s/flxflow_final.safetensors,%s/D_img.safetensors", a->dir,
             a->dir);
    authors_round_trip(a, "fluxflow/tiny", &k, files, NULL);
}

void authors_fluxflow(authors *a)
{
    check_round_trip(a);
    for (int f64 = 0; f64 < 2; f64++) {
        pl_run *run = open_vae(a, f64);
        if (run && f64) check_changes(a, run);
        if (run && !f64) {
            check_autoencoder(a, run);
            check_discriminator(a, run);
            check_steps(a, run);
        }
        pl_run_free(run);
        run = open_flow(a, f64);
        if (run && !f64) check_noise(a);
        if (run && !f64) check_flow_networks(a, run);
        if (run) check_flow_step(a, run, f64);
        pl_run_free(run);
    }
}
