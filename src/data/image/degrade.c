/* degrade.c - a degradation is drawn as plain data, then applied: see plimsoll_image.h.
 *
 * All draws of a picture come first and each is made whether it is used or not, so that one setting
 * does not change the others. Then the picture is moved between two buffers that have room for its
 * largest intermediate size.
 */
#include "data/image/degrade.h"

#include "base/rng.h"
#include "base/sys.h"

#include <math.h>
#include <string.h>

enum { DRAW_STREAM = 0xDE6A, DRAW_BLOCKS = 16, POOL_STREAM = 0xDE6B };

pl_degrade pl_degrade_stablesr(void)
{
    pl_degrade o = {
        .pass = {{.blur = 1,
                  .sinc = 0.1,
                  .shape = {0.45, 0.25, 0.12, 0.03, 0.12, 0.03},
                  .sigma = {0.2, 1.5},
                  .general = {0.5, 2},
                  .plateau = {1, 1.5},
                  .resize = {0.2, 0.7, 0.1},
                  .scale = {0.3, 1.5},
                  .gaussian = 0.5,
                  .noise = {1, 15},
                  .poisson = {0.05, 2},
                  .grey = 0.4,
                  .jpeg = {60, 95}}},
        .last_sinc = 0.8,
        .untouched = 0.01,
        .factor = 4,
        .sharpen = true,
    };
    pl_degrade_pass *p = &o.pass[1];
    *p = o.pass[0];
    p->blur = 0.5;
    p->sigma[1] = 1;
    p->resize[0] = 0.3, p->resize[1] = 0.4, p->resize[2] = 0.3;
    p->scale[0] = 0.6, p->scale[1] = 1.2;
    p->noise[1] = 12;
    p->poisson[1] = 1;
    p->jpeg[1] = 100;
    return o;
}

/* ---- drawing ------------------------------------------------------------------------------ */
typedef struct draws {
    uint32_t word[4 * DRAW_BLOCKS];
    int at;
} draws;

static double uniform(draws *d, double from, double to)
{
    return from + (to - from) * (double)pl_rng_uniform(d->word[d->at++]);
}

/* Returns the index of the first of n probabilities that the draw falls into; the last takes the
 * rest. */
static int pick(draws *d, const double *p, int n)
{
    double sum = 0, u;
    for (int i = 0; i < n; i++) sum += p[i];
    u = uniform(d, 0, sum);
    for (int i = 0; i + 1 < n; i++) {
        if (u < p[i]) return i;
        u -= p[i];
    }
    return n - 1;
}

/* Draws an exponent: below and above 1 with the same probability. */
static double exponent(draws *d, const double range[2])
{
    bool below = uniform(d, 0, 1) < 0.5;
    double u = uniform(d, 0, 1);
    return below ? range[0] + u * (1 - range[0]) : 1 + u * (range[1] - 1);
}

static pl_blur draw_blur(draws *d, const pl_degrade_pass *p)
{
    pl_blur b = {.size = 7 + 2 * (int)uniform(d, 0, 8)};
    bool any = uniform(d, 0, 1) < p->blur, sinc = uniform(d, 0, 1) < p->sinc;
    b.shape = (pl_blur_shape)pick(d, p->shape, PL_BLUR_SHAPES);
    b.sigma_x = uniform(d, p->sigma[0], p->sigma[1]);
    b.sigma_y = uniform(d, p->sigma[0], p->sigma[1]);
    b.turn = uniform(d, -M_PI, M_PI);
    double general = exponent(d, p->general), plateau = exponent(d, p->plateau);
    b.beta = b.shape < PL_BLUR_PLATEAU_ISO ? general : plateau;
    b.cutoff = uniform(d, b.size < 13 ? M_PI / 3 : M_PI / 5, M_PI);
    if (sinc) b.shape = PL_BLUR_SINC;
    if (!any) b.shape = PL_BLUR_NONE;
    return b;
}

static pl_degradation_pass draw_pass(draws *d, const pl_degrade_pass *p)
{
    pl_degradation_pass r = {.blur = draw_blur(d, p)};
    int way = pick(d, p->resize, 3);
    double up = uniform(d, 1, p->scale[1]), down = uniform(d, p->scale[0], 1);
    r.scale = way == 0 ? up : way == 1 ? down : 1;
    r.mode = (pl_scale_mode)(int)uniform(d, 0, 3);
    r.poisson = uniform(d, 0, 1) >= p->gaussian;
    double normal = uniform(d, p->noise[0], p->noise[1]) / 255;
    double poisson = uniform(d, p->poisson[0], p->poisson[1]);
    r.noise = r.poisson ? poisson : normal;
    r.grey = uniform(d, 0, 1) < p->grey;
    r.jpeg = uniform(d, p->jpeg[0], p->jpeg[1]);
    return r;
}

pl_degradation pl_degrade_draw(const pl_degrade *o, pl_image_key key)
{
    draws d = {.at = 0};
    for (int b = 0; b < DRAW_BLOCKS; b++)
        pl_rng_block(key.seed, DRAW_STREAM, (uint64_t)key.epoch,
                     (uint64_t)key.sample * DRAW_BLOCKS + (uint64_t)b, d.word + 4 * b);
    pl_degradation r = {.untouched = uniform(&d, 0, 1) < o->untouched};
    for (int i = 0; i < 2; i++) r.pass[i] = draw_pass(&d, &o->pass[i]);
    r.last.size = 7 + 2 * (int)uniform(&d, 0, 8);
    r.last.cutoff = uniform(&d, M_PI / 3, M_PI);
    r.last.shape = uniform(&d, 0, 1) < o->last_sinc ? PL_BLUR_SINC : PL_BLUR_NONE;
    r.last_mode = (pl_scale_mode)(int)uniform(&d, 0, 3);
    r.jpeg_first = uniform(&d, 0, 1) >= 0.5;
    return r;
}

/* ---- applying ----------------------------------------------------------------------------- */
struct pl_degrader {
    pl_degrade o;
    int w, h;
    float *good, *a, *b, *pad; /* the picture; two alternating buffers; borders and strips */
    pl_jpeg_round *jpeg;
    size_t floats;
    float *block;
};

/* Returns the side of the largest intermediate picture. */
static int most(const pl_degrade *o, int side)
{
    double first = fmax(1, o->pass[0].scale[1]), second = fmax(1, o->pass[1].scale[1]) / o->factor;
    return (int)ceil(side * fmax(first, second)) + 1;
}

/* Floats: the good picture, a and b, then pad. */
static void sizes(const pl_degrade *o, int w, int h, size_t *large, size_t *pad)
{
    size_t mw = (size_t)most(o, w), mh = (size_t)most(o, h), n = (size_t)w * (size_t)h * 3;
    *large = mw * mh * 3;
    *pad = (mw + PL_BLUR_MAX) * (mh + PL_BLUR_MAX) * 3;
    if (*pad < 4 * n) *pad = 4 * n;
}

uint64_t pl_degrader_bytes(const pl_degrade *o, int w, int h)
{
    size_t large, pad;
    sizes(o, w, h, &large, &pad);
    return sizeof(float) * ((uint64_t)w * (uint64_t)h * 3 + 2 * large + pad) +
           (o->codec ? pl_jpeg_round_bytes(most(o, w), most(o, h)) : 0) + sizeof(pl_degrader);
}

static pl_status check_ranges(const pl_degrade *o, int w, int h)
{
    PL_FAIL_IF(w < 1 || h < 1 || o->factor < 1 || w < o->factor || h < o->factor, PL_ERR_ARG,
               "a picture of %d x %d cannot be degraded to 1/%d of its size", w, h, o->factor);
    for (int i = 0; i < 2; i++) {
        const pl_degrade_pass *p = &o->pass[i];
        PL_FAIL_IF(!(p->scale[0] >= 0.1) || !(p->scale[1] <= 4) || p->scale[0] > p->scale[1],
                   PL_ERR_CONFIG, "pass %d: scales from %g to %g; they may lie between 0.1 and 4",
                   i + 1, p->scale[0], p->scale[1]);
        PL_FAIL_IF(
            !(p->sigma[0] > 0) || p->jpeg[0] < 1 || p->jpeg[1] > 100, PL_ERR_CONFIG,
            "pass %d: sigma begins at %g (must be above 0), JPEG quality is %g to %g (must lie in "
            "1 to 100)",
            i + 1, p->sigma[0], p->jpeg[0], p->jpeg[1]);
    }
    PL_FAIL_IF(o->factor > 8, PL_ERR_CONFIG, "the factor is %d; at most 8 is supported", o->factor);
    return PL_OK;
}

pl_status pl_degrader_new(const pl_degrade *o, int w, int h, pl_degrader **out)
{
    size_t large, pad, n = (size_t)w * (size_t)h * 3;
    PL_TRY(check_ranges(o, w, h));
    sizes(o, w, h, &large, &pad);
    pl_degrader *d = pl_sys_alloc(sizeof *d);
    if (!d) return PL_ERR_MEMORY;
    *d = (pl_degrader){.o = *o, .w = w, .h = h, .floats = n + 2 * large + pad};
    d->block = pl_sys_alloc(d->floats * sizeof *d->block);
    pl_status rc = d->block ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK && o->codec) rc = pl_jpeg_round_new(most(o, w), most(o, h), &d->jpeg);
    if (rc != PL_OK) {
        pl_degrader_free(d);
        return rc;
    }
    d->good = d->block;
    d->a = d->good + n;
    d->b = d->a + large;
    d->pad = d->b + large;
    *out = d;
    return PL_OK;
}

void pl_degrader_free(pl_degrader *d)
{
    if (!d) return;
    pl_jpeg_round_free(d->jpeg);
    pl_sys_free(d->block);
    pl_sys_free(d);
}

/* The picture being degraded: px is d->a or d->b. */
typedef struct work {
    pl_degrader *d;
    float *px;
    int w, h;
} work;

static float *other(const work *k)
{
    return k->px == k->d->a ? k->d->b : k->d->a;
}

static void blur(work *k, const pl_blur *b)
{
    float weights[PL_BLUR_MAX * PL_BLUR_MAX], *to = other(k);
    if (b->shape == PL_BLUR_NONE) return;
    pl_blur_weights(b, weights);
    pl_blur_apply(k->px, k->w, k->h, weights, b->size, to, k->d->pad);
    k->px = to;
}

static void resize(work *k, int w, int h, double step, pl_scale_mode mode)
{
    float *to = other(k);
    pl_scale_picture(k->px, k->w, k->h, to, w, h, step, mode, k->d->pad);
    k->px = to;
    k->w = w;
    k->h = h;
}

static void cut_all(work *k, bool to_bytes)
{
    size_t n = (size_t)k->w * (size_t)k->h * 3;
    for (size_t i = 0; i < n; i++) {
        float v = k->px[i] < 0 ? 0 : k->px[i] > 1 ? 1 : k->px[i];
        k->px[i] = to_bytes ? rintf(v * 255) / 255 : v;
    }
}

static pl_status compress(work *k, double quality)
{
    cut_all(k, false);
    if (k->d->jpeg) return pl_jpeg_round_run(k->d->jpeg, k->px, k->w, k->h, (int)lrint(quality));
    pl_jpeg_model(k->px, k->w, k->h, quality);
    return PL_OK;
}

static int at_least_1(double side)
{
    return side < 1 ? 1 : (int)side;
}

static void last_resize(work *k, const pl_degradation *r)
{
    resize(k, k->d->w / k->d->o.factor, k->d->h / k->d->o.factor, 0, r->last_mode);
    blur(k, &r->last);
}

static pl_status degrade(work *k, const pl_degradation *r, pl_image_key key)
{
    const pl_degradation_pass *p = &r->pass[0], *q = &r->pass[1];
    double factor = k->d->o.factor;
    blur(k, &p->blur);
    resize(k, at_least_1(k->w * p->scale), at_least_1(k->h * p->scale), 1 / p->scale, p->mode);
    pl_noise_add(k->px, k->w, k->h, p, key, 0);
    PL_TRY(compress(k, p->jpeg));
    blur(k, &q->blur);
    resize(k, at_least_1(k->d->w / factor * q->scale), at_least_1(k->d->h / factor * q->scale), 0,
           q->mode);
    pl_noise_add(k->px, k->w, k->h, q, key, 1);
    if (r->jpeg_first) PL_TRY(compress(k, q->jpeg));
    last_resize(k, r);
    if (!r->jpeg_first) PL_TRY(compress(k, q->jpeg));
    cut_all(k, k->d->o.bytes);
    resize(k, k->d->w, k->d->h, 0, PL_SCALE_BICUBIC);
    cut_all(k, false);
    return PL_OK;
}

pl_status pl_degrader_run(pl_degrader *d, pl_image_key key, const uint8_t *rgb, float *good,
                          float *bad)
{
    size_t n = (size_t)d->w * (size_t)d->h * 3;
    pl_degradation r = pl_degrade_draw(&d->o, key);
    for (size_t i = 0; i < n; i++) d->a[i] = (float)rgb[i] / 255;
    if (d->o.sharpen)
        pl_sharpen(d->a, d->w, d->h, d->good, d->pad);
    else
        memcpy(d->good, d->a, n * sizeof *d->good);
    if (good) memcpy(good, d->good, n * sizeof *good);
    if (!bad) return PL_OK;
    memcpy(d->a, d->good, n * sizeof *d->a);
    work k = {d, d->a, d->w, d->h};
    if (!r.untouched) PL_TRY(degrade(&k, &r, key));
    memcpy(bad, k.px, n * sizeof *bad);
    return PL_OK;
}

/* ---- pool --------------------------------------------------------------------------------- */
/* Returns the places that a batch takes: different ones, in the order of its samples. */
static int64_t place_of(uint64_t seed, int64_t size, int64_t which, int64_t index)
{
    int64_t sorted[PL_POOL_BATCH], x = 0;
    for (int64_t i = 0; i <= index; i++) {
        uint32_t word[4];
        pl_rng_block(seed, POOL_STREAM, (uint64_t)which, (uint64_t)i, word);
        int64_t k = 0;
        x = (int64_t)(((uint64_t)word[0] * (uint64_t)(size - i)) >> 32);
        for (; k < i && x >= sorted[k]; k++) x++;
        memmove(sorted + k + 1, sorted + k, (size_t)(i - k) * sizeof *sorted);
        sorted[k] = x;
    }
    return x;
}

int64_t pl_pool_source(uint64_t seed, int64_t size, int64_t batch, int64_t position)
{
    if (batch < 1 || batch > PL_POOL_BATCH) return position;
    int64_t filling = size / batch, now = position / batch;
    size = filling * batch;
    if (filling < 1 || now < filling) return position;
    int64_t place = place_of(seed, size, now, position % batch);
    for (int64_t b = now - 1; b >= filling; b--)
        for (int64_t i = 0; i < batch; i++)
            if (place_of(seed, size, b, i) == place) return b * batch + i;
    return place;
}
