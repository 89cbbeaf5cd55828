/* trace_plan.c - a trace file in, the figures of its plans out. */
#include <math.h>
#include <stdio.h>

#include "base/sys.h"
#include "plan/files/trace.h"
#include "plan/recompute/recompute_check.h"
#include "plimsoll_unstable.h"

static pl_recompute_opts options(double seconds)
{
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    if (seconds > 0) {
        enum { SEARCHES = 20 }; /* of a ladder, about */
        o.effort = (uint64_t)(seconds * 1e9 / SEARCHES);
        /* One unit of effort takes about a nanosecond; the time limit only ends a run that is far
         * off. */
        o.time_limit_s = 60 + 10 * seconds;
    }
    return o;
}

static pl_status budget_of(const pl_trace *t, double share, uint64_t *bytes)
{
    PL_FAIL_IF(!(share > 0) || share > 1e6, PL_ERR_ARG,
               "budget is %g; it must be a share of the peak above 0, e.g. 0.3", share);
    *bytes = (uint64_t)((double)t->peak_bytes * share);
    return PL_OK;
}

static pl_status report_of(const pl_trace *t, const pl_recompute_plan *plan, uint64_t budget,
                           uint64_t from_ns, pl_trace_report *r)
{
    *r = (pl_trace_report){.budget_bytes = budget};
    if (plan) {
        PL_TRY(pl_recompute_check(&t->problem, plan, budget));
        r->overhead = plan->base_cost_ns > 0 ? plan->cost_ns / plan->base_cost_ns : 1;
        r->peak_bytes = plan->peak_bytes;
    }
    r->plan_ms = (double)(pl_sys_now_ns() - from_ns) * 1e-6;
    return PL_OK;
}

pl_status pl_trace_write(const pl_trace *t, const pl_recompute_plan *plan, const char *path)
{
    enum { LINE = 16 }; /* bytes of a line, at most */
    size_t len = 0, lines = plan->n + (plan->n ? plan->drop_at[plan->n] : 0);
    char *text = pl_sys_alloc(lines * LINE + 1);
    if (!text) return PL_ERR_MEMORY;
    for (uint32_t k = 0; k < plan->n; k++) {
        len += (size_t)snprintf(text + len, LINE, "C %u\n", t->op[plan->unit[k]]);
        for (uint32_t i = plan->drop_at[k]; i < plan->drop_at[k + 1]; i++)
            len += (size_t)snprintf(text + len, LINE, "D %u\n", plan->drop[i]);
    }
    pl_status s = pl_sys_write_file(path, text, len);
    pl_sys_free(text);
    return s;
}

pl_status pl_plan_trace(const char *path, double share, double seconds, const char *out,
                        pl_trace_report *report)
{
    pl_trace t;
    pl_recompute_plan *plan = NULL;
    pl_recompute_opts o = options(seconds);
    PL_TRY(pl_trace_read(path, &t));
    uint64_t from = pl_sys_now_ns();
    pl_status s = budget_of(&t, share, &o.budget_bytes);
    if (s == PL_OK) s = pl_trace_climb(&t.problem, &o, &plan);
    if (s == PL_OK) s = report_of(&t, plan, o.budget_bytes, from, report);
    if (s == PL_OK && out) s = pl_trace_write(&t, plan, out);
    pl_recompute_plan_free(plan);
    pl_trace_release(&t);
    return s;
}

pl_status pl_plan_trace_sweep(const char *path, const double *shares, uint32_t n, double seconds,
                              pl_trace_report *reports)
{
    pl_trace t;
    pl_recompute_opts o = options(seconds);
    PL_TRY(pl_trace_read(path, &t));
    uint64_t from = pl_sys_now_ns();
    uint64_t *budgets = pl_sys_alloc((n + 1) * sizeof *budgets);
    pl_recompute_plan **plans = pl_sys_alloc((n + 1) * sizeof *plans);
    pl_status s = budgets && plans ? PL_OK : PL_ERR_MEMORY;
    o.time_limit_s = 0; /* the limit would apply to each budget */
    for (uint32_t i = 0; i < n && s == PL_OK; i++) s = budget_of(&t, shares[i], &budgets[i]);
    if (s == PL_OK) s = pl_trace_sweep(&t.problem, &o, budgets, n, plans);
    for (uint32_t i = 0; i < n && s == PL_OK; i++)
        s = report_of(&t, plans[i], budgets[i], from, &reports[i]);
    for (uint32_t i = 0; i < n && plans; i++) pl_recompute_plan_free(plans[i]);
    pl_sys_free(plans);
    pl_sys_free(budgets);
    pl_trace_release(&t);
    return s;
}
