/* distilbert.c - DistilBERT, and the vector that FluxFlow makes of it.
 *
 *     x = norm(words + positions)
 *     layer:  x = norm(x + out(attention(q, k, v of x)));  x = norm(x + lin2(gelu(lin1(x))))
 *
 * Result: all tokens, [B,L,W]; the mean over tokens without padding (pool: mean), or over all
 * positions (pool: all), [B,W]. FluxFlow's text encoder has a head behind the mean over all
 * positions: linear, norm, Bezier curve, twice. Where the file has the head, its output is the
 * result, [B,dimension of the head].
 */
#include "encoders.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD "ouput_layer." /* the authors' spelling; files of later versions may mend it */

static pl_status read_activation(encoder *e)
{
    char *text;
    pl_status rc = enc_setting(e->f, "activation", &text);
    if (rc != PL_OK) return rc;
    bool known = !text || strcmp(text, "gelu") == 0 || strcmp(text, "relu") == 0;
    if (known)
        snprintf(e->activation, sizeof e->activation, "%s", text ? text : "gelu");
    else
        rc = pl_fail(PL_ERR_FILE, "config.json beside %s: activation \"%.40s\" is unknown",
                     e->f->path, text);
    pl_text_free(text);
    return rc;
}

static pl_status open(encoder *e)
{
    char name[256];
    const enc_tensor *t =
        enc_find_tail(e->f, "embeddings.word_embeddings.weight", NULL, e->prefix, sizeof e->prefix);
    snprintf(name, sizeof name, "%sembeddings.position_embeddings.weight", e->prefix);
    const enc_tensor *positions = t ? enc_find(e->f, name) : NULL;
    if (!t || !positions || t->rank != 2 || positions->rank != 2)
        return pl_fail(PL_ERR_FILE,
                       "%s is not DistilBERT: embeddings.word_embeddings.weight or "
                       "embeddings.position_embeddings.weight is missing",
                       e->f->path);
    e->vocabulary = t->dim[0];
    e->width = t->dim[1];
    e->positions = positions->dim[0];
    e->layers = enc_layers(e->f, e->prefix, "transformer.layer.%d.attention.q_lin.weight");
    if (e->layers == 0)
        return pl_fail(
            PL_ERR_FILE,
            "%s is not DistilBERT: transformer.layer.0.attention.q_lin.weight is missing",
            e->f->path);
    double heads = (double)(e->width / 64);
    pl_status rc = enc_setting_number(e->f, "n_heads", &heads);
    e->heads = (int)heads;
    e->eps = 1e-12;
    return rc == PL_OK ? read_activation(e) : rc;
}

static pl_val layer(encoder *e, int i, pl_val x)
{
    pl_graph *g = e->m->g;
    char name[96];
    pl_val part[4];
    static const char *const lin[] = {"q_lin", "k_lin", "v_lin", "out_lin"};
    for (int k = 0; k < 3; k++) {
        snprintf(name, sizeof name, "transformer.layer.%d.attention.%s", i, lin[k]);
        part[k] = enc_linear(e, x, name, e->width, true);
    }
    double scale = 1 / sqrt((double)e->width / e->heads);
    pl_val y = enc_attend(e, part[0], part[1], part[2], scale, PL_NO_VAL);
    snprintf(name, sizeof name, "transformer.layer.%d.attention.%s", i, lin[3]);
    y = enc_linear(e, y, name, e->width, true);
    snprintf(name, sizeof name, "transformer.layer.%d.sa_layer_norm", i);
    x = enc_layer_norm(e, pl_add(g, y, x), name, e->eps);
    snprintf(name, sizeof name, "transformer.layer.%d.ffn.lin1", i);
    y = enc_activation(e, enc_linear(e, x, name, -1, true));
    snprintf(name, sizeof name, "transformer.layer.%d.ffn.lin2", i);
    y = enc_linear(e, y, name, e->width, true);
    snprintf(name, sizeof name, "transformer.layer.%d.output_layer_norm", i);
    return enc_layer_norm(e, pl_add(g, y, x), name, e->eps);
}

/* The prefix of FluxFlow's head; false: the file has none. */
static bool find_head(const encoder *e, char prefix[192])
{
    char outer[160];
    static const char *const name[] = {HEAD, "output_layer."};
    for (int i = 0; i < 2; i++) {
        char tail[64];
        snprintf(tail, sizeof tail, "%s0.weight", name[i]);
        if (!enc_find_tail(e->f, tail, NULL, outer, sizeof outer)) continue;
        snprintf(prefix, 192, "%s%s", outer, name[i]);
        return true;
    }
    return false;
}

static pl_val head(encoder *e, pl_val x, const char *prefix)
{
    pl_graph *g = e->m->g;
    snprintf(e->prefix, sizeof e->prefix, "%s", prefix);
    for (int i = 0; i < 2 && pl_val_ok(x); i++) {
        x = enc_linear(e, x, i ? "3" : "0", -1, true);
        x = enc_layer_norm(e, x, i ? "4" : "1", 1e-5);
        if (pl_val_ok(x) && pl_val_type(g, x).dim[1] % 5)
            return pl_nn_fail(e->m, PL_ERR_FILE,
                              "%s: %s%d.weight: a Bezier curve takes a multiple of 5 rows",
                              e->f->path, prefix, 3 * i);
        x = pl_bezier(g, x, false);
    }
    return x;
}

static pl_val pool(encoder *e, pl_val x, bool padding_too)
{
    pl_graph *g = e->m->g;
    if (padding_too) return pl_mean(g, x, PL_AXIS(1), false);
    pl_val sum = pl_sum(g, pl_mul(g, x, pl_unsqueeze(g, e->mask, 2)), PL_AXIS(1), false);
    return pl_div(g, sum, pl_sum(g, e->mask, PL_AXIS(1), true));
}

static pl_val build(encoder *e)
{
    pl_graph *g = e->m->g;
    char prefix[192], words[256];
    const char *pooled = pl_config_text(e->c, "pool");
    snprintf(words, sizeof words, "%sembeddings.word_embeddings.weight", e->prefix);
    pl_val places = enc_weight(e, "embeddings.position_embeddings.weight", 2, -1, e->width);
    pl_val x =
        pl_add(g, enc_embed(e, enc_find(e->f, words)), pl_slice(g, places, 0, 0, e->length, 1));
    x = enc_layer_norm(e, x, "embeddings.LayerNorm", e->eps);
    for (int i = 0; i < e->layers && pl_val_ok(x); i++) x = layer(e, i, x);
    bool auto_pool = strcmp(pooled, "auto") == 0;
    if (strcmp(pooled, "none") == 0 || (auto_pool && !find_head(e, prefix))) return x;
    x = pool(e, x, strcmp(pooled, "mean") != 0);
    return auto_pool ? head(e, x, prefix) : x;
}

const enc_kind enc_distilbert = {.name = "distilbert",
                                 .tokenizer = PL_TOKENIZER_WORDPIECE,
                                 .length = 128,
                                 .open = open,
                                 .build = build};
