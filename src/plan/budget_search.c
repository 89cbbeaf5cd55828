/* budget_search.c - the cheapest plan within a budget.
 *
 * The recompute planner does not model in-place reuse and packing, so its budget is only a knob:
 * the search turns it up while the true peak of the resulting list is within the arena's budget.
 * The settings of the knob are the rungs of recompute.h and fine steps between them. They are the
 * same for every budget, so a larger budget considers all lists that a smaller one does. All lists
 * compete; the cheapest list that packs within the budget wins. Where packing leaves gaps, lists
 * for budgets that are smaller by the gaps compete, too.
 *
 * Invariant: the returned plan was packed within the budget and passed pl_plan_check (plan.h, P1 to
 * P5). Cost: some tens of questions to the recompute planner, some replays, one to a few packings.
 *
 * Example. A makes a, B makes b from a, C reads b, D makes d from b, E reads a and d; a, b and d
 * have 4 MB, nothing is in place, A takes 1 ms.
 *
 *   list            A    B      C    D      E           peak    recomputed
 *   keep-all        a    a b    a b  a b d  a d         12 MB   nothing
 *                   A    B      C    D      A     E
 *   one recompute   a    a b    b    b d    a d   a d    8 MB   A, 1 ms
 *
 *   budget 12 MB: the keep-all plan fits, no search.
 *   budget 11 MB: the rung below 11 MB has the list A B C D A E. Its peak, 8 MB, is measured;
 *                 filling cannot undo A, since a, b and d together are too large. It packs in 8 MB.
 *   budget  7 MB: below the bound: D alone needs b and d, 8 MB. Refused with that proof.
 */
#include <string.h>

#include "plan/budget_int.h"

/* Whether the candidate is known not to fit. */
static bool is_over(const pl__candidate *c, uint64_t budget)
{
    return c->arena > budget && !c->quick;
}

/* Sets *best to the cheapest candidate not yet seen whose peak is within the limit; NULL: none. */
static pl_status cheapest(pl__search *f, uint64_t limit, const bool *seen, pl__candidate **best)
{
    do {
        *best = NULL;
        for (uint32_t i = 0; i < f->n_candidates; i++) {
            pl__candidate *c = &f->candidates[i];
            if (seen[i] || !c->competes || c->peak > limit) continue;
            if (!*best || c->plan->cost_ns < (*best)->plan->cost_ns) *best = c;
        }
        if (*best) PL_TRY(pl__candidate_measure(f, *best));
    } while (*best && (*best)->peak > limit);
    return PL_OK;
}

/* Returns the candidate not yet seen that is most likely to pack within the budget; NULL: none. */
static pl__candidate *smallest(pl__search *f, uint64_t budget, const bool *seen)
{
    pl__candidate *best = NULL;
    for (uint32_t i = 0; i < f->n_candidates; i++) {
        pl__candidate *c = &f->candidates[i];
        if (seen[i] || !c->competes || !c->peak || c->peak > budget || is_over(c, budget)) continue;
        if (!best || (c->arena && !best->arena) ||
            (!c->arena == !best->arena && c->peak < best->peak))
            best = c;
    }
    return best;
}

/* Undoes recompute step by step: raises the recompute planner's budget, starting at the budget of
 * c, until PATIENCE lists in a row are too large. Lists of budgets below `sure` are known to
 * fit. */
static pl_status fill_up(pl__search *f, uint64_t budget, uint64_t sure, pl__candidate *c)
{
    enum { PATIENCE = 4 };
    uint64_t step = f->keep_all_bytes / PL__CLOSE_RUNGS + 1;
    int over = 0;
    for (uint64_t at = (c->asked / step + 1) * step; at < f->keep_all_bytes; at += step) {
        if (over >= PATIENCE || c->plan->n == f->problem.n_units) break;
        pl__candidate *next;
        PL_TRY(pl__candidate_ask(
            f, &(pl__candidate){.asked = at, .filled_from = (uint32_t)(c - f->candidates) + 1},
            &next));
        if (!next) break;
        c = next;
        if (at < sure) continue;
        PL_TRY(pl__candidate_measure(f, c));
        over = c->peak > budget ? over + 1 : 0;
    }
    return PL_OK;
}

/* Finds the highest rung whose list has a true peak within the budget. The first guess is the
 * budget itself. In-place reuse, which the recompute planner does not model, leaves bytes free; the
 * next guesses use them. Guesses are made without search; the rung they end at is searched. *c is
 * NULL when the rung has no list. */
static pl_status find_rung(pl__search *f, uint64_t budget, uint64_t effort, uint64_t bound,
                           uint64_t *rung, pl__candidate **c)
{
    enum { GUESSES = 3 };
    *rung = pl_recompute_rung(budget + f->shift, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
    pl__candidate *next;
    PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = *rung}, c));
    if (*c) PL_TRY(pl__candidate_measure(f, *c));
    /* the host memory of the list counts, too */
    for (int i = 0; i < GUESSES && *c && (*c)->held && (*c)->peak > budget; i++) {
        uint64_t over = (*c)->peak - budget;
        if (*rung < bound + over) break;
        uint64_t down = pl_recompute_rung(*rung - over, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
        if (!down || down >= *rung) break;
        PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = down}, &next));
        if (!next) break;
        PL_TRY(pl__candidate_measure(f, next));
        *rung = down;
        *c = next;
    }
    for (int i = 0; i < GUESSES && *c && (*c)->peak < budget; i++) {
        uint64_t up = pl_recompute_rung(*rung + (budget - (*c)->peak), bound, f->keep_all_bytes,
                                        PL__CLOSE_RUNGS);
        if (up <= *rung) break;
        PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = up}, &next));
        if (next) PL_TRY(pl__candidate_measure(f, next));
        if (!next || next->peak > budget) break;
        *rung = up;
        *c = next;
    }
    if (!*c || !effort) return PL_OK;
    PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = *rung, .effort = effort}, &next));
    if (next) PL_TRY(pl__candidate_measure(f, next));
    if (next && next->peak <= budget) *c = next;
    return PL_OK;
}

/* Creates candidates for a budget: from the highest rung that fits, with search; then, without
 * search, from two close rungs below it and from two distant ones. Cost changes sharply where a few
 * buffers have most of the bytes, so rungs are close. Distant rungs, shared by many budgets, reduce
 * variance. */
static pl_status climb(pl__search *f, uint64_t budget, uint64_t effort)
{
    enum { STARTS = 5, NEAR = 2, FAR = 40 };
    uint64_t bound, rung, all = f->keep_all_bytes;
    uint32_t unit;
    pl__candidate *c;
    PL_TRY(pl_recompute_bound(&f->problem, &bound, &unit));
    PL_TRY(find_rung(f, budget, effort, bound, &rung, &c));
    uint64_t sure = rung;
    for (int i = 0; i < STARTS && c; i++) {
        PL_TRY(fill_up(f, budget, sure, c));
        uint32_t rungs = i < NEAR ? PL__CLOSE_RUNGS : FAR;
        uint64_t below = all / (8 * rungs); /* less than the distance of two rungs */
        if (i + 1 == STARTS || rung <= bound + below) break;
        rung = pl_recompute_rung(rung - below, bound, all, rungs);
        PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = rung}, &c));
    }
    return PL_OK;
}

#define NO_GAPS 1e9

/* A plan within the budget; NULL: none was found yet. */
typedef struct choice {
    pl_expanded_plan *plan;
    double cost_ns; /* of running its list */
} choice;

/* Makes the candidate that was packed last the choice. */
static void choose(pl__search *f, const pl__candidate *c, choice *best)
{
    pl__expanded_plan_free(best->plan);
    *best = (choice){f->packed, c->plan->cost_ns};
    f->chosen = (uint32_t)(c - f->candidates) + 1;
    f->packed = NULL;
}

static bool is_same_list(const pl_recompute_plan *a, const pl_recompute_plan *b)
{
    return a->n == b->n && a->cost_ns == b->cost_ns &&
           memcmp(a->unit, b->unit, a->n * sizeof *a->unit) == 0;
}

/* Copies the arena of a candidate that has the same list and is known not to fit. */
static void copy_arena(const pl__search *f, uint64_t budget, pl__candidate *c)
{
    for (uint32_t i = 0; i < f->n_candidates; i++) {
        const pl__candidate *k = &f->candidates[i];
        if (c->arena || !k->arena || !is_over(k, budget) || !is_same_list(k->plan, c->plan))
            continue;
        c->arena = k->arena;
        c->quick = false;
    }
}

/* Packs a candidate, unless it is known not to fit. */
static pl_status pack_candidate(pl__search *f, uint64_t budget, pl__candidate *c)
{
    copy_arena(f, budget, c);
    return is_over(c, budget) ? PL_OK
                              : pl__candidate_keep(f, c, &(pl__pack_limits){.fits = budget});
}

/* Packs candidates, the cheapest first, until one is within the budget, and makes it the choice.
 * The former choice stays when no cheaper candidate fits. Packing some thousand
 * buffers takes a second, and where packing leaves gaps it does so for all candidates alike. So
 * after FREE candidates that were too large, it packs only candidates that would fit with the
 * smallest gaps seen, then the LAST smallest ones. Figures that earlier budgets computed count as
 * if they were computed here, so the answer does not depend on earlier budgets. *gaps: the smallest
 * arena / peak of a list that was too large. */
static pl_status pack_cheapest(pl__search *f, uint64_t budget, choice *best, double *gaps)
{
    enum { FREE = 2, LAST = 4 };
    bool seen[PL__MAX_CANDIDATES] = {false};
    uint64_t limit = budget;
    *gaps = NO_GAPS;
    for (int tries = 0, last = 0; last < LAST; tries++) {
        pl__candidate *c;
        PL_TRY(cheapest(f, limit, seen, &c));
        if (!c) {
            c = smallest(f, budget, seen);
            last++;
        }
        if (!c) return PL_OK;
        seen[c - f->candidates] = true;
        if (best->plan && c->plan->cost_ns >= best->cost_ns) return PL_OK;
        PL_TRY(pack_candidate(f, budget, c));
        if (c->arena <= budget) {
            choose(f, c, best);
            return PL_OK;
        }
        double over = (double)(c->arena - c->held) / (double)(c->peak - c->held);
        if (over < *gaps) *gaps = over;
        if (tries >= FREE) limit = (uint64_t)((double)budget / *gaps);
    }
    return PL_OK;
}

/* Time of running every unit once. */
static double base_cost(const pl__search *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->problem.n_units; i++) sum += f->problem.cost[i];
    return sum;
}

static void compete(pl__search *f, bool on)
{
    for (uint32_t i = 0; i < f->n_candidates; i++) f->candidates[i].competes = on;
}

/* Creates candidates for an anchor: its own, and a minimum's list filled up to the anchor. */
static pl_status climb_from_minimum(pl__search *f, int which, uint64_t anchor, uint64_t effort)
{
    pl__candidate *c;
    PL_TRY(climb(f, anchor, effort));
    /* a cheap list as small as the minimum's, if there is one */
    PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = f->descent[which].asked}, &c));
    if (c) PL_TRY(fill_up(f, anchor, 0, c));
    PL_TRY(pl__search_least(f, which, &c));
    return c && c->peak <= anchor ? fill_up(f, anchor, 0, c) : PL_OK;
}

/* Packs a candidate, and makes it the choice if it fits and is cheaper. */
static pl_status try_candidate(pl__search *f, pl__candidate *c, uint64_t budget, choice *best)
{
    if (best->plan && c->plan->cost_ns >= best->cost_ns) return PL_OK;
    PL_TRY(pl__candidate_measure(f, c));
    if (c->peak > budget || is_over(c, budget)) return PL_OK;
    PL_TRY(pack_candidate(f, budget, c));
    if (c->arena <= budget) choose(f, c, best);
    return PL_OK;
}

/* Where the lists made for a budget leave gaps, the best list that fits was often made for a far
 * smaller budget. Tries lists for budgets that leave room for gaps like these. */
static pl_status climb_with_gaps(pl__search *f, uint64_t budget, double gaps, uint64_t effort,
                                 choice *best)
{
    enum { LOOKS = 2, SETTINGS = 6, SHARE = 3, STEP = 64 };
    const double most_gaps = 1.1;
    uint64_t bound, aim = (uint64_t)((double)budget / gaps);
    uint32_t unit;
    if (gaps > most_gaps) return PL_OK;
    PL_TRY(pl_recompute_bound(&f->problem, &bound, &unit));
    for (int i = 0; i < LOOKS; i++, aim -= aim / STEP) {
        uint64_t rung =
            pl_recompute_rung(aim + f->shift, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
        const pl__candidate want = {.asked = rung, .settings = SETTINGS, .effort = effort / SHARE};
        pl__candidate *c;
        if (!rung) break;
        PL_TRY(pl__candidate_ask(f, &want, &c));
        if (c) PL_TRY(try_candidate(f, c, budget, best));
    }
    return PL_OK;
}

/* Finds the plan of a budget near the minimum. The budgets from the minimum on have anchors, fixed
 * steps that do not depend on the budget. Each anchor starts with the choice of the anchor below it
 * and with the same candidates in every process, so a larger budget never has a dearer plan. On
 * larger problems, where climbing takes seconds, steps are coarse, an anchor gets a part of the
 * effort, and the budget itself is the last anchor; beyond SMALL units only the minimum comes
 * before it. */
static pl_status solve_near_minimum(pl__search *f, int which, uint64_t budget, uint64_t effort,
                                    choice *best)
{
    enum { TINY = 250, SMALL = 500, FINE = 128, COARSE = 64, SHARE = 4 };
    uint32_t n = f->problem.n_units;
    uint64_t at = f->descent[which].minimum;
    uint64_t step = n > SMALL ? budget : at / (n > TINY ? COARSE : FINE) + 1;
    double gaps;
    compete(f, false);
    for (; at <= budget; at += step) {
        PL_TRY(climb_from_minimum(f, which, at, n > TINY ? effort / SHARE : effort));
        PL_TRY(pack_cheapest(f, at, best, &gaps));
    }
    if (n <= TINY && best->plan) return PL_OK;
    PL_TRY(climb_from_minimum(f, which, budget, effort));
    PL_TRY(pack_cheapest(f, budget, best, &gaps));
    return climb_with_gaps(f, budget, gaps, effort, best);
}

/* Near the minimum a rung is a coarse step, and the minimum's own plan is often cheaper than the
 * plans of the rungs. Finding the minimum takes seconds, so it is skipped when the budget is
 * clearly far from it: more than twice the bound, and a plan that recomputes little. */
static pl_status is_near_minimum(pl__search *f, int which, uint64_t budget,
                                 const pl_expanded_plan *found, bool *look)
{
    enum { MUCH = 2, NEAR = 16 };
    /* the largest minimum that the budget is far from */
    uint64_t minimum, far = (budget - 1) / (NEAR + 1) * NEAR;
    *look = !found || budget / 2 <= f->bound || found->recompute_ns * MUCH > base_cost(f);
    if (!*look) return PL_OK;
    PL_TRY(pl__search_find_minimum(f, which, found ? far : 0, &minimum));
    *look = budget <= minimum + minimum / NEAR;
    return PL_OK;
}

static pl_status refuse(const pl__search *f, uint64_t budget)
{
    char label[160] = "the inputs";
    if (f->bound_unit != PL_NO_UNIT)
        pl_unit_label(f->base->g, &f->base->units->unit[f->bound_unit], label, sizeof label);
    PL_FAIL_IF(budget < f->bound, PL_ERR_FIT,
               "no plan fits an arena of %llu bytes: \"%s\" alone needs %llu",
               (unsigned long long)budget, label, (unsigned long long)f->bound);
    int last = pl__search_has_second(f) ? PL__SECOND : PL__FIRST;
    PL_FAIL_IF(!f->knows_minimum, PL_ERR_FIT,
               "no plan found for an arena of %llu bytes; the smallest found has at least %llu",
               (unsigned long long)budget, (unsigned long long)f->descent[last].peak);
    PL_FAIL(PL_ERR_FIT, "no plan found for an arena of %llu bytes; the smallest found is %llu",
            (unsigned long long)budget, (unsigned long long)f->minimum);
}

/* `which`: the descent whose minimum is within the budget, as far as that is known. */
static pl_status solve(pl__search *f, int which, uint64_t budget, uint64_t effort, choice *best)
{
    bool look;
    double gaps;
    PL_TRY(climb(f, budget, effort));
    PL_TRY(pack_cheapest(f, budget, best, &gaps));
    PL_TRY(climb_with_gaps(f, budget, gaps, effort, best));
    if (!best->plan) {
        pl__candidate *least;
        PL_TRY(pl__search_least(f, which, &least));
        if (f->descent[which].peak > budget) return PL_OK; /* packing that list would not help */
    }
    PL_TRY(is_near_minimum(f, which, budget, best->plan, &look));
    if (!look && best->plan) return PL_OK;
    pl__expanded_plan_free(best->plan);
    *best = (choice){0};
    f->chosen = 0;
    /* the reported minimum is a limit: every process refuses a budget below it */
    if (f->descent[which].known && budget < f->descent[which].minimum) return PL_OK;
    return solve_near_minimum(f, which, budget, effort, best);
}

/* Packs the list of a minimum as that minimum was packed. */
static pl_status take_least(pl__search *f, int which, uint64_t budget, choice *best)
{
    pl__candidate *least;
    PL_TRY(pl__search_least(f, which, &least));
    if (!least) return PL_OK;
    PL_TRY(pl__candidate_keep(f, least, &pl__no_limits));
    if (least->arena <= budget) choose(f, least, best);
    return PL_OK;
}

/* Takes a list that few settings find, if it fits. Not on huge problems, where a setting takes a
 * second. */
static pl_status try_quickly(pl__search *f, uint64_t budget, choice *best)
{
    enum { TRIES = 6, SETTINGS = 6, GAPS = 64, HUGE = 20000 };
    const pl__pack_limits fits = {.fits = budget, .rough = true};
    uint64_t bound, taken = pl__search_held_guess(f) + budget / GAPS;
    uint64_t aim = budget > taken ? budget + f->shift - taken : 0;
    uint32_t unit, settings = SETTINGS;
    int tries = f->problem.n_units > HUGE ? 0 : TRIES;
    PL_TRY(pl_recompute_bound(&f->problem, &bound, &unit));
    for (int i = 0; i < tries && !best->plan; i++) {
        pl__candidate want = {.settings = settings}, *c;
        want.asked = pl_recompute_rung(aim, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
        if (!want.asked) break;
        PL_TRY(pl__candidate_ask(f, &want, &c));
        if (!c && !settings) break;
        if (!c) settings = 0; /* all that win often */
        if (!c) continue;
        PL_TRY(pl__candidate_measure(f, c));
        if (c->peak <= budget) PL_TRY(pl__candidate_keep(f, c, &fits));
        uint64_t needs = c->arena ? c->arena : c->peak, over = needs > budget ? needs - budget : 0;
        if (!over) choose(f, c, best);
        aim = want.asked > over ? want.asked - over - 1 : 0;
    }
    return PL_OK;
}

/* On large problems a climb takes seconds, and the descent a fraction of that. *which: see
 * pl__search_place. */
static pl_status place(pl__search *f, uint64_t budget, int *which)
{
    *which = budget < f->bound ? PL__DESCENTS : PL__FIRST;
    if (budget < f->bound || !pl__search_is_large(f)) return PL_OK;
    return pl__search_place(f, budget, which);
}

pl_status pl__search_may_fit(pl__search *f, uint64_t arena_budget, bool *may)
{
    int which = arena_budget < f->minimum_before ? PL__DESCENTS : PL__FIRST;
    if (!f->minimum_before) PL_TRY(place(f, arena_budget, &which));
    *may = which != PL__DESCENTS;
    return PL_OK;
}

/* Finds a plan, quickly: where few settings find none, the plan of the minimum. */
static pl_status solve_quickly(pl__search *f, uint64_t budget, choice *best, int *which)
{
    bool fits = f->minimum_before && f->minimum_before <= budget;
    *which = PL__FIRST;
    if (!fits) PL_TRY(place(f, budget, which));
    if (*which == PL__DESCENTS) return PL_OK;
    PL_TRY(try_quickly(f, budget, best));
    if (best->plan) return PL_OK;
    if (fits) PL_TRY(place(f, budget, which));
    return *which == PL__DESCENTS ? PL_OK : take_least(f, *which, budget, best);
}

pl_status pl__search_solve(pl__search *f, uint64_t arena_budget, uint64_t effort,
                           pl_expanded_plan **out)
{
    choice best = {0};
    int which;
    bool quick = f->quick && pl__search_is_large(f);
    f->chosen = 0;
    compete(f, false);
    pl_status rc =
        quick ? solve_quickly(f, arena_budget, &best, &which) : place(f, arena_budget, &which);
    if (rc == PL_OK && !best.plan && which != PL__DESCENTS)
        rc = solve(f, which, arena_budget, effort, &best);
    if (rc == PL_OK && !best.plan) return refuse(f, arena_budget);
    if (rc != PL_OK)
        pl__expanded_plan_free(best.plan);
    else
        *out = best.plan;
    return rc;
}
