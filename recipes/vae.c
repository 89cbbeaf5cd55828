/* vae.c - the autoencoder of Stable Diffusion: 8 times smaller, four channels (AutoencoderKL, f8),
 * or with another number of levels.
 *
 * Recipes whose latents are Stable Diffusion's share it: frozen, with published weights. Names of
 * slots are those of the published checkpoints. The encoder's outputs are moments: the mean of a
 * latent and the log of its variance, from which training draws a latent in each step.
 */
#include "recipes/vae.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 32 };

bool vae_sizes_of(const pl_config *c, pl_nn *m, vae_sizes *v)
{
    int n;
    const int64_t *mult = pl_config_ints(c, "vae.mult", &n);
    v->width = pl_config_int(c, "vae.width");
    v->blocks = (int)pl_config_int(c, "vae.blocks");
    v->levels = n;
    if (n < 1 || n > VAE_MAX_LEVELS)
        pl_nn_fail(m, PL_ERR_CONFIG, "vae.mult needs 1 to %d numbers, got %d", VAE_MAX_LEVELS, n);
    else if (v->width % GROUPS)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "vae.width (%lld) must be a multiple of %d: its norms have so many groups",
                   (long long)v->width, GROUPS);
    else
        memcpy(v->mult, mult, sizeof *mult * (size_t)n);
    return n >= 1 && n <= VAE_MAX_LEVELS && v->width % GROUPS == 0;
}

int64_t vae_factor(const pl_config *c)
{
    int n;
    pl_config_ints(c, "vae.mult", &n);
    return (int64_t)1 << (n < 1 ? 0 : n > VAE_MAX_LEVELS ? VAE_MAX_LEVELS - 1 : n - 1);
}

static const pl_nn_norm group = {.eps = 1e-6};

static pl_nn_conv conv3(void)
{
    return (pl_nn_conv){.kernel = 3, .pad = 1};
}

static pl_nn_conv conv1(void)
{
    return (pl_nn_conv){.kernel = 1};
}

static int64_t channels(const pl_nn *m, pl_val x)
{
    pl_type t = pl_val_type(m->g, x);
    return t.rank == 4 ? t.dim[3] : 0;
}

static pl_val norm_silu(pl_nn *m, pl_val x, const char *name)
{
    return pl_silu(m->g, pl_nn_group_norm(m, x, name, GROUPS, group));
}

static pl_val block_with(pl_nn *m, pl_val x, int64_t out, const char *name, const char *shortcut)
{
    bool same = channels(m, x) == out;
    pl_nn_push(m, "%s", name);
    pl_scope_checkpoint(m->g);
    pl_val h = pl_nn_conv2d(m, norm_silu(m, x, "norm1"), "conv1", out, conv3());
    h = pl_nn_conv2d(m, norm_silu(m, h, "norm2"), "conv2", out, conv3());
    if (!same) x = pl_nn_conv2d(m, x, shortcut, out, conv1());
    pl_nn_pop(m);
    return pl_add(m->g, x, h);
}

static pl_val block(pl_nn *m, pl_val x, int64_t out, const char *name)
{
    return block_with(m, x, out, name, "nin_shortcut");
}

/* One head over all positions, as wide as the level: too wide (512) for the fast kernels without
 * stored probabilities, whose limit is 256 on a GPU. The probabilities exist only while the encoder
 * runs, as nothing is differentiated. */
static pl_val attention(pl_nn *m, pl_val x, const char *name)
{
    pl_graph *g = m->g;
    pl_type t = pl_val_type(g, x);
    int64_t w = channels(m, x);
    pl_nn_push(m, "%s", name);
    pl_val h = pl_nn_group_norm(m, x, "norm", GROUPS, group), part[3];
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++)
        part[i] = pl_reshape(g, pl_nn_conv2d(m, h, names[i], w, conv1()), PL_DIMS(t.dim[0], -1, w));
    h = pl_scale(g, pl_matmul(g, part[0], part[1], false, true), 1 / sqrt((double)w));
    h = pl_reshape(g, pl_matmul(g, pl_softmax(g, h, -1), part[2], false, false), t.rank, t.dim);
    h = pl_nn_conv2d(m, h, "proj_out", w, conv1());
    pl_nn_pop(m);
    return pl_add(g, x, h);
}

static pl_val middle(pl_nn *m, pl_val x)
{
    int64_t w = channels(m, x);
    pl_nn_push(m, "mid");
    x = block(m, x, w, "block_1");
    x = attention(m, x, "attn_1");
    x = block(m, x, w, "block_2");
    pl_nn_pop(m);
    return x;
}

/* Halves the sides: one row and one column of zeros at the end, none at the beginning. */
static pl_val downsample(pl_nn *m, pl_val x)
{
    x = pl_pad(m->g, pl_pad(m->g, x, 1, 0, 1, 0, 0), 2, 0, 1, 0, 0);
    return pl_nn_conv2d(m, x, "downsample.conv", channels(m, x),
                        (pl_nn_conv){.kernel = 3, .stride = 2});
}

/* The encoder's levels up to `last`, without its middle. features, unless NULL: of each level. */
static pl_val descend(pl_nn *m, const vae_sizes *c, pl_val image, int last, pl_val *features)
{
    pl_val h = pl_nn_conv2d(m, image, "conv_in", c->width, conv3());
    for (int i = 0; i <= last; i++) {
        pl_nn_push(m, "down.%d", i);
        for (int k = 0; k < c->blocks; k++)
            h = block(m, h, c->mult[i] * c->width, pl_nn_name(m, "block.%d", k));
        if (features) features[i] = h;
        if (i < last) h = downsample(m, h);
        pl_nn_pop(m);
    }
    return h;
}

pl_val vae_moments(pl_nn *m, const vae_sizes *c, pl_val image)
{
    pl_nn_push(m, "vae");
    pl_nn_push(m, "encoder");
    pl_val h = descend(m, c, image, c->levels - 1, NULL);
    h = norm_silu(m, middle(m, h), "norm_out");
    h = pl_nn_conv2d(m, h, "conv_out", 8, conv3());
    pl_nn_pop(m);
    h = pl_nn_conv2d(m, h, "quant_conv", 8, conv1());
    pl_nn_pop(m);
    return h;
}

pl_val vae_sample(pl_nn *m, pl_val moments, pl_val noise)
{
    pl_graph *g = m->g;
    pl_val part[2];
    pl_split(g, moments, 3, 2, part);
    pl_val deviation = pl_exp(g, pl_scale(g, pl_clamp(g, part[1], -30, 20), 0.5));
    return pl_scale(g, pl_add(g, part[0], pl_mul(g, deviation, noise)), VAE_SCALE);
}

/* ---- fusion (StableSR) ---------------------------------------------------------------------- */
/* Five convolutions, each of which sees the results of all before it (ESRGAN). */
static pl_val dense(pl_nn *m, pl_val x, const char *name)
{
    enum { GROWTH = 32 };
    pl_val seen[5] = {x}, h = x;
    pl_nn_push(m, "%s", name);
    for (int i = 1; i <= 5; i++) {
        h = i > 1 ? pl_concat(m->g, i, seen, 3) : x;
        h = pl_nn_conv2d(m, h, pl_nn_name(m, "conv%d", i), i < 5 ? GROWTH : channels(m, x),
                         conv3());
        if (i < 5) seen[i] = h = pl_leaky_relu(m->g, h, 0.2);
    }
    pl_nn_pop(m);
    return pl_add(m->g, pl_scale(m->g, h, 0.2), x);
}

/* The difference between the encoder's features and the decoder's features h. */
static pl_val fusion(pl_nn *m, const vae_sizes *c, pl_val encoded, pl_val h)
{
    int64_t w = channels(m, h);
    pl_val x = pl_concat(m->g, 2, (const pl_val[]){encoded, h}, 3);
    x = block_with(m, x, w, "encode_enc_1", "conv_out");
    for (int i = 0; i < c->fusion_blocks; i++) {
        pl_val y = x;
        pl_nn_push(m, "encode_enc_2.%d", i);
        for (int k = 1; k <= 3; k++) y = dense(m, y, pl_nn_name(m, "rdb%d", k));
        pl_nn_pop(m);
        x = pl_add(m->g, pl_scale(m->g, y, 0.2), x);
    }
    return block_with(m, x, w, "encode_enc_3", "conv_out");
}

/* ---- decoder ------------------------------------------------------------------------------- */
/* features: of the encoder, to be fused; NULL: none. */
static pl_val decode(pl_nn *m, const vae_sizes *c, pl_val z, const pl_val *features, double weight)
{
    pl_graph *g = m->g;
    int top = c->levels - 1;
    z = pl_nn_conv2d(m, pl_scale(g, z, 1 / VAE_SCALE), "post_quant_conv", 4, conv1());
    pl_nn_push(m, "decoder");
    pl_val h = middle(m, pl_nn_conv2d(m, z, "conv_in", c->mult[top] * c->width, conv3()));
    for (int i = top; i >= 0; i--) {
        pl_nn_push(m, "up.%d", i);
        for (int k = 0; k <= c->blocks; k++)
            h = block(m, h, c->mult[i] * c->width, pl_nn_name(m, "block.%d", k));
        pl_nn_pop(m);
        if (features && i > 0 && i < top) {
            pl_nn_push(m, "fusion_layer_%d", i);
            h = pl_add(g, h, pl_scale(g, fusion(m, c, features[i], h), weight));
            pl_nn_pop(m);
        }
        if (i)
            h = pl_nn_conv2d(m, pl_nn_upsample_nearest(g, h, 2),
                             pl_nn_name(m, "up.%d.upsample.conv", i), channels(m, h), conv3());
    }
    h = pl_nn_conv2d(m, norm_silu(m, h, "norm_out"), "conv_out", 3, conv3());
    pl_nn_pop(m);
    return h;
}

pl_val vae_decode(pl_nn *m, const vae_sizes *c, pl_val z)
{
    pl_nn_push(m, "vae");
    z = decode(m, c, z, NULL, 0);
    pl_nn_pop(m);
    return z;
}

pl_val vae_decode_fused(pl_nn *m, const vae_sizes *c, pl_val z, pl_val image, double weight)
{
    pl_val features[VAE_MAX_LEVELS];
    pl_nn_push(m, "vae");
    pl_nn_push(m, "encoder");
    if (c->levels > 2) descend(m, c, image, c->levels - 2, features);
    pl_nn_pop(m);
    z = decode(m, c, z, features, weight);
    pl_nn_pop(m);
    return z;
}

/* ---- published names ------------------------------------------------------------------------ */
static const pl_rename vae_published[] = {
    {"encoder.**", "vae.encoder.**"},
    {"decoder.**", "vae.decoder.**"},
    {"quant_conv.*", "vae.quant_conv.*"},
    {"post_quant_conv.*", "vae.post_quant_conv.*"},
    {NULL, NULL},
};

/* clang-format off */
#define ENDS(part)                                                                                    \
    {part ".mid_block.resnets.0.**",                "vae." part ".mid.block_1.**"},                   \
    {part ".mid_block.resnets.1.**",                "vae." part ".mid.block_2.**"},                   \
    {part ".mid_block.attentions.0.group_norm.*",   "vae." part ".mid.attn_1.norm.*"},                \
    {part ".conv_norm_out.*",                       "vae." part ".norm_out.*"},                       \
    {part ".conv_in.*",                             "vae." part ".conv_in.*"},                        \
    {part ".conv_out.*",                            "vae." part ".conv_out.*"}
#define MIDDLE(part, q, k, v, out)                                                                    \
    {part ".mid_block.attentions.0." q ".*",        "vae." part ".mid.attn_1.q.*"},                   \
    {part ".mid_block.attentions.0." k ".*",        "vae." part ".mid.attn_1.k.*"},                   \
    {part ".mid_block.attentions.0." v ".*",        "vae." part ".mid.attn_1.v.*"},                   \
    {part ".mid_block.attentions.0." out ".*",      "vae." part ".mid.attn_1.proj_out.*"}
#define LEVELS                                                                                        \
    {"encoder.down_blocks.*.resnets.*.conv_shortcut.*", "vae.encoder.down.*.block.*.nin_shortcut.*"}, \
    {"encoder.down_blocks.*.resnets.*.*.*",             "vae.encoder.down.*.block.*.*.*"},            \
    {"encoder.down_blocks.*.downsamplers.0.conv.*",     "vae.encoder.down.*.downsample.conv.*"},      \
    {"quant_conv.*",                                    "vae.quant_conv.*"},                          \
    {"post_quant_conv.*",                               "vae.post_quant_conv.*"}
static const pl_rename vae_diffusers[] = {
    ENDS("encoder"), MIDDLE("encoder", "to_q", "to_k", "to_v", "to_out.0"),
    ENDS("decoder"), MIDDLE("decoder", "to_q", "to_k", "to_v", "to_out.0"),
    LEVELS,
    {NULL, NULL},
};

/* As diffusers wrote them until 2023: the published folders of Stable Diffusion have these. */
static const pl_rename vae_older[] = {
    ENDS("encoder"), MIDDLE("encoder", "query", "key", "value", "proj_attn"),
    ENDS("decoder"), MIDDLE("decoder", "query", "key", "value", "proj_attn"),
    LEVELS,
    {NULL, NULL},
};
/* clang-format on */

/* Diffusers numbers the decoder's levels from the coarsest one. */
static bool diffusers_up(const pl_config *c, const char *ours, const pl_type *type,
                         pl_published *to)
{
    static const char *const parts[][2] = {
        {"block.", "resnets."}, {"upsample.", "upsamplers.0."}, {NULL, NULL}};
    static const char up[] = "vae.decoder.up.", shortcut[] = ".nin_shortcut.";
    int levels;
    char *rest;
    (void)type;
    if (strncmp(ours, up, sizeof up - 1) != 0) return false;
    pl_config_ints(c, "vae.mult", &levels);
    long level = strtol(ours + sizeof up - 1, &rest, 10);
    if (*rest++ != '.') return false;
    for (int i = 0; parts[i][0]; i++) {
        size_t n = strlen(parts[i][0]);
        const char *at = strstr(rest, shortcut);
        if (strncmp(rest, parts[i][0], n) != 0) continue;
        rest += n;
        int kept = at ? (int)(at - rest) : (int)strlen(rest);
        return snprintf(to->name, sizeof to->name, "decoder.up_blocks.%ld.%s%.*s%s%s",
                        levels - 1 - level, parts[i][1], kept, rest, at ? ".conv_shortcut." : "",
                        at ? at + strlen(shortcut) : "") < (int)sizeof to->name;
    }
    return false;
}

/* Some programs need one half alone; whole checkpoints have the U-Net and the text encoder too. */
const pl_naming vae_namings[] = {
    {.name = "published",
     .rules = vae_published,
     .ignored = "encoder.*,quant_conv.*,decoder.*,post_quant_conv.*,loss.*"},
    {.name = "diffusers",
     .rules = vae_diffusers,
     .map = diffusers_up,
     .ignored = "encoder.*,quant_conv.*,decoder.*,post_quant_conv.*"},
    {.name = "older diffusers",
     .rules = vae_older,
     .map = diffusers_up,
     .ignored = "encoder.*,quant_conv.*,decoder.*,post_quant_conv.*"},
    {.name = "checkpoint", .prefix = "first_stage_model.", .rules = vae_published, .ignored = "*"},
    {.name = NULL},
};
