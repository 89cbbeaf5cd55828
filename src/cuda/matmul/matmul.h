/* matmul.h - shared by the files of products: the problem, its operands, and the ways to compute
 * it. */
#ifndef PL_CUDA_MATMUL_H
#define PL_CUDA_MATMUL_H

#include "cuda/device/work.h"

/* Zeroed first, so that padding bytes are equal and problems compare bytewise. */
typedef struct pl_product {
    pl_dtype dtype;
    int64_t batch, m, n, k;
    int64_t a_step, b_step; /* elements from one batch to the next; 0: the same matrix */
    bool ta, tb, bias;
    bool add, keep, slope; /* ops/net/tail.h: of matmul_tail, matmul_tail_keep, matmul_slope */
    int32_t act;
} pl_product;

typedef struct pl_product_operands {
    const void *a, *b, *bias, *add, *slope_at;
    void *y, *keep, *work;
} pl_product_operands;

pl_product pl_product_of(const pl_call *c, const pl_tail_attr *tail, bool slope);
pl_product_operands pl_product_operands_of(const pl_product *p, const pl_call *c);

/* By cuBLASLt: matmul.c. Its kernel includes as much of the tail as it supports, but no more than
 * `most`. */
typedef enum pl_product_level {
    PL_PRODUCT_BARE,
    PL_PRODUCT_WITH_BIAS,
    PL_PRODUCT_WHOLE
} pl_product_level;
pl_status pl_product_lt_prepare(const pl_product *p, pl_product_level most, void **prep,
                                size_t *work_bytes) PL_MUST_USE;
void pl_product_lt_release(void *prep);
pl_status pl_product_lt_run(const pl_call *c) PL_MUST_USE;

/* Creates operands of a product to measure it, and `work` bytes, in one block, which the caller
 * frees with cudaFree; NULL when there is not enough memory. matmul_trial.c */
void *pl_product_trial_operands(const pl_product *p, size_t work, pl_product_operands *x);

/* With one row or one column, and no tail but a bias: matmul_vector.c */
bool pl_product_vector_takes(const pl_product *p);
size_t pl_product_vector_work(const pl_product *p);
pl_status pl_product_vector_run(const pl_call *c) PL_MUST_USE;

/* On TF32 units with f32's accuracy: matmul_split.c. takes: probably the fastest; can: may be
 * faster than a product in TF32. */
bool pl_product_split_takes(const pl_product *p);
bool pl_product_split_can(const pl_product *p);
pl_status pl_product_split_prepare(const pl_product *p, void **prep,
                                   size_t *work_bytes) PL_MUST_USE;
void pl_product_split_release(void *prep);
pl_status pl_product_split_run(const pl_call *c) PL_MUST_USE;

#endif
