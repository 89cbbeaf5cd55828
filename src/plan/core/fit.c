/* fit.c - see fit.h.
 *
 * The recomputation planner sees the units and buffers of the keep-all plan, in its order, and
 * knows nothing of outputs that take over the bytes of inputs. In-place reuse of the keep-all plan are
 * told to it as scratch that is smaller by the bytes taken over; since scratch cannot be negative,
 * all scratch and all budgets of the core are larger by one constant, `shift`. Other in-place reuse come
 * and go with the plan, so the core's budget is only a knob: it is turned up while the true peak of
 * the expansion still is within the arena's budget. Its settings are the rungs of recompute.h and
 * fine steps between them, the same for every budget, so that a larger budget has what a smaller
 * one has. Every list found is kept and competes for every later budget.
 *
 * What a slot's new value is made from: an update over the old value runs once; a value assigned to
 * a slot is never dropped. Readers of an old value that come after the update, which recomputation
 * can bring about, push the new value into the arena: seen and counted by the true peak.
 */
#include "base/asked.h"
#include "base/sys.h"
#include "plan/core/fit_int.h"

pl_fit_work pl_fit_work_get(const pl_fit *f)
{
    return (pl_fit_work){f->n_asked, f->n_packed};
}

uint64_t pl_fit_bound(const pl_fit *f, uint32_t *unit)
{
    if (unit) *unit = f->bound_unit;
    return f->bound;
}

/* ---- making and freeing ----------------------------------------------------------------- */
pl_status pl_fit_new(const pl_fit_base *base, pl_fit **out)
{
    pl_fit *f = pl_sys_alloc(sizeof *f);
    if (!f) return PL_ERR_MEMORY;
    f->base = base;
    f->q = (pl_problem){.g = base->g, .units = base->units, .opts = base->opts};
    pl_status rc = pl__fit_describe(f);
    if (rc != PL_OK) {
        pl_fit_free(f);
        return rc;
    }
    *out = f;
    return PL_OK;
}

void pl_fit_free(pl_fit *f)
{
    if (!f) return;
    for (uint32_t i = 0; i < f->n_cand; i++) pl_recompute_plan_free(f->cand[i].plan);
    if (f->lean.plan != f->way.plan) pl_recompute_plan_free(f->lean.plan);
    pl_recompute_plan_free(f->way.plan);
    pl_recompute_descent_free(f->down);
    pl_fitted_free(f->kept);
    pl_arena_release(&f->mem);
    pl_sys_free(f);
}

/* ---- expanding a list ------------------------------------------------------------------- */
void pl_fitted_free(pl_fitted *t)
{
    if (!t) return;
    pl_plan_free(t->plan);
    pl_expansion_free(t->x);
    pl_sys_free(t);
}

uint64_t pl_fitted_bytes(const pl_fitted *t)
{
    if (!t) return 0;
    uint64_t bytes = sizeof *t + sizeof *t->x + t->x->mem.total + pl_graph_bytes(t->x->g);
    bytes += sizeof *t->x->units + t->x->units->arena.total;
    return bytes + (t->plan ? sizeof *t->plan + t->plan->mem.total : 0);
}

/* The expansion of a list and the options to plan it with. */
static pl_status expand_list(const pl_fit_base *b, const uint32_t *list, uint32_t n, pl_fitted *t)
{
    PL_TRY(pl_expand(b->g, b->units, list, n, &t->x));
    const pl_units *us = t->x->units;
    t->base = b;
    t->opts = *b->opts;
    t->opts.fixed_order = t->x->order;
    t->work_bytes = pl_arena_new(&t->x->mem, uint64_t, us->n + 1);
    const bool **inplace = pl_arena_new(&t->x->mem, const bool *, us->n + 1);
    if (!t->work_bytes || !inplace) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < us->n; i++) {
        uint32_t unit = t->x->base[i];
        if (b->opts->inplace) inplace[i] = b->opts->inplace[unit];
        if (b->opts->work_bytes) t->work_bytes[i] = b->opts->work_bytes[unit];
        if (t->x->again[i] && us->unit[i].kind != PL_UNIT_VIEW) t->extra_ns += b->cost_ns[unit];
    }
    t->opts.work_bytes = t->work_bytes;
    t->opts.inplace = inplace;
    return PL_OK;
}

/* How long offsets are looked for, see pl_plan_opts. */
typedef struct limits {
    uint64_t enough, fits;
} limits;
static const limits no_limits = {0, 0};

/* peak is given: it is measured; else the plan is made. */
static pl_status new_fitted(const pl_fit_base *b, const uint32_t *list, uint32_t n,
                            const limits *limit, uint64_t *peak, pl_fitted **out)
{
    pl_fitted *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    pl_status rc = expand_list(b, list, n, t);
    t->opts.enough = limit->enough;
    t->opts.fits = limit->fits;
    if (rc == PL_OK && peak) rc = pl_plan_peak(t->x->g, t->x->units, &t->opts, peak);
    if (rc == PL_OK && !peak) rc = pl_plan_make(t->x->g, t->x->units, &t->opts, &t->plan);
    if (rc != PL_OK || !out) {
        pl_fitted_free(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

pl_status pl_fit_list(const pl_fit_base *base, const uint32_t *list, uint32_t n, pl_fitted **out)
{
    return new_fitted(base, list, n, &no_limits, NULL, out);
}

static pl_status list_of(pl_fit *f, const pl_recompute_plan *plan, pl_arena *mem, uint32_t **out)
{
    *out = pl_arena_new(mem, uint32_t, plan->n + 1);
    if (!*out) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < plan->n; i++) (*out)[i] = f->q.unit_id[f->unit_at[plan->unit[i]]];
    return PL_OK;
}

/* ---- candidates ------------------------------------------------------------------------- */
static pl_status measure(pl_fit *f, candidate *c)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list;
    if (c->peak) return PL_OK;
    pl_status rc = list_of(f, c->plan, &mem, &list);
    if (rc == PL_OK) rc = new_fitted(f->base, list, c->plan->n, &no_limits, &c->peak, NULL);
    pl_arena_release(&mem);
    return rc;
}

/* What a search came to once it was asked to stop is no answer. */
static pl_status look_at_stop(const pl_fit *f)
{
    PL_FAIL_IF(pl_asked(f->base->opts->stop), PL_ERR_STOPPED, "planning was stopped");
    return PL_OK;
}

/* Bytes of a plan's list, see pl_recompute_plan. */
static uint64_t list_bytes(const pl_recompute_plan *plan)
{
    return sizeof *plan + (2 * (uint64_t)plan->n + 2 + plan->drop_at[plan->n]) * sizeof *plan->unit;
}

/* Lists that are filled up are many: they end where memory does. */
static bool is_full(const pl_fit *f)
{
    return f->base->opts->host_bytes && f->cand_bytes > f->base->opts->host_bytes;
}

/* Asks the core what `want` says. *found is NULL when it has no plan. The answer depends on the
 * question only; it is kept, and the same question is not asked twice. */
static pl_status ask_core(pl_fit *f, const candidate *want, candidate **found)
{
    candidate c = *want;
    const pl_recompute_plan *pool = want->from ? f->cand[want->from - 1].plan : &f->marked;
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    o.budget_bytes = want->asked;
    o.effort = want->effort;
    o.seed = f->base->opts->seed + 1;
    o.pool = &pool;
    o.n_pool = pool->n > 0;
    o.stop = f->base->opts->stop;
    o.off = PL_RECOMPUTE_NO_EXACT | PL_RECOMPUTE_NO_MINIMUM;
    if (want->from) o.off |= PL_RECOMPUTE_NO_CHAIN | PL_RECOMPUTE_NO_SIM;
    if (want->alone) o.off |= PL_RECOMPUTE_NO_CHOICE | PL_RECOMPUTE_NO_FILL;
    *found = NULL;
    for (uint32_t i = 0; i < f->n_cand; i++) {
        const candidate *k = &f->cand[i];
        if (k->asked != c.asked || k->effort != c.effort || k->from != c.from ||
            k->alone != c.alone)
            continue;
        *found = &f->cand[i];
        return PL_OK;
    }
    if (f->n_cand == MAX_CANDIDATES || (want->from && is_full(f))) return PL_OK;
    f->n_asked++;
    pl_status rc = pl_recompute_solve(&f->core, &o, &c.plan), stopped = look_at_stop(f);
    if (stopped != PL_OK) {
        if (rc == PL_OK) pl_recompute_plan_free(c.plan);
        return stopped;
    }
    if (rc == PL_ERR_FIT) return PL_OK;
    PL_TRY(rc);
    if (c.from && c.plan->cost_ns == f->cand[c.from - 1].plan->cost_ns) { /* nothing to fill */
        pl_recompute_plan_free(c.plan);
        *found = &f->cand[c.from - 1];
        return PL_OK;
    }
    f->cand_bytes += list_bytes(c.plan);
    f->cand[f->n_cand] = c;
    *found = &f->cand[f->n_cand++];
    return PL_OK;
}

/* The plan of a candidate, offsets and all. */
static pl_status pack_candidate(pl_fit *f, const candidate *c, const limits *limit, pl_fitted **out)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list;
    pl_fitted *t = NULL;
    f->n_packed++;
    pl_status rc = list_of(f, c->plan, &mem, &list);
    if (rc == PL_OK) rc = new_fitted(f->base, list, c->plan->n, limit, NULL, &t);
    pl_arena_release(&mem);
    if (rc == PL_OK) rc = pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan);
    if (rc == PL_OK) rc = look_at_stop(f);
    if (rc != PL_OK)
        pl_fitted_free(t);
    else
        *out = t;
    return rc;
}

/* Makes f->kept the plan of this candidate: the one packed last is often the next that is wanted.
 * An arena that fits need not be small; fits = 0: the smallest is wanted. */
static pl_status keep_fitted(pl_fit *f, candidate *c, uint64_t fits)
{
    uint32_t which = (uint32_t)(c - f->cand) + 1;
    if (f->kept && f->kept_of == which && (!c->brief || c->arena <= fits)) return PL_OK;
    pl_fitted_free(f->kept);
    f->kept = NULL;
    PL_TRY(pack_candidate(f, c, &(limits){.fits = fits}, &f->kept));
    f->kept_of = which;
    c->arena = f->kept->plan->arena_bytes;
    c->brief = c->arena <= fits;
    return PL_OK;
}

/* It is known that the candidate does not fit. */
static bool is_over(const candidate *c, uint64_t budget)
{
    return c->arena > budget && !c->brief;
}

/* ---- the minimum ------------------------------------------------------------------------ */
/* A smaller arena may need a list so long that its graph takes more than is saved. */
static void look_if_lean(pl_fit *f)
{
    const pl_fit_base *b = f->base;
    uint64_t held = pl_graph_bytes(b->g) + b->units->arena.total + b->keep_all->mem.total;
    uint64_t bytes = f->way.plan->peak_bytes + held / (f->core.n_units + 1) * f->way.plan->n;
    if (f->lean.plan && bytes >= f->lean_bytes) return;
    pl_recompute_plan_free(f->lean.plan);
    f->lean = f->way;
    f->lean_bytes = bytes;
}

/* Of the way down, which is the same in every process, whatever was asked before: so another
 * process that is given the minimum finds its plan. */
static pl_status go_down(pl_fit *f, bool *any)
{
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    pl_recompute_plan *plan;
    o.effort = 0;
    o.stop = f->base->opts->stop;
    o.off = PL_RECOMPUTE_NO_EXACT;
    if (!f->down) PL_TRY(pl_recompute_descent_new(&f->core, &o, &f->down));
    uint64_t asked = f->way.asked;
    f->n_asked++;
    PL_TRY(pl_recompute_descend(f->down, &asked, &plan));
    pl_status stopped = look_at_stop(f);
    if (stopped != PL_OK) pl_recompute_plan_free(plan);
    PL_TRY(stopped);
    *any = plan != NULL;
    if (!plan) return PL_OK;
    if (f->way.plan != f->lean.plan) pl_recompute_plan_free(f->way.plan);
    f->way = (candidate){.plan = plan, .asked = asked, .alone = true};
    look_if_lean(f);
    return PL_OK;
}

/* Whether the plan of the way down has an arena of at most `enough` bytes, which then is in
 * f->minimum. */
static pl_status is_enough(pl_fit *f, uint64_t enough, bool *yes)
{
    pl_fitted *t;
    *yes = false;
    if (f->way.plan->peak_bytes > enough + f->shift) return PL_OK;
    PL_TRY(measure(f, &f->way));
    if (f->way.peak > enough) return PL_OK;
    PL_TRY(pack_candidate(f, &f->way, &(limits){.enough = enough}, &t));
    *yes = t->plan->arena_bytes <= enough;
    if (*yes) f->minimum = t->plan->arena_bytes;
    if (*yes) f->minimum_held = pl_fitted_bytes(t);
    pl_fitted_free(t);
    return PL_OK;
}

/* Asks for a core budget; *c becomes its plan if that has less bytes alive in truth, and *better
 * says so. */
static pl_status look_at(pl_fit *f, uint64_t asked, candidate **c, bool *better)
{
    candidate *next;
    PL_TRY(ask_core(f, &(candidate){.asked = asked}, &next));
    if (next) PL_TRY(measure(f, next));
    *better = next && next->peak < (*c)->peak;
    if (*better) *c = next;
    return PL_OK;
}

/* The plan at the end of the way down, which has been gone. *c is NULL when there is none. Where
 * weights are most of what lies in memory, what recomputation reads of them after their update
 * makes its true peak much larger than the core's: then the best of some larger core budgets is
 * taken and, on problems where a look takes no time, of some below it, by halves. */
static pl_status shrink(pl_fit *f, candidate **c)
{
    enum { LOOKS = 4, HALVES = 4, SMALL = 1000 };
    bool better;
    PL_TRY(ask_core(f, &(candidate){.asked = f->core_least, .alone = true}, c));
    if (!*c) return PL_OK;
    PL_TRY(measure(f, *c));
    uint64_t least = f->core_least, step = (f->core_keep_all - least) / (LOOKS + 1);
    if ((*c)->peak + f->shift <= least + least / 8 || f->core_keep_all <= least) return PL_OK;
    for (uint64_t i = 1; i <= LOOKS; i++) PL_TRY(look_at(f, least + step * i, c, &better));
    uint64_t hi = (*c)->asked, lo = hi > least + step ? hi - step : least;
    for (int i = 0; i < HALVES && hi > lo + 1 && f->core.n_units <= SMALL; i++) {
        uint64_t mid = lo + (hi - lo) / 2;
        PL_TRY(look_at(f, mid, c, &better));
        *(better ? &hi : &lo) = mid;
    }
    return PL_OK;
}

/* What is at the end of the way down. */
static pl_status end_way(pl_fit *f)
{
    candidate *c;
    f->core_least = f->way.asked;
    pl_recompute_descent_free(f->down);
    f->down = NULL;
    if (f->lean.plan == f->way.plan) f->lean.plan = NULL; /* the last is the leanest */
    if (f->n_cand < MAX_CANDIDATES) {
        f->cand[f->n_cand++] = f->way;
        f->way.plan = NULL;
    }
    PL_TRY(shrink(f, &c));
    f->minimum = f->base->keep_all->arena_bytes;
    f->minimum_held = 0;
    if (c && c->peak < f->minimum) {
        PL_TRY(keep_fitted(f, c, 0));
        if (c->arena < f->minimum) {
            f->minimum = c->arena;
            f->minimum_held = pl_fitted_bytes(f->kept);
        }
    }
    f->knows_minimum = true;
    return PL_OK;
}

static pl_status find_minimum(pl_fit *f, uint64_t enough, uint64_t *arena_bytes)
{
    bool done = f->knows_minimum || (f->minimum && f->minimum <= enough);
    while (!done) {
        bool any;
        PL_TRY(go_down(f, &any));
        if (any)
            PL_TRY(is_enough(f, enough, &done));
        else
            PL_TRY(end_way(f));
        done |= !any;
    }
    *arena_bytes = f->minimum;
    return PL_OK;
}

/* The plan itself is not asked for. */
pl_status pl_fit_minimum(pl_fit *f, uint64_t enough, uint64_t *arena_bytes)
{
    pl_status rc = find_minimum(f, enough, arena_bytes);
    pl_fitted_free(f->kept);
    f->kept = NULL;
    return rc;
}

pl_status pl_fit_lean(pl_fit *f, uint64_t *arena_bytes, uint64_t *held)
{
    pl_fitted *t;
    *arena_bytes = f->minimum;
    *held = f->minimum_held;
    if (!f->knows_minimum || !f->lean.plan || f->lean.plan->n == f->core.n_units) return PL_OK;
    PL_TRY(pack_candidate(f, &f->lean, &no_limits, &t));
    uint64_t arena = t->plan->arena_bytes, bytes = pl_fitted_bytes(t);
    pl_fitted_free(t);
    if (arena + bytes >= *arena_bytes + *held) return PL_OK;
    *arena_bytes = arena;
    *held = bytes;
    return PL_OK;
}

uint64_t pl_fit_minimum_held(const pl_fit *f)
{
    return f->minimum_held;
}

bool pl_fit_knows_minimum(const pl_fit *f, uint64_t *arena_bytes)
{
    if (f->knows_minimum) *arena_bytes = f->minimum;
    return f->knows_minimum;
}

/* ---- fitting a budget ------------------------------------------------------------------- */
static pl_status refuse(pl_fit *f, uint64_t budget)
{
    char label[160] = "the inputs";
    if (f->bound_unit != PL_NO_UNIT)
        pl_unit_label(f->base->g, &f->base->units->unit[f->bound_unit], label, sizeof label);
    PL_FAIL_IF(budget < f->bound, PL_ERR_FIT,
               "no plan fits an arena of %llu bytes: \"%s\" alone needs %llu",
               (unsigned long long)budget, label, (unsigned long long)f->bound);
    PL_FAIL(PL_ERR_FIT, "no plan found for an arena of %llu bytes; the smallest found is %llu",
            (unsigned long long)budget, (unsigned long long)f->minimum);
}

/* The cheapest candidate not yet seen whose bytes alive are within the limit. */
static pl_status cheapest(pl_fit *f, uint64_t limit, const bool *seen, candidate **best)
{
    do {
        *best = NULL;
        for (uint32_t i = 0; i < f->n_cand; i++) {
            candidate *c = &f->cand[i];
            if (seen[i] || c->peak > limit) continue;
            if (!*best || c->plan->cost_ns < (*best)->plan->cost_ns) *best = c;
        }
        if (*best) PL_TRY(measure(f, *best));
    } while (*best && (*best)->peak > limit);
    return PL_OK;
}

/* When none is left below the limit: the smallest one not yet seen that is within the budget. */
static candidate *smallest(pl_fit *f, uint64_t budget, const bool *seen)
{
    candidate *best = NULL;
    for (uint32_t i = 0; i < f->n_cand; i++) {
        candidate *c = &f->cand[i];
        if (seen[i] || !c->peak || c->peak > budget || is_over(c, budget)) continue;
        if (!best || (c->arena && !best->arena) ||
            (!c->arena == !best->arena && c->peak < best->peak))
            best = c;
    }
    return best;
}

/* Undoes recomputation at the fine steps of the core's budget, until some in a row are too much.
 * Below `sure` they are not looked at: plans of such core budgets are small enough. */
static pl_status fill_up(pl_fit *f, uint64_t budget, uint64_t sure, candidate *c)
{
    enum { PATIENCE = 4 };
    uint64_t step = f->core_keep_all / CLOSE + 1;
    int over = 0;
    for (uint64_t at = (c->asked / step + 1) * step; at < f->core_keep_all; at += step) {
        if (over >= PATIENCE || c->plan->n == f->core.n_units) break;
        candidate *next;
        PL_TRY(ask_core(f, &(candidate){.asked = at, .from = (uint32_t)(c - f->cand) + 1}, &next));
        if (!next) break;
        c = next;
        if (at < sure) continue;
        PL_TRY(measure(f, c));
        over = c->peak > budget ? over + 1 : 0;
    }
    return PL_OK;
}

/* The highest rung whose plan fits in truth. The first guess is right but for what other in-place reuse
 * save, which the next ones use. *c is NULL when the rung has no plan. */
static pl_status find_rung(pl_fit *f, uint64_t budget, uint64_t effort, uint64_t bound,
                           uint64_t *rung, candidate **c)
{
    enum { GUESSES = 3 };
    *rung = pl_recompute_rung(budget + f->shift, bound, f->core_keep_all, CLOSE);
    PL_TRY(ask_core(f, &(candidate){.asked = *rung, .effort = effort}, c));
    if (*c) PL_TRY(measure(f, *c));
    for (int i = 0; i < GUESSES && *c && (*c)->peak < budget; i++) {
        uint64_t up =
            pl_recompute_rung(*rung + (budget - (*c)->peak), bound, f->core_keep_all, CLOSE);
        candidate *next;
        if (up <= *rung) break;
        PL_TRY(ask_core(f, &(candidate){.asked = up, .effort = effort}, &next));
        if (next) PL_TRY(measure(f, next));
        if (!next || next->peak > budget) break;
        *rung = up;
        *c = next;
    }
    return PL_OK;
}

/* Candidates for a budget: from the rung below it, with search, from two close ones below and from
 * two far ones. Steps of cost are sharp where a few buffers have most of the bytes, so rungs are
 * close; chance is levelled by the far ones, which a whole range of budgets has in common. */
static pl_status climb(pl_fit *f, uint64_t budget, uint64_t effort)
{
    enum { STARTS = 5, NEAR = 2, FAR = 40 };
    uint64_t bound, rung, all = f->core_keep_all;
    uint32_t unit;
    candidate *c;
    PL_TRY(pl_recompute_bound(&f->core, &bound, &unit));
    PL_TRY(find_rung(f, budget, effort, bound, &rung, &c));
    uint64_t sure = rung;
    for (int i = 0; i < STARTS && c; i++) {
        PL_TRY(fill_up(f, budget, sure, c));
        uint32_t rungs = i < NEAR ? CLOSE : FAR;
        uint64_t below = all / (8 * rungs); /* less than the least distance of two rungs */
        if (i + 1 == STARTS || rung <= bound + below) break;
        rung = pl_recompute_rung(rung - below, bound, all, rungs);
        PL_TRY(ask_core(f, &(candidate){.asked = rung}, &c));
    }
    return PL_OK;
}

/* The cheapest candidate that stays within the budget with offsets and all; NULL: none does.
 * Offsets of some thousand buffers take a second, and where they leave gaps they do so for all
 * candidates alike: after some that were too large only those are looked at that would fit with the
 * least gaps seen, then the smallest ones. What is known of a candidate counts as if it was found
 * out now, so the answer does not depend on what was asked before. */
static pl_status pack_cheapest(pl_fit *f, uint64_t budget, pl_fitted **out)
{
    enum { FREE = 2, LAST = 4 };
    bool seen[MAX_CANDIDATES] = {false};
    double gaps = 1e9; /* the least of arena / bytes alive */
    uint64_t limit = budget;
    *out = NULL;
    for (int tries = 0, last = 0; last < LAST; tries++) {
        candidate *c;
        PL_TRY(cheapest(f, limit, seen, &c));
        if (!c) {
            c = smallest(f, budget, seen);
            last++;
        }
        if (!c) return PL_OK;
        seen[c - f->cand] = true;
        if (!is_over(c, budget)) PL_TRY(keep_fitted(f, c, budget));
        if (c->arena <= budget) {
            *out = f->kept;
            f->kept = NULL;
            return PL_OK;
        }
        double over = (double)c->arena / (double)c->peak;
        if (over < gaps) gaps = over;
        if (tries >= FREE) limit = (uint64_t)((double)budget / gaps);
    }
    return PL_OK;
}

/* Of computing everything once. */
static double base_cost(const pl_fit *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->core.n_units; i++) sum += f->core.cost[i];
    return sum;
}

/* What the search for the minimum finds, filled up to the budget, and what budgets between the
 * minimum and this one find: chance may favour a smaller one, and near the minimum it decides most.
 */
static pl_status climb_from_least(pl_fit *f, uint64_t budget, uint64_t effort)
{
    /* on large problems climbing takes a while: only from the minimum itself */
    enum { SMALL = 1000, ANCHORS = 64 };
    uint64_t step = f->core.n_units <= SMALL ? f->minimum / ANCHORS + 1 : budget;
    candidate *c;
    for (uint64_t at = f->minimum; at < budget; at += step) PL_TRY(climb(f, at, effort));
    /* a cheap one, if it is as small */
    PL_TRY(ask_core(f, &(candidate){.asked = f->core_least}, &c));
    if (c) PL_TRY(fill_up(f, budget, 0, c));
    PL_TRY(shrink(f, &c));
    return c && c->peak <= budget ? fill_up(f, budget, 0, c) : PL_OK;
}

/* Near the smallest arena rungs are far from each other beside what they decide, and the plan of
 * the minimum is often cheaper than theirs. To know the minimum takes a while: a budget of more
 * than twice the bound whose plan computes little again is far from it. */
static pl_status looks_from_least(pl_fit *f, uint64_t budget, const pl_fitted *found, bool *look)
{
    enum { MUCH = 2, NEAR = 16 };
    /* the largest minimum that it is far from */
    uint64_t least, far = (budget - 1) / (NEAR + 1) * NEAR;
    *look = !found || budget / 2 <= f->bound || found->extra_ns * MUCH > base_cost(f);
    if (!*look) return PL_OK;
    PL_TRY(find_minimum(f, found ? far : 0, &least));
    *look = budget <= least + least / NEAR;
    return PL_OK;
}

pl_status pl_fit_takes(pl_fit *f, uint64_t arena_budget, uint64_t *bytes)
{
    pl_arena mem = PL_ARENA_INIT;
    uint64_t bound;
    uint32_t unit, *list;
    candidate *c = NULL;
    *bytes = 0;
    PL_TRY(pl_recompute_bound(&f->core, &bound, &unit));
    uint64_t rung = pl_recompute_rung(arena_budget + f->shift, bound, f->core_keep_all, CLOSE);
    if (rung) PL_TRY(ask_core(f, &(candidate){.asked = rung}, &c));
    if (!c) return PL_OK;
    pl_fitted *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    pl_status rc = list_of(f, c->plan, &mem, &list);
    if (rc == PL_OK) rc = expand_list(f->base, list, c->plan->n, t);
    if (rc == PL_OK) *bytes = pl_fitted_bytes(t);
    pl_fitted_free(t);
    pl_arena_release(&mem);
    return rc;
}

pl_status pl_fit_solve(pl_fit *f, uint64_t arena_budget, uint64_t effort, pl_fitted **out)
{
    bool look;
    if (arena_budget < f->bound) return refuse(f, arena_budget);
    PL_TRY(climb(f, arena_budget, effort));
    PL_TRY(pack_cheapest(f, arena_budget, out));
    pl_status rc = looks_from_least(f, arena_budget, *out, &look);
    if (rc == PL_OK && !look && *out) return PL_OK;
    pl_fitted_free(*out);
    *out = NULL;
    PL_TRY(rc);
    PL_TRY(climb_from_least(f, arena_budget, effort));
    PL_TRY(pack_cheapest(f, arena_budget, out));
    return *out ? PL_OK : refuse(f, arena_budget);
}
