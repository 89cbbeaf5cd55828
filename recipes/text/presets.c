/* presets.c - the presets of the text recipe, presets/NAME.yaml is text/NAME, and its source files
 * for `plimsoll new --from text`. The first preset is the default. */
#include "text.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/text/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "2 layers of 64, bytes; a minute on a CPU")                                       \
 P(small, "small", "6 layers of 384 (11 million weights), bytes; for a GPU of 8 GB or patience")   \
 P(card8, "card8", "12 layers of 512, 8 GB of GPU memory")                                         \
 P(card24, "card24", "GPT-2's sizes (124 million weights), 24 GB of GPU memory")

PRESETS(PL_PRESET_EMBED)
const pl_preset text_presets[] = {PRESETS(PL_PRESET_ROW){0}};

#define PL_SOURCES_IN "recipes/text/"
#define SOURCES(S)                                                                                 \
 S(text_c, "text.c")                                                                               \
 S(model_c, "model.c")                                                                             \
 S(data_c, "data.c")                                                                               \
 S(predict_c, "predict.c")                                                                         \
 S(presets_c, "presets.c")                                                                         \
 S(text_h, "text.h")                                                                               \
 S(tiny_yaml, "presets/tiny.yaml")                                                                 \
 S(small_yaml, "presets/small.yaml")                                                               \
 S(card8_yaml, "presets/card8.yaml")                                                               \
 S(card24_yaml, "presets/card24.yaml")

SOURCES(PL_SOURCE_EMBED)
const pl_source_file text_sources[] = {SOURCES(PL_SOURCE_ROW){0}};
