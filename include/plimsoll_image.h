/* plimsoll_image.h - image processing in data workers: degraded pairs for super-resolution, edges.
 *
 * For recipes whose inputs are computed from a picture (pl_image_feed.make). All random numbers are
 * pure functions of a key (seed, epoch, sample), so a pair is the same on any thread and in any
 * order. Memory is allocated when a handle is created, and not later.
 */
#ifndef PLIMSOLL_IMAGE_H
#define PLIMSOLL_IMAGE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_image_key {
    uint64_t seed;
    int64_t epoch, sample;
} pl_image_key;

/* ---- degradation --------------------------------------------------------------------------- */
/* The second-order model of Real-ESRGAN: twice blur, resize, noise and JPEG, then a low-pass
 * filter, with every strength drawn from a range. The picture is optionally sharpened first. */
typedef enum pl_blur_shape {
    PL_BLUR_ISO,
    PL_BLUR_ANISO,
    PL_BLUR_GENERAL_ISO, /* exp(-q^beta/2), q the squared distance in units of sigma */
    PL_BLUR_GENERAL_ANISO,
    PL_BLUR_PLATEAU_ISO, /* 1/(1+q^beta) */
    PL_BLUR_PLATEAU_ANISO,
    PL_BLUR_SINC, /* circular low pass */
    PL_BLUR_NONE
} pl_blur_shape;
enum { PL_BLUR_SHAPES = 6 };

typedef enum pl_scale_mode { PL_SCALE_AREA, PL_SCALE_BILINEAR, PL_SCALE_BICUBIC } pl_scale_mode;

/* Ranges of one pass; {low, high}. */
typedef struct pl_degrade_pass {
    double blur, sinc;            /* probability of any blur; probability that it is a low pass */
    double shape[PL_BLUR_SHAPES]; /* probabilities of the other shapes */
    /* pixels; exponents, below and above 1 with equal probability */
    double sigma[2], general[2], plateau[2];
    /* probabilities of up, down, keep; smallest and largest factor */
    double resize[3], scale[2];
    double gaussian, noise[2]; /* probability of Gaussian noise, else Poisson; deviation in 1/255 */
    double poisson[2], grey;   /* strength; probability of one noise for all channels */
    double jpeg[2];            /* quality */
} pl_degrade_pass;

typedef struct pl_degrade {
    pl_degrade_pass pass[2];
    double last_sinc; /* probability of the low pass at the end */
    double untouched; /* probability that the picture is not changed */
    int factor;       /* the second pass works at size / factor */
    bool sharpen;     /* unsharp mask first: radius 51, weight 0.5, threshold 10 */
    bool codec;       /* JPEG by libturbojpeg, with whole qualities; false: by formula */
    bool bytes;       /* rounds the degraded picture to 8 bits, before it is resized back */
} pl_degrade;
/* Returns the ranges of StableSR's training: JPEG by formula, no 8 bits. */
PL_API pl_degrade pl_degrade_stablesr(void);

typedef struct pl_blur {
    pl_blur_shape shape;
    int size; /* odd, 7 to 21 */
    double sigma_x, sigma_y, turn, beta, cutoff;
} pl_blur;

typedef struct pl_degradation_pass {
    pl_blur blur;
    double scale;
    pl_scale_mode mode;
    bool poisson, grey;
    double noise; /* deviation in [0,1], or Poisson's strength */
    double jpeg;  /* quality */
} pl_degradation_pass;

/* The drawn degradation of one picture. */
typedef struct pl_degradation {
    /* jpeg_first: the second JPEG comes before the last resize and low pass */
    bool untouched, jpeg_first;
    pl_degradation_pass pass[2];
    pl_blur last;
    pl_scale_mode last_mode;
} pl_degradation;
PL_API pl_degradation pl_degrade_draw(const pl_degrade *o, pl_image_key key);

/* Scratch memory of one thread for pictures of w x h. */
typedef struct pl_degrader pl_degrader;
PL_API pl_status pl_degrader_new(const pl_degrade *o, int w, int h, pl_degrader **out) PL_MUST_USE;
PL_API void pl_degrader_free(pl_degrader *d);
/* Returns the memory of a degrader. */
PL_API uint64_t pl_degrader_bytes(const pl_degrade *o, int w, int h);
/* Degrades one picture. rgb: 3 bytes per pixel. good: the picture, sharpened if o->sharpen. bad:
 * the degraded picture, resized to the same size. Both are (h,w,3), black 0, white 1; each may be
 * NULL. */
PL_API pl_status pl_degrader_run(pl_degrader *d, pl_image_key key, const uint8_t *rgb, float *good,
                                 float *bad) PL_MUST_USE;

/* ---- edges --------------------------------------------------------------------------------
 * Canny: grey, Gaussian 5 x 5 (sigma 1.4), Sobel 3 x 3, |dx|+|dy|, thinned along the gradient. A
 * pixel is an edge if it is above `high`, or above `low` and connected to a pixel above `high`.
 * edge: 0 or 255, w x h. */
PL_API uint64_t pl_canny_bytes(int w, int h);
PL_API void pl_canny(const uint8_t *rgb, int w, int h, int low, int high, uint8_t *edge,
                     void *work);

/* ---- a pool of pairs ---------------------------------------------------------------------- */
/* A pool of `size` samples shuffles the stream: once the pool is full, every batch takes `batch`
 * random places and fills them with the next samples. Returns which sample of the stream comes out
 * at `position`; a pure function, so the pool needs no memory. The size is rounded down to whole
 * batches; 0, or a batch above PL_POOL_BATCH: no pool. */
enum { PL_POOL_BATCH = 64 };
PL_API int64_t pl_pool_source(uint64_t seed, int64_t size, int64_t batch, int64_t position);

#ifdef __cplusplus
}
#endif
#endif
