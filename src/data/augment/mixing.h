/* mixing.h - mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019) of two pictures, as
 * torchvision's transforms of these names compute them.
 *
 * One mixing is drawn for a batch, from (seed, step) by the counter-based generator. Picture i of
 * the batch is mixed with picture i-1, the first with the last.
 */
#ifndef PL_DATA_MIXING_H
#define PL_DATA_MIXING_H

#include "data/augment/augment.h"

typedef struct pl_mixing {
    bool cut;       /* CutMix: a rectangle of the other picture; else mixup: a weighted sum */
    double share;   /* weight of the picture itself in the sum */
    double x, y, r; /* CutMix: centre of the rectangle, half its sides; in units of the sides */
} pl_mixing;

/* Draws a share from the Beta(alpha, alpha) distribution; alphas of 0 switch mixup or CutMix off,
 * one of the two is not 0. With both each step draws which. */
pl_mixing pl_mixing_draw(double mixup, double cutmix, uint64_t seed, int64_t step);
/* Mixes *with, a picture of the same kind, into the picture `to`. CutMix needs to->bytes or f32,
 * mixup f32. Returns the share of the picture itself, which is its label's: CutMix counts pixels.
 */
double pl_mixing_apply(const pl_mixing *m, const pl_pixels *to, const void *with);

#endif
