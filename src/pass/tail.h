/* tail.h - maps behind products and convolutions become part of them; see tail.c. */
#ifndef PL_PASS_TAIL_H
#define PL_PASS_TAIL_H

#include "pass/pass.h"

pl_status pl_pass_tail(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;

#endif
