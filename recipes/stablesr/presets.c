/* presets.c - the configurations that come with the stablesr recipe. */
#include "stablesr.h"

#define TINY_SIZES                                                                                 \
 "\
image: 64\n\
latent: 8\n\
edge: {before: [16, 16, 16, 16, 16], before_down: [16, 8, 8, 4, 4], stem: 8, after: [16, 16, 16], after_down: [8, 8, 4, 4]}\n\
model: {width: 32, mult: [1, 2], attn_levels: 1, head_dim: 16, context: [7, 16], spade_hidden: 16}\n\
struct: {width: 32, mult: [1, 2], out: 32, heads: 2}\n"

const pl_preset sr_presets[] = {
    {"tiny", "seconds on a CPU; the sizes of the PyTorch peer's toy", "\
# The mean loss of the last 20 of 200 steps is below 0.8 times that of the first 20.\n\
recipe: stablesr\n\
part: full\n\
batch: 4\n" TINY_SIZES "\
optim: {name: adamw, lr: 2e-3, weight_decay: 0.01}\n\
train: {steps: 200, log_every: 20}\n\
eval: {batches: 2}\n\
data: {samples: 256, eval_samples: 8}\n"},
    {"pictures", "tiny, from pictures: degraded while they are read, encoded in the step", "\
extends: stablesr/tiny\n\
vae: {encode: true, width: 32, mult: [1, 1, 2, 2]}\n\
data: {samples: 64, eval_samples: 8, crop: pixels, flip: 0.5}\n"},
    {"full", "the authors' step: 6 x 2, SD 2.1 U-Net frozen, 107,544,276 parameters trained", "\
recipe: stablesr\n\
part: full\n\
# Six micro-batches of 2. BatchNorm couples the samples of a micro-batch; the authors' results are those\n\
# of this split, which is therefore asked for.\n\
batch: 12\n\
accumulate: 6\n\
accumulate_coupled: true\n\
# Mended: noise is added to the image's latent, not to the degraded one; edge processor, fusion and the new\n\
# input convolution are trained. seed_compat: true brings both back.\n\
optim: {name: adamw, lr: 5e-5, weight_decay: 0.01}\n\
train: {steps: 5000, log_every: 10}\n\
eval: {every: 500, batches: 4}\n\
data: {samples: 1500, eval_samples: 16}\n"},
    {"full_pictures",
     "full, from a folder of pictures (data.path): the authors' degradation, pool and frozen autoencoder",
     "\
extends: stablesr/full\n\
vae: {encode: true}\n\
# Pictures with a side below 384 and files below 100 kB are passed over, as the authors do; crops are unscaled.\n\
# A pool of 180 pairs mixes what comes; it takes no memory here.\n\
data: {crop: pixels, flip: 0.5, pool: 180, min_side: 384, min_bytes: 100000, on_bad: skip}\n"},
    {"card24", "the authors' step on a 24 GB card", "\
extends: stablesr/full\n\
memory: 24GB\n"},
    {"vae", "the frozen autoencoder alone, 83,653,863 parameters: to look at, or to tune", "\
recipe: stablesr\n\
part: vae\n\
batch: 2\n\
vae: {encode: true}\n\
optim: {name: adamw, lr: 4.5e-6, weight_decay: 0}\n\
train: {steps: 1000, log_every: 10}\n\
eval: {every: 200, batches: 2}\n\
data: {samples: 256, eval_samples: 4}\n"},
    {"edge_before",
     "what ran out of memory: the original 1024-channel edge processor, batch 6, 24 GB", "\
recipe: stablesr\n\
part: edge-before\n\
batch: 6\n\
memory: 24GB\n\
optim: {name: adamw, lr: 5e-5, weight_decay: 0.01}\n\
train: {steps: 5000, log_every: 10}\n\
eval: {every: 500, batches: 2}\n\
data: {samples: 1500, eval_samples: 12}\n"},
    {"edge_after", "the authors' replacement: 2,006,076 parameters, batch 6", "\
extends: stablesr/edge_before\n\
part: edge-after\n\
memory: null\n"},
    {NULL, NULL, NULL},
};
