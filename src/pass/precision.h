/* precision.h - the pass that puts a program made in f32 into mixed precision; see precision.c. */
#ifndef PL_PASS_PRECISION_H
#define PL_PASS_PRECISION_H

#include "pass/pass.h"

/* o->low is bf16 or f16. The graph comes back simplified. */
pl_status pl_pass_precision(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;

#endif
