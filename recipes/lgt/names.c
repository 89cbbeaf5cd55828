/* names.c - names of the weights in the authors' checkpoints, epoch_NNNN.pt.
 *
 * Levels are named by the sides of full-size latents, 32 and 16, for every size of the latents.
 * LGT++ has other blocks in the decoder and calls the bottleneck `bottleneck_conv`. Their `up1` is
 * the first layer on the way up, the coarser one; here the number is the level's.
 */
#include "lgt.h"

#include <stdio.h>
#include <string.h>

static const pl_rename rules[] = {
    {"time_embed.mlp.*.*", "model.time.*.*"},
    {"style_embed.embeddings.*", "model.style.*"},
    {"style_embed.avg_embedding", "model.average_style"},
    {"cond_fusion.*.*", "model.fuse.*.*"},
    {"input_proj.*", "model.inp.*"},
    {"output_proj.*.*", "model.out.*.*"},
    {"down*.*", "model.down*.*"},
    {"up1.*", "model.up2.*"},
    {"up2.*", "model.up1.*"},
    {"bottleneck_attn.out_proj.*", "model.attention.out.*"},
    {"bottleneck_attn.*.*", "model.attention.*.*"},
    {"skip_gate_16.gate_mlp.*.*", "model.gate2.*.*"},
    {"skip_gate_32.gate_mlp.*.*", "model.gate1.*.*"},
    {NULL, NULL},
};

/* Our names of parts, and theirs; `adagn`: of the blocks of LGT++. */
typedef struct part {
    const char *ours, *theirs, *adagn;
} part;

static const part blocks[] = {
    {"enc1.", "encoder_blocks_32", NULL}, {"enc2.", "encoder_blocks_16", NULL},
    {"middle.", "bottleneck", NULL},      {"dec2.", "decoder_blocks_16", NULL},
    {"dec1.", "decoder_blocks_32", NULL},
};
static const part layers[] = {
    {"body.0.", "conv1", NULL},
    {"body.1.", "norm1", NULL},
    {"body.3.", "conv2", NULL},
    {"body.4.", "norm2", NULL},
    {"kernel.", "style_conv.hypernet", NULL},
    {"norm.", "norm", NULL},
    {"conv.", "conv1", NULL},
    {"mix.", "conv", "conv2"},
    {"ada.0.", "ada_gn.style_mlp.0", NULL},
    {"ada.2.", "ada_gn.style_mlp.2", NULL},
};

/* The part with which the name begins, which is taken off; NULL: none. */
static const part *find(const part *table, size_t n, const char **name)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(table[i].ours);
        if (strncmp(*name, table[i].ours, length) != 0) continue;
        *name += length;
        return &table[i];
    }
    return NULL;
}

/* A slot of block i of a level: model.LEVEL.i.LAYER.weight. */
static bool map(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    bool plus = pl_config_bool(c, "model.plus"),
         adagn = strcmp(pl_config_text(c, "model.block"), "adagn") == 0;
    if (strncmp(ours, "model.", 6) != 0) return false;
    ours += 6;
    const part *level = find(blocks, sizeof blocks / sizeof *blocks, &ours);
    if (!level) return false;
    int digits = (int)strcspn(ours, ".");
    const char *rest = ours + digits + (ours[digits] == '.');
    const char *end = plus && strcmp(level->theirs, "bottleneck") == 0 ? "_conv" : "";
    if (strcmp(rest, "scale") == 0 || strcmp(rest, "shift") == 0) {
        to->rows = 2 * type->dim[0]; /* one bias for both */
        to->row = strcmp(rest, "shift") == 0 ? type->dim[0] : 0;
        return snprintf(to->name, sizeof to->name, "%s.%.*s.ada_gn.style_mlp.2.bias", level->theirs,
                        digits, ours) < (int)sizeof to->name;
    }
    const part *layer = find(layers, sizeof layers / sizeof *layers, &rest);
    if (!layer) return false;
    const char *theirs = adagn && layer->adagn ? layer->adagn : layer->theirs;
    return snprintf(to->name, sizeof to->name, "%s%s.%.*s.%s.%s", level->theirs, end, digits, ours,
                    theirs, rest) < (int)sizeof to->name;
}

static const char *const order[] = {"time_embed.*",
                                    "style_embed.avg_embedding",
                                    "style_embed.*",
                                    "cond_fusion.*",
                                    "input_proj.*",
                                    "encoder_blocks_32.*",
                                    "down1.*",
                                    "encoder_blocks_16.*",
                                    "down2.*",
                                    "bottleneck.*",
                                    "bottleneck_conv.*",
                                    "bottleneck_attn.*",
                                    "up1.*",
                                    "skip_gate_16.*",
                                    "decoder_blocks_16.*",
                                    "up2.*",
                                    "skip_gate_32.*",
                                    "decoder_blocks_32.*",
                                    "output_proj.*",
                                    NULL};

static const pl_naming namings[] = {
    {.name = "authors", .rules = rules, .map = map, .order = order},
    {.name = NULL},
};

/* The mean of the current styles is computed; the file needs no average. */
const pl_start lgt_start = {.naming = namings};

static const pl_export_entry entries[] = {{"epoch", "0"}, {"metrics", "{}"}, {NULL, NULL}};
static const pl_export_file files[] = {
    {.name = "epoch_0000.pt", .naming = namings, .under = "model_state_dict", .entries = entries},
    {.name = NULL},
};
const pl_export lgt_exports[] = {
    {"authors", "a checkpoint of LGT's train.py and inference.py", files},
    {NULL, NULL, NULL},
};
