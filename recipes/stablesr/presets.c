/* presets.c - the configurations that come with the stablesr recipe: presets/NAME.yaml is
 * stablesr/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "stablesr.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/stablesr/presets/"
#define PRESETS(P)                                                                                               \
 P(tiny, "tiny", "seconds on a CPU; the sizes of the PyTorch program's test")                                    \
 P(pictures, "pictures", "tiny, from images: degraded while they are read, encoded in the step")                 \
 P(full, "full", "the authors' step: 6 x 2, SD 2.1 U-Net frozen, 107,544,276 parameters trained")                \
 P(full_pictures, "full_pictures",                                                                               \
   "full, from a folder of images (data.path): the authors' degradation, shuffle buffer and frozen autoencoder") \
 P(card24, "card24", "the authors' step within 24 GB")                                                           \
 P(full_before, "full_before",                                                                                   \
   "full with the original 1024-channel edge processor, batch 6, 24 GB")                                         \
 P(vae, "vae", "the frozen autoencoder alone, 83,653,863 parameters: to inspect or to fine-tune")                \
 P(edge_before, "edge_before",                                                                                   \
   "the run that exceeded the authors' GPU: 1024-channel edge processor, batch 6, 24 GB")                        \
 P(edge_after, "edge_after", "the authors' replacement: 2,006,076 parameters, batch 6")

PRESETS(PL_PRESET_EMBED)
const pl_preset sr_presets[] = {PRESETS(PL_PRESET_ROW){0}};
