/* via_f32.h - a kernel for 16-bit floats made from an f32 kernel.
 *
 * bf16 and f16 are storage types: operations compute in f32 and round once. A kernel without its
 * own 16-bit form runs on f32 copies in the workspace: inputs are widened, the f32 kernel runs,
 * outputs are rounded. Operands that are not 16-bit floats are passed unchanged.
 *
 *   static const pl_kernel fast[] = {{"dnn", ...}, PL_KERNEL_END};      f32 kernels, best first
 *   PL_VIA_F32(conv, fast)                                              makes conv_via_prepare
 *   ... {"via_f32", pl_via_f32_accepts, conv_via_prepare, pl_via_f32_release, pl_via_f32_run}
 */
#ifndef PL_OPS_VIA_F32_H
#define PL_OPS_VIA_F32_H

#include "ir/op.h"

bool pl_via_f32_accepts(const pl_call *c); /* some operand is a 16-bit float, none is f64 */
pl_status pl_via_f32_prepare(const pl_kernel *inner, const pl_call *c, void **prep,
                             size_t *work_bytes) PL_MUST_USE;
void pl_via_f32_release(void *prep);
pl_status pl_via_f32_run(const pl_call *c) PL_MUST_USE;

#define PL_VIA_F32(name, inner)                                                                    \
 static pl_status name##_via_prepare(const pl_call *c, void **prep, size_t *work_bytes)            \
 {                                                                                                 \
  return pl_via_f32_prepare(inner, c, prep, work_bytes);                                           \
 }
#define PL_VIA_F32_KERNEL(name)                                                                    \
 {                                                                                                 \
  "via_f32", pl_via_f32_accepts, name##_via_prepare, pl_via_f32_release, pl_via_f32_run            \
 }

#endif
