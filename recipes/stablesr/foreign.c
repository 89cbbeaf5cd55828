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
    {"sf", "degrade.factor"},
    {"*target", .why = NAMES},
    {"model.base_learning_rate", "optim.lr"},
    {M "linear_start," M "linear_end," M "timesteps," M "num_timesteps_cond," M "time_replace," M
       "scale_factor," M "channels," M "conditioning_key," M "parameterization," M "beta_schedule",
     .why = "the noise schedule of Stable Diffusion 2.1, fixed"},
    {M "log_every_t," M "monitor," V "monitor", .why = LOGS},
    {M "first_stage_key," M "cond_stage_key," M "cond_stage_trainable," M "random_size," M
       "p2_gamma," M "p2_k," M "ignore_keys",
     .why = "the recipe has the authors' choice"},
    {M "image_size," T "crop_size," U "image_size," S "image_size," V "ddconfig.resolution",
     .why = "image: degradation.gt_size decides"},
    {M "use_ema", "ema.decay", .values = "true=0.9999|false=0"},
    {M "ckpt_path", "unet_from"},
    {V "ckpt_path", "vae.weights"},
    {M "unfrozen_diff", "frozen", .values = "true=\"\"", .why = "the preset freezes the U-Net"},
    {M "use_usm", "degrade.sharpen"},
    {M "use_edge_processing," M "edge_input_channels," U "use_edge_processing," U
       "edge_input_channels",
     .why = "edge.*: the recipe has the edge processor"},
    {U "in_channels," U "out_channels," U "use_spatial_transformer," U
       "use_linear_in_transformer," U "legacy",
     .why = FIXED},
    {U "model_channels", "model.width"},
    {U "channel_mult", "model.mult"},
    {U "num_head_channels", "model.head_dim"},
    {U "use_checkpoint," S "use_checkpoint",
     .why = "checkpointing=auto recomputes as many tensors as the budget needs"},
    {U "use_fp16," S "use_fp16", "precision", .values = "true=fp16|false=fp32"},
    {U "semb_channels", "struct.out"},
    {S "model_channels", "struct.width"},
    {S "out_channels", "struct.out"},
    {S "channel_mult", "struct.mult"},
    {S "num_heads", "struct.heads"},
    {U "num_res_blocks", "model.blocks"},
    {U "transformer_depth", "model.depth"},
    {S "num_res_blocks", "struct.blocks"},
    {S "*", .why = FIXED},
    {V "ddconfig.ch", "vae.width"},
    {V "ddconfig.ch_mult", "vae.mult"},
    {V "ddconfig.num_res_blocks", "vae.blocks"},
    {V "*", .why = "a constant of the recipe's autoencoder, with the authors' value"},
    {M "cond_stage_config.*",
     .why = "the prompt is empty: context_from names the text encoder's output (plimsoll embed)"},
    {"degradation.resize_range", "degrade.scale"},
    {"degradation.resize_range2", "degrade.scale2"},
    {"degradation.noise_range", "degrade.noise"},
    {"degradation.noise_range2", "degrade.noise2"},
    {"degradation.poisson_scale_range", "degrade.poisson"},
    {"degradation.poisson_scale_range2", "degrade.poisson2"},
    {"degradation.jpeg_range", "degrade.jpeg"},
    {"degradation.jpeg_range2", "degrade.jpeg2"},
    {"degradation.second_blur_prob", "degrade.blur2"},
    {"degradation.no_degradation_prob", "degrade.untouched"},
    {"degradation.*_prob*", .why = "probabilities of the degradation are the authors' and fixed"},
    {T "gt_size", .why = "image: degradation.gt_size decides"},
    {T "queue_size", "data.pool"},
    {T "gt_path", "data.path"},
    {T "blur_sigma", "degrade.sigma"},
    {T "blur_sigma2", "degrade.sigma2"},
    {T "final_sinc_prob", "degrade.last_sinc"},
    {T "use_hflip", "data.flip", .values = "true=0.5|false=0"},
    {T "use_rot", .why = "pictures are not rotated"},
    {T "face_gt_path," T "num_face", .why = "put these pictures below data.path"},
    {T "io_backend.*", .why = "data.source: folders or tars"},
    {T "*", .why = KERNELS},
    {"data.params.num_workers", "data.workers"},
    {"data.params.wrap", .why = "data sets are always repeated"},
    {"data.params.validation.*,test_data.*", .why = SETS},
    {"lightning.trainer.max_steps", "train.steps"},
    {"lightning.trainer.max_epochs", .why = "train.steps = epochs x pictures / batch"},
    {"lightning.trainer.precision", "precision", .values = "32=fp32|16=fp16|bf16=bf16"},
    {"lightning.trainer.gradient_clip_val", "clip.norm"},
    {"lightning.trainer.benchmark", .why = "compile.mode: max-autotune times the kernels"},
    {"lightning.trainer.gpus,lightning.trainer.devices,lightning.trainer.num_nodes",
     .why = "ranks=N and --ranks N train on several GPUs"},
    {"lightning.*", .why = LOGS},
    {NULL},
};

/* attention_resolutions has the factors by which the levels with attention are smaller than the
 * first: 2^level. Levels that are not neighbours keep the value of the preset, and a message
 * names them. */
static void attention(pl_foreign_doc *d, const char *theirs, const char *from, const char *levels)
{
    double factor[SR_MAX_LEVELS];
    int n = pl_foreign_count(d, theirs), first = SR_MAX_LEVELS, last = -1;
    if (n < 1 || n > SR_MAX_LEVELS || !pl_foreign_numbers(d, theirs, n, factor)) return;
    for (int i = 0; i < n; i++)
        for (int level = 0; level < SR_MAX_LEVELS; level++) {
            if (factor[i] < (double)(1 << level) || factor[i] > (double)(1 << level)) continue;
            first = level < first ? level : first;
            last = level > last ? level : last;
        }
    if (last - first + 1 != n) {
        pl_foreign_skip(d, theirs, "the recipe has attention at neighbouring levels only");
        return;
    }
    pl_foreign_set(d, theirs, levels, "%d", last + 1);
    if (first > 0) pl_foreign_set(d, theirs, from, "%d", first);
}

static void make(pl_foreign_doc *d)
{
    double batch = pl_foreign_number(d, "data.params.batch_size", 0);
    double parts = pl_foreign_number(d, "lightning.trainer.accumulate_grad_batches", 1);
    double side = pl_foreign_number(d, "degradation.gt_size", 0);
    double context = pl_foreign_number(d, U "context_dim", 0);
    if (batch >= 1 && parts >= 1 && batch * parts <= 1e6) {
        pl_foreign_set(d, "data.params.batch_size", "batch", "%.0f", batch * parts);
        pl_foreign_set(d, "lightning.trainer.accumulate_grad_batches", "accumulate", "%.0f", parts);
        if (parts > 1)
            pl_foreign_set(d, "lightning.trainer.accumulate_grad_batches", "accumulate_coupled",
                           "true");
    }
    if (side >= 8) {
        pl_foreign_set(d, "degradation.gt_size", "image", "%.0f", side);
        int levels = pl_foreign_count(d, V "ddconfig.ch_mult");
        int factor = levels >= 1 && levels <= VAE_MAX_LEVELS ? 1 << (levels - 1) : 8;
        pl_foreign_set(d, "degradation.gt_size", "latent", "%.0f", side / factor);
    }
    if (context >= 1) pl_foreign_set(d, U "context_dim", "model.context", "[77, %.0f]", context);
    attention(d, U "attention_resolutions", "model.attn_from", "model.attn_levels");
    attention(d, S "attention_resolutions", "struct.attn_from", "struct.attn_levels");
}

static const char *const marks[] = {U "model_channels", S "model_channels", "degradation.*", NULL};
const pl_foreign sr_foreign[] = {
    {"StableSR's YAML files", marks, "stablesr/full_pictures", keys, make},
    {NULL},
};
