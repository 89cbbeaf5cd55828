/* image_int.h - the interface between image.c and the decoders of the formats. */
#ifndef PL_DATA_IMAGE_INT_H
#define PL_DATA_IMAGE_INT_H

#include "data/image/image.h"

/* The decoder of a format. All members are NULL in a build without the library; image.c then calls
 * nothing. here: whether the library can be opened. probe reads the header into info; the caller
 * checks sizes against the limits before it calls decode. */
typedef struct pl_image_codec {
    bool (*here)(void);
    pl_status (*probe)(const void *bytes, size_t n, pl_image_info *info);
    pl_status (*decode)(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb);
    /* PNG only: samples of a grey or palette image as they are stored, rows of whole bytes; raw has
     * room for 3 bytes per pixel. */
    pl_status (*raw)(const void *bytes, size_t n, const pl_image_info *info, uint8_t *raw);
    /* For images whose info says by_rows. */
    pl_status (*rows)(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                      pl_image_row_fn fn, void *ctx);
} pl_image_codec;

extern const pl_image_codec pl__png_codec, pl__webp_codec, pl__bmp_codec, pl__tiff_codec,
    pl__gif_codec;

struct pl_decoder {
    void *jpeg;               /* turbojpeg's handle */
    struct pl_image_box *box; /* the sandbox; NULL: none */
};

/* ---- image_box.c: the same functions in a sandbox ---- */
void pl__box_free(struct pl_image_box *b);
pl_status pl__box_probe(struct pl_image_box *b, const void *bytes, size_t n,
                        const pl_image_limits *limits, pl_image_info *info) PL_MUST_USE;
pl_status pl__box_decode(struct pl_image_box *b, const void *bytes, size_t n,
                         const pl_image_info *info, int w, int h, uint8_t *rgb) PL_MUST_USE;
pl_status pl__box_indices(struct pl_image_box *b, const void *bytes, size_t n,
                          const pl_image_info *info, uint8_t *out) PL_MUST_USE;
pl_status pl__box_resized(struct pl_image_box *b, const void *bytes, size_t n,
                          const pl_image_info *info, pl_filter f, pl_crop_box from, int w,
                          int h) PL_MUST_USE;

bool pl__jpeg_here(void);
/* Reads the header of a plain JPEG without the library; false: the file is something else; info
 * does not change. */
bool pl__jpeg_plain(const void *bytes, size_t n, pl_image_info *info);
pl_status pl__jpeg_probe(pl_decoder *d, const void *bytes, size_t n,
                         pl_image_info *info) PL_MUST_USE;
pl_status pl__jpeg_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb) PL_MUST_USE;
void pl__jpeg_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h);
void pl__jpeg_close(pl_decoder *d);

#endif
