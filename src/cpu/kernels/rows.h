/* rows.h - loops over rows of channels, compiled for each instruction set.
 *
 * In channels-last layout a pixel is a contiguous row of C floats; pools, resizing, patches and
 * depthwise products combine a few such rows into one. Each function computes every element in
 * one fixed order, without contraction, so all sets give the same bits.
 */
#ifndef PL_CPU_ROWS_H
#define PL_CPU_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_row_loops {
    /* y[i] = (add ? y[i] : 0) + sum_k w[k] * x[k][i], i in [0, n) */
    void (*weighted)(float *y, const float *const *x, const float *w, int taps, int64_t n,
                     bool add);
    /* y[i] = (add ? y[i] : 0) + sum_k w[k][i] * x[k][i] */
    void (*product)(float *y, const float *const *x, const float *const *w, int taps, int64_t n,
                    bool add);
    /* Cubic Bezier curve: maps five consecutive floats (t, p0..p3) of x to one of y; f groups. */
    void (*bezier)(float *y, const float *x, int64_t f, bool silu_points);
    void (*bezier_bwd)(float *dx, const float *x, const float *dy, int64_t f, bool silu_points);
} pl_row_loops;

/* Returns the best set that this machine supports. */
const pl_row_loops *pl_rows_best(void);

#endif
