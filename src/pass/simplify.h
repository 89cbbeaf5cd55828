/* simplify.h - the pass that removes what need not be computed; see simplify.c. */
#ifndef PL_PASS_SIMPLIFY_H
#define PL_PASS_SIMPLIFY_H

#include "pass/pass.h"

/* Writes a new graph over the same store; `in` is left alone. */
pl_status pl_pass_simplify(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;

#endif
