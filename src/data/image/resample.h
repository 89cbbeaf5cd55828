/* resample.h - antialiased resize of RGB bytes with the same bits as PIL's.
 *
 * Weights have 22 bits, results 8. The filter is a triangle as wide as the scale (BILINEAR,
 * torchvision's antialias=True) or Lanczos' window of three lobes (LANCZOS).
 */
#ifndef PL_DATA_RESAMPLE_H
#define PL_DATA_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of an image, in its pixels; edges may lie inside a pixel. */
typedef struct pl_crop_box {
    double x0, y0, x1, y1;
    bool closed; /* pixels outside the box do not count, as if the box were the whole image */
} pl_crop_box;

typedef enum pl_filter { PL_FILTER_TRIANGLE, PL_FILTER_LANCZOS } pl_filter;

/* Whether a box is w x h whole pixels, so that no resampling is needed. */
bool pl_crop_box_is_plain(pl_crop_box box, int w, int h);
/* Returns the bytes of work memory of pl_rgb_resize. */
size_t pl_rgb_resize_bytes(pl_filter f, int src_w, int src_h, int w, int h);
/* Resizes the box of src to dst, w x h; 3 bytes per pixel. work: pl_rgb_resize_bytes, aligned for
 * int32_t. */
void pl_rgb_resize(pl_filter f, const uint8_t *src, int src_w, int src_h, pl_crop_box box,
                   uint8_t *dst, int w, int h, void *work);

/* The same with the source's rows given one after the other, so that the whole source is never in
 * memory. */
typedef struct pl_axis {
    int n, cap;                      /* outputs; room for taps of each */
    int from, to;                    /* pixels of the source that count */
    int32_t *first, *count, *weight; /* output i is the sum of taps from first[i] on */
} pl_axis;
typedef struct pl_resizer {
    bool plain;          /* whole pixels are copied */
    int x0, top, bottom; /* rows [top, bottom) of the source are needed */
    int w, h;
    pl_axis x, y;
    uint8_t *strip, *dst;
} pl_resizer;
void pl_resizer_init(pl_resizer *z, pl_filter f, int src_w, int src_h, pl_crop_box box,
                     uint8_t *dst, int w, int h, void *work);
/* Takes row y of the source, in order; rows that are not needed may be given or left out. */
void pl_resizer_row(pl_resizer *z, int y, const uint8_t *row);
void pl_resizer_finish(pl_resizer *z);

#endif
