/* recompute_oracle.h - the least cost of a small recomputation problem, for tests only. */
#ifndef PL_TESTS_REMAT_ORACLE_H
#define PL_TESTS_REMAT_ORACLE_H

#include "plan/recompute/recompute.h"

/* Writes the minimum total cost within the budget to *cost, a negative number when nothing fits.
 * Problems of at most 30 buffers, without views or pinned buffers. False when more than
 * max_states states were seen: then nothing is known. */
bool recompute_oracle(const pl_recompute_problem *p, uint64_t budget, uint32_t max_states,
                      double *cost);

#endif
