/* trace_budgets.c - plans for a trace at one budget or at many, so that cost falls as budgets rise.
 *
 * A call for one budget does not know other calls, and searches at slightly different budgets can
 * end in very different plans. So all calls take their plans from the same ladder
 * (recompute_ladder.c). A problem that the exact search solves needs no ladder: the optimum never
 * rises with the budget.
 */
#include "plan/files/trace.h"

#include <stdlib.h>

#include "base/sys.h"

/* Up to this many units the exact search runs, and mostly ends with the optimum. */
enum { EXACT_UNITS = 48 };

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
static pl_status solve_each(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                            const ranked *order, uint32_t n, pl_recompute_plan **out)
{
    const pl_recompute_plan *before = NULL;
    for (uint32_t i = 0; i < n; i++) {
        pl_recompute_opts o = *opts;
        o.budget_bytes = order[i].budget;
        o.pool = &before;
        o.n_pool = before != NULL;
        pl_status s = pl_recompute_solve(p, &o, &out[order[i].at]);
        if (s == PL_ERR_FIT && n > 1) continue;
        PL_TRY(s);
        before = out[order[i].at];
    }
    return PL_OK;
}

static pl_status climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                       const ranked *order, uint32_t n, pl_recompute_plan **out)
{
    pl_recompute_ladder *l;
    PL_TRY(pl_recompute_ladder_new(p, opts, &l));
    pl_status s = PL_OK;
    for (uint32_t i = 0; i < n && s == PL_OK; i++) {
        s = pl_recompute_ladder_plan(l, order[i].budget, &out[order[i].at]);
        if (s == PL_ERR_FIT && n > 1) s = PL_OK;
    }
    pl_recompute_ladder_free(l);
    return s;
}

static pl_status plan_all(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                          const ranked *order, uint32_t n, pl_recompute_plan **out)
{
    return p->n_units <= EXACT_UNITS ? solve_each(p, opts, order, n, out)
                                     : climb(p, opts, order, n, out);
}

pl_status pl_trace_climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         pl_recompute_plan **out)
{
    return plan_all(p, opts, &(ranked){.budget = opts->budget_bytes}, 1, out);
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
    pl_status s = plan_all(p, opts, order, n, out);
    for (uint32_t i = 0; i < n && s != PL_OK; i++) {
        pl_recompute_plan_free(out[i]);
        out[i] = NULL;
    }
    pl_sys_free(order);
    return s;
}
