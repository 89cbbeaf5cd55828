/* vector.h - matrices times vectors: products whose result is one row or one column.
 *
 * Every element of the matrix is used once, so such a product takes as long as reading the matrix.
 * Two layouts in memory:
 *
 *   rows      p[i * k + q]   term q of output i. Neighbouring threads read neighbouring terms and
 *                            add their sums
 *   columns   p[q * n + i]   neighbouring threads read neighbouring outputs of a term; groups of
 *                            threads take terms in turn
 *
 * Sums are f32. The shape alone determines how sums are divided among threads, and their order. A
 * sum that is long compared with the number of outputs is computed in parts by several blocks; a
 * second launch adds the parts in order.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_VECTOR_H
#define PL_CUDA_VECTOR_H

#include "cuda/device/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [batch, n], sums over k. */
typedef struct pl_vector_product {
    pl_dtype dtype;
    int64_t batch, n, k;
    int64_t step; /* of the vector: elements from one batch to the next; 0: the same one */
    bool columns;
    bool bias_each; /* one bias per output of n; otherwise one number for all */
    /* Set by pl_vector_plan. */
    int64_t parts, each; /* parts of a sum, terms of one */
    int32_t pack;        /* elements per load: along k in rows, along n in columns */
    int32_t across;      /* threads side by side: of a row's terms, a power of two; of columns */
    int32_t block;       /* threads */
} pl_vector_product;

/* Divides the work, by shape alone. False: these kernels do not support the product. */
bool pl_vector_plan(pl_vector_product *v);
size_t pl_vector_work(const pl_vector_product *v);
/* bias: NULL: none. Requires operands aligned to their elements; the bits do not depend on more
 * alignment. */
pl_status pl_vector_run(const pl_vector_product *v, const void *matrix, const void *vector,
                        const void *bias, void *y, void *work) PL_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
