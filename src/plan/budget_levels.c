/* budget_levels.c - plans that move values below the device, with or without recompute.
 *
 * A list of units (the keep-all order, or a list of the recompute planner) becomes a graph. For
 * each list, moves are scheduled (levels/level_plan.h) with several targets: a small target moves
 * more and leaves more room for fetching ahead. Every list is estimated with the budget as its
 * target, the fastest lists with smaller targets, too. The fastest options are planned, in order,
 * until one is within the budget and no other is estimated to be faster.
 *
 * The schedule estimates in-place reuse and gaps between buffers only roughly. So an option is
 * scheduled with a smaller target until the measured bytes fit. Where none of them does, the plan
 * with the smallest size is made, as for the minimum: no budget above the minimum is refused.
 *
 * Small programs have a separate search (budget_small.c); its plan wins where it is faster.
 *
 * Invariant: the plan was packed within the budget and passed pl_plan_check. The lists and most
 * targets do not depend on the budget, so a larger budget considers most of the plans that a
 * smaller budget considers. Cost: a question to the recompute planner for each list, without
 * search, an estimate for each option, some expansions and packings; for the minimum three
 * packings, and three for each of two lists where a level below the device is full.
 */
#include "base/sys.h"
#include "plan/budget_levels_int.h"

#include <math.h>
#include <string.h>

/* TARGETS: of an option that does not fit at first. RUNGS: targets of a list below the budget. */
enum { TARGETS = 6, RUNGS = 1 };

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

static pl_level_problem problem_of(const pl__levels_search *s, uint32_t list)
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

static pl_status schedule_once(pl__levels_search *s, uint32_t list, uint64_t target,
                               uint64_t budget, pl_expanded_plan *t, uint64_t *peak)
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

/* Returns the host memory of a plan where that counts. Of a list that is not packed the tables are
 * estimated from those of the keep-all plan. */
static uint64_t held_of(const pl__levels_search *s, const pl_expanded_plan *t)
{
    const pl_plan *all = s->f->base->keep_all;
    if (!s->f->counts) return 0;
    uint64_t tables = t->plan ? 0 : all->mem.total / (all->n_order + 1) * t->x->n_order;
    return pl_expanded_plan_bytes(t) + tables;
}

/* Returns the bytes that a budget leaves for the arena of a plan, at least 1. */
static uint64_t arena_left(const pl__levels_search *s, const pl_expanded_plan *t)
{
    uint64_t held = held_of(s, t);
    if (s->budget == UINT64_MAX) return s->budget;
    return s->budget > held ? s->budget - held : 1;
}

/* Returns by how many bytes an arena is too large for the budget. */
static uint64_t over_by(const pl__levels_search *s, const pl_expanded_plan *t, uint64_t arena)
{
    uint64_t left = arena_left(s, t);
    return arena > left ? arena - left : 0;
}

/* Predicts the time of a plan that is packed. */
static pl_status predict_placed(const pl__levels_search *s, pl_expanded_plan *t)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_level_times times = {0};
    double *cost = pl_arena_new(&mem, double, t->plan->n_order + 1);
    for (uint32_t i = 0; cost && i < t->plan->n_order; i++) {
        uint32_t unit = t->plan->order[i];
        if (t->x->units->unit[unit].kind != PL_UNIT_MOVE)
            cost[i] = s->f->base->cost_ns[t->x->base[unit]];
    }
    pl_status rc = cost ? pl_level_time_placed(t->x->g, t->x->units, t->plan, cost, s->levels, NULL,
                                               NULL, &times)
                        : PL_ERR_MEMORY;
    t->total_ns = times.total_ns;
    pl_arena_release(&mem);
    return rc;
}

/* Packs t, which then has its exact time; *over: how many bytes its arena is too large. */
static pl_status pack(const pl__levels_search *s, pl_expanded_plan *t, uint64_t *over)
{
    uint64_t left = s->enough ? s->enough : arena_left(s, t);
    t->opts.quick = true;
    t->opts.enough = left == UINT64_MAX ? UINT64_MAX / 2 : left;
    s->f->n_packed++;
    PL_TRY(pl_plan_make(t->x->g, t->x->units, &t->opts, &t->plan));
    PL_TRY(pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan));
    *over = over_by(s, t, t->plan->arena_bytes);
    PL_TRY(predict_placed(s, t));
    return pl__search_stopped(s->f);
}

/* Whether the values at every level are within its capacity. */
static bool levels_fit(const pl_level_opts *o, const pl_plan *p)
{
    for (int level = 1; level < PL_N_LEVELS; level++)
        if (p->level_bytes[level] > o->capacity[level]) return false;
    return true;
}

pl_status pl__levels_try_moves(pl__levels_search *s, const pl_expanded_plan *still,
                               const pl_list_move *moves, uint32_t n, uint64_t *over)
{
    pl_expanded_plan *t;
    uint64_t peak;
    *over = 0;
    PL_TRY(pl__levels_new_plan(&t));
    pl_status rc = add_moves(s->f->base, still, s->levels, moves, n, t);
    if (rc == PL_OK) rc = pl_plan_peak(t->x->g, t->x->units, &t->opts, &peak);
    if (rc == PL_OK) rc = predict(s->f->base, s->levels, t);
    bool faster = rc == PL_OK && (!s->best || t->total_ns < s->best->total_ns);
    if (faster) *over = over_by(s, t, peak);
    if (faster && !*over) rc = pack(s, t, over);
    bool good = rc == PL_OK && faster && !*over && levels_fit(s->levels, t->plan) &&
                (!s->best || t->total_ns < s->best->total_ns);
    pl__expanded_plan_free(good ? s->best : t);
    if (good) s->best = t;
    return rc;
}

/* The target falls with the budget. */
pl_status pl__levels_try_option(pl__levels_search *s, const pl__level_option *o)
{
    uint64_t budget = arena_left(s, s->still[o->list]), target = o->target;
    pl_status rc = PL_OK;
    for (int k = 0; k < TARGETS && rc == PL_OK; k++) {
        pl_expanded_plan *t;
        uint64_t peak, over = 0;
        PL_TRY(pl__levels_new_plan(&t));
        rc = schedule_once(s, o->list, target, budget, t, &peak);
        bool faster = rc == PL_OK && (!s->best || t->total_ns < s->best->total_ns);
        if (rc == PL_OK) over = over_by(s, t, peak);
        if (faster && !over) rc = pack(s, t, &over);
        bool good = rc == PL_OK && faster && !over && levels_fit(s->levels, t->plan) &&
                    (!s->best || t->total_ns < s->best->total_ns);
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

/* ---- options ------------------------------------------------------------------------------- */
static void keep_option(pl__levels_search *s, pl__level_option o)
{
    uint32_t at = s->n_options;
    while (at && s->option[at - 1].ns > o.ns) {
        s->option[at] = s->option[at - 1];
        at--;
    }
    s->option[at] = o;
    if (s->n_options < PL__LEVEL_KEPT) s->n_options++;
}

pl_status pl__levels_estimate(pl__levels_search *s, uint32_t list, uint64_t target,
                              pl__level_guess *out)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_level_problem p = problem_of(s, list);
    pl_list_move *moves;
    uint32_t n;
    uint64_t peak, budget = arena_left(s, s->still[list]);
    pl_level_times times = {0};
    if (target > budget) target = budget;
    pl_status rc =
        pl_level_schedule(&p, no_limit(target), no_limit(budget), &mem, &moves, &n, &peak);
    if (rc == PL_OK) rc = pl_level_estimate(&p, moves, n, NULL, NULL, &times);
    pl_arena_release(&mem);
    out->ns = rc == PL_OK && peak <= budget ? times.total_ns : HUGE_VAL;
    out->waits = out->ns == HUGE_VAL || times.wait_ns > times.total_ns / 1000;
    double units = times.total_ns - times.wait_ns;
    out->spare = list && !s->bare && out->ns < HUGE_VAL &&
                 units - s->asked_ns[list] > times.wait_ns + units / 1000;
    if (out->ns < HUGE_VAL && list != PL__LEVEL_MIXED)
        keep_option(s, (pl__level_option){list, target, s->bare, out->ns});
    return rc;
}

/* The known figures of a list. */
typedef struct known {
    double ns;
    bool bare;
} known;

/* Adds list k > 0 with or without further runs of cheap units. */
static pl_status add_list(pl__levels_search *s, uint32_t k, bool bare, double most, bool *added)
{
    s->bare = bare;
    return pl__levels_add_recompute(s, k, most, added);
}

/* Estimates a list with targets below the budget, as long as they are not slower twice. */
static pl_status estimate_rungs(pl__levels_search *s, uint32_t list, double best)
{
    pl__level_guess guess;
    int slower = 0;
    uint64_t rung = s->f->keep_all_bytes, budget = arena_left(s, s->still[list]);
    for (int k = 0; k < RUNGS && slower < 2;) {
        rung -= rung / 8;
        if (!rung) break;
        if (rung >= budget) continue;
        k++;
        PL_TRY(pl__levels_estimate(s, list, rung, &guess));
        slower = guess.ns >= best ? slower + 1 : 0;
        if (guess.ns < best) best = guess.ns;
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

/* Estimates list k; where its further runs of cheap units take longer than units wait, without
 * these runs, too. */
static pl_status estimate_list(pl__levels_search *s, uint32_t k, double most, bool *waits,
                               bool *added, known *out)
{
    pl__level_guess guess, bare = {.ns = HUGE_VAL};
    PL_TRY(add_list(s, k, false, most, added));
    if (!*added) return PL_OK;
    PL_TRY(pl__levels_estimate(s, k, s->budget, &guess));
    if (guess.spare) {
        PL_TRY(add_list(s, k, true, HUGE_VAL, added));
        PL_TRY(pl__levels_estimate(s, k, s->budget, &bare));
    }
    *waits = guess.waits && (!guess.spare || bare.waits);
    *out = bare.ns < guess.ns ? (known){bare.ns, true} : (known){guess.ns, false};
    pl__levels_free_graphs(s);
    return pl__search_stopped(s->f);
}

/* Estimates every list with the budget as its target. None is faster than its
 * units. The lists recompute more and more: after one that waits for no move all are slower. A
 * quick look leaves out lists that recompute much less than the fastest list of the look before. */
static pl_status estimate_lists(pl__levels_search *s, enum pl_checkpointing how,
                                known lists[PL__LEVEL_LISTS])
{
    /* less waiting than a CLOSE-th of a step is not worth recompute */
    enum { CLOSE_LISTS = 3, CLOSE = 100 };
    double least = units_ns(s->f);
    bool added = true, waits;
    pl__level_guess guess;
    PL_TRY(pl__levels_add_keep_all(s));
    PL_TRY(pl__levels_estimate(s, 0, s->budget, &guess));
    lists[0].ns = guess.ns;
    waits = guess.waits;
    if (how == PL_CHECKPOINT_OFF || s->levels->only_moves || s->budget == UINT64_MAX) return PL_OK;
    for (uint32_t k = 1; k < PL__LEVEL_LISTS && added && waits; k++) {
        double best = s->n_options ? s->option[0].ns : HUGE_VAL;
        if (s->quick && k + CLOSE_LISTS < s->f->fastest_list) continue;
        if (best <= least + least / CLOSE) break;
        PL_TRY(estimate_list(s, k, best, &waits, &added, &lists[k]));
    }
    return PL_OK;
}

/* Estimates all options: further targets only of lists that are nearly as fast as the fastest. */
static pl_status estimate_all(pl__levels_search *s, enum pl_checkpointing how)
{
    enum { NEAR = 16 };
    known list[PL__LEVEL_LISTS];
    uint64_t bound;
    bool added = true;
    for (int k = 0; k < PL__LEVEL_LISTS; k++) list[k] = (known){.ns = HUGE_VAL};
    PL_TRY(find_bound(s->f, s->levels, &bound));
    if (bound > s->budget) return PL_OK;
    PL_TRY(estimate_lists(s, how, list));
    double best = s->n_options ? s->option[0].ns : HUGE_VAL;
    for (uint32_t k = 0; k < PL__LEVEL_LISTS && s->budget != UINT64_MAX; k++) {
        if (list[k].ns == HUGE_VAL || list[k].ns > best + best / NEAR) continue;
        if (k) PL_TRY(add_list(s, k, list[k].bare, HUGE_VAL, &added));
        if (added) PL_TRY(estimate_rungs(s, k, list[k].ns));
        pl__levels_free_graphs(s);
    }
    return PL_OK;
}

static pl_status search(pl__levels_search *s, enum pl_checkpointing how)
{
    pl_status rc = estimate_all(s, how);
    uint32_t near = s->n_options ? s->option[0].list : 0;
    bool mixes = how != PL_CHECKPOINT_OFF && !s->levels->only_moves && s->n_options;
    for (uint32_t i = 0; i < s->n_options && rc == PL_OK; i++) {
        const pl__level_option *o = &s->option[i];
        bool added = true;
        if (s->best && o->ns >= s->best->total_ns) continue;
        if (!s->still[o->list] || s->bare != o->bare) {
            pl__levels_free_graphs(s);
            if (o->list) rc = add_list(s, o->list, o->bare, HUGE_VAL, &added);
        }
        if (rc == PL_OK && added) rc = pl__levels_try_option(s, o);
    }
    if (rc == PL_OK && mixes && s->budget != UINT64_MAX) rc = pl__levels_search_between(s, near);
    pl__levels_free_lists(s);
    return rc;
}

pl_status pl__search_levels_estimate(pl__search *f, const pl_level_opts *levels,
                                     enum pl_checkpointing how, uint64_t arena_budget, double *ns)
{
    pl__levels_search s = {.f = f, .levels = levels, .budget = arena_budget, .quick = true};
    pl_status rc = estimate_all(&s, how);
    *ns = s.n_options ? s.option[0].ns : HUGE_VAL;
    f->fastest_list = s.n_options ? s.option[0].list : 0;
    pl__levels_free_lists(&s);
    return rc;
}

/* ---- the smallest plan --------------------------------------------------------------------- */
static uint64_t size_of(const pl__levels_search *s, const pl_expanded_plan *t)
{
    return t ? t->plan->arena_bytes + held_of(s, t) : UINT64_MAX;
}

/* Whether the best plan ends the search for the smallest one. */
static bool is_within(const pl__levels_search *s)
{
    if (s->enough) return s->best && s->best->plan->arena_bytes <= s->enough;
    return size_of(s, s->best) <= s->budget;
}

/* Plans a list with a target, and keeps the plan if it is the smallest. */
static pl_status try_target(pl__levels_search *s, uint32_t list, uint64_t target)
{
    pl_expanded_plan *t;
    uint64_t peak, over, least = size_of(s, s->best);
    PL_TRY(pl__levels_new_plan(&t));
    pl_status rc = schedule_once(s, list, target, target, t, &peak);
    bool smaller = rc == PL_OK && peak < least;
    if (smaller) rc = pack(s, t, &over);
    smaller = smaller && rc == PL_OK && size_of(s, t) < least && levels_fit(s->levels, t->plan);
    pl__expanded_plan_free(smaller ? s->best : t);
    if (smaller) s->best = t;
    return rc;
}

/* Plans a list with targets below the bound: then everything leaves that can, fetches begin as late
 * as possible, and packing has most freedom. Keeps the smallest plan, and ends at one within the
 * budget. */
static pl_status try_tight(pl__levels_search *s, uint32_t list, uint64_t bound)
{
    const uint64_t target[] = {bound / 2 + 1, 1, bound / 4 * 3 + 1};
    for (size_t k = 0; k < sizeof target / sizeof *target && !is_within(s); k++)
        PL_TRY(try_target(s, list, target[k]));
    return PL_OK;
}

/* Whether the best plan is much larger than the bound: a level has no room for all that could
 * leave. */
static bool is_far(const pl__levels_search *s, uint64_t bound)
{
    return !s->best || s->best->plan->arena_bytes > bound + bound / 8;
}

/* Sets s->best to the smallest plan, or to the first one within the budget. Which plans are tried
 * does not depend on the budget, so a budget above the smallest plan always has a plan. An arena of
 * `enough` bytes above the bound needs fewer moves, and so a smaller graph. */
static pl_status find_smallest(pl__levels_search *s, enum pl_checkpointing how, uint64_t bound)
{
    enum { DEEP = 2 }; /* lists that recompute most */
    PL_TRY(pl__levels_add_keep_all(s));
    if (s->enough > 2 * bound) PL_TRY(try_target(s, 0, s->enough));
    PL_TRY(try_tight(s, 0, bound));
    bool any = how != PL_CHECKPOINT_OFF && !s->levels->only_moves;
    for (uint32_t k = PL__LEVEL_LISTS - 1, n = 0; any && k > 0 && n < DEEP; k--) {
        bool added;
        if (is_within(s) || !is_far(s, bound)) break;
        PL_TRY(pl__levels_add_recompute(s, k, HUGE_VAL, &added));
        if (added) PL_TRY(try_tight(s, k, bound));
        n += added;
        pl__levels_free_graphs(s);
    }
    return PL_OK;
}

/* The same, and frees the memory of the search. *far: see is_far. */
static pl_status smallest(pl__levels_search *s, enum pl_checkpointing how, uint64_t bound,
                          bool *far)
{
    pl_status rc = find_smallest(s, how, bound);
    pl__levels_free_lists(s);
    *far = is_far(s, bound);
    return rc;
}

/* ---- without moves -------------------------------------------------------------------------- */
/* Whether recompute alone may be faster than the best plan with moves: the quickest answer of the
 * recompute planner for about this budget takes at most twice as much longer than the units, which
 * is more than a search shortens it. */
static pl_status may_stay(pl__levels_search *s, bool *yes)
{
    pl__search *f = s->plain ? s->plain : s->f;
    uint64_t bound, rung;
    uint32_t unit;
    pl__candidate *c = NULL;
    PL_TRY(pl_recompute_bound(&f->problem, &bound, &unit));
    rung = pl_recompute_rung(s->budget + f->shift, bound, f->keep_all_bytes, PL__CLOSE_RUNGS);
    if (rung) PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = rung}, &c));
    double least = units_ns(f);
    *yes = c && (!s->best || c->plan->cost_ns - least < 2 * (s->best->total_ns - least));
    return PL_OK;
}

/* Replaces the best plan by a plan without moves, where that is faster. */
static pl_status stay(pl__levels_search *s, uint64_t effort)
{
    pl_expanded_plan *still;
    bool yes;
    PL_TRY(may_stay(s, &yes));
    if (!yes) return PL_OK;
    pl_status rc = pl__search_solve(s->plain ? s->plain : s->f, s->budget, effort, &still);
    if (rc == PL_ERR_FIT) return PL_OK;
    PL_TRY(rc);
    bool faster = !s->best || units_ns(s->f) + still->recompute_ns <= s->best->total_ns;
    pl__expanded_plan_free(faster ? s->best : still);
    if (faster) s->best = still;
    rc = pl__levels_search_above(s);
    pl__levels_free_lists(s);
    return rc;
}

/* Looks for any plan within the budget, where none of the fast ones is. */
static pl_status find_any(pl__levels_search *s, enum pl_checkpointing how, uint64_t effort)
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

pl_status pl__search_levels(pl__search *f, pl__search *plain, const pl_level_opts *levels,
                            enum pl_checkpointing how, uint64_t arena_budget, uint64_t effort,
                            pl_expanded_plan **out)
{
    pl__levels_search s = {.f = f,
                           .plain = plain,
                           .levels = levels,
                           .budget = arena_budget ? arena_budget : UINT64_MAX};
    if (!arena_budget || levels->only_moves) effort = 0;
    pl_status rc = search(&s, how);
    if (rc == PL_OK && how == PL_CHECKPOINT_AUTO && !levels->only_moves)
        rc = pl__levels_search_small(&s);
    if (rc == PL_OK && effort) rc = stay(&s, effort);
    if (rc == PL_OK && !s.best) rc = find_any(&s, how, effort);
    if (rc != PL_OK) {
        pl__expanded_plan_free(s.best);
        return rc;
    }
    PL_FAIL_IF(
        !s.best, PL_ERR_FIT,
        "no plan found for an arena of %llu bytes, with tensors moved to host memory or disk",
        (unsigned long long)arena_budget);
    *out = s.best;
    return PL_OK;
}

/* Where moves cannot free enough, recompute alone may need less. */
pl_status pl__search_levels_minimum(pl__search *f, const pl_level_opts *levels,
                                    enum pl_checkpointing how, bool stays, uint64_t enough,
                                    uint64_t *bytes, uint64_t *held)
{
    enum { NEAR = 400 };
    pl__levels_search s = {.f = f, .levels = levels, .budget = UINT64_MAX};
    uint64_t bound, alone = UINT64_MAX;
    bool far = false;
    PL_TRY(find_bound(f, levels, &bound));
    s.enough = bound + bound / NEAR + 1;
    if (s.enough < enough) s.enough = enough;
    pl_status rc = smallest(&s, how, bound, &far);
    *bytes = size_of(&s, s.best);
    *held = s.best ? held_of(&s, s.best) : 0;
    pl__expanded_plan_free(s.best);
    if (rc == PL_OK && far && stays) rc = pl__search_minimum(f, *bytes, &alone);
    if (alone < *bytes) {
        *bytes = alone;
        *held = f->minimum_held;
    }
    if (*bytes < bound) *bytes = bound; /* smaller budgets are not searched */
    PL_FAIL_IF(rc == PL_OK && *bytes == UINT64_MAX, PL_ERR_FIT,
               "host memory and disk have no room for the tensors that must leave the device");
    return rc;
}

pl_status pl__search_levels_bound(pl__search *f, const pl_level_opts *levels, uint64_t *bytes)
{
    return find_bound(f, levels, bytes);
}
