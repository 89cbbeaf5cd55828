/* check_node.c - attributes that the standard does not have, found before an op is built.
 *
 * An attribute of another type, or a word that the standard does not define, would be read as a
 * default value: the model would give other numbers without a message. */
#include "onnx/onnx.h"

#include "plimsoll_nn.h"

#include <string.h>

/* The words of text attributes. */
static const struct {
    const char *ops, *attribute, *words; /* patterns of pl_nn_match; separated by ", " */
} texts[] = {
    {"Conv,ConvTranspose,MaxPool,AveragePool,LpPool", "auto_pad",
     "NOTSET, SAME_UPPER, SAME_LOWER, VALID"},
    {"LSTM,GRU,RNN", "direction", "forward, reverse, bidirectional"},
    {"Pad", "mode", "constant, reflect, edge, wrap"},
    {"Resize", "mode", "nearest, linear, cubic"},
    {"Upsample", "mode", "nearest, linear"},
    {"Resize", "coordinate_transformation_mode",
     "half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, "
     "tf_crop_and_resize, tf_half_pixel_for_nn"},
    {"Resize", "nearest_mode", "round_prefer_floor, round_prefer_ceil, floor, ceil"},
    {"Resize", "keep_aspect_ratio_policy", "stretch, not_larger, not_smaller"},
    {"GridSample", "mode", "linear, bilinear, nearest, cubic, bicubic"},
    {"GridSample", "padding_mode", "zeros, border, reflection"},
    {"RoiAlign", "mode", "avg, max"},
    {"RoiAlign", "coordinate_transformation_mode", "half_pixel, output_half_pixel"},
    {"DepthToSpace,SpaceToDepth", "mode", "DCR, CRD"},
    {"Gelu", "approximate", "none, tanh"},
    {"NegativeLogLikelihoodLoss,SoftmaxCrossEntropyLoss", "reduction", "none, mean, sum"},
    {"BitShift", "direction", "LEFT, RIGHT"},
    {"TensorScatter", "mode", "linear, circular"},
    {"CausalConvWithState", "activation", "none, silu, swish"},
    {"LinearAttention", "update_rule", "linear, gated, delta, gated_delta"},
    {"Momentum", "mode", "standard, nesterov"},
};

static bool has_word(const char *words, const pl_ox_bytes *s)
{
    for (const char *at = words; at; at = strchr(at, ',')) {
        at += *at == ',' ? 2 : 0; /* ", " */
        size_t n = strcspn(at, ",");
        if (n == s->len && memcmp(at, s->data, n) == 0) return true;
    }
    return false;
}

pl_status pl_ox_check_texts(const pl_ox_call *c)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!pl_nn_match(texts[i].ops, c->op)) continue;
        const pl_ox_attr *a = pl_ox_attr_find(c, texts[i].attribute);
        if (a && a->has_s && !has_word(texts[i].words, &a->s))
            return pl_ox_fail(c, PL_ERR_FILE, "attribute %s is '%.*s'; the words are %s",
                              texts[i].attribute, (int)(a->s.len < 60 ? a->s.len : 60),
                              (const char *)a->s.data, texts[i].words);
    }
    return PL_OK;
}

static const char *type_name(int32_t type)
{
    static const char *const names[] = {
        "of no type", "a number with a fraction", "a whole number", "a text", "a tensor",
        "a graph",    "numbers with fractions",   "whole numbers",  "texts"};
    return type > 0 && (size_t)type < sizeof names / sizeof *names ? names[type] : names[0];
}

pl_status pl_ox_check_types(const pl_ox_call *c)
{
    const char *name = c->b->mistyped;
    if (!name) return PL_OK;
    const pl_ox_attr *a = pl_ox_attr_find(c, name);
    return pl_ox_fail(c, PL_ERR_FILE, "attribute %s has %s; the op needs %s", name,
                      type_name(a ? a->type : 0), type_name(c->b->wanted_type));
}
