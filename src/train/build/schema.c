/* schema.c - the engine's configuration keys; a recipe adds its own.
 *
 * One row defines a key, except for the code that reads the key: type, default, limits, whether it
 * may change on resume, whether a cache of encoder outputs depends on it, help. To add a key, add
 * its row, read it with pl_config_int(c, "section.key") or the like, and let the test write the
 * table of docs/CONFIG.md: PL_UPDATE_DOCS=1 build/release/pl_test -k docs_config
 */
#include "train/run/run.h"

const pl_config_entry pl_engine_schema[] = {
    {"recipe", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Recipe or preset that this configuration is for: a built-in name or the path of a "
            "compiled recipe.so."},
    {"seed", PL_CONFIG_INT, "0", .min = 0, .max = 9e15, .cache = PL_CACHE_SEED,
     .doc = "Seed of initial weights, sample order and every random draw."},
    {"device", PL_CONFIG_TEXT, "cpu", .resume = PL_RESUME_ROUND,
     .doc = "Where to train: cpu, cuda (the first NVIDIA GPU), cuda:1, ...; or a GPU to plan for "
            "(docs/DEVICES.md)."},
    {"card", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "GPU that the configuration is meant for, e.g. t4 (plimsoll devices --profiles lists "
            "GPUs). When device is a GPU and this machine has none, plans are made for this GPU."},
    {"compile.mode", PL_CONFIG_CHOICE, "default",
     .choices = "default|reduce-overhead|max-autotune|eager", .resume = PL_RESUME_ROUND,
     .doc =
         "GPU: steps as CUDA graphs with kernels chosen by heuristics (default, reduce-overhead) "
         "or by timing (max-autotune); eager: kernel by kernel, for debugging."},
    {"compile.fp32", PL_CONFIG_CHOICE, "split", .choices = "split|plain", .resume = PL_RESUME_ROUND,
     .doc = "GPU: fp32 matrix products on tensor cores with split operands, as accurate as fp32 "
            "(split), or on fp32 units only (plain)."},
    {"precision", PL_CONFIG_CHOICE, "fp32", .choices = "fp32|tf32|bf16|fp16",
     .cache = PL_CACHE_VALUE,
     .doc = "Number format of matrix products and stored activations; weights, sums, losses and "
            "updates stay in fp32."},
    {"weights", PL_CONFIG_CHOICE, "fp32", .choices = "fp32|bf16",
     .doc = "How trained weights are stored: fp32, or bf16 rounded at random at every update (half "
            "the memory, no fp32 copy). bf16 changes the numbers of the training."},
    {"frozen.dtype", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_VALUE,
     .doc =
         "How frozen weights (a teacher, an autoencoder, a loss network) are stored: fp8, int8 "
         "(1.06 bytes per weight) or nf4 (0.56 bytes), or a form for each pattern of names, "
         "e.g. 'unet.*=nf4,vae.*=int8'. Weights are dequantized where they are used. The numbers "
         "of the training change. null: as they are."},
    {"threads", PL_CONFIG_INT, "0", .min = 0, .max = 1024, .resume = PL_RESUME_ROUND,
     .doc = "CPU threads; 0: all cores that this process may use."},
    {"memory", PL_CONFIG_SIZE, "null", .min = 1, .max = 1e15, .resume = PL_RESUME_FREE,
     .doc = "Memory budget of the whole process, e.g. 2GiB; kernels are recomputed until the plan "
            "fits. null: no budget."},
    {"host_memory", PL_CONFIG_SIZE, "null", .min = 1, .max = 1e15, .resume = PL_RESUME_FREE,
     .doc = "GPU: budget of host memory for the whole process, e.g. 32GB. Weights, optimizer state "
            "and activations that do not fit into the GPU's budget (memory) are offloaded to it. "
            "null: all tensors stay on the GPU."},
    {"updates", PL_CONFIG_CHOICE, "auto", .choices = "auto|device|host", .resume = PL_RESUME_ROUND,
     .doc = "GPU with host_memory: where weights are updated. host: weights, gradients and "
            "optimizer state live in host memory and all cores update them there; device: the "
            "state is brought to the GPU; auto: whichever is predicted to be faster. Updates on "
            "the host round otherwise than updates on a GPU."},
    {"host_link", PL_CONFIG_CHOICE, "auto",
     .choices = "auto|pcie3x8|pcie3x16|pcie4x8|pcie4x16|pcie5x8|pcie5x16", .resume = PL_RESUME_FREE,
     .doc = "Link between GPU and host memory, for predicted times of offloading; auto: as "
            "measured by plimsoll devices --calibrate, else the usual link of the GPU."},
    {"disk", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Size and folder of a file to which state and activations are offloaded when they do "
            "not fit into memory (on a GPU: into memory and host_memory), e.g. 100GB:/scratch. "
            "null: none."},
    {"disk_link", PL_CONFIG_CHOICE, "auto", .choices = "auto|nvme|nvme4|sata",
     .resume = PL_RESUME_FREE,
     .doc = "Type of the disk of `disk`, for predicted times of offloading; auto: as measured by "
            "plimsoll devices --calibrate --disk FOLDER, else nvme."},
    {"checkpointing", PL_CONFIG_CHOICE, "auto", .choices = "auto|off|blocks|scopes",
     .resume = PL_RESUME_FREE,
     .doc = "What is recomputed in the backward pass: what the budget needs (auto), nothing "
            "(off), the scopes that the recipe marks (blocks), or the scopes that "
            "checkpoint_scopes names (scopes)."},
    {"checkpoint_scopes", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "checkpointing=scopes: names of the scopes to recompute, as a pattern: "
            "\"frame*,*.layer?\"."},
    {"batch", PL_CONFIG_INT, "1", .min = 1, .max = 1e9, .doc = "Samples per step."},
    {"accumulate", PL_CONFIG_TEXT, "1", .resume = PL_RESUME_SPLIT,
     .doc = "Gradient accumulation: number of micro-batches that a batch is split into; auto: as "
            "many as the budget needs."},
    {"accumulate_coupled", PL_CONFIG_BOOL, "false",
     .doc = "Split the batch even where its samples influence each other (BatchNorm); this changes "
            "results."},
    {"ranks", PL_CONFIG_INT, "1", .min = 1, .max = 65536, .resume = PL_RESUME_SPLIT,
     .doc = "Number of processes that share each batch: batch = micro-batch x accumulate x ranks."},
    {"distributed", PL_CONFIG_CHOICE, "replicate", .choices = "replicate|always|off",
     .resume = PL_RESUME_FREE,
     .doc = "With several ranks, each rank trains on its share of every batch (replicate); always: "
            "exchange gradients with one rank too (tests NCCL on one GPU); off: refuse to run as "
            "one of several ranks."},
    {"shard", PL_CONFIG_CHOICE, "none", .choices = "none|optimizer|gradients|weights|auto",
     .resume = PL_RESUME_FREE,
     .doc = "Which state is sharded across ranks; auto: as little as the budget of a rank needs."},
    {"sync_batch_norm", PL_CONFIG_BOOL, "false",
     .doc =
         "Compute BatchNorm statistics over the samples of all ranks instead of each rank's own."},
    {"gradient_bucket", PL_CONFIG_SIZE, "4MiB", .min = 1, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc = "Approximate bytes of gradients that are reduced across ranks in one message."},
    {"link", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Interconnect of the ranks, for predicted times: nvlink, pcie4, ib, eth, ..., or "
            "nvlink/8+ib."},
    {"rank_timeout", PL_CONFIG_DURATION, "10s", .min = 1, .max = 1e6, .resume = PL_RESUME_FREE,
     .doc = "Time without a heartbeat from a rank after which the run ends on all ranks."},
    {"init_from", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Weights that the run starts from: a file (.safetensors, .pt, .pth, .ckpt, .bin), "
            "several separated by commas, an index of shards, or a folder (docs/WEIGHTS.md)."},
    {"init_from.prefix", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Prefix of the names in these files, e.g. state_dict.module.; null: the prefix is "
            "recognised."},
    {"init_from.missing", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Weights that may keep their initial values: allow (all that are missing in the "
            "files), or patterns of weights that are missing or have another shape."},
    {"init_from.step", PL_CONFIG_CHOICE, "auto", .choices = "auto|new|file",
     .resume = PL_RESUME_FREE,
     .doc = "First step of the run, for schedules: the step number in a PyTorch checkpoint if it "
            "has one below train.steps, else 0 (auto); always 0 (new); the number in the "
            "checkpoint, which must have one (file)."},

    {"phases", PL_CONFIG_TREE, "null",
     .doc = "List of training phases, run one after another, each with its own settings "
            "(docs/PHASES.md); phases that have not started may change on resume."},

    {"train.steps", PL_CONFIG_INT, "1000", .min = 1, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc = "Optimiser steps of the run."},
    {"train.updates_per_batch", PL_CONFIG_INT, "1", .min = 1, .max = 1e6,
     .doc = "Optimiser updates on each batch; they count as one step (docs/STEPS.md)."},
    {"train.log_every", PL_CONFIG_INT, "10", .min = 1, .max = 1e9, .resume = PL_RESUME_FREE,
     .doc = "Steps between lines of the log."},
    {"log.memory_every", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc = "Steps between memory summaries in the log; 0: only at the start and on SIGUSR2."},
    {"log.warn_memory", PL_CONFIG_FLOAT, "0.85", .min = 0, .max = 1, .resume = PL_RESUME_FREE,
     .doc = "Warn when more than this fraction of the device's or the host's memory is in use, by "
            "any process; 0: never."},
    {"log.tensorboard", PL_CONFIG_BOOL, "true", .resume = PL_RESUME_FREE,
     .doc = "Write TensorBoard event files into the run's folder."},
    {"on_end", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Command that train runs when the run is complete or was stopped, without a shell "
            "(docs/MONITORING.md); null: none."},
    {"on_error", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Command that train runs when the run fails; null: none."},
    {"hook_timeout", PL_CONFIG_DURATION, "60s", .min = 0.1, .max = 1e6, .resume = PL_RESUME_FREE,
     .doc = "Time limit of on_end and on_error; a command that runs longer is killed."},

    {"checkpoint.every", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc = "Steps between checkpoints in RUN (--out); 0: by time only."},
    {"checkpoint.interval", PL_CONFIG_DURATION, "10min", .min = 0, .max = 1e9,
     .resume = PL_RESUME_FREE, .doc = "Longest time between checkpoints; 0: by steps only."},
    {"checkpoint.keep", PL_CONFIG_INT, "2", .min = 1, .max = 1e6, .resume = PL_RESUME_FREE,
     .doc = "Number of checkpoints to keep, the newest ones."},
    {"checkpoint.frozen", PL_CONFIG_BOOL, "false", .resume = PL_RESUME_FREE,
     .doc =
         "Store frozen weights in checkpoints too; otherwise they are rebuilt on resume from the "
         "seed and files."},
    {"allow_random_frozen", PL_CONFIG_BOOL, "false", .resume = PL_RESUME_FREE,
     .doc = "Train with frozen networks that have random weights although the data are real; "
            "otherwise such a run stops and names the key that is missing."},
    {"checkpoint.best", PL_CONFIG_TEXT, "null", .resume = PL_RESUME_FREE,
     .doc = "Evaluation output whose best checkpoint is also kept, as RUN/best; null: none."},
    {"checkpoint.best_mode", PL_CONFIG_CHOICE, "min", .choices = "min|max",
     .resume = PL_RESUME_FREE,
     .doc = "Whether the lowest or the highest value of checkpoint.best is best."},

    {"stop.patience", PL_CONFIG_INT, "0", .min = 0, .max = 1e9, .resume = PL_RESUME_ONWARD,
     .doc = "End the run after this many evaluations in a row without improvement; 0: never."},
    {"stop.metric", PL_CONFIG_TEXT, "loss", .resume = PL_RESUME_ONWARD,
     .doc = "Evaluation output that stop.patience watches."},
    {"stop.mode", PL_CONFIG_CHOICE, "min", .choices = "min|max", .resume = PL_RESUME_ONWARD,
     .doc = "Whether a lower or a higher stop.metric is an improvement."},
    {"stop.threshold", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "Smallest relative improvement that counts."},

    {"optim.name", PL_CONFIG_CHOICE, "adamw", .choices = "sgd|adam|adamw|lion|rmsprop|adafactor",
     .doc = "Optimiser."},
    {"optim.state", PL_CONFIG_CHOICE, "f32", .choices = "f32|bf16|8bit",
     .doc =
         "How moments are stored: 4, 2 (rounded at random) or about 1 byte per number (blocks of "
         "256 with a scale). Less than f32 changes the numbers of the training."},
    {"optim.lr", PL_CONFIG_FLOAT, "1e-3", .min = 0, .max = 1e6, .resume = PL_RESUME_ONWARD,
     .doc = "Learning rate, the maximum of the schedule."},
    {"optim.betas", PL_CONFIG_FLOATS, "[0.9, 0.999]", .min = 0, .max = 1,
     .resume = PL_RESUME_ONWARD, .doc = "Adam, AdamW, Lion: decay rates of the moving averages."},
    {"optim.eps", PL_CONFIG_FLOAT, "1e-8", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "Adam, AdamW, RMSprop: added to the denominator."},
    {"optim.weight_decay", PL_CONFIG_FLOAT, "0.01", .min = 0, .max = 1e3,
     .resume = PL_RESUME_ONWARD,
     .doc = "Weight decay: decoupled for AdamW and Lion, added to the gradient otherwise."},
    {"optim.decoupled_weight_decay", PL_CONFIG_BOOL, "false", .resume = PL_RESUME_ONWARD,
     .doc = "AdamW, Lion: divide weight_decay by optim.lr, so that a step multiplies weights by "
            "1 - weight_decay * rate / optim.lr, with the rate of the schedule."},
    {"optim.no_decay", PL_CONFIG_TEXT, "null",
     .doc = "Parameters without weight decay, as a pattern: \"*.bias,*norm*\"."},
    {"optim.frozen", PL_CONFIG_TEXT, "null",
     .doc = "Parameters that are not trained, as a pattern."},
    {"optim.amsgrad", PL_CONFIG_BOOL, "false",
     .doc = "Adam, AdamW: use the largest second moment seen so far."},
    {"optim.momentum", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "SGD, RMSprop: momentum."},
    {"optim.dampening", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "SGD: dampening of the momentum."},
    {"optim.nesterov", PL_CONFIG_BOOL, "false", .doc = "SGD: Nesterov momentum."},
    {"optim.alpha", PL_CONFIG_FLOAT, "0.99", .min = 0, .max = 1,
     .doc = "RMSprop: decay rate of the squared gradients' average."},
    {"optim.centered", PL_CONFIG_BOOL, "false",
     .doc = "RMSprop: normalise by the variance of the gradient instead of its mean square."},

    {"schedule.name", PL_CONFIG_CHOICE, "constant",
     .choices = "constant|linear|cosine|step|exponential|one_cycle", .resume = PL_RESUME_ONWARD,
     .doc = "Shape of the learning rate over the steps."},
    {"schedule.total_steps", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_ONWARD,
     .doc = "linear, cosine, one_cycle: length in steps; 0: train.steps minus the warm-up."},
    {"schedule.warmup_steps", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_ONWARD,
     .doc = "Optimiser steps of linear warm-up before the schedule."},
    {"schedule.warmup_start", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "Factor on the learning rate at the first step of the warm-up."},
    {"schedule.eta_min", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e6, .resume = PL_RESUME_ONWARD,
     .doc = "cosine: lowest learning rate."},
    {"schedule.end_factor", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "linear: factor on the learning rate at the end."},
    {"schedule.step_size", PL_CONFIG_INT, "1000", .min = 1, .max = 1e12, .resume = PL_RESUME_ONWARD,
     .doc = "step: steps between drops."},
    {"schedule.gamma", PL_CONFIG_FLOAT, "0.1", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "step, exponential: factor of each drop."},
    {"schedule.pct_start", PL_CONFIG_FLOAT, "0.3", .min = 0.001, .max = 0.999,
     .resume = PL_RESUME_ONWARD,
     .doc = "one_cycle: fraction of the steps during which the rate rises."},
    {"schedule.div_factor", PL_CONFIG_FLOAT, "25", .min = 1, .max = 1e12,
     .resume = PL_RESUME_ONWARD, .doc = "one_cycle: maximum rate divided by the first rate."},
    {"schedule.final_div_factor", PL_CONFIG_FLOAT, "10000", .min = 1, .max = 1e12,
     .resume = PL_RESUME_ONWARD, .doc = "one_cycle: first rate divided by the last rate."},
    {"schedule.plateau.factor", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .resume = PL_RESUME_ONWARD,
     .doc = "Multiply the learning rate by this when evaluations stop improving; 0: off."},
    {"schedule.plateau.patience", PL_CONFIG_INT, "10", .min = 0, .max = 1e9,
     .resume = PL_RESUME_ONWARD,
     .doc = "Evaluations without improvement, after the warm-up, before the learning rate is "
            "lowered."},
    {"schedule.plateau.threshold", PL_CONFIG_FLOAT, "1e-4", .min = 0, .max = 1,
     .resume = PL_RESUME_ONWARD,
     .doc = "Smallest relative improvement of an evaluation that counts for the plateau rule."},
    {"schedule.plateau.min_lr", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e6,
     .resume = PL_RESUME_ONWARD, .doc = "The plateau rule does not go below this learning rate."},
    {"schedule.plateau.metric", PL_CONFIG_TEXT, "loss", .resume = PL_RESUME_ONWARD,
     .doc = "Evaluation output that the plateau rule watches; lower is better."},

    {"clip.norm", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_ONWARD,
     .doc = "Limit of the global gradient norm; 0: no clipping."},
    {"guard.spike", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_SAME,
     .doc = "Skip the update of a step whose gradient norm is more than this many times the usual "
            "norm, or whose loss exceeds the usual loss by more than this many times its size; 0: "
            "off."},
    {"guard.action", PL_CONFIG_CHOICE, "skip", .choices = "skip|rollback|stop",
     .resume = PL_RESUME_ONWARD,
     .doc = "After a skipped update: continue with the next batch (skip), also return to the "
            "weights of the last checkpoint (rollback), or end the run (stop)."},
    {"guard.window", PL_CONFIG_INT, "50", .min = 1, .max = 1e9, .resume = PL_RESUME_ONWARD,
     .doc = "Steps over which the usual gradient norm and loss are averaged."},
    {"guard.warmup", PL_CONFIG_INT, "20", .min = 1, .max = 1e9, .resume = PL_RESUME_ONWARD,
     .doc = "Number of first steps in which the guard skips only updates that are not finite."},
    {"guard.limit", PL_CONFIG_INT, "5", .min = 1, .max = 1e9, .resume = PL_RESUME_ONWARD,
     .doc = "Largest number of skipped updates in a row; one more ends the run."},
    {"loss_scale.initial", PL_CONFIG_FLOAT, "65536", .min = 1e-30, .max = 1e30,
     .resume = PL_RESUME_ONWARD,
     .doc = "fp16: initial loss scale: the loss is multiplied by it, gradients are divided by it."},
    {"loss_scale.growth", PL_CONFIG_FLOAT, "2", .min = 1, .max = 1e6, .resume = PL_RESUME_ONWARD,
     .doc = "fp16: the loss scale is multiplied by this after loss_scale.interval steps without "
            "overflow."},
    {"loss_scale.backoff", PL_CONFIG_FLOAT, "0.5", .min = 1e-6, .max = 1,
     .resume = PL_RESUME_ONWARD,
     .doc = "fp16: the loss scale is multiplied by this when gradients overflow; that step updates "
            "nothing."},
    {"loss_scale.interval", PL_CONFIG_INT, "2000", .min = 1, .max = 1e9, .resume = PL_RESUME_ONWARD,
     .doc = "fp16: steps without overflow before the loss scale grows."},
    {"loss_scale.floor", PL_CONFIG_FLOAT, "1", .min = 1e-30, .max = 1e30,
     .resume = PL_RESUME_ONWARD,
     .doc = "fp16: smallest loss scale; overflow at this value stops the run."},
    {"ema.decay", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1, .resume = PL_RESUME_ONWARD,
     .doc = "Decay of an exponential moving average of the weights, written to "
            "model_ema.safetensors; 0: off."},

    {"eval.every", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc = "Steps between evaluations; 0: only at the end."},
    {"eval.batches", PL_CONFIG_INT, "16", .min = 1, .max = 1e9, .resume = PL_RESUME_FREE,
     .doc = "Largest number of batches per evaluation; a partial last batch is weighted by its "
            "number of samples."},
    {"eval.ema", PL_CONFIG_BOOL, "false", .resume = PL_RESUME_FREE,
     .doc = "Evaluate and sample with the averaged weights (ema.decay)."},
    {"sample.every", PL_CONFIG_INT, "0", .min = 0, .max = 1e12, .resume = PL_RESUME_FREE,
     .doc =
         "Steps between images and arrays from the recipe's sampling program, in RUN/samples; 0: "
         "none."},
    {"sample.count", PL_CONFIG_INT, "4", .min = 1, .max = 1024, .resume = PL_RESUME_FREE,
     .doc = "Samples in each of these images, side by side; rows in each array."},
    {"data.source", PL_CONFIG_CHOICE, "auto", .choices = "auto|synthetic|arrays|folder|tar",
     .cache = PL_CACHE_VALUE,
     .doc = "Where samples come from; auto: recognised from the files at data.path; without "
            "data.path, the recipe's own data (docs/DATA.md)."},
    {"data.path", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_VALUE,
     .doc =
         "Data set on disk: arrays, images in folders, tar shards; null: the recipe's own data."},
    {"data.fields", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_VALUE,
     .doc = "Files with several arrays: which array feeds which input, "
            "\"frames=Product/Signal,target=base\"."},
    {"data.folds", PL_CONFIG_INT, "0", .min = 0, .max = 1e6,
     .doc = "Cross-validation: number of folds of consecutive training samples; 0: none."},
    {"data.fold", PL_CONFIG_INT, "0", .min = 0, .max = 1e6,
     .doc = "data.folds: number of the fold to leave out of training; evaluations read only this "
            "fold."},
    {"data.workers", PL_CONFIG_INT, "null", .min = 0, .max = 256, .resume = PL_RESUME_FREE,
     .doc =
         "Threads that read batches ahead; 0: read between steps; null: 1 for images, several on "
         "a GPU, else 0."},
    {"data.prefetch", PL_CONFIG_INT, "null", .min = 1, .max = 4096, .resume = PL_RESUME_FREE,
     .doc = "Batches to keep ready; null: data.workers + 1."},
    {"data.captions", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_FILE,
     .doc = "Images: caption file, one line per image (name, tab, caption), or .jsonl with "
            "file_name and text."},
    {"data.eval_share", PL_CONFIG_FLOAT, "0.05", .min = 0, .max = 1, .cache = PL_CACHE_VALUE,
     .doc = "Fraction of a data set without evaluation files that is held out for evaluation, by a "
            "hash of the image's name or the row's number."},
    {"data.classes", PL_CONFIG_CHOICE, "auto", .choices = "auto|data",
     .doc = "Images: where class names come from: the model file of init_from if it has class "
            "names, otherwise the data (auto); always the data, for a new last layer (data)."},
    {"data.balance", PL_CONFIG_BOOL, "false", .doc = "Images: draw every class equally often."},
    {"data.crop", PL_CONFIG_CHOICE, "center", .choices = "center|random|stretch|pixels|resized",
     .cache = PL_CACHE_VALUE,
     .doc = "Images: which part of the image is used: the centre square (center), a random part "
            "(random), all of it with changed proportions (stretch), an unscaled crop at a random "
            "position (pixels), or torchvision's RandomResizedCrop (resized)."},
    {"data.crop_area", PL_CONFIG_FLOATS, "[0.08, 1]", .min = 1e-4, .max = 1,
     .doc = "Images, data.crop=resized: range of the crop's area, as a fraction of the image's."},
    {"data.crop_ratio", PL_CONFIG_FLOATS, "[0.75, 1.3333333333]", .min = 0.01, .max = 100,
     .doc = "Images, data.crop=resized: range of the crop's width over its height."},
    {"data.eval_size", PL_CONFIG_FLOAT, "1", .min = 0.01, .max = 1, .cache = PL_CACHE_VALUE,
     .doc = "Images: side of the centre crop of evaluations and predictions, as a fraction of the "
            "largest (0.875: 224 of 256 pixels)."},
    {"data.resize_side", PL_CONFIG_INT, "null", .min = 1, .max = 65535, .cache = PL_CACHE_VALUE,
     .doc = "Images: resize the shorter side to this many pixels and cut the picture out of the "
            "middle, in evaluations, predictions and data.crop=center (torchvision: Resize and "
            "CenterCrop), or anywhere in training with data.crop=pixels (RandomCrop); null: "
            "data.eval_size."},
    {"data.mask_values", PL_CONFIG_INTS, "null", .min = 0, .max = 255,
     .doc = "Images with masks: pixel value of each class in the PNG masks, [0, 255]; null: 0, 1, "
            "2, ..., where pixels with 255 are ignored."},
    {"data.crop_scale", PL_CONFIG_FLOATS, "[1, 1]", .min = 0.01, .max = 1,
     .doc = "Images, data.crop=random: range of the crop's side, as a fraction of the largest "
            "possible."},
    {"data.resize", PL_CONFIG_CHOICE, "auto", .choices = "auto|triangle|lanczos",
     .cache = PL_CACHE_VALUE,
     .doc = "Images: antialiased scaling filter, PIL's BILINEAR (triangle) or LANCZOS; auto: the "
            "recipe's choice, else triangle."},
    {"data.upscaled", PL_CONFIG_BOOL, "true", .cache = PL_CACHE_VALUE,
     .doc = "Images in folders: use larger versions that lie beside them (ups_x.webp for x.jpg), "
            "for recipes that define them."},
    {"data.flip", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "Images: horizontal-flip probability."},
    {"data.jitter", PL_CONFIG_FLOATS, "[0, 0, 0, 0]", .min = 0, .max = 1,
     .doc = "Images: largest random change of brightness, contrast, saturation (relative) and hue "
            "(full turns)."},
    {"data.erase", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1,
     .doc = "Images: probability that a random rectangle of 2 to 33 % of the area is set to zero."},
    {"data.rand_augment", PL_CONFIG_INT, "0", .min = 0, .max = 8,
     .doc = "Images: RandAugment of torchvision: number of operations per picture (torchvision: "
            "2); 0: off."},
    {"data.rand_augment_strength", PL_CONFIG_INT, "9", .min = 0, .max = 30,
     .doc = "data.rand_augment: strength of the operations (torchvision: magnitude)."},
    {"data.mixup", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1000,
     .doc = "Classification: mixup: each picture of a batch becomes a weighted sum with the "
            "picture before it; the weight is drawn from Beta(a, a), and this key is a; 0: off."},
    {"data.cutmix", PL_CONFIG_FLOAT, "0", .min = 0, .max = 1000,
     .doc = "Classification: CutMix: each picture of a batch gets a rectangle of the picture "
            "before it; the area is drawn from Beta(a, a), and this key is a; 0: off. With "
            "data.mixup each batch uses one of the two, at random."},
    {"data.pool", PL_CONFIG_INT, "0", .min = 0, .max = 1e9,
     .doc = "Shuffle buffer of this many samples: batches are drawn from it at random and refilled "
            "with the next samples; 0: off."},
    {"data.buckets", PL_CONFIG_TEXTS, "null",
     .doc = "Images: sizes of batches as height x width, [512x512, 448x576]; [auto]: from "
            "data.bucket_*."},
    {"data.bucket_area", PL_CONFIG_INT, "null", .min = 1, .max = 4e9,
     .doc =
         "data.buckets=[auto]: largest number of pixels per image; null: as many as the recipe's "
         "image size."},
    {"data.bucket_step", PL_CONFIG_INT, "64", .min = 1, .max = 4096,
     .doc = "data.buckets=[auto]: sides are multiples of this many pixels."},
    {"data.bucket_aspect", PL_CONFIG_FLOAT, "2", .min = 1, .max = 16,
     .doc = "data.buckets=[auto]: largest ratio of the longer to the shorter side."},
    {"data.cache", PL_CONFIG_TEXT, "null",
     .doc = "Folder with outputs of the recipe's frozen encoder, written by `plimsoll cache`."},
    {"data.cache_model", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_WEIGHTS,
     .doc = "Weights of that encoder (safetensors); null: initial values from the seed."},
    {"data.cache_dtype", PL_CONFIG_CHOICE, "f32", .choices = "f32|bf16|f16",
     .cache = PL_CACHE_VALUE, .doc = "Number format in the cache's files."},
    {"data.prompts", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_FILE,
     .doc = "File of prompts, one per line; without data.path each prompt is a sample, for recipes "
            "that take text."},
    {"data.embeddings", PL_CONFIG_TEXT, "null", .cache = PL_CACHE_FILE,
     .doc = "Array with the embedding of each line of data.prompts; captions of images are looked "
            "up by their text."},
    {"data.on_bad", PL_CONFIG_CHOICE, "fail", .choices = "fail|skip|quarantine",
     .cache = PL_CACHE_VALUE,
     .doc = "Images that cannot be read: stop (fail), use another image (skip), or also record the "
            "name (quarantine)."},
    {"data.sandbox", PL_CONFIG_CHOICE, "auto", .choices = "auto|on|off", .resume = PL_RESUME_FREE,
     .doc = "Decode images and HDF5 files in processes that cannot reach files or the network: if "
            "the system supports it (auto), always, or stop with an error (on), never (off)."},
    {"data.quarantine", PL_CONFIG_TEXT, "quarantine.txt", .cache = PL_CACHE_VALUE,
     .doc = "data.on_bad=quarantine: file of recorded names; later runs skip these images."},
    {"data.max_pixels", PL_CONFIG_INT, "64000000", .min = 1, .max = 4e9, .cache = PL_CACHE_VALUE,
     .doc = "Images with more pixels are treated as unreadable."},
    {"data.large_memory", PL_CONFIG_SIZE, "8MB", .min = 0, .max = 1e15, .resume = PL_RESUME_FREE,
     .doc = "Images: memory for files that need more than the scratch memory of a reading thread; "
            "the plan reserves it. Within a budget, a file that needs more is refused before it is "
            "decoded."},
    {"data.min_side", PL_CONFIG_INT, "8", .min = 1, .max = 65535, .cache = PL_CACHE_VALUE,
     .doc = "Images with a shorter side, in pixels, are treated as unreadable."},
    {"data.min_bytes", PL_CONFIG_INT, "0", .min = 0, .max = 1e9, .cache = PL_CACHE_VALUE,
     .doc = "Images with a smaller file, in bytes, are treated as unreadable."},
    {"data.allow_nonfinite", PL_CONFIG_BOOL, "false", .resume = PL_RESUME_FREE,
     .cache = PL_CACHE_VALUE,
     .doc = "Accept NaN and infinite values in batches instead of stopping."},
    {0},
};
