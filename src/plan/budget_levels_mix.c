/* budget_levels_mix.c - plans that recompute a part of what does not fit and move the rest.
 *
 * The lists of budget_lists.c differ much: the next one recompute a sixth of the bytes more. A plan
 * in which no unit waits for a move has the least recompute that the channels allow, and that
 * amount is usually between two lists. Here recompute is undone in small steps, from a list that
 * recomputes more; moves take the bytes over. The fastest list by estimate is planned.
 *
 * The start is a list of budget_lists.c, or the list that recompute alone would choose, which a
 * longer search has found.
 *
 * Cost: an answer of the recompute planner without search, an expansion and an estimate for each
 * step, about ten steps, and one plan.
 */
#include "plan/budget_levels_int.h"

#include <math.h>

/* The fastest list that was tried. */
typedef struct mix {
    pl__levels_search *s;
    pl__search *of; /* asks the recompute planner */
    const pl__candidate *best;
    bool bare; /* see pl__levels_search */
    double ns;
} mix;

/* Estimates a candidate with the budget as its target, with and without further runs of cheap
 * units. */
static pl_status estimate(mix *m, const pl__candidate *c, double *ns)
{
    *ns = HUGE_VAL;
    for (int bare = 1; bare >= 0; bare--) {
        pl__level_guess guess;
        m->s->bare = bare;
        PL_TRY(pl__levels_add_mixed(m->s, m->of, c->plan));
        PL_TRY(pl__levels_estimate(m->s, PL__LEVEL_MIXED, m->s->budget, &guess));
        if (guess.ns < *ns) *ns = guess.ns;
        if (guess.ns < m->ns) {
            m->ns = guess.ns;
            m->best = c;
            m->bare = bare;
        }
        if (!guess.waits) break;
    }
    return pl__search_stopped(m->of);
}

/* Undoes recompute of c, in steps that grow, and estimates each list, until lists are slower. */
static pl_status undo(mix *m, pl__candidate *c, uint64_t step)
{
    enum { STEPS = 8, PATIENCE = 2 };
    uint64_t asked = c->asked;
    int slower = 0;
    double ns, best = HUGE_VAL;
    for (int i = 0; i < STEPS && slower < PATIENCE; i++, step += step / 4) {
        asked += step;
        if (asked >= m->of->keep_all_bytes) break;
        uint32_t from = (uint32_t)(c - m->of->candidates) + 1;
        pl__candidate *next;
        PL_TRY(
            pl__candidate_ask(m->of, &(pl__candidate){.asked = asked, .filled_from = from}, &next));
        if (!next) break;
        if (next == c) continue;
        c = next;
        PL_TRY(estimate(m, c, &ns));
        slower = ns >= best ? slower + 1 : 0;
        if (ns < best) best = ns;
    }
    return PL_OK;
}

/* Plans the fastest list if it is faster than the best plan. */
static pl_status plan_best(mix *m)
{
    pl__levels_search *s = m->s;
    pl_status rc = PL_OK;
    if (m->best && (!s->best || m->ns < s->best->total_ns)) {
        s->bare = m->bare;
        rc = pl__levels_add_mixed(s, m->of, m->best->plan);
        pl__level_option o = {.list = PL__LEVEL_MIXED, .target = s->budget, .ns = m->ns};
        if (rc == PL_OK) rc = pl__levels_try_option(s, &o);
    }
    pl__levels_free_graphs(s);
    return rc;
}

/* Whether recompute and waiting together take so little that no list can be much faster. */
static bool is_close(const pl__levels_search *s)
{
    enum { CLOSE = 200 };
    double least = 0;
    for (uint32_t i = 0; i < s->f->problem.n_units; i++) least += s->f->problem.cost[i];
    return s->best && s->best->total_ns <= least + least / CLOSE;
}

pl_status pl__levels_search_between(pl__levels_search *s, uint32_t near)
{
    enum { STEPS = 4 };
    mix m = {.s = s, .of = s->f, .ns = HUGE_VAL};
    if (is_close(s)) return PL_OK;
    for (uint32_t k = near + 1; k >= near && k > 0; k--) {
        pl__candidate *c = NULL;
        uint64_t asked = k < PL__LEVEL_LISTS ? pl__levels_asked(s->f, k) : 0;
        if (asked >= s->f->bound)
            PL_TRY(pl__candidate_ask(s->f, &(pl__candidate){.asked = asked}, &c));
        if (c) PL_TRY(undo(&m, c, (pl__levels_asked(s->f, k - 1) - asked) / STEPS));
    }
    return plan_best(&m);
}

pl_status pl__levels_search_above(pl__levels_search *s)
{
    enum { FINEST = 32 }; /* part of the budget */
    pl__search *of = s->plain ? s->plain : s->f;
    mix m = {.s = s, .of = of, .ns = HUGE_VAL};
    if (is_close(s) || !of->chosen) return PL_OK;
    PL_TRY(undo(&m, &of->candidates[of->chosen - 1], s->budget / FINEST));
    return plan_best(&m);
}
