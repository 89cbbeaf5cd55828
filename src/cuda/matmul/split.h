/* split.h - f32 products and convolutions on TF32 units, with f32's accuracy.
 *
 * A TF32 value has 11 of an f32's 24 bits, and TF32 units are seven times as fast as f32 units on
 * GPUs where pl_cuda_split() holds. So x is split into hi + lo, hi = x rounded to TF32 and lo the
 * remainder, at most 2^-11 of x, and
 *
 *   a b = hi hi' + lo b + a lo'          the error, lo lo', is less than 2^-22 of the product
 *
 * For the last two, 8 bits are enough: they are bf16 products, which take half of the time. Their
 * rounding error is 6e-7 of a term on average, about the error of an f32 sum of 1024 terms. Values
 * are split in registers, nothing is stored. Tensor cores truncate sums instead of rounding, so
 * every 16 terms their sum, which starts with the small products, is added to an ordinary f32 and
 * they start again at zero. Infinite operands give NaN.
 *
 * Where the caller allows TF32 (`tf32`), hi hi' alone is summed, by the tensor cores.
 *
 * An operand's element of row i (of m, or of n) and term k:
 *
 *   PL_SPLIT_ROWS     p[i * ld + k]
 *   PL_SPLIT_COLS     p[k * ld + i]
 *   PL_SPLIT_PIXELS   of convolutions (pl_columns of conv.h): a's rows are the columns of pixels,
 *                     terms are (tap, channel); b's terms are pixels, its rows (tap, channel)
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_SPLIT_H
#define PL_CUDA_SPLIT_H

#include "cuda/conv/conv.h"
#include "plan/cost/kernel_sizes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pl_split_lay { PL_SPLIT_ROWS, PL_SPLIT_COLS, PL_SPLIT_PIXELS } pl_split_lay;

/* y [batch, m, n], sums over k. */
typedef struct pl_split_product {
    int64_t batch, m, n, k;
    int64_t a_step, b_step; /* elements from one batch to the next; 0: the same matrix */
    pl_split_lay a, b;
    int64_t a_ld, b_ld;
    bool tf32;     /* one product of operands rounded to TF32; PL_SPLIT_PIXELS only */
    pl_columns at; /* PL_SPLIT_PIXELS; its pixels' bytes are those of its channels */
    /* Rows of y that are not contiguous: pixel p of `rows` is pixel first + p * stride of an image
     * of that size. */
    bool spread;
    int64_t rows[3], first[3], stride[3], size[3];
    pl_split_choice choice; /* set by pl_split_plan */
} pl_split_product;

/* After the sums: + bias[n] + add[m, n], then ReLU. */
typedef struct pl_split_tail {
    const float *bias, *add; /* NULL: none */
    bool relu;
} pl_split_tail;

/* Chooses tiles and parts, by shape and GPU. False: these kernels do not support the product. */
bool pl_split_plan(pl_split_product *s);
/* The same; false also where f32 units are probably faster or more accurate. */
bool pl_split_pays(pl_split_product *s);
size_t pl_split_work(const pl_split_product *s);
/* Requires operands at multiples of 16 bytes. */
pl_status pl_split_run(const pl_split_product *s, const void *a, const void *b,
                       const pl_split_tail *t, void *y, void *work) PL_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
