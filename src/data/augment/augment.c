/* augment.c - see augment.h. RandAugment changes the mirrored picture, as in torchvision's
 * presets. Colours are changed on bytes, in a fixed order: brightness, contrast, saturation, hue.
 */
#include "data/augment/augment.h"

#include "base/rng.h"

#ifdef __SSE2__
# include <emmintrin.h>
#endif

enum { STREAM = 0xDA7A, RESIZED_STREAM = 0xDA7B, RAND_STREAM = 0xDA7C, DRAWS = 20 };

/* The draws of one sample. */
typedef struct draws {
    uint32_t word[DRAWS];
    int at;
} draws;

static draws draws_of(uint64_t seed, int64_t epoch, int64_t sample)
{
    draws d = {.at = 0};
    for (int b = 0; b < DRAWS / 4; b++)
        pl_rng_block(seed, STREAM, (uint64_t)epoch, (uint64_t)sample * (DRAWS / 4) + (uint64_t)b,
                     d.word + 4 * b);
    return d;
}

static double uniform(draws *d, double from, double to)
{
    return from + (to - from) * (double)pl_rng_uniform(d->word[d->at++]);
}

/* Every draw is made whether it is used or not, so that one setting does not change the others. */
static void draw_crop(pl_view *v, const pl_augment *a, draws *d)
{
    double s = uniform(d, a->scale[0], a->scale[1]), x = uniform(d, 0, 1), y = uniform(d, 0, 1);
    if (a->crop != PL_CROP_RANDOM) return;
    v->w *= s;
    v->h *= s;
    v->x = x * (1 - v->w);
    v->y = y * (1 - v->h);
}

/* The whole image, or the largest part in the middle whose ratio is within the bounds. */
static void fall_back(pl_view *v, const pl_augment *a, int width, int height)
{
    double w = width, h = height;
    if (w / h < a->ratio[0]) h = rint(w / a->ratio[0]);
    if (w / h > a->ratio[1]) w = rint(h * a->ratio[1]);
    v->x = floor((width - w) / 2) / width;
    v->y = floor((height - h) / 2) / height;
    v->w = w / width;
    v->h = h / height;
}

/* RandomResizedCrop of torchvision: ten tries of an area and a ratio, whose part lies on whole
 * pixels inside the image. Each try has a separate block of draws. */
static void draw_resized(pl_view *v, const pl_augment *a, uint64_t seed, int64_t epoch,
                         int64_t sample, int width, int height)
{
    enum { TRIES = 10 };
    v->closed = true; /* cut out before it is resized */
    for (int try = 0; try < TRIES; try++) {
        draws d = {.at = 0};
        pl_rng_block(seed, RESIZED_STREAM, (uint64_t)epoch,
                     (uint64_t)sample * TRIES + (uint64_t)try, d.word);
        double area = uniform(&d, a->area[0], a->area[1]) * width * height;
        double ratio = exp(uniform(&d, log(a->ratio[0]), log(a->ratio[1])));
        double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
        if (!(w >= 1 && w <= width && h >= 1 && h <= height)) continue;
        v->y = floor(uniform(&d, 0, height - h + 1)) / height;
        v->x = floor(uniform(&d, 0, width - w + 1)) / width;
        v->w = w / width;
        v->h = h / height;
        return;
    }
    fall_back(v, a, width, height);
}

static void draw_colours(pl_view *v, const pl_augment *a, draws *d)
{
    float *to[4] = {&v->bright, &v->contrast, &v->saturate, &v->hue};
    for (int i = 0; i < 4; i++) {
        double j = a->jitter[i], centre = i < 3 ? 1 : 0, f = uniform(d, centre - j, centre + j);
        *to[i] = (float)(i < 3 && f < 0 ? 0 : f);
        v->coloured |= j > 0;
    }
}

static void draw_erasing(pl_view *v, const pl_augment *a, draws *d)
{
    bool on = uniform(d, 0, 1) < a->erase;
    double area = uniform(d, 0.02, 0.33), ratio = exp(uniform(d, log(0.3), log(1 / 0.3)));
    double x = uniform(d, 0, 1), y = uniform(d, 0, 1);
    if (!on) return;
    v->eh = fmin(sqrt(area * ratio), 1);
    v->ew = fmin(sqrt(area / ratio), 1);
    v->ex = x * (1 - v->ew);
    v->ey = y * (1 - v->eh);
}

/* Each operation has a separate block of draws. */
static void draw_rand_augment(pl_view *v, const pl_augment *a, uint64_t seed, int64_t epoch,
                              int64_t sample)
{
    v->n_rand = a->rand_ops < PL_MAX_RAND_OPS ? a->rand_ops : PL_MAX_RAND_OPS;
    v->strength = a->rand_strength;
    for (int i = 0; i < v->n_rand; i++) {
        uint32_t w[4];
        pl_rng_block(seed, RAND_STREAM, (uint64_t)epoch,
                     (uint64_t)sample * PL_MAX_RAND_OPS + (uint64_t)i, w);
        v->rand_op[i] = (uint8_t)((uint64_t)w[0] * PL_RAND_OPS >> 32);
        v->rand_negative[i] = w[1] >> 31;
    }
}

pl_view pl_view_draw(const pl_augment *a, uint64_t seed, int64_t epoch, int64_t sample, int width,
                     int height, double aspect)
{
    pl_view v = {.w = 1, .h = 1, .bright = 1, .contrast = 1, .saturate = 1};
    double wider = (double)width / height / aspect; /* above 1: the image is wider than the input */
    if (!a || a->crop != PL_CROP_STRETCH) {
        if (wider > 1) v.w = 1 / wider;
        if (wider < 1) v.h = wider;
    }
    v.x = (1 - v.w) / 2;
    v.y = (1 - v.h) / 2;
    if (!a) return v;
    draws d = draws_of(seed, epoch, sample);
    draw_crop(&v, a, &d);
    if (a->crop == PL_CROP_RESIZED) draw_resized(&v, a, seed, epoch, sample, width, height);
    v.flip = uniform(&d, 0, 1) < a->flip;
    draw_colours(&v, a, &d);
    draw_erasing(&v, a, &d);
    draw_rand_augment(&v, a, seed, epoch, sample);
    return v;
}

pl_view pl_view_center(const pl_augment *a, int width, int height, double aspect)
{
    pl_view v = pl_view_draw(NULL, 0, 0, 0, width, height, aspect);
    double share = a->center > 0 ? a->center : 1;
    if (a->crop == PL_CROP_STRETCH) {
        v.x = v.y = 0;
        v.w = v.h = 1;
    }
    v.x += v.w * (1 - share) / 2;
    v.y += v.h * (1 - share) / 2;
    v.w *= share;
    v.h *= share;
    return v;
}

/* Sides of the resized image are whole pixels, the longer one rounded down; a crop in the middle
 * begins at the nearest pixel, of two the even one. */
void pl_view_resized(pl_view *v, const pl_augment *a, bool random, uint64_t seed, int64_t epoch,
                     int64_t sample, int width, int height, int w, int h)
{
    double side = a->resize, left, top;
    double rw = width <= height ? side : floor(side * width / height);
    double rh = width <= height ? floor(side * height / width) : side;
    left = rint((rw - w) / 2);
    top = rint((rh - h) / 2);
    if (random) {
        draws d = {.at = 0};
        pl_rng_block(seed, RESIZED_STREAM, (uint64_t)epoch, (uint64_t)sample, d.word);
        top = floor(uniform(&d, 0, rh - h + 1));
        left = floor(uniform(&d, 0, rw - w + 1));
    }
    v->x = left / rw;
    v->y = top / rh;
    v->w = w / rw;
    v->h = h / rh;
}

bool pl_view_changes(const pl_view *v)
{
    return v->coloured || v->n_rand > 0;
}

pl_crop_box pl_view_box(const pl_view *v, int width, int height)
{
    pl_crop_box b = {v->x * width, v->y * height, (v->x + v->w) * width, (v->y + v->h) * height,
                     v->closed};
    /* An edge within a thousandth of a whole pixel is meant to be on it: then nothing is
     * resampled. */
    double *edge[4] = {&b.x0, &b.y0, &b.x1, &b.y1};
    for (int i = 0; i < 4; i++)
        if (fabs(*edge[i] - rint(*edge[i])) < 1e-3) *edge[i] = rint(*edge[i]);
    if (b.x1 > width) b.x1 = width;
    if (b.y1 > height) b.y1 = height;
    return b;
}

static uint8_t to_byte(float v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5f);
}

static float grey_of(const uint8_t *p)
{
    return 0.299f * (float)p[0] + 0.587f * (float)p[1] + 0.114f * (float)p[2];
}

static void turn_hue(uint8_t *p, float turns)
{
    float r = (float)p[0] / 255, g = (float)p[1] / 255, b = (float)p[2] / 255;
    float most = fmaxf(r, fmaxf(g, b)), range = most - fminf(r, fminf(g, b));
    if (range <= 0) return;
    float h = most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range;
    h = h / 6 + turns;
    h -= floorf(h);
    for (int c = 0; c < 3; c++) {
        float k = fmodf((float)(5 - 2 * c) + 6 * h, 6);
        float m = fmaxf(0, fminf(fminf(k, 4 - k), 1));
        p[c] = to_byte(255 * (most - range * m));
    }
}

static void change_colours(const pl_view *v, uint8_t *rgb, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < 3 * n; i++) rgb[i] = to_byte((float)rgb[i] * v->bright);
    for (int64_t i = 0; i < n; i++) sum += (double)grey_of(rgb + 3 * i);
    float mean = (float)(sum / (double)n);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *p = rgb + 3 * i;
        for (int c = 0; c < 3; c++) p[c] = to_byte(mean + ((float)p[c] - mean) * v->contrast);
        float grey = grey_of(p);
        for (int c = 0; c < 3; c++) p[c] = to_byte(grey + ((float)p[c] - grey) * v->saturate);
        if (v->hue != 0) turn_hue(p, v->hue);
    }
}

/* Fills the input value of each byte: black is low and, for ranges like 1 and 2, white is exactly
 * high. */
static void fill_table(const pl_pixels *to, float table[256])
{
    float k = (to->high - to->low) / 255;
    for (int i = 0; i < 256; i++) table[i] = (float)i * k + to->low;
}

void pl_bytes_widen(const uint8_t *from, size_t n, float low, float high, bool past, float *to)
{
    float k = (high - low) / 255;
    size_t i = 0;
#ifdef __SSE2__
    for (; i < n && ((uintptr_t)(to + i) & 15); i++) to[i] = (float)from[i] * k + low;
    const __m128 vk = _mm_set1_ps(k), vlow = _mm_set1_ps(low);
    const __m128i zero = _mm_setzero_si128();
    for (; i + 16 <= n; i += 16) {
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m128i half[2] = {_mm_unpacklo_epi8(b, zero), _mm_unpackhi_epi8(b, zero)};
        for (int q = 0; q < 4; q++) {
            __m128i w = q & 1 ? _mm_unpackhi_epi16(half[q / 2], zero)
                              : _mm_unpacklo_epi16(half[q / 2], zero);
            __m128 v = _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps(w), vk), vlow);
            if (past)
                _mm_stream_ps(to + i + 4 * q, v);
            else
                _mm_store_ps(to + i + 4 * q, v);
        }
    }
#else
    (void)past;
#endif
    for (; i < n; i++) to[i] = (float)from[i] * k + low;
}

/* Writes channels in their order, not mirrored, with the table's values. A large image would evict
 * everything else from the cache, and is read again much later: it bypasses the cache. */
static void write_plain(const uint8_t *rgb, const pl_pixels *to, size_t at, size_t n)
{
    enum { LARGE = 64 << 10 };
    bool past = (size_t)to->w * (size_t)to->h >= LARGE;
    pl_bytes_widen(rgb, n, to->low, to->high, past, (float *)to->data + at);
}

/* Writes channels in their order, mirrored. */
static void write_mirrored(const uint8_t *rgb, const pl_pixels *to, size_t at,
                           const float table[256])
{
    const uint8_t *p = rgb + 3 * (size_t)(to->w - 1);
    uint8_t *b = (uint8_t *)to->data + at;
    float *f = (float *)to->data + at;
    for (int x = 0; x < to->w; x++, p -= 3)
        for (int c = 0; c < 3; c++)
            if (to->bytes)
                *b++ = p[c];
            else
                *f++ = table[p[c]];
}

/* Writes a plane of a row: three bytes apart, or mirrored. */
static void write_channel(const uint8_t *p, ptrdiff_t step, const float table[256], float *f, int n)
{
    for (int x = 0; x < n; x++, p += step) f[x] = table[*p];
}

static void write_row(const pl_view *v, const uint8_t *rgb, const pl_pixels *to, int y,
                      const float table[256])
{
    size_t plane = (size_t)to->w * (size_t)to->h, row = (size_t)y * (size_t)to->w;
    if (!to->bytes && to->channels == 3 && !to->planar && !v->flip) {
        write_plain(rgb, to, 3 * row, 3 * (size_t)to->w);
        return;
    }
    if (to->bytes && to->channels == 3 && !to->planar && !v->flip) {
        memcpy((uint8_t *)to->data + 3 * row, rgb, 3 * (size_t)to->w);
        return;
    }
    if (to->channels == 3 && !to->planar) {
        write_mirrored(rgb, to, 3 * row, table);
        return;
    }
    for (int c = 0; !to->bytes && to->planar && to->channels == 3 && c < 3; c++)
        write_channel(rgb + c + (v->flip ? 3 * (to->w - 1) : 0), v->flip ? -3 : 3, table,
                      (float *)to->data + (size_t)c * plane + row, to->w);
    if (!to->bytes && to->planar && to->channels == 3) return;
    for (int c = 0; c < to->channels; c++) {
        size_t at = to->planar ? (size_t)c * plane + (size_t)y * (size_t)to->w
                               : (size_t)y * (size_t)to->w * (size_t)to->channels + (size_t)c;
        size_t step = to->planar ? 1 : (size_t)to->channels;
        for (int x = 0; x < to->w; x++, at += step) {
            const uint8_t *p = rgb + 3 * (size_t)(v->flip ? to->w - 1 - x : x);
            uint8_t b = to->channels == 1 ? to_byte(grey_of(p)) : p[c];
            if (to->bytes)
                ((uint8_t *)to->data)[at] = b;
            else
                ((float *)to->data)[at] = table[b];
        }
    }
}

static void erase(const pl_view *v, const pl_pixels *to)
{
    int x0 = (int)(v->ex * to->w), x1 = (int)((v->ex + v->ew) * to->w);
    int y0 = (int)(v->ey * to->h), y1 = (int)((v->ey + v->eh) * to->h);
    size_t cstep = to->planar ? (size_t)to->w * (size_t)to->h : 1;
    size_t xstep = to->planar ? 1 : (size_t)to->channels;
    for (int c = 0; c < to->channels; c++)
        for (int y = y0; y < y1; y++)
            for (int x = x0; x < x1; x++) {
                size_t at = (size_t)c * cstep + ((size_t)y * (size_t)to->w + (size_t)x) * xstep;
                if (to->bytes)
                    ((uint8_t *)to->data)[at] = 0;
                else
                    ((float *)to->data)[at] = 0;
            }
}

static void mirror(uint8_t *rgb, int w, int h)
{
    for (int y = 0; y < h; y++)
        for (uint8_t *a = rgb + 3 * (size_t)y * (size_t)w, *b = a + 3 * (size_t)(w - 1); a < b;
             a += 3, b -= 3)
            for (int c = 0; c < 3; c++) {
                uint8_t kept = a[c];
                a[c] = b[c];
                b[c] = kept;
            }
}

static void apply_rand_augment(pl_view *v, uint8_t *rgb, int w, int h, void *work)
{
    if (v->flip) mirror(rgb, w, h);
    v->flip = false;
    for (int i = 0; i < v->n_rand; i++)
        pl_rand_augment((pl_rand_op)v->rand_op[i], v->strength, v->rand_negative[i], rgb, w, h,
                        work);
}

void pl_view_write(const pl_view *view, uint8_t *rgb, size_t stride, const pl_pixels *to,
                   void *work)
{
    float table[256];
    pl_view left = *view, *v = &left; /* what is left to do */
    fill_table(to, table);
    if (v->n_rand) apply_rand_augment(v, rgb, to->w, to->h, work);
    if (v->coloured) change_colours(v, rgb, (int64_t)to->w * to->h);
    for (int y = 0; y < to->h; y++) write_row(v, rgb + (size_t)y * stride, to, y, table);
#ifdef __SSE2__
    _mm_sfence(); /* before another thread reads the data */
#endif
    if (v->ew > 0) erase(v, to);
}
