/* foreign.c - the authors' config.yaml as a configuration of this recipe (`plimsoll convert`).
 * Steps of their pipeline become phases. */
#include "fluxflow.h"

#include <stdio.h>
#include <string.h>

#define BASELINE                                                                                   \
 "belongs to the authors' network without Bezier activations, which the recipe does not have"
#define TEXT  "text vectors are computed once (plimsoll embed) and read from data.embeddings"
#define TARS  "tars are read from a folder: download them, and set data.path"
#define LOGS  "pictures, checkpoints and logs: sample.every, checkpoint.*, --out"
#define STEPS "train.steps = epochs x pictures / batch, or phases with until.epochs"
#define STAGE "training.pipeline.steps."

static const pl_foreign_key keys[] = {
    {"model.model_type,model.model_version", .why = "the recipe has the Bezier network"},
    {"model.baseline_*", .why = BASELINE},
    {"model.vae_dim", "model.dim"},
    {"model.feature_maps_dim", "flow.width"},
    {"model.feature_maps_dim_disc",
     .why = "the authors' discriminator does not use it: gan.base is its width"},
    {"model.text_embedding_dim", "flow.text"},
    {"model.pretrained_bert_model,data.tokenizer_name", .why = TEXT},
    {"data.data_path", "data.path"},
    {"data.captions_file", "data.captions"},
    {"data.fixed_prompt_prefix", "data.prompt_prefix"},
    {"data.*webdataset*,data.*tt2m*", .why = TARS},
    {"data.dataloader_*", .why = "data.on_bad decides about pictures that cannot be read"},
    {"data.img_size", "image"},
    {"data.channels", .why = "pictures have 3 channels"},
    {"data.reduced_min_sizes", "resolutions"},
    {"training.n_epochs", .why = STEPS},
    {"training.batch_size", "batch"},
    {"training.workers", "data.workers"},
    {"training.training_steps", "train.updates_per_batch"},
    {"training.use_fp16", "precision", .values = "true=fp16|false=fp32"},
    {"training.initial_clipping_norm", "clip.norm"},
    {"training.preserve_lr", .why = "a resumed run always continues its schedule"},
    {"training.train_vae", "vae.on"},
    {"training.gan_training", "gan.on"},
    {"training.use_lpips", "lpips.on"},
    {"training.train_spade", "spade.on"},
    {"training.spade_training_mode", .why = "spade.on is on in every step, or in none"},
    {"training.kl_beta", "loss.kl_beta"},
    {"training.kl_warmup_steps", "loss.kl_warmup"},
    {"training.kl_free_bits", "loss.kl_free_bits"},
    {"training.lambda_adv", "loss.lambda_adv"},
    {"training.lambda_lpips", "loss.lambda_lpips"},
    {"training.mse_weight", "loss.mse_weight"},
    {"training.r1_interval", "loss.r1_interval"},
    {"training.r1_gamma", "loss.r1_gamma"},
    {"training.instance_noise_std", "gan.noise_std"},
    {"training.instance_noise_decay", "gan.noise_decay"},
    {"training.adaptive_weights", "loss.adaptive"},
    {"training.pipeline.mode", .why = "phases run one after the other"},
    {STAGE "*.freeze*," STAGE "*.unfreeze*",
     .why = "a phase trains what vae.on, gan.on and flow.on name, and freezes the rest"},
    {STAGE "*.optim*," STAGE "*.sched*",
     .why =
         "optim.*, optim_d.*, optim_flow.* and their schedule: set: {...} of the phase changes them"},
    {STAGE "*.transition*",
     .why = "until: {reach: 'loss < 0.05'} of the phase ends it early (docs/PHASES.md)"},
    {STAGE "*", .why = "not a setting of a phase; set: {...} of the phase takes any key"},
    {"optimization.*", .why = "optim.*, optim_d.* and optim_flow.*"},
    {"output.*", .why = LOGS},
    {"model_checkpoint", "init_from"},
    {NULL},
};

static void make_rates(pl_foreign_doc *d)
{
    static const char *const lr[] = {"optim.lr", "optim_d.lr", "optim_flow.lr"};
    static const char *const least[] = {"schedule.eta_min", "optim_d.schedule.eta_min",
                                        "optim_flow.schedule.eta_min"};
    double rate = pl_foreign_number(d, "training.lr", 0);
    double share = pl_foreign_number(d, "training.lr_min", 0.1);
    if (rate <= 0 || share < 0) return;
    for (int i = 0; i < 3; i++) {
        pl_foreign_set(d, "training.lr", lr[i], "%g", rate);
        pl_foreign_set(d, "training.lr,training.lr_min", least[i], "%g", rate * share);
    }
}

/* Their switch of stage i as ours, "gan.on: true, "; keys may be absent: false. */
static int put_switch(pl_foreign_doc *d, int i, const char *theirs, const char *ours, char *to,
                      size_t cap)
{
    char path[128];
    snprintf(path, sizeof path, STAGE "%d.%s", i, theirs);
    int n = snprintf(to, cap, "%s: %s, ", ours, pl_foreign_true(d, path) ? "true" : "false");
    return n > 0 && (size_t)n < cap ? n : 0;
}

/* One stage as a phase. */
static int put_stage(pl_foreign_doc *d, int i, char *to, size_t cap)
{
    static const char *const switches[][2] = {{"train_vae", "vae.on"},
                                              {"gan_training", "gan.on"},
                                              {"use_lpips", "lpips.on"},
                                              {"train_spade", "spade.on"}};
    char path[128], name[48], set[256];
    snprintf(path, sizeof path, STAGE "%d.name", i);
    const char *given = pl_foreign_text(d, path);
    snprintf(name, sizeof name, "%.40s", given ? given : "stage");
    for (char *p = name; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *p))
            *p = '-';
    snprintf(path, sizeof path, STAGE "%d.n_epochs", i);
    int64_t epochs = pl_foreign_whole(d, path, 1);
    snprintf(path, sizeof path, STAGE "%d.duration_epochs", i);
    epochs = pl_foreign_whole(d, path, epochs);
    int at = 0;
    for (int k = 0; k < 4; k++)
        at += put_switch(d, i, switches[k][0], switches[k][1], set + at, sizeof set - (size_t)at);
    bool flow = false;
    for (int k = 0; k < 3; k++) {
        static const char *const theirs[] = {"train_flow", "train_diff", "train_diff_full"};
        snprintf(path, sizeof path, STAGE "%d.%s", i, theirs[k]);
        flow |= pl_foreign_true(d, path);
    }
    return snprintf(to, cap, "%s{name: %s, until: {epochs: %lld}, set: {%sflow.on: %s}}",
                    i ? ", " : "", name, (long long)(epochs > 0 ? epochs : 1), set,
                    flow ? "true" : "false");
}

static void make_stages(pl_foreign_doc *d)
{
    char text[3072];
    int n = pl_foreign_count(d, "training.pipeline.steps"), at = 0;
    for (int i = 0; i < n; i++) {
        int k = put_stage(d, i, text + at, sizeof text - (size_t)at);
        if (k < 0 || (size_t)k >= sizeof text - (size_t)at) {
            pl_foreign_skip(d, STAGE "*", "too many stages for one file: write phases by hand");
            return;
        }
        at += k;
    }
    if (n)
        pl_foreign_set(d,
                       STAGE "*.name," STAGE "*.n_epochs," STAGE "*.duration_epochs," STAGE
                             "*.train_*," STAGE "*.gan_training," STAGE "*.use_lpips",
                       "phases", "[%s]", text);
}

static void make(pl_foreign_doc *d)
{
    make_rates(d);
    make_stages(d);
    if (pl_foreign_text(d, "training.train_diff") || pl_foreign_text(d, "training.train_diff_full"))
        pl_foreign_set(d, "training.train_diff,training.train_diff_full", "flow.on", "%s",
                       pl_foreign_true(d, "training.train_diff") ||
                               pl_foreign_true(d, "training.train_diff_full")
                           ? "true"
                           : "false");
}

static const char *const marks[] = {"model.vae_dim", "model.feature_maps_dim", "training.*", NULL};
const pl_foreign flux_foreign[] = {
    {"FluxFlow's config.yaml", marks, "fluxflow/full", keys, make},
    {NULL},
};
