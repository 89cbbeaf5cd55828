/* umt5.c - the encoder of umT5 and of T5 1.1: no position codes but a learned bias per head and
 * distance, in every layer (umT5) or in the first one for all (T5).
 *
 *     x = x + o(attention(q, k, v of norm(x), bias))       no scale
 *     x = x + wo(gelu(wi_0(norm(x))) * wi_1(norm(x)))       RMS norms, no biases
 *
 * Distances fall into buckets: half for positions before, half after; in each half small distances
 * have a separate bucket each, larger distances share buckets of growing width up to `farthest`.
 * Rows of padding are zeros in the result, as Wan's pipelines have them.
 */
#include "encoders.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names after the prefix; %d is the layer. */
typedef struct t5_names {
    const char *anchor, *table; /* a tensor that identifies the convention; the token table */
    const char *bias, *q, *norm1, *norm2, *gate, *up, *down, *norm;
} t5_names;

/* the transformers library; then Wan's own file */
static const t5_names conventions[] = {
    {"block.%d.layer.0.SelfAttention.q.weight", "embed_tokens.weight",
     "block.%d.layer.0.SelfAttention.relative_attention_bias.weight",
     "block.%d.layer.0.SelfAttention.%c", "block.%d.layer.0.layer_norm",
     "block.%d.layer.1.layer_norm", "block.%d.layer.1.DenseReluDense.wi_0",
     "block.%d.layer.1.DenseReluDense.wi_1", "block.%d.layer.1.DenseReluDense.wo",
     "final_layer_norm"},
    {"blocks.%d.attn.q.weight", "token_embedding.weight",
     "blocks.%d.pos_embedding.embedding.weight", "blocks.%d.attn.%c", "blocks.%d.norm1",
     "blocks.%d.norm2", "blocks.%d.ffn.gate.0", "blocks.%d.ffn.fc1", "blocks.%d.ffn.fc2", "norm"},
};

/* The convention of the file, and the prefix of its encoder. NULL: none. */
static const t5_names *convention(const enc_file *f, char *prefix, size_t cap)
{
    char name[ENC_NAME];
    for (size_t i = 0; i < sizeof conventions / sizeof *conventions; i++)
        if (enc_find_tail(f, enc_name(name, conventions[i].anchor, 0, 0), "decoder.", prefix, cap))
            return &conventions[i];
    return NULL;
}

/* The tensor of a layer's bias, or the first layer's. */
static const enc_tensor *bias_tensor(const enc_file *f, const t5_names *n, const char *prefix,
                                     int layer, char full[384])
{
    char name[ENC_NAME];
    for (; layer >= 0; layer = layer ? 0 : -1) {
        snprintf(full, 384, "%s%s", prefix, enc_name(name, n->bias, layer, 0));
        const enc_tensor *t = enc_find(f, full);
        if (t) return t;
    }
    return NULL;
}

pl_status enc_umt5_distances(const enc_file *f, int64_t *buckets, int64_t *farthest)
{
    char prefix[192], full[384];
    double most = 128;
    const t5_names *n = convention(f, prefix, sizeof prefix);
    const enc_tensor *t = n ? bias_tensor(f, n, prefix, 0, full) : NULL;
    if (!n)
        return pl_fail(PL_ERR_FILE, "%s is not an umT5 or T5 encoder: no tensor is named ...%s",
                       f->path, "block.0.layer.0.SelfAttention.q.weight");
    if (!t || t->rank != 2 || t->dim[0] < 4 || t->dim[0] % 2)
        return pl_fail(PL_ERR_FILE,
                       "%s: \"%s\", the bias of distances [buckets, heads], is missing or has "
                       "another shape",
                       f->path, full);
    pl_status rc = enc_setting_number(f, "relative_attention_max_distance", &most);
    if (rc == PL_OK && most * 4 <= (double)t->dim[0])
        rc = pl_fail(PL_ERR_FILE,
                     "config.json beside %s: relative_attention_max_distance %g is too small for "
                     "%lld buckets",
                     f->path, most, (long long)t->dim[0]);
    *buckets = t->dim[0];
    *farthest = (int64_t)most;
    return rc;
}

/* The bucket of key - query. The logarithm is in f32, as the transformers library takes it. */
static int32_t bucket_of(int64_t buckets, int64_t farthest, int64_t distance)
{
    int64_t half = buckets / 2, exact = half / 2, n = distance < 0 ? -distance : distance;
    int64_t first = distance > 0 ? half : 0;
    if (n < exact) return (int32_t)(first + n);
    float share = logf((float)n / (float)exact) / (float)log((double)farthest / (double)exact);
    int64_t far = exact + (int64_t)(share * (float)(half - exact));
    return (int32_t)(first + (far < half ? far : half - 1));
}

void enc_umt5_buckets(int64_t buckets, int64_t farthest, int64_t length, int32_t *to)
{
    for (int64_t query = 0; query < length; query++)
        for (int64_t key = 0; key < length; key++)
            *to++ = bucket_of(buckets, farthest, key - query);
}

/* "gated-gelu" and "gated-silu"; dense_act_fn names the function. */
static pl_status read_activation(encoder *e)
{
    char *text;
    pl_status rc = enc_setting(e->f, "dense_act_fn", &text);
    if (rc != PL_OK) return rc;
    const char *known =
        !text || strcmp(text, "gelu_new") == 0 || strcmp(text, "gelu_pytorch_tanh") == 0
            ? "gelu_tanh"
        : strcmp(text, "gelu") == 0 ? "gelu"
        : strcmp(text, "silu") == 0 ? "silu"
        : strcmp(text, "relu") == 0 ? "relu"
                                    : NULL;
    if (known)
        snprintf(e->activation, sizeof e->activation, "%s", known);
    else
        rc = pl_fail(PL_ERR_FILE, "config.json beside %s: dense_act_fn \"%.40s\" is unknown",
                     e->f->path, text);
    pl_text_free(text);
    return rc;
}

/* The token table: under the prefix, or shared with a decoder beside it. */
static const enc_tensor *table_of(const encoder *e, const t5_names *n, char name[224])
{
    static const char inner[] = "encoder.";
    size_t outer = strlen(e->prefix), m = sizeof inner - 1;
    snprintf(name, 224, "%s%s", e->prefix, n->table);
    const enc_tensor *t = enc_find(e->f, name);
    if (t || outer < m || strcmp(e->prefix + outer - m, inner) != 0) return t;
    snprintf(name, 224, "%.*sshared.weight", (int)(outer - m), e->prefix);
    return enc_find(e->f, name);
}

static pl_status open(encoder *e)
{
    int64_t buckets, farthest;
    char full[384], table[224];
    pl_status rc = enc_umt5_distances(e->f, &buckets, &farthest);
    if (rc != PL_OK) return rc;
    const t5_names *n = convention(e->f, e->prefix, sizeof e->prefix);
    const enc_tensor *t = table_of(e, n, table);
    if (!t || t->rank != 2)
        return pl_fail(PL_ERR_FILE, "%s: the token table \"%s\" is missing", e->f->path, table);
    e->vocabulary = t->dim[0];
    e->width = t->dim[1];
    e->heads = (int)bias_tensor(e->f, n, e->prefix, 0, full)->dim[1];
    e->layers = enc_layers(e->f, e->prefix, n->anchor);
    e->eps = 1e-6;
    rc = enc_setting_number(e->f, "layer_norm_epsilon", &e->eps);
    return rc == PL_OK ? read_activation(e) : rc;
}

static pl_val layer(encoder *e, const t5_names *n, int i, pl_val buckets, pl_val x)
{
    pl_graph *g = e->m->g;
    char name[ENC_NAME], full[384];
    const enc_tensor *table = bias_tensor(e->f, n, e->prefix, i, full);
    pl_val bias = enc_weight(e, full + strlen(e->prefix), 2, table->dim[0], e->heads), part[3];
    bias = pl_permute(g, pl_take(g, bias, buckets), (const int[]){2, 0, 1});
    pl_val y = enc_rms_norm(e, x, enc_name(name, n->norm1, i, 0));
    for (int k = 0; k < 3; k++) {
        part[k] = enc_linear(e, y, enc_name(name, n->q, i, "qkv"[k]), -1, false);
        if (!pl_val_ok(part[k])) return PL_NO_VAL;
    }
    pl_type inner = pl_val_type(g, part[0]), other = pl_val_type(g, part[1]),
            last = pl_val_type(g, part[2]);
    if (inner.dim[2] % e->heads || other.dim[2] != inner.dim[2] || last.dim[2] % e->heads)
        return pl_nn_fail(e->m, PL_ERR_FILE, "%s: layer %d: q, k and v do not have %d heads",
                          e->f->path, i, e->heads);
    y = enc_attend(e, part[0], part[1], part[2], 1, bias);
    x = pl_add(g, x, enc_linear(e, y, enc_name(name, n->q, i, 'o'), e->width, false));
    y = enc_rms_norm(e, x, enc_name(name, n->norm2, i, 0));
    pl_val gate = enc_activation(e, enc_linear(e, y, enc_name(name, n->gate, i, 0), -1, false));
    if (!pl_val_ok(gate)) return gate;
    int64_t wide = pl_val_type(g, gate).dim[2];
    y = pl_mul(g, gate, enc_linear(e, y, enc_name(name, n->up, i, 0), wide, false));
    return pl_add(g, x, enc_linear(e, y, enc_name(name, n->down, i, 0), e->width, false));
}

static pl_val build(encoder *e)
{
    pl_graph *g = e->m->g;
    char prefix[192], table[224];
    const t5_names *n = convention(e->f, prefix, sizeof prefix);
    pl_val buckets = pl_input(g, "buckets", PL_TYPE(PL_I32, e->length, e->length));
    pl_val x = enc_embed(e, table_of(e, n, table));
    for (int i = 0; i < e->layers && pl_val_ok(x); i++) x = layer(e, n, i, buckets, x);
    x = enc_rms_norm(e, x, n->norm);
    return pl_mul(g, x, pl_unsqueeze(g, e->mask, 2));
}

const enc_kind enc_umt5 = {.name = "umt5",
                           .tokenizer = PL_TOKENIZER_SENTENCEPIECE,
                           .length = 226,
                           .open = open,
                           .build = build,
                           .buckets = true};
