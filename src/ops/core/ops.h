/* ops.h - the descriptors of all ops (pl_op_conv, ...), for the files of ops/. */
#ifndef PL_OPS_OPS_H
#define PL_OPS_OPS_H

#include "ir/graph.h"
#include "plimsoll_ops.h"

#define PL_SCALAR(NAME, name, arity, result) extern const pl_op pl_op_##name;
#include "ir/scalar.def"
#define PL_OP(name) extern const pl_op pl_op_##name;
#include "ir/ops.def"

/* Returns x, which is dequantized in f32, dequantized in the 16-bit type `to`: the same bits as a
 * cast of x. PL_NO_VAL for other values and types. */
pl_val pl_dequantize_as(pl_graph *g, pl_val x, pl_dtype to);

#endif
