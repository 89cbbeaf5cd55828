/* resize.h - antialiased resize of RGB bytes: a triangle as wide as the scale, as PIL's BILINEAR and
 * torchvision's antialias=True do it, to the bit of the last rounding (8-bit steps of 22-bit weights).
 */
#ifndef PL_DATA_RESIZE_H
#define PL_DATA_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Part of an image, in its pixels; edges may lie inside a pixel. */
typedef struct pl_box {
    double x0, y0, x1, y1;
} pl_box;

/* Whether a box is w x h whole pixels, so that it can be used where it lies. */
bool pl_box_is_plain(pl_box box, int w, int h);
/* Bytes that pl_rgb_resize works in. */
size_t pl_rgb_resize_bytes(int src_w, int src_h, int w, int h);
/* The box of src to dst, w x h; 3 bytes a pixel. work: pl_rgb_resize_bytes, aligned for int32_t. */
void pl_rgb_resize(const uint8_t *src, int src_w, int src_h, pl_box box, uint8_t *dst, int w, int h,
               void *work);

#endif
