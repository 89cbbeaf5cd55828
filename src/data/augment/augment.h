/* augment.h - from a decoded image to the numbers of an input: crop, flip, colours, erasing.
 *
 * Random values are drawn from (seed, epoch, sample) by the counter-based generator: a sample has
 * the same view whichever thread reads it, in any order, also after a resume. A view is drawn once
 * for a sample and applied to every input of the sample, so that two sizes of one image show the
 * same part of it.
 */
#ifndef PL_DATA_AUGMENT_H
#define PL_DATA_AUGMENT_H

#include "base/err.h"
#include "data/augment/rand_augment.h"
#include "data/image/resample.h"

typedef enum pl_crop {
    PL_CROP_CENTER,
    PL_CROP_RANDOM,
    PL_CROP_STRETCH,
    PL_CROP_PIXELS,
    PL_CROP_RESIZED /* torchvision's RandomResizedCrop */
} pl_crop;

typedef struct pl_augment {
    pl_crop
        crop; /* the largest part of the input's aspect, in the middle or anywhere; all of it; as
                            * many pixels as the input has, where there are so many */
    double scale[2]; /* random crop: factor on the side of the largest part, drawn in this range */
    /* resized crop: share of the image's area, and width over height of the part; drawn in between,
     * the ratio on a logarithmic scale */
    double area[2], ratio[2];
    double center; /* evaluation: side of the part over the largest; 0 reads as 1 */
    /* The image is resized until its shorter side has this many pixels, and the input's pixels are
     * cut out of it: torchvision's Resize with CenterCrop, of evaluations and PL_CROP_CENTER, or
     * with RandomCrop (PL_CROP_PIXELS); at least the sides of the inputs; 0: off */
    int resize;
    double flip;                 /* probability of left for right */
    int rand_ops, rand_strength; /* RandAugment: operations for each sample, and their strength */
    /* brightness, contrast, saturation: factors in [1-j, 1+j]; hue in turns */
    double jitter[4];
    double erase; /* probability of one rectangle of zeros, 2 % to 33 % of the area */
} pl_augment;

enum { PL_MAX_RAND_OPS = 8 };
typedef struct pl_view {
    double x, y, w, h; /* part of the image, in units of its sides */
    bool closed;       /* pixels outside the part do not count (pl_crop_box) */
    bool flip, coloured;
    float bright, contrast, saturate, hue;
    double ex, ey, ew, eh; /* erased part of the result; ew 0: none */
    int n_rand, strength;  /* RandAugment, after the flip */
    uint8_t rand_op[PL_MAX_RAND_OPS];
    bool rand_negative[PL_MAX_RAND_OPS];
} pl_view;

/* Draws a view. a NULL: the plain view (centre crop, nothing else). aspect: width over height of
 * the inputs. */
pl_view pl_view_draw(const pl_augment *a, uint64_t seed, int64_t epoch, int64_t sample, int width,
                     int height, double aspect);
/* The view of evaluations: all of the image for PL_CROP_STRETCH, else the part in the middle. */
pl_view pl_view_center(const pl_augment *a, int width, int height, double aspect);
/* Replaces the part of a view by w x h pixels of the image resized to a->resize. random: drawn as
 * RandomCrop does, else in the middle. */
void pl_view_resized(pl_view *v, const pl_augment *a, bool random, uint64_t seed, int64_t epoch,
                     int64_t sample, int width, int height, int w, int h);
/* Whether a view changes colours or moves pixels, so that pl_view_write overwrites its pixels. */
bool pl_view_changes(const pl_view *v);
/* Returns the box of a view in an image of that size. */
pl_crop_box pl_view_box(const pl_view *v, int width, int height);

/* One sample of an input: [3|1, h, w] or [h, w, 3|1], f32 or u8. Black is low, white is high; u8
 * keeps 0 to 255. */
typedef struct pl_pixels {
    void *data;
    int w, h, channels;
    bool planar; /* channels first */
    bool bytes;  /* u8 */
    float low, high;
} pl_pixels;

/* Converts bytes to f32, black low and white high, like pl_view_write. past: bypasses the cache. */
void pl_bytes_widen(const uint8_t *from, size_t n, float low, float high, bool past, float *to);
/* Writes a view to an input. rgb: w x h pixels after crop and resize, rows `stride` bytes apart;
 * where pl_view_changes, rows are contiguous and rgb is overwritten. work: 3 * w * h bytes, for
 * RandAugment only. */
void pl_view_write(const pl_view *v, uint8_t *rgb, size_t stride, const pl_pixels *to, void *work);

#endif
