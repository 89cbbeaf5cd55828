/* predict.c - masks of new pictures: for each picture a PNG of the same size, with the numbers of
 * the masks that the network was trained on (data.mask_values). Logits are interpolated between the
 * pixels of the network before the largest is taken, so that edges stay smooth.
 */
#include "segment.h"

#include <plimsoll_events.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status build(pl_builder *b)
{
    segment_net n;
    pl_status rc = segment_net_of(pl_builder_config(b), &n);
    if (rc != PL_OK) return rc;
    pl_nn *m = pl_builder_predict(b, NULL);
    pl_val logits = segment_network(m, &n, segment_image(b, m, &n));
    pl_output(m->g, "logits", pl_cast(m->g, logits, PL_F32));
    return PL_OK;
}

/* Two neighbours and the weight of the second. */
typedef struct mix {
    int64_t lo, hi;
    float share;
} mix;

/* Where pixel i of n lies among `size` pixels of the network. */
static mix between(int64_t i, int64_t n, int64_t size)
{
    double at = ((double)i + 0.5) * (double)size / (double)n - 0.5;
    at = at < 0 ? 0 : at > (double)(size - 1) ? (double)(size - 1) : at;
    mix m = {.lo = (int64_t)at};
    m.hi = m.lo + 1 < size ? m.lo + 1 : m.lo;
    m.share = (float)(at - (double)m.lo);
    return m;
}

/* The class with the largest interpolated logit. */
static int64_t class_of(const float *logits, const pl_type *t, mix y, mix x)
{
    int64_t w = t->dim[2], classes = t->dim[3], best = 0;
    const float *a = logits + (y.lo * w + x.lo) * classes,
                *b = logits + (y.lo * w + x.hi) * classes;
    const float *c = logits + (y.hi * w + x.lo) * classes,
                *d = logits + (y.hi * w + x.hi) * classes;
    float most = -INFINITY;
    for (int64_t k = 0; k < classes; k++) {
        float top = a[k] + (b[k] - a[k]) * x.share, low = c[k] + (d[k] - c[k]) * x.share;
        float value = top + (low - top) * y.share;
        if (value > most) most = value, best = k;
    }
    return best;
}

/* A mask that is written row by row: a picture may be far larger than the network's budget. */
typedef struct mask_rows {
    const float *logits;
    const pl_type *type;
    const int64_t *value; /* of each class */
    int n_values, w, h;
    uint8_t *row;
} mask_rows;

static const uint8_t *mask_row(void *from, int y)
{
    const mask_rows *m = from;
    mix my = between(y, m->h, m->type->dim[1]);
    for (int64_t x = 0; x < m->w; x++) {
        int64_t k = class_of(m->logits, m->type, my, between(x, m->w, m->type->dim[2]));
        m->row[x] = (uint8_t)(k < m->n_values ? m->value[k] : k);
    }
    return m->row;
}

/* Writes the mask of picture i, whose logits are given. */
static pl_status write_mask(pl_prediction *p, int64_t i, const float *logits, const pl_type *t)
{
    const char *name;
    char path[4096];
    mask_rows m = {.logits = logits, .type = t};
    m.value = pl_config_ints(pl_predict_config(p), "data.mask_values", &m.n_values);
    pl_status rc = pl_predict_picture(p, i, &name, &m.w, &m.h);
    if (rc != PL_OK) return rc;
    rc = pl_predict_result(p, i, ".png", path, sizeof path);
    if (rc != PL_OK) return rc;
    m.row = malloc((size_t)m.w);
    if (!m.row) return PL_ERR_MEMORY;
    rc = pl_png_save_rows(path, m.w, m.h, 1, mask_row, &m);
    free(m.row);
    return rc;
}

static pl_status write_masks(pl_prediction *p, int64_t first, int rows, const bool *ok)
{
    pl_type t;
    const float *logits = pl_predict_get(p, NULL, "logits", &t);
    int64_t size = t.dim[1] * t.dim[2] * t.dim[3];
    for (int i = 0; i < rows; i++) {
        if (!ok[i]) continue;
        if (!isfinite(logits[i * size]))
            return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights are "
                                           "damaged, or its training diverged");
        pl_status rc = write_mask(p, first + i, logits + i * size, &t);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

static pl_status run(pl_prediction *p)
{
    pl_type t;
    int64_t pictures;
    pl_status rc = pl_predict_pictures(p, &pictures);
    if (rc != PL_OK) return rc;
    pl_predict_type(p, NULL, "logits", &t);
    int64_t batch = t.dim[0];
    bool *ok = malloc((size_t)batch * sizeof *ok);
    if (!ok) return PL_ERR_MEMORY;
    for (int64_t at = 0; at < pictures && rc == PL_OK; at += batch) {
        int rows = (int)(pictures - at < batch ? pictures - at : batch);
        rc = pl_predict_read(p, at, rows, ok);
        if (rc == PL_OK) rc = pl_predict_run(p, NULL);
        if (rc == PL_OK) rc = write_masks(p, at, rows, ok);
        if (rc == PL_OK) rc = pl_predict_progress(p, at + rows, pictures);
    }
    free(ok);
    return rc;
}

const pl_predict segment_predict = {
    .input = "a picture or a folder of pictures",
    .out = "a folder for PNG masks",
    .build = build,
    .run = run,
};
