/* clip.c - CLIP's text transformer, under the names of OpenCLIP or of the transformers library.
 *
 *     x = words + positions
 *     layer:  x = x + out(attention(q, k, v of norm1(x)));  x = x + mlp(norm2(x))      causal
 *     result: norm(x)
 *
 * Stable Diffusion 2 takes the output of the last layer but one, through the final norm. Files of
 * OpenCLIP have all layers, so for them `layer: auto` leaves the last one out; the text encoder of
 * diffusers does not have that layer, so for names of transformers all layers run. Padding is not
 * masked: it comes after the end token, and no token sees later ones.
 */
#include "encoders.h"

#include <stdio.h>
#include <string.h>

/* OpenCLIP joins q, k and v in one weight. */
typedef struct clip_names {
    const char *words, *positions, *layers, *norm1, *norm2, *in, *out, *up, *down, *norm;
    bool joined;
} clip_names;

static const clip_names conventions[] = {
    {"embeddings.token_embedding.weight", "embeddings.position_embedding.weight",
     "encoder.layers.%d.self_attn.q_proj.weight", "encoder.layers.%d.layer_norm1",
     "encoder.layers.%d.layer_norm2", "encoder.layers.%d.self_attn.%c_proj",
     "encoder.layers.%d.self_attn.out_proj", "encoder.layers.%d.mlp.fc1",
     "encoder.layers.%d.mlp.fc2", "final_layer_norm", false},
    {"token_embedding.weight", "positional_embedding",
     "transformer.resblocks.%d.attn.in_proj_weight", "transformer.resblocks.%d.ln_1",
     "transformer.resblocks.%d.ln_2", "transformer.resblocks.%d.attn.in_proj_",
     "transformer.resblocks.%d.attn.out_proj", "transformer.resblocks.%d.mlp.c_fc",
     "transformer.resblocks.%d.mlp.c_proj", "ln_final", true},
};

static const clip_names *convention(const enc_file *f, char *prefix, size_t cap)
{
    char name[ENC_NAME], full[384];
    for (size_t i = 0; i < sizeof conventions / sizeof *conventions; i++) {
        const clip_names *n = &conventions[i];
        if (!enc_find_tail(f, n->positions, "vision_model.", prefix, cap)) continue;
        snprintf(full, sizeof full, "%s%s", prefix, enc_name(name, n->layers, 0, 0));
        if (enc_find(f, full)) return n;
    }
    return NULL;
}

static pl_status read_activation(encoder *e)
{
    char *text;
    pl_status rc = enc_setting(e->f, "hidden_act", &text);
    if (rc != PL_OK) return rc;
    bool known = !text || strcmp(text, "gelu") == 0 || strcmp(text, "quick_gelu") == 0;
    if (known)
        snprintf(e->activation, sizeof e->activation, "%s", text ? text : "gelu");
    else
        rc = pl_fail(PL_ERR_FILE, "config.json beside %s: hidden_act \"%.40s\" is unknown",
                     e->f->path, text);
    pl_text_free(text);
    return rc;
}

static pl_status open(encoder *e)
{
    char name[256];
    const clip_names *n = convention(e->f, e->prefix, sizeof e->prefix);
    if (!n)
        return pl_fail(
            PL_ERR_FILE,
            "%s is not a text encoder of CLIP: neither transformer.resblocks.0 (OpenCLIP) nor "
            "text_model.encoder.layers.0 (transformers) is in it",
            e->f->path);
    snprintf(name, sizeof name, "%s%s", e->prefix, n->positions);
    const enc_tensor *positions = enc_find(e->f, name);
    snprintf(name, sizeof name, "%s%s", e->prefix, n->words);
    const enc_tensor *words = enc_find(e->f, name);
    if (!words || words->rank != 2 || positions->rank != 2)
        return pl_fail(PL_ERR_FILE, "%s: the token table \"%s\" is missing", e->f->path, name);
    e->vocabulary = words->dim[0];
    e->width = words->dim[1];
    e->positions = positions->dim[0];
    e->layers = enc_layers(e->f, e->prefix, n->layers);
    double heads = (double)(e->width / 64);
    e->eps = 1e-5;
    pl_status rc = enc_setting_number(e->f, "num_attention_heads", &heads);
    if (rc == PL_OK) rc = enc_setting_number(e->f, "layer_norm_eps", &e->eps);
    e->heads = (int)heads;
    const char *which = pl_config_text(e->c, "layer");
    bool before = strcmp(which, "penultimate") == 0 || (strcmp(which, "auto") == 0 && n->joined);
    if (before && e->layers > 1) e->layers--;
    return rc == PL_OK ? read_activation(e) : rc;
}

/* q, k and v of x. */
static void project(encoder *e, const clip_names *n, int i, pl_val x, pl_val part[3])
{
    pl_graph *g = e->m->g;
    char name[ENC_NAME];
    for (int k = 0; k < 3 && !n->joined; k++)
        part[k] = enc_linear(e, x, enc_name(name, n->in, i, "qkv"[k]), e->width, true);
    if (!n->joined) return;
    const char *in = enc_name(name, n->in, i, 0);
    pl_val w = enc_weight(e, pl_nn_name(e->m, "%sweight", in), 2, 3 * e->width, e->width);
    pl_val b = enc_weight(e, pl_nn_name(e->m, "%sbias", in), 1, 3 * e->width, 0);
    pl_split(g, pl_linear(g, x, w, b), -1, 3, part);
}

static pl_val layer(encoder *e, const clip_names *n, int i, pl_val x)
{
    pl_graph *g = e->m->g;
    char name[ENC_NAME];
    pl_val part[3];
    project(e, n, i, enc_layer_norm(e, x, enc_name(name, n->norm1, i, 0), e->eps), part);
    for (int k = 0; k < 3; k++)
        part[k] = pl_reshape(g, part[k], PL_DIMS(e->batch, e->length, e->heads, -1));
    pl_val y = pl_attention(g, part[0], part[1], part[2], 0, true);
    y = pl_reshape(g, y, PL_DIMS(e->batch, e->length, e->width));
    x = pl_add(g, x, enc_linear(e, y, enc_name(name, n->out, i, 0), e->width, true));
    y = enc_layer_norm(e, x, enc_name(name, n->norm2, i, 0), e->eps);
    y = enc_activation(e, enc_linear(e, y, enc_name(name, n->up, i, 0), -1, true));
    return pl_add(g, x, enc_linear(e, y, enc_name(name, n->down, i, 0), e->width, true));
}

static pl_val build(encoder *e)
{
    pl_graph *g = e->m->g;
    char prefix[192];
    const clip_names *n = convention(e->f, prefix, sizeof prefix);
    char words[384];
    snprintf(words, sizeof words, "%s%s", e->prefix, n->words);
    pl_val places = enc_weight(e, n->positions, 2, -1, e->width);
    pl_val x =
        pl_add(g, enc_embed(e, enc_find(e->f, words)), pl_slice(g, places, 0, 0, e->length, 1));
    for (int i = 0; i < e->layers && pl_val_ok(x); i++) x = layer(e, n, i, x);
    return enc_layer_norm(e, x, n->norm, e->eps);
}

const enc_kind enc_clip = {
    .name = "openclip", .tokenizer = PL_TOKENIZER_CLIP, .length = 77, .open = open, .build = build};
