/* tail.h - products and convolutions with a tail, in one op: attributes, and functions shared with
 * the ops without a tail.
 *
 * Valid C++ too: device code includes it.
 */
#ifndef PL_OPS_TAIL_H
#define PL_OPS_TAIL_H

#include "ops/core/attr.h"
#include "ops/net/window.h"

PL_SHARED_BEGIN

/* The functions that a tail may have, in the order of their names in attributes. */
typedef enum pl_act {
    PL_ACT_NONE,
    PL_ACT_RELU,
    PL_ACT_LEAKY_RELU,
    PL_ACT_SILU,
    PL_ACT_GELU,
    PL_ACT_GELU_TANH,
    PL_ACT_SIGMOID,
    PL_ACT_TANH,
    PL_N_ACTS
} pl_act;

typedef struct pl_tail_attr {
    int32_t act;  /* pl_act */
    bool add;     /* the last operand is added */
    double slope; /* LEAKY_RELU */
} pl_tail_attr;

/* The attributes of the op without a tail come first: code for that op can read this struct. */
typedef struct pl_matmul_tail_attr {
    pl_matmul_attr head;
    pl_tail_attr tail;
} pl_matmul_tail_attr;

typedef struct pl_conv_tail_attr {
    pl_window_attr head;
    pl_tail_attr tail;
} pl_conv_tail_attr;

/* ---- shared with the ops without a tail ----------------------------------------------------- */
/* Gets the finished sum of output element `at`. */
typedef void pl_put_fn(const pl_call *c, int64_t at, double sum);
pl_put_fn pl_put_plain; /* only rounds the sum */

/* matmul.c, conv.c: rules and reference loops of the op without a tail. */
pl_status pl_matmul_infer(const pl_type *in, int n_in, void *attr, pl_type *out) PL_MUST_USE;
pl_cost pl_matmul_cost(const pl_call *c);
pl_status pl_matmul_ref(const pl_call *c, bool bias, pl_put_fn *put) PL_MUST_USE;
pl_status pl_conv_infer(const pl_type *in, int n_in, void *attr, pl_type *out) PL_MUST_USE;
pl_cost pl_conv_cost(const pl_call *c);
pl_status pl_conv_ref(const pl_call *c, bool bias, pl_put_fn *put) PL_MUST_USE;
pl_status pl_conv_dx_infer(const pl_type *in, int n_in, void *attr, pl_type *out) PL_MUST_USE;
pl_cost pl_conv_dx_cost(const pl_call *c);
pl_status pl_conv_dx_ref(const pl_call *c, pl_put_fn *put) PL_MUST_USE;

/* tail.c: pl_op.tail of matmul, conv and conv_dx. */
const pl_op *pl_matmul_with_tail(const pl_call *c, const pl_tail *t, void *attr);
const pl_op *pl_conv_with_tail(const pl_call *c, const pl_tail *t, void *attr);
const pl_op *pl_conv_dx_with_tail(const pl_call *c, const pl_tail *t, void *attr);

PL_SHARED_END

#endif
