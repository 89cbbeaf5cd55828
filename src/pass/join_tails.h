/* join_tails.h - maps behind products and convolutions become part of them; see join_tails.c. */
#ifndef PL_PASS_JOIN_TAILS_H
#define PL_PASS_JOIN_TAILS_H

#include "pass/pass.h"

pl_status pl_pass_tail(const pl_graph *in, const pl_pass_opts *o, pl_graph **out) PL_MUST_USE;

#endif
