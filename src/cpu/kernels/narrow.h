/* narrow.h - products of a large matrix with one to four vectors.
 *
 * Such a product is bound by reading the matrix once; kernels made for square blocks first pack the
 * matrix and are two to six times slower. Two forms, depending on the layout of the matrix A (rows,
 * cols) with row length ld:
 *   dot   C[r,i] = bias + sum_j A[r,j] B[i,j]     B is (n, cols), C is (rows, n)
 *   sum   C[i,j] = bias + sum_r B[r,i] A[r,j]     B is (rows, n), C is (n, cols)
 * B and C are dense. The order of sums depends on the sizes alone: 16 lanes and a tree in dot,
 * pl_narrow_parts() ranges of rows in sum.
 */
#ifndef PL_CPU_NARROW_H
#define PL_CPU_NARROW_H

#include <stddef.h>
#include <stdint.h>

enum { PL_NARROW_MAX = 4 };

typedef struct pl_narrow {
    int64_t rows, cols, ld, n;
    /* bias of C[r,i] is bias[r*bias_row + i*bias_vec]; of C[i,j] in sum, bias[j*bias_row] */
    int64_t bias_row, bias_vec;
} pl_narrow;

/* bias may be NULL. */
void pl_narrow_dot(const pl_narrow *s, const float *a, const float *b, const float *bias, float *c);
/* work: pl_narrow_parts(s) * n * cols floats. */
void pl_narrow_sum(const pl_narrow *s, const float *a, const float *b, const float *bias, float *c,
                   float *work);
int64_t pl_narrow_parts(const pl_narrow *s);

/* The loops, compiled for several instruction sets with the same results. */
typedef struct pl_narrow_loops {
    void (*dot)(const pl_narrow *s, int64_t lo, int64_t hi, const float *a, const float *b,
                const float *bias, float *c);
    void (*sum)(const pl_narrow *s, int64_t lo, int64_t hi, const float *a, const float *b,
                float *c);
} pl_narrow_loops;

#endif
