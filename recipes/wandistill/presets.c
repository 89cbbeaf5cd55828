/* presets.c - the configurations that come with the wandistill recipe: presets/NAME.yaml is
 * wandistill/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "wandistill.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/wandistill/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "seconds on a CPU; the sizes of the PyTorch program's test")                      \
 P(full, "full",                                                                                   \
   "the authors' student: 214,203,396 parameters, batch 2; a teacher of 1.4 billion in bf16")      \
 P(card16, "card16", "batch 2 with the teacher on one GPU, within 16 GB")                          \
 P(small, "small", "the authors' test configuration: 4,752,132 parameters, latents of 16")         \
 P(a14b, "a14b", "the real teacher's size: 14.3 billion parameters, 28.6 GB in bf16")

PRESETS(PL_PRESET_EMBED)
const pl_preset wan_presets[] = {PRESETS(PL_PRESET_ROW){0}};
