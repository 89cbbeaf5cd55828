/* degrade_ops.c - see degrade.h. Rows are w x 3 contiguous floats, so that the inner loops run over
 * long stretches of memory for all channels. */
#include "data/image/degrade.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { NOISE_STREAM = 0xDE60, SHARP_RADIUS = 25 };

/* Index of a reflected border: -1 is 1, n is n-2. */
static int reflect(int i, int n)
{
    if (n == 1) return 0;
    while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
    return i;
}

/* ---- blur --------------------------------------------------------------------------------- */
/* Returns the squared distance in units of the two deviations, after rotation. */
static double distance2(const pl_blur *b, double x, double y)
{
    bool iso = b->shape == PL_BLUR_ISO || b->shape == PL_BLUR_GENERAL_ISO ||
               b->shape == PL_BLUR_PLATEAU_ISO;
    double c = iso ? 1 : cos(b->turn), s = iso ? 0 : sin(b->turn);
    double u = (c * x + s * y) / b->sigma_x, v = (c * y - s * x) / (iso ? b->sigma_x : b->sigma_y);
    return u * u + v * v;
}

static double weight_at(const pl_blur *b, double x, double y)
{
    double r = hypot(x, y), q;
    switch (b->shape) {
    case PL_BLUR_ISO:
    case PL_BLUR_ANISO: return exp(-0.5 * distance2(b, x, y));
    case PL_BLUR_GENERAL_ISO:
    case PL_BLUR_GENERAL_ANISO: return exp(-0.5 * pow(distance2(b, x, y), b->beta));
    case PL_BLUR_PLATEAU_ISO:
    case PL_BLUR_PLATEAU_ANISO: return 1 / (1 + pow(distance2(b, x, y), b->beta));
    case PL_BLUR_SINC:
        q = b->cutoff;
        return r > 0 ? q * j1(q * r) / (2 * M_PI * r) : q * q / (4 * M_PI);
    case PL_BLUR_NONE: break;
    }
    return r > 0 ? 0 : 1;
}

void pl_blur_weights(const pl_blur *b, float *weights)
{
    double w[PL_BLUR_MAX * PL_BLUR_MAX], sum = 0;
    int n = b->size, half = n / 2;
    for (int i = 0; i < n * n; i++) {
        w[i] = weight_at(b, i % n - half, i / n - half);
        sum += w[i];
    }
    for (int i = 0; i < n * n; i++) weights[i] = (float)(w[i] / sum);
}

static void pad_row(const float *src, int w, int half, float *dst)
{
    memcpy(dst + 3 * half, src, (size_t)w * 3 * sizeof *dst);
    for (int k = 1; k <= half; k++)
        for (int c = 0; c < 3; c++) {
            dst[3 * (half - k) + c] = src[3 * reflect(-k, w) + c];
            dst[3 * (half + w - 1 + k) + c] = src[3 * reflect(w - 1 + k, w) + c];
        }
}

static void add_scaled(float *restrict to, const float *restrict from, float by, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] += from[i] * by;
}

void pl_blur_apply(const float *src, int w, int h, const float *weights, int size, float *dst,
                   float *pad)
{
    int half = size / 2;
    size_t row = (size_t)w * 3, wide = row + 6 * (size_t)half;
    for (int y = -half; y < h + half; y++)
        pad_row(src + (size_t)reflect(y, h) * row, w, half, pad + (size_t)(y + half) * wide);
    for (int y = 0; y < h; y++) {
        float *to = dst + (size_t)y * row;
        memset(to, 0, row * sizeof *to);
        for (int k = 0; k < size * size; k++)
            add_scaled(to, pad + (size_t)(y + k / size) * wide + 3 * (size_t)(k % size), weights[k],
                       row);
    }
}

/* ---- sharpening --------------------------------------------------------------------------- */
/* Applies 2 half + 1 taps in both directions. line: w + 2 half pixels, strip: w x h. */
static void blur_separable(const float *src, int w, int h, const float *taps, int half, float *dst,
                           float *strip)
{
    size_t row = (size_t)w * 3;
    for (int y = 0; y < h; y++) {
        float *to = strip + (size_t)y * row;
        memset(to, 0, row * sizeof *to);
        for (int k = -half; k <= half; k++) {
            int lo = k < 0 ? -k : 0, hi = k > 0 ? w - k : w; /* outputs whose tap lies inside */
            if (hi < lo) hi = lo;
            const float *from = src + (size_t)y * row;
            for (int x = 0; x < w && x < lo; x++)
                for (int c = 0; c < 3; c++)
                    to[3 * x + c] += from[3 * reflect(x + k, w) + c] * taps[k + half];
            if (hi > lo && lo < w)
                add_scaled(to + 3 * lo, from + 3 * (lo + k), taps[k + half], 3 * (size_t)(hi - lo));
            for (int x = hi > lo ? hi : lo; x < w; x++)
                for (int c = 0; c < 3; c++)
                    to[3 * x + c] += from[3 * reflect(x + k, w) + c] * taps[k + half];
        }
    }
    for (int y = 0; y < h; y++) {
        memset(dst + (size_t)y * row, 0, row * sizeof *dst);
        for (int k = -half; k <= half; k++)
            add_scaled(dst + (size_t)y * row, strip + (size_t)reflect(y + k, h) * row,
                       taps[k + half], row);
    }
}

static float cut(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

void pl_sharpen(const float *src, int w, int h, float *dst, float *pad)
{
    float taps[2 * SHARP_RADIUS + 1];
    double sum = 0;
    size_t n = (size_t)w * (size_t)h * 3;
    float *blurred = pad, *mask = pad + n, *soft = pad + 2 * n, *strip = pad + 3 * n;
    for (int k = -SHARP_RADIUS; k <= SHARP_RADIUS; k++) sum += exp(-k * k / 128.0); /* sigma 8 */
    for (int k = -SHARP_RADIUS; k <= SHARP_RADIUS; k++)
        taps[k + SHARP_RADIUS] = (float)(exp(-k * k / 128.0) / sum);
    blur_separable(src, w, h, taps, SHARP_RADIUS, blurred, strip);
    for (size_t i = 0; i < n; i++) mask[i] = fabsf(src[i] - blurred[i]) * 255 > 10 ? 1 : 0;
    blur_separable(mask, w, h, taps, SHARP_RADIUS, soft, strip);
    for (size_t i = 0; i < n; i++) {
        float sharp = cut(src[i] + 0.5f * (src[i] - blurred[i]));
        dst[i] = soft[i] * sharp + (1 - soft[i]) * src[i];
    }
}

/* ---- resize ------------------------------------------------------------------------------- */
/* Output i of an axis: pixels at[k], clamped to the picture, times weight[k]. */
typedef struct taps {
    int n, at[PL_SCALE_TAPS];
    float weight[PL_SCALE_TAPS];
} taps;

static double cubic(double x)
{
    const double a = -0.75;
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static int clamp_index(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void area_taps(int i, int n, int out, taps *t)
{
    int from = (int)((int64_t)i * n / out), to = (int)(((int64_t)(i + 1) * n + out - 1) / out);
    t->n = to - from < PL_SCALE_TAPS ? to - from : PL_SCALE_TAPS;
    for (int k = 0; k < t->n; k++) {
        t->at[k] = from + k;
        t->weight[k] = (float)(1.0 / t->n);
    }
}

static void axis_taps(int i, int n, int out, double step, pl_scale_mode mode, taps *t)
{
    if (mode == PL_SCALE_AREA) {
        area_taps(i, n, out, t);
        return;
    }
    double at = (i + 0.5) * (step > 0 ? step : (double)n / out) - 0.5;
    if (mode == PL_SCALE_BILINEAR && at < 0) at = 0;
    int first = (int)floor(at), reach = mode == PL_SCALE_BILINEAR ? 0 : 1;
    t->n = 2 + 2 * reach;
    for (int k = 0; k < t->n; k++) {
        int p = first - reach + k;
        t->at[k] = clamp_index(p, n);
        t->weight[k] = (float)(reach ? cubic(at - p) : k ? at - first : 1 - (at - first));
    }
}

void pl_scale_picture(const float *src, int src_w, int src_h, float *dst, int w, int h, double step,
                      pl_scale_mode mode, float *strip)
{
    taps t;
    size_t row = (size_t)w * 3;
    for (int x = 0; x < w; x++) {
        axis_taps(x, src_w, w, step, mode, &t);
        for (int y = 0; y < src_h; y++) {
            const float *from = src + (size_t)y * (size_t)src_w * 3;
            float sum[3] = {0, 0, 0};
            for (int k = 0; k < t.n; k++)
                for (int c = 0; c < 3; c++) sum[c] += from[3 * t.at[k] + c] * t.weight[k];
            memcpy(strip + (size_t)y * row + 3 * (size_t)x, sum, sizeof sum);
        }
    }
    for (int y = 0; y < h; y++) {
        axis_taps(y, src_h, h, step, mode, &t);
        memset(dst + (size_t)y * row, 0, row * sizeof *dst);
        for (int k = 0; k < t.n; k++)
            add_scaled(dst + (size_t)y * row, strip + (size_t)t.at[k] * row, t.weight[k], row);
    }
}

/* ---- noise -------------------------------------------------------------------------------- */
/* Draws four words for elements 4 block to 4 block + 3 of a picture's noise. */
static void words(pl_image_key key, int pass, uint64_t block, uint32_t out[4])
{
    pl_rng_block(key.seed, NOISE_STREAM + (uint32_t)pass, (uint64_t)key.epoch,
                 ((uint64_t)key.sample << 28) + block, out);
}

static void add_gaussian(float *px, size_t pixels, const pl_degradation_pass *p, pl_image_key key,
                         int pass)
{
    size_t n = p->grey ? pixels : 3 * pixels;
    float s = (float)p->noise;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        float z[4];
        words(key, pass, i / 4, word);
        pl_rng_normal2(word[0], word[1], z);
        pl_rng_normal2(word[2], word[3], z + 2);
        for (size_t k = 0; k < 4 && i + k < n; k++)
            for (size_t c = 0; c < (p->grey ? 3u : 1u); c++) {
                float *v = px + (p->grey ? 3 * (i + k) + c : i + k);
                *v = cut(*v + z[k] * s);
            }
    }
}

pl_poisson pl_poisson_of(double mean)
{
    pl_poisson p = {.mean = mean};
    double mass = exp(-mean);
    for (int k = 0; k <= (int)mean; k++) {
        if (k) mass *= mean / k;
        p.sum += mass;
    }
    p.mass = mass;
    return p;
}

/* Returns the smallest k whose cumulative probability exceeds u, searching from the mode. */
int pl_poisson_draw(const pl_poisson *p, double u)
{
    int k = (int)p->mean;
    double sum = p->sum, mass = p->mass;
    if (u < sum) {
        while (k > 0 && u < sum - mass) {
            sum -= mass;
            mass *= k-- / p->mean;
        }
        return k;
    }
    while (u >= sum && mass > 1e-300) {
        mass *= p->mean / ++k;
        sum += mass;
    }
    return k;
}

static int level_of(float v)
{
    return (int)lrintf(cut(v) * 255);
}

static int grey_level(const float *p)
{
    return level_of(0.2989f * p[0] + 0.587f * p[1] + 0.114f * p[2]);
}

/* Number of photons: as many as there are shades, rounded up to a power of two. */
static void add_poisson(float *px, size_t pixels, const pl_degradation_pass *p, pl_image_key key,
                        int pass)
{
    size_t n = p->grey ? pixels : 3 * pixels;
    bool seen[256] = {false};
    int shades = 0, photons = 1;
    for (size_t i = 0; i < n; i++) seen[p->grey ? grey_level(px + 3 * i) : level_of(px[i])] = true;
    for (int k = 0; k < 256; k++) shades += seen[k];
    while (photons < shades) photons *= 2;
    pl_poisson of[256];
    for (int k = 0; k < 256; k++)
        if (seen[k]) of[k] = pl_poisson_of(k / 255.0 * photons);
    for (size_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        words(key, pass, i / 4, word);
        for (size_t k = 0; k < 4 && i + k < n; k++) {
            int level = p->grey ? grey_level(px + 3 * (i + k)) : level_of(px[i + k]);
            double got = pl_poisson_draw(&of[level], (word[k] + 0.5) * 0x1p-32);
            float add = (float)((got / photons - level / 255.0) * p->noise);
            for (size_t c = 0; c < (p->grey ? 3u : 1u); c++) {
                float *v = px + (p->grey ? 3 * (i + k) + c : i + k);
                *v = cut(*v + add);
            }
        }
    }
}

void pl_noise_add(float *px, int w, int h, const pl_degradation_pass *p, pl_image_key key, int pass)
{
    size_t pixels = (size_t)w * (size_t)h;
    if (p->poisson)
        add_poisson(px, pixels, p, key, pass);
    else
        add_gaussian(px, pixels, p, key, pass);
}
