/* rand_augment.c - see rand_augment.h.
 *
 * PIL moves pixels in 16.16 fixed point, blends in f32 and truncates; tables of AutoContrast and
 * Equalize come from histograms of each channel. Both are repeated here, so that results have the
 * same bytes. */
#include "data/augment/rand_augment.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* Returns bin k of torch.linspace(from, to, 31), f32. */
static float bin(double from, double to, int k)
{
    float a = (float)from, b = (float)to, step = (b - a) / PL_RAND_AUGMENT_MOST;
    int half = (PL_RAND_AUGMENT_MOST + 1) / 2;
    return k < half ? a + step * (float)k : b - step * (float)(PL_RAND_AUGMENT_MOST - k);
}

/* ---- pixels that move ------------------------------------------------------------------------ */
static int64_t fixed(double v)
{
    return (int64_t)floor(v * 65536.0 + 0.5);
}

/* Pixel (x, y) of the result is pixel (m0 x + m1 y + m2, m3 x + m4 y + m5) of the picture. */
static void move(const double m[6], uint8_t *rgb, int w, int h, uint8_t *work)
{
    int64_t dx = fixed(m[0]), dy = fixed(m[3]), rx = fixed(m[1]), ry = fixed(m[4]);
    int64_t x0 = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), y0 = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    uint8_t *to = work;
    for (int y = 0; y < h; y++, x0 += rx, y0 += ry) {
        int64_t sx = x0, sy = y0;
        for (int x = 0; x < w; x++, sx += dx, sy += dy, to += 3) {
            int64_t px = sx >> 16, py = sy >> 16;
            if (px >= 0 && px < w && py >= 0 && py < h)
                memcpy(to, rgb + 3 * ((size_t)py * (size_t)w + (size_t)px), 3);
            else
                memset(to, 0, 3);
        }
    }
    memcpy(rgb, work, 3 * (size_t)w * (size_t)h);
}

static double round15(double v)
{
    return rint(v * 1e15) / 1e15;
}

static void turn(double degrees, uint8_t *rgb, int w, int h, uint8_t *work)
{
    double a = -degrees * pi / 180, c = round15(cos(a)), s = round15(sin(a)), cx = w / 2.0,
           cy = h / 2.0;
    if (degrees == 0) return;
    const double m[6] = {c, s, c * -cx + s * -cy + cx, -s, c, -s * -cx + c * -cy + cy};
    move(m, rgb, w, h, work);
}

/* ---- colours --------------------------------------------------------------------------------- */
/* Returns a + share (b - a); outside 0 to 1 the result is limited. */
static uint8_t blend(uint8_t a, uint8_t b, float share)
{
    float v = (float)a + share * (float)((int)b - (int)a);
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
}

static uint8_t grey_of(const uint8_t *p)
{
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

static void change_brightness(float share, uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < 3 * n; i++) rgb[i] = blend(0, rgb[i], share);
}

static void change_colour(float share, uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t *p = rgb + 3 * i, grey = grey_of(p);
        for (int c = 0; c < 3; c++) p[c] = blend(grey, p[c], share);
    }
}

static void change_contrast(float share, uint8_t *rgb, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += grey_of(rgb + 3 * i);
    uint8_t mean = (uint8_t)(sum / (double)n + 0.5);
    for (size_t i = 0; i < 3 * n; i++) rgb[i] = blend(mean, rgb[i], share);
}

/* Blends with the mean of 3 x 3 pixels in which the middle counts five times. The edge stays. */
static void change_sharpness(float share, uint8_t *rgb, int w, int h, uint8_t *work)
{
    size_t row = 3 * (size_t)w;
    memcpy(work, rgb, row * (size_t)h);
    for (int y = 0; y < h; y++)
        for (size_t x = 0; x < row; x++) {
            const uint8_t *p = work + (size_t)y * row + x;
            int smooth = *p;
            if (y > 0 && y < h - 1 && x >= 3 && x < row - 3) {
                int sum = 4 * *p;
                for (int k = -1; k <= 1; k++)
                    sum += p[k * (ptrdiff_t)row - 3] + p[k * (ptrdiff_t)row] +
                           p[k * (ptrdiff_t)row + 3];
                smooth = (2 * sum + 13) / 26;
            }
            rgb[(size_t)y * row + x] = blend((uint8_t)smooth, *p, share);
        }
}

/* ---- tables ---------------------------------------------------------------------------------- */
static void use_tables(uint8_t table[3][256], uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) rgb[3 * i + (size_t)c] = table[c][rgb[3 * i + (size_t)c]];
}

static void fill_autocontrast(const int64_t count[256], uint8_t table[256])
{
    int lo = 0, hi = 255;
    while (lo < 255 && !count[lo]) lo++;
    while (hi > 0 && !count[hi]) hi--;
    if (hi <= lo) return;
    double scale = 255.0 / (hi - lo), offset = -lo * scale;
    for (int i = 0; i < 256; i++) {
        double v = (int)(i * scale + offset);
        table[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

static void fill_equalize(const int64_t count[256], uint8_t table[256])
{
    int64_t all = 0, last = 0, used = 0;
    for (int i = 0; i < 256; i++) {
        all += count[i];
        used += count[i] > 0;
        if (count[i]) last = count[i];
    }
    int64_t step = (all - last) / 255, n = step / 2;
    if (used < 2 || !step) return;
    for (int i = 0; i < 256; n += count[i++]) table[i] = (uint8_t)(n / step > 255 ? 255 : n / step);
}

static void stretch(pl_rand_op op, uint8_t *rgb, size_t n)
{
    int64_t count[3][256] = {{0}};
    uint8_t table[3][256];
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++) count[c][rgb[3 * i + (size_t)c]]++;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < 256; i++) table[c][i] = (uint8_t)i;
        if (op == PL_RAND_EQUALIZE)
            fill_equalize(count[c], table[c]);
        else
            fill_autocontrast(count[c], table[c]);
    }
    use_tables(table, rgb, n);
}

/* ---- all ------------------------------------------------------------------------------------- */
static void shear(pl_rand_op op, double by, uint8_t *rgb, int w, int h, uint8_t *work)
{
    double t = tan(atan(by));
    const double m[6] = {1, op == PL_RAND_SHEAR_X ? t : 0, 0, op == PL_RAND_SHEAR_Y ? t : 0, 1, 0};
    move(m, rgb, w, h, work);
}

static void translate(pl_rand_op op, int by, uint8_t *rgb, int w, int h, uint8_t *work)
{
    const double m[6] = {1, 0, op == PL_RAND_TRANSLATE_X ? -by : 0,
                         0, 1, op == PL_RAND_TRANSLATE_Y ? -by : 0};
    move(m, rgb, w, h, work);
}

static void blend_op(pl_rand_op op, float share, uint8_t *rgb, int w, int h, uint8_t *work)
{
    size_t n = (size_t)w * (size_t)h;
    if (op == PL_RAND_BRIGHTNESS) change_brightness(share, rgb, n);
    if (op == PL_RAND_COLOR) change_colour(share, rgb, n);
    if (op == PL_RAND_CONTRAST) change_contrast(share, rgb, n);
    if (op == PL_RAND_SHARPNESS) change_sharpness(share, rgb, w, h, work);
}

void pl_rand_augment(pl_rand_op op, int strength, bool negative, uint8_t *rgb, int w, int h,
                     uint8_t *work)
{
    double sign = negative ? -1 : 1;
    size_t n = (size_t)w * (size_t)h;
    switch (op) {
    case PL_RAND_SHEAR_X:
    case PL_RAND_SHEAR_Y: shear(op, sign * (double)bin(0, 0.3, strength), rgb, w, h, work); break;
    case PL_RAND_TRANSLATE_X:
    case PL_RAND_TRANSLATE_Y: {
        double most = 150.0 / 331.0 * (op == PL_RAND_TRANSLATE_X ? w : h);
        translate(op, (int)(sign * (double)bin(0, most, strength)), rgb, w, h, work);
        break;
    }
    case PL_RAND_ROTATE: turn(sign * (double)bin(0, 30, strength), rgb, w, h, work); break;
    case PL_RAND_BRIGHTNESS:
    case PL_RAND_COLOR:
    case PL_RAND_CONTRAST:
    case PL_RAND_SHARPNESS:
        blend_op(op, (float)(1 + sign * (double)bin(0, 0.9, strength)), rgb, w, h, work);
        break;
    case PL_RAND_POSTERIZE: {
        int bits = 8 - (int)rint(strength / (PL_RAND_AUGMENT_MOST / 4.0));
        uint8_t mask = (uint8_t)(0xff00u >> bits);
        for (size_t i = 0; i < 3 * n; i++) rgb[i] &= mask;
        break;
    }
    case PL_RAND_SOLARIZE: {
        float from = bin(255, 0, strength);
        for (size_t i = 0; i < 3 * n; i++)
            if ((float)rgb[i] >= from) rgb[i] = (uint8_t)(255 - rgb[i]);
        break;
    }
    case PL_RAND_AUTOCONTRAST:
    case PL_RAND_EQUALIZE: stretch(op, rgb, n); break;
    case PL_RAND_IDENTITY:
    case PL_RAND_OPS: break;
    }
}
