/* presets.c - the presets of the regress recipe: presets/NAME.yaml is regress/NAME. The first is
 * the default. To add one, write its file and add its line here. */
#include "regress.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/regress/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "two layers of 32; a second on a CPU")                                            \
 P(small, "small", "three layers of 256 with layer norm and dropout; a minute on a CPU")

PRESETS(PL_PRESET_EMBED)
const pl_preset regress_presets[] = {PRESETS(PL_PRESET_ROW){0}};
