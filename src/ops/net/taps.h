/* taps.h - separable linear maps over the spatial dims of [N, s.., C]: averages, resizing, and
 * the adjoint of each.
 *
 * Along every spatial dim an output position reads a short list of input positions ("taps"), each
 * with a weight; over several dims lists and weights multiply. The lists are tables made at prepare
 * time. The adjoint is the same kind of map with the tables inverted, so it gathers too: one thread
 * sums each output element in one order.
 */
#ifndef PL_OPS_TAPS_H
#define PL_OPS_TAPS_H

#include "ir/op.h"

typedef struct pl_taps pl_taps;

/* Sets the k-th tap of output position i along dim d (of three; not called for missing leading
 * dims); false past the last tap. Taps of weight 0 are ignored. */
typedef bool (*pl_taps_fn)(const void *ctx, int d, int64_t i, int64_t k, int64_t *index,
                           double *weight);

/* in and out: n_spatial sizes of the forward map. adjoint: the tables map out to in instead. */
pl_status pl_taps_new(int n_spatial, const int64_t *in, const int64_t *out, pl_taps_fn fn,
                      const void *ctx, bool adjoint, pl_taps **t) PL_MUST_USE;
void pl_taps_free(void *t); /* NULL is fine */

/* Kernels whose prep is a pl_taps: input 0 to output 0. */
pl_status pl_taps_run(const pl_call *c) PL_MUST_USE; /* f32 */
pl_status pl_taps_ref(const pl_call *c) PL_MUST_USE; /* any float type, in double */

/* Defines the kernels of an op, from `pl_status op_taps(const pl_call *c, pl_taps **t)`. */
#define PL_TAPS_KERNELS(op)                                                                        \
 static pl_status op##_prepare(const pl_call *c, void **prep, size_t *work_bytes)                  \
 {                                                                                                 \
  (void)work_bytes;                                                                                \
  pl_taps *t = NULL;                                                                               \
  PL_TRY(op##_taps(c, &t));                                                                        \
  *prep = t;                                                                                       \
  return PL_OK;                                                                                    \
 }                                                                                                 \
 static const pl_kernel op##_fast[] = {                                                            \
     {"rows", accepts_f32, op##_prepare, pl_taps_free, pl_taps_run}, PL_KERNEL_END};               \
 PL_VIA_F32(op, op##_fast)                                                                         \
 static const pl_kernel op##_kernels[] = {                                                         \
     {"rows", accepts_f32, op##_prepare, pl_taps_free, pl_taps_run},                               \
     PL_VIA_F32_KERNEL(op),                                                                        \
     {"ref", NULL, op##_prepare, pl_taps_free, pl_taps_ref},                                       \
     PL_KERNEL_END};

/* Labels of such an op: dimension 0 stays, and the op is linear in its operand. */
void pl_taps_labels(const pl_call *c, pl_labels *l);

/* Defines an op whose attribute `size` has the spatial sizes of the result, and the gradient of the
 * op: `other` with the sizes of the operand. attr_type: type of the attributes. The file has attrs,
 * infer, cost, cases and the kernels of PL_TAPS_KERNELS(op). */
#define PL_TAPS_SIZED_OP(op, attr_type, other)                                                     \
 static void op##_vjp(const pl_vjp *v)                                                             \
 {                                                                                                 \
  attr_type a = *(const attr_type *)v->attr;                                                       \
  pl_type x = pl_val_type(v->g, v->in[0]);                                                         \
  for (int d = 0; d < a.size.n; d++) a.size.v[d] = x.dim[1 + d];                                   \
  v->gin[0] = pl_build1(v->g, &pl_op_##other, &a, 1, v->gout);                                     \
 }                                                                                                 \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = 1,                                                                                  \
     .max_in = 1,                                                                                  \
     .n_out = 1,                                                                                   \
     .width = PL_WIDTH_FOLLOW,                                                                     \
     .attr_bytes = sizeof(attr_type),                                                              \
     .attrs = attrs,                                                                               \
     .infer = infer,                                                                               \
     .vjp = op##_vjp,                                                                              \
     .cost = cost,                                                                                 \
     .cpu = op##_kernels,                                                                          \
     .cases = cases,                                                                               \
     .labels = pl_taps_labels,                                                                     \
 };

#endif
