/* scalar.h - the scalar functions: what an elementwise op computes for one element.
 *
 * scalar.def lists the functions once. This header makes an enum of the list, for op descriptors
 * (op.h) and fused groups (group/fused.h); scalar.c makes a table of names, arities and results.
 */
#ifndef PL_IR_SCALAR_H
#define PL_IR_SCALAR_H

#include "base/shared.h"

#include <stdbool.h>

PL_SHARED_BEGIN

typedef enum pl_scalar_fn {
    PL_SCALAR_NONE,
#define PL_SCALAR(NAME, name, arity, result) PL_SCALAR_##NAME,
#include "ir/scalar.def"
    PL_SCALAR_CAST, /* to the output's dtype; not in scalar.def, because it has an attribute */
    PL_N_SCALARS
} pl_scalar_fn;

/* Returns the number of operands: 1 to 3; 0 for NONE and for numbers that are not a function. */
int pl_scalar_arity(pl_scalar_fn fn);
/* Returns whether the result is a bool for all operands. */
bool pl_scalar_gives_bool(pl_scalar_fn fn);
/* Returns the name of scalar.def, "cast", or "none". The string is static. */
const char *pl_scalar_name(pl_scalar_fn fn);

PL_SHARED_END

#endif
