/* latents.c - generated latents of several styles, in the shape of an autoencoder's (S,S,4).
 *
 * A sample is a pure function of its number. Content is a few soft blobs in places of its own; a style is
 * how they are painted: the direction and pitch of brush strokes, their strength, and which channels
 * carry them. So a network can keep the blobs and change the strokes.
 */
#include "lgt.h"

#include <math.h>
#include <stdlib.h>

typedef struct latents {
    int64_t samples, eval_samples, side, styles;
} latents;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double unit(uint64_t seed, int k)
{
    return (double)(mix(seed + (uint64_t)(k + 1) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

/* One latent of content `seed` in a style. */
static void paint(const latents *d, uint64_t seed, int64_t style, float *out)
{
    enum { BLOBS = 4 };
    double n = (double)d->side, angle = 0.6 + 1.9 * (double)style, pitch = 3.0 + 2.5 * (double)style;
    double strength = 0.9 / (1.0 + 0.8 * (double)style), phase = 6.283 * unit(seed, 90);
    for (int64_t y = 0; y < d->side; y++)
        for (int64_t x = 0; x < d->side; x++) {
            double u = (double)x / n, v = (double)y / n, c[4] = {0, 0, 0, 0};
            for (int k = 0; k < BLOBS; k++) {
                double dx = u - unit(seed, 4 * k), dy = v - unit(seed, 4 * k + 1);
                double r = 0.12 + 0.15 * unit(seed, 4 * k + 2);
                c[k] = 2 * (unit(seed, 4 * k + 3) - 0.2) * exp(-(dx * dx + dy * dy) / (2 * r * r));
            }
            double stroke = strength * sin(pitch * 6.283 * (u * cos(angle) + v * sin(angle)) + phase);
            for (int k = 0; k < 4; k++) {
                double grain = 0.2 * (unit(seed, 100 + (int)((y * d->side + x) * 4 + k)) - 0.5);
                double share = (k + style) % 2 ? 0.3 : 1;
                *out++ = (float)(c[k] + share * stroke + grain + 0.25 * (double)style * (k == 0));
            }
        }
}

pl_status lgt_data_open(const pl_config *c, void **data)
{
    latents *d = calloc(1, sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    *d = (latents){.samples = pl_config_int(c, "data.samples"),
                   .eval_samples = pl_config_int(c, "data.eval_samples"),
                   .side = pl_config_int(c, "latent"),
                   .styles = pl_config_int(c, "model.styles")};
    *data = d;
    return PL_OK;
}

void lgt_data_close(void *data)
{
    free(data);
}

int64_t lgt_data_size(void *data, pl_subset subset)
{
    const latents *d = data;
    return subset == PL_SUBSET_TRAIN ? d->samples : d->eval_samples;
}

pl_status lgt_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch)
{
    const latents *d = data;
    float *src = pl_batch_input(batch, "src", NULL), *ref = pl_batch_input(batch, "style_ref", NULL);
    int64_t *wanted = pl_batch_input(batch, "style", NULL);
    int64_t *given = pl_batch_input(batch, "source", NULL);
    int64_t size = d->side * d->side * 4;
    for (int i = 0; i < n; i++) {
        uint64_t world = subset == PL_SUBSET_TRAIN ? 0x16A7000000000000u : 0xE7A1000000000000u;
        uint64_t seed = mix(world + (uint64_t)sample[i]);
        int64_t from = (int64_t)(unit(seed, 91) * (double)d->styles);
        int64_t to = (int64_t)(unit(seed, 92) * (double)d->styles);
        if (src) paint(d, seed, from, src + i * size);
        if (ref) paint(d, mix(seed + 93), to, ref + i * size);
        if (wanted) wanted[i] = to;
        if (given) given[i] = from;
    }
    return PL_OK;
}
