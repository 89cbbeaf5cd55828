/* pictures.c - from an image to the inputs of a step: the sharpened image, its degraded form, its
 * edges.
 *
 * Runs on the reading threads, for images in a folder (the authors' PNGs) and for generated ones.
 * The degradation is set by the keys degrade.*. Edges are computed from the original image.
 */
#include "stablesr.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    pl_degrader *degrader;
    uint8_t *edge;
    void *work;
    int low, high;
} maker;

static void range(const pl_config *c, const char *key, double out[2])
{
    int n;
    const double *x = pl_config_floats(c, key, &n);
    for (int i = 0; i < 2 && i < n; i++) out[i] = x[i];
}

pl_degrade sr_degrade_of(const pl_config *c)
{
    pl_degrade o = pl_degrade_stablesr();
    range(c, "degrade.sigma", o.pass[0].sigma);
    range(c, "degrade.sigma2", o.pass[1].sigma);
    range(c, "degrade.scale", o.pass[0].scale);
    range(c, "degrade.scale2", o.pass[1].scale);
    range(c, "degrade.noise", o.pass[0].noise);
    range(c, "degrade.noise2", o.pass[1].noise);
    range(c, "degrade.poisson", o.pass[0].poisson);
    range(c, "degrade.poisson2", o.pass[1].poisson);
    range(c, "degrade.jpeg", o.pass[0].jpeg);
    range(c, "degrade.jpeg2", o.pass[1].jpeg);
    o.pass[1].blur = pl_config_float(c, "degrade.blur2");
    o.last_sinc = pl_config_float(c, "degrade.last_sinc");
    o.untouched = pl_config_float(c, "degrade.untouched");
    o.factor = (int)pl_config_int(c, "degrade.factor");
    o.sharpen = pl_config_bool(c, "degrade.sharpen");
    o.codec = strcmp(pl_config_text(c, "degrade.codec"), "jpeg") == 0;
    o.bytes = pl_config_bool(c, "degrade.bytes");
    return o;
}

uint64_t sr_make_bytes(const pl_config *c, int w, int h)
{
    pl_degrade o = sr_degrade_of(c);
    return pl_degrader_bytes(&o, w, h) + pl_canny_bytes(w, h) + (uint64_t)w * (uint64_t)h;
}

void sr_make_close(void *state)
{
    maker *m = state;
    if (!m) return;
    pl_degrader_free(m->degrader);
    free(m->edge);
    free(m->work);
    free(m);
}

pl_status sr_make_open(const pl_config *c, int w, int h, void **state)
{
    int n;
    pl_degrade o = sr_degrade_of(c);
    const int64_t *canny = pl_config_ints(c, "canny", &n);
    maker *m = calloc(1, sizeof *m);
    if (!m) return PL_ERR_MEMORY;
    m->low = n > 0 ? (int)canny[0] : 100;
    m->high = n > 1 ? (int)canny[1] : 200;
    m->edge = malloc((size_t)w * (size_t)h);
    m->work = malloc(pl_canny_bytes(w, h));
    pl_status rc = m->edge && m->work ? pl_degrader_new(&o, w, h, &m->degrader) : PL_ERR_MEMORY;
    if (rc != PL_OK) {
        sr_make_close(m);
        return rc;
    }
    *state = m;
    return PL_OK;
}

/* [0,1] to [-1,1], as the autoencoder takes it. */
static void spread(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = 2 * x[i] - 1;
}

/* Noise and times of an evaluation, the same every time; training draws its own. */
static void write_draws(const pl_picture *p, pl_batch *batch, int row)
{
    uint64_t seed = pl_sample_seed(0x57AC000000000000u, p->subset, p->key.sample);
    pl_type type = {0};
    float *eps = pl_batch_input(batch, "eps", &type);
    int64_t *t = pl_batch_input(batch, "t", NULL),
            n = eps ? type.dim[1] * type.dim[2] * type.dim[3] : 0;
    for (int64_t k = 0; k < n; k++) eps[row * n + k] = (float)pl_sample_normal(seed, (uint64_t)k);
    if (t) t[row] = (int64_t)(pl_sample_uniform(seed, 1u << 30) * 1000);
}

pl_status sr_make(void *state, const pl_picture *p, pl_batch *batch, int row)
{
    maker *m = state;
    size_t n = (size_t)p->w * (size_t)p->h * 3, at = (size_t)row * n;
    float *gt = pl_batch_input(batch, "gt", NULL), *lq = pl_batch_input(batch, "lq", NULL);
    float *edge = pl_batch_input(batch, "edge", NULL);
    if (gt) gt += at;
    if (lq) lq += at;
    pl_status rc = gt || lq ? pl_degrader_run(m->degrader, p->key, p->rgb, gt, lq) : PL_OK;
    if (rc != PL_OK) return rc;
    if (gt) spread(gt, n);
    if (lq) spread(lq, n);
    if (edge) {
        pl_canny(p->rgb, p->w, p->h, m->low, m->high, m->edge, m->work);
        for (size_t i = 0; i < n; i++) edge[at + i] = m->edge[i / 3] ? 1.0f : -1.0f;
    }
    write_draws(p, batch, row);
    return PL_OK;
}

static const pl_image_input images[] = {{"gt", -1, 1}, {"lq", -1, 1}, {NULL, 0, 0}};
static const char *const made[] = {"gt", "lq", "edge", "eps", "t", NULL};
/* The original does not keep edges in its pool: once the pool is full they belong to another
 * picture. */
static const char *const unpooled[] = {"edge", NULL};
const pl_image_feed sr_feed = {.images = images,
                               .made = made,
                               .make_bytes = sr_make_bytes,
                               .make_open = sr_make_open,
                               .make_close = sr_make_close,
                               .make = sr_make,
                               .unpooled = unpooled,
                               .unpooled_if = "seed_compat",
                               .height = "image",
                               .width = "image",
                               .draw = sr_draw};
