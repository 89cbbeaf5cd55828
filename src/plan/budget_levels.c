/* budget_levels.c - plans that move values below the device, with or without recompute.
 *
 * A list of units (the keep-all order, or a list of the recompute planner) becomes a graph, the
 * moves for it are scheduled (levels/level_plan.h), and the graph with its moves is measured: bytes
 * alive at once, and predicted time with waiting. Lists with less recompute than the budget needs
 * compete with each other: moves do the rest. The fastest list whose bytes are within the budget is
 * packed.
 *
 * The schedule knows in-place reuse and gaps between buffers only roughly. So it is asked for a
 * smaller target until the measured bytes fit.
 *
 * Invariant: the plan was packed within the budget and passed pl_plan_check. The lists do not
 * depend on the budget, so a larger budget considers all that a smaller one does. Cost: LISTS
 * questions to the recompute planner without search, some expansions for each, one packing.
 */
#include "base/sys.h"
#include "plan/budget_int.h"

enum { LISTS = 6, TARGETS = 6 };

typedef struct levels_search {
    pl__search *f;
    const pl_level_opts *levels;
    uint64_t budget; /* UINT64_MAX: no limit */
    pl_expanded_plan *best;
} levels_search;

/* ---- one list ----------------------------------------------------------------------------- */
/* Makes the graph with moves of a graph without; its units become runs of the base's units. */
static pl_status add_moves(const pl_budget_base *b, const pl_expanded_plan *still,
                           const pl_level_opts *levels, const pl_list_move *moves, uint32_t n,
                           pl_expanded_plan *t)
{
    const pl_expansion *x = still->x;
    PL_TRY(pl_expand_moves(x->g, x->units, x->order, x->n_order, moves, n, levels->homes, &t->x));
    for (uint32_t i = 0; i < t->x->units->n; i++) {
        uint32_t of = t->x->base[i];
        t->x->recomputed[i] = of < x->units->n && x->recomputed[of];
        t->x->base[i] = of < x->units->n ? x->base[of] : b->units->n;
    }
    PL_TRY(pl__expanded_opts(b, t));
    t->opts.homes = levels->homes;
    return PL_OK;
}

/* Predicts the time of a graph with moves, before it is packed. */
static pl_status predict(const pl_budget_base *b, const pl_level_opts *levels, pl_expanded_plan *t)
{
    const pl_expansion *x = t->x;
    pl_arena mem = PL_ARENA_INIT;
    pl_level_times times = {0};
    pl_plan p = {.n_order = x->n_order, .moves = pl_arena_new(&mem, pl_move, x->n_order + 1)};
    double *cost = pl_arena_new(&mem, double, x->n_order + 1);
    for (uint32_t i = 0; p.moves && cost && i < x->n_order; i++) {
        const pl_unit *u = &x->units->unit[x->order[i]];
        if (u->kind != PL_UNIT_MOVE) {
            cost[i] = b->cost_ns[x->base[x->order[i]]];
            continue;
        }
        uint8_t from = x->units->level[u->in[0]], to = x->units->level[u->out[0]];
        p.moves[p.n_moves++] = (pl_move){.begin = (int32_t)i,
                                         .end = (int32_t)x->move_end[x->order[i]],
                                         .channel = (uint8_t)pl_channel_between(from, to),
                                         .bytes = pl_stored_bytes(x->g, x->units->bits, u->in[0])};
    }
    pl_status rc =
        p.moves && cost ? pl_level_time(&p, cost, levels, NULL, NULL, &times) : PL_ERR_MEMORY;
    t->total_ns = times.total_ns;
    pl_arena_release(&mem);
    return rc;
}

static pl_status schedule_once(levels_search *s, const pl_expanded_plan *still, const double *cost,
                               uint64_t target, pl_expanded_plan *t, uint64_t *peak)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_list_move *moves;
    uint32_t n;
    pl_level_problem p = {.g = still->x->g,
                          .units = still->x->units,
                          .opts = &still->opts,
                          .n = still->x->n_order,
                          .cost_ns = cost,
                          .levels = s->levels};
    pl_status rc = pl_level_schedule(&p, target == UINT64_MAX ? 0 : target, &mem, &moves, &n);
    if (rc == PL_OK) rc = add_moves(s->f->base, still, s->levels, moves, n, t);
    pl_arena_release(&mem);
    if (rc == PL_OK) rc = pl_plan_peak(t->x->g, t->x->units, &t->opts, peak);
    return rc == PL_OK ? predict(s->f->base, s->levels, t) : rc;
}

static pl_status new_plan(pl_expanded_plan **out)
{
    *out = pl_sys_alloc(sizeof **out);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

/* Packs t; *over: how many bytes its arena is too large. */
static pl_status pack(const levels_search *s, pl_expanded_plan *t, uint64_t *over)
{
    t->opts.quick = true;
    t->opts.enough = s->budget == UINT64_MAX ? UINT64_MAX / 2 : s->budget;
    s->f->n_packed++;
    PL_TRY(pl_plan_make(t->x->g, t->x->units, &t->opts, &t->plan));
    PL_TRY(pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan));
    *over = t->plan->arena_bytes > s->budget ? t->plan->arena_bytes - s->budget : 0;
    return pl__search_stopped(s->f);
}

/* Whether the values at every level are within its capacity. */
static bool levels_fit(const pl_level_opts *o, const pl_plan *p)
{
    for (int level = 1; level < PL_N_LEVELS; level++)
        if (p->level_bytes[level] > o->capacity[level]) return false;
    return true;
}

/* Schedules moves for a graph without moves, asks for less until it fits, and keeps the plan if it
 * is faster than the best. */
static pl_status try_graph(levels_search *s, const pl_expanded_plan *still)
{
    const pl_expansion *x = still->x;
    pl_arena mem = PL_ARENA_INIT;
    double *cost = pl_arena_new(&mem, double, x->units->n + 1);
    uint64_t target = s->budget;
    pl_status rc = cost ? PL_OK : PL_ERR_MEMORY;
    for (uint32_t i = 0; cost && i < x->units->n; i++) cost[i] = s->f->base->cost_ns[x->base[i]];
    for (int k = 0; k < TARGETS && rc == PL_OK; k++) {
        pl_expanded_plan *t;
        uint64_t peak, over = 0;
        rc = new_plan(&t);
        if (rc != PL_OK) break;
        rc = schedule_once(s, still, cost, target, t, &peak);
        bool faster = rc == PL_OK && (!s->best || t->total_ns < s->best->total_ns);
        if (rc == PL_OK && peak > s->budget) over = peak - s->budget;
        if (faster && !over) rc = pack(s, t, &over);
        bool good = rc == PL_OK && faster && !over && levels_fit(s->levels, t->plan);
        if (good) {
            pl__expanded_plan_free(s->best);
            s->best = t;
        } else {
            pl__expanded_plan_free(t);
        }
        over += over / 8;
        if (!over || over >= target) break;
        target -= over;
    }
    pl_arena_release(&mem);
    return rc;
}

static pl_status try_list(levels_search *s, const uint32_t *list, uint32_t n)
{
    pl_expanded_plan *still;
    PL_TRY(new_plan(&still));
    pl_status rc = pl__expand_list(s->f->base, list, n, still);
    if (rc == PL_OK) rc = try_graph(s, still);
    pl__expanded_plan_free(still);
    return rc;
}

/* The keep-all order needs no expansion of its own. */
static pl_status try_keep_all(levels_search *s)
{
    const pl_budget_base *b = s->f->base;
    pl_arena mem = PL_ARENA_INIT;
    pl_expansion x = {.g = (pl_graph *)(uintptr_t)b->g, /* only read */
                      .units = (pl_units *)(uintptr_t)b->units,
                      .base = pl_arena_new(&mem, uint32_t, b->units->n + 1),
                      .recomputed = pl_arena_new(&mem, bool, b->units->n + 1),
                      .order = b->keep_all->order,
                      .n_order = b->keep_all->n_order};
    pl_expanded_plan still = {.x = &x, .opts = *b->opts};
    still.opts.fixed_order = x.order;
    pl_status rc = x.base && x.recomputed ? PL_OK : PL_ERR_MEMORY;
    for (uint32_t i = 0; rc == PL_OK && i < b->units->n; i++) x.base[i] = i;
    if (rc == PL_OK) rc = try_graph(s, &still);
    pl_arena_release(&mem);
    return rc;
}

/* ---- all lists ---------------------------------------------------------------------------- */
/* Tries lists that recompute, the longest last: none is faster than its units. */
static pl_status try_recompute(levels_search *s)
{
    pl__search *f = s->f;
    for (uint32_t k = LISTS; k-- > 1;) {
        pl__candidate *c;
        uint64_t asked = f->keep_all_bytes / LISTS * k;
        if (asked < f->bound) break;
        PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = asked}, &c));
        if (!c || (s->best && c->plan->cost_ns >= s->best->total_ns)) break;
        pl_arena mem = PL_ARENA_INIT;
        uint32_t *list;
        pl_status rc = pl__list_units(f, c->plan, &mem, &list);
        if (rc == PL_OK) rc = try_list(s, list, c->plan->n);
        pl_arena_release(&mem);
        PL_TRY(rc);
    }
    return PL_OK;
}

static double units_ns(const pl__search *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->problem.n_units; i++) sum += f->problem.cost[i];
    return sum;
}

/* Sets a lower bound of the arena for every list: values that leave the arena whenever they are not
 * used need least. A list with recompute has the same units, so it needs as much. */
static pl_status find_bound(const pl__search *f, const pl_level_opts *levels, uint64_t *bytes)
{
    const pl_budget_base *b = f->base;
    pl_plan_opts opts = *b->opts;
    opts.fixed_order = b->keep_all->order;
    pl_level_problem p = {.g = b->g,
                          .units = b->units,
                          .opts = &opts,
                          .n = b->keep_all->n_order,
                          .cost_ns = b->cost_ns,
                          .levels = levels};
    return pl_level_bound(&p, bytes);
}

static pl_status search(levels_search *s, enum pl_checkpointing how)
{
    enum { CLOSE = 100 }; /* less waiting than this share of a step is not worth recompute */
    double least = units_ns(s->f);
    uint64_t bound;
    PL_TRY(find_bound(s->f, s->levels, &bound));
    if (bound > s->budget) return PL_OK;
    PL_TRY(try_keep_all(s));
    if (how == PL_CHECKPOINT_OFF || s->levels->only_moves || s->budget == UINT64_MAX) return PL_OK;
    if (s->best && s->best->total_ns <= least + least / CLOSE) return PL_OK;
    return try_recompute(s);
}

/* Whether recompute alone may be faster than the best plan with moves: the quickest answer of the
 * recompute planner for about this budget is. */
static pl_status may_stay(levels_search *s, bool *yes)
{
    pl__search *f = s->f;
    uint64_t bound, rung;
    uint32_t unit;
    pl__candidate *c = NULL;
    PL_TRY(pl_recompute_bound(&f->problem, &bound, &unit));
    rung = pl_recompute_rung(s->budget + f->shift, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
    if (rung) PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = rung}, &c));
    *yes = c && (!s->best || c->plan->cost_ns < s->best->total_ns);
    return PL_OK;
}

/* Replaces the best plan by a plan without moves, where that is faster. */
static pl_status stay(levels_search *s, uint64_t effort)
{
    pl_expanded_plan *still;
    bool yes;
    PL_TRY(may_stay(s, &yes));
    if (!yes) return PL_OK;
    pl_status rc = pl__search_solve(s->f, s->budget, effort, &still);
    if (rc == PL_ERR_FIT) return PL_OK;
    PL_TRY(rc);
    bool faster = !s->best || units_ns(s->f) + still->recompute_ns <= s->best->total_ns;
    pl__expanded_plan_free(faster ? s->best : still);
    if (faster) s->best = still;
    return PL_OK;
}

pl_status pl__search_levels(pl__search *f, const pl_level_opts *levels, enum pl_checkpointing how,
                            uint64_t arena_budget, uint64_t effort, pl_expanded_plan **out)
{
    levels_search s = {
        .f = f, .levels = levels, .budget = arena_budget ? arena_budget : UINT64_MAX};
    pl_status rc = search(&s, how);
    if (rc == PL_OK && effort && arena_budget && !levels->only_moves) rc = stay(&s, effort);
    if (rc != PL_OK) {
        pl__expanded_plan_free(s.best);
        return rc;
    }
    PL_FAIL_IF(!s.best, PL_ERR_FIT,
               "no plan found for an arena of %llu bytes, with values below the device",
               (unsigned long long)arena_budget);
    *out = s.best;
    return PL_OK;
}

/* Whether a plan with moves alone is found for a budget. */
static pl_status is_found(levels_search *s, uint64_t budget, bool *found)
{
    s->budget = budget;
    pl_status rc = search(s, PL_CHECKPOINT_OFF);
    *found = rc == PL_OK && s->best;
    pl__expanded_plan_free(s->best);
    s->best = NULL;
    return rc;
}

/* Halves the distance to the bound; lists that recompute hardly need less than moves do. The answer
 * is a budget that was tried, so pl__search_levels finds a plan for it. */
pl_status pl__search_levels_minimum(pl__search *f, const pl_level_opts *levels,
                                    uint64_t *arena_bytes)
{
    enum { HALVES = 7, DOUBLES = 8 };
    levels_search s = {.f = f, .levels = levels};
    uint64_t lo, hi;
    bool found = false;
    PL_TRY(find_bound(f, levels, &lo));
    hi = lo + lo / 64; /* the bound is often reached */
    for (int i = 0; i < DOUBLES && !found; i++) {
        if (i) lo = hi, hi += hi / 2;
        PL_TRY(is_found(&s, hi, &found));
    }
    for (int i = 0; i < HALVES && found && hi > lo + hi / 64; i++) {
        bool half;
        uint64_t mid = lo + (hi - lo) / 2;
        PL_TRY(is_found(&s, mid, &half));
        *(half ? &hi : &lo) = mid;
    }
    *arena_bytes = hi;
    return PL_OK;
}
