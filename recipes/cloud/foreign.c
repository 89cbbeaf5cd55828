/* foreign.c - the authors' YAML files as configurations of this recipe (`plimsoll convert`). */
#include "cloud.h"

#define LATER    "an experiment of the authors that the recipe does not have"
#define COMPILED "programs are always compiled, and the plan recomputes what the budget needs"
#define PHASES   "phases: docs/PHASES.md; the preset cloud/flights has the authors' phases"

static const pl_foreign_key keys[] = {
    {"data_directory", "data.flights", NULL, NULL, 0},
    {"output_directory,models_directory,log_dir", NULL, NULL, "--out names the run folder", 0},
    {"validation_flight", "data.eval_flights", NULL, NULL, 0},
    {"overweight_flight", "data.heavy_flights", NULL, NULL, 0},
    {"overweight_factor", "data.heavy_factor", NULL, NULL, 0},
    {"pretrain_flight,loo,loo_epochs,pretraining.*", NULL, NULL, PHASES, 0},
    {"epochs", NULL, NULL, "train.steps = epochs x samples / batch, or phases with until.epochs",
     0},
    {"lr,learning_rate", "optim.lr", NULL, NULL, 0},
    {"wd,weight_decay", "optim.weight_decay", NULL, NULL, 0},
    {"optimizer", "optim.name", "AdamW=adamw|Adam=adam|SGD=sgd|RMSprop=rmsprop", NULL, 0},
    {"scheduler", NULL, NULL, "schedule.plateau.*: the preset lowers the rate at plateaus", 0},
    {"temporal_frames", "frames", NULL, NULL, 0},
    {"loss_type", "loss.type", NULL, NULL, 0},
    {"loss_alpha", "loss.alpha", NULL, NULL, 0},
    {"huber_delta", "loss.huber_delta", NULL, NULL, 0},
    {"gamma", "loss.gamma", NULL, NULL, 0},
    {"under_weight", "loss.under_weight", NULL, NULL, 0},
    {"variance_lambda", "loss.variance", NULL, NULL, 0},
    {"hard_mining_k", "loss.mining_fraction", NULL, NULL, 0},
    {"hard_mining_factor", "loss.mining_factor", NULL, NULL, 0},
    {"early_stopping_patience", "stop.patience", NULL, NULL, 0},
    {"early_stopping_min_delta", "stop.threshold", NULL, NULL, 0},
    {"batch_size", "batch", NULL, NULL, 0},
    {"filter_type", NULL, NULL, "data.min_km and data.max_km choose the heights", 0},
    {"gradient_checkpointing,torch_compile,torch_compile_mode", NULL, NULL, COMPILED, 0},
    {"num_workers", "data.workers", NULL, NULL, 0},
    {"pin_memory,prefetch_factor", NULL, NULL, "data.prefetch: batches are read ahead always", 0},
    {"hpc_mode,save_plots,no_plots", NULL, NULL, "--quiet, --json and report choose the output", 0},
    {"use_spatial_attention", "model.spatial_attention", NULL, NULL, 0},
    {"use_temporal_attention", "model.temporal_attention", NULL, NULL, 0},
    {"use_multiscale_temporal,attention_heads,min_variance_ratio", NULL, NULL, LATER, 0},
    {"flat_field_correction", "data.flat_field", NULL, NULL, 0},
    {"clahe_clip_limit", "data.contrast", NULL, NULL, 0},
    {"zscore_normalize", "data.standardise", NULL, NULL, 0},
    {"angles_mode", "angles", "both=both|sza_only=zenith|saa_only=azimuth|none=none", NULL, 0},
    {"architecture.name", "architecture.name", NULL, NULL, 0},
    {"flights.*", NULL, NULL, "data.flights is read folder by folder; the files are found by name",
     0},
    {NULL, NULL, NULL, NULL, 0},
};

static void make(pl_foreign_doc *d)
{
    double warm = pl_foreign_number(d, "warmup_steps", 0);
    /* the authors' rate at step s is lr (s + 1) / (W - 1) until it reaches lr */
    if (warm > 2) {
        pl_foreign_set(d, "warmup_steps", "schedule.warmup_steps", "%.0f", warm - 2);
        pl_foreign_set(d, "warmup_steps", "schedule.warmup_start", "%.17g", 1 / (warm - 1));
    }
    if (pl_foreign_true(d, "memory_optimized")) {
        pl_foreign_set(d, "memory_optimized", "model.channels", "[32, 64, 128]");
        pl_foreign_set(d, "memory_optimized", "model.dense", "[128, 64]");
    } else {
        pl_foreign_skip(d, "memory_optimized", "the preset is the full network");
    }
    if (pl_foreign_true(d, "augment")) {
        pl_foreign_set(d, "augment", "augment.flip", "0.5");
        pl_foreign_set(d, "augment", "augment.jitter", "0.2");
        pl_foreign_set(d, "augment", "augment.erase", "0.5");
    } else {
        pl_foreign_skip(d, "augment", "augment.* are 0 without it");
    }
    if (pl_foreign_count(d, "swath_slice") != 2) return;
    double row[2];
    if (!pl_foreign_numbers(d, "swath_slice", 2, row) || row[0] < 0 || row[1] <= row[0]) return;
    pl_foreign_set(d, "swath_slice", "data.first_row", "%.0f", row[0]);
    pl_foreign_set(d, "swath_slice", "height", "%.0f", row[1] - row[0]);
}

static const char *const marks[] = {"flights.*", "temporal_frames", "loss_type", NULL};
const pl_foreign cloud_foreign[] = {
    {"cloudML's YAML files", marks, "cloud/full", keys, make},
    {NULL, NULL, NULL, NULL, NULL},
};
