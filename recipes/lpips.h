/* lpips.h - the perceptual distance LPIPS (VGG16), for the recipes that compare images. Slots are
 * named lpips.*; they are frozen. */
#ifndef RECIPES_LPIPS_H
#define RECIPES_LPIPS_H

#include "plimsoll_recipe.h"

typedef struct lpips_sizes {
    int64_t widths[5]; /* channels of VGG's five stages: 64, 128, 256, 512, 512 */
    bool buffers;      /* the scale of VGG's input is two slots instead of constants */
} lpips_sizes;

/* Mean distance of two batches of images (B,H,W,3) in [-1,1], a scalar. */
pl_val lpips_distance(pl_nn *m, const lpips_sizes *c, pl_val x, pl_val target);
/* For a pl_weights of LPIPS: the slots, and names of published files, which end with {NULL}. */
#define LPIPS_SLOTS "lpips.stages.*,lpips.weights.*"
extern const pl_naming lpips_namings[];

#endif
