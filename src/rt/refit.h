/* refit.h - the plan of a compiled program under a budget, before a session has it. */
#ifndef PL_RT_REFIT_H
#define PL_RT_REFIT_H

#include "ir/graph.h"

/* Plans again for an arena of at most this many bytes (0: no limit). PL_ERR_FIT and the old plan
 * when none is found. Buffers and labels of the old plan are gone afterwards. */
pl_status pl_program_refit(pl_program *p, uint64_t arena_budget) PL_MUST_USE;
/* Host memory that a plan for such an arena will take more than that of now, about and quickly. */
pl_status pl_program_refit_takes(pl_program *p, uint64_t arena_budget, uint64_t *bytes) PL_MUST_USE;
/* The smallest arena that a plan was found for, also in the info. One of at most `enough` bytes
 * ends the search; 0: the smallest is wanted. */
pl_status pl_program_find_minimum(pl_program *p, uint64_t enough,
                                  uint64_t *arena_bytes) PL_MUST_USE;
/* After it: the arena of the plan that takes least of the host, arena and all, and what it takes
 * more for graph and plan than that of now. */
pl_status pl_program_find_lean(pl_program *p, uint64_t *arena_bytes, uint64_t *takes) PL_MUST_USE;
/* These return PL_ERR_STOPPED soon after *stop is no longer 0; it is borrowed. NULL: nothing stops
 * them. */
void pl_program_set_stop(pl_program *p, const volatile int *stop);
/* No plan has a smaller arena; quickly. */
pl_status pl_program_least_bound(pl_program *p, uint64_t *arena_bytes) PL_MUST_USE;
/* Host memory that they may take for lists of units to choose from, about; 0: no limit. */
void pl_program_set_search(pl_program *p, uint64_t host_bytes);
/* Host memory of the graph and the plan that it has. */
uint64_t pl_program_held(const pl_program *p);
/* Host memory that the plan with the smallest arena takes more than the plan that the program has;
 * 0 when it is the program's, or not known. */
uint64_t pl_program_minimum_takes(const pl_program *p);
/* Lets go of what only these need. */
void pl_program_settle(pl_program *p);

#endif
