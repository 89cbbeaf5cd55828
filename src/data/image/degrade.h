/* degrade.h - the operations of a degradation, on pictures of 3 floats per pixel in [0,1].
 *
 * Each is PyTorch's of the same name in Real-ESRGAN's pipeline: filter2D with reflected borders,
 * interpolate without antialiasing, Gaussian and Poisson noise, a model of JPEG. A real JPEG goes
 * through libturbojpeg. Nothing allocates; buffers are the caller's.
 */
#ifndef PL_DATA_DEGRADE_H
#define PL_DATA_DEGRADE_H

#include "base/err.h"
#include "plimsoll_image.h"

enum { PL_BLUR_MAX = 21, PL_SCALE_TAPS = 64 };

/* Writes size x size weights of sum 1. */
void pl_blur_weights(const pl_blur *b, float *weights);
/* dst = src blurred; pad: (w + size - 1) x (h + size - 1) x 3 floats. */
void pl_blur_apply(const float *src, int w, int h, const float *weights, int size, float *dst,
                   float *pad);
/* Unsharp mask. pad: 4 x w x h x 3 floats; dst may not be src. */
void pl_sharpen(const float *src, int w, int h, float *dst, float *pad);
/* Resizes to w x h. step: source pixels per output pixel; 0: the ratio of the sizes. strip: src_h x
 * w x 3 floats. */
void pl_scale_picture(const float *src, int src_w, int src_h, float *dst, int w, int h, double step,
                      pl_scale_mode mode, float *strip);
/* Adds noise and clamps to [0,1]. pass distinguishes the draws of one picture. */
void pl_noise_add(float *px, int w, int h, const pl_degradation_pass *p, pl_image_key key,
                  int pass);
/* Draws a Poisson number of mean `mean` from one uniform number; start computes what depends on the
 * mean alone. */
typedef struct pl_poisson {
    double mean, mass, sum; /* probability of the mode (int)mean, and of all up to it */
} pl_poisson;
pl_poisson pl_poisson_of(double mean);
int pl_poisson_draw(const pl_poisson *p, double u);

/* ---- jpeg_model.c ---- */
/* Loses what JPEG loses, in place; quality 1 to 100, a real number. */
void pl_jpeg_model(float *px, int w, int h, double quality);

/* ---- jpeg_round.c ---- */
typedef struct pl_jpeg_round pl_jpeg_round;
pl_status pl_jpeg_round_new(int w, int h, pl_jpeg_round **out) PL_MUST_USE; /* largest picture */
void pl_jpeg_round_free(pl_jpeg_round *j);
uint64_t pl_jpeg_round_bytes(int w, int h);
/* Compresses and decompresses with colours at half the size (4:2:0). */
pl_status pl_jpeg_round_run(pl_jpeg_round *j, float *px, int w, int h, int quality) PL_MUST_USE;

#endif
