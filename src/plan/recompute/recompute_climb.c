/* recompute_climb.c - plans at fixed budgets, filled up to the one that is asked for.
 *
 * Two searches at budgets that differ a little end in plans that differ by chance, so that the
 * larger budget may get the dearer plan. Here searches run at the rungs of a ladder only, which
 * does not depend on the budget:
 *
 *     bound  |||||| | | | |  |  |  |  |    |    |    |    |    |    |   unit
 *            near the bound, where cost falls steeply, rungs are close
 *
 * From a rung, recomputation is undone at fine steps on the way up to the budget
 * (recompute_fill.c); those steps are a ladder too. A budget gets the cheaper of the plans that
 * come up from the rung below it and from the one below that, and a larger budget in between has
 * them both. From one rung to the next the lower start is lost, which matters only if a rung and a
 * search bring nothing.
 */
#include "plan/recompute/recompute.h"

enum {
    FINE = 200,   /* steps of the unit at which recomputation is undone */
    RUNGS = 20,   /* of the unit, far from the bound */
    N_STARTS = 2, /* rungs that are climbed from */
};

uint64_t pl_recompute_rung(uint64_t budget, uint64_t bound, uint64_t unit, uint32_t rungs)
{
    if (budget < bound) return 0;
    uint64_t above = budget - bound;
    uint64_t parts = rungs * (above >= unit / 10 ? 1u : above >= unit / 20 ? 2u : 4u);
    /* rounded as a share of the unit is: a budget given as one lies on its rung */
    uint64_t k = (uint64_t)((double)budget / (double)unit * (double)parts + 1e-6);
    uint64_t rung = (uint64_t)((double)unit * ((double)k / (double)parts));
    return rung < bound ? bound : rung > budget ? budget : rung;
}

/* Fills the plan at every fine step up to the budget. Takes *plan and gives the last one back. */
static pl_status climb(const pl_recompute_problem *p, const pl_recompute_opts *opts, uint64_t unit,
                       pl_recompute_plan **plan)
{
    uint64_t step = unit / FINE ? unit / FINE : 1;
    for (uint64_t at = ((*plan)->peak_bytes / step + 1) * step; at <= opts->budget_bytes;
         at += step) {
        const pl_recompute_plan *pool = *plan;
        pl_recompute_plan *next = NULL;
        pl_recompute_opts o = {.budget_bytes = at, .seed = opts->seed, .pool = &pool, .n_pool = 1};
        if ((*plan)->n == p->n_ops) return PL_OK; /* nothing is computed twice */
        o.off = PL_RECOMPUTE_NO_CHAIN | PL_RECOMPUTE_NO_SIM | PL_RECOMPUTE_NO_MINIMUM;
        PL_TRY(pl_recompute_solve(p, &o, &next));
        pl_recompute_plan_free(*plan);
        *plan = next;
    }
    return PL_OK;
}

/* The plan of a rung, filled up to the budget; NULL when there is none. */
static pl_status start(const pl_recompute_problem *p, const pl_recompute_opts *opts, uint64_t rung,
                       bool search, uint64_t unit, pl_recompute_plan **out)
{
    pl_recompute_opts o = *opts;
    o.budget_bytes = rung;
    o.n_pool = 0;
    o.off |= PL_RECOMPUTE_NO_MINIMUM;
    if (!search) o.effort = 0;
    *out = NULL;
    pl_status s = pl_recompute_solve(p, &o, out);
    if (s == PL_ERR_FIT) return PL_OK;
    if (s == PL_OK) s = climb(p, opts, unit, out);
    return s;
}

pl_status pl_recompute_climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                             uint64_t unit, pl_recompute_plan **out)
{
    uint64_t bound;
    uint32_t op;
    pl_recompute_plan *best = NULL;
    PL_TRY(pl_recompute_bound(p, &bound, &op));
    uint64_t rung = pl_recompute_rung(opts->budget_bytes, bound, unit, RUNGS);
    pl_status s = PL_OK;
    for (int i = 0; i < N_STARTS && rung && s == PL_OK; i++) {
        pl_recompute_plan *plan = NULL;
        s = start(p, opts, rung, i == 0, unit, &plan);
        if (!plan) break;
        bool better = !best || plan->cost_ns < best->cost_ns;
        pl_recompute_plan_free(better ? best : plan);
        if (better) best = plan;
        rung = rung > bound ? pl_recompute_rung(rung - unit / FINE, bound, unit, RUNGS) : 0;
    }
    if (s != PL_OK || !best) {
        pl_recompute_plan_free(best);
        /* below the first rung that has a plan */
        return s != PL_OK ? s : pl_recompute_solve(p, opts, out);
    }
    *out = best;
    return PL_OK;
}
