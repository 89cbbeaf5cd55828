/* names.c - weights under the names that other programs give them.
 *
 * The authors' program writes compressor, flow and expander to flxflow_final.safetensors, and the
 * discriminator to D_img.safetensors. Beside our slots their file has the frequencies of the rotary
 * positions, which are constants here.
 */
#include "fluxflow.h"
#include "recipes/lpips.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the authors' checkpoints --------------------------------------------------------------- */
/* clang-format off */
#define C "diffuser.compressor."
#define E "diffuser.expander."
#define F "diffuser.flow_processor."
#define HEAD(name)                                                                             \
    {C #name "_proj.0.0.**", "compressor." #name ".a.**"},                                     \
    {C #name "_proj.1.0.**", "compressor." #name ".b.**"}
#define CURVE(theirs, ours)                                                                    \
    {theirs "p0", ours "p.0"}, {theirs "p1", ours "p.1"},                                      \
    {theirs "p2", ours "p.2"}, {theirs "p3", ours "p.3"}
static const pl_rename authors_rules[] = {
    {C "encoder_first_step.*.0.**", "compressor.stages.*.0.**"},
    {C "encoder_z.*.0.**", "compressor.stages.*.1.**"},
    HEAD(latent), HEAD(mu), HEAD(logvar),
    CURVE(C "mu_activation.", "compressor.mu_curve."),
    CURVE(C "logvar_activation.", "compressor.logvar_curve."),
    {C "token_attn.*.ff.0.**", "compressor.blocks.*.up.**"},
    {C "token_attn.*.ff.2.**", "compressor.blocks.*.down.**"},
    {C "token_attn.**", "compressor.blocks.**"},
    {E "upscale.layers.*.spade.mlp_shared.0.**", "expander.blocks.*.spade.shared.**"},
    {E "upscale.layers.*.spade.mlp_gamma.**", "expander.blocks.*.spade.gamma.**"},
    {E "upscale.layers.*.spade.mlp_beta.**", "expander.blocks.*.spade.beta.**"},
    {E "upscale.layers.*.conv1.0.**", "expander.blocks.*.up.**"},
    {E "upscale.layers.*.conv1.2.**", "expander.blocks.*.conv.**"},
    CURVE(E "rgb_activation.", "expander.rgb.7."),
    {E "to_rgb_conv.**", "expander.rgb.**"},
    {E "context_mixer.cls", "expander.mixer.query"},
    {E "context_mixer.q_proj.**", "expander.mixer.linears.0.**"},
    {E "context_mixer.k_proj.**", "expander.mixer.linears.1.**"},
    {E "context_mixer.v_proj.**", "expander.mixer.linears.2.**"},
    {E "context_mixer.out_proj.**", "expander.mixer.linears.3.**"},
    {E "context_mixer.norm_in.**", "expander.mixer.norms.0.**"},
    {E "context_mixer.norm_out.**", "expander.mixer.norms.1.**"},
    CURVE(F "*.*.", "flow_processor.*.*."),
    {F "**", "flow_processor.**"},
    {NULL, NULL},
};
/* clang-format on */

/* Splits "body.7.0.weight" into its two numbers and the rest. */
static bool body_layer(const char *name, int *layer, int *conv, const char **rest)
{
    int at = 0;
    if (sscanf(name, "body.%d.%d.%n", layer, conv, &at) < 2 || !at) return false;
    *rest = name + at;
    return true;
}

/* The discriminator: pairs of convolutions are numbered through here, with a pool after every two
 * pairs but the first; the authors number blocks of two pairs. */
static bool authors_map(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    (void)c, (void)type;
    if (strncmp(ours, "disc.", 5) != 0) return false;
    const char *name = ours + 5, *rest = name;
    char stem[64] = "";
    int layer, conv;
    if (body_layer(name, &layer, &conv, &rest)) {
        if (layer == 0)
            snprintf(stem, sizeof stem, "backbone.0.%d.", conv);
        else
            snprintf(stem, sizeof stem, "backbone.%d.conv%d.%d.", 2 + (layer - 1) / 3,
                     1 + (layer - 1) % 3, conv);
    } else if (strncmp(name, "project.", 8) == 0) {
        snprintf(stem, sizeof stem, "ctx_proj.%.1s.", name + 8);
        rest = name + 10;
    } else {
        snprintf(stem, sizeof stem, "head.");
        rest = name + 5;
    }
    const char *tail = strcmp(rest, "weight") == 0 ? "weight_orig"
                       : strcmp(rest, "u") == 0    ? "weight_u"
                       : strcmp(rest, "v") == 0    ? "weight_v"
                                                   : rest;
    return snprintf(to->name, sizeof to->name, "D_img.%s%s", stem, tail) < (int)sizeof to->name;
}

/* The frequencies of the rotary positions, once per block of a flow that is trained. */
static bool authors_constant(const pl_config *c, int i, char name[PL_TENSOR_NAME], pl_type *type,
                             void *data)
{
    if (!pl_config_bool(c, "flow.on") || i >= pl_config_int(c, "flow.layers")) return false;
    int64_t width = pl_config_int(c, "flow.width") / pl_config_int(c, "flow.heads");
    snprintf(name, PL_TENSOR_NAME, F "transformer_blocks.%d.rotary_pe.inv_freq", i);
    *type = PL_TYPE(PL_F32, width / 2);
    float *x = data;
    for (int64_t k = 0; x && k < width / 2; k++)
        x[k] = 1 / powf(10000, (float)(2 * k) / (float)width);
    return true;
}

static const pl_tensor_shape authors_shapes[] = {
    {"*_activation.p*,*.time_embed.*.p*", "*"},
    {"*.context_mixer.cls", "1,1,*"},
    {NULL, NULL},
};
static const pl_naming authors_namings[] = {
    {.name = "fluxflow",
     .rules = authors_rules,
     .map = authors_map,
     .constant = authors_constant,
     .shapes = authors_shapes},
    {.name = NULL},
};

/* What `export --as authors` writes: the networks that the run has, in two files. */
static const pl_naming disc_naming = {.name = "fluxflow", .map = authors_map};
static const pl_export_file authors_files[] = {
    {.name = "flxflow_final.safetensors",
     .slots = "compressor.*,flow_processor.*,expander.*",
     .naming = authors_namings},
    {.name = "D_img.safetensors", .slots = "disc.*", .naming = &disc_naming},
    {.name = NULL},
};
const pl_export flux_exports[] = {
    {"authors", "fluxflow-training: flxflow_final.safetensors and D_img.safetensors in a folder",
     authors_files},
    {NULL, NULL, NULL},
};

/* A stage begins with the weights of the stages before it: the flow and the discriminator may be
 * new. */
const pl_start flux_start = {.missing = "flow_processor.*,disc.*,lpips.*",
                             .naming = authors_namings};

const pl_weights flux_weights[] = {
    {"lpips.weights", LPIPS_SLOTS, lpips_namings},
    {"predict.expander", "expander.*", authors_namings},
    {"init_from", "compressor.*", NULL}, /* frozen in the flow stage */
    {NULL, NULL, NULL},
};
