/* budget_levels.c - plans that move values below the device, with or without recompute.
 *
 * A list of units (the keep-all order, or a list of the recompute planner) becomes a graph. For
 * each list, moves are scheduled (levels/level_plan.h) with several targets: a small target moves
 * more and leaves more room for fetching ahead. Every list is estimated with the budget as its
 * target, the fastest lists with smaller targets, too. The fastest options are planned, in order,
 * until one is within the budget and no other is estimated to be faster.
 *
 * The schedule knows in-place reuse and gaps between buffers only roughly. So an option is
 * scheduled with a smaller target until the measured bytes fit. Where none of them does, the plan
 * with the smallest arena is made, as for the minimum: no budget above the minimum is refused.
 *
 * Invariant: the plan was packed within the budget and passed pl_plan_check. The lists and most
 * targets do not depend on the budget, so a larger budget considers most of what a smaller one
 * does. Cost: LISTS questions to the recompute planner without search, an estimate for each option,
 * some expansions and packings; for the minimum three packings, and three for each of two lists
 * where a level below the device is full.
 */
#include "base/sys.h"
#include "plan/budget_int.h"

#include <math.h>
#include <string.h>

/* LISTS: with the keep-all order. RUNGS: targets of a list below the budget. KEPT: options that may
 * be planned. */
enum { LISTS = 12, RUNGS = 1, KEPT = 6, TARGETS = 6 };

typedef struct option {
    uint32_t list;
    uint64_t target;
    double ns; /* estimated */
} option;

typedef struct levels_search {
    pl__search *f;
    const pl_level_opts *levels;
    uint64_t budget; /* UINT64_MAX: no limit */
    bool quick;      /* only estimates */
    pl_expanded_plan *best;
    pl_arena mem;
    /* Graphs without moves; 0: the keep-all order. Of the others one at a time: their memory counts
     * on the host. */
    pl_expanded_plan *still[LISTS];
    double *cost[LISTS];     /* per unit of the graph */
    uint32_t n_lists;        /* lists after this one do not exist */
    option option[KEPT + 1]; /* fastest first */
    uint32_t n_options;
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
    uint32_t *number = pl_arena_new(&mem, uint32_t, x->units->n + 1); /* of a move, plus 1 */
    for (uint32_t i = 0; p.moves && cost && number && i < x->n_order; i++) {
        const pl_unit *u = &x->units->unit[x->order[i]];
        if (u->kind != PL_UNIT_MOVE) {
            cost[i] = b->cost_ns[x->base[x->order[i]]];
            continue;
        }
        uint8_t from = x->units->level[u->in[0]], to = x->units->level[u->out[0]];
        uint32_t made_by = x->units->unit_of[u->in[0]];
        p.moves[p.n_moves++] = (pl_move){.begin = (int32_t)i,
                                         .from = from,
                                         .to = to,
                                         .after = made_by ? number[made_by - 1] : 0,
                                         .end = (int32_t)x->move_end[x->order[i]],
                                         .channel = (uint8_t)pl_channel_between(from, to),
                                         .bytes = pl_stored_bytes(x->g, x->units->bits, u->in[0])};
        number[x->order[i]] = p.n_moves;
    }
    pl_status rc = p.moves && cost && number ? pl_level_time(&p, cost, levels, NULL, NULL, &times)
                                             : PL_ERR_MEMORY;
    t->total_ns = times.total_ns;
    pl_arena_release(&mem);
    return rc;
}

static pl_level_problem problem_of(const levels_search *s, uint32_t list)
{
    const pl_expanded_plan *still = s->still[list];
    return (pl_level_problem){.g = still->x->g,
                              .units = still->x->units,
                              .opts = &still->opts,
                              .n = still->x->n_order,
                              .cost_ns = s->cost[list],
                              .levels = s->levels};
}

static uint64_t no_limit(uint64_t bytes)
{
    return bytes == UINT64_MAX ? 0 : bytes;
}

static pl_status schedule_once(levels_search *s, uint32_t list, uint64_t target, uint64_t budget,
                               pl_expanded_plan *t, uint64_t *peak)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_list_move *moves;
    uint32_t n;
    pl_level_problem p = problem_of(s, list);
    pl_status rc =
        pl_level_schedule(&p, no_limit(target), no_limit(budget), &mem, &moves, &n, peak);
    if (rc == PL_OK) rc = add_moves(s->f->base, s->still[list], s->levels, moves, n, t);
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

/* Plans an option, asks for less until it fits, and keeps the plan if it is faster than the best.
 * The target falls with the budget. */
static pl_status try_option(levels_search *s, const option *o)
{
    uint64_t budget = s->budget, target = o->target;
    pl_status rc = PL_OK;
    for (int k = 0; k < TARGETS && rc == PL_OK; k++) {
        pl_expanded_plan *t;
        uint64_t peak, over = 0;
        PL_TRY(new_plan(&t));
        rc = schedule_once(s, o->list, target, budget, t, &peak);
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
        budget -= over;
        if (target > budget) target = budget;
    }
    return rc;
}

/* ---- lists ---------------------------------------------------------------------------------- */
/* Adds a graph as a list; its units are runs of the base's units. */
static pl_status add_graph(levels_search *s, uint32_t list, pl_expanded_plan *still)
{
    const pl_expansion *x = still->x;
    double *cost = s->cost[list];
    if (!cost) cost = pl_arena_new(&s->mem, double, x->units->n + 1);
    s->still[list] = still;
    s->cost[list] = cost;
    if (list >= s->n_lists) s->n_lists = list + 1;
    for (uint32_t i = 0; cost && i < x->units->n; i++) cost[i] = s->f->base->cost_ns[x->base[i]];
    return cost ? PL_OK : PL_ERR_MEMORY;
}

/* The keep-all order needs no expansion of its own. */
static pl_status add_keep_all(levels_search *s)
{
    const pl_budget_base *b = s->f->base;
    pl_expansion *x = pl_arena_new(&s->mem, pl_expansion, 1);
    pl_expanded_plan *still = pl_arena_new(&s->mem, pl_expanded_plan, 1);
    if (!x || !still) return PL_ERR_MEMORY;
    *x = (pl_expansion){.g = (pl_graph *)(uintptr_t)b->g, /* only read */
                        .units = (pl_units *)(uintptr_t)b->units,
                        .base = pl_arena_new(&s->mem, uint32_t, b->units->n + 1),
                        .recomputed = pl_arena_new(&s->mem, bool, b->units->n + 1),
                        .order = s->f->order,
                        .n_order = b->keep_all->n_order};
    *still = (pl_expanded_plan){.x = x, .opts = *b->opts};
    still->opts.fixed_order = x->order;
    if (!x->base || !x->recomputed) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < b->units->n; i++) x->base[i] = i;
    return add_graph(s, 0, still);
}

/* Makes the graph of a list of the recompute planner: with further runs that cost less than moves,
 * and with updates where the old values are not read later. */
static pl_status expand_asked(const levels_search *s, const pl_recompute_plan *plan,
                              pl_expanded_plan *still)
{
    const pl_budget_base *b = s->f->base;
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list, n = plan->n;
    pl_plan_opts opts = *b->opts;
    pl_level_problem p = {.g = b->g,
                          .units = b->units,
                          .opts = &opts,
                          .n = n,
                          .cost_ns = b->cost_ns,
                          .levels = s->levels};
    pl_status rc = pl__list_units(s->f, plan, &mem, &list);
    opts.fixed_order = list;
    if (rc == PL_OK) rc = pl_level_repeat_cheap(&p, &mem, &list, &n);
    if (rc == PL_OK) rc = pl_level_delay_updates(b->g, b->units, list, n);
    if (rc == PL_OK) rc = pl__expand_list(b, list, n, still);
    pl_arena_release(&mem);
    return rc;
}

/* Adds list k of the recompute planner: a budget of the keep-all bytes that is smaller by a sixth
 * from list to list, the last ones by a third. *added: there is one, and its units take less than
 * `most`. */
static pl_status add_recompute(levels_search *s, uint32_t k, double most, bool *added)
{
    pl__search *f = s->f;
    pl__candidate *c = NULL;
    pl_expanded_plan *still;
    uint64_t asked = f->keep_all_bytes;
    for (uint32_t i = 0; i < k; i++) asked -= asked / (i < 9 ? 6 : 3);
    *added = false;
    if (asked >= f->bound) PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = asked}, &c));
    if (!c || c->plan->cost_ns >= most) return PL_OK;
    PL_TRY(new_plan(&still));
    pl_status rc = expand_asked(s, c->plan, still);
    if (rc != PL_OK) {
        pl__expanded_plan_free(still);
        return rc;
    }
    *added = true;
    return add_graph(s, k, still);
}

/* Frees the graphs of all lists that recompute. */
static void free_graphs(levels_search *s)
{
    for (uint32_t i = 1; i < LISTS; i++) {
        pl__expanded_plan_free(s->still[i]);
        s->still[i] = NULL;
    }
}

static void free_lists(levels_search *s)
{
    free_graphs(s);
    pl_arena_release(&s->mem);
    memset(s->cost, 0, sizeof s->cost);
    s->n_lists = s->n_options = 0;
}

/* ---- options ------------------------------------------------------------------------------- */
static void keep_option(levels_search *s, option o)
{
    uint32_t at = s->n_options;
    while (at && s->option[at - 1].ns > o.ns) {
        s->option[at] = s->option[at - 1];
        at--;
    }
    s->option[at] = o;
    if (s->n_options < KEPT) s->n_options++;
}

/* Estimates one option; *ns is HUGE_VAL where it does not fit. *waits: units wait for moves. */
static pl_status estimate(levels_search *s, uint32_t list, uint64_t target, double *ns, bool *waits)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_level_problem p = problem_of(s, list);
    pl_list_move *moves;
    uint32_t n;
    uint64_t peak;
    pl_level_times times = {0};
    pl_status rc =
        pl_level_schedule(&p, no_limit(target), no_limit(s->budget), &mem, &moves, &n, &peak);
    if (rc == PL_OK) rc = pl_level_estimate(&p, moves, n, NULL, NULL, &times);
    pl_arena_release(&mem);
    *ns = rc == PL_OK && peak <= s->budget ? times.total_ns : HUGE_VAL;
    *waits = *ns == HUGE_VAL || times.wait_ns > times.total_ns / 1000;
    if (*ns < HUGE_VAL) keep_option(s, (option){list, target, *ns});
    return rc;
}

/* Estimates a list with targets below the budget, as long as they are not slower twice. */
static pl_status estimate_rungs(levels_search *s, uint32_t list, double best)
{
    double ns;
    bool waits;
    int slower = 0;
    uint64_t rung = s->f->keep_all_bytes;
    for (int k = 0; k < RUNGS && slower < 2;) {
        rung -= rung / 8;
        if (!rung) break;
        if (rung >= s->budget) continue;
        k++;
        PL_TRY(estimate(s, list, rung, &ns, &waits));
        slower = ns >= best ? slower + 1 : 0;
        if (ns < best) best = ns;
    }
    return pl__search_stopped(s->f);
}

/* ---- all lists ---------------------------------------------------------------------------- */
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
    opts.fixed_order = f->order;
    pl_level_problem p = {.g = b->g,
                          .units = b->units,
                          .opts = &opts,
                          .n = b->keep_all->n_order,
                          .cost_ns = b->cost_ns,
                          .levels = levels};
    return pl_level_bound(&p, bytes);
}

/* Estimates every list with the budget as its target; ns: filled per list. None is faster than its
 * units. The lists recompute more and more: after one that waits for no move all are slower. A
 * quick look leaves out lists that recompute much less than the fastest list of the look before. */
static pl_status estimate_lists(levels_search *s, enum pl_checkpointing how, double ns[LISTS])
{
    /* less waiting than a CLOSE-th of a step is not worth recompute */
    enum { CLOSE_LISTS = 3, CLOSE = 100 };
    double least = units_ns(s->f);
    bool added = true, waits = true;
    PL_TRY(add_keep_all(s));
    PL_TRY(estimate(s, 0, s->budget, &ns[0], &waits));
    if (how == PL_CHECKPOINT_OFF || s->levels->only_moves || s->budget == UINT64_MAX) return PL_OK;
    for (uint32_t k = 1; k < LISTS && added && waits; k++) {
        double best = s->n_options ? s->option[0].ns : HUGE_VAL;
        if (s->quick && k + CLOSE_LISTS < s->f->fastest_list) continue;
        if (best <= least + least / CLOSE) break;
        PL_TRY(add_recompute(s, k, best, &added));
        if (added) PL_TRY(estimate(s, k, s->budget, &ns[k], &waits));
        free_graphs(s);
        PL_TRY(pl__search_stopped(s->f));
    }
    return PL_OK;
}

/* Estimates all options: further targets only of lists that are nearly as fast as the fastest. */
static pl_status estimate_all(levels_search *s, enum pl_checkpointing how)
{
    enum { NEAR = 16 };
    double ns[LISTS];
    uint64_t bound;
    bool added = true;
    for (int k = 0; k < LISTS; k++) ns[k] = HUGE_VAL;
    PL_TRY(find_bound(s->f, s->levels, &bound));
    if (bound > s->budget) return PL_OK;
    PL_TRY(estimate_lists(s, how, ns));
    double best = s->n_options ? s->option[0].ns : HUGE_VAL;
    for (uint32_t k = 0; k < LISTS && s->budget != UINT64_MAX; k++) {
        if (ns[k] == HUGE_VAL || ns[k] > best + best / NEAR) continue;
        if (k) PL_TRY(add_recompute(s, k, HUGE_VAL, &added));
        if (added) PL_TRY(estimate_rungs(s, k, ns[k]));
        free_graphs(s);
    }
    return PL_OK;
}

static pl_status search(levels_search *s, enum pl_checkpointing how)
{
    pl_status rc = estimate_all(s, how);
    for (uint32_t i = 0; i < s->n_options && rc == PL_OK; i++) {
        const option *o = &s->option[i];
        bool added = true;
        if (s->best && o->ns >= s->best->total_ns) continue;
        if (!s->still[o->list]) {
            free_graphs(s);
            rc = add_recompute(s, o->list, HUGE_VAL, &added);
        }
        if (rc == PL_OK && added) rc = try_option(s, o);
    }
    free_lists(s);
    return rc;
}

pl_status pl__search_levels_estimate(pl__search *f, const pl_level_opts *levels,
                                     enum pl_checkpointing how, uint64_t arena_budget, double *ns)
{
    levels_search s = {.f = f, .levels = levels, .budget = arena_budget, .quick = true};
    pl_status rc = estimate_all(&s, how);
    *ns = s.n_options ? s.option[0].ns : HUGE_VAL;
    f->fastest_list = s.n_options ? s.option[0].list : 0;
    free_lists(&s);
    return rc;
}

/* ---- the smallest plan --------------------------------------------------------------------- */
/* Whether the best plan is within the budget. */
static bool is_within(const levels_search *s)
{
    return s->best && s->best->plan->arena_bytes <= s->budget;
}

/* Plans a list with targets below the bound: then everything leaves that can, fetches begin as late
 * as possible, and packing has most freedom. Keeps the plan with the smallest arena, and ends at
 * one within the budget. */
static pl_status try_tight(levels_search *s, uint32_t list, uint64_t bound)
{
    const uint64_t target[] = {bound / 2 + 1, 1, bound / 4 * 3 + 1};
    for (size_t k = 0; k < sizeof target / sizeof *target && !is_within(s); k++) {
        pl_expanded_plan *t;
        uint64_t peak, over, least = s->best ? s->best->plan->arena_bytes : UINT64_MAX;
        PL_TRY(new_plan(&t));
        pl_status rc = schedule_once(s, list, target[k], target[k], t, &peak);
        bool smaller = rc == PL_OK && peak < least;
        if (smaller) rc = pack(s, t, &over);
        smaller = smaller && rc == PL_OK && t->plan->arena_bytes < least &&
                  levels_fit(s->levels, t->plan);
        pl__expanded_plan_free(smaller ? s->best : t);
        if (smaller) s->best = t;
        PL_TRY(rc);
    }
    return PL_OK;
}

/* Whether the best plan is much larger than the bound: a level has no room for all that could
 * leave. */
static bool is_far(const levels_search *s, uint64_t bound)
{
    return !s->best || s->best->plan->arena_bytes > bound + bound / 8;
}

/* Sets s->best to the plan with the smallest arena, or to the first one within the budget. Nothing
 * else depends on the budget, so a budget above the smallest arena always has a plan. */
static pl_status find_smallest(levels_search *s, enum pl_checkpointing how, uint64_t bound)
{
    enum { DEEP = 2 }; /* lists that recompute most */
    PL_TRY(add_keep_all(s));
    PL_TRY(try_tight(s, 0, bound));
    bool any = how != PL_CHECKPOINT_OFF && !s->levels->only_moves;
    for (uint32_t k = LISTS - 1, n = 0; any && k > 0 && n < DEEP; k--) {
        bool added;
        if (is_within(s) || !is_far(s, bound)) break;
        PL_TRY(add_recompute(s, k, HUGE_VAL, &added));
        if (added) PL_TRY(try_tight(s, k, bound));
        n += added;
        free_graphs(s);
    }
    return PL_OK;
}

/* The same, and frees what the search held. *far: see is_far. */
static pl_status smallest(levels_search *s, enum pl_checkpointing how, uint64_t bound, bool *far)
{
    pl_status rc = find_smallest(s, how, bound);
    free_lists(s);
    *far = is_far(s, bound);
    return rc;
}

/* ---- without moves -------------------------------------------------------------------------- */
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

/* Looks for any plan within the budget, where none of the fast ones is. */
static pl_status find_any(levels_search *s, enum pl_checkpointing how, uint64_t effort)
{
    uint64_t bound;
    bool far;
    PL_TRY(find_bound(s->f, s->levels, &bound));
    if (bound > s->budget) return PL_OK;
    PL_TRY(smallest(s, how, bound, &far));
    if (is_within(s)) return PL_OK;
    pl__expanded_plan_free(s->best);
    s->best = NULL;
    pl_status rc = far && effort ? pl__search_solve(s->f, s->budget, effort, &s->best) : PL_ERR_FIT;
    return rc == PL_ERR_FIT ? PL_OK : rc;
}

pl_status pl__search_levels(pl__search *f, const pl_level_opts *levels, enum pl_checkpointing how,
                            uint64_t arena_budget, uint64_t effort, pl_expanded_plan **out)
{
    levels_search s = {
        .f = f, .levels = levels, .budget = arena_budget ? arena_budget : UINT64_MAX};
    if (!arena_budget || levels->only_moves) effort = 0;
    pl_status rc = search(&s, how);
    if (rc == PL_OK && effort) rc = stay(&s, effort);
    if (rc == PL_OK && !s.best) rc = find_any(&s, how, effort);
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

/* Where moves cannot free enough, recompute alone may need less. */
pl_status pl__search_levels_minimum(pl__search *f, const pl_level_opts *levels,
                                    enum pl_checkpointing how, bool stays, uint64_t *arena_bytes,
                                    uint64_t *held)
{
    enum { NEAR = 400 };
    levels_search s = {.f = f, .levels = levels};
    uint64_t bound, alone = UINT64_MAX;
    bool far = false;
    PL_TRY(find_bound(f, levels, &bound));
    s.budget = bound + bound / NEAR;
    pl_status rc = smallest(&s, how, bound, &far);
    *arena_bytes = s.best ? s.best->plan->arena_bytes : UINT64_MAX;
    *held = pl_expanded_plan_bytes(s.best);
    pl__expanded_plan_free(s.best);
    if (rc == PL_OK && far && stays) rc = pl__search_minimum(f, *arena_bytes, &alone);
    if (alone < *arena_bytes) {
        *arena_bytes = alone;
        *held = f->minimum_held;
    }
    if (*arena_bytes < bound) *arena_bytes = bound; /* smaller budgets are not searched */
    PL_FAIL_IF(rc == PL_OK && *arena_bytes == UINT64_MAX, PL_ERR_FIT,
               "the levels below the device have no room for the values that must leave it");
    return rc;
}

pl_status pl__search_levels_bound(pl__search *f, const pl_level_opts *levels, uint64_t *bytes)
{
    return find_bound(f, levels, bytes);
}
