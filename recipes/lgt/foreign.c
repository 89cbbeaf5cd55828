/* foreign.c - the authors' config.json as a configuration of this recipe (`plimsoll convert`). */
#include "lgt.h"

#define LATER "an experiment of the authors that the recipe does not have"
#define COMPILED                                                                                   \
 "programs are always compiled, and the plan recomputes as many tensors as the budget needs"
#define FILES "run folders, checkpoints and evaluations: --out, checkpoint.*, eval.*"

/* The set of the authors has 7,359 latents; they drop the last batch of an epoch. */
enum { LATENTS = 7359 };

static const pl_foreign_key keys[] = {
    {"model.latent_channels", "model.channels"},
    {"model.base_channels", "model.base"},
    {"model.style_dim", "model.cond"},
    {"model.time_dim", "model.time"},
    {"model.num_styles", "model.styles"},
    {"model.num_encoder_blocks", "model.encoder_blocks"},
    {"model.num_decoder_blocks", "model.decoder_blocks"},
    {"loss.w_style", "loss.w_style"},
    {"loss.w_content", "loss.w_content"},
    {"loss.num_projections", "loss.projections"},
    {"loss.max_samples", "loss.samples"},
    {"loss.max_spatial_samples", "loss.positions"},
    {"loss.swd_scales", "loss.scales"},
    {"loss.swd_scale_weights", "loss.scale_weights"},
    {"loss.style_weights", "loss.style_weights"},
    {"loss.w_freq,loss.*neighbor*,training.*elastic*", .why = LATER},
    {"training.learning_rate", "optim.lr"},
    {"training.min_learning_rate", "schedule.eta_min"},
    {"training.weight_decay", "optim.weight_decay"},
    {"training.label_drop_prob", "loss.label_drop"},
    {"training.use_avg_style_for_uncond",
     .why = "a dropped label is always the average style (model.average)"},
    {"training.epsilon", "ode.epsilon"},
    {"training.ode_integration_steps", "ode.steps"},
    {"training.use_amp", "precision", .values = "true=bf16|false=fp32"},
    {"training.use_compile,training.use_gradient_checkpointing", .why = COMPILED},
    {"training.save_interval,training.*eval_interval,checkpoint.*", .why = FILES},
    {"training.test_image_dir",
     .why = "evaluations read latents; predict reads a folder of your choice"},
    {"training.resume_checkpoint", "init_from"},
    {"data.data_root", "data.latents"},
    {"data.style_subdirs", "data.style_dirs"},
    {"data.style_prompts", .why = "styles have numbers, not prompts"},
    {"inference.num_steps", "ode.eval_steps"},
    {"inference.temperature_lambda", "infer.temperature"},
    {"inference.temperature_threshold", "infer.threshold"},
    {"inference.cfg_decay", "infer.cfg_decay"},
    {NULL},
};

static void make_steps(pl_foreign_doc *d)
{
    int64_t micro = pl_foreign_whole(d, "training.batch_size", 32);
    int64_t parts = pl_foreign_whole(d, "training.accumulation_steps", 1);
    int64_t epochs = pl_foreign_whole(d, "training.num_epochs", 0);
    int64_t warm = pl_foreign_whole(d, "training.epsilon_warmup_epochs", 0);
    if (micro < 1 || micro > LATENTS || parts < 1 || parts > 4096) return;
    int64_t per = LATENTS / (micro * parts) > 0 ? LATENTS / (micro * parts) : 1;
    pl_foreign_set(d, "training.batch_size", "batch", "%lld", (long long)(micro * parts));
    pl_foreign_set(d, "training.accumulation_steps", "accumulate", "%lld", (long long)parts);
    pl_foreign_set(d, "training.accumulation_steps", "accumulate_coupled", "%s",
                   parts > 1 ? "true" : "false");
    if (epochs > 0)
        pl_foreign_set(d, "training.num_epochs", "train.steps", "%lld", (long long)(epochs * per));
    if (warm > 0) {
        pl_foreign_set(d, "training.epsilon_warmup_epochs", "ode.epsilon_warmup", "%lld",
                       (long long)(warm * per));
        pl_foreign_set(d, "training.epsilon_warmup_epochs", "ode.epsilon_epoch", "%lld",
                       (long long)per);
    }
}

static void make_inference(pl_foreign_doc *d)
{
    bool guided = pl_foreign_true(d, "inference.use_cfg");
    bool repels = pl_foreign_true(d, "inference.use_source_repulsion");
    pl_foreign_set(d, "inference.use_cfg,inference.cfg_scale", "infer.cfg_scale", "%g",
                   guided ? pl_foreign_number(d, "inference.cfg_scale", 1) : 1);
    pl_foreign_set(d, "inference.use_source_repulsion,inference.repulsion_strength",
                   "infer.repulsion", "%g",
                   repels ? pl_foreign_number(d, "inference.repulsion_strength", 0) : 0);
}

static void make(pl_foreign_doc *d)
{
    bool velocity = pl_foreign_true(d, "loss.use_velocity_reg");
    make_steps(d);
    make_inference(d);
    if (pl_foreign_text(d, "loss.use_velocity_reg"))
        pl_foreign_set(d, "loss.use_velocity_reg,loss.vel_reg_weight", "loss.w_velocity", "%g",
                       velocity ? pl_foreign_number(d, "loss.vel_reg_weight", 0.01) : 0);
    if (pl_foreign_true(d, "loss.use_multiscale_swd"))
        pl_foreign_skip(d, "loss.patch_size", "loss.swd_scales decide");
    else if (pl_foreign_text(d, "loss.patch_size")) {
        pl_foreign_set(d, "loss.patch_size", "loss.scales", "[%g]",
                       pl_foreign_number(d, "loss.patch_size", 3));
        pl_foreign_skip(d, "loss.swd_scales,loss.swd_scale_weights", "loss.patch_size decides");
    }
    pl_foreign_skip(d, "loss.use_multiscale_swd", "loss.scales has one or several sizes");
}

static const char *const marks[] = {"model.base_channels", "model.style_dim",
                                    "training.ode_integration_steps", NULL};
const pl_foreign lgt_foreign[] = {
    {"LGT's config.json", marks, "lgt/full", keys, make},
    {NULL},
};
