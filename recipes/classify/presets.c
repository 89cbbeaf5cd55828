/* presets.c - the presets of the classify recipe, presets/NAME.yaml is classify/NAME, and its
 * source files for `plimsoll new --from classify`. The first preset is the default. */
#include "classify.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/classify/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "a narrow ResNet at 32 pixels; a minute on a CPU")                                \
 P(small, "small", "ResNet-18 at 128 pixels; on a CPU with published weights")                     \
 P(card8, "card8", "ResNet-50 at 224 pixels, 8 GB of GPU memory")                                  \
 P(card24, "card24", "ConvNeXt-T at 224 pixels, 24 GB of GPU memory")

PRESETS(PL_PRESET_EMBED)
const pl_preset classify_presets[] = {PRESETS(PL_PRESET_ROW){0}};

#define PL_SOURCES_IN "recipes/classify/"
#define SOURCES(S)                                                                                 \
 S(classify_c, "classify.c")                                                                       \
 S(networks_c, "networks.c")                                                                       \
 S(shapes_c, "shapes.c")                                                                           \
 S(predict_c, "predict.c")                                                                         \
 S(presets_c, "presets.c")                                                                         \
 S(classify_h, "classify.h")                                                                       \
 S(tiny_yaml, "presets/tiny.yaml")                                                                 \
 S(small_yaml, "presets/small.yaml")                                                               \
 S(card8_yaml, "presets/card8.yaml")                                                               \
 S(card24_yaml, "presets/card24.yaml")

SOURCES(PL_SOURCE_EMBED)
const pl_source_file classify_sources[] = {SOURCES(PL_SOURCE_ROW){0}};
