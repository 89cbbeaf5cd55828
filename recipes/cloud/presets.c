/* presets.c - the configurations that come with the cloud recipe: presets/NAME.yaml is cloud/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "cloud.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/cloud/presets/"
#define PRESETS(P)                                                                                               \
 P(demo, "demo", "learns visibly in about a minute on a CPU")                                                    \
 P(tiny, "tiny", "seconds on a CPU; the sizes of the PyTorch program's test")                                    \
 P(full, "full", "the authors' full model: batch 20, 5 frames of 440 x 640, 536,846 parameters")                 \
 P(memory_optimized, "memory_optimized",                                                                         \
   "the authors' smaller model: batch 16, half the channels, 143,886 parameters")                                \
 P(phases, "phases",                                                                                             \
   "pretrain, train, leave one part out: the authors' three phases at toy sizes")                                \
 P(flights, "flights",                                                                                           \
   "the authors' run over their flights (data.flights): pretrain on one, then train on all, repeating that one") \
 P(t4, "t4", "the full model in fp16 within the 15 GB of the authors' GPU")

PRESETS(PL_PRESET_EMBED)
const pl_preset cloud_presets[] = {PRESETS(PL_PRESET_ROW){0}};
