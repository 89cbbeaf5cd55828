/* recompute_check.h - replays a recomputation plan. Shares no code with the planner. */
#ifndef PL_PLAN_RECOMPUTE_CHECK_H
#define PL_PLAN_RECOMPUTE_CHECK_H

#include "plan/recompute/recompute.h"

/* PL_OK when every unit is computed and for the first time in the problem's order, nothing marked
 * ONCE is computed twice, every position finds what it reads (of a view: taken from the copy
 * of its base that is there), only what is there and not pinned is dropped, what must be there
 * at the end is, the bytes alive never pass the budget, and the plan's own peak and cost are
 * those of the replay. Otherwise PL_ERR_PLAN; the message names position, unit and buffer. */
pl_status pl_recompute_check(const pl_recompute_problem *p, const pl_recompute_plan *plan,
                             uint64_t budget_bytes) PL_MUST_USE;

#endif
