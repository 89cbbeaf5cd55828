/* presets.c - the configurations that come with the fluxflow recipe: presets/NAME.yaml is fluxflow/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "fluxflow.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/fluxflow/presets/"
#define PRESETS(P)                                                                                  \
 P(tiny, "tiny", "seconds on a CPU: 16 x 16 images, the networks in small")                         \
 P(peer, "peer", "what the PyTorch peer's toy runs: the authors' behaviour, constant rates")        \
 P(full, "full",                                                                                    \
   "the authors' sizes: 1024 x 1024, batch 2, 106,654,104 parameters and a discriminator")          \
 P(phase1, "phase1",                                                                                \
   "the authors' own first run: RMSprop, no discriminator, no LPIPS, KL switched off by its floor") \
 P(card24, "card24", "the same on a 24 GB card")                                                    \
 P(flow_tiny, "flow-tiny", "seconds on a CPU: the flow stage alone, in small")                      \
 P(flow, "flow",                                                                                    \
   "the authors' flow stage: 1024 x 1024, batch 2, 5,373,824 parameters, compressor as it is")      \
 P(flow8, "flow8", "the same on an 8 GB card")                                                      \
 P(pipeline, "pipeline",                                                                            \
   "the authors' stages one after the other: autoencoder, with SPADE and discriminator, flow")      \
 P(pipeline_tiny, "pipeline-tiny", "the same in small, seconds on a CPU")

PRESETS(PL_PRESET_EMBED)
const pl_preset flux_presets[] = {PRESETS(PL_PRESET_ROW){0}};
