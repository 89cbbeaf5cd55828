/* pairs.c - generated pairs: latents of images, of their degraded form, and edge maps.
 *
 * A sample is a pure function of its number: an image of a few overlapping discs. Its latent is the
 * picture at the latent's size, four channels of brightness; the degraded latent is the same picture
 * blurred and with noise; the edge map is -1 with 1 along the rims, at the image's size. So edges and
 * degraded latent both tell what is in the latent. The text context is the same for all, as for an empty
 * prompt. The encoders are never loaded: real latents are computed once and read with data.path.
 */
#include "stablesr.h"

#include <math.h>
#include <stdlib.h>

enum { DISCS = 5 };

typedef struct pairs {
    int64_t samples, eval_samples, image, latent, context;
} pairs;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double unit(uint64_t seed, uint64_t k)
{
    return (double)(mix(seed + (k + 1) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

/* Near normal: four uniform numbers. */
static double normal(uint64_t seed, uint64_t k)
{
    double sum = -2;
    for (uint64_t i = 0; i < 4; i++) sum += unit(seed, 4 * k + i);
    return sum * 1.7320508;
}

typedef struct disc {
    double x, y, r, shade[4];
} disc;

static void discs_of(uint64_t seed, disc d[DISCS])
{
    for (uint64_t k = 0; k < DISCS; k++) {
        d[k] = (disc){unit(seed, 8 * k), unit(seed, 8 * k + 1), 0.08 + 0.25 * unit(seed, 8 * k + 2),
                      {0}};
        for (uint64_t c = 0; c < 4; c++) d[k].shade[c] = 2.5 * (unit(seed, 8 * k + 3 + c) - 0.5);
    }
}

/* soft: width of the rims, in parts of the picture. */
static void draw_latent(const pairs *p, const disc *d, double soft, float *out)
{
    for (int64_t y = 0; y < p->latent; y++)
        for (int64_t x = 0; x < p->latent; x++, out += 4) {
            double u = ((double)x + 0.5) / (double)p->latent, v = ((double)y + 0.5) / (double)p->latent;
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
                double dx = u - d[k].x, dy = v - d[k].y, in = d[k].r - pixel, r2 = dx * dx + dy * dy;
                rim |= r2 < d[k].r * d[k].r && r2 > in * in;
            }
            out[0] = out[1] = out[2] = rim ? 1.0f : -1.0f;
        }
}

pl_status sr_data_open(const pl_config *c, void **data)
{
    int n;
    pairs *p = calloc(1, sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    const int64_t *context = pl_config_ints(c, "model.context", &n);
    *p = (pairs){.samples = pl_config_int(c, "data.samples"),
                 .eval_samples = pl_config_int(c, "data.eval_samples"),
                 .image = pl_config_int(c, "image"),
                 .latent = pl_config_int(c, "latent"),
                 .context = n == 2 ? context[0] * context[1] : 0};
    *data = p;
    return PL_OK;
}

void sr_data_close(void *data)
{
    free(data);
}

int64_t sr_data_size(void *data, pl_subset subset)
{
    const pairs *p = data;
    return subset == PL_SUBSET_TRAIN ? p->samples : p->eval_samples;
}

/* What the edge processor alone learns: the latent, at the size it gives. */
static void draw_target(const pairs *p, const disc *d, int64_t side, float *out)
{
    pairs at = *p;
    at.latent = side;
    draw_latent(&at, d, 0.02, out);
}

pl_status sr_data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    const pairs *p = data;
    pl_type goal = {0};
    float *z = pl_batch_input(batch, "z_gt", NULL), *lq = pl_batch_input(batch, "z_lq", NULL);
    float *edge = pl_batch_input(batch, "edge", NULL), *eps = pl_batch_input(batch, "eps", NULL);
    float *context = pl_batch_input(batch, "context", NULL);
    float *target = pl_batch_input(batch, "target", &goal);
    int64_t *t = pl_batch_input(batch, "t", NULL), size = p->latent * p->latent * 4;
    for (int i = 0; i < n; i++) {
        uint64_t world = subset == PL_SUBSET_TRAIN ? 0x57AB000000000000u : 0xE7A1000000000000u;
        uint64_t seed = mix(world + (uint64_t)sample[i]);
        disc d[DISCS];
        discs_of(seed, d);
        if (z) draw_latent(p, d, 0.01, z + i * size);
        if (lq) {
            draw_latent(p, d, 0.06, lq + i * size);
            for (int64_t k = 0; k < size; k++)
                lq[i * size + k] += (float)(0.1 * normal(seed + 5, (uint64_t)k));
        }
        if (edge) draw_edges(p, d, edge + i * p->image * p->image * 3);
        if (target) draw_target(p, d, goal.dim[1], target + i * goal.dim[1] * goal.dim[2] * 4);
        for (int64_t k = 0; eps && k < size; k++)
            eps[i * size + k] = (float)normal(seed + 6, (uint64_t)k);
        for (int64_t k = 0; context && k < p->context; k++)
            context[i * p->context + k] = (float)normal(0xC1, (uint64_t)k);
        if (t) t[i] = (int64_t)(unit(seed, 7001) * 1000);
    }
    return PL_OK;
}
