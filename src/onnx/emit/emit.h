/* emit.h - declarations that the ops of ops.def share: one function for each op, and helpers for
 * orders. */
#ifndef PL_ONNX_EMIT_H
#define PL_ONNX_EMIT_H

#include "onnx/onnx.h"
#include "plimsoll_ops.h"

#define PL_OX_OP(name, domain, emit, about) pl_ox_emit pl_ox_emit_##emit;
#define PL_OX_SAME(name, domain, emit, about)
#include "onnx/emit/ops.def"

/* Brings n inputs, starting with input `first`, to one rank and one physical order; a NULL input is
 * an error. perm has the order of the results. */
pl_status pl_ox_together(pl_ox_call *c, int first, int n, pl_val *x, int *perm) PL_MUST_USE;
/* The same for any values. */
pl_status pl_ox_align(pl_ox_call *c, int n, pl_ox_val *const *in, pl_val *x, int *perm) PL_MUST_USE;
/* Input k, which must be there, in any physical order; *v gets the value. */
pl_status pl_ox_input(pl_ox_call *c, int k, pl_ox_val **v, pl_val *x) PL_MUST_USE;
/* Input k in logical order. */
pl_status pl_ox_input_plain(pl_ox_call *c, int k, pl_ox_val **v, pl_val *x) PL_MUST_USE;
/* A truth value or an index type as another: casts where types differ. */
pl_val pl_ox_cast(pl_graph *g, pl_val x, pl_dtype to);
/* pl_matmul, and the same for whole numbers. */
pl_val pl_ox_product(pl_graph *g, pl_val x, pl_val y, bool tx, bool ty);
/* f32 for f16 and bf16, x otherwise. */
pl_val pl_ox_wide(pl_graph *g, pl_val x);
/* Sets output 0 to v [N, C, ..] normalised in groups of channels (0: each channel by itself); scale
 * and shift have a number for each group or each channel. */
pl_status pl_ox_group_norm(pl_ox_call *c, pl_ox_val *v, int64_t groups, pl_ox_val *scale,
                           pl_ox_val *shift, double eps) PL_MUST_USE;
/* The value with a new logical shape; free where the physical order allows it. */
pl_ox_val *pl_ox_reshaped(pl_ox_build *b, pl_ox_val *v, int rank, const int64_t *dim);

#endif
