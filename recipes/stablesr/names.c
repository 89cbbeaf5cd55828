/* names.c - names of the frozen parts' weights in the published checkpoints of Stable Diffusion and
 * in diffusers. The U-Net's input convolution has a different number of channels here and is not
 * read. */
#include "stablesr.h"

/* ---- U-Net ------------------------------------------------------------------------------ */
/* clang-format off */
#define ATTENTION(theirs, ours)                                                                       \
    {theirs ".norm.*",                                  ours ".attn.norm.*"},                         \
    {theirs ".proj_in.*",                               ours ".attn.inp.*"},                          \
    {theirs ".transformer_blocks.0.attn1.to_out.0.*",   ours ".attn.block.self_attn.out.*"},          \
    {theirs ".transformer_blocks.0.attn1.to_q.*",       ours ".attn.block.self_attn.q.*"},            \
    {theirs ".transformer_blocks.0.attn1.to_k.*",       ours ".attn.block.self_attn.k.*"},            \
    {theirs ".transformer_blocks.0.attn1.to_v.*",       ours ".attn.block.self_attn.v.*"},            \
    {theirs ".transformer_blocks.0.attn2.to_out.0.*",   ours ".attn.block.cross_attn.out.*"},         \
    {theirs ".transformer_blocks.0.attn2.to_q.*",       ours ".attn.block.cross_attn.q.*"},           \
    {theirs ".transformer_blocks.0.attn2.to_k.*",       ours ".attn.block.cross_attn.k.*"},           \
    {theirs ".transformer_blocks.0.attn2.to_v.*",       ours ".attn.block.cross_attn.v.*"},           \
    {theirs ".transformer_blocks.0.ff.net.0.proj.*",    ours ".attn.block.gate.*"},                   \
    {theirs ".transformer_blocks.0.ff.net.2.*",         ours ".attn.block.shrink.*"},                 \
    {theirs ".transformer_blocks.0.*.*",                ours ".attn.block.*.*"},                      \
    {theirs ".proj_out.*",                              ours ".attn.out.*"}

#define RESIDUAL(theirs, ours)                                                                        \
    {theirs ".in_layers.0.*",     ours ".res.norm1.*"},                                               \
    {theirs ".in_layers.2.*",     ours ".res.conv1.*"},                                               \
    {theirs ".emb_layers.1.*",    ours ".res.emb.*"},                                                 \
    {theirs ".out_layers.0.*",    ours ".res.norm2.*"},                                               \
    {theirs ".out_layers.3.*",    ours ".res.conv2.*"},                                               \
    {theirs ".skip_connection.*", ours ".res.skip.*"}
/* Their block numbers include the input convolution. */
#define DOWN(theirs, ours)                                                                            \
    RESIDUAL("input_blocks." theirs ".0", "unet.down." ours),                                         \
    ATTENTION("input_blocks." theirs ".1", "unet.down." ours),                                        \
    {"input_blocks." theirs ".0.op.*", "unet.down." ours ".resample.*"}
static const pl_rename unet_published[] = {
    DOWN("1", "0"), DOWN("2", "1"), DOWN("3", "2"), DOWN("4", "3"), DOWN("5", "4"), DOWN("6", "5"),
    DOWN("7", "6"), DOWN("8", "7"), DOWN("9", "8"), DOWN("10", "9"), DOWN("11", "10"),
    RESIDUAL("middle_block.0", "unet.middle.0"), ATTENTION("middle_block.1", "unet.middle.0"),
    RESIDUAL("middle_block.2", "unet.middle.1"),
    RESIDUAL("output_blocks.*.0", "unet.up.*"), ATTENTION("output_blocks.*.1", "unet.up.*"),
    {"output_blocks.2.1.conv.*", "unet.up.2.resample.conv.*"}, /* the level without attention */
    {"output_blocks.*.2.conv.*", "unet.up.*.resample.conv.*"},
    {"time_embed.*.*",           "unet.time.*.*"},
    {"out.*.*",                  "unet.out.*.*"},
    {NULL, NULL},
};

#define RESNET(theirs, ours)                                                                          \
    {theirs ".time_emb_proj.*",   ours ".res.emb.*"},                                                 \
    {theirs ".conv_shortcut.*",   ours ".res.skip.*"},                                                \
    {theirs ".*.*",               ours ".res.*.*"}
#define STAGE(where, ours, i, j)                                                                      \
    RESNET(where "_blocks." i ".resnets." j, ours), ATTENTION(where "_blocks." i ".attentions." j, ours)
#define LEVEL_DOWN(i, a, b, c)                                                                        \
    STAGE("down", "unet.down." a, i, "0"), STAGE("down", "unet.down." b, i, "1"),                     \
    {"down_blocks." i ".downsamplers.0.conv.*", "unet.down." c ".resample.*"}
#define LEVEL_UP(i, a, b, c)                                                                          \
    STAGE("up", "unet.up." a, i, "0"), STAGE("up", "unet.up." b, i, "1"), STAGE("up", "unet.up." c, i, "2"), \
    {"up_blocks." i ".upsamplers.0.conv.*", "unet.up." c ".resample.conv.*"}
static const pl_rename unet_diffusers[] = {
    LEVEL_DOWN("0", "0", "1", "2"), LEVEL_DOWN("1", "3", "4", "5"), LEVEL_DOWN("2", "6", "7", "8"),
    LEVEL_DOWN("3", "9", "10", "11"),
    RESNET("mid_block.resnets.0", "unet.middle.0"), ATTENTION("mid_block.attentions.0", "unet.middle.0"),
    RESNET("mid_block.resnets.1", "unet.middle.1"),
    LEVEL_UP("0", "0", "1", "2"), LEVEL_UP("1", "3", "4", "5"), LEVEL_UP("2", "6", "7", "8"),
    LEVEL_UP("3", "9", "10", "11"),
    {"time_embedding.linear_1.*", "unet.time.0.*"},
    {"time_embedding.linear_2.*", "unet.time.2.*"},
    {"conv_norm_out.*",           "unet.out.0.*"},
    {"conv_out.*",                "unet.out.2.*"},
    {NULL, NULL},
};
/* clang-format on */

static const pl_naming unet_namings[] = {
    {.name = "diffusers", .rules = unet_diffusers, .ignored = "conv_in.*"},
    {.name = "published", .rules = unet_published, .ignored = "input_blocks.0.*"},
    {.name = "checkpoint",
     .prefix = "model.diffusion_model.",
     .rules = unet_published,
     .ignored = "*,!model.diffusion_model.*,model.diffusion_model.input_blocks.0.*"},
    {.name = NULL},
};

/* ---- where they come from --------------------------------------------------------------- */
static const pl_rename context_names[] = {{"context", "context"}, {NULL, NULL}};
static const pl_naming context_naming[] = {{.name = "plain", .rules = context_names},
                                           {.name = NULL}};

const pl_weights sr_weights[] = {
    {"unet_from", "unet.*,!*.spade.*,!unet.inp.*", unet_namings},
    {"vae.weights", "vae.*", vae_namings},
    {"context_from", "context", context_naming},
    {NULL, NULL, NULL},
};
