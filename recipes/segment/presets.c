/* presets.c - the presets of the segment recipe, presets/NAME.yaml is segment/NAME, and its source
 * files for `plimsoll new --from segment`. The first preset is the default. */
#include "segment.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/segment/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "a narrow U-Net at 32 pixels; a minute on a CPU")                                 \
 P(small, "small", "a U-Net of width 32 at 256 pixels")                                            \
 P(card8, "card8", "the published U-Net at 512 pixels, 8 GB of GPU memory")                        \
 P(card24, "card24", "the published U-Net at 768 pixels, 24 GB of GPU memory")

PRESETS(PL_PRESET_EMBED)
const pl_preset segment_presets[] = {PRESETS(PL_PRESET_ROW){0}};

#define PL_SOURCES_IN "recipes/segment/"
#define SOURCES(S)                                                                                 \
 S(segment_c, "segment.c")                                                                         \
 S(unet_c, "unet.c")                                                                               \
 S(blobs_c, "blobs.c")                                                                             \
 S(predict_c, "predict.c")                                                                         \
 S(presets_c, "presets.c")                                                                         \
 S(segment_h, "segment.h")                                                                         \
 S(tiny_yaml, "presets/tiny.yaml")                                                                 \
 S(small_yaml, "presets/small.yaml")                                                               \
 S(card8_yaml, "presets/card8.yaml")                                                               \
 S(card24_yaml, "presets/card24.yaml")

SOURCES(PL_SOURCE_EMBED)
const pl_source_file segment_sources[] = {SOURCES(PL_SOURCE_ROW){0}};
