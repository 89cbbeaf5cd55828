/* png_write.h - pixels as a PNG: generated data sets, samples, and the images of TensorBoard. */
#ifndef PL_DATA_PNG_WRITE_H
#define PL_DATA_PNG_WRITE_H

#include "base/str.h"

/* Whether a picture has a size that a PNG can have: 1 to 4 channels, 1 GiB of pixels. */
bool pl_png_fits(int width, int height, int channels);

/* A picture that is encoded row by row, and where the bytes of the file go. */
typedef struct pl_png_job {
    int width, height, channels;
    const uint8_t *(*row)(void *from, int y); /* width * channels bytes; asked from the top down */
    bool (*put)(void *to, const void *bytes, size_t n); /* false: failed, the encoder stops */
    void *from, *to;
} pl_png_job;

/* Encodes the picture. PL_ERR_IO: put failed, and the message is its own; PL_ERR_UNSUPPORTED: the
 * library is not installed. */
pl_status pl_png_encode(const pl_png_job *job) PL_MUST_USE;
/* Appends the file to out; pixels are rows of width * channels bytes. On failure (libspng is not
 * installed: PL_ERR_UNSUPPORTED) out may hold a part of the file. pl_png_save and pl_png_save_rows
 * (plimsoll_events.h) write it to a path. */
pl_status pl_png_put(pl_str *out, int width, int height, int channels,
                     const uint8_t *pixels) PL_MUST_USE;

#endif
