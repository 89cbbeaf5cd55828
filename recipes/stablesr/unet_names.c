/* unet_names.c - names of U-Net, edge processor and structure encoder in other programs' files, for
 * any number of levels and blocks.
 *
 * Published checkpoints number the blocks of a U-Net through: the input convolution is block 0 on
 * the way down, a level is its residual blocks and one resampling. Diffusers numbers levels, and
 * blocks within a level.
 */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    const char *ours, *published, *diffusers; /* NULL: diffusers has no such part */
} part;

static const part residual[] = {
    {"norm1.", "in_layers.0.", "norm1."},
    {"conv1.", "in_layers.2.", "conv1."},
    {"emb.", "emb_layers.1.", "time_emb_proj."},
    {"norm2.", "out_layers.0.", "norm2."},
    {"conv2.", "out_layers.3.", "conv2."},
    {"skip.", "skip_connection.", "conv_shortcut."},
    {"spade.norm.", "spade.param_free_norm.", NULL},
    {"spade.shared.", "spade.mlp_shared.0.", NULL},
    {"spade.gamma.", "spade.mlp_gamma.", NULL},
    {"spade.beta.", "spade.mlp_beta.", NULL},
    {NULL, NULL, NULL},
};

#define ATTENTION(ours, theirs)                                                                    \
 {ours ".out.", theirs ".to_out.0.", theirs ".to_out.0."},                                         \
     {ours ".q.", theirs ".to_q.", theirs ".to_q."},                                               \
     {ours ".k.", theirs ".to_k.", theirs ".to_k."},                                               \
 {                                                                                                 \
  ours ".v.", theirs ".to_v.", theirs ".to_v."                                                     \
 }
static const part transformer[] = {
    {"norm.", "norm.", "norm."},
    {"inp.", "proj_in.", "proj_in."},
    {"out.", "proj_out.", "proj_out."},
    {NULL, NULL, NULL},
};
static const part transformer_block[] = {
    ATTENTION("self_attn", "attn1"),
    ATTENTION("cross_attn", "attn2"),
    {"gate.", "ff.net.0.proj.", "ff.net.0.proj."},
    {"shrink.", "ff.net.2.", "ff.net.2."},
    {"", "", ""},
    {NULL, NULL, NULL},
};

/* Of the structure encoder. */
static const part attention[] = {
    {"norm.", "norm.", NULL},
    {"qkv.", "qkv.", NULL},
    {"out.", "proj_out.", NULL},
    {NULL, NULL, NULL},
};

/* Writes BASE and the translated rest of the name; false: the table has no such part. */
static bool put(pl_published *to, const part *table, bool diffusers, const char *base,
                const char *rest)
{
    for (; table->ours; table++) {
        size_t n = strlen(table->ours);
        const char *theirs = diffusers ? table->diffusers : table->published;
        if (strncmp(rest, table->ours, n) == 0)
            return theirs && snprintf(to->name, sizeof to->name, "%s%s%s", base, theirs, rest + n) <
                                 (int)sizeof to->name;
    }
    return false;
}

/* Takes "PREFIX" off the name. */
static bool begins(const char **name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(*name, prefix, n) != 0) return false;
    *name += n;
    return true;
}

/* Takes "NUMBER." off the name; -1: there is none. */
static int number(const char **name)
{
    char *end;
    long n = strtol(*name, &end, 10);
    if (end == *name || *end != '.' || n < 0 || n > 9999) return -1;
    *name = end + 1;
    return (int)n;
}

static bool plain(pl_published *to, const char *base, const char *rest)
{
    return snprintf(to->name, sizeof to->name, "%s%s", base, rest) < (int)sizeof to->name;
}

/* A tensor of an attention of the U-Net; block K is named blockK, the first one block. */
static bool put_transformer(pl_published *to, bool diffusers, const char *base, const char *rest)
{
    char inner[128];
    if (!begins(&rest, "block")) return put(to, transformer, diffusers, base, rest);
    int at = *rest == '.' ? 0 : number(&rest);
    if (at < 0 || (at == 0 && !begins(&rest, "."))) return false;
    snprintf(inner, sizeof inner, "%stransformer_blocks.%d.", base, at);
    return put(to, transformer_block, diffusers, inner, rest);
}

/* ---- U-Net ------------------------------------------------------------------------------ */
bool sr_published_unet(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    int levels, n, blocks = (int)pl_config_int(c, "model.blocks");
    char base[64];
    (void)type;
    pl_config_ints(c, "model.mult", &levels);
    if (!begins(&ours, "unet.")) return false;
    if (begins(&ours, "time.")) return plain(to, "time_embed.", ours);
    if (begins(&ours, "out.")) return plain(to, "out.", ours);
    if (begins(&ours, "inp.")) return plain(to, "input_blocks.0.0.", ours);
    bool down = begins(&ours, "down."), up = !down && begins(&ours, "up."),
         middle = !down && !up && begins(&ours, "middle.");
    if (!(down || up || middle) || (n = number(&ours)) < 0) return false;
    const char *where = down ? "input_blocks" : up ? "output_blocks" : "middle_block";
    int at = down ? n + 1 : middle ? 2 * n : n;
    snprintf(base, sizeof base, middle ? "%s.%d." : "%s.%d.0.", where, at);
    if (begins(&ours, "res.")) return put(to, residual, false, base, ours);
    if (begins(&ours, "attn.")) {
        snprintf(base, sizeof base, middle ? "%s.1." : "%s.%d.1.", where, at);
        return put_transformer(to, false, base, ours);
    }
    if (down && begins(&ours, "resample.")) {
        snprintf(base, sizeof base, "input_blocks.%d.0.op.", at);
        return plain(to, base, ours);
    }
    if (!up || !begins(&ours, "resample.conv.")) return false;
    /* behind the transformer, where the level has one */
    int level = levels - 1 - n / (blocks + 1);
    bool attends = level >= pl_config_int(c, "model.attn_from") &&
                   level < pl_config_int(c, "model.attn_levels");
    snprintf(base, sizeof base, "output_blocks.%d.%d.conv.", n, attends ? 2 : 1);
    return plain(to, base, ours);
}

bool sr_diffusers_unet(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    int n, blocks = (int)pl_config_int(c, "model.blocks");
    char base[64];
    (void)type;
    if (!begins(&ours, "unet.")) return false;
    if (begins(&ours, "time.0.")) return plain(to, "time_embedding.linear_1.", ours);
    if (begins(&ours, "time.2.")) return plain(to, "time_embedding.linear_2.", ours);
    if (begins(&ours, "out.0.")) return plain(to, "conv_norm_out.", ours);
    if (begins(&ours, "out.2.")) return plain(to, "conv_out.", ours);
    if (begins(&ours, "inp.")) return plain(to, "conv_in.", ours);
    bool down = begins(&ours, "down."), up = !down && begins(&ours, "up."),
         middle = !down && !up && begins(&ours, "middle.");
    if (!(down || up || middle) || (n = number(&ours)) < 0) return false;
    int level = n / (blocks + 1), block = n % (blocks + 1);
    const char *where = down ? "down" : "up";
    bool attn = false, res = begins(&ours, "res.") || (attn = begins(&ours, "attn."));
    if (res) {
        const char *kind = attn ? "attentions" : "resnets";
        if (middle)
            snprintf(base, sizeof base, "mid_block.%s.%d.", kind, n);
        else
            snprintf(base, sizeof base, "%s_blocks.%d.%s.%d.", where, level, kind, block);
        return attn ? put_transformer(to, true, base, ours) : put(to, residual, true, base, ours);
    }
    if (!begins(&ours, up ? "resample.conv." : "resample.")) return false;
    snprintf(base, sizeof base, "%s_blocks.%d.%ssamplers.0.conv.", where, level, where);
    return plain(to, base, ours);
}

/* ---- the authors' checkpoint ------------------------------------------------------------ */
/* edge.first.K.*: a stem, then stages of convolution, norm and activation; edge.second.K.*. */
static bool edge_name(const char *rest, pl_published *to)
{
    char base[96];
    bool first = begins(&rest, "first.");
    if (!first && !begins(&rest, "second.")) return false;
    int k = number(&rest);
    if (k < 0) return false;
    int stage = k / 3 - first;
    if (stage < 0)
        snprintf(base, sizeof base, SR_UNET "edge_processor.initial_conv.%d.", k);
    else
        snprintf(base, sizeof base, SR_UNET "edge_processor.stage%d_layers.%d.%d.", first ? 1 : 2,
                 stage, k % 3);
    return plain(to, base, rest);
}

static bool struct_name(const pl_config *c, const char *rest, pl_published *to)
{
    int levels, blocks = (int)pl_config_int(c, "struct.blocks");
    char base[96];
    pl_config_ints(c, "struct.mult", &levels);
    if (begins(&rest, "time.")) return plain(to, SR_STRUCT "time_embed.", rest);
    if (begins(&rest, "inp.")) return plain(to, SR_STRUCT "input_blocks.0.0.", rest);
    bool outs = begins(&rest, "outs."), downs = !outs && begins(&rest, "downs.");
    if (!outs && !downs && !begins(&rest, "levels.")) return false;
    int level = number(&rest);
    if (level < 0) return false;
    int first = 1 + level * (blocks + 1);
    if (outs) {
        snprintf(base, sizeof base, SR_STRUCT "fea_tran.%d.", level);
        return put(to, residual, false, base, rest);
    }
    if (downs) {
        snprintf(base, sizeof base, SR_STRUCT "input_blocks.%d.0.op.", first + blocks);
        return plain(to, base, rest);
    }
    int k = number(&rest);
    if (k < 0) return false;
    if (k < 2 * blocks) {
        snprintf(base, sizeof base, SR_STRUCT "input_blocks.%d.%d.", first + k / 2, k % 2);
        return put(to, k % 2 ? attention : residual, false, base, rest);
    }
    snprintf(base, sizeof base, SR_STRUCT "middle_block.%d.", k - 2 * blocks);
    return put(to, k - 2 * blocks == 1 ? attention : residual, false, base, rest);
}

bool sr_authors_name(const pl_config *c, const char *ours, const pl_type *type, pl_published *to)
{
    if (strcmp(ours, "context") == 0)
        return true; /* the text encoder's, which is not in the file */
    if (begins(&ours, "edge.")) return edge_name(ours, to);
    if (begins(&ours, "fusion.")) return plain(to, SR_UNET "edge_fusion.fusion_conv.", ours);
    if (begins(&ours, "struct.")) return struct_name(c, ours, to);
    if (begins(&ours, "vae.")) return plain(to, SR_VAE, ours);
    char name[PL_TENSOR_NAME];
    if (!sr_published_unet(c, ours, type, to)) return false;
    memcpy(name, to->name, sizeof name);
    return snprintf(to->name, sizeof to->name, SR_UNET "%s", name) < (int)sizeof to->name;
}
