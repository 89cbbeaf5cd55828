/* mixing.c - see mixing.h. */
#include "data/augment/mixing.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { STREAM = 0xDA7D, TRIES = 64 };

/* Independent draws of a step: each try of a gamma draw has a block. */
static double uniform_of(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

/* Draws from the Gamma(alpha) distribution (Marsaglia and Tsang, 2000; for alpha below 1 with
 * their power of a uniform number), in logarithms: with a small alpha the draw itself may be less
 * than any double. A try is refused with a probability below 5 %. */
static double log_gamma_draw(double alpha, uint64_t seed, int64_t step, uint64_t first)
{
    double a = alpha < 1 ? alpha + 1 : alpha, d = a - 1.0 / 3, c = 1 / sqrt(9 * d), v = 1;
    uint32_t w[4];
    for (uint64_t k = 0; k < TRIES; k++) {
        float normal[2];
        pl_rng_block(seed, STREAM, (uint64_t)step, first + k, w);
        pl_rng_normal2(w[0], w[1], normal);
        double x = (double)normal[0], u = uniform_of(w[2]);
        v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v)) break;
        v = 1;
    }
    return log(d * v) + (alpha < 1 ? log(uniform_of(w[3])) / alpha : 0);
}

/* Draws from Beta(alpha, alpha). */
static double beta_draw(double alpha, uint64_t seed, int64_t step)
{
    double a = log_gamma_draw(alpha, seed, step, 1),
           b = log_gamma_draw(alpha, seed, step, 1 + TRIES);
    return 1 / (1 + exp(b - a));
}

pl_mixing pl_mixing_draw(double mixup, double cutmix, uint64_t seed, int64_t step)
{
    uint32_t w[4];
    pl_rng_block(seed, STREAM, (uint64_t)step, 0, w);
    bool cut = cutmix > 0 && (!(mixup > 0) || w[0] >> 31);
    double share = beta_draw(cut ? cutmix : mixup, seed, step);
    return (pl_mixing){.cut = cut,
                       .share = share,
                       .x = uniform_of(w[1]),
                       .y = uniform_of(w[2]),
                       .r = 0.5 * sqrt(1 - share)};
}

/* Range of a side of the rectangle, in pixels: a centre on a whole pixel, cut off at the edges. */
static void range_of(double centre, double half, int n, int *from, int *to)
{
    int c = (int)(centre * n), r = (int)(half * n);
    *from = c - r < 0 ? 0 : c - r;
    *to = c + r > n ? n : c + r;
}

static double paste(const pl_mixing *m, const pl_pixels *to, const void *with)
{
    int x0, x1, y0, y1, planes = to->planar ? to->channels : 1;
    size_t item = to->bytes ? 1 : sizeof(float), pixel = item * (size_t)(to->channels / planes);
    range_of(m->x, m->r, to->w, &x0, &x1);
    range_of(m->y, m->r, to->h, &y0, &y1);
    for (int k = 0; k < planes; k++)
        for (int y = y0; y < y1; y++) {
            size_t at = ((size_t)(k * to->h + y) * (size_t)to->w + (size_t)x0) * pixel;
            memcpy((char *)to->data + at, (const char *)with + at, (size_t)(x1 - x0) * pixel);
        }
    return 1 - (double)((x1 - x0) * (y1 - y0)) / ((double)to->w * to->h);
}

double pl_mixing_apply(const pl_mixing *m, const pl_pixels *to, const void *with)
{
    if (m->cut) return paste(m, to, with);
    size_t n = (size_t)to->w * (size_t)to->h * (size_t)to->channels;
    float *a = to->data, own = (float)m->share, other = (float)(1 - m->share);
    const float *b = with;
    for (size_t i = 0; i < n; i++) a[i] = b[i] * other + a[i] * own;
    return m->share;
}
