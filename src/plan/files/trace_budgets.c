/* trace_budgets.c - plans for a trace at one budget or at many, so that cost falls as budgets rise.
 *
 * Two searches at budgets that differ a little end in plans that differ by chance, so the larger
 * budget may get the more expensive plan. Two ways out:
 *
 * climb: searches run at the rungs of a ladder only, which does not depend on the budget
 *
 *     bound  |||||| | | | |  |  |  |  |    |    |    |    |    |    |   scale
 *            rungs are close near the bound, where cost falls steeply
 * From a rung, recompute is undone at fine steps on the way up to the budget. A budget gets the
 * cheaper of two plans: from the rung below it and from the next lower rung.
 * sweep: budgets in rising order; the plan of each competes for the next one.
 *
 * Cost: one search per rung (climb: two) and one filling per fine step, of which there are 200.
 */
#include "plan/files/trace.h"

#include <stdlib.h>

#include "base/sys.h"

enum {
    FINE = 200,   /* steps of the scale at which recompute is undone */
    RUNGS = 20,   /* of the scale, far from the bound */
    N_STARTS = 2, /* rungs to climb from */
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

/* Finds the plan of a rung, filled up to the budget; NULL when there is none. */
static pl_status start(const pl_recompute_problem *p, const pl_recompute_opts *opts, uint64_t rung,
                       bool search, uint64_t scale, pl_recompute_plan **out)
{
    pl_recompute_opts o = *opts;
    o.budget_bytes = rung;
    o.n_pool = 0;
    o.off |= PL_RECOMPUTE_NO_MINIMUM;
    if (!search) o.effort = 0;
    *out = NULL;
    pl_status s = pl_recompute_solve(p, &o, out);
    if (s == PL_ERR_FIT) return PL_OK;
    if (s == PL_OK) s = climb(p, opts, scale, out);
    return s;
}

pl_status pl_trace_climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         uint64_t scale, pl_recompute_plan **out)
{
    uint64_t bound;
    uint32_t unit;
    pl_recompute_plan *best = NULL;
    PL_TRY(pl_recompute_bound(p, &bound, &unit));
    uint64_t rung = pl_recompute_rung(opts->budget_bytes, bound, scale, RUNGS);
    pl_status s = PL_OK;
    for (int i = 0; i < N_STARTS && rung && s == PL_OK; i++) {
        pl_recompute_plan *plan = NULL;
        s = start(p, opts, rung, i == 0, scale, &plan);
        if (!plan) break;
        bool better = !best || plan->cost_ns < best->cost_ns;
        pl_recompute_plan_free(better ? best : plan);
        if (better) best = plan;
        rung = rung > bound ? pl_recompute_rung(rung - scale / FINE, bound, scale, RUNGS) : 0;
    }
    if (s != PL_OK || !best) {
        pl_recompute_plan_free(best);
        /* below the first rung that has a plan */
        return s != PL_OK ? s : pl_recompute_solve(p, opts, out);
    }
    *out = best;
    return PL_OK;
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
