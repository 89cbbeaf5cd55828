/* ops.h - the descriptors of all ops (pl_op_conv, ...), for the files of ops/. */
#ifndef PL_OPS_OPS_H
#define PL_OPS_OPS_H

#include "ir/graph.h"
#include "plimsoll_ops.h"

#define PL_SCALAR(NAME, name, arity, result) extern const pl_op pl_op_##name;
#include "ir/scalar.def"
#define PL_OP(name) extern const pl_op pl_op_##name;
#include "ir/ops.def"

#endif
