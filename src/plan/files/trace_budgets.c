/* trace_budgets.c - plans for a trace at one budget or at many, so that cost falls as budgets rise.
 *
 * Two searches at budgets that differ a little end in plans that differ by chance, so the larger
 * budget may get the more expensive plan. A call for one budget knows no other call, so searches
 * run at the rungs of a ladder only, which does not depend on the budget. On the way up from a
 * rung, recompute is undone at fine steps.
 *
 * rise    problems of at most RISE_UNITS units: from the bound up, rung by rung; the plan of each
 *         rung competes at the next one, so the cost never rises with the budget
 *
 *             bound ||||||||||        |        |        |        |   scale
 *             fine steps near the bound and up to the first plan, where cost falls steeply, then
 *             RISE_RUNGS rungs of the scale
 *
 * climb   larger problems: from the rung below the budget, then a search at the budget itself; the
 *         cheaper plan wins. Here a larger budget may get a more expensive plan, by chance
 * sweep   many budgets in rising order; the plan of each competes for the next one
 *
 * A problem that the exact search solves (recompute_exact.c) needs no ladder: the optimum never
 * rises with the budget.
 *
 * Cost: rise: a search per rung below the budget; climb: two searches; and one filling per fine
 * step, of which there are 200.
 */
#include "plan/files/trace.h"

#include <stdlib.h>

#include "base/asked.h"
#include "base/sys.h"

enum {
    FINE = 200,        /* steps of the scale at which recompute is undone */
    RISE_RUNGS = 40,   /* of the scale; divides FINE */
    RISE_UNITS = 1000, /* beyond this, a search at every rung takes too long */
    EXACT_UNITS = 48,  /* up to this, the exact search runs, and mostly ends with the optimum */
    RUNGS = 20,        /* of climb, far from the bound */
};

/* Fills the plan at every fine step up to the budget. Takes *plan and replaces it by the last
 * one. */
static pl_status climb(const pl_recompute_problem *p, const pl_recompute_opts *opts, uint64_t scale,
                       pl_recompute_plan **plan)
{
    uint64_t step = scale / FINE ? scale / FINE : 1;
    for (uint64_t at = ((*plan)->peak_bytes / step + 1) * step; at <= opts->budget_bytes;
         at += step) {
        const pl_recompute_plan *pool = *plan;
        pl_recompute_plan *next = NULL;
        pl_recompute_opts o = {.budget_bytes = at, .seed = opts->seed, .pool = &pool, .n_pool = 1};
        if ((*plan)->n == p->n_units) return PL_OK; /* nothing is computed twice */
        o.off = PL_RECOMPUTE_NO_CHAIN | PL_RECOMPUTE_NO_SIM | PL_RECOMPUTE_NO_MINIMUM;
        PL_TRY(pl_recompute_solve(p, &o, &next));
        pl_recompute_plan_free(*plan);
        *plan = next;
    }
    return PL_OK;
}

/* Replaces *plan by the plan of a rung, for which *plan competes; NULL: none is found. */
static pl_status search_rung(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                             uint64_t rung, uint64_t scale, pl_recompute_plan **plan)
{
    pl_recompute_opts o = *opts;
    pl_recompute_plan *next = NULL;
    o.budget_bytes = rung;
    if (*plan) PL_TRY(climb(p, &o, scale, plan));
    const pl_recompute_plan *pool = *plan;
    o.pool = &pool;
    o.n_pool = pool != NULL;
    o.off |= PL_RECOMPUTE_NO_MINIMUM;
    pl_status s = pl_recompute_solve(p, &o, &next);
    if (s == PL_ERR_FIT) return PL_OK;
    PL_TRY(s);
    pl_recompute_plan_free(*plan);
    *plan = next;
    return PL_OK;
}

/* Finds the plan of every rung up to the budget; *plan is NULL when none has one. */
static pl_status rise(const pl_recompute_problem *p, const pl_recompute_opts *opts, uint64_t bound,
                      uint64_t scale, pl_recompute_plan **plan)
{
    uint64_t fine = scale / FINE ? scale / FINE : 1, wide = fine * (FINE / RISE_RUNGS);
    uint64_t rung = (bound + fine - 1) / fine * fine, near = bound + scale / 10;
    while (rung <= opts->budget_bytes && !pl_asked(opts->stop)) {
        PL_TRY(search_rung(p, opts, rung, scale, plan));
        if (*plan && (*plan)->n == p->n_units) return PL_OK; /* nothing is computed twice */
        rung = *plan && rung > near ? (rung / wide + 1) * wide : rung + fine;
    }
    return *plan ? climb(p, opts, scale, plan) : PL_OK;
}

/* Finds the plan of the rung below the budget, without a longer search, filled up to the budget;
 * *plan stays NULL when there is none. */
static pl_status climb_from_rung(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                                 uint64_t bound, uint64_t scale, pl_recompute_plan **plan)
{
    pl_recompute_opts o = *opts;
    o.budget_bytes = pl_recompute_rung(opts->budget_bytes, bound, scale, RUNGS);
    o.n_pool = 0;
    o.off |= PL_RECOMPUTE_NO_MINIMUM;
    o.effort = 0;
    pl_status s = o.budget_bytes ? pl_recompute_solve(p, &o, plan) : PL_ERR_FIT;
    if (s == PL_ERR_FIT) return PL_OK;
    PL_TRY(s);
    return climb(p, opts, scale, plan);
}

pl_status pl_trace_climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         uint64_t scale, pl_recompute_plan **out)
{
    uint64_t bound;
    uint32_t unit;
    pl_recompute_plan *best = NULL;
    pl_status s = PL_OK;
    PL_TRY(pl_recompute_bound(p, &bound, &unit));
    bool rises = p->n_units > EXACT_UNITS && p->n_units <= RISE_UNITS;
    if (rises) s = rise(p, opts, bound, scale, &best);
    if (p->n_units > RISE_UNITS) s = climb_from_rung(p, opts, bound, scale, &best);
    if (s == PL_OK && (!rises || !best)) {
        const pl_recompute_plan *pool = best;
        pl_recompute_opts o = *opts;
        o.pool = &pool;
        o.n_pool = pool != NULL;
        s = pl_recompute_solve(p, &o, out);
    } else if (s == PL_OK) {
        *out = best;
        best = NULL;
    }
    pl_recompute_plan_free(best);
    return s;
}

/* ---- many budgets ----------------------------------------------------------------------- */
typedef struct ranked {
    uint64_t budget;
    uint32_t at;
} ranked;

static int by_budget(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->budget != y->budget) return x->budget < y->budget ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Rising budgets; each plan competes for the next one. */
static pl_status sweep(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                       const ranked *order, uint32_t n, pl_recompute_plan **out)
{
    const pl_recompute_plan *before = NULL;
    for (uint32_t i = 0; i < n; i++) {
        pl_recompute_opts o = *opts;
        o.budget_bytes = order[i].budget;
        o.off |= PL_RECOMPUTE_NO_MINIMUM;
        if (before) {
            o.pool = &before;
            o.n_pool = 1;
        }
        pl_status s = pl_recompute_solve(p, &o, &out[order[i].at]);
        if (s != PL_OK && s != PL_ERR_FIT) return s;
        if (s == PL_OK) before = out[order[i].at];
    }
    return PL_OK;
}

pl_status pl_trace_sweep(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         const uint64_t *budgets, uint32_t n, pl_recompute_plan **out)
{
    ranked *order = pl_sys_alloc((n + 1) * sizeof *order);
    if (!order) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = (ranked){budgets[i], i};
        out[i] = NULL;
    }
    qsort(order, n, sizeof *order, by_budget);
    pl_status s = sweep(p, opts, order, n, out);
    for (uint32_t i = 0; i < n && s != PL_OK; i++) {
        pl_recompute_plan_free(out[i]);
        out[i] = NULL;
    }
    pl_sys_free(order);
    return s;
}
