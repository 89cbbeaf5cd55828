/* presets.c - the configurations that come with the fluxflow recipe. */
#include "fluxflow.h"

const pl_preset flux_presets[] = {
    {"tiny", "seconds on a CPU: 16 x 16 images, the networks in small", "\
recipe: fluxflow\n\
batch: 2\n\
image: 16\n\
model: {dim: 32, scales: 2, layers: 1, heads: 2, rgb: [16, 8]}\n\
gan: {base: 8, depth: 2}\n\
lpips: {widths: [8, 8, 16, 16, 16]}\n\
loss: {kl_beta: 0.01, kl_warmup: 100, r1_interval: 4}\n\
optim: {name: adamw, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.01}\n\
optim_d: {name: adamw, lr: 2e-4, betas: [0, 0.9], weight_decay: 0.001, amsgrad: true}\n\
clip: {norm: 1}\n\
ema: {decay: 0.99}\n\
train: {steps: 200, log_every: 20}\n\
eval: {batches: 8}\n\
data: {samples: 512, eval_samples: 32}\n"},
    {"peer", "what the PyTorch peer's toy runs: the authors' behaviour, constant rates", "\
extends: fluxflow/tiny\n\
batch: 2\n\
seed_compat: true\n\
optim_flow: {name: lion, lr: 1e-4, betas: [0.9, 0.95], weight_decay: 0.01, clip: {norm: 1}, ema: {decay: 0.9999}}\n\
loss: {kl_beta: 1e-4, kl_warmup: 8, r1_interval: 2, first_step: 2}\n\
optim: {lr: 1e-4}\n\
optim_d: {lr: 1e-4}\n\
ema: {decay: 0.999}\n"},
    {"full", "the authors' sizes: 1024 x 1024, batch 2, 106,654,104 parameters and a discriminator",
     "\
recipe: fluxflow\n\
# Sizes, losses and optimisers are the authors' defaults; rates fall to a tenth along a cosine.\n\
batch: 2\n\
image: 1024\n\
model: {dim: 128, scales: 4, layers: 4, heads: 8, rgb: [96, 48]}\n\
gan: {base: 64, depth: 4, noise_std: 0.01, noise_decay: 0.9999}\n\
lpips: {widths: [64, 128, 256, 512, 512]}\n\
loss: {kl_beta: 1e-4, kl_warmup: 5000, r1_gamma: 5, r1_interval: 16}\n\
optim: {name: adamw, lr: 5e-7, betas: [0.9, 0.95], weight_decay: 0.01}\n\
schedule: {name: cosine, eta_min: 5e-8}\n\
optim_d: {name: adamw, lr: 5e-7, betas: [0, 0.9], weight_decay: 0.001, amsgrad: true, schedule: {name: cosine, eta_min: 5e-8}}\n\
clip: {norm: 1}\n\
ema: {decay: 0.999}\n\
train: {steps: 100000, log_every: 10}\n\
eval: {batches: 8}\n\
data: {samples: 100000, eval_samples: 64}\n"},
    {"phase1",
     "the authors' own first run: RMSprop, no discriminator, no LPIPS, KL switched off by its floor",
     "\
extends: fluxflow/full\n\
gan.on: false\n\
lpips.on: false\n\
loss.kl_free_bits: 1024\n\
optim: {name: rmsprop, lr: 1e-5, alpha: 0.95, momentum: 0.9, centered: true, weight_decay: 0}\n\
schedule: {name: cosine, eta_min: 1e-6}\n"},
    {"card24", "the same on a 24 GB card", "\
extends: fluxflow/full\n\
device: cuda\n\
memory: 24GB\n"},
    {"flow-tiny", "seconds on a CPU: the flow stage alone, in small", "\
extends: fluxflow/tiny\n\
batch: 4\n\
vae.on: false\n\
gan.on: false\n\
lpips.on: false\n\
flow: {on: true, width: 32, heads: 4, layers: 2, text: 24}\n\
optim_flow: {name: lion, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.01, clip: {norm: 1}, ema: {decay: 0.99}}\n"},
    {"flow",
     "the authors' flow stage: 1024 x 1024, batch 2, 5,373,824 parameters, compressor as it is", "\
extends: fluxflow/full\n\
# The compressor comes from the autoencoder's stage: init_from=RUN/model.safetensors.\n\
vae.on: false\n\
gan.on: false\n\
lpips.on: false\n\
flow: {on: true, width: 128, heads: 8, layers: 10, text: 1024}\n\
optim_flow: {name: lion, lr: 5e-7, betas: [0.9, 0.95], weight_decay: 0.01, clip: {norm: 1}, ema: {decay: 0.9999}, schedule: {name: cosine, eta_min: 5e-8}}\n"},
    {"flow8", "the same on an 8 GB card", "\
extends: fluxflow/flow\n\
device: cuda\n\
memory: 8GB\n"},
    {"pipeline",
     "the authors' stages one after the other: autoencoder, with SPADE and discriminator, flow", "\
extends: fluxflow/full\n\
# A stage freezes what it does not train; the first may end early, as transition_on: loss_threshold does.\n\
flow: {width: 128, heads: 8, layers: 10, text: 1024}\n\
optim_flow: {name: lion, lr: 5e-7, betas: [0.9, 0.95], weight_decay: 0.01, clip: {norm: 1}, ema: {decay: 0.9999}, schedule: {name: cosine, eta_min: 5e-8}}\n\
phases:\n\
  - name: vae\n\
    until: {steps: 100000, reach: 'loss < 0.1'}\n\
    set: {gan.on: false, lpips.on: false, spade.on: false, eval.every: 2000}\n\
  - name: gan\n\
    until: {steps: 100000}\n\
    set: {gan.on: true, lpips.on: true, spade.on: true}\n\
  - name: flow\n\
    until: {steps: 100000}\n\
    set: {vae.on: false, gan.on: false, lpips.on: false, flow.on: true, sample.every: 2000}\n"},
    {"pipeline-tiny", "the same in small, seconds on a CPU", "\
extends: fluxflow/tiny\n\
eval.batches: 2\n\
optim.lr: 3e-3\n\
flow: {width: 32, heads: 4, layers: 2, text: 24, sample_steps: 4}\n\
optim_flow: {name: lion, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.01, clip: {norm: 1}, ema: {decay: 0.99}}\n\
phases:\n\
  - name: vae\n\
    until: {steps: 40, reach: 'loss < 0.41'}\n\
    set: {gan.on: false, lpips.on: false, spade.on: false, eval.every: 4}\n\
  - name: gan\n\
    until: {steps: 6}\n\
    set: {gan.on: true, lpips.on: true, spade.on: true}\n\
  - name: flow\n\
    until: {steps: 40}\n\
    set: {vae.on: false, gan.on: false, lpips.on: false, flow.on: true, sample.every: 40, batch: 4}\n"},
    {NULL, NULL, NULL},
};
