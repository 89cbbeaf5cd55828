/* scores.h - how near a picture is to another one, for the evaluations of recipes. Pictures are
 * (B,H,W,3) in [-1,1]. */
#ifndef RECIPES_SCORES_H
#define RECIPES_SCORES_H

#include "plimsoll_recipe.h"

/* Returns the mean over the batch of each picture's PSNR, in dB. */
pl_val score_psnr(pl_nn *m, pl_val x, pl_val y);
/* Returns the mean SSIM over the batch: luma, Gaussian windows of 11 x 11, 1.5 wide. */
pl_val score_ssim(pl_nn *m, pl_val x, pl_val y);

#endif
