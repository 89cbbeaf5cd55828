/* image.h - encoded images to RGB bytes, in six formats, recognised by their first bytes.
 *
 * Nothing is trusted: the size is read from the header and held against the limits before any pixel
 * is decoded, and a decoder gets the size of the buffer that it writes to. What is converted: grey
 * and palette to RGB, 16 bits to 8, CMYK to RGB (as Adobe stores it, inverted), alpha is dropped,
 * as PIL's convert("RGB") does. What is refused, as PL_ERR_DATA with the reason: files that end
 * early, corrupt data, animations, sizes outside the limits, other formats. Messages do not name
 * the file: the caller, who knows it, puts it before them (pl__fail_prefix).
 */
#ifndef PL_DATA_IMAGE_H
#define PL_DATA_IMAGE_H

#include "base/err.h"
#include "data/image/resample.h"

typedef enum pl_image_format {
    PL_IMAGE_OTHER,
    PL_IMAGE_JPEG,
    PL_IMAGE_PNG,
    PL_IMAGE_WEBP,
    PL_IMAGE_BMP,
    PL_IMAGE_TIFF,
    PL_IMAGE_GIF,
    PL_IMAGE_FORMATS
} pl_image_format;
#define PL_IMAGE_NAMES "JPEG, PNG, WebP, BMP, TIFF or GIF"

const char *pl_image_format_name(pl_image_format f); /* "JPEG" */
/* Why a format cannot be decoded here; NULL when it can. Valid until the thread asks again. */
const char *pl_image_missing(pl_image_format f);
pl_image_format pl_image_format_of(const void *bytes, size_t n);

typedef struct pl_image_limits {
    int64_t max_pixels; /* width x height */
    int min_side, max_side;
    int64_t min_bytes; /* of the file, where it is read */
} pl_image_limits;
#define PL_IMAGE_LIMITS_INIT                                                                       \
 {                                                                                                 \
  64000000, 8, 65535, 0                                                                            \
 }

typedef struct pl_image_info {
    pl_image_format format;
    int width, height;
    const char *colour; /* "RGB", "grey", "CMYK", "palette", "RGBA", "grey+alpha" */
    int bits;           /* per channel, as stored */
    bool by_rows;       /* pl_image_rows can decode it */
    /* Bytes that its library holds while it decodes, besides the file and the pixels: by rows where
     * it can. Below a megabyte it is 0. */
    int64_t heap_bytes;
} pl_image_info;

/* Decoder state of one thread. */
typedef struct pl_decoder pl_decoder;
pl_status pl_decoder_new(pl_decoder **out) PL_MUST_USE;
void pl_decoder_free(pl_decoder *d);

/* Memory of a decoder that runs in a sandbox (sandbox.h), all of it from pl_sandbox_map. */
typedef struct pl_decoder_memory {
    uint8_t *file, *pixels, *resized, *work;
    size_t file_bytes, pixel_bytes, resized_bytes, work_bytes;
    uint32_t formats; /* bits of the formats to expect; others cost a new sandbox */
} pl_decoder_memory;
/* Lets the functions below decode in a sandbox. They then take `bytes` from memory.file only, and
 * row, out and work from memory.pixels, .resized and .work. */
pl_status pl_decoder_apart(pl_decoder *d, const pl_decoder_memory *memory) PL_MUST_USE;
/* A ring of buffers whose first bytes are pixels and nothing else. */
typedef struct pl_decoder_ring {
    uint8_t *at;
    size_t stride; /* from one buffer to the next */
    int depth;
    size_t pixels; /* first bytes of each buffer, from pl_sandbox_share */
} pl_decoder_ring;
/* Lets the sandbox decode into the ring, where pixels would be copied otherwise. Starts it again.
 * Without a sandbox nothing happens. */
void pl_decoder_use_ring(pl_decoder *d, const pl_decoder_ring *ring);
/* Returns the number of the sandbox's process; -1: none is running. */
int pl_decoder_pid(const pl_decoder *d);

/* Reads the header. */
pl_status pl_image_probe(pl_decoder *d, const void *bytes, size_t n, const pl_image_limits *limits,
                         pl_image_info *info) PL_MUST_USE;
/* Sets the size that pl_image_decode gives when at least min_w x min_h pixels are needed (0: the
 * whole size): a JPEG is scaled down by its own transform, in a fraction of the time. */
void pl_image_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h);
/* Decodes to w x h, from pl_image_scaled: 3 bytes per pixel, row by row, into rgb, which must have
 * room for 4 bytes per pixel (CMYK needs it). */
pl_status pl_image_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb) PL_MUST_USE;
/* Decodes the numbers of a PNG mask, grey values or palette numbers of at most 8 bits, into out, a
 * byte a pixel; out has room for 4 bytes a pixel. Colours with equal red, green and blue count as
 * grey. */
pl_status pl_image_indices(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                           uint8_t *out) PL_MUST_USE;
/* Decodes an image that is by_rows and resizes its part `from` to w x h pixels in out, without
 * holding the whole image. row: 3 bytes per pixel of a row; work: pl_rgb_resize_bytes. */
pl_status pl_image_resized(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                           pl_filter f, pl_crop_box from, uint8_t *row, uint8_t *out, int w, int h,
                           void *work) PL_MUST_USE;
/* Decodes an image that is by_rows at its own size, one row at a time through `row` (3 bytes per
 * pixel), and passes each row to fn in order, so that the whole image is never in memory. fn gets
 * the last row before the end of the file is verified. */
typedef void (*pl_image_row_fn)(void *ctx, int y, const uint8_t *row);
pl_status pl_image_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                        pl_image_row_fn fn, void *ctx) PL_MUST_USE;

#endif
