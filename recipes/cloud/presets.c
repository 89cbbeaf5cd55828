/* presets.c - the configurations that come with the cloud recipe.
 *
 * `full` and `memory_optimized` are the authors' two. Their mistakes are mended, each where it
 * stands; what the mending changes is said in the comment.
 */
#include "cloud.h"

const pl_preset cloud_presets[] = {
    {"demo", "learns visibly in about a minute on a CPU", "\
# Small frames and a narrow network: a look at the whole engine in about a minute.\n\
recipe: cloud\n\
batch: 32\n\
frames: 3\n\
height: 32\n\
width: 48\n\
model: {channels: [16, 32, 64], dense: [64, 32], film_hidden: 32, dropout_conv: 0.05, dropout_dense: [0.1, 0.05]}\n\
optim: {name: adamw, lr: 3e-3, weight_decay: 0.01}\n\
schedule: {name: cosine, warmup_steps: 20}\n\
train: {steps: 1600, log_every: 100}\n\
eval: {every: 400, batches: 8}\n\
data: {samples: 8192, eval_samples: 256}\n"},
    {"tiny", "seconds on a CPU; the sizes of the PyTorch peer's toy", "\
# The mean loss of the last 20 of 200 steps is below 0.8 times that of the first 20.\n\
recipe: cloud\n\
batch: 4\n\
frames: 3\n\
height: 24\n\
width: 32\n\
model: {channels: [8, 16, 32], dense: [32, 16], film_hidden: 16}\n\
optim: {name: adamw, lr: 1e-3, weight_decay: 0.04}\n\
train: {steps: 50, log_every: 10}\n\
eval: {batches: 8}\n\
data: {samples: 512, eval_samples: 64}\n"},
    {"full", "the authors' full model: batch 20, 5 frames of 440 x 640, 536,846 parameters", "\
recipe: cloud\n\
# 20 stacks of 5 frames a step, as the authors want it on a 15 GB card.\n\
batch: 20\n\
frames: 5\n\
height: 440\n\
width: 640\n\
model: {channels: [64, 128, 256], dense: [256, 128], film_hidden: 256, dropout_conv: 0.25, dropout_dense: [0.5, 0.3]}\n\
loss: {huber_delta: 1, mining_fraction: 0.35, mining_factor: 1.5}\n\
optim: {name: adamw, lr: 1e-3, weight_decay: 0.04}\n\
schedule:\n\
  # Mended: the original steps its schedule once an epoch while it counts the warm-up in steps, so\n\
  # 2000 steps of warm-up last 2000 epochs and the rate never leaves them (2.5e-5 after 50 epochs).\n\
  # Here warm-up counts optimiser steps, and so does everything after it. seed_compat: true is the original's.\n\
  warmup_steps: 2000\n\
  warmup_start: 0.0005\n\
  plateau: {factor: 0.5, patience: 15, min_lr: 1e-6, metric: loss}\n\
train: {steps: 20000, log_every: 10}\n\
eval: {every: 500, batches: 16}\n\
# Mended: with per-frame checkpoints the original updates BatchNorm's running statistics twice a step\n\
# (once more in the recomputation). Here they are composed over the frames and assigned once.\n\
# Mended: the original keeps the best model by moving all parameters to the host and back, a second\n\
# copy that also invalidates captured graphs. Here weights are written to disk from where they lie.\n\
# Mended: attention maps of every frame stay alive on the module until the next forward pass; here\n\
# they die at their last use.\n\
data: {samples: 4096, eval_samples: 320}\n"},
    {"memory_optimized",
     "the authors' smaller model: batch 16, half the channels, 143,886 parameters", "\
# The authors cut the network to fit their card. The sizes are theirs; the mended points are those\n\
# of the full preset.\n\
extends: cloud/full\n\
batch: 16\n\
model: {channels: [32, 64, 128], dense: [128, 64]}\n"},
    {"phases", "pretrain, train, leave one part out: the authors' three phases at toy sizes", "\
# The authors pretrain on one flight, train on all with that one counting 3.5 times, and may leave one out after\n\
# the other. With their files: data.flights, and data.train_flights, data.eval_flights, data.heavy_flights in a phase's set.\n\
extends: cloud/tiny\n\
phases:\n\
  - {name: pretrain, until: {steps: 30, patience: 15}, set: {data.samples: 64, eval.every: 10}}\n\
  - {name: final, until: {steps: 40, patience: 15}, set: {eval.every: 10, optim.lr: 5e-4}}\n\
  - {name: loo, start: final, folds: 3, until: {steps: 20}}\n"},
    {"flights",
     "the authors' run over their flights (data.flights): pretrain on one, then all with that one counting more",
     "\
# plimsoll train cloud/flights data.flights=FOLDER; `plimsoll generate cloud/full --raw --out FOLDER` makes one up.\n\
# Epochs and patience are the authors'; the first flight has 501 samples of theirs, 20 steps an epoch.\n\
extends: cloud/full\n\
augment: {flip: 0.5, jitter: 0.2, erase: 0.5}\n\
stop: {threshold: 0.00025}\n\
phases:\n\
  # Of the first flight the last fifth of the samples is evaluated on.\n\
  - {name: pretrain, until: {epochs: 50, patience: 15}, set: {data.train_flights: 30Oct24, eval.every: 20, schedule.warmup_steps: 200}}\n\
  # Here an epoch has the first flight's samples seven times and the others' twice, about three of the authors'.\n\
  - {name: final, until: {epochs: 15, patience: 15}, set: {data.eval_flights: 12Feb25, data.heavy_flights: 30Oct24, eval.every: 100}}\n"},
    {"t4", "the full model for the authors' 15 GB card in fp16, planned for it", "\
extends: cloud/full\n\
precision: fp16\n\
memory: 15GB\n"},
    {NULL, NULL, NULL},
};
