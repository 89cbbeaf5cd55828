/* png_write.h - RGB bytes as a PNG, stored without compression: for generated data sets. */
#ifndef PL_DATA_PNG_WRITE_H
#define PL_DATA_PNG_WRITE_H

#include "base/err.h"

pl_status pl_png_write(const char *path, const uint8_t *rgb, int w, int h) PL_MUST_USE;

#endif
