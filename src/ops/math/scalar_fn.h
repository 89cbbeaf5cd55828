/* scalar_fn.h - the functions of scalar.def: their values, and how factors pass through them.
 *
 * Values are computed in double, one element at a time: the reference for every kernel that runs
 * these functions on a device.
 */
#ifndef PL_OPS_MATH_SCALAR_FN_H
#define PL_OPS_MATH_SCALAR_FN_H

#include "ir/op.h"

/* Row f of the descriptor's `scaling` (ir/op.h). */
extern const pl_scaling pl_map_scaling[PL_N_SCALARS];

double pl_scalar_apply(pl_scalar_fn f, double a, double b, double c, double imm);
/* out[i] = f(in[0][i], in[1][i], ...). 64-bit integers are added, multiplied and divided as
 * integers. */
void pl_map_ref(pl_scalar_fn f, const pl_call *c, double imm);

#endif
