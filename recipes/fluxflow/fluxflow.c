/* fluxflow.c - images compressed to tokens and back: a variational autoencoder trained with a
 * perceptual loss and a discriminator; and a flow that generates tokens from noise and a text.
 *
 * A step is one program or several:
 *
 *     disc      encode and decode without gradient, hinge loss of the discriminator     optim_d
 *     disc_r1   the same with the gradient penalty, every loss.r1_interval steps        optim_d
 *     train     encode, decode; reconstruction + LPIPS, KL, and a second decode of the
 *               tokens as they stand, judged by the discriminator (recon.on: false: one
 *               decode, for the discriminator, whose gradient reaches the compressor)   optim
 *     flow      encode without gradient, noise, velocity                                optim_flow
 *
 * vae.on, gan.on and flow.on select the programs. Without the autoencoder the flow is the training
 * program. Each side in `resolutions` adds another copy of the autoencoder's programs at that size,
 * before the others.
 *
 * Corrected, unless seed_compat is set: instance noise reaches the discriminator, adaptive weights
 * use the magnitude of a term and not its sign, and four defects of the flow processor (flow.c).
 */
#include "fluxflow.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"image", PL_CONFIG_INT, "256", .min = 8, .max = 16384,
     .doc = "Height of an image in pixels, a multiple of 2^model.scales."},
    {"image_width", PL_CONFIG_INT, "0", .min = 0, .max = 16384,
     .doc = "Width of an image in pixels; 0: square."},
    {"resolutions", PL_CONFIG_INTS, "[]", .min = 8, .max = 16384,
     .doc = "Shorter sides of smaller images that a step also trains on, in this order."},
    {"vae.on", PL_CONFIG_BOOL, "true", .doc = "Train the compressor and the expander."},
    {"model.dim", PL_CONFIG_INT, "128", .min = 4, .max = 65536,
     .doc = "Channels of a token, a multiple of 4 and of spade.groups."},
    {"model.scales", PL_CONFIG_INT, "4", .min = 1, .max = 8,
     .doc = "Number of times that the resolution is halved from image to tokens."},
    {"model.layers", PL_CONFIG_INT, "4", .min = 0, .max = 256,
     .doc = "Attention blocks of the compressor."},
    {"model.heads", PL_CONFIG_INT, "8", .min = 1, .max = 256, .doc = "Heads per attention block."},
    {"model.ff_mult", PL_CONFIG_INT, "2", .min = 1, .max = 64,
     .doc = "Hidden width of an attention block's second half, in units of model.dim."},
    {"model.max_hw", PL_CONFIG_INT, "1024", .min = 1, .max = 1e9,
     .doc = "Unit of the size token, which holds height and width of the token map over this."},
    {"model.rgb", PL_CONFIG_INTS, "[96, 48]", .min = 8, .max = 65536,
     .doc = "Widths of the two layers before the colours."},
    {"spade.on", PL_CONFIG_BOOL, "true",
     .doc = "Modulate the decoder's blocks by the tokens (SPADE)."},
    {"spade.hidden", PL_CONFIG_INT, "128", .min = 1, .max = 65536,
     .doc = "SPADE: width of the hidden layer; the authors' is 128 for every model.dim."},
    {"spade.groups", PL_CONFIG_INT, "0", .min = 0, .max = 65536,
     .doc = "SPADE: groups of the norm; 0: 32, or model.dim if that is smaller."},
    {"flow.on", PL_CONFIG_BOOL, "false",
     .doc = "Train the flow processor, on tokens of a frozen compressor."},
    {"flow.width", PL_CONFIG_INT, "128", .min = 2, .max = 65536,
     .doc = "Flow processor: channels of a token."},
    {"flow.heads", PL_CONFIG_INT, "8", .min = 1, .max = 256,
     .doc = "Flow processor: attention heads."},
    {"flow.layers", PL_CONFIG_INT, "10", .min = 1, .max = 256, .doc = "Flow processor: blocks."},
    {"flow.context", PL_CONFIG_INT, "0", .min = 0, .max = 65536,
     .doc = "Flow processor: tokens, from the first on, that make the context; 0: as many as "
            "model.scales."},
    {"flow.sample_steps", PL_CONFIG_INT, "20", .min = 1, .max = 1000,
     .doc = "Flow processor: steps from noise to an image (sample.every)."},
    {"flow.text", PL_CONFIG_INT, "1024", .min = 1, .max = 65536,
     .doc = "Flow processor: length of a text vector."},
    {"predict.what", PL_CONFIG_CHOICE, "auto", .choices = "auto|reconstruction|samples",
     .doc = "What `predict` makes: pictures decoded from their tokens, or samples of the flow; "
            "auto: samples if flow.on."},
    {"predict.sampler", PL_CONFIG_CHOICE, "dpm", .choices = "dpm|ddim",
     .doc = "Samples: DPM-Solver++ of second order, as the authors sample, or DDIM."},
    {"predict.steps", PL_CONFIG_INT, "20", .min = 1, .max = 1000,
     .doc = "Samples: steps from noise to tokens."},
    {"predict.guidance", PL_CONFIG_FLOAT, "1", .min = 0, .max = 100,
     .doc = "Samples: weight of the text, classifier-free guidance against a text vector of "
            "zeros; 1: none, one evaluation of the network per step."},
    {"predict.expander", PL_CONFIG_TEXT, "null",
     .doc = "Samples: model file with the expander, where the model of the flow has none."},
    {"gan.on", PL_CONFIG_BOOL, "true", .doc = "Train against a discriminator."},
    {"gan.base", PL_CONFIG_INT, "64", .min = 1, .max = 65536,
     .doc = "Discriminator: channels of the first level."},
    {"gan.depth", PL_CONFIG_INT, "4", .min = 1, .max = 8,
     .doc = "Discriminator: number of levels; each halves the resolution and doubles the "
            "channels."},
    {"gan.decode", PL_CONFIG_CHOICE, "auto", .choices = "auto|once|twice",
     .doc = "Decode a second time for the discriminator, as the authors do (twice), or use the "
            "reconstruction (once). The results are the same; once is faster, twice needs less "
            "memory; auto: the faster one that fits the budget."},
    {"gan.noise_std", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 10,
     .doc = "Discriminator: standard deviation of the noise on its inputs."},
    {"gan.noise_decay", PL_CONFIG_FLOAT, "0.9999", .min = 0.001, .max = 1,
     .doc = "Discriminator: factor on that noise per step."},
    {"recon.on", PL_CONFIG_BOOL, "true",
     .doc = "Train with the reconstruction loss; false: only KL and the discriminator train the "
            "autoencoder."},
    {"lpips.on", PL_CONFIG_BOOL, "true", .doc = "Add the perceptual loss LPIPS (VGG16)."},
    {"lpips.widths", PL_CONFIG_INTS, "[64, 128, 256, 512, 512]", .min = 1, .max = 65536,
     .doc = "Channels of VGG's five stages."},
    {"lpips.weights", PL_CONFIG_TEXT, "null",
     .doc = "LPIPS weights (safetensors): those of the lpips package (net.slice1.0.weight, "
            "lin0.model.1.weight), or torchvision's VGG16 (features.0.weight) with the lin "
            "weights; null: random."},
    {"loss.lambda_lpips", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 1e6, .doc = "Weight of LPIPS."},
    {"loss.lambda_adv", PL_CONFIG_FLOAT, "0.5", .min = 0, .max = 1e6,
     .doc = "Weight of the generator's adversarial loss."},
    {"loss.mse_weight", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 1e6,
     .doc = "Weight of the mean squared error, beside the two L1 terms."},
    {"loss.kl_beta", PL_CONFIG_FLOAT, "1e-4", .min = 0, .max = 1e6,
     .doc = "Weight of KL after its warm-up."},
    {"loss.kl_warmup", PL_CONFIG_FLOAT, "5000", .min = 1, .max = 1e12,
     .doc = "Steps of KL's cosine warm-up."},
    {"loss.kl_free_bits", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e6,
     .doc = "Floor of each element of KL."},
    {"loss.first_step", PL_CONFIG_INT, "0", .min = 0, .max = 1e12,
     .doc = "Step number that the warm-up starts from."},
    {"loss.r1_gamma", PL_CONFIG_FLOAT, "5", .min = 0, .max = 1e6,
     .doc = "Weight of the R1 gradient penalty, times one half."},
    {"loss.r1_interval", PL_CONFIG_INT, "16", .min = 1, .max = 1e9,
     .doc = "Steps between R1 gradient penalties."},
    {"loss.adaptive", PL_CONFIG_BOOL, "true",
     .doc = "Scale the loss terms to equal size by their means over 100 steps."},
    {"seed_compat", PL_CONFIG_BOOL, "false",
     .doc = "Reproduce the original program: no noise on the discriminator's inputs, adaptive "
            "weights with the sign of a term's mean, and the four defects of the flow processor "
            "(see the recipe's README)."},
    {"data.prompt_prefix", PL_CONFIG_TEXT, "null", .doc = "Text to put before every caption."},
    {"data.samples", PL_CONFIG_INT, "4096", .min = 1, .max = 1e12,
     .doc = "Number of generated training images."},
    {"data.eval_samples", PL_CONFIG_INT, "64", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation images."},
    {0},
};

/* Adds a program of one resolution; the image's own resolution has no number. */
static pl_nn *program(pl_builder *b, const char *name, int pass, pl_when when)
{
    char text[48];
    snprintf(text, sizeof text, "%s_%d", name, pass);
    return pl_builder_program(b, pass ? text : name, when);
}

/* Builds everything at one resolution but the training program. */
static void build_pass(pl_builder *b, int pass)
{
    const pl_config *c = pl_builder_config(b);
    int64_t interval = pl_config_int(c, "loss.r1_interval");
    pl_when rarely = {.every = interval}, mostly = {.but_every = interval};
    bool vae = pl_config_bool(c, "vae.on");
    flux k;
    if (vae && pl_config_bool(c, "gan.on")) {
        if (interval > 1 && flux_of(b, program(b, "disc", pass, mostly), pass, &k))
            flux_build_disc(&k, false);
        if (flux_of(b, program(b, "disc_r1", pass, rarely), pass, &k)) flux_build_disc(&k, true);
    }
    if (!pass || !flux_of(b, program(b, "train", pass, (pl_when){0}), pass, &k)) return;
    if (vae)
        flux_build_vae(&k);
    else
        flux_build_flow(&k);
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    bool vae = pl_config_bool(c, "vae.on"), flow = pl_config_bool(c, "flow.on");
    pl_nn *m = pl_builder_train(b);
    int n;
    flux k;
    pl_config_ints(c, "resolutions", &n);
    if (!vae && !flow) {
        pl_nn_fail(m, PL_ERR_CONFIG, "vae.on and flow.on are both false: nothing is trained");
        return pl_nn_finish(m);
    }
    if (vae && !pl_config_bool(c, "recon.on") && !pl_config_bool(c, "gan.on")) {
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "recon.on and gan.on are both false: no loss trains the decoder; set one of them");
        return pl_nn_finish(m);
    }
    if (!pl_config_is_null(c, "data.prompt_prefix") && !pl_config_is_null(c, "data.embeddings")) {
        pl_nn_fail(
            m, PL_ERR_CONFIG,
            "data.prompt_prefix applies to texts that this run encodes: unset it, and compute "
            "data.embeddings from texts that begin with the prefix");
        return pl_nn_finish(m);
    }
    if (!flux_of(b, m, 0, &k)) return pl_nn_finish(m);
    for (int pass = 1; pass <= n; pass++) build_pass(b, pass);
    build_pass(b, 0);
    if (vae)
        flux_build_vae(&k);
    else
        flux_build_flow(&k);
    if (vae && flow && flux_of(b, pl_builder_program(b, "flow", (pl_when){.after = true}), 0, &k))
        flux_build_flow(&k);
    if (flux_of(b, pl_builder_eval(b), 0, &k)) flux_build_eval(&k);
    pl_nn *sample = pl_builder_sample(b);
    if (sample && flux_of(b, sample, 0, &k)) flux_build_sample(&k);
    return PL_OK;
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
                                        "fluxflow-vae+gan+lpips", "fluxflow-flow", NULL};
static const pl_peer_key peer_keys[] = {
    {"vae", "vae.on"},
    {"flow", "flow.on"},
    {"flow_width", "flow.width"},
    {"flow_heads", "flow.heads"},
    {"flow_layers", "flow.layers"},
    {"text", "flow.text"},
    {"lr", "optim_flow.lr"},
    {"clip", "optim_flow.clip.norm"},
    {"lpips", "lpips.on"},
    {"gan", "gan.on"},
    {"batch", "batch"},
    {"image", "image"},
    {"dim", "model.dim"},
    {"scales", "model.scales"},
    {"layers", "model.layers"},
    {"heads", "model.heads"},
    {"rgb", "model.rgb"},
    {"spade_hidden", "spade.hidden"},
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

static const pl_peer peer = {.workloads = workloads, .preset = "peer", .keys = peer_keys};

static const pl_image_input pictures[] = {
    {"real", -1, 1}, {"real_1", -1, 1}, {"real_2", -1, 1}, {"real_3", -1, 1}, {NULL, 0, 0}};
static const pl_image_feed feed = {.images = pictures,
                                   .text = "text",
                                   .encode = flux_encode,
                                   .height = "image",
                                   .width = "image_width",
                                   .draw = flux_draw,
                                   .lanczos = true,
                                   .upscaled = "ups_",
                                   .random_text = true};

static const char *const optims[] = {"optim_d", "optim_flow", NULL};
static const pl_tradeoff smaller[] = {{"gan.decode=twice", "decodes twice", "decoding once"},
                                      {NULL, NULL, NULL}};

static const char *const shown[] = {"rec", "kl", "disc.d|disc_r1.d", NULL};

const pl_recipe pl_recipe_fluxflow;
const pl_recipe pl_recipe_fluxflow = {
    .abi = PL_RECIPE_ABI,
    .name = "fluxflow",
    .about =
        "images to tokens and back: variational autoencoder with LPIPS and a discriminator, and a flow",
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
    .images = &feed,
    .weights = flux_weights,
    .start = &flux_start,
    .exports = flux_exports,
    .predict = &flux_predict,
    .smaller = smaller,
    .shown = shown,
    .foreign = flux_foreign,
};
