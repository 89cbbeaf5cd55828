/* stablesr.c - edge-guided super-resolution, fine-tuned through a frozen diffusion U-Net.
 *
 * part: full trains the SPADE layers, the structure encoder, the edge processor, its fusion and the
 * U-Net's new input convolution; the rest of the U-Net is frozen and differentiated through. The
 * other parts train an edge processor alone: the authors' original one and its smaller replacement.
 *
 * The data are latents, or images (vae.encode) that the frozen autoencoder encodes: in every step,
 * or once (`plimsoll cache`).
 *
 * `seed_compat` restores the original's mistakes: it starts from the degraded latent instead of the
 * good one, drawn again from the moments for the structure encoder; it freezes everything whose
 * name has no "spade" outside of the structure encoder, the edge processor included, and with it
 * the zeros that the new input convolution starts with for the first four of its channels; and
 * edges do not go through the pool of pairs with their picture (pictures.c).
 */
#include "stablesr.h"
#include "recipes/lpips.h"
#include "recipes/scores.h"

#include <string.h>

static const pl_config_entry schema[] = {
    {"seed_compat", PL_CONFIG_BOOL, "false",
     .doc = "Reproduce the original program, including its mistakes (see the recipe's README)."},
    {"part", PL_CONFIG_CHOICE, "full", .choices = "full|edge-before|edge-after|vae",
     .doc = "What to train: the whole system, one edge processor (the original or its "
            "replacement), or the autoencoder."},
    {"x_start", PL_CONFIG_CHOICE, "gt", .choices = "gt|lq|lq-shared",
     .doc = "Latent that noise is added to: of the image (gt), or of its degraded form (lq), as "
            "the authors: another sample of its posterior than the structure encoder sees. "
            "lq-shared: the same sample."},
    {"image", PL_CONFIG_INT, "512", .min = 32, .max = 16384, .cache = PL_CACHE_VALUE,
     .doc = "Rows and columns of an edge map, in pixels."},
    {"latent", PL_CONFIG_INT, "64", .min = 1, .max = 4096, .cache = PL_CACHE_VALUE,
     .doc = "Rows and columns of a latent."},
    {"edge.processor", PL_CONFIG_CHOICE, "after", .choices = "after|before",
     .doc = "Edge processor of the whole system: the authors' replacement, or the original one, "
            "whose maps are enlarged to the latent's size."},
    {"edge.before", PL_CONFIG_INTS, "[1024, 1024, 1024, 1024, 1024]", .min = 1, .max = 65536,
     .doc = "Original edge processor: channels at full resolution."},
    {"edge.before_down", PL_CONFIG_INTS, "[512, 256, 64, 16, 4]", .min = 1, .max = 65536,
     .doc = "Original edge processor: channels on the way down."},
    {"edge.stem", PL_CONFIG_INT, "64", .min = 1, .max = 65536,
     .doc = "Edge processor: channels of the first layer."},
    {"edge.after", PL_CONFIG_INTS, "[256, 256, 256]", .min = 1, .max = 65536,
     .doc = "Edge processor: channels at half resolution."},
    {"edge.after_down", PL_CONFIG_INTS, "[128, 64, 16, 4]", .min = 1, .max = 65536,
     .doc = "Edge processor: channels on the way down."},
    {"model.width", PL_CONFIG_INT, "320", .min = 2, .max = 65536,
     .doc = "U-Net: channels of the finest level."},
    {"model.mult", PL_CONFIG_INTS, "[1, 2, 4, 4]", .min = 1, .max = 64,
     .doc = "U-Net: channels of each level as multiples of model.width, at most 6 levels."},
    {"model.blocks", PL_CONFIG_INT, "2", .min = 1, .max = SR_MAX_BLOCKS,
     .doc = "U-Net: residual blocks per level on the way down; one more on the way up."},
    {"model.attn_levels", PL_CONFIG_INT, "3", .min = 0, .max = SR_MAX_LEVELS,
     .doc = "U-Net: the finest levels that have attention; the middle always has it."},
    {"model.attn_from", PL_CONFIG_INT, "0", .min = 0, .max = SR_MAX_LEVELS,
     .doc = "U-Net: how many of these levels, from the finest, have no attention after all."},
    {"model.groups", PL_CONFIG_INT, "32", .min = 1, .max = 65536,
     .doc = "Groups of every group norm of the U-Net and the structure encoder."},
    {"model.head_dim", PL_CONFIG_INT, "64", .min = 1, .max = 65536,
     .doc = "U-Net: channels per attention head."},
    {"model.depth", PL_CONFIG_INT, "1", .min = 1, .max = SR_MAX_DEPTH,
     .doc = "U-Net: transformer blocks of each attention."},
    {"model.context", PL_CONFIG_INTS, "[77, 1024]", .min = 1, .max = 65536,
     .doc = "U-Net: text tokens and their width."},
    {"model.spade_hidden", PL_CONFIG_INT, "128", .min = 1, .max = 65536,
     .doc = "U-Net: hidden width of SPADE."},
    {"struct.width", PL_CONFIG_INT, "256", .min = 2, .max = 65536,
     .doc = "Structure encoder: channels of the finest level."},
    {"struct.mult", PL_CONFIG_INTS, "[1, 1, 2, 2]", .min = 1, .max = 64,
     .doc = "Structure encoder: channels of each level as multiples; as many levels as the U-Net."},
    {"struct.blocks", PL_CONFIG_INT, "2", .min = 1, .max = SR_MAX_BLOCKS,
     .doc = "Structure encoder: residual blocks per level."},
    {"struct.attn_levels", PL_CONFIG_INT, "-1", .min = -1, .max = SR_MAX_LEVELS,
     .doc = "Structure encoder: the finest levels that have attention; -1: as the U-Net."},
    {"struct.attn_from", PL_CONFIG_INT, "-1", .min = -1, .max = SR_MAX_LEVELS,
     .doc = "Structure encoder: how many of these levels, from the finest, have none; -1: as the "
            "U-Net."},
    {"struct.out", PL_CONFIG_INT, "256", .min = 1, .max = 65536,
     .doc = "Structure encoder: channels of its maps."},
    {"struct.heads", PL_CONFIG_INT, "4", .min = 1, .max = 1024,
     .doc = "Structure encoder: attention heads."},
    {"frozen", PL_CONFIG_TEXT, "'" SR_FROZEN "'",
     .doc = "Parameters that are not trained, as a pattern; an empty pattern freezes nothing."},
    {"vae.encode", PL_CONFIG_BOOL, "false",
     .doc = "Read images and encode them with the frozen autoencoder; false: read latents."},
    {"vae.weights", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_WEIGHTS,
     .doc = "Autoencoder weights (safetensors), with the names of diffusers or of the published "
            "checkpoints."},
    VAE_KEYS,
    {"vae.fusion", PL_CONFIG_CHOICE, "auto", .choices = "auto|true|false",
     .doc = "Autoencoder: its decoder fuses features of the degraded picture (StableSR's second "
            "stage); auto: where the file of vae.weights has fusion layers."},
    {"vae.dec_w", PL_CONFIG_FLOAT, "0.5", .min = 0, .max = 10,
     .doc = "Weight of the fused features: 0 gives the best picture that the sampler finds, 1 the "
            "picture nearest to the input."},
    {"vae.fusion_blocks", PL_CONFIG_INT, "2", .min = 1, .max = 64,
     .doc = "Autoencoder: dense blocks of a fusion layer."},
    {"unet_from", PL_CONFIG_TEXT, "null",
     .doc = "U-Net weights (safetensors): a file or a folder, with the names of diffusers or of "
            "the published checkpoints."},
    {"context_from", PL_CONFIG_TEXT, "null",
     .doc = "vae.encode: safetensors with \"context\", the text encoder's output for the empty "
            "prompt."},
    {"canny", PL_CONFIG_INTS, "[100, 200]", .min = 0, .max = 2040, .cache = PL_CACHE_VALUE,
     .doc = "Lower and upper threshold of the Canny edge detector."},
    {"restore.eval", PL_CONFIG_BOOL, "false",
     .doc = "Evaluations restore their pictures, too, and report PSNR and SSIM of the restored and "
            "of the degraded ones."},
    {"restore.steps", PL_CONFIG_INT, "4", .min = 1, .max = 100,
     .doc = "DDIM steps of restore.eval and of the pictures of sample.every; the programs grow "
            "with it."},
    {"lpips.weights", PL_CONFIG_TEXT, "null",
     .doc =
         "restore.eval: weights of LPIPS, as fluxflow reads them; evaluations then report LPIPS, "
         "too."},
    {"lpips.widths", PL_CONFIG_INTS, "[64, 128, 256, 512, 512]", .min = 1, .max = 65536,
     .doc = "LPIPS: channels of VGG's five stages."},
    {"predict.steps", PL_CONFIG_INT, "200", .min = 1, .max = 1000,
     .doc = "`predict`: sampling steps, evenly spread over the 1000 times of training."},
    {"predict.start", PL_CONFIG_INT, "999", .min = 1, .max = 999,
     .doc = "Time at which restoring starts, also in evaluations and pictures of a run; less noise "
            "is added to the degraded latent at earlier times, and more of it is kept."},
    {"predict.sampler", PL_CONFIG_CHOICE, "ddpm", .choices = "ddpm|ddim",
     .doc = "`predict`: with fresh noise in every step, as the authors (ddpm), or without (ddim)."},
    {"predict.upscale", PL_CONFIG_FLOAT, "4", .min = 1, .max = 64,
     .doc = "`predict`: sides of a result as multiples of the picture's."},
    {"predict.overlap", PL_CONFIG_INT, "-1", .min = -1, .max = 4096,
     .doc = "`predict`: positions of a latent by which tiles overlap; -1: half a tile."},
    {"predict.edges", PL_CONFIG_BOOL, "true",
     .doc = "`predict`: guide by the edges of the enlarged picture; false: a map without edges."},
    {"predict.edges_from", PL_CONFIG_TEXT, "null",
     .doc = "`predict`: a folder with a picture of the same name for each picture, whose edges "
            "guide instead, e.g. the true pictures, as in training; null: the enlarged pictures."},
    {"predict.posterior", PL_CONFIG_CHOICE, "mean", .choices = "mean|sample",
     .doc = "`predict`: latent of a picture: the mean of the encoder's distribution, or a sample "
            "from it, as the authors do."},
    {"predict.colour", PL_CONFIG_CHOICE, "adain", .choices = "none|adain|wavelet",
     .doc = "`predict`: colours of the result: as sampled (none), with the means and deviations of "
            "the picture (adain), or with its coarse part (wavelet)."},
    {"predict.pixels", PL_CONFIG_INT, "4194304", .min = 4096, .max = 67108864,
     .doc = "`predict`: largest enlarged picture in pixels, for which memory is planned."},
    {"degrade.sigma", PL_CONFIG_FLOATS, "[0.2, 1.5]", .min = 0.01, .max = 100,
     .cache = PL_CACHE_VALUE,
     .doc = "Degradation, first pass: range of the blur's standard deviation, in pixels."},
    {"degrade.sigma2", PL_CONFIG_FLOATS, "[0.2, 1.0]", .min = 0.01, .max = 100,
     .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: range of the blur's standard deviation, in pixels."},
    {"degrade.blur2", PL_CONFIG_FLOAT, "0.5", .min = 0, .max = 1, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: probability of a blur."},
    {"degrade.scale", PL_CONFIG_FLOATS, "[0.3, 1.5]", .min = 0.1, .max = 4, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, first pass: range of the resize factor."},
    {"degrade.scale2", PL_CONFIG_FLOATS, "[0.6, 1.2]", .min = 0.1, .max = 4,
     .cache = PL_CACHE_VALUE, .doc = "Degradation, second pass: range of the resize factor."},
    {"degrade.noise", PL_CONFIG_FLOATS, "[1, 15]", .min = 0, .max = 255, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, first pass: range of the Gaussian noise's standard deviation, of 255."},
    {"degrade.noise2", PL_CONFIG_FLOATS, "[1, 12]", .min = 0, .max = 255, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: range of the Gaussian noise's standard deviation, of 255."},
    {"degrade.poisson", PL_CONFIG_FLOATS, "[0.05, 2]", .min = 0, .max = 100,
     .cache = PL_CACHE_VALUE,
     .doc = "Degradation, first pass: range of the Poisson noise's strength."},
    {"degrade.poisson2", PL_CONFIG_FLOATS, "[0.05, 1]", .min = 0, .max = 100,
     .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: range of the Poisson noise's strength."},
    {"degrade.jpeg", PL_CONFIG_FLOATS, "[60, 95]", .min = 1, .max = 100, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, first pass: range of the JPEG quality."},
    {"degrade.jpeg2", PL_CONFIG_FLOATS, "[60, 100]", .min = 1, .max = 100, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: range of the JPEG quality."},
    {"degrade.last_sinc", PL_CONFIG_FLOAT, "0.8", .min = 0, .max = 1, .cache = PL_CACHE_VALUE,
     .doc = "Degradation: probability of a sinc low-pass filter at the end."},
    {"degrade.untouched", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 1, .cache = PL_CACHE_VALUE,
     .doc = "Degradation: probability that an image is not degraded."},
    {"degrade.factor", PL_CONFIG_INT, "4", .min = 1, .max = 8, .cache = PL_CACHE_VALUE,
     .doc = "Degradation, second pass: works at the image's size divided by this."},
    {"degrade.sharpen", PL_CONFIG_BOOL, "true", .cache = PL_CACHE_VALUE,
     .doc = "Sharpen images before they are degraded."},
    {"degrade.codec", PL_CONFIG_CHOICE, "model", .choices = "model|jpeg", .cache = PL_CACHE_VALUE,
     .doc = "JPEG of the degradation: the authors' model of it (a real-valued quality, nothing "
            "rounded to bytes), or a real JPEG file in memory (jpeg)."},
    {"degrade.bytes", PL_CONFIG_BOOL, "false", .cache = PL_CACHE_VALUE,
     .doc = "Round the degraded image to 8 bits, as Real-ESRGAN does; the authors do not."},
    {"data.samples", PL_CONFIG_INT, "1500", .min = 1, .max = 1e12,
     .doc = "Number of generated training pairs."},
    {"data.eval_samples", PL_CONFIG_INT, "16", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation pairs."},
    {0},
};

/* The n numbers of a key; fails when it has another count. */
static void numbers(pl_builder *b, pl_nn *m, const char *key, int n, int64_t *out)
{
    int got;
    const int64_t *x = pl_config_ints(pl_builder_config(b), key, &got);
    if (got != n)
        pl_nn_fail(m, PL_ERR_CONFIG, "%s needs %d numbers, got %d", key, n, got);
    else
        memcpy(out, x, sizeof *out * (size_t)n);
}

/* Ranges of the degradation: two numbers each, the smaller first. */
static void check_ranges(pl_builder *b, pl_nn *m)
{
    static const char *const keys[] = {
        "degrade.sigma",  "degrade.sigma2",  "degrade.scale",    "degrade.scale2", "degrade.noise",
        "degrade.noise2", "degrade.poisson", "degrade.poisson2", "degrade.jpeg",   "degrade.jpeg2"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int n;
        const double *x = pl_config_floats(pl_builder_config(b), keys[i], &n);
        if (n != 2 || x[0] > x[1])
            pl_nn_fail(m, PL_ERR_CONFIG, "%s needs two numbers, the smaller first", keys[i]);
    }
}

/* Fails unless `part` divides `whole` of the key. */
static void divides(pl_nn *m, const char *key, int64_t whole, int64_t part, const char *why)
{
    if (part < 1 || whole % part)
        pl_nn_fail(m, PL_ERR_CONFIG, "%s (%lld) must be a multiple of %lld: %s", key,
                   (long long)whole, (long long)part, why);
}

/* Reports sizes that contradict each other, by their keys. */
static void check_sizes(pl_nn *m, const sr_config *k, bool full, bool encodes)
{
    int64_t factor = (int64_t)1 << (k->vae.levels - 1);
    if (k->edge_before)
        divides(m, "image", k->image, 32, "the original edge processor halves it five times");
    if (encodes && k->image != factor * k->latent)
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "with vae.encode an image has %lld times a latent's side: image is %lld, latent %lld; "
            "set latent=%lld or image=%lld",
            (long long)factor, (long long)k->image, (long long)k->latent,
            (long long)(k->image / factor), (long long)(factor * k->latent));
    if (!full) return;
    divides(m, "latent", k->latent, (int64_t)1 << (k->levels - 1),
            "each level of model.mult but the first halves it");
    divides(m, "model.width", k->width, k->groups, "model.groups share them");
    divides(m, "struct.width", k->struct_width, k->groups, "model.groups share them");
    divides(m, "struct.out", k->struct_out, k->groups, "model.groups share them");
    for (int i = 0; i < k->levels; i++) {
        if (sr_attends(k, i) || i == k->levels - 1)
            divides(m, "model.width * model.mult", k->width * k->mult[i], k->head_dim,
                    "model.head_dim channels are a head");
        if (sr_struct_attends(k, i) || i == k->levels - 1)
            divides(m, "struct.width * struct.mult", k->struct_width * k->struct_mult[i],
                    k->struct_heads, "struct.heads share them");
    }
}

/* Generated samples are pictures with vae.encode, otherwise latents, edge maps and targets. */
static void check_part(pl_nn *m, const pl_config *c)
{
    const char *part = pl_config_text(c, "part");
    bool encodes = pl_config_bool(c, "vae.encode"), vae = strcmp(part, "vae") == 0;
    if (!pl_config_is_null(c, "data.path") || strcmp(part, "full") == 0 || vae == encodes) return;
    pl_nn_fail(m, PL_ERR_CONFIG,
               "part=%s trains on %s: set vae.encode=%s, or data.path to arrays of its inputs",
               part, vae ? "pictures" : "edge maps and targets", vae ? "true" : "false");
}

pl_status sr_config_of(pl_builder *b, pl_nn *m, sr_config *k)
{
    const pl_config *c = pl_builder_config(b);
    const char *part = pl_config_text(c, "part");
    bool full = strcmp(part, "full") == 0;
    const char *processor = full ? pl_config_text(c, "edge.processor") : part;
    *k = (sr_config){.edge_before = strstr(processor, "before") != NULL,
                     .edge_enlarged = full,
                     .half_blind = pl_config_bool(c, "seed_compat"),
                     .batch = pl_builder_batch(b),
                     .start = pl_config_int(c, "predict.start"),
                     .image = pl_config_int(c, "image"),
                     .latent = pl_config_int(c, "latent"),
                     .stem = pl_config_int(c, "edge.stem"),
                     .width = pl_config_int(c, "model.width"),
                     .blocks = (int)pl_config_int(c, "model.blocks"),
                     .depth = (int)pl_config_int(c, "model.depth"),
                     .attn_from = (int)pl_config_int(c, "model.attn_from"),
                     .attn_levels = (int)pl_config_int(c, "model.attn_levels"),
                     .groups = (int)pl_config_int(c, "model.groups"),
                     .struct_blocks = (int)pl_config_int(c, "struct.blocks"),
                     .struct_attn_from = (int)pl_config_int(c, "struct.attn_from"),
                     .struct_attn_levels = (int)pl_config_int(c, "struct.attn_levels"),
                     .head_dim = (int)pl_config_int(c, "model.head_dim"),
                     .spade_hidden = pl_config_int(c, "model.spade_hidden"),
                     .struct_width = pl_config_int(c, "struct.width"),
                     .struct_out = pl_config_int(c, "struct.out"),
                     .struct_heads = (int)pl_config_int(c, "struct.heads"),
                     .vae = {.fusion_blocks = (int)pl_config_int(c, "vae.fusion_blocks")},
                     .fusion = sr_fusion_of(c)};
    if (k->struct_attn_from < 0) k->struct_attn_from = k->attn_from;
    if (k->struct_attn_levels < 0) k->struct_attn_levels = k->attn_levels;
    pl_config_ints(c, "model.mult", &k->levels);
    pl_config_ints(c, "struct.mult", &k->struct_levels);
    if (k->levels < 1 || k->levels > SR_MAX_LEVELS || k->struct_levels != k->levels) {
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "model.mult needs 1 to %d numbers and struct.mult as many; got %d and %d",
                   SR_MAX_LEVELS, k->levels, k->struct_levels);
        return PL_ERR_CONFIG;
    }
    if (!vae_sizes_of(c, m, &k->vae)) return PL_ERR_CONFIG;
    numbers(b, m, "edge.before", 5, k->before);
    numbers(b, m, "edge.before_down", 5, k->before_down);
    numbers(b, m, "edge.after", 3, k->after);
    numbers(b, m, "edge.after_down", 4, k->after_down);
    numbers(b, m, "model.mult", k->levels, k->mult);
    numbers(b, m, "struct.mult", k->levels, k->struct_mult);
    numbers(b, m, "model.context", 2, k->context);
    int64_t canny[2] = {0, 0};
    numbers(b, m, "canny", 2, canny);
    if (canny[0] > canny[1])
        pl_nn_fail(m, PL_ERR_CONFIG, "canny: the lower threshold comes first, got %lld and %lld",
                   (long long)canny[0], (long long)canny[1]);
    check_part(m, c);
    check_ranges(b, m);
    check_sizes(m, k, full, pl_config_bool(c, "vae.encode"));
    return PL_OK;
}

/* ---- an edge processor alone ------------------------------------------------------------ */
static pl_val edge_loss(pl_nn *m, const sr_config *k)
{
    pl_graph *g = m->g;
    int64_t side = k->edge_before ? k->image / 32 : k->latent;
    pl_val edge = pl_input(g, "edge", PL_TYPE(m->dtype, k->batch, k->image, k->image, 3));
    pl_val target = pl_input(g, "target", PL_TYPE(m->dtype, k->batch, side, side, 4));
    return pl_loss_mse(g, sr_edge(m, k, edge), target);
}

/* ---- the autoencoder ------------------------------------------------------------------- */
static pl_type picture_of(const pl_nn *m, const sr_config *k)
{
    return PL_TYPE(m->dtype, k->batch, k->image, k->image, 3);
}

static pl_type latent_of(const pl_nn *m, const sr_config *k)
{
    return PL_TYPE(m->dtype, k->batch, k->latent, k->latent, 4);
}

/* Reconstruction, plus a small divergence from a normal distribution. Evaluations decode the mean
 * and score the picture. */
static pl_val vae_loss(pl_nn *m, const sr_config *k, pl_val noise)
{
    pl_graph *g = m->g;
    pl_val gt = pl_input(g, "gt", picture_of(m, k)), moments = vae_moments(m, &k->vae, gt), part[2];
    pl_split(g, moments, 3, 2, part);
    pl_val spread = pl_sub(g, pl_shift(g, pl_exp(g, pl_clamp(g, part[1], -30, 20)), -1), part[1]);
    pl_val kl = pl_mean(g, pl_add(g, pl_square(g, part[0]), spread), PL_AXES_ALL, false);
    pl_val back = vae_decode(m, &k->vae, vae_sample(m, moments, noise));
    if (!m->training) pl_output(g, "psnr_db", score_psnr(m, back, gt));
    return pl_add(g, pl_loss_mse(g, back, gt), pl_scale(g, kl, 0.5e-6));
}

/* Moments of pictures, frozen. */
static pl_val encode(pl_nn *m, const sr_config *k, pl_val image)
{
    bool frozen = m->frozen;
    m->frozen = true;
    pl_val moments = vae_moments(m, &k->vae, image);
    m->frozen = frozen;
    return moments;
}

/* The program whose outputs `plimsoll cache` stores. */
static pl_status build_encoder(pl_builder *b, pl_nn *m)
{
    sr_config k;
    if (sr_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_graph *g = m->g;
    if (!pl_config_bool(pl_builder_config(b), "vae.encode"))
        pl_nn_fail(m, PL_ERR_CONFIG, "only encoded pictures can be cached: set vae.encode=true");
    pl_output(g, "moments_gt", encode(m, &k, pl_input(g, "gt", picture_of(m, &k))));
    pl_output(g, "moments_lq", encode(m, &k, pl_input(g, "lq", picture_of(m, &k))));
    pl_output(g, "edge", pl_input(g, "edge", picture_of(m, &k)));
    pl_output(g, "eps", pl_input(g, "eps", latent_of(m, &k)));
    pl_output(g, "t", pl_input(g, "t", PL_TYPE(PL_I64, k.batch)));
    return PL_OK;
}

/* ---- the whole -------------------------------------------------------------------------- */
/* Draws of a step: in training the engine's; in evaluation eps and t are given, and latents are the
 * means. */
typedef struct draws {
    pl_val eps, t, noise[2];
} draws;

static draws draws_of(pl_builder *b, pl_nn *m, const sr_config *k)
{
    pl_type latent = latent_of(m, k), times = PL_TYPE(PL_I64, k->batch);
    pl_val none = pl_fill(m->g, latent, 0);
    if (!m->training)
        return (draws){pl_input(m->g, "eps", latent), pl_input(m->g, "t", times), {none, none}};
    pl_val eps = pl_draw_normal(b, m, "eps", latent), t = pl_draw_integers(b, m, "t", times, 1000);
    if (!pl_config_bool(pl_builder_config(b), "vae.encode")) return (draws){eps, t, {none, none}};
    pl_val first = pl_draw_normal(b, m, "noise_gt", latent);
    return (draws){eps, t, {first, pl_draw_normal(b, m, "noise_lq", latent)}};
}

/* Moments of a latent: given, or encoded here. */
static pl_val moments_of(pl_builder *b, pl_nn *m, const sr_config *k, bool lq, pl_val *picture)
{
    pl_type moments = PL_TYPE(m->dtype, k->batch, k->latent, k->latent, 8);
    if (pl_builder_cached(b)) return pl_input(m->g, lq ? "moments_lq" : "moments_gt", moments);
    *picture = pl_input(m->g, lq ? "lq" : "gt", picture_of(m, k));
    return encode(m, k, *picture);
}

/* The latents that noise is added to and that the structure encoder sees: given, or drawn from
 * moments. */
static void read_latents(pl_builder *b, pl_nn *m, const sr_config *k, const draws *d, sr_batch *in)
{
    const pl_config *c = pl_builder_config(b);
    const char *start = pl_config_bool(c, "seed_compat") ? "lq" : pl_config_text(c, "x_start");
    bool from_lq = strcmp(start, "gt") != 0, shared = strcmp(start, "lq-shared") == 0;
    if (!pl_config_bool(c, "vae.encode")) {
        in->lq = pl_input(m->g, "z_lq", latent_of(m, k));
        in->z = from_lq ? in->lq : pl_input(m->g, "z_gt", latent_of(m, k));
        return;
    }
    pl_val lq = moments_of(b, m, k, true, &in->bad);
    in->lq = vae_sample(m, lq, d->noise[1]);
    if (from_lq)
        in->z = shared ? in->lq : vae_sample(m, lq, d->noise[0]);
    else
        in->z = vae_sample(m, moments_of(b, m, k, false, &in->gt), d->noise[0]);
}

/* Text context: given, or one for all samples, because the prompt is always empty. */
static pl_val context(pl_builder *b, pl_nn *m, const sr_config *k)
{
    const int64_t tokens = k->context[0], width = k->context[1];
    if (!pl_config_bool(pl_builder_config(b), "vae.encode"))
        return pl_input(m->g, "context", PL_TYPE(m->dtype, k->batch, tokens, width));
    bool frozen = m->frozen;
    m->frozen = true;
    pl_val one = pl_nn_param(m, "context", PL_DIMS(tokens, width), pl_nn_normal(0, 1));
    m->frozen = frozen;
    return pl_broadcast(m->g, pl_unsqueeze(m->g, one, 0), PL_DIMS(k->batch, tokens, width));
}

static sr_batch read_batch(pl_builder *b, pl_nn *m, const sr_config *k)
{
    draws d = draws_of(b, m, k);
    sr_batch in = {.eps = d.eps, .t = d.t, .gt = PL_NO_VAL, .bad = PL_NO_VAL};
    read_latents(b, m, k, &d, &in);
    in.context = context(b, m, k);
    in.edge = pl_input(m->g, "edge", picture_of(m, k));
    return in;
}

static pl_val full_loss(pl_builder *b, pl_nn *m, const sr_config *k)
{
    sr_batch in = read_batch(b, m, k);
    return sr_loss(m, k, &in);
}

/* Whether pictures can be restored: the whole system, with its autoencoder, on pictures. */
static bool restores(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    return strcmp(pl_config_text(c, "part"), "full") == 0 && pl_config_bool(c, "vae.encode") &&
           !pl_builder_cached(b);
}

/* Evaluation with restore.eval: also scores of restored pictures. */
static void eval_restored(pl_builder *b, pl_nn *m, const sr_config *k)
{
    sr_batch in = read_batch(b, m, k);
    pl_output(m->g, "loss", sr_loss(m, k, &in));
    if (!pl_val_ok(in.gt)) in.gt = pl_input(m->g, "gt", picture_of(m, k));
    int steps = (int)pl_config_int(pl_builder_config(b), "restore.steps");
    pl_val made = sr_restored(m, k, &in, steps);
    pl_output(m->g, "psnr_db", score_psnr(m, made, in.gt));
    pl_output(m->g, "ssim", score_ssim(m, made, in.gt));
    pl_output(m->g, "lq_psnr_db", score_psnr(m, in.bad, in.gt));
    pl_output(m->g, "lq_ssim", score_ssim(m, in.bad, in.gt));
    if (pl_config_is_null(pl_builder_config(b), "lpips.weights")) return;
    lpips_sizes s = {.buffers = false};
    numbers(b, m, "lpips.widths", 5, s.widths);
    pl_output(m->g, "lpips", lpips_distance(m, &s, made, in.gt));
    pl_output(m->g, "lq_lpips", lpips_distance(m, &s, in.bad, in.gt));
}

/* The pictures of sample.every: given, degraded and restored. */
static void build_sample(pl_builder *b, pl_nn *m, const sr_config *k)
{
    pl_type latent = latent_of(m, k);
    sr_batch in = {.gt = pl_input(m->g, "gt", picture_of(m, k)),
                   .bad = pl_input(m->g, "lq", picture_of(m, k)),
                   .eps = pl_input(m->g, "eps", latent),
                   .edge = pl_input(m->g, "edge", picture_of(m, k)),
                   .context = context(b, m, k)};
    in.lq = vae_sample(m, encode(m, k, in.bad), pl_fill(m->g, latent, 0));
    int steps = (int)pl_config_int(pl_builder_config(b), "restore.steps");
    pl_builder_picture(b, "gt", in.gt, -1, 1);
    pl_builder_picture(b, "lq", in.bad, -1, 1);
    pl_builder_picture(b, "restored", sr_restored(m, k, &in, steps), -1, 1);
}

static pl_val loss_of(pl_builder *b, pl_nn *m, const sr_config *k)
{
    const char *part = pl_config_text(pl_builder_config(b), "part");
    if (strcmp(part, "full") == 0) return full_loss(b, m, k);
    if (strcmp(part, "vae") != 0) return edge_loss(m, k);
    return vae_loss(m, k,
                    m->training ? pl_draw_normal(b, m, "noise", latent_of(m, k))
                                : pl_fill(m->g, latent_of(m, k), 0));
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    bool full = strcmp(pl_config_text(c, "part"), "full") == 0;
    sr_config k;
    pl_nn *m = pl_builder_train(b);
    if (sr_config_of(b, m, &k) != PL_OK) return pl_nn_finish(m);
    pl_val loss = loss_of(b, m, &k);
    const char *frozen = pl_config_text(c, "frozen");
    if (full && *frozen && pl_nn_set_trainable(pl_builder_store(b), frozen, false) == 0)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "frozen=%s: no parameter has such a name; plimsoll inspect CONFIG lists them",
                   frozen);
    if (full && pl_config_bool(c, "seed_compat"))
        pl_nn_set_trainable(pl_builder_store(b), "edge.*,fusion.*,unet.inp.*", false);
    if (full && pl_nn_count(pl_builder_store(b), NULL, true) == 0)
        pl_nn_fail(m, PL_ERR_CONFIG, "frozen=%s leaves nothing to train", frozen);
    pl_builder_minimise(b, loss);

    m = pl_builder_eval(b);
    bool scored = pl_config_bool(c, "restore.eval");
    if (scored && !restores(b))
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "restore.eval restores pictures: part=full, vae.encode=true, no data.cache");
    if (scored && restores(b))
        eval_restored(b, m, &k);
    else
        pl_output(m->g, "loss", loss_of(b, m, &k));
    pl_nn *sample = restores(b) ? pl_builder_sample(b) : NULL;
    if (sample) build_sample(b, sample, &k);
    return PL_OK;
}

static const pl_encoder encoder = {.build = build_encoder};

static const char *const shown[] = {"grad_norm", NULL};

const pl_recipe pl_recipe_stablesr;
const pl_recipe pl_recipe_stablesr = {
    .abi = PL_RECIPE_ABI,
    .name = "stablesr",
    .about = "edge-guided super-resolution, fine-tuned through a frozen diffusion U-Net",
    .schema = schema,
    .presets = sr_presets,
    .build = build,
    .data_open = sr_data_open,
    .data_close = sr_data_close,
    .data_bytes = sr_data_bytes,
    .data_read = sr_data_read,
    .peer = &sr_peer,
    .images = &sr_feed,
    .encoder = &encoder,
    .weights = sr_weights,
    .start = &sr_start,
    .exports = sr_exports,
    .shown = shown,
    .predict = &sr_predict,
    .foreign = sr_foreign,
};
