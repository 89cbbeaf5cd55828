/* fit_int.h - what the files of a fit share: its state, and the plans found so far.
 *
 *   fit_core.c  the problem as the recomputation planner sees it, and the lower bound
 *   fit.c       plans for budgets, and the smallest arena
 */
#ifndef PL_PLAN_FIT_INT_H
#define PL_PLAN_FIT_INT_H

#include "plan/core/fit.h"
#include "plan/core/plan_int.h"
#include "plan/recompute/recompute.h"

enum { MAX_CANDIDATES = 600, CLOSE = 400 }; /* CLOSE: rungs, and steps at which a plan is filled */

typedef struct candidate {
    pl_recompute_plan *plan;
    uint64_t peak;  /* true bytes alive at once; 0 = not measured yet */
    uint64_t arena; /* after packing; 0 = not packed yet */
    bool brief;     /* packed no longer than it took to fit: the arena may be smaller */
    /* of the search for the minimum, the first plan there is: found again in any process */
    bool alone;
    /* What the core was asked: its budget, effort of search, and the candidate (index + 1) that it
     * was to fill up; 0: to look for one. */
    uint64_t asked, effort;
    uint32_t from;
} candidate;

struct pl_fit {
    pl_arena mem;
    const pl_fit_base *base;
    pl_problem q;
    uint32_t *unit_at; /* op of the core -> unit */
    pl_recompute_problem core;
    pl_recompute_plan marked; /* the segments that the model marks, as a seed; n = 0: none */
    candidate cand[MAX_CANDIDATES];
    uint32_t n_cand;
    uint64_t cand_bytes; /* host memory of their lists */
    uint64_t bound, core_keep_all, shift;
    uint32_t bound_unit;
    pl_recompute_descent *down;
    /* the least plan of the way down so far; no candidate before the end of it */
    candidate way;
    /* of the way down: the least plan and memory of the host together; no plan: not looked at */
    candidate lean;
    uint64_t lean_bytes;        /* these, about */
    uint64_t core_least;        /* least budget of the core with a plan: at the end of the way */
    uint64_t minimum;           /* the least arena so far; 0 = none yet */
    uint64_t minimum_held;      /* host memory of its plan */
    bool knows_minimum;         /* and there is none below */
    pl_fitted *kept;            /* the plan packed last; NULL: none, or handed out */
    uint32_t kept_of;           /* candidate, index + 1 */
    uint32_t n_asked, n_packed; /* for pl_fit_work_get */
};

/* fit_core.c: fills in q, core, marked, shift, bound and core_keep_all over f->base. */
pl_status pl__fit_describe(pl_fit *f) PL_MUST_USE;

#endif
