/* image_int.h - the interface between image.c and the decoders of the formats. */
#ifndef PL_DATA_IMAGE_INT_H
#define PL_DATA_IMAGE_INT_H

#include "data/image/image.h"

struct pl_decoder {
    void *jpeg; /* turbojpeg's handle */
};

bool pl__jpeg_here(void);
bool pl__png_here(void);
bool pl__webp_here(void);
bool pl__bmp_here(void);
bool pl__tiff_here(void);
bool pl__gif_here(void);
/* Reads the header into info; the caller checks sizes against the limits before any other call. */
pl_status pl__jpeg_probe(pl_decoder *d, const void *bytes, size_t n,
                         pl_image_info *info) PL_MUST_USE;
pl_status pl__png_probe(const void *bytes, size_t n, pl_image_info *info) PL_MUST_USE;
pl_status pl__webp_probe(const void *bytes, size_t n, pl_image_info *info) PL_MUST_USE;
pl_status pl__bmp_probe(const void *bytes, size_t n, pl_image_info *info) PL_MUST_USE;
pl_status pl__tiff_probe(const void *bytes, size_t n, pl_image_info *info) PL_MUST_USE;
pl_status pl__gif_probe(const void *bytes, size_t n, pl_image_info *info) PL_MUST_USE;
pl_status pl__jpeg_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb) PL_MUST_USE;
pl_status pl__png_decode(const void *bytes, size_t n, const pl_image_info *info,
                         uint8_t *rgb) PL_MUST_USE;
pl_status pl__png_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                       pl_image_row_fn fn, void *ctx) PL_MUST_USE;
/* Samples of a grey or palette image as they are stored, rows of whole bytes. raw has room for 3
 * bytes a pixel. */
pl_status pl__png_raw(const void *bytes, size_t n, const pl_image_info *info,
                      uint8_t *raw) PL_MUST_USE;
pl_status pl__webp_decode(const void *bytes, size_t n, const pl_image_info *info,
                          uint8_t *rgb) PL_MUST_USE;
pl_status pl__bmp_decode(const void *bytes, size_t n, const pl_image_info *info,
                         uint8_t *rgb) PL_MUST_USE;
pl_status pl__tiff_decode(const void *bytes, size_t n, const pl_image_info *info,
                          uint8_t *rgb) PL_MUST_USE;
pl_status pl__gif_decode(const void *bytes, size_t n, const pl_image_info *info,
                         uint8_t *rgb) PL_MUST_USE;
void pl__jpeg_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h);
void pl__jpeg_close(pl_decoder *d);

#endif
