/* fit.h - a plan whose arena is at most a given number of bytes: recomputation chosen, then lived.
 *
 * A fit stands over one graph with its units and the plan that keeps everything. It asks the
 * recomputation planner (recompute.h) for lists of units with repeats, expands them (expand.h) and
 * takes the cheapest whose true arena, offsets and all, is within the budget.
 */
#ifndef PL_PLAN_FIT_H
#define PL_PLAN_FIT_H

#include "plan/core/expand.h"
#include "plan/core/plan.h"

typedef struct pl_fit pl_fit;

/* What a fit is made over; everything is borrowed and must outlive it. */
typedef struct pl_fit_base {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan_opts *opts; /* of the plan that keeps everything */
    const pl_plan *keep_all;
    const double *cost_ns; /* per unit */
} pl_fit_base;

/* A plan that recomputes, with the graph it is a plan of. */
typedef struct pl_fitted {
    pl_expansion *x;
    pl_plan *plan;
    pl_plan_opts opts;    /* the plan was made with these; the pointers are the expansion's */
    uint64_t *work_bytes; /* of opts */
    const pl_fit_base *base;
    double extra_ns; /* time of what is computed again */
} pl_fitted;

pl_status pl_fit_new(const pl_fit_base *base, pl_fit **out) PL_MUST_USE;
void pl_fit_free(pl_fit *f); /* NULL is fine */

/* No plan at all has a smaller arena; *unit is the one that needs it, PL_NO_UNIT: the inputs. */
uint64_t pl_fit_bound(const pl_fit *f, uint32_t *unit);
/* The smallest arena that a plan was found for; pl_fit_solve finds one at it. Takes a while the
 * first time. A plan of at most `enough` bytes ends the search: 0 looks for the smallest, whatever
 * it takes. */
pl_status pl_fit_minimum(pl_fit *f, uint64_t enough, uint64_t *arena_bytes) PL_MUST_USE;
/* Whether the smallest one is known by now, and not just one that is enough; *arena_bytes is set
 * then. */
bool pl_fit_knows_minimum(const pl_fit *f, uint64_t *arena_bytes);
/* Host memory that the plan with the least arena so far takes; 0: that is the one that keeps
 * everything, or none is known. */
uint64_t pl_fit_minimum_held(const pl_fit *f);
/* The plan whose arena and host memory are least together, when the minimum is known. */
pl_status pl_fit_lean(pl_fit *f, uint64_t *arena_bytes, uint64_t *held) PL_MUST_USE;
/* The cheapest plan found whose arena is at most the budget. PL_ERR_FIT: below the bound the
 * message is a proof and names the unit; else it tells the minimum. PL_ERR_STOPPED once opts->stop
 * says so, here and above. `effort` is time for search after the first plan, in nanoseconds, about.
 */
pl_status pl_fit_solve(pl_fit *f, uint64_t arena_budget, uint64_t effort,
                       pl_fitted **out) PL_MUST_USE;
/* Host memory that the graph of a plan for this budget will take, about; 0: none is found quickly.
 */
pl_status pl_fit_takes(pl_fit *f, uint64_t arena_budget, uint64_t *bytes) PL_MUST_USE;
/* The plan that runs the given list of units, whatever its arena; see pl_expand. */
pl_status pl_fit_list(const pl_fit_base *base, const uint32_t *list, uint32_t n,
                      pl_fitted **out) PL_MUST_USE;
void pl_fitted_free(pl_fitted *t); /* NULL is fine */
/* Host memory that a plan and its graph take. NULL: none. */
uint64_t pl_fitted_bytes(const pl_fitted *t);

/* What a fit has done so far. */
typedef struct pl_fit_work {
    uint32_t asked;  /* lists of units that the recomputation planner was asked for */
    uint32_t packed; /* lists whose offsets were looked for */
} pl_fit_work;
pl_fit_work pl_fit_work_get(const pl_fit *f);

#endif
