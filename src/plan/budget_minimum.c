/* budget_minimum.c - the smallest arena for which a plan is found.
 *
 * The recompute planner descends by bisection, plan by plan (pl_recompute_descend). Each plan is
 * smaller than the previous plan; a caller that needs at most `enough` bytes ends the descent
 * early. The last plan is packed, and its arena is the minimum.
 *
 * Invariant: f->minimum is the arena of a plan that was packed and checked, or of the keep-all
 * plan. Cost: about 24 plans and one packing; seconds for some thousand units.
 *
 * Example, with the program of budget_search.c (keep-all 12 MB, bound 8 MB): the descent starts
 * with the keep-all plan, then plans for 10 MB, 9 MB, 8.5 MB and so on, halving the distance to the
 * bound until 1/400 of it is left. Each time it gets A B C D A E. That list packs in 8 MB: the
 * minimum. pl_budget_minimum(b, 10 MB, ..) would have ended with the second plan.
 */
#include "plan/budget_int.h"

/* Where the host memory of plans counts: stores the plan with the smallest size. A smaller arena
 * may need a list so long that its graph takes more host memory than the arena saves. */
static void note_lean(pl__search *f)
{
    const pl_budget_base *b = f->base;
    if (!f->counts) return;
    uint32_t n = f->descended.plan->n, units = f->problem.n_units;
    uint64_t held = pl_graph_bytes(b->g) + b->units->arena.total + b->keep_all->mem.total;
    uint64_t bytes =
        f->descended.plan->peak_bytes - f->shift + (n > units ? held / (units + 1) * n : 0);
    if (f->lean.plan && bytes >= f->lean_bytes) return;
    pl_recompute_plan_free(f->lean.plan);
    f->lean = f->descended;
    f->lean_bytes = bytes;
}

/* Takes the next plan of the descent; *any is false at its end. The descent is the same in every
 * process, so another process finds a plan for a minimum that this one reports. */
static pl_status descend(pl__search *f, bool *any)
{
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_plan *plan;
    o.effort = 0;
    o.stop = f->base->opts->stop;
    o.off = PL_RECOMPUTE_NO_EXACT;
    if (!f->descent) PL_TRY(pl_recompute_descent_new(&f->problem, &o, &f->descent));
    uint64_t asked = f->descended.asked;
    f->n_asked++;
    PL_TRY(pl_recompute_descend(f->descent, &asked, &plan));
    pl_status stopped = pl__search_stopped(f);
    if (stopped != PL_OK) pl_recompute_plan_free(plan);
    PL_TRY(stopped);
    *any = plan != NULL;
    if (!plan) return PL_OK;
    if (f->descended.plan != f->lean.plan) pl_recompute_plan_free(f->descended.plan);
    f->descended = (pl__candidate){.plan = plan, .asked = asked, .of_descent = true, .whole = true};
    note_lean(f);
    return PL_OK;
}

/* Whether the last plan of the descent has an arena of at most `enough` bytes; then f->minimum is
 * that arena. */
static pl_status check_enough(pl__search *f, uint64_t enough, bool *yes)
{
    pl_expanded_plan *t;
    *yes = false;
    if (f->descended.plan->peak_bytes > enough + f->shift) return PL_OK;
    PL_TRY(pl__candidate_measure(f, &f->descended));
    if (f->descended.peak > enough) return PL_OK;
    PL_TRY(pl__candidate_pack(f, &f->descended, &(pl__pack_limits){.enough = enough}, &t));
    uint64_t size = t->plan->arena_bytes + f->descended.held;
    *yes = size <= enough;
    if (*yes) {
        f->minimum = size;
        f->minimum_held = f->descended.held;
    }
    pl__expanded_plan_free(t);
    return PL_OK;
}

/* Asks the recompute planner for a budget. *c becomes the answer if its true peak is lower, and
 * *better says so. */
static pl_status try_budget(pl__search *f, uint64_t asked, pl__candidate **c, bool *better)
{
    pl__candidate *next;
    PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = asked, .whole = true}, &next));
    if (next) PL_TRY(pl__candidate_measure(f, next));
    *better = next && next->peak < (*c)->peak;
    if (*better) *c = next;
    return PL_OK;
}

/* A recomputed unit may read a weight after its update, which keeps the old weight in the arena.
 * Where weights are most of the memory, the true peak is then much larger than the recompute
 * planner assumes. So plans for LOOKS larger budgets compete too and, on small problems, some more
 * found by bisection below the best of these. */
static pl_status shrink(pl__search *f, pl__candidate **c)
{
    enum { LOOKS = 4, HALVES = 4, SMALL = 1000 };
    bool better;
    PL_TRY(
        pl__candidate_ask(f, &(pl__candidate){.asked = f->minimum_asked, .of_descent = true}, c));
    if (!*c) return PL_OK;
    PL_TRY(pl__candidate_measure(f, *c));
    uint64_t minimum = f->minimum_asked, step = (f->keep_all_bytes - minimum) / (LOOKS + 1);
    if ((*c)->peak - (*c)->held + f->shift <= minimum + minimum / 8 || f->keep_all_bytes <= minimum)
        return PL_OK;
    for (uint64_t i = 1; i <= LOOKS; i++) PL_TRY(try_budget(f, minimum + step * i, c, &better));
    uint64_t hi = (*c)->asked, lo = hi > minimum + step ? hi - step : minimum;
    for (int i = 0; i < HALVES && hi > lo + 1 && f->problem.n_units <= SMALL; i++) {
        uint64_t mid = lo + (hi - lo) / 2;
        PL_TRY(try_budget(f, mid, c, &better));
        *(better ? &hi : &lo) = mid;
    }
    return PL_OK;
}

/* Ends the descent. Its smallest plan stays a candidate, so a later search for a budget as small as
 * the minimum has it. */
static void end_descent(pl__search *f)
{
    pl_recompute_descent_free(f->descent);
    f->descent = NULL;
    if (f->lean.plan && f->lean.plan != f->descended.plan) {
        pl_recompute_plan_free(f->descended.plan);
        f->descended = f->lean;
    }
    f->lean.plan = NULL;
    f->minimum_asked = f->descended.asked;
    if (f->n_candidates < PL__MAX_CANDIDATES) {
        f->candidates[f->n_candidates++] = f->descended;
        f->descended.plan = NULL;
    }
    f->descent_ended = true;
}

pl_status pl__search_least(pl__search *f, pl__candidate **c)
{
    for (bool any = !f->descent_ended; any;) PL_TRY(descend(f, &any));
    if (!f->descent_ended) end_descent(f);
    return shrink(f, c);
}

/* Packs the smallest plan: the minimum. */
static pl_status pack_least(pl__search *f)
{
    pl__candidate *c;
    PL_TRY(pl__search_least(f, &c));
    f->minimum = f->base->keep_all->arena_bytes;
    f->minimum_held = 0;
    if (c && c->peak < f->minimum) {
        PL_TRY(pl__candidate_keep(f, c, 0));
        if (c->arena < f->minimum) {
            f->minimum = c->arena;
            f->minimum_held = c->held;
        }
    }
    f->knows_minimum = true;
    return PL_OK;
}

pl_status pl__search_find_minimum(pl__search *f, uint64_t enough, uint64_t *arena_bytes)
{
    bool done = f->knows_minimum || (f->minimum && f->minimum <= enough);
    for (bool any = !f->descent_ended; any && !done;) {
        PL_TRY(descend(f, &any));
        if (any) PL_TRY(check_enough(f, enough, &done));
    }
    if (!done) PL_TRY(pack_least(f));
    *arena_bytes = f->minimum;
    return PL_OK;
}

/* Frees the plan: the caller needs only its size. */
pl_status pl__search_minimum(pl__search *f, uint64_t enough, uint64_t *arena_bytes)
{
    pl_status rc = pl__search_find_minimum(f, enough, arena_bytes);
    pl__expanded_plan_free(f->packed);
    f->packed = NULL;
    return rc;
}
