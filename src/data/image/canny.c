/* canny.c - Canny edges in integer arithmetic like OpenCV's: see plimsoll_image.h.
 *
 * A pixel is on an edge where the gradient is a maximum across it. Directions fall into four
 * sectors whose borders, 22.5 and 67.5 degrees, are compared in fixed point. Pixels above `high`
 * start a flood fill over pixels above `low`.
 */
#include "plimsoll_image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAN22 = 13573, TAN_BITS = 15, WEAK = 1, EDGE = 255 };

typedef struct planes {
    uint8_t *grey;
    int32_t *mag, *stack;
    int16_t *dx, *dy;
    float *strip;
} planes;

uint64_t pl_canny_bytes(int w, int h)
{
    return (uint64_t)w * (uint64_t)h * (4 + 4 + 4 + 2 + 2 + 1);
}

static planes planes_in(void *work, size_t n)
{
    planes p = {.mag = work};
    p.stack = p.mag + n;
    p.strip = (float *)(p.stack + n);
    p.dx = (int16_t *)(p.strip + n);
    p.dy = p.dx + n;
    p.grey = (uint8_t *)(p.dy + n);
    return p;
}

static int reflect(int i, int n)
{
    if (n == 1) return 0;
    while (i < 0 || i >= n) i = i < 0 ? -i : 2 * (n - 1) - i;
    return i;
}

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Grey, then 5 taps of sigma 1.4 along each axis; rounded to bytes once. */
static void smooth(const uint8_t *rgb, int w, int h, const planes *p)
{
    float tap[5];
    double sum = 0;
    for (int k = -2; k <= 2; k++) sum += exp(-k * k / (2 * 1.4 * 1.4));
    for (int k = -2; k <= 2; k++) tap[k + 2] = (float)(exp(-k * k / (2 * 1.4 * 1.4)) / sum);
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++)
        p->grey[i] =
            (uint8_t)((rgb[3 * i] * 4899 + rgb[3 * i + 1] * 9617 + rgb[3 * i + 2] * 1868 + 8192) >>
                      14);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            float s = 0;
            for (int k = -2; k <= 2; k++)
                s += tap[k + 2] * (float)p->grey[y * w + reflect(x + k, w)];
            p->strip[y * w + x] = s;
        }
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            float s = 0;
            for (int k = -2; k <= 2; k++) s += tap[k + 2] * p->strip[reflect(y + k, h) * w + x];
            p->grey[y * w + x] = (uint8_t)lrintf(s);
        }
}

static void gradients(int w, int h, const planes *p)
{
    for (int y = 0; y < h; y++) {
        const uint8_t *up = p->grey + clamp(y - 1, h) * w, *at = p->grey + y * w,
                      *down = p->grey + clamp(y + 1, h) * w;
        for (int x = 0; x < w; x++) {
            int l = clamp(x - 1, w), r = clamp(x + 1, w), i = y * w + x;
            p->dx[i] = (int16_t)(up[r] + 2 * at[r] + down[r] - up[l] - 2 * at[l] - down[l]);
            p->dy[i] = (int16_t)(down[l] + 2 * down[x] + down[r] - up[l] - 2 * up[x] - up[r]);
            p->mag[i] = abs(p->dx[i]) + abs(p->dy[i]);
        }
    }
}

/* Outside the picture the gradient is zero. */
static int mag_at(const planes *p, int w, int h, int x, int y)
{
    return x < 0 || y < 0 || x >= w || y >= h ? 0 : p->mag[y * w + x];
}

/* Of equal neighbours the first counts, so that an edge of two equal pixels is one pixel wide. */
static bool is_peak(const planes *p, int w, int h, int x, int y)
{
    int i = y * w + x, m = p->mag[i];
    int64_t ax = abs(p->dx[i]), ay = (int64_t)abs(p->dy[i]) << TAN_BITS, flat = ax * TAN22;
    if (ay < flat) return m > mag_at(p, w, h, x - 1, y) && m >= mag_at(p, w, h, x + 1, y);
    if (ay > flat + (ax << (TAN_BITS + 1)))
        return m > mag_at(p, w, h, x, y - 1) && m >= mag_at(p, w, h, x, y + 1);
    int s = (p->dx[i] ^ p->dy[i]) < 0 ? -1 : 1;
    return m > mag_at(p, w, h, x - s, y - 1) && m > mag_at(p, w, h, x + s, y + 1);
}

/* Marks a weak pixel as an edge and continues the flood from it. */
static void flood(uint8_t *edge, const planes *p, int w, int h, int at, int *n)
{
    int x = at % w, y = at / w;
    for (int k = 0; k < 9; k++) {
        int u = x + k % 3 - 1, v = y + k / 3 - 1;
        if (u < 0 || v < 0 || u >= w || v >= h || edge[v * w + u] != WEAK) continue;
        edge[v * w + u] = EDGE;
        p->stack[(*n)++] = v * w + u;
    }
}

void pl_canny(const uint8_t *rgb, int w, int h, int low, int high, uint8_t *edge, void *work)
{
    planes p = planes_in(work, (size_t)w * (size_t)h);
    int n = 0;
    smooth(rgb, w, h, &p);
    gradients(w, h, &p);
    for (int i = 0; i < w * h; i++) {
        int m = p.mag[i];
        edge[i] = m > low && is_peak(&p, w, h, i % w, i / w) ? m > high ? EDGE : WEAK : 0;
        if (edge[i] == EDGE) p.stack[n++] = i;
    }
    while (n) flood(edge, &p, w, h, p.stack[--n], &n);
    for (int i = 0; i < w * h; i++) edge[i] = edge[i] == EDGE ? EDGE : 0;
}
