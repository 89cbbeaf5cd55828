/* pairs.c - generated samples: pictures of a few overlapping discs.
 *
 * A sample is a pure function of its number. As latents: the picture at the latent's size, four
 * channels of brightness; the degraded latent is the same picture, blurred and with noise; the edge
 * map is -1 with 1 along the edges, at the image's size. So edges and degraded latent both describe
 * the latent. The text context is the same for all, as for an empty prompt. As pictures
 * (vae.encode): the discs in colours, degraded like any picture.
 */
#include "stablesr.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

enum { DISCS = 5 };
#define WORLD 0x57AB000000000000u

typedef struct pairs {
    int64_t image, latent, context;
    /* Pictures: one state for all threads, as generated data are small. */
    pthread_mutex_t lock;
    void *maker;
    uint8_t *rgb;
} pairs;

typedef struct disc {
    double x, y, r, shade[4];
} disc;

static void discs_of(uint64_t seed, disc d[DISCS])
{
    for (uint64_t k = 0; k < DISCS; k++) {
        d[k] = (disc){pl_sample_uniform(seed, 8 * k),
                      pl_sample_uniform(seed, 8 * k + 1),
                      0.08 + 0.25 * pl_sample_uniform(seed, 8 * k + 2),
                      {0}};
        for (uint64_t c = 0; c < 4; c++)
            d[k].shade[c] = 2.5 * (pl_sample_uniform(seed, 8 * k + 3 + c) - 0.5);
    }
}

/* soft: width of the rims, in parts of the picture. */
static void draw_latent(const pairs *p, const disc *d, double soft, float *out)
{
    for (int64_t y = 0; y < p->latent; y++)
        for (int64_t x = 0; x < p->latent; x++, out += 4) {
            double u = ((double)x + 0.5) / (double)p->latent,
                   v = ((double)y + 0.5) / (double)p->latent;
            for (int c = 0; c < 4; c++) out[c] = 0;
            for (int k = 0; k < DISCS; k++) {
                double away = hypot(u - d[k].x, v - d[k].y) - d[k].r;
                double in = 1 / (1 + exp(away / soft));
                for (int c = 0; c < 4; c++)
                    out[c] = (float)((1 - in) * (double)out[c] + in * d[k].shade[c]);
            }
        }
}

static void draw_edges(const pairs *p, const disc *d, float *out)
{
    double pixel = 1.0 / (double)p->image;
    for (int64_t y = 0; y < p->image; y++)
        for (int64_t x = 0; x < p->image; x++, out += 3) {
            double u = ((double)x + 0.5) * pixel, v = ((double)y + 0.5) * pixel;
            bool rim = false;
            for (int k = 0; k < DISCS; k++) {
                double dx = u - d[k].x, dy = v - d[k].y, in = d[k].r - pixel,
                       r2 = dx * dx + dy * dy;
                rim |= r2 < d[k].r * d[k].r && r2 > in * in;
            }
            out[0] = out[1] = out[2] = rim ? 1.0f : -1.0f;
        }
}

/* Colours with a fine grain, so that the degradation loses detail. */
static void draw_picture(const disc *d, int w, int h, uint8_t *rgb)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++, rgb += 3) {
            double u = (x + 0.5) / w, v = (y + 0.5) / h;
            double shade[3] = {0.2 * sin(40 * u), 0.2 * sin(40 * v), 0.1 * sin(90 * (u + v))};
            for (int k = 0; k < DISCS; k++)
                for (int c = 0; c < 3; c++)
                    if (hypot(u - d[k].x, v - d[k].y) < d[k].r)
                        shade[c] = d[k].shade[c] / 1.5 + 0.3 * shade[c];
            for (int c = 0; c < 3; c++)
                rgb[c] = (uint8_t)lrint(255 * fmin(fmax(0.5 + 0.5 * shade[c], 0), 1));
        }
}

pl_status sr_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h, uint8_t *rgb,
                  char *caption, size_t cap)
{
    (void)c, (void)caption, (void)cap;
    disc d[DISCS];
    discs_of(pl_sample_seed(WORLD, subset, sample), d);
    draw_picture(d, w, h, rgb);
    return PL_OK;
}

pl_status sr_data_open(const pl_config *c, void **data)
{
    int n;
    pairs *p = calloc(1, sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    const int64_t *context = pl_config_ints(c, "model.context", &n);
    p->image = pl_config_int(c, "image");
    p->latent = pl_config_int(c, "latent");
    p->context = n == 2 ? context[0] * context[1] : 0;
    pthread_mutex_init(&p->lock, NULL);
    pl_status rc = PL_OK;
    if (pl_config_bool(c, "vae.encode")) {
        p->rgb = malloc((size_t)(p->image * p->image * 3));
        rc = p->rgb ? sr_make_open(c, (int)p->image, (int)p->image, &p->maker) : PL_ERR_MEMORY;
    }
    if (rc != PL_OK) {
        sr_data_close(p);
        return rc;
    }
    *data = p;
    return PL_OK;
}

uint64_t sr_data_bytes(const pl_config *c)
{
    int side = (int)pl_config_int(c, "image");
    return pl_config_bool(c, "vae.encode")
               ? sr_make_bytes(c, side, side) + (uint64_t)side * (uint64_t)side * 3
               : 0;
}

void sr_data_close(void *data)
{
    pairs *p = data;
    sr_make_close(p->maker);
    pthread_mutex_destroy(&p->lock);
    free(p->rgb);
    free(p);
}

static pl_status make_picture(pairs *p, pl_subset subset, int64_t sample, const disc *d,
                              pl_batch *batch, int row)
{
    pl_picture picture = {p->rgb, (int)p->image, (int)p->image, {0, subset, sample}, subset};
    pthread_mutex_lock(&p->lock);
    draw_picture(d, (int)p->image, (int)p->image, p->rgb);
    pl_status rc = sr_make(p->maker, &picture, batch, row);
    pthread_mutex_unlock(&p->lock);
    return rc;
}

/* Target of the edge processor alone: the latent, at the size of its output. */
static void draw_target(const pairs *p, const disc *d, int64_t side, float *out)
{
    pairs at = *p;
    at.latent = side;
    draw_latent(&at, d, 0.02, out);
}

pl_status sr_data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    pairs *p = data;
    pl_type goal = {0};
    float *z = pl_batch_input(batch, "z_gt", NULL), *lq = pl_batch_input(batch, "z_lq", NULL);
    float *edge = pl_batch_input(batch, "edge", NULL), *eps = pl_batch_input(batch, "eps", NULL);
    float *context = pl_batch_input(batch, "context", NULL);
    float *target = pl_batch_input(batch, "target", &goal);
    int64_t *t = pl_batch_input(batch, "t", NULL), size = p->latent * p->latent * 4;
    for (int i = 0; i < n; i++) {
        uint64_t seed = pl_sample_seed(WORLD, subset, sample[i]);
        disc d[DISCS];
        discs_of(seed, d);
        if (p->maker) {
            pl_status rc = make_picture(p, subset, sample[i], d, batch, i);
            if (rc != PL_OK) return rc;
            continue;
        }
        if (z) draw_latent(p, d, 0.01, z + i * size);
        if (lq) {
            draw_latent(p, d, 0.06, lq + i * size);
            for (int64_t k = 0; k < size; k++)
                lq[i * size + k] += (float)(0.1 * pl_sample_normal(seed + 5, (uint64_t)k));
        }
        if (edge) draw_edges(p, d, edge + i * p->image * p->image * 3);
        if (target) draw_target(p, d, goal.dim[1], target + i * goal.dim[1] * goal.dim[2] * 4);
        for (int64_t k = 0; eps && k < size; k++)
            eps[i * size + k] = (float)pl_sample_normal(seed + 6, (uint64_t)k);
        for (int64_t k = 0; context && k < p->context; k++)
            context[i * p->context + k] = (float)pl_sample_normal(0xC1, (uint64_t)k);
        if (t) t[i] = (int64_t)(pl_sample_uniform(seed, 7001) * 1000);
    }
    return PL_OK;
}
