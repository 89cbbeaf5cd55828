/* lgt.c - latent style transfer: a velocity field trained through its own Euler integration.
 *
 * The training program is one micro-batch (loss.c); draws have the names of the PyTorch program.
 * The evaluation program is inference (infer.c), and the result is compared as in training, with
 * fixed directions.
 *
 * `seed_compat` restores the original's mistakes: each time step is computed from the remaining
 * time, so that the integration never reaches the end; and training uses the average of the initial
 * styles, while inference uses the average of the trained styles.
 */
#include "lgt.h"
#include "recipes/vae.h"

#include <string.h>

static const pl_config_entry schema[] = {
    {"seed_compat", PL_CONFIG_BOOL, "false",
     .doc = "Reproduce the original program, including its mistakes (see the recipe's README)."},
    {"latent", PL_CONFIG_INT, "32", .min = 4, .max = 4096, .doc = "Rows of a latent."},
    {"latent_columns", PL_CONFIG_INT, "0", .min = 0, .max = 4096,
     .doc = "Columns of a latent; 0: as many as rows."},
    {"model.channels", PL_CONFIG_INT, "4", .min = 1, .max = 4096,
     .doc = "Channels of a latent: 4 with Stable Diffusion's autoencoder."},
    {"model.base", PL_CONFIG_INT, "128", .min = 32, .max = 65536,
     .doc = "Channels of the finest level."},
    {"model.cond", PL_CONFIG_INT, "256", .min = 2, .max = 65536,
     .doc = "Width of the condition vector and of the style vectors."},
    {"model.time", PL_CONFIG_INT, "0", .min = 0, .max = 65536,
     .doc = "Width of the time vector, an even number; 0: model.cond."},
    {"model.styles", PL_CONFIG_INT, "2", .min = 1, .max = 1e6, .doc = "Number of styles."},
    {"model.encoder_blocks", PL_CONFIG_INT, "2", .min = 1, .max = 64,
     .doc = "Residual blocks per level."},
    {"model.decoder_blocks", PL_CONFIG_INT, "3", .min = 1, .max = 64,
     .doc = "Style blocks per level."},
    {"model.block", PL_CONFIG_CHOICE, "dynamic", .choices = "dynamic|adagn",
     .doc = "Style block: a depthwise kernel made from the condition (dynamic), or a "
            "normalisation scaled by it (adagn)."},
    {"model.average", PL_CONFIG_CHOICE, "current", .choices = "current|initial|learned",
     .doc = "Average style: the mean of the current style vectors, the mean of the initial ones, "
            "or a learned vector."},
    {"model.style_noise", PL_CONFIG_FLOAT, "0", .min = 0, .max = 10,
     .doc = "Standard deviation of noise on the style vectors in training."},
    {"model.plus", PL_CONFIG_BOOL, "false",
     .doc = "LGT++: attention in the middle, gated skip connections."},
    {"ode.steps", PL_CONFIG_INT, "10", .min = 1, .max = 1000,
     .doc = "Euler steps that are trained through."},
    {"ode.eval_steps", PL_CONFIG_INT, "15", .min = 1, .max = 1000,
     .doc = "Euler steps of inference in each direction; the evaluation program grows with it."},
    {"ode.dt", PL_CONFIG_CHOICE, "fixed", .choices = "fixed|shrinking",
     .doc = "Time step: a fixed share of the whole interval, which reaches the end (fixed), or of "
            "the remaining interval, which does not (shrinking)."},
    {"ode.epsilon", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 0.5, .doc = "Earliest time."},
    {"ode.epsilon_warmup", PL_CONFIG_INT, "0", .min = 0, .max = 1e9,
     .doc = "Steps over which the earliest time rises from 0 to ode.epsilon."},
    {"ode.epsilon_epoch", PL_CONFIG_INT, "1", .min = 1, .max = 1e9,
     .doc =
         "Steps between two increases: the steps of an epoch, as the authors do; 1: every step."},
    {"infer.cfg_scale", PL_CONFIG_FLOAT, "1", .min = 0, .max = 100,
     .doc = "Inference: guidance weight of the wanted style against the average style; 1: the "
            "wanted style only."},
    {"infer.cfg_decay", PL_CONFIG_BOOL, "true",
     .doc = "Inference: lower the guidance weight towards 1 over the steps."},
    {"infer.repulsion", PL_CONFIG_FLOAT, "0", .min = 0, .max = 100,
     .doc = "Inference: weight of the push away from the source's own style."},
    {"infer.temperature", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 100,
     .doc = "Inference: noise per step, times the square root of the time step."},
    {"infer.threshold", PL_CONFIG_FLOAT, "0.5", .min = 0, .max = 1,
     .doc = "Inference: time from which noise is added."},
    {"predict.what", PL_CONFIG_CHOICE, "transfer", .choices = "transfer|latents",
     .doc = "`predict`: style transfer, or only the latents of pictures, as .pt files for "
            "data.latents."},
    {"predict.source", PL_CONFIG_INT, "0", .min = 0, .max = 1e6,
     .doc = "`predict`: style of the inputs."},
    {"predict.style", PL_CONFIG_INT, "1", .min = 0, .max = 1e6,
     .doc = "`predict`: style that they get."},
    {"vae.weights", PL_CONFIG_TEXT, "null",
     .doc = "`predict`: weights of Stable Diffusion's autoencoder (safetensors), with the names of "
            "diffusers or of the published checkpoints: pictures are read and written; null: "
            "latents only."},
    VAE_KEYS,
    {"loss.w_style", PL_CONFIG_FLOAT, "1", .min = 0, .max = 1e6,
     .doc = "Weight of the patch distance (style)."},
    {"loss.w_content", PL_CONFIG_FLOAT, "1", .min = 0, .max = 1e6,
     .doc = "Weight of the self-similarity (content)."},
    {"loss.w_velocity", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 1e6,
     .doc = "Weight of the mean squared velocity."},
    {"loss.velocity_style", PL_CONFIG_CHOICE, "target", .choices = "target|ode",
     .doc = "Style of the velocity term where the label is dropped: the wanted style (target, as "
            "the authors: the decoder is evaluated once more), or the average style (ode: the "
            "first Euler step's evaluation serves both)."},
    {"loss.style_by", PL_CONFIG_CHOICE, "batch", .choices = "batch|sample",
     .doc = "Compare the patches of a whole micro-batch (batch), which ignores each sample's own "
            "style, or of each sample."},
    {"loss.projections", PL_CONFIG_INT, "64", .min = 1, .max = 65536,
     .doc = "Random directions of the patch distance."},
    {"loss.samples", PL_CONFIG_INT, "8192", .min = 1, .max = 1e9,
     .doc = "Largest number of patches to compare."},
    {"loss.positions", PL_CONFIG_INT, "256", .min = 1, .max = 1e9,
     .doc = "Positions of the self-similarity."},
    {"loss.scales", PL_CONFIG_INTS, "[3]", .min = 1, .max = 64, .doc = "Patch sizes, at most 4."},
    {"loss.scale_weights", PL_CONFIG_FLOATS, "[1]", .min = 0, .max = 1e6,
     .doc = "Weights of the patch sizes."},
    {"loss.style_weights", PL_CONFIG_FLOATS, "[]", .min = 0, .max = 1e6,
     .doc = "Weight of each style in the patch distance; a batch uses the mean over its wanted "
            "styles. []: all 1."},
    {"loss.label_drop", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 1,
     .doc = "Probability that a micro-batch is trained with the average style."},
    {"data.latents", PL_CONFIG_TEXT, "null",
     .doc = "Folder with one folder of .pt latents per style; null: generated latents, or "
            "data.path."},
    {"data.style_dirs", PL_CONFIG_TEXTS, "[style0, style1]",
     .doc = "Names of these folders, in the order of the styles."},
    {"data.samples", PL_CONFIG_INT, "7359", .min = 1, .max = 1e12,
     .doc = "Number of generated training latents."},
    {"data.eval_samples", PL_CONFIG_INT, "256", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation latents."},
    {0},
};

static void read_average(const pl_config *c, lgt_config *k)
{
    const char *text = pl_config_text(c, "model.average");
    k->average = strcmp(text, "learned") == 0   ? LGT_AVERAGE_LEARNED
                 : strcmp(text, "initial") == 0 ? LGT_AVERAGE_INITIAL
                                                : LGT_AVERAGE_CURRENT;
    if (pl_config_bool(c, "seed_compat") && k->average == LGT_AVERAGE_CURRENT)
        k->average = LGT_AVERAGE_INITIAL;
}

static bool read_style_weights(const pl_config *c, pl_nn *m, lgt_config *k)
{
    const double *w = pl_config_floats(c, "loss.style_weights", &k->n_style_weights);
    if (k->n_style_weights && (k->n_style_weights != k->styles || k->styles > LGT_MAX_WEIGHTS)) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "loss.style_weights needs a number for each of %lld styles (at most %d); got %d",
                   (long long)k->styles, LGT_MAX_WEIGHTS, k->n_style_weights);
        return false;
    }
    for (int i = 0; i < k->n_style_weights; i++) k->style_weight[i] = w[i];
    return true;
}

lgt_shape lgt_shape_of(const pl_config *c)
{
    int64_t rows = pl_config_int(c, "latent"), columns = pl_config_int(c, "latent_columns");
    return (lgt_shape){rows, columns ? columns : rows, pl_config_int(c, "model.channels")};
}

int64_t lgt_numbers(lgt_shape s)
{
    return s.rows * s.columns * s.channels;
}

pl_type lgt_batch_type(const lgt_config *c, pl_dtype dtype)
{
    return PL_TYPE(dtype, c->batch, c->latent.rows, c->latent.columns, c->latent.channels);
}

pl_status lgt_config_of(pl_builder *b, pl_nn *m, lgt_config *k)
{
    const pl_config *c = pl_builder_config(b);
    int scales, weights;
    const int64_t *scale = pl_config_ints(c, "loss.scales", &scales);
    const double *weight = pl_config_floats(c, "loss.scale_weights", &weights);
    *k = (lgt_config){.batch = pl_builder_batch(b),
                      .latent = lgt_shape_of(c),
                      .base = pl_config_int(c, "model.base"),
                      .cond = pl_config_int(c, "model.cond"),
                      .time = pl_config_int(c, "model.time"),
                      .styles = pl_config_int(c, "model.styles"),
                      .samples = pl_config_int(c, "loss.samples"),
                      .positions = pl_config_int(c, "loss.positions"),
                      .projections = pl_config_int(c, "loss.projections"),
                      .encoder_blocks = (int)pl_config_int(c, "model.encoder_blocks"),
                      .decoder_blocks = (int)pl_config_int(c, "model.decoder_blocks"),
                      .ode_steps = (int)pl_config_int(c, "ode.steps"),
                      .adagn = strcmp(pl_config_text(c, "model.block"), "adagn") == 0,
                      .plus = pl_config_bool(c, "model.plus"),
                      .shrinking = pl_config_bool(c, "seed_compat") ||
                                   strcmp(pl_config_text(c, "ode.dt"), "shrinking") == 0,
                      .kept = strcmp(pl_config_text(c, "loss.velocity_style"), "target") == 0 &&
                              pl_config_float(c, "loss.label_drop") > 0 &&
                              pl_config_float(c, "loss.w_velocity") > 0,
                      .by_sample = strcmp(pl_config_text(c, "loss.style_by"), "sample") == 0,
                      .n_scales = scales,
                      .w_style = pl_config_float(c, "loss.w_style"),
                      .w_content = pl_config_float(c, "loss.w_content"),
                      .w_velocity = pl_config_float(c, "loss.w_velocity")};
    if (scales < 1 || scales > LGT_MAX_SCALES || weights != scales) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "loss.scales needs 1 to %d sizes and loss.scale_weights as many weights; got %d "
                   "and %d",
                   LGT_MAX_SCALES, scales, weights);
        return PL_ERR_CONFIG;
    }
    if (!pl_config_is_null(c, "data.latents") && !pl_config_is_null(c, "data.path")) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "data.latents (%s) and data.path (%s) are both set: set only one of them",
                   pl_config_text(c, "data.latents"), pl_config_text(c, "data.path"));
        return PL_ERR_CONFIG;
    }
    if (k->base % 32 || k->latent.rows % 4 || k->latent.columns % 4) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.base needs a multiple of 32 (groups of the normalisation), latent and "
                   "latent_columns one of 4; got %lld, %lld and %lld",
                   (long long)k->base, (long long)k->latent.rows, (long long)k->latent.columns);
        return PL_ERR_CONFIG;
    }
    if ((k->time ? k->time : k->cond) % 2) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.time is %lld (0: model.cond, %lld) and must be even: half of the time "
                   "vector are cosines, half sines",
                   (long long)k->time, (long long)k->cond);
        return PL_ERR_CONFIG;
    }
    read_average(c, k);
    if (!read_style_weights(c, m, k)) return PL_ERR_CONFIG;
    for (int i = 0; i < scales; i++) k->scale[i] = scale[i], k->scale_weight[i] = weight[i];
    return PL_OK;
}

static int64_t positions_of(const lgt_config *k)
{
    int64_t all = k->latent.rows * k->latent.columns;
    return k->positions < all ? k->positions : all;
}

/* Times in [epsilon, 1), where epsilon may still be rising. */
static pl_val draw_times(pl_builder *b, pl_nn *m, const lgt_config *k, pl_val step)
{
    const pl_config *c = pl_builder_config(b);
    pl_graph *g = m->g;
    double epsilon = pl_config_float(c, "ode.epsilon");
    int64_t warmup = pl_config_int(c, "ode.epsilon_warmup");
    int64_t epoch = pl_config_int(c, "ode.epsilon_epoch");
    pl_val u = pl_draw_uniform(b, m, "u", PL_TYPE(m->dtype, k->batch));
    if (warmup == 0) return pl_shift(g, pl_scale(g, u, 1 - epsilon), epsilon);
    if (epoch > 1) { /* whole epochs only */
        pl_val length = pl_full_like(g, step, (double)epoch);
        step = pl_mul(g, pl_div(g, step, length), length);
    }
    pl_val share = pl_scale(g, pl_cast(g, step, m->dtype), 1.0 / (double)warmup);
    pl_val e = pl_scale(g, pl_clamp(g, share, 0, 1), epsilon);
    return pl_add(g, pl_mul(g, u, pl_shift(g, pl_neg(g, e), 1)), e);
}

/* One scale draws under the PyTorch program's names, several scales under numbered names. */
static void draw_patches(pl_builder *b, pl_nn *m, const lgt_config *k, lgt_batch *out)
{
    for (int i = 0; i < k->n_scales; i++) {
        int64_t p = lgt_patch_size(k, i), of, n = lgt_patches(k, i, &of);
        const char *rows = i ? pl_nn_name(m, "rows%d", i) : "rows";
        const char *directions = i ? pl_nn_name(m, "directions%d", i) : "directions";
        out->rows[i] = pl_draw_choice(b, m, rows, of, n);
        out->directions[i] = pl_draw_normal(
            b, m, directions, PL_TYPE(m->dtype, k->latent.channels * p * p, k->projections));
    }
}

/* One draw for each evaluation of the network. */
static pl_val draw_style_noise(pl_builder *b, pl_nn *m, const lgt_config *k)
{
    double size = pl_config_float(pl_builder_config(b), "model.style_noise");
    if (size <= 0) return PL_NO_VAL;
    pl_type type = PL_TYPE(m->dtype, k->ode_steps + 1, k->batch, k->cond);
    return pl_scale(m->g, pl_draw_normal(b, m, "style_noise", type), size);
}

static pl_status build_train(pl_builder *b)
{
    lgt_config k;
    pl_nn *m = pl_builder_train(b);
    if (lgt_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_graph *g = m->g;
    pl_type latent = lgt_batch_type(&k, m->dtype);
    pl_val step = pl_builder_step(b, m, NULL);
    lgt_batch in = {.src = pl_input(g, "src", latent),
                    .style_ref = pl_input(g, "style_ref", latent),
                    .style = pl_input(g, "style", PL_TYPE(PL_I64, k.batch)),
                    .x0 = pl_draw_normal(b, m, "x0", latent),
                    .t = draw_times(b, m, &k, step),
                    .first = pl_eq(g, step, pl_full_like(g, step, 0)),
                    .noise = draw_style_noise(b, m, &k)};
    in.uncond = pl_draw_chance(b, m, "uncond", PL_TYPE(PL_BOOL, 1),
                               pl_config_float(pl_builder_config(b), "loss.label_drop"));
    in.positions =
        pl_draw_choice(b, m, "positions", k.latent.rows * k.latent.columns, positions_of(&k));
    draw_patches(b, m, &k, &in);
    lgt_terms l = lgt_loss(m, &k, &in);
    pl_output(g, "swd", l.swd);
    pl_output(g, "ssm", l.ssm);
    pl_output(g, "velocity", l.velocity);
    pl_builder_minimise(b, l.loss);
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    pl_status rc = build_train(b);
    if (rc == PL_OK) rc = lgt_build_eval(b);
    return rc == PL_OK ? lgt_build_sample(b) : rc;
}

/* ---- the PyTorch peer ------------------------------------------------------------------- */
static const char *const workloads[] = {"lgt", "lgt-shrinking", "lgt-plus", NULL};
static const pl_peer_key peer_keys[] = {
    {"batch", "batch"},
    {"latent", "latent"},
    {"base", "model.base"},
    {"cond", "model.cond"},
    {"styles", "model.styles"},
    {"encoder_blocks", "model.encoder_blocks"},
    {"decoder_blocks", "model.decoder_blocks"},
    {"block", "model.block"},
    {"plus", "model.plus"},
    {"ode_steps", "ode.steps"},
    {"dt", "ode.dt"},
    {"epsilon", "ode.epsilon"},
    {"projections", "loss.projections"},
    {"samples", "loss.samples"},
    {"positions", "loss.positions"},
    {"scales", "loss.scales"},
    {"scale_weights", "loss.scale_weights"},
    {"style_weights", "loss.style_weights"},
    {"w_style", "loss.w_style"},
    {"w_content", "loss.w_content"},
    {"w_velocity", "loss.w_velocity"},
    {"velocity_style", "loss.velocity_style"},
    {"label_drop", "loss.label_drop"},
    {"clip", "clip.norm"},
    {"lr", "optim.lr"},
    {"weight_decay", "optim.weight_decay"},
    {NULL, NULL},
};
static const pl_peer peer = {.workloads = workloads,
                             .preset = "peer",
                             .keys = peer_keys,
                             .channels_first = "src,style_ref,x0"};

static const char *const shown[] = {"swd", "ssm", "velocity", NULL};

const pl_recipe pl_recipe_lgt;
const pl_recipe pl_recipe_lgt = {
    .abi = PL_RECIPE_ABI,
    .name = "lgt",
    .about = "latent style transfer, trained through a differentiated Euler integration",
    .schema = schema,
    .presets = lgt_presets,
    .build = build,
    .data_open = lgt_data_open,
    .data_close = lgt_data_close,
    .data_size = lgt_data_size,
    .data_read = lgt_data_read,
    .data_bytes = lgt_data_bytes,
    .data_write = lgt_data_write,
    .peer = &peer,
    .metric = "swd",
    .weights = lgt_weights,
    .predict = &lgt_predict,
    .start = &lgt_start,
    .exports = lgt_exports,
    .shown = shown,
    .foreign = lgt_foreign,
};
