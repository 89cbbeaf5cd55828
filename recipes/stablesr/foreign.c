/* foreign.c - the authors' YAML files as configurations of this recipe (`plimsoll convert`). */
#include "stablesr.h"

#define M     "model.params."
#define U     "model.params.unet_config.params."
#define S     "model.params.structcond_stage_config.params."
#define V     "model.params.first_stage_config.params."
#define T     "data.params.train.params."
#define FIXED "a constant of the recipe's network, with the authors' value"
#define NAMES "names a Python class: the recipe has the network"
#define SETS                                                                                       \
 "evaluations read the held-out part of data.path (data.eval_share), degraded the same way"
#define KERNELS "kernel shapes and their probabilities are the authors' and fixed"
#define LOGS    "pictures, checkpoints and logs: sample.every, checkpoint.*, --out"

static const pl_foreign_key keys[] = {
    {"sf", "degrade.factor", NULL, NULL, 0},
    {"*target", NULL, NULL, NAMES, 0},
    {"model.base_learning_rate", "optim.lr", NULL, NULL, 0},
    {M "linear_start," M "linear_end," M "timesteps," M "num_timesteps_cond," M "time_replace," M
       "scale_factor," M "channels," M "conditioning_key," M "parameterization," M "beta_schedule",
     NULL, NULL, "the noise schedule of Stable Diffusion 2.1, fixed", 0},
    {M "log_every_t," M "monitor," V "monitor", NULL, NULL, LOGS, 0},
    {M "first_stage_key," M "cond_stage_key," M "cond_stage_trainable," M "random_size," M
       "p2_gamma," M "p2_k," M "ignore_keys",
     NULL, NULL, "the recipe has the authors' choice", 0},
    {M "image_size," T "crop_size," U "image_size," S "image_size," V "ddconfig.resolution", NULL,
     NULL, "image: degradation.gt_size decides", 0},
    {M "use_ema", "ema.decay", "true=0.9999|false=0", NULL, 0},
    {M "ckpt_path", "unet_from", NULL, NULL, 0},
    {V "ckpt_path", "vae.weights", NULL, NULL, 0},
    {M "unfrozen_diff", "frozen", "true=\"\"", "the preset freezes the U-Net", 0},
    {M "use_usm", "degrade.sharpen", NULL, NULL, 0},
    {M "use_edge_processing," M "edge_input_channels," U "use_edge_processing," U
       "edge_input_channels",
     NULL, NULL, "edge.*: the recipe has the edge processor", 0},
    {U "in_channels," U "out_channels," U "num_res_blocks," U "use_spatial_transformer," U
       "use_linear_in_transformer," U "transformer_depth," U "legacy",
     NULL, NULL, FIXED, 0},
    {U "model_channels", "model.width", NULL, NULL, 0},
    {U "channel_mult", "model.mult", NULL, NULL, 0},
    {U "num_head_channels", "model.head_dim", NULL, NULL, 0},
    {U "use_checkpoint," S "use_checkpoint", NULL, NULL,
     "checkpointing: auto recomputes what the budget needs", 0},
    {U "use_fp16," S "use_fp16", "precision", "true=fp16|false=fp32", NULL, 0},
    {U "semb_channels", "struct.out", NULL, NULL, 0},
    {S "model_channels", "struct.width", NULL, NULL, 0},
    {S "out_channels", "struct.out", NULL, NULL, 0},
    {S "channel_mult", "struct.mult", NULL, NULL, 0},
    {S "num_heads", "struct.heads", NULL, NULL, 0},
    {S "attention_resolutions", NULL, NULL,
     "every level of the structure encoder but the last attends", 0},
    {S "*", NULL, NULL, FIXED, 0},
    {V "ddconfig.ch", "vae.width", NULL, NULL, 0},
    {V "ddconfig.ch_mult", "vae.mult", NULL, NULL, 0},
    {V "*", NULL, NULL, "a constant of the recipe's autoencoder, with the authors' value", 0},
    {M "cond_stage_config.*", NULL, NULL,
     "the prompt is empty: context_from names the text encoder's output (plimsoll embed)", 0},
    {"degradation.resize_range", "degrade.scale", NULL, NULL, 0},
    {"degradation.resize_range2", "degrade.scale2", NULL, NULL, 0},
    {"degradation.noise_range", "degrade.noise", NULL, NULL, 0},
    {"degradation.noise_range2", "degrade.noise2", NULL, NULL, 0},
    {"degradation.poisson_scale_range", "degrade.poisson", NULL, NULL, 0},
    {"degradation.poisson_scale_range2", "degrade.poisson2", NULL, NULL, 0},
    {"degradation.jpeg_range", "degrade.jpeg", NULL, NULL, 0},
    {"degradation.jpeg_range2", "degrade.jpeg2", NULL, NULL, 0},
    {"degradation.second_blur_prob", "degrade.blur2", NULL, NULL, 0},
    {"degradation.no_degradation_prob", "degrade.untouched", NULL, NULL, 0},
    {"degradation.*_prob*", NULL, NULL,
     "probabilities of the degradation are the authors' and fixed", 0},
    {T "gt_size", NULL, NULL, "image: degradation.gt_size decides", 0},
    {T "queue_size", "data.pool", NULL, NULL, 0},
    {T "gt_path", "data.path", NULL, NULL, 0},
    {T "blur_sigma", "degrade.sigma", NULL, NULL, 0},
    {T "blur_sigma2", "degrade.sigma2", NULL, NULL, 0},
    {T "final_sinc_prob", "degrade.last_sinc", NULL, NULL, 0},
    {T "use_hflip", "data.flip", "true=0.5|false=0", NULL, 0},
    {T "use_rot", NULL, NULL, "pictures are not rotated", 0},
    {T "face_gt_path," T "num_face", NULL, NULL, "put these pictures below data.path", 0},
    {T "io_backend.*", NULL, NULL, "data.source: folders or tars", 0},
    {T "*", NULL, NULL, KERNELS, 0},
    {"data.params.num_workers", "data.workers", NULL, NULL, 0},
    {"data.params.wrap", NULL, NULL, "data sets are repeated always", 0},
    {"data.params.validation.*,test_data.*", NULL, NULL, SETS, 0},
    {"lightning.trainer.max_steps", "train.steps", NULL, NULL, 0},
    {"lightning.trainer.max_epochs", NULL, NULL, "train.steps = epochs x pictures / batch", 0},
    {"lightning.trainer.precision", "precision", "32=fp32|16=fp16|bf16=bf16", NULL, 0},
    {"lightning.trainer.gradient_clip_val", "clip.norm", NULL, NULL, 0},
    {"lightning.trainer.benchmark", NULL, NULL, "compile.mode: max-autotune times the kernels", 0},
    {"lightning.trainer.gpus,lightning.trainer.devices,lightning.trainer.num_nodes", NULL, NULL,
     "ranks=N and --ranks N train on several GPUs", 0},
    {"lightning.*", NULL, NULL, LOGS, 0},
    {NULL, NULL, NULL, NULL, 0},
};

static void make(pl_foreign_doc *d)
{
    double batch = pl_foreign_number(d, "data.params.batch_size", 0);
    double parts = pl_foreign_number(d, "lightning.trainer.accumulate_grad_batches", 1);
    double side = pl_foreign_number(d, "degradation.gt_size", 0);
    double context = pl_foreign_number(d, U "context_dim", 0);
    int levels = pl_foreign_count(d, U "attention_resolutions");
    if (batch >= 1 && parts >= 1 && batch * parts <= 1e6) {
        pl_foreign_set(d, "data.params.batch_size", "batch", "%.0f", batch * parts);
        pl_foreign_set(d, "lightning.trainer.accumulate_grad_batches", "accumulate", "%.0f", parts);
        if (parts > 1)
            pl_foreign_set(d, "lightning.trainer.accumulate_grad_batches", "accumulate_coupled",
                           "true");
    }
    if (side >= 8) {
        pl_foreign_set(d, "degradation.gt_size", "image", "%.0f", side);
        pl_foreign_set(d, "degradation.gt_size", "latent", "%.0f", side / 8);
    }
    if (context >= 1) pl_foreign_set(d, U "context_dim", "model.context", "[77, %.0f]", context);
    if (levels > 0) pl_foreign_set(d, U "attention_resolutions", "model.attn_levels", "%d", levels);
}

static const char *const marks[] = {U "model_channels", S "model_channels", "degradation.*", NULL};
const pl_foreign sr_foreign[] = {
    {"StableSR's YAML files", marks, "stablesr/full_pictures", keys, make},
    {NULL, NULL, NULL, NULL, NULL},
};
