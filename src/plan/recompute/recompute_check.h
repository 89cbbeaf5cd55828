/* recompute_check.h - replays a recomputation plan. Shares no code with the planner. */
#ifndef PL_PLAN_RECOMPUTE_CHECK_H
#define PL_PLAN_RECOMPUTE_CHECK_H

#include "plan/recompute/recompute.h"

/* PL_OK when every unit is computed, for the first time in the problem's order; no unit marked ONCE
 * is computed twice; every position finds its inputs (a view: taken from the current copy of its
 * base); only existing, unpinned buffers are dropped; what must exist at the end does; the bytes
 * alive never exceed the budget; and the plan's peak and cost equal the replay's. Otherwise
 * PL_ERR_PLAN; the message names position, unit and buffer. */
pl_status pl_recompute_check(const pl_recompute_problem *p, const pl_recompute_plan *plan,
                             uint64_t budget_bytes) PL_MUST_USE;

#endif
