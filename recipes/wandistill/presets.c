/* presets.c - the configurations that come with the wandistill recipe. */
#include "wandistill.h"

const pl_preset wan_presets[] = {
    {"tiny", "seconds on a CPU; the sizes of the PyTorch peer's toy", "\
# The mean loss of the last 20 of 200 steps is below 0.8 times that of the first 20.\n\
recipe: wandistill\n\
batch: 2\n\
latent: 8\n\
text: {tokens: 6, dim: 24}\n\
student: {hidden: 32, depth: 2, heads: 2}\n\
teacher: {dim: 48, ffn: 64, heads: 2, layers: 2, freq: 16, dtype: fp32}\n\
optim: {name: adamw, lr: 3e-3, weight_decay: 0.01}\n\
train: {steps: 200, log_every: 20}\n\
eval: {batches: 4}\n\
data: {samples: 256, eval_samples: 16}\n"},
    {"full",
     "the authors' student: 214,203,396 parameters, batch 2; a teacher of 1.4 billion in bf16", "\
recipe: wandistill\n\
batch: 2\n\
latent: 64\n\
text: {tokens: 226, dim: 4096}\n\
student: {hidden: 1024, depth: 16, heads: 16}\n\
teacher: {dim: 1536, ffn: 8960, heads: 12, layers: 30, freq: 256, dtype: bf16}\n\
optim: {name: adamw, lr: 1e-5, weight_decay: 0.01}\n\
# Mended: the original's number of steps is read and ignored.\n\
train: {steps: 500, log_every: 10}\n\
eval: {every: 100, batches: 8}\n\
data: {samples: 2081, eval_samples: 54}\n"},
    {"card16", "batch 2 with the teacher on the same 16 GB card", "\
extends: wandistill/full\n\
memory: 16GB\n"},
    {"small", "the authors' test configuration: 4,752,132 parameters, latents of 16", "\
extends: wandistill/full\n\
latent: 16\n\
student: {hidden: 256, depth: 4, heads: 4}\n"},
    {"a14b", "the real teacher's size: 14.3 billion parameters, 28.6 GB in bf16", "\
extends: wandistill/full\n\
teacher: {dim: 5120, ffn: 13824, heads: 40, layers: 40}\n"},
    {NULL, NULL, NULL},
};
