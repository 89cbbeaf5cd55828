/* rand_augment.h - RandAugment (Cubuk et al., 2020) with the operations and strengths of
 * torchvision's transform, and the same bytes as its operations on PIL images.
 *
 * An operation is drawn for a sample with the rest of its view (augment.h). All operations have one
 * strength, 0 to PL_RAND_AUGMENT_MOST; half of them change direction by a drawn sign. Pixels that
 * come from outside the picture are black; pixels are moved without interpolation.
 */
#ifndef PL_DATA_RAND_AUGMENT_H
#define PL_DATA_RAND_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Operations in torchvision's order. */
typedef enum pl_rand_op {
    PL_RAND_IDENTITY,
    PL_RAND_SHEAR_X,
    PL_RAND_SHEAR_Y,
    PL_RAND_TRANSLATE_X,
    PL_RAND_TRANSLATE_Y,
    PL_RAND_ROTATE,
    PL_RAND_BRIGHTNESS,
    PL_RAND_COLOR,
    PL_RAND_CONTRAST,
    PL_RAND_SHARPNESS,
    PL_RAND_POSTERIZE,
    PL_RAND_SOLARIZE,
    PL_RAND_AUTOCONTRAST,
    PL_RAND_EQUALIZE,
    PL_RAND_OPS
} pl_rand_op;

enum { PL_RAND_AUGMENT_MOST = 30 }; /* strongest; torchvision's 31 bins */

/* Applies an operation to w x h pixels of 3 bytes, rows contiguous. strength: 0 to
 * PL_RAND_AUGMENT_MOST. work: 3 * w * h bytes. */
void pl_rand_augment(pl_rand_op op, int strength, bool negative, uint8_t *rgb, int w, int h,
                     uint8_t *work);

#endif
