/* budget_minimum.c - the smallest arena for which a plan is found.
 *
 * The recompute planner descends by bisection, plan by plan (pl_recompute_descend). Each plan is
 * smaller than the previous plan; a caller that needs at most `enough` bytes ends the descent
 * early. The last plan is packed, and its arena is the minimum.
 *
 * On large problems a second descent, which takes longer, starts where the first ends. Only budgets
 * below the minimum of the first descent need it, and the minimum that a refusal names.
 *
 * Invariant: f->minimum is the arena of a plan that was packed and checked, or of the keep-all
 * plan. Cost: about 24 plans and one packing for each descent; seconds for some thousand units.
 *
 * Example, with the program of budget_search.c (keep-all 12 MB, bound 8 MB): the descent starts
 * with the keep-all plan, then plans for 10 MB, 9 MB, 8.5 MB and so on, halving the distance to the
 * bound until 1/400 of it is left. Each time it gets A B C D A E. That list packs in 8 MB: the
 * minimum. pl_budget_minimum(b, 10 MB, ..) would have ended with the second plan.
 */
#include "plan/budget_int.h"

uint64_t pl__search_held_guess(const pl__search *f)
{
    return f->counts ? pl__base_host_bytes(f->base) : 0;
}

/* Where the host memory of plans counts: stores the plan with the smallest size. A smaller arena
 * may need a list so long that its graph takes more host memory than the arena saves. */
static void note_lean(const pl__search *f, pl__descent *d)
{
    uint32_t n = d->last.plan->n, units = f->problem.n_units;
    uint64_t held = n > units ? pl__search_held_guess(f) / (units + 1) * n : 0;
    uint64_t bytes = d->last.plan->peak_bytes - f->shift + held;
    if (!f->counts) return;
    d->fat++;
    if (d->lean_bytes && bytes >= d->lean_bytes) return;
    pl_recompute_plan_free(d->lean.plan);
    d->lean = d->last;
    d->lean_bytes = bytes;
    d->fat = 0;
}

enum { SMALL = 1000 }; /* units */

bool pl__search_is_large(const pl__search *f)
{
    return f->problem.n_units > SMALL;
}

bool pl__search_has_second(const pl__search *f)
{
    /* where plans are loose, smaller budgets make no smaller plans */
    return pl__search_is_large(f) && !f->descent[PL__FIRST].loose;
}

/* Takes the next plan of a descent; *any is false at its end. The descent is the same in every
 * process, so another process finds a plan for a minimum that this one reports. */
static pl_status descend(pl__search *f, pl__descent *d, bool *any)
{
    enum { MOST_FAT = 2 };
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_plan *plan;
    o.effort = 0;
    o.stop = f->base->opts->stop;
    o.off = PL_RECOMPUTE_NO_EXACT;
    const pl__descent *first = &f->descent[PL__FIRST];
    uint64_t from = d == first ? 0 : first->asked, asked = d->last.asked;
    /* lists become longer and longer, in vain */
    *any = f->problem.n_units <= SMALL || d->fat < (d == first ? MOST_FAT : 1);
    if (!*any) return PL_OK;
    if (!d->steps && d != first) d->lean_bytes = first->lean_bytes;
    if (!d->steps) PL_TRY(pl_recompute_descent_new(&f->problem, &o, from, &d->steps));
    f->n_asked++;
    PL_TRY(pl_recompute_descend(d->steps, &asked, &plan));
    pl_status stopped = pl__search_stopped(f);
    if (stopped != PL_OK) pl_recompute_plan_free(plan);
    PL_TRY(stopped);
    *any = plan != NULL;
    if (!plan) return PL_OK;
    if (d->last.plan != d->lean.plan) pl_recompute_plan_free(d->last.plan);
    d->last = (pl__candidate){.plan = plan, .asked = asked, .of_descent = true, .whole = true};
    note_lean(f, d);
    return PL_OK;
}

/* Whether the last plan of a descent has an arena of at most `enough` bytes; then d->minimum is
 * that arena. */
static pl_status check_enough(pl__search *f, pl__descent *d, uint64_t enough, bool *yes)
{
    pl_expanded_plan *t;
    *yes = false;
    if (d->last.plan->peak_bytes > enough + f->shift) return PL_OK;
    PL_TRY(pl__candidate_measure(f, &d->last));
    if (d->last.peak > enough) return PL_OK;
    PL_TRY(pl__candidate_pack(f, &d->last, &(pl__pack_limits){.enough = enough}, &t));
    uint64_t size = t->plan->arena_bytes + d->last.held;
    *yes = size <= enough;
    if (*yes) {
        d->minimum = size;
        d->held = d->last.held;
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
static pl_status shrink(pl__search *f, pl__descent *d, pl__candidate **c)
{
    enum { LOOKS = 4, HALVES = 4 };
    bool better;
    uint64_t minimum = d->asked;
    PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = minimum, .of_descent = true}, c));
    if (!*c) return PL_OK;
    PL_TRY(pl__candidate_measure(f, *c));
    uint64_t step = (f->keep_all_bytes - minimum) / (LOOKS + 1);
    d->loose = (*c)->peak - (*c)->held + f->shift > minimum + minimum / 8;
    bool first = d == f->descent; /* a second descent is near a first that is not loose */
    if (!d->loose || !first || f->keep_all_bytes <= minimum) return PL_OK;
    for (uint64_t i = 1; i <= LOOKS; i++) PL_TRY(try_budget(f, minimum + step * i, c, &better));
    uint64_t hi = (*c)->asked, lo = hi > minimum + step ? hi - step : minimum;
    for (int i = 0; i < HALVES && hi > lo + 1 && f->problem.n_units <= SMALL; i++) {
        uint64_t mid = lo + (hi - lo) / 2;
        PL_TRY(try_budget(f, mid, c, &better));
        *(better ? &hi : &lo) = mid;
    }
    return PL_OK;
}

/* Ends a descent. Its smallest plan stays a candidate, so a later search for a budget as small as
 * the minimum has it. A second descent that found nothing has the minimum of the first. */
static void end_descent(pl__search *f, pl__descent *d)
{
    pl_recompute_descent_free(d->steps);
    d->steps = NULL;
    if (d->lean.plan && d->lean.plan != d->last.plan) {
        pl_recompute_plan_free(d->last.plan);
        d->last = d->lean;
    }
    d->lean.plan = NULL;
    d->asked = d->last.plan ? d->last.asked : f->descent[PL__FIRST].asked;
    if (d->last.plan && f->n_candidates < PL__MAX_CANDIDATES) {
        f->candidates[f->n_candidates++] = d->last;
        d->last.plan = NULL;
    }
    d->ended = true;
}

/* Returns what asks for a candidate again. */
static pl__candidate question(const pl__candidate *c)
{
    return (pl__candidate){.asked = c->asked, .of_descent = c->of_descent, .whole = c->whole};
}

pl_status pl__search_least(pl__search *f, int which, pl__candidate **c)
{
    for (pl__descent *k = f->descent; k <= &f->descent[which]; k++) {
        for (bool any = !k->ended; any;) PL_TRY(descend(f, k, &any));
        if (!k->ended) end_descent(f, k);
    }
    pl__descent *d = &f->descent[which];
    if (d->peak) return pl__candidate_ask(f, &d->smallest, c);
    PL_TRY(shrink(f, d, c));
    if (*c) d->smallest = question(*c);
    d->peak = *c ? (*c)->peak : f->base->keep_all->arena_bytes;
    return PL_OK;
}

/* Packs the smallest plan of a descent: its minimum. */
static pl_status pack_least(pl__search *f, int which)
{
    pl__descent *d = &f->descent[which];
    pl__candidate *c;
    PL_TRY(pl__search_least(f, which, &c));
    d->minimum = f->base->keep_all->arena_bytes;
    d->held = 0;
    if (c && c->peak < d->minimum) {
        PL_TRY(pl__candidate_keep(f, c, &pl__no_limits));
        if (c->arena < d->minimum) {
            d->minimum = c->arena;
            d->held = c->held;
        }
    }
    d->known = true;
    return PL_OK;
}

/* Copies the smallest minimum of the descents. A descent whose smallest plan has a larger peak need
 * not be packed. */
static void note_minimum(pl__search *f)
{
    for (int i = 0; i < PL__DESCENTS; i++) {
        const pl__descent *d = &f->descent[i];
        if (!d->minimum || (f->minimum && d->minimum >= f->minimum)) continue;
        f->minimum = d->minimum;
        f->minimum_held = d->held;
    }
    f->knows_minimum = f->minimum != 0;
    for (int i = 0; i < PL__DESCENTS; i++) {
        const pl__descent *d = &f->descent[i];
        if (i != PL__FIRST && !pl__search_has_second(f)) continue;
        f->knows_minimum &= d->known || (d->ended && d->peak >= f->minimum);
    }
}

/* Descends until a plan has at most `enough` bytes. */
static pl_status descend_to(pl__search *f, int which, uint64_t enough, bool *done)
{
    pl__descent *d = &f->descent[which];
    pl__candidate *first;
    *done = d->known || (d->minimum && d->minimum <= enough);
    if (which != PL__FIRST && !*done) PL_TRY(pl__search_least(f, PL__FIRST, &first));
    for (bool any = !d->ended; any && !*done;) {
        PL_TRY(descend(f, d, &any));
        if (any) PL_TRY(check_enough(f, d, enough, done));
    }
    return PL_OK;
}

pl_status pl__search_find_minimum(pl__search *f, int which, uint64_t enough, uint64_t *arena_bytes)
{
    bool done;
    PL_TRY(descend_to(f, which, enough, &done));
    if (!done) PL_TRY(pack_least(f, which));
    note_minimum(f);
    *arena_bytes = f->descent[which].minimum;
    return PL_OK;
}

/* Packs the smallest plan of the descent that has the smaller peak; the other one's only if it may
 * be smaller. */
static pl_status find_smallest(pl__search *f, uint64_t enough)
{
    pl__candidate *least;
    uint64_t unused;
    bool done;
    PL_TRY(descend_to(f, PL__FIRST, enough, &done));
    if (!done) PL_TRY(pl__search_least(f, PL__FIRST, &least));
    bool second = pl__search_has_second(f);
    if (!done && second) PL_TRY(descend_to(f, PL__SECOND, enough, &done));
    note_minimum(f);
    if (done) return PL_OK;
    if (second) PL_TRY(pl__search_least(f, PL__SECOND, &least));
    int which = second && f->descent[PL__SECOND].peak < f->descent[PL__FIRST].peak;
    PL_TRY(pl__search_find_minimum(f, which, enough, &unused));
    return f->knows_minimum ? PL_OK : pl__search_find_minimum(f, !which, enough, &unused);
}

/* Frees the plan: the caller needs only its size. */
pl_status pl__search_minimum(pl__search *f, uint64_t enough, uint64_t *arena_bytes)
{
    pl_status rc = f->knows_minimum ? PL_OK : find_smallest(f, enough);
    pl__expanded_plan_free(f->packed);
    f->packed = NULL;
    *arena_bytes = f->minimum;
    return rc;
}

/* Descends until a plan is clearly below the budget. Lists pack with gaps, so other plans of the
 * descent do not show that the budget is enough. */
static pl_status descend_below(pl__search *f, int which, uint64_t budget, bool *below)
{
    enum { GAPS = 16 };
    pl__descent *d = &f->descent[which];
    pl__candidate *first;
    if (which != PL__FIRST) PL_TRY(pl__search_least(f, PL__FIRST, &first));
    *below = d->ended && d->peak && d->peak <= budget - budget / GAPS;
    for (bool any = !d->ended; any && !*below;) {
        PL_TRY(descend(f, d, &any));
        if (!any || d->last.plan->peak_bytes > budget + f->shift) continue;
        PL_TRY(pl__candidate_measure(f, &d->last));
        *below = d->last.peak <= budget - budget / GAPS;
    }
    return PL_OK;
}

/* Whether the smallest plan of a descent packs within the budget. */
static pl_status pack_within(pl__search *f, int which, pl__candidate *least, uint64_t budget,
                             bool *fits)
{
    const pl__descent *d = &f->descent[which];
    pl_expanded_plan *t;
    uint64_t minimum = d->minimum;
    *fits = false;
    if (!least) return PL_OK;
    if (!minimum || (minimum > budget && !d->known)) {
        PL_TRY(pl__candidate_pack(f, least, &(pl__pack_limits){.enough = budget}, &t));
        minimum = t->plan->arena_bytes + least->held;
        pl__expanded_plan_free(t);
    }
    *fits = minimum <= budget;
    return PL_OK;
}

pl_status pl__search_place(pl__search *f, uint64_t budget, int *which)
{
    bool below = false;
    for (*which = PL__FIRST; !below && *which < PL__DESCENTS; *which += !below) {
        pl__candidate *least;
        if (*which != PL__FIRST && !pl__search_has_second(f)) continue;
        PL_TRY(descend_below(f, *which, budget, &below));
        if (below) break;
        PL_TRY(pl__search_least(f, *which, &least));
        if (f->descent[*which].peak > budget) continue; /* packing that list would not help */
        PL_TRY(pack_within(f, *which, least, budget, &below));
    }
    return PL_OK;
}

/* ---- between searches ------------------------------------------------------------------- */
void pl__descents_free(pl__descent d[PL__DESCENTS])
{
    for (int i = 0; i < PL__DESCENTS; i++) {
        if (d[i].lean.plan != d[i].last.plan) pl_recompute_plan_free(d[i].lean.plan);
        pl_recompute_plan_free(d[i].last.plan);
        pl_recompute_descent_free(d[i].steps);
        d[i] = (pl__descent){0};
    }
}

/* A descent that has not ended begins again in the next search. */
void pl__search_take_descents(pl__search *f, pl__descent out[PL__DESCENTS])
{
    pl__descents_free(out);
    for (int i = 0; i < PL__DESCENTS && f->descent[i].ended && f->descent[i].peak; i++) {
        out[i] = f->descent[i];
        f->descent[i] = (pl__descent){0};
        for (uint32_t k = 0; k < f->n_candidates && !out[i].last.plan; k++) {
            pl__candidate *c = &f->candidates[k];
            if (!pl__is_same_question(c, &out[i].smallest)) continue;
            out[i].last = *c;
            c->plan = NULL;
        }
    }
}

void pl__search_give_descents(pl__search *f, pl__descent in[PL__DESCENTS])
{
    for (int i = 0; i < PL__DESCENTS && in[i].ended; i++) {
        f->descent[i] = in[i];
        in[i] = (pl__descent){0};
        if (!f->descent[i].last.plan) continue;
        f->candidates[f->n_candidates++] = f->descent[i].last;
        f->descent[i].last.plan = NULL;
    }
    if (f->descent[PL__FIRST].known) note_minimum(f);
}
