/* png_write.h - pixels as a PNG: generated data sets, samples, and the images of TensorBoard. */
#ifndef PL_DATA_PNG_WRITE_H
#define PL_DATA_PNG_WRITE_H

#include "base/str.h"

/* Whether a picture has a size that a PNG can have: 1 to 4 channels, 1 GiB of pixels. */
bool pl_png_fits(int width, int height, int channels);
/* Appends the file to out; pixels are rows of width * channels bytes. On failure (libspng is not
 * here: PL_ERR_UNSUPPORTED) out may hold a part of the file. pl_png_save (plimsoll_events.h) writes
 * it to a path. */
pl_status pl_png_put(pl_str *out, int width, int height, int channels,
                     const uint8_t *pixels) PL_MUST_USE;

#endif
