/* presets.c - the presets of the regress recipe, presets/NAME.yaml is regress/NAME, and its source
 * files for `plimsoll new --from regress`. The first preset is the default. To add one, write its
 * file and add its lines here. */
#include "regress.h"

#include <plimsoll_embed.h>

#define PL_PRESETS_IN "recipes/regress/presets/"
#define PRESETS(P)                                                                                 \
 P(tiny, "tiny", "two layers of 32; a second on a CPU")                                            \
 P(small, "small", "three layers of 256 with layer norm and dropout; a minute on a CPU")

PRESETS(PL_PRESET_EMBED)
const pl_preset regress_presets[] = {PRESETS(PL_PRESET_ROW){0}};

#define PL_SOURCES_IN "recipes/regress/"
#define SOURCES(S)                                                                                 \
 S(regress_c, "regress.c")                                                                         \
 S(table_c, "table.c")                                                                             \
 S(data_c, "data.c")                                                                               \
 S(predict_c, "predict.c")                                                                         \
 S(presets_c, "presets.c")                                                                         \
 S(regress_h, "regress.h")                                                                         \
 S(tiny_yaml, "presets/tiny.yaml")                                                                 \
 S(small_yaml, "presets/small.yaml")

SOURCES(PL_SOURCE_EMBED)
const pl_source_file regress_sources[] = {SOURCES(PL_SOURCE_ROW){0}};
