/* presets.c - the configurations that come with the fluxflow recipe: presets/NAME.yaml is
 * fluxflow/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "fluxflow.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/fluxflow/presets/"
#define PRESETS(P)                                                                                  \
 P(tiny, "tiny", "seconds on a CPU: 16 x 16 images, small networks")                                \
 P(peer, "peer", "settings of the PyTorch program's test: the authors' behaviour, constant rates")  \
 P(full, "full",                                                                                    \
   "the authors' sizes: 1024 x 1024, batch 2, 106,654,104 parameters and a discriminator")          \
 P(phase1, "phase1",                                                                                \
   "the authors' own first run: RMSprop, no discriminator, no LPIPS, KL switched off by its floor") \
 P(card24, "card24", "full within 24 GB of GPU memory")                                             \
 P(flow_tiny, "flow-tiny", "seconds on a CPU: the flow stage alone, small")                         \
 P(flow, "flow",                                                                                    \
   "the authors' flow stage: 1024 x 1024, batch 2, 5,373,824 parameters, frozen compressor")        \
 P(flow8, "flow8", "flow within 8 GB of GPU memory")                                                \
 P(pipeline, "pipeline",                                                                            \
   "the authors' stages in order: autoencoder; with SPADE and discriminator; flow")                 \
 P(pipeline_tiny, "pipeline-tiny", "pipeline with small networks, seconds on a CPU")

PRESETS(PL_PRESET_EMBED)
const pl_preset flux_presets[] = {PRESETS(PL_PRESET_ROW){0}};
