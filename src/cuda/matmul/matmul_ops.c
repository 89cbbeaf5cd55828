/* matmul_ops.c - products and their tails: which kernel computes which problem.
 *
 *   a matrix times a vector                                    matmul_vector.c
 *   f32 on GPUs with fast TF32 units, where that is faster     matmul_split.c
 *   everything else                                            cuBLASLt, matmul.c
 */
#include "cuda/matmul/matmul.h"
#include "ops/net/tail.h"

static bool accepts(const pl_call *c)
{
    return pl_dtype_is_float(c->in_type[0].dtype);
}

static const pl_tail_attr *tail_of(const pl_call *c)
{
    return &((const pl_matmul_tail_attr *)c->attr)->tail;
}

static pl_product plain_of(const pl_call *c)
{
    return pl_product_of(c, NULL, false);
}

static pl_product with_tail_of(const pl_call *c)
{
    return pl_product_of(c, tail_of(c), false);
}

static pl_product with_slope_of(const pl_call *c)
{
    return pl_product_of(c, tail_of(c), true);
}

static pl_status tail_behind(const pl_call *c, void **prep, size_t *work_bytes)
{
    pl_product p = with_tail_of(c);
    return pl_product_lt_prepare(&p, PL_PRODUCT_WITH_BIAS, prep, work_bytes);
}

static pl_status slope_behind(const pl_call *c, void **prep, size_t *work_bytes)
{
    pl_product p = with_slope_of(c);
    return pl_product_lt_prepare(&p, PL_PRODUCT_BARE, prep, work_bytes);
}

static bool vector_takes(const pl_call *c)
{
    pl_product p = plain_of(c);
    return pl_product_vector_takes(&p);
}

static pl_status vector_prepare(const pl_call *c, void **prep, size_t *work_bytes)
{
    pl_product p = plain_of(c);
    *prep = NULL;
    *work_bytes = pl_product_vector_work(&p);
    return PL_OK;
}

/* before: kernels that are tried first. */
#define KERNELS(tag, of, before, ...)                                                              \
 static bool tag##_split(const pl_call *c)                                                         \
 {                                                                                                 \
  pl_product p = of(c);                                                                            \
  return pl_product_split_takes(&p);                                                               \
 }                                                                                                 \
 static pl_status tag##_split_prepare(const pl_call *c, void **prep, size_t *work_bytes)           \
 {                                                                                                 \
  pl_product p = of(c);                                                                            \
  return pl_product_split_prepare(&p, prep, work_bytes);                                           \
 }                                                                                                 \
 static pl_status tag##_prepare(const pl_call *c, void **prep, size_t *work_bytes)                 \
 {                                                                                                 \
  pl_product p = of(c);                                                                            \
  return pl_product_lt_prepare(&p, PL_PRODUCT_WHOLE, prep, work_bytes);                            \
 }                                                                                                 \
 static const pl_kernel tag[] = {                                                                  \
     before{"split", tag##_split, tag##_split_prepare, pl_product_split_release,                   \
            pl_product_split_run},                                                                 \
     {"cublaslt", accepts, tag##_prepare, pl_product_lt_release, pl_product_lt_run},               \
     __VA_ARGS__ PL_KERNEL_END};                                                                   \
 static bool tag##_exact(const pl_call *c)                                                         \
 {                                                                                                 \
  pl_product p = of(c);                                                                            \
  return pl_product_split_can(&p);                                                                 \
 }                                                                                                 \
 static const pl_kernel tag##_alternatives[] = {                                                   \
     {"split", tag##_exact, tag##_split_prepare, pl_product_split_release, pl_product_split_run},  \
     PL_KERNEL_END};
/* Fallback of the library's kernel: chosen when the plainest kernel is requested. */
#define BEHIND(name, prepare) {name, accepts, prepare, pl_product_lt_release, pl_product_lt_run},
/* Reads its operands once, in every precision. */
#define VECTOR                                                                                     \
 {.name = "vector",                                                                                \
  .accepts = vector_takes,                                                                         \
  .prepare = vector_prepare,                                                                       \
  .run = pl_product_vector_run},
KERNELS(plain, plain_of, VECTOR, )
KERNELS(tail, with_tail_of, , BEHIND("cublaslt, tail behind", tail_behind))
KERNELS(slope, with_slope_of, , BEHIND("cublaslt, slope behind", slope_behind))

extern const pl_cuda_entry pl_cuda_matmul[];
const pl_cuda_entry pl_cuda_matmul[] = {{"matmul", plain},
                                        {"matmul_tail", tail},
                                        {"matmul_tail_keep", tail},
                                        {"matmul_slope", slope},
                                        {NULL, NULL}};

/* Where TF32 is allowed and slow: the kernel of true f32 (cuda/device/trial.h). */
extern const pl_cuda_entry pl_cuda_matmul_alternatives[];
const pl_cuda_entry pl_cuda_matmul_alternatives[] = {{"matmul", plain_alternatives},
                                                     {"matmul_tail", tail_alternatives},
                                                     {"matmul_tail_keep", tail_alternatives},
                                                     {"matmul_slope", slope_alternatives},
                                                     {NULL, NULL}};
