/* presets.c - the configurations that come with the lgt recipe: presets/NAME.yaml is lgt/NAME.
 *
 * The first preset is the default. To add one, write its file and add its line here.
 */
#include "lgt.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/lgt/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "seconds on a CPU; the sizes of the PyTorch program's test")                      \
 P(peer, "peer", "settings of the PyTorch program's test: average of the initial styles")          \
 P(full, "full",                                                                                   \
   "the authors' model and step: 2 x 32 latents, 10 Euler steps, 20,337,668 parameters")           \
 P(card8, "card8",                                                                                 \
   "the run that exceeded the authors' GPU: batch 240, 10 Euler steps, within 8 GB")               \
 P(baseline, "baseline",                                                                           \
   "the authors' first run: batch 240, 5 Euler steps, all positions, no velocity term")            \
 P(plus, "plus",                                                                                   \
   "LGT++ as the authors ran it: AdaGN blocks, attention, gated skips, patches of 2, 4 and 8; batch 160")

PRESETS(PL_PRESET_EMBED)
const pl_preset lgt_presets[] = {PRESETS(PL_PRESET_ROW){0}};
