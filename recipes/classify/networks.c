/* networks.c - ResNet, ConvNeXt and ViT, with the names and initial values of their PyTorch
 * programs: ResNet and ConvNeXt as torchvision has them, ViT as timm has it. Weights can be
 * exchanged in both directions.
 */
#include "classify.h"

#include <math.h>
#include <string.h>

static pl_val relu(pl_nn *m, pl_val x)
{
    return pl_relu(m->g, x);
}

static pl_val linear(pl_nn *m, pl_val x, const char *name, int64_t out)
{
    return pl_nn_linear(m, x, name, out,
                        (pl_nn_lin){.init = pl_nn_normal(0, 0.02), .bias_init = pl_nn_constant(0)});
}

static int blocks_of(const classify_net *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_depths; i++) sum += n->depths[i];
    return (int)sum;
}

/* The probability of dropping block i of all: it grows from 0 to drop_path. */
static double drop_of(const classify_net *n, int i)
{
    int all = blocks_of(n);
    return all > 1 ? n->drop_path * i / (all - 1) : n->drop_path;
}

/* ---- ResNet ------------------------------------------------------------------------------- */
static pl_val conv_norm(pl_nn *m, pl_val x, const char *conv, const char *norm, int64_t out, int k,
                        int stride)
{
    x = pl_nn_conv2d(m, x, conv, out,
                     (pl_nn_conv){.kernel = k,
                                  .stride = stride,
                                  .pad = k / 2,
                                  .no_bias = true,
                                  .init = pl_nn_kaiming_normal(PL_FAN_OUT, sqrt(2))});
    return pl_nn_batch_norm(m, x, norm, (pl_nn_norm){0});
}

/* Two 3 x 3 convolutions, or 1 x 1, 3 x 3 and 1 x 1 with four times the channels at the end. */
static pl_val res_block(pl_nn *m, pl_val x, int64_t width, int stride, bool bottleneck, double drop)
{
    int64_t out = bottleneck ? 4 * width : width;
    int64_t in = pl_val_ok(x) ? pl_val_type(m->g, x).dim[3] : out;
    pl_val skip = x, y = x;
    if (bottleneck) {
        y = relu(m, conv_norm(m, y, "conv1", "bn1", width, 1, 1));
        y = relu(m, conv_norm(m, y, "conv2", "bn2", width, 3, stride));
        y = conv_norm(m, y, "conv3", "bn3", out, 1, 1);
    } else {
        y = relu(m, conv_norm(m, y, "conv1", "bn1", width, 3, stride));
        y = conv_norm(m, y, "conv2", "bn2", width, 3, 1);
    }
    if (stride != 1 || in != out)
        skip = conv_norm(m, x, "downsample.0", "downsample.1", out, 1, stride);
    return relu(m, pl_add(m->g, pl_nn_drop_path(m, y, drop), skip));
}

static pl_val resnet(pl_nn *m, const classify_net *n, pl_val x)
{
    bool bottleneck = strcmp(n->name, "resnet50") == 0;
    int block = 0;
    x = relu(m, conv_norm(m, x, "conv1", "bn1", n->width, 7, 2));
    x = pl_max_pool(
        m->g, x,
        &(pl_pool_opts){.kernel = {3, 3}, .stride = {2, 2}, .pad_lo = {1, 1}, .pad_hi = {1, 1}});
    for (int s = 0; s < n->n_depths; s++)
        for (int i = 0; i < n->depths[s]; i++) {
            pl_nn_push(m, "layer%d.%d", s + 1, i);
            pl_scope_checkpoint(m->g);
            x = res_block(m, x, n->width << s, s && !i ? 2 : 1, bottleneck, drop_of(n, block++));
            pl_nn_pop(m);
        }
    x = pl_nn_dropout(m, pl_nn_global_average(m->g, x), n->dropout);
    return pl_nn_linear(m, x, "fc", n->classes, (pl_nn_lin){0});
}

/* ---- ConvNeXt ----------------------------------------------------------------------------- */
static const pl_nn_norm fine = {.eps = 1e-6};

static pl_val patches(pl_nn *m, pl_val x, const char *name, int64_t out, int k)
{
    return pl_nn_conv2d(m, x, name, out,
                        (pl_nn_conv){.kernel = k,
                                     .stride = k,
                                     .init = pl_nn_normal(0, 0.02),
                                     .bias_init = pl_nn_constant(0)});
}

static pl_val next_block(pl_nn *m, pl_val x, int64_t width, double drop)
{
    pl_val y = pl_nn_conv2d(m, x, "block.0", width,
                            (pl_nn_conv){.kernel = 7,
                                         .pad = 3,
                                         .groups = (int)width,
                                         .init = pl_nn_normal(0, 0.02),
                                         .bias_init = pl_nn_constant(0)});
    y = pl_nn_layer_norm(m, y, "block.2", fine);
    y = pl_gelu(m->g, linear(m, y, "block.3", 4 * width));
    y = linear(m, y, "block.5", width);
    pl_val scale = pl_nn_param_as(m, "layer_scale", PL_DIMS(width), PL_DIMS(width, 1, 1),
                                  pl_nn_constant(1e-6));
    return pl_add(m->g, x, pl_nn_drop_path(m, pl_mul(m->g, y, scale), drop));
}

static pl_val convnext(pl_nn *m, const classify_net *n, pl_val x)
{
    int block = 0;
    x = patches(m, x, "features.0.0", n->width, 4);
    x = pl_nn_layer_norm(m, x, "features.0.1", fine);
    for (int s = 0; s < n->n_depths; s++) {
        if (s) {
            x = pl_nn_layer_norm(m, x, pl_nn_name(m, "features.%d.0", 2 * s), fine);
            x = patches(m, x, pl_nn_name(m, "features.%d.1", 2 * s), n->width << s, 2);
        }
        for (int i = 0; i < n->depths[s]; i++) {
            pl_nn_push(m, "features.%d.%d", 2 * s + 1, i);
            pl_scope_checkpoint(m->g);
            x = next_block(m, x, n->width << s, drop_of(n, block++));
            pl_nn_pop(m);
        }
    }
    x = pl_nn_layer_norm(m, pl_nn_global_average(m->g, x), "classifier.0", fine);
    return linear(m, pl_nn_dropout(m, x, n->dropout), "classifier.2", n->classes);
}

/* ---- ViT ---------------------------------------------------------------------------------- */
static pl_val vit_attend(pl_nn *m, pl_val x, const classify_net *n)
{
    pl_val part[3];
    pl_nn_push(m, "attn");
    pl_split(m->g, linear(m, x, "qkv", 3 * n->width), -1, 3, part);
    x = pl_nn_attend(m->g, part[0], part[1], part[2], (int)n->heads);
    x = linear(m, x, "proj", n->width);
    pl_nn_pop(m);
    return x;
}

static pl_val vit_mlp(pl_nn *m, pl_val x, int64_t width)
{
    pl_nn_push(m, "mlp");
    x = linear(m, pl_gelu(m->g, linear(m, x, "fc1", 4 * width)), "fc2", width);
    pl_nn_pop(m);
    return x;
}

static pl_val vit(pl_nn *m, const classify_net *n, pl_val x)
{
    pl_graph *g = m->g;
    int64_t w = n->width;
    x = pl_nn_conv2d(m, x, "patch_embed.proj", w,
                     (pl_nn_conv){.kernel = (int)n->patch, .stride = (int)n->patch});
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    int64_t batch = t.dim[0], tokens = t.dim[1] * t.dim[2];
    pl_val first = pl_nn_param(m, "cls_token", PL_DIMS(1, 1, w), pl_nn_normal(0, 1e-6));
    pl_val at = pl_nn_param(m, "pos_embed", PL_DIMS(1, tokens + 1, w), pl_nn_normal(0, 0.02));
    pl_val all[2] = {pl_broadcast(g, first, PL_DIMS(batch, 1, w)),
                     pl_reshape(g, x, PL_DIMS(batch, tokens, w))};
    x = pl_add(g, pl_concat(g, 2, all, 1), at);
    for (int i = 0; i < n->depths[0]; i++) {
        double drop = drop_of(n, i);
        pl_nn_push(m, "blocks.%d", i);
        pl_scope_checkpoint(g);
        pl_val y = vit_attend(m, pl_nn_layer_norm(m, x, "norm1", fine), n);
        x = pl_add(g, x, pl_nn_drop_path(m, y, drop));
        y = vit_mlp(m, pl_nn_layer_norm(m, x, "norm2", fine), w);
        x = pl_add(g, x, pl_nn_drop_path(m, y, drop));
        pl_nn_pop(m);
    }
    x = pl_nn_layer_norm(m, x, "norm", fine);
    x = pl_squeeze(g, pl_slice(g, x, 1, 0, 1, 1), 1);
    return linear(m, pl_nn_dropout(m, x, n->dropout), "head", n->classes);
}

/* ---- the table ---------------------------------------------------------------------------- */
static const struct network {
    classify_net sizes;
    pl_val (*build)(pl_nn *m, const classify_net *n, pl_val x);
} networks[] = {
    {{.name = "resnet18", .width = 64, .depths = {2, 2, 2, 2}, .n_depths = 4}, resnet},
    {{.name = "resnet50", .width = 64, .depths = {3, 4, 6, 3}, .n_depths = 4}, resnet},
    {{.name = "convnext_tiny", .width = 96, .depths = {3, 3, 9, 3}, .n_depths = 4}, convnext},
    {{.name = "vit_small", .width = 384, .depths = {12}, .n_depths = 1, .heads = 6, .patch = 16},
     vit},
};

static const struct network *find(const char *name)
{
    size_t i = 0, n = sizeof networks / sizeof *networks;
    while (i + 1 < n && strcmp(networks[i].sizes.name, name) != 0) i++;
    return &networks[i];
}

pl_status classify_net_of(const pl_config *c, classify_net *n)
{
    int count;
    *n = find(pl_config_text(c, "network"))->sizes;
    const int64_t *depths = pl_config_ints(c, "model.depths", &count);
    if (!pl_config_is_null(c, "model.width")) n->width = pl_config_int(c, "model.width");
    if (!pl_config_is_null(c, "model.heads")) n->heads = pl_config_int(c, "model.heads");
    if (!pl_config_is_null(c, "model.patch")) n->patch = pl_config_int(c, "model.patch");
    n->drop_path = pl_config_float(c, "model.drop_path");
    n->dropout = pl_config_float(c, "model.dropout");
    if (count && count != n->n_depths)
        return pl_fail(PL_ERR_CONFIG, "model.depths has %d numbers; %s needs %d", count, n->name,
                       n->n_depths);
    for (int i = 0; i < count; i++) n->depths[i] = depths[i];
    if (n->heads && n->width % n->heads)
        return pl_fail(PL_ERR_CONFIG, "model.width (%lld) is not a multiple of model.heads (%lld)",
                       (long long)n->width, (long long)n->heads);
    if (n->patch && pl_config_int(c, "side") % n->patch)
        return pl_fail(PL_ERR_CONFIG, "side (%lld) is not a multiple of model.patch (%lld)",
                       (long long)pl_config_int(c, "side"), (long long)n->patch);
    return PL_OK;
}

pl_val classify_network(pl_nn *m, const classify_net *n, pl_val x)
{
    return find(n->name)->build(m, n, x);
}

/* ---- timm's names ------------------------------------------------------------------------- */
/* timm's ResNet has torchvision's names. Its stages count from 0 and keep the downsampling inside.
 */
static const pl_rename timm_convnext[] = {
    {"stem.0.*", "features.0.0.*"},
    {"stem.1.*", "features.0.1.*"},
#define STAGE(theirs, ours)                                                                        \
 {"stages." theirs ".blocks.*.gamma", "features." ours ".*.layer_scale"},                          \
     {"stages." theirs ".blocks.*.conv_dw.*", "features." ours ".*.block.0.*"},                    \
     {"stages." theirs ".blocks.*.norm.*", "features." ours ".*.block.2.*"},                       \
     {"stages." theirs ".blocks.*.mlp.fc1.*", "features." ours ".*.block.3.*"},                    \
 {                                                                                                 \
  "stages." theirs ".blocks.*.mlp.fc2.*", "features." ours ".*.block.5.*"                          \
 }
#define DOWN(theirs, ours)                                                                         \
 {"stages." theirs ".downsample.0.*", "features." ours ".0.*"},                                    \
 {                                                                                                 \
  "stages." theirs ".downsample.1.*", "features." ours ".1.*"                                      \
 }
    STAGE("0", "1"),
    STAGE("1", "3"),
    STAGE("2", "5"),
    STAGE("3", "7"),
    DOWN("1", "2"),
    DOWN("2", "4"),
    DOWN("3", "6"),
    {"head.norm.*", "classifier.0.*"},
    {"head.fc.*", "classifier.2.*"},
    {NULL, NULL},
};

const pl_naming classify_namings[] = {
    {.name = "timm", .rules = timm_convnext},
    {.name = NULL},
};
