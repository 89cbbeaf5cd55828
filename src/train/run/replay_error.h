/* replay_error.h - when two numbers of two programs differ by more than rounding.
 *
 * A relative tolerance alone is wrong for small numbers: a loss term of 2.6e-4 that both programs
 * compute from numbers around 1 carries rounding errors of those numbers, so a difference of 9e-8,
 * 350 millionths of the term, says nothing. The difference that counts is what exceeds the rounding
 * of f32 numbers of the given scale. That allowance is at most PL_REPLAY_PART of the value, so that
 * a small value is still compared.
 */
#ifndef PL_TRAIN_REPLAY_ERROR_H
#define PL_TRAIN_REPLAY_ERROR_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

/* Rounding steps of a sum of a few terms, in units of the last place. */
#define PL_REPLAY_ULPS 4
#define PL_REPLAY_PART 1e-3

/* distance: |ours - theirs|; size: |theirs|, both norms for tensors; scale: the size of numbers of
 * this kind in the computation. Returns the relative error beyond rounding; NaN stays NaN. */
static inline double pl__replay_error(double distance, double size, double scale, bool f64)
{
    double ulp = f64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double allowed = fmin(PL_REPLAY_ULPS * ulp * scale, PL_REPLAY_PART * size);
    if (distance <= allowed) return 0;
    return (distance - allowed) / fmax(size, 1e-12);
}

#endif
