/* entropy.h - loops over one row of logits: what cross-entropy and its gradient read and write.
 *
 * Logits are f32, bf16 or f16; everything is computed in f32. Sums have 16 lanes and a tree, so
 * every instruction set gives the same bits. w: f32 weights of the classes, NULL: all 1.
 */
#ifndef PL_CPU_ENTROPY_H
#define PL_CPU_ENTROPY_H

#include "plimsoll.h"

typedef struct pl_entropy_sums {
    float top;    /* the largest logit, at least -FLT_MAX */
    float powers; /* sum of exp(x - top) */
    float spread; /* sum of w * (x - top) */
} pl_entropy_sums;

typedef struct pl_entropy_loops {
    /* Fills *s; s->spread is 0 unless asked for. */
    void (*forward)(const void *x, pl_dtype d, int64_t n, const float *w, bool spread,
                    pl_entropy_sums *s);
    /* y = scale * exp(x - lse) - spread * w; y may be x. */
    void (*backward)(const void *x, void *y, pl_dtype d, int64_t n, float lse, float scale,
                     const float *w, float spread);
} pl_entropy_loops;

#endif
