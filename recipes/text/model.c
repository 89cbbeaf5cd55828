/* model.c - GPT-2: a transformer that predicts the next token from the tokens before it.
 *
 *     x = wte[token] + wpe[position]
 *     layer i:  x = x + c_proj(attention(c_attn(ln_1(x))))     causal: no position sees later ones
 *               x = x + c_proj(gelu(c_fc(ln_2(x))))            four times as wide
 *     logits = wte ln_f(x)                                     the table of tokens is used twice
 *
 * Names, layouts and initial values are those of the transformers library, so its GPT-2 files load.
 * That library stores linear layers as [in, out].
 */
#include "text.h"

#include <math.h>

/* x [B,T,in] times a weight [in,out]. */
static pl_val linear(pl_nn *m, pl_val x, const char *name, int64_t out, double std)
{
    pl_graph *g = m->g;
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    pl_nn_push(m, "%s", name);
    pl_val w = pl_nn_param(m, "weight", PL_DIMS(t.dim[2], out), pl_nn_normal(0, std));
    pl_val b = pl_nn_param(m, "bias", PL_DIMS(out), pl_nn_constant(0));
    pl_val y = pl_matmul(g, pl_reshape(g, x, PL_DIMS(-1, t.dim[2])), w, false, false);
    y = pl_reshape(g, pl_add(g, y, b), PL_DIMS(t.dim[0], t.dim[1], out));
    pl_nn_pop(m);
    return y;
}

static pl_val attend(pl_nn *m, pl_val x, const text_sizes *s, double last_std)
{
    pl_graph *g = m->g;
    pl_val part[3];
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    pl_nn_push(m, "attn");
    pl_split(g, linear(m, x, "c_attn", 3 * s->width, 0.02), -1, 3, part);
    for (int i = 0; i < 3; i++)
        part[i] = pl_reshape(g, part[i], PL_DIMS(t.dim[0], t.dim[1], s->heads, -1));
    pl_val y = pl_attention(g, part[0], part[1], part[2], 0, true);
    y = pl_reshape(g, y, PL_DIMS(t.dim[0], t.dim[1], s->width));
    y = linear(m, y, "c_proj", s->width, last_std);
    pl_nn_pop(m);
    return pl_nn_dropout(m, y, s->dropout);
}

static pl_val widen(pl_nn *m, pl_val x, const text_sizes *s, double last_std)
{
    pl_nn_push(m, "mlp");
    x = pl_gelu_tanh(m->g, linear(m, x, "c_fc", 4 * s->width, 0.02));
    x = linear(m, x, "c_proj", s->width, last_std);
    pl_nn_pop(m);
    return pl_nn_dropout(m, x, s->dropout);
}

/* Row which[b] of each sample of x [B,T,C]: [B,1,C]. */
static pl_val pick(pl_graph *g, pl_val x, pl_val which)
{
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(g, x);
    pl_val first = pl_scale(g, pl_iota(g, PL_TYPE(PL_I32, t.dim[0]), 0), (double)t.dim[1]);
    pl_val rows = pl_reshape(g, x, PL_DIMS(-1, t.dim[2]));
    return pl_unsqueeze(g, pl_take(g, rows, pl_add(g, first, which)), 1);
}

pl_val text_model(pl_nn *m, const text_sizes *s, pl_val tokens, pl_val which)
{
    pl_graph *g = m->g;
    const pl_nn_norm norm = {0};
    double last_std = 0.02 / sqrt(2 * (double)s->layers); /* keeps the sum of the layers small */
    int64_t batch = pl_val_type(g, tokens).dim[0];
    pl_val wte =
        pl_nn_param(m, "wte.weight", PL_DIMS(s->vocabulary, s->width), pl_nn_normal(0, 0.02));
    pl_val wpe = pl_nn_param(m, "wpe.weight", PL_DIMS(s->context, s->width), pl_nn_normal(0, 0.02));
    pl_val x = pl_nn_dropout(m, pl_add(g, pl_take(g, wte, tokens), wpe), s->dropout);
    for (int i = 0; i < s->layers; i++) {
        pl_nn_push(m, "h.%d", i);
        pl_scope_checkpoint(g);
        x = pl_add(g, x, attend(m, pl_nn_layer_norm(m, x, "ln_1", norm), s, last_std));
        x = pl_add(g, x, widen(m, pl_nn_layer_norm(m, x, "ln_2", norm), s, last_std));
        pl_nn_pop(m);
    }
    if (pl_val_ok(which)) x = pick(g, x, which);
    x = pl_nn_layer_norm(m, x, "ln_f", norm);
    x = pl_matmul(g, pl_reshape(g, x, PL_DIMS(-1, s->width)), wte, false, true);
    if (pl_val_ok(which)) return x;
    return pl_reshape(g, x, PL_DIMS(batch, s->context, s->vocabulary));
}
