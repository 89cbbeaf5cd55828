/* layers.c - layers over the tensors of a weight file; see encoders.h. Weights keep the type in
 * which the file has them, so that an encoder of bf16 takes 2 bytes a weight; products are f32. */
#include "encoders.h"

#include <stdio.h>
#include <string.h>

static pl_val missing(encoder *e, const char *name)
{
    return pl_nn_fail(e->m, PL_ERR_FILE, "%s: the tensor \"%s\" is missing", e->f->path, name);
}

/* The tensor after checking its shape; NULL: an error is recorded. name is the whole name. */
static const enc_tensor *look_up(encoder *e, const char *name, int rank, int64_t rows,
                                 int64_t columns)
{
    const enc_tensor *t = enc_find(e->f, name);
    if (!t) {
        missing(e, name);
        return NULL;
    }
    bool fits = t->rank == rank && (rows < 0 || t->dim[0] == rows) &&
                (rank < 2 || columns < 0 || t->dim[1] == columns) && t->dim[0] > 0 &&
                (rank < 2 || t->dim[1] > 0);
    if (fits) return t;
    char want[64] = "", have[64];
    snprintf(have, sizeof have, t->rank == 2 ? "[%lld,%lld]" : "[%lld]", (long long)t->dim[0],
             (long long)t->dim[1]);
    if (rank == 2)
        snprintf(want, sizeof want, "[%lld,%lld]", (long long)rows, (long long)columns);
    else
        snprintf(want, sizeof want, "[%lld]", (long long)rows);
    pl_nn_fail(e->m, PL_ERR_FILE, "%s: the tensor \"%s\" is %s, it must be %s (-1: any)",
               e->f->path, name, have, want);
    return NULL;
}

pl_val enc_weight(encoder *e, const char *name, int rank, int64_t rows, int64_t columns)
{
    const char *full = pl_nn_name(e->m, "%s%s", e->prefix, name);
    const enc_tensor *t = full ? look_up(e, full, rank, rows, columns) : NULL;
    if (!t) return PL_NO_VAL;
    e->m->dtype = t->dtype;
    pl_val w = pl_nn_param(e->m, full, t->rank, t->dim, pl_nn_constant(0));
    e->m->dtype = PL_F32;
    return t->dtype == PL_F32 ? w : pl_cast(e->m->g, w, PL_F32);
}

pl_val enc_embed(encoder *e, const enc_tensor *table)
{
    e->m->dtype = table->dtype;
    pl_val w = pl_nn_param(e->m, table->name, table->rank, table->dim, pl_nn_constant(0));
    e->m->dtype = PL_F32;
    pl_val x = pl_take(e->m->g, w, e->ids);
    return table->dtype == PL_F32 ? x : pl_cast(e->m->g, x, PL_F32);
}

const char *enc_name(char buf[ENC_NAME], const char *format, int layer, char letter)
{
    size_t at = 0;
    for (; *format && at + 12 < ENC_NAME; format++) {
        if (*format != '%')
            buf[at++] = *format;
        else if (*++format == 'd')
            at += (size_t)snprintf(buf + at, ENC_NAME - at, "%d", layer);
        else
            buf[at++] = letter;
    }
    buf[at] = 0;
    return buf;
}

pl_val enc_linear(encoder *e, pl_val x, const char *name, int64_t out, bool bias)
{
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(e->m->g, x);
    pl_val w = enc_weight(e, pl_nn_name(e->m, "%s.weight", name), 2, out, t.dim[t.rank - 1]);
    if (!pl_val_ok(w)) return w;
    int64_t rows = pl_val_type(e->m->g, w).dim[0];
    pl_val b = bias ? enc_weight(e, pl_nn_name(e->m, "%s.bias", name), 1, rows, 0) : PL_NO_VAL;
    if (bias && !pl_val_ok(b)) return b;
    return pl_linear(e->m->g, x, w, b);
}

pl_val enc_layer_norm(encoder *e, pl_val x, const char *name, double eps)
{
    if (!pl_val_ok(x)) return x;
    pl_type t = pl_val_type(e->m->g, x);
    const char *full = pl_nn_name(e->m, "%s%s", e->prefix, name);
    int64_t width = t.dim[t.rank - 1];
    if (!look_up(e, pl_nn_name(e->m, "%s.weight", full), 1, width, 0) ||
        !look_up(e, pl_nn_name(e->m, "%s.bias", full), 1, width, 0))
        return PL_NO_VAL;
    return pl_nn_layer_norm(e->m, x, full, (pl_nn_norm){.eps = eps});
}

pl_val enc_rms_norm(encoder *e, pl_val x, const char *name)
{
    if (!pl_val_ok(x)) return x;
    const char *full = pl_nn_name(e->m, "%s%s", e->prefix, name);
    if (!look_up(e, pl_nn_name(e->m, "%s.weight", full), 1, e->width, 0)) return PL_NO_VAL;
    return pl_nn_rms_norm(e->m, x, full, (pl_nn_norm){.eps = e->eps});
}

pl_val enc_activation(encoder *e, pl_val x)
{
    if (strcmp(e->activation, "quick_gelu") != 0) return pl_nn_activation(e->m, x, e->activation);
    return pl_mul(e->m->g, x, pl_sigmoid(e->m->g, pl_scale(e->m->g, x, 1.702)));
}

pl_val enc_mask(encoder *e)
{
    pl_graph *g = e->m->g;
    pl_val off = pl_scale(g, pl_shift(g, e->mask, -1), 1e30);
    return pl_reshape(g, off, PL_DIMS(e->batch, 1, 1, e->length));
}

/* [B,L,H*D] to [B,H,L,D]. */
static pl_val split_heads(encoder *e, pl_val x)
{
    x = pl_reshape(e->m->g, x, PL_DIMS(e->batch, e->length, e->heads, -1));
    return pl_permute(e->m->g, x, (const int[]){0, 2, 1, 3});
}

pl_val enc_attend(encoder *e, pl_val q, pl_val k, pl_val v, double scale, pl_val bias)
{
    pl_graph *g = e->m->g;
    pl_val score = pl_matmul(g, split_heads(e, q), split_heads(e, k), false, true);
    if (scale != 1) score = pl_scale(g, score, scale);
    if (pl_val_ok(bias)) score = pl_add(g, score, pl_unsqueeze(g, bias, 0));
    score = pl_add(g, score, enc_mask(e));
    pl_val y = pl_matmul(g, pl_softmax(g, score, -1), split_heads(e, v), false, false);
    y = pl_permute(g, y, (const int[]){0, 2, 1, 3});
    return pl_reshape(g, y, PL_DIMS(e->batch, e->length, -1));
}
