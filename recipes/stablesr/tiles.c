/* tiles.c - a large map as overlapping tiles, whose results are joined as weighted means.
 *
 * The weight of a position falls with its distance from the centre of its tile (variance 0.01 of
 * the squared side, as the authors'), so that seams between tiles vanish.
 */
#include "predict.h"

#include <math.h>
#include <string.h>

sr_tiles sr_tiles_of(int64_t h, int64_t w, int64_t tile, int64_t overlap)
{
    sr_tiles t = {.h = h, .w = w, .tile = tile, .stride = tile - overlap};
    t.rows = h > tile ? (h - tile + t.stride - 1) / t.stride + 1 : 1;
    t.columns = w > tile ? (w - tile + t.stride - 1) / t.stride + 1 : 1;
    return t;
}

int64_t sr_tiles_count(const sr_tiles *t)
{
    return t->rows * t->columns;
}

static int64_t place(int64_t i, int64_t stride, int64_t most)
{
    return i * stride < most ? i * stride : most;
}

void sr_tiles_at(const sr_tiles *t, int64_t i, int64_t *y, int64_t *x)
{
    *y = place(i / t->columns, t->stride, t->h - t->tile);
    *x = place(i % t->columns, t->stride, t->w - t->tile);
}

double sr_tile_weight(int64_t n, int64_t y, int64_t x)
{
    double middle = (double)(n - 1) / 2, side = (double)n, variance = 0.01;
    double dy = ((double)y - middle) / side, dx = ((double)x - middle) / side;
    return exp(-(dy * dy + dx * dx) / (2 * variance));
}

void sr_tile_cut(const sr_tiles *t, int64_t i, int64_t factor, int c, const float *map, float *to)
{
    int64_t y, x, n = t->tile * factor;
    sr_tiles_at(t, i, &y, &x);
    for (int64_t r = 0; r < n; r++)
        memcpy(to + r * n * c, map + ((y * factor + r) * t->w * factor + x * factor) * c,
               (size_t)(n * c) * sizeof *to);
}

void sr_tile_add(const sr_tiles *t, int64_t i, int64_t factor, int c, const float *from, float *map)
{
    int64_t y, x, n = t->tile * factor;
    sr_tiles_at(t, i, &y, &x);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < n; k++) {
            float weight = (float)sr_tile_weight(n, r, k);
            float *to = map + ((y * factor + r) * t->w * factor + x * factor + k) * c;
            for (int ch = 0; ch < c; ch++) to[ch] += weight * from[(r * n + k) * c + ch];
        }
}

void sr_tiles_divide(const sr_tiles *t, int64_t factor, int c, float *map, float *sum)
{
    int64_t area = t->h * t->w * factor * factor, n = t->tile * factor;
    memset(sum, 0, (size_t)area * sizeof *sum);
    for (int64_t i = 0; i < sr_tiles_count(t); i++) {
        int64_t y, x;
        sr_tiles_at(t, i, &y, &x);
        for (int64_t r = 0; r < n; r++)
            for (int64_t k = 0; k < n; k++)
                sum[(y * factor + r) * t->w * factor + x * factor + k] +=
                    (float)sr_tile_weight(n, r, k);
    }
    for (int64_t p = 0; p < area; p++)
        for (int ch = 0; ch < c; ch++) map[p * c + ch] /= sum[p];
}
