/* recompute_ladder.c - plans for any budget, such that more memory never costs more time.
 *
 * Two searches at budgets that differ a little end in plans that differ by chance, so a larger
 * budget may get the more expensive plan. The ladder searches at rungs only, which are the same for
 * every budget, and takes care that their costs fall:
 *
 *     minimum |--|---|----|-----|------|-------|--------| keep-all     rungs
 *                          |    :    |                                 rungs between two rungs
 *                          | :  |                                      and so on, around the budget
 *
 * From the minimum up, the plan of each rung competes at the next rung. The first rung above the
 * budget is the last one. Between the two rungs around the budget, the range is halved until it is
 * small: a search in the middle gives a plan that is no more expensive than the plan of the lower
 * end; a plan that is cheaper than the plan of the upper end is refused, because a search for a
 * larger budget would not find it. The middle becomes the upper end or the lower end.
 *
 * The rungs that a budget visits before a certain rung are the same for all budgets that visit it,
 * so its plan is the same for all of them. A smaller budget ends at a rung that is not above the
 * rung of a larger budget, and costs fall with the rungs.
 *
 * At a rung recompute is undone as far as the bytes allow (recompute_fill.c), the simulator runs
 * with the weights of the last search, and settings of the grid and their searches follow. Weights
 * that are good at one budget are good at the next one, too.
 *
 * Invariant: the plan of a rung has a peak within the rung's budget, and costs no more than the
 * plan of any rung below it. Cost: a descent to the minimum; then a search at each rung below the
 * budget and at about ten around it.
 *
 * Example (recompute.h): the minimum is 8, the keep-all plan needs 12. The plan of 8 is A B C D A
 * E. A budget of 11 lies between the rungs 8 and 12. The middle, 10, cannot undo anything: a, b and
 * d together have 12 bytes. It becomes the lower end, then 11. The plan is A B C D A E.
 */
#include "base/sys.h"
#include "plan/recompute/recompute_int.h"

enum {
    FINEST = 10000,          /* ranges are halved down to this fraction of the keep-all peak */
    SMALL_UNITS = 1000,      /* problems of at most this many units are small, */
    HUGE_UNITS = 20000,      /* of more than this many huge */
    CHAIN_TRIES = 2,         /* rungs at which the dynamic program may fail to improve the plan */
    EFFORT_START = 10000000, /* effort at a rung by default: constant, and per unit */
    EFFORT_UNITS = 2000,
};

/* How much is searched. */
typedef struct scale {
    uint32_t rungs;    /* main rungs above the minimum */
    uint32_t settings; /* of the grid, at a rung */
    uint32_t starts;   /* settings that a search starts from */
    uint32_t middles;  /* ranges halved with settings of the grid */
    uint64_t times;    /* effort there, in efforts of a main rung */
} scale;
static const scale small_scale = {10, 60, 6, 14, 5}, large_scale = {10, 12, 3, 2, 1},
                   huge_scale = {6, 4, 2, 1, 1};

/* The plan of a rung. */
typedef struct rung {
    uint64_t budget;
    pl__recompute_seq plan;
} rung;

struct pl_recompute_ladder {
    pl__recompute m;
    pl_recompute_opts opts;
    const scale *scale;
    pl__recompute_best best;
    pl__recompute_sim *sim;
    pl__recompute_search *search, *kept; /* kept: as it was after the last of the main rungs */
    uint64_t minimum, keep_all;          /* budgets of the first rung and of the last */
    uint32_t at;                         /* main rungs climbed */
    uint32_t chain_tries;                /* left */
    rung low, high;                      /* the last two main rungs */
    rung lower, upper;                   /* the ends of the range around a budget */
};

/* ---- a rung ----------------------------------------------------------------------------- */
static pl_status try_chain(pl_recompute_ladder *l)
{
    pl__recompute_best *b = &l->best;
    double before = b->seq.cost;
    if (!l->chain_tries || b->opts->off & PL_RECOMPUTE_NO_CHAIN) return PL_OK;
    PL_TRY(pl__recompute_chain(b));
    if (!(b->seq.cost < before)) l->chain_tries--;
    return PL_OK;
}

static pl_status try_settings(pl_recompute_ladder *l, uint64_t effort)
{
    pl__recompute_best *b = &l->best;
    pl__recompute_starts st = {.n = 0};
    PL_TRY(pl__recompute_grid(b, l->sim, l->scale->settings, &st));
    if (st.n > l->scale->starts) st.n = l->scale->starts;
    if (!st.n || b->opts->off & PL_RECOMPUTE_NO_SEARCH) return PL_OK;
    return pl__recompute_search_from(l->search, &st, effort);
}

/* Finds the plan of a rung; `from` competes. Cheaper plans than `floor` are refused. effort 0: only
 * the last weights are tried. */
static pl_status find_plan(pl_recompute_ladder *l, const rung *from, uint64_t budget, double floor,
                           uint64_t effort, rung *out)
{
    pl__recompute_best *b = &l->best;
    b->budget = budget;
    b->floor = floor;
    PL_TRY(pl__recompute_seq_copy(&b->seq, &from->plan));
    PL_TRY(pl__recompute_offer(b, from->plan.unit, from->plan.n, from->plan.strategy, NULL));
    if (!pl__recompute_late(b) && !(b->opts->off & PL_RECOMPUTE_NO_SIM)) {
        PL_TRY(pl__recompute_search_on(l->search, (effort ? effort : b->effort) / 2));
        if (effort) PL_TRY(try_settings(l, effort));
    }
    out->budget = budget;
    return pl__recompute_seq_copy(&out->plan, &b->seq);
}

/* ---- the main rungs --------------------------------------------------------------------- */
/* Returns the budget of main rung i; they are closer near the minimum, where cost falls steeply. */
static uint64_t main_rung(const pl_recompute_ladder *l, uint32_t i)
{
    uint32_t n = l->scale->rungs;
    if (i >= n) return l->keep_all;
    double x = (double)i / n, range = (double)(l->keep_all - l->minimum);
    return l->minimum + (uint64_t)(range * (0.4 * x + 0.6 * x * x));
}

/* Climbs to the next main rung. */
static pl_status climb(pl_recompute_ladder *l)
{
    uint64_t budget = main_rung(l, ++l->at);
    rung low = l->low;
    l->low = l->high;
    l->high = low;
    if (budget < l->keep_all) {
        PL_TRY(find_plan(l, &l->low, budget, 0, l->best.effort, &l->high));
        PL_TRY(try_chain(l));
        PL_TRY(pl__recompute_seq_copy(&l->high.plan, &l->best.seq));
    } else {
        l->best.budget = budget;
        l->best.floor = 0;
        l->best.seq.n = 0;
        PL_TRY(pl__recompute_offer_once(&l->best));
        l->high.budget = budget;
        PL_TRY(pl__recompute_seq_copy(&l->high.plan, &l->best.seq));
    }
    pl__recompute_search_copy(l->kept, l->search);
    return PL_OK;
}

/* ---- between two rungs ------------------------------------------------------------------ */
static pl_status copy_rung(rung *to, const rung *from)
{
    to->budget = from->budget;
    return pl__recompute_seq_copy(&to->plan, &from->plan);
}

/* Halves the range between the two last main rungs around the budget. */
static pl_status close_in(pl_recompute_ladder *l, uint64_t budget, const pl__recompute_seq **plan)
{
    rung *lower = &l->lower, *upper = &l->upper, middle = {0};
    pl_status s = PL_OK;
    PL_TRY(copy_rung(lower, &l->low));
    PL_TRY(copy_rung(upper, &l->high));
    pl__recompute_search_copy(l->search, l->kept);
    for (uint32_t i = 0; upper->plan.peak > budget && lower->plan.cost > upper->plan.cost &&
                         upper->budget - lower->budget > l->keep_all / FINEST + 1 && s == PL_OK &&
                         !pl__recompute_stopped(&l->best);
         i++) {
        uint64_t mid = lower->budget + (upper->budget - lower->budget) / 2;
        uint64_t effort = i < l->scale->middles ? l->best.effort * l->scale->times : 0;
        s = find_plan(l, lower, mid, upper->plan.cost, effort, &middle);
        rung *end = mid <= budget ? lower : upper, was = *end;
        *end = middle;
        middle = was;
    }
    pl__recompute_seq_release(&middle.plan);
    *plan = upper->plan.peak <= budget ? &upper->plan : &lower->plan;
    return s;
}

/* ---- the ladder ------------------------------------------------------------------------- */
static pl_status find_minimum(pl_recompute_ladder *l)
{
    pl__recompute_best *b = &l->best;
    PL_TRY(pl__recompute_minimum(&l->m, &l->opts, 0, &l->minimum, &l->low.plan));
    PL_TRY(find_plan(l, &l->low, l->minimum, 0, b->effort, &l->high));
    if (l->minimum < l->keep_all) PL_TRY(try_chain(l));
    PL_TRY(pl__recompute_seq_copy(&l->high.plan, &b->seq));
    pl__recompute_search_copy(l->kept, l->search);
    return PL_OK;
}

static pl_status set_up(pl_recompute_ladder *l, const pl_recompute_problem *p)
{
    pl__recompute_best *b = &l->best;
    l->opts.budget_bytes = UINT64_MAX;
    l->opts.n_pool = 0;
    PL_TRY(pl__recompute_build(p, &l->m));
    PL_TRY(pl__recompute_best_init(b, &l->m, &l->opts));
    if (l->opts.effort == PL_RECOMPUTE_EFFORT_AUTO)
        b->effort = EFFORT_START + (uint64_t)p->n_units * EFFORT_UNITS;
    PL_TRY(pl__recompute_offer_once(b));
    b->optimal = false;
    l->keep_all = b->seq.peak;
    l->chain_tries = CHAIN_TRIES;
    l->scale = p->n_units <= SMALL_UNITS  ? &small_scale
               : p->n_units <= HUGE_UNITS ? &large_scale
                                          : &huge_scale;
    PL_TRY(pl__recompute_sim_new(&l->m, &l->sim));
    PL_TRY(pl__recompute_search_new(b, l->sim, &l->search));
    PL_TRY(pl__recompute_search_new(b, l->sim, &l->kept));
    return find_minimum(l);
}

pl_status pl_recompute_ladder_new(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                                  pl_recompute_ladder **out)
{
    pl_recompute_ladder *l = pl_sys_alloc(sizeof *l);
    if (!l) return PL_ERR_MEMORY;
    l->opts = *opts;
    pl_status s = set_up(l, p);
    if (s != PL_OK) {
        pl_recompute_ladder_free(l);
        return s;
    }
    *out = l;
    return PL_OK;
}

pl_status pl_recompute_ladder_plan(pl_recompute_ladder *l, uint64_t budget, pl_recompute_plan **out)
{
    const pl__recompute_seq *plan = &l->high.plan;
    PL_TRY(pl__recompute_refuse_below_bound(&l->m, budget));
    PL_FAIL_IF(budget < l->minimum, PL_ERR_FIT,
               "no plan found for %llu bytes; the smallest budget with one is %llu bytes",
               (unsigned long long)budget, (unsigned long long)l->minimum);
    while (l->high.budget <= budget && l->high.budget < l->keep_all &&
           !pl__recompute_stopped(&l->best))
        PL_TRY(climb(l));
    if (plan->peak > budget) PL_TRY(close_in(l, budget, &plan));
    return pl__recompute_hand_out(&l->m, plan, out);
}

void pl_recompute_ladder_free(pl_recompute_ladder *l)
{
    if (!l) return;
    pl__recompute_seq_release(&l->low.plan);
    pl__recompute_seq_release(&l->high.plan);
    pl__recompute_seq_release(&l->lower.plan);
    pl__recompute_seq_release(&l->upper.plan);
    pl__recompute_search_free(l->search);
    pl__recompute_search_free(l->kept);
    pl__recompute_sim_free(l->sim);
    pl__recompute_best_release(&l->best);
    pl_arena_release(&l->m.arena);
    pl_sys_free(l);
}
