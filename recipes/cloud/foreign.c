/* foreign.c - the authors' YAML files as configurations of this recipe (`plimsoll convert`). */
#include "cloud.h"

#define LATER "an experiment of the authors that the recipe does not have"
#define COMPILED                                                                                   \
 "programs are always compiled, and the plan recomputes as many tensors as the budget needs"
#define PHASES "phases: docs/PHASES.md; the preset cloud/flights has the authors' phases"

static const pl_foreign_key keys[] = {
    {"data_directory", "data.flights"},
    {"output_directory,models_directory,log_dir", .why = "--out names the run folder"},
    {"validation_flight", "data.eval_flights"},
    {"overweight_flight", "data.heavy_flights"},
    {"overweight_factor", "data.heavy_factor"},
    {"pretrain_flight,loo,loo_epochs,pretraining.*", .why = PHASES},
    {"epochs", .why = "train.steps = epochs x samples / batch, or phases with until.epochs"},
    {"lr,learning_rate", "optim.lr"},
    {"wd,weight_decay", "optim.weight_decay"},
    {"optimizer", "optim.name", .values = "AdamW=adamw|Adam=adam|SGD=sgd|RMSprop=rmsprop"},
    {"scheduler", .why = "schedule.plateau.*: the preset lowers the rate at plateaus"},
    {"temporal_frames", "frames"},
    {"loss_type", "loss.type"},
    {"loss_alpha", "loss.alpha"},
    {"huber_delta", "loss.huber_delta"},
    {"gamma", "loss.gamma"},
    {"under_weight", "loss.under_weight"},
    {"variance_lambda", "loss.variance"},
    {"hard_mining_k", "loss.mining_fraction"},
    {"hard_mining_factor", "loss.mining_factor"},
    {"early_stopping_patience", "stop.patience"},
    {"early_stopping_min_delta", "stop.threshold"},
    {"batch_size", "batch"},
    {"filter_type", .why = "data.min_km and data.max_km choose the heights"},
    {"gradient_checkpointing,torch_compile,torch_compile_mode", .why = COMPILED},
    {"num_workers", "data.workers"},
    {"pin_memory,prefetch_factor", .why = "data.prefetch: batches are always read ahead"},
    {"hpc_mode,save_plots,no_plots", .why = "--quiet, --json and report choose the output"},
    {"use_spatial_attention", "model.spatial_attention"},
    {"use_temporal_attention", "model.temporal_attention"},
    {"use_multiscale_temporal,attention_heads,min_variance_ratio", .why = LATER},
    {"flat_field_correction", "data.flat_field"},
    {"clahe_clip_limit", "data.contrast"},
    {"zscore_normalize", "data.standardise"},
    {"angles_mode", "angles", .values = "both=both|sza_only=zenith|saa_only=azimuth|none=none"},
    {"architecture.name", "architecture.name"},
    {"flights.*", .why = "data.flights is read folder by folder; the files are found by name"},
    {NULL},
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
    {NULL},
};
