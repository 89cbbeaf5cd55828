/* resample.c - see resample.h. First pass: rows, into a strip of the rows that the second pass
 * reads. */
#include "data/image/resample.h"

#include <math.h>
#include <string.h>

enum { BITS = 22 };

/* ---- the filters ------------------------------------------------------------------------ */
/* Returns how far a filter reaches to each side, in pixels of the coarser of the two images. */
static double reach(pl_filter f)
{
    return f == PL_FILTER_LANCZOS ? 3 : 1;
}

static double sinc(double x)
{
    static const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(x * pi) / (x * pi);
}

static double value(pl_filter f, double x)
{
    if (f == PL_FILTER_LANCZOS) return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    double d = fabs(x);
    return d < 1 ? 1 - d : 0;
}

/* ---- weights ---------------------------------------------------------------------------- */
static int taps(pl_filter f, int src, int n)
{
    double scale = (double)src / n;
    return 2 * (int)ceil(reach(f) * (scale > 1 ? scale : 1)) + 1;
}

static size_t axis_ints(pl_filter f, int src, int n)
{
    return (size_t)n * (2 + (size_t)taps(f, src, n));
}

size_t pl_rgb_resize_bytes(pl_filter f, int src_w, int src_h, int w, int h)
{
    return (axis_ints(f, src_w, w) + axis_ints(f, src_h, h)) * sizeof(int32_t) +
           (size_t)w * (size_t)src_h * 3;
}

static void weigh(pl_axis *a, pl_filter f, int i, double from, double scale)
{
    double unit = scale > 1 ? scale : 1, wide = reach(f) * unit, centre = from + (i + 0.5) * scale,
           sum = 0;
    int lo = (int)(centre - wide + 0.5), hi = (int)(centre + wide + 0.5);
    if (lo < a->from) lo = a->from;
    if (hi > a->to) hi = a->to;
    if (hi - lo > a->cap) hi = lo + a->cap;
    int32_t *w = a->weight + (size_t)i * (size_t)a->cap;
    for (int pass = 0; pass < 2; pass++) {
        double total = 0;
        for (int k = lo; k < hi; k++) {
            double v = value(f, (k - centre + 0.5) / unit);
            total += v;
            if (pass) w[k - lo] = (int32_t)lrint(v / sum * (1 << BITS));
        }
        sum = total != 0 ? total : 1;
    }
    a->first[i] = lo;
    a->count[i] = hi - lo;
}

static pl_axis make_axis(pl_filter f, int src, int n, double from, double to, bool closed,
                         int32_t **work)
{
    pl_axis a = {.n = n,
                 .cap = taps(f, src, n),
                 .from = closed ? (int)floor(from) : 0,
                 .to = closed ? (int)ceil(to) : src,
                 .first = *work,
                 .count = *work + n,
                 .weight = *work + 2 * n};
    *work += axis_ints(f, src, n);
    for (int i = 0; i < n; i++) weigh(&a, f, i, from, (to - from) / n);
    return a;
}

static uint8_t clip8(int32_t v)
{
    v >>= BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void resize_row(const pl_axis *a, const uint8_t *src, uint8_t *dst)
{
    for (int i = 0; i < a->n; i++) {
        const int32_t *w = a->weight + (size_t)i * (size_t)a->cap;
        const uint8_t *p = src + 3 * (size_t)a->first[i];
        int32_t r = 1 << (BITS - 1), g = r, b = r;
        for (int k = 0; k < a->count[i]; k++, p += 3) {
            r += p[0] * w[k];
            g += p[1] * w[k];
            b += p[2] * w[k];
        }
        *dst++ = clip8(r);
        *dst++ = clip8(g);
        *dst++ = clip8(b);
    }
}

/* One output row from rows of the strip, in pieces that stay in registers and vectorise. */
static void blend_rows(const uint8_t *strip, size_t row, const int32_t *w, int n, uint8_t *dst)
{
    enum { PIECE = 64 };
    for (size_t at = 0; at < row; at += PIECE) {
        int32_t sum[PIECE];
        size_t m = row - at < PIECE ? row - at : PIECE;
        for (size_t x = 0; x < m; x++) sum[x] = 1 << (BITS - 1);
        for (int k = 0; k < n; k++) {
            const uint8_t *p = strip + (size_t)k * row + at;
            for (size_t x = 0; x < m; x++) sum[x] += p[x] * w[k];
        }
        for (size_t x = 0; x < m; x++) dst[at + x] = clip8(sum[x]);
    }
}

bool pl_crop_box_is_plain(pl_crop_box b, int w, int h)
{
    return b.x0 == floor(b.x0) && b.y0 == floor(b.y0) && b.x1 - b.x0 == w && b.y1 - b.y0 == h;
}

void pl_resizer_init(pl_resizer *z, pl_filter f, int src_w, int src_h, pl_crop_box box,
                     uint8_t *dst, int w, int h, void *work)
{
    int32_t *ints = work;
    *z = (pl_resizer){.plain = pl_crop_box_is_plain(box, w, h), .w = w, .h = h, .dst = dst};
    if (z->plain) {
        z->x0 = (int)box.x0;
        z->top = (int)box.y0;
        z->bottom = z->top + h;
        return;
    }
    z->x = make_axis(f, src_w, w, box.x0, box.x1, box.closed, &ints);
    z->y = make_axis(f, src_h, h, box.y0, box.y1, box.closed, &ints);
    z->strip = (uint8_t *)ints;
    z->top = z->y.first[0];
    z->bottom = z->y.first[h - 1] + z->y.count[h - 1];
}

void pl_resizer_row(pl_resizer *z, int y, const uint8_t *row)
{
    size_t wide = (size_t)z->w * 3;
    if (y < z->top || y >= z->bottom) return;
    if (z->plain)
        memcpy(z->dst + (size_t)(y - z->top) * wide, row + 3 * (size_t)z->x0, wide);
    else
        resize_row(&z->x, row, z->strip + (size_t)(y - z->top) * wide);
}

void pl_resizer_finish(pl_resizer *z)
{
    size_t wide = (size_t)z->w * 3;
    for (int r = 0; r < z->h && !z->plain; r++)
        blend_rows(z->strip + (size_t)(z->y.first[r] - z->top) * wide, wide,
                   z->y.weight + (size_t)r * (size_t)z->y.cap, z->y.count[r],
                   z->dst + (size_t)r * wide);
}

void pl_rgb_resize(pl_filter f, const uint8_t *src, int src_w, int src_h, pl_crop_box box,
                   uint8_t *dst, int w, int h, void *work)
{
    pl_resizer z;
    pl_resizer_init(&z, f, src_w, src_h, box, dst, w, h, work);
    for (int r = z.top; r < z.bottom; r++)
        pl_resizer_row(&z, r, src + 3 * (size_t)r * (size_t)src_w);
    pl_resizer_finish(&z);
}
