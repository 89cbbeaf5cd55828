/* open.h - ops as maps, and slices above maps; see open.c. */
#ifndef PL_PASS_OPEN_H
#define PL_PASS_OPEN_H

#include "pass/pass.h"

pl_status pl_pass_open(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;
pl_status pl_pass_sink(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;

#endif
