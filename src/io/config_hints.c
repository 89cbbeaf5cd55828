/* config_hints.c - keys and values that other programs have for what a key here sets.
 *
 * A user who comes from PyTorch, Lightning, Accelerate, transformers' Trainer or one of the
 * programs that the recipes reproduce types the names of that program. The table gives the key of
 * this program; config.c adds it to the message about an unknown key. Names are compared without
 * the sections before them, so that training.batch_size and batch_size are the same.
 */
#include "config_int.h"

#include <string.h>
#include <strings.h>

typedef struct hint {
    /* ours NULL: no key is needed, and note says why. note: how the values differ; NULL: not at
     * all */
    const char *theirs, *ours, *note;
} hint;

#define EFFECTIVE "the samples of one optimiser update, over all micro-batches and ranks"
#define EPOCHS    "steps = epochs x samples / batch; phases may end after epochs"
#define FOLDER    "--out names the run folder"
#define AHEAD     "batches are always read ahead, by threads that stay; data.prefetch says how many"
#define LOGS      "a run folder always has TensorBoard events, CSV files and a report"
#define ATTENTION "attention never stores its probabilities"
#define RANKS     "--ranks N trains on N GPUs"
#define EVAL      "evaluations use the micro-batch of training"
#define HOST      "--host-memory SIZE lets a plan keep state and activations in host memory"
#define STEPS     "steps"

static const hint hints[] = {
    /* batches */
    {"batch_size", "batch", EFFECTIVE},
    {"train_batch_size", "batch", EFFECTIVE},
    {"effective_batch_size", "batch", NULL},
    {"total_batch_size", "batch", NULL},
    {"global_batch_size", "batch", NULL},
    {"per_device_train_batch_size", "batch", EFFECTIVE},
    {"eval_batch_size", NULL, EVAL},
    {"val_batch_size", NULL, EVAL},
    {"validation_batch_size", NULL, EVAL},
    {"per_device_eval_batch_size", NULL, EVAL},
    {"micro_batch_size", "accumulate", "batch / accumulate is the micro-batch"},
    {"accumulation_steps", "accumulate", NULL},
    {"grad_accumulation_steps", "accumulate", NULL},
    {"gradient_accumulation_steps", "accumulate", NULL},
    {"gradient_accumulation", "accumulate", NULL},
    {"accumulate_grad_batches", "accumulate", NULL},
    {"accum_iter", "accumulate", NULL},
    {"training_steps", "train.updates_per_batch", "the number of steps is train.steps"},
    /* length */
    {"max_steps", "train.steps", NULL},
    {"num_steps", "train.steps", NULL},
    {"max_train_steps", "train.steps", NULL},
    {"total_steps", "train.steps", NULL},
    {"num_iterations", "train.steps", NULL},
    {"iterations", "train.steps", NULL},
    {"epochs", "train.steps", EPOCHS},
    {"n_epochs", "train.steps", EPOCHS},
    {"num_epochs", "train.steps", EPOCHS},
    {"max_epochs", "train.steps", EPOCHS},
    {"num_train_epochs", "train.steps", EPOCHS},
    {"fast_dev_run", "train.steps", "train.steps=1 eval.batches=1"},
    {"early_stopping_patience", "stop.patience", "evaluations"},
    {"early_stopping", "stop.patience", "evaluations"},
    {"early_stopping_min_delta", "stop.threshold", NULL},
    /* optimiser and schedule */
    {"learning_rate", "optim.lr", NULL},
    {"base_learning_rate", "optim.lr", NULL},
    {"base_lr", "optim.lr", NULL},
    {"wd", "optim.weight_decay", NULL},
    {"adam_weight_decay", "optim.weight_decay", NULL},
    {"weight_decay_rate", "optim.weight_decay", NULL},
    {"use_8bit_adam", "optim.state", "8bit"},
    {"optimizer", "optim.name", NULL},
    {"optimiser", "optim.name", NULL},
    {"optimizer_type", "optim.name", NULL},
    {"optim_type", "optim.name", NULL},
    {"adam_beta1", "optim.betas", "a list of two"},
    {"adam_beta2", "optim.betas", "a list of two"},
    {"adam_epsilon", "optim.eps", NULL},
    {"lr_scheduler", "schedule.name", NULL},
    {"lr_scheduler_type", "schedule.name", NULL},
    {"scheduler", "schedule.name", NULL},
    {"scheduler_type", "schedule.name", NULL},
    {"num_warmup_steps", "schedule.warmup_steps", NULL},
    {"lr_warmup_steps", "schedule.warmup_steps", NULL},
    {"warmup", "schedule.warmup_steps", NULL},
    {"warmup_ratio", "schedule.warmup_steps", "steps = ratio x train.steps"},
    {"warmup_epochs", "schedule.warmup_steps", STEPS},
    {"lr_warmup_epochs", "schedule.warmup_steps", STEPS},
    {"min_lr", "schedule.eta_min", NULL},
    {"min_learning_rate", "schedule.eta_min", NULL},
    {"lr_min", "schedule.eta_min", "a rate, not a factor"},
    {"gradient_clip_val", "clip.norm", NULL},
    {"max_grad_norm", "clip.norm", NULL},
    {"grad_clip", "clip.norm", NULL},
    {"clip_grad", "clip.norm", NULL},
    {"grad_norm_clip", "clip.norm", NULL},
    {"grad_clip_value", "clip.norm", "of the whole gradient"},
    {"clip_grad_norm", "clip.norm", NULL},
    {"initial_clipping_norm", "clip.norm", NULL},
    {"ema_decay", "ema.decay", NULL},
    {"use_ema", "ema.decay", "0: none"},
    /* memory and speed */
    {"use_checkpoint", "checkpointing", NULL},
    {"gradient_checkpointing", "checkpointing", NULL},
    {"use_gradient_checkpointing", "checkpointing", NULL},
    {"activation_checkpointing", "checkpointing", NULL},
    {"mixed_precision", "precision", NULL},
    {"use_amp", "precision", "bf16, fp16, tf32 or fp32"},
    {"amp", "precision", "bf16, fp16, tf32 or fp32"},
    {"use_fp16", "precision", "bf16, fp16, tf32 or fp32"},
    {"fp16", "precision", "precision: fp16"},
    {"bf16", "precision", "precision: bf16"},
    {"tf32", "precision", "precision: tf32"},
    {"torch_dtype", "precision", NULL},
    {"dtype", "precision", NULL},
    {"half", "precision", "precision: fp16"},
    {"torch_compile", "compile.mode", "programs are always compiled"},
    {"torch_compile_mode", "compile.mode", NULL},
    {"use_compile", "compile.mode", "programs are always compiled"},
    {"compile_mode", "compile.mode", NULL},
    {"allow_tf32", "precision", "precision: tf32"},
    {"benchmark", "compile.mode", "max-autotune times the kernels"},
    {"cudnn_benchmark", "compile.mode", "max-autotune times the kernels"},
    {"deterministic", NULL, "two runs with the same configuration give the same bits"},
    {"use_flash_attention", NULL, ATTENTION},
    {"enable_flash_sdp", NULL, ATTENTION},
    {"enable_xformers_memory_efficient_attention", NULL, ATTENTION},
    {"use_xformers", NULL, ATTENTION},
    {"set_grads_to_none", NULL, "a gradient has bytes only while a kernel needs it"},
    {"empty_cache", NULL, "memory is planned to the byte; there is no cache"},
    {"max_memory", "memory", NULL},
    {"memory_budget", "memory", NULL},
    {"accelerator", "device", NULL},
    {"devices", "ranks", NULL},
    {"gpus", "ranks", NULL},
    {"num_gpus", "ranks", NULL},
    {"num_processes", "ranks", NULL},
    {"world_size", "ranks", NULL},
    {"multi_gpu", NULL, RANKS},
    {"num_nodes", NULL, "mpirun and SLURM start ranks on several machines"},
    {"local_rank", NULL, RANKS},
    {"strategy", "shard", "which state is sharded across ranks"},
    {"fsdp", "shard", "which state is sharded across ranks"},
    {"deepspeed", "shard", "which state is sharded across ranks"},
    {"zero_stage", "shard", "1: optimizer, 2: gradients, 3: weights"},
    {"cpu_offload", NULL, HOST},
    {"offload_optimizer", NULL, HOST},
    {"offload_param", NULL, HOST},
    {"sync_batchnorm", "sync_batch_norm", NULL},
    /* data */
    {"workers", "data.workers", NULL},
    {"num_workers", "data.workers", NULL},
    {"dataloader_num_workers", "data.workers", NULL},
    {"prefetch_factor", "data.prefetch", NULL},
    {"pin_memory", NULL, AHEAD},
    {"persistent_workers", NULL, AHEAD},
    {"dataloader_pin_memory", NULL, AHEAD},
    {"shuffle", NULL, "training samples are shuffled in every epoch, evaluation samples are not"},
    {"val_split", "data.eval_share", NULL},
    {"validation_split", "data.eval_share", NULL},
    {"test_size", "data.eval_share", NULL},
    {"scale_lr", NULL, "optim.lr is the rate that is used"},
    {"data_path", "data.path", NULL},
    {"data_dir", "data.path", NULL},
    {"data_root", "data.path", NULL},
    {"data_directory", "data.path", NULL},
    {"dataset_path", "data.path", NULL},
    {"train_data_dir", "data.path", NULL},
    {"dataroot", "data.path", NULL},
    {"gt_path", "data.path", NULL},
    {"captions_file", "data.captions", NULL},
    {"use_hflip", "data.flip", "a probability"},
    {"queue_size", "data.pool", NULL},
    /* files and logs */
    {"random_seed", "seed", NULL},
    {"manual_seed", "seed", NULL},
    {"seed_everything", "seed", NULL},
    {"model_checkpoint", "init_from", NULL},
    {"resume_checkpoint", "init_from", "a run folder is resumed by --out"},
    {"resume_from_checkpoint", "init_from", "a run folder is resumed by --out"},
    {"pretrained_model_name_or_path", "init_from", NULL},
    {"ckpt_path", "init_from", NULL},
    {"checkpoint_path", "init_from", NULL},
    {"save_steps", "checkpoint.every", NULL},
    {"checkpointing_steps", "checkpoint.every", NULL},
    {"save_interval", "checkpoint.every", "steps"},
    {"checkpoint_save_interval", "checkpoint.every", "steps"},
    {"every_n_train_steps", "checkpoint.every", NULL},
    {"save_every", "checkpoint.every", STEPS},
    {"save_freq", "checkpoint.every", STEPS},
    {"checkpoint_dir", NULL, FOLDER},
    {"checkpoints_dir", NULL, FOLDER},
    {"ckpt_dir", NULL, FOLDER},
    {"save_path", NULL, FOLDER},
    {"work_dir", NULL, FOLDER},
    {"run_name", NULL, FOLDER},
    {"experiment_name", NULL, FOLDER},
    {"output_dir", NULL, FOLDER},
    {"output_path", NULL, FOLDER},
    {"output_directory", NULL, FOLDER},
    {"default_root_dir", NULL, FOLDER},
    {"save_dir", NULL, FOLDER},
    {"logdir", NULL, FOLDER},
    {"log_dir", NULL, FOLDER},
    {"logging_dir", NULL, FOLDER},
    {"report_to", NULL, LOGS},
    {"log_with", NULL, LOGS},
    {"logger", NULL, LOGS},
    {"enable_progress_bar", NULL, "--quiet leaves the progress out"},
    {"save_total_limit", "checkpoint.keep", NULL},
    {"save_top_k", "checkpoint.keep", NULL},
    {"log_interval", "train.log_every", NULL},
    {"logging_steps", "train.log_every", NULL},
    {"print_freq", "train.log_every", NULL},
    {"callbacks", NULL, "eval.*, checkpoint.*, stop.*, sample.* and on_end do what callbacks do"},
    {"log_every_n_steps", "train.log_every", NULL},
    {"eval_steps", "eval.every", NULL},
    {"eval_interval", "eval.every", "steps"},
    {"val_check_interval", "eval.every", "steps"},
    {"check_val_every_n_epoch", "eval.every", "steps"},
    {"validation_steps", "eval.every", NULL},
    {"limit_val_batches", "eval.batches", NULL},
    {"sample_interval", "sample.every", "steps"},
    {"batch_frequency", "sample.every", "steps"},
    {NULL, NULL, NULL},
};

/* Values of a choice, by the key's last name. */
static const struct {
    const char *key, *theirs, *ours;
} values[] = {
    {"precision", "16", "fp16"},
    {"precision", "16-mixed", "fp16"},
    {"precision", "16-true", "fp16"},
    {"precision", "float16", "fp16"},
    {"precision", "bf16-mixed", "bf16"},
    {"precision", "bf16-true", "bf16"},
    {"precision", "bfloat16", "bf16"},
    {"precision", "32-true", "fp32"},
    {"precision", "float32", "fp32"},
    {"precision", "no", "fp32"},
    {"name", "CosineAnnealingLR", "cosine"},
    {"name", "cosine_with_restarts", "cosine"},
    {"name", "LinearLR", "linear"},
    {"name", "StepLR", "step"},
    {"name", "ExponentialLR", "exponential"},
    {"name", "OneCycleLR", "one_cycle"},
    {"name", "ConstantLR", "constant"},
    {"name", "constant_with_warmup", "constant (with schedule.warmup_steps)"},
    {"name", "ReduceLROnPlateau", "constant (with schedule.plateau.factor)"},
    {"name", "AdamW8bit", "adamw (with optim.state=8bit)"},
    {"name", "Adam8bit", "adam (with optim.state=8bit)"},
    {"shard", "ddp", "none"},
    {"shard", "fsdp", "weights"},
    {"shard", "zero1", "optimizer"},
    {"shard", "zero2", "gradients"},
    {"shard", "zero3", "weights"},
    {"checkpointing", "true", "auto"},
    {"checkpointing", "false", "off"},
};

const char *pl__config_value_hint(const char *key, const char *text)
{
    const char *dot = strrchr(key, '.'), *last = dot ? dot + 1 : key;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].key, last) == 0 && strcasecmp(values[i].theirs, text) == 0)
            return values[i].ours;
    return NULL;
}

static const hint *find(const pl_config *c, const char *last)
{
    for (const hint *h = hints; h->theirs; h++)
        if (strcasecmp(h->theirs, last) == 0 && (!h->ours || pl_config_has(c, h->ours))) return h;
    return NULL;
}

/* A key is better than a reason, and the recipe's table better than the common one. */
bool pl_config_hint(const pl_config *c, const char *path, const char **ours, const char **note)
{
    const char *dot = strrchr(path, '.'), *last = dot ? dot + 1 : path, *key = NULL, *why = NULL;
    const hint *h = find(c, last);
    bool known = c->hint && c->hint(c->hint_ctx, path, &key, &why);
    if (known && key && !pl_config_has(c, key)) known = false;
    if (!known && !h) return false;
    bool common =
        !known || (!key && h && h->ours) || (key && h && h->ours && strcmp(key, h->ours) == 0);
    *ours = common ? h->ours : key;
    *note = common ? h->note : why;
    return true;
}

void pl_config_set_hints(pl_config *c, pl_config_hint_fn ask, void *ctx)
{
    c->hint = ask;
    c->hint_ctx = ctx;
}

const char *pl_config_hint_at(int i, const char **ours)
{
    int n = (int)(sizeof hints / sizeof *hints) - 1;
    if (i < 0 || i >= n) return NULL;
    *ours = hints[i].ours;
    return hints[i].theirs;
}
