/* made_images.h - pictures for tests: made, encoded and written without stored files. */
#ifndef PL_TEST_IMAGES_H
#define PL_TEST_IMAGES_H

#include "data/sets/images.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A smooth colourful picture that depends on seed; 3 bytes per pixel. The caller frees it. */
uint8_t *image_made(int w, int h, int seed);
/* Encoders; the caller frees the bytes. False when the library is not installed. */
bool image_jpeg(const uint8_t *rgb, int w, int h, uint8_t **out, size_t *n);
bool image_jpeg_cmyk(const uint8_t *cmyk, int w, int h, uint8_t **out, size_t *n);
bool image_webp(const uint8_t *rgb, int w, int h, uint8_t **out, size_t *n);
/* colour: 0 grey, 2 RGB, 6 RGBA; bits 8 or 16. px has the channels of that colour, 8 bits each.
 * say_w, say_h: what the header claims. */
bool image_png(const uint8_t *px, int w, int h, int colour, int bits, int say_w, int say_h,
               uint8_t **out, size_t *n);
/* A black PNG whose data inflate to at least this many zeros; or, of 8 x 8 pixels, whose colour
 * profile does. */
bool image_png_zeros(int w, int h, size_t zeros, bool in_profile, uint8_t **out, size_t *n);
/* Returns the bytes by which fn raises the peak memory of a process. Measures in a child process,
 * because a process cannot lower its own peak. */
size_t image_growth(void (*fn)(void *ctx), void *ctx);
bool image_write(const char *path, const uint8_t *bytes, size_t n);
/* Writes n JPEGs of w x h as DIR/CLASS/NNNN.jpg in this many classes; each `bad`-th is cut short
 * (0: none). */
bool image_folder(const char *dir, int n, int classes, int w, int h, int bad);

/* Appends a member to a tar in memory (grown with realloc). type '0' file, 'x' pax, 'L' long
 * name. */
void tar_member(uint8_t **tar, size_t *n, const char *name, char type, const void *bytes,
                size_t len);
void tar_end(uint8_t **tar, size_t *n);

/* A set of images of at most side x side pixels, not augmented. */
pl_image_set_opts image_set_options(const char *path, int side);

#endif
