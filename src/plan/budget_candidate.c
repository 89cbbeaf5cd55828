/* budget_candidate.c - candidates: lists of units with repeats, and the known figures of each.
 *
 * The recompute planner answers a question (its budget, effort, start) with a list, which becomes a
 * candidate. A candidate has three figures, each more expensive to compute than the previous
 * figure:
 *
 *   cost    of running the list: known at once
 *   peak    bytes alive at once, in-place reuse included: expand and replay (milliseconds)
 *   arena   height after packing: make and check the plan (up to a second)
 *
 * Invariant: an answer depends on the question only, never on earlier questions, so every process
 * that asks the same finds the same plan. Cost: a question is asked once, its answer is kept.
 */
#include "base/asked.h"
#include "base/sys.h"
#include "plan/budget_int.h"

const pl__pack_limits pl__no_limits = {0, 0, false};

/* ---- from a list to a plan -------------------------------------------------------------- */
void pl__expanded_plan_free(pl_expanded_plan *t)
{
    if (!t) return;
    pl_plan_free(t->plan);
    pl_expansion_free(t->x);
    pl_sys_free(t);
}

uint64_t pl_expanded_plan_bytes(const pl_expanded_plan *t)
{
    if (!t) return 0;
    uint64_t bytes = sizeof *t + sizeof *t->x + t->x->mem.total + pl_graph_bytes(t->x->g);
    bytes += sizeof *t->x->units + t->x->units->arena.total;
    return bytes + (t->plan ? sizeof *t->plan + t->plan->mem.total : 0);
}

pl_status pl__expanded_opts(const pl_budget_base *b, pl_expanded_plan *t)
{
    const pl_units *us = t->x->units;
    t->base = b;
    t->opts = *b->opts;
    t->opts.fixed_order = t->x->order;
    t->work_bytes = pl_arena_new(&t->x->mem, uint64_t, us->n + 1);
    const bool **inplace = pl_arena_new(&t->x->mem, const bool *, us->n + 1);
    if (!t->work_bytes || !inplace) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < us->n; i++) {
        uint32_t unit = t->x->base[i];
        if (us->unit[i].kind == PL_UNIT_MOVE) continue;
        if (b->opts->inplace) inplace[i] = b->opts->inplace[unit];
        if (b->opts->work_bytes) t->work_bytes[i] = b->opts->work_bytes[unit];
        if (t->x->recomputed[i] && us->unit[i].kind != PL_UNIT_VIEW)
            t->recompute_ns += b->cost_ns[unit];
    }
    t->opts.work_bytes = t->work_bytes;
    t->opts.inplace = inplace;
    t->opts.move_end = t->x->move_end;
    return PL_OK;
}

pl_status pl__expand_list(const pl_budget_base *b, const uint32_t *list, uint32_t n,
                          pl_expanded_plan *t)
{
    PL_TRY(pl_expand(b->g, b->units, list, n, &t->x));
    return pl__expanded_opts(b, t);
}

/* What a list needs: bytes alive at once, and host memory of its graph. */
typedef struct list_needs {
    uint64_t peak, graph;
} list_needs;

/* With needs: measures the list only. Without: makes the plan. */
static pl_status new_plan(const pl_budget_base *b, const uint32_t *list, uint32_t n,
                          const pl__pack_limits *limit, list_needs *needs, pl_expanded_plan **out)
{
    pl_expanded_plan *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    pl_status rc = pl__expand_list(b, list, n, t);
    t->opts.enough = limit->enough;
    t->opts.fits = limit->fits;
    t->opts.quick |= limit->rough;
    if (rc == PL_OK && needs) {
        needs->graph = pl_expanded_plan_bytes(t);
        rc = pl_plan_peak(t->x->g, t->x->units, &t->opts, &needs->peak);
    }
    if (rc == PL_OK && !needs) rc = pl_plan_make(t->x->g, t->x->units, &t->opts, &t->plan);
    if (rc != PL_OK || !out) {
        pl__expanded_plan_free(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

pl_status pl__plan_of_list(const pl_budget_base *base, const uint32_t *list, uint32_t n,
                           pl_expanded_plan **out)
{
    return new_plan(base, list, n, &pl__no_limits, NULL, out);
}

pl_status pl__list_units(pl__search *f, const pl_recompute_plan *plan, pl_arena *mem,
                         uint32_t **out)
{
    *out = pl_arena_new(mem, uint32_t, plan->n + 1);
    if (!*out) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < plan->n; i++) (*out)[i] = f->units.unit_id[f->unit_at[plan->unit[i]]];
    return PL_OK;
}

/* ---- candidates ------------------------------------------------------------------------- */
/* Sets c->held and c->peak. Estimates the plan's tables from the tables of the keep-all plan, in
 * proportion to the units: packing a list must not change its figures. */
pl_status pl__candidate_measure(pl__search *f, pl__candidate *c)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list;
    list_needs needs = {0};
    if (c->peak) return PL_OK;
    pl_status rc = pl__list_units(f, c->plan, &mem, &list);
    if (rc == PL_OK) rc = new_plan(f->base, list, c->plan->n, &pl__no_limits, &needs, NULL);
    pl_arena_release(&mem);
    PL_TRY(rc);
    uint64_t tables = f->base->keep_all->mem.total / (f->problem.n_units + 1) * (c->plan->n + 1);
    if (f->counts) c->held = needs.graph + tables;
    c->peak = needs.peak + c->held;
    return PL_OK;
}

pl_status pl__search_stopped(const pl__search *f)
{
    PL_FAIL_IF(pl_asked(f->base->opts->stop), PL_ERR_STOPPED, "planning was stopped");
    return PL_OK;
}

/* Host memory of a list, see pl_recompute_plan. */
static uint64_t list_bytes(const pl_recompute_plan *plan)
{
    return sizeof *plan + (2 * (uint64_t)plan->n + 2 + plan->drop_at[plan->n]) * sizeof *plan->unit;
}

/* Filling creates many lists; it ends when they take the memory that the caller allows. */
static bool is_full(const pl__search *f)
{
    return f->base->opts->host_bytes && f->candidate_bytes > f->base->opts->host_bytes;
}

bool pl__is_same_question(const pl__candidate *a, const pl__candidate *b)
{
    return a->asked == b->asked && a->effort == b->effort && a->filled_from == b->filled_from &&
           a->settings == b->settings && a->of_descent == b->of_descent && a->whole == b->whole;
}

pl_status pl__candidate_ask(pl__search *f, const pl__candidate *want, pl__candidate **found)
{
    enum { WHOLE_GRID = 250 }; /* units up to which every question runs the whole grid */
    pl__candidate c = *want;
    c.whole |= c.of_descent || f->problem.n_units <= WHOLE_GRID;
    const pl_recompute_plan *pool =
        want->filled_from ? f->candidates[want->filled_from - 1].plan : &f->marked;
    pl_recompute_opts o = PL_RECOMPUTE_OPTS_INIT;
    o.budget_bytes = want->asked;
    o.effort = want->effort;
    if (!c.whole) o.settings = want->settings;
    o.seed = f->base->opts->seed + 1;
    o.pool = &pool;
    o.n_pool = pool->n > 0;
    o.stop = f->base->opts->stop;
    o.off = PL_RECOMPUTE_NO_EXACT | PL_RECOMPUTE_NO_MINIMUM;
    if (want->filled_from) o.off |= PL_RECOMPUTE_NO_CHAIN | PL_RECOMPUTE_NO_SIM;
    if (want->of_descent) o.off |= PL_RECOMPUTE_NO_CHOICE | PL_RECOMPUTE_NO_FILL;
    if (!c.whole) o.off |= PL_RECOMPUTE_NO_WHOLE;
    if (!want->filled_from && !f->memo) PL_TRY(pl_recompute_memo_new(&f->memo));
    if (!want->filled_from) o.memo = f->memo;
    *found = NULL;
    for (uint32_t i = 0; i < f->n_candidates; i++) {
        if (!pl__is_same_question(&f->candidates[i], &c)) continue;
        *found = &f->candidates[i];
        (*found)->competes = true;
        return PL_OK;
    }
    for (uint32_t i = 0; i < f->n_failed; i++)
        if (pl__is_same_question(&f->failed[i], &c)) return PL_OK;
    if (f->n_candidates == PL__MAX_CANDIDATES || (want->filled_from && is_full(f))) return PL_OK;
    f->n_asked++;
    pl_status rc = pl_recompute_solve(&f->problem, &o, &c.plan), stopped = pl__search_stopped(f);
    if (stopped != PL_OK) {
        if (rc == PL_OK) pl_recompute_plan_free(c.plan);
        return stopped;
    }
    if (rc == PL_ERR_FIT) {
        if (f->n_failed < PL__MAX_FAILED) f->failed[f->n_failed++] = c;
        return PL_OK;
    }
    PL_TRY(rc);
    if (c.filled_from &&
        c.plan->cost_ns ==
            f->candidates[c.filled_from - 1].plan->cost_ns) { /* nothing was undone */
        pl_recompute_plan_free(c.plan);
        *found = &f->candidates[c.filled_from - 1];
        return PL_OK;
    }
    f->candidate_bytes += list_bytes(c.plan);
    c.competes = true;
    f->candidates[f->n_candidates] = c;
    *found = &f->candidates[f->n_candidates++];
    return PL_OK;
}

pl_status pl__candidate_pack(pl__search *f, const pl__candidate *c, const pl__pack_limits *limit,
                             pl_expanded_plan **out)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list;
    pl_expanded_plan *t = NULL;
    f->n_packed++;
    pl__pack_limits arena = {.enough = limit->enough > c->held ? limit->enough - c->held : 0,
                             .fits = limit->fits > c->held ? limit->fits - c->held : 0,
                             .rough = limit->rough};
    pl_status rc = pl__list_units(f, c->plan, &mem, &list);
    if (rc == PL_OK) rc = new_plan(f->base, list, c->plan->n, &arena, NULL, &t);
    pl_arena_release(&mem);
    if (rc == PL_OK) t->host_bytes = c->held;
    if (rc == PL_OK) rc = pl_plan_check(t->x->g, t->x->units, &t->opts, t->plan);
    if (rc == PL_OK) rc = pl__search_stopped(f);
    if (rc != PL_OK)
        pl__expanded_plan_free(t);
    else
        *out = t;
    return rc;
}

pl_status pl__candidate_keep(pl__search *f, pl__candidate *c, const pl__pack_limits *limit)
{
    uint32_t which = (uint32_t)(c - f->candidates) + 1;
    if (f->packed && f->packed_of == which && (!c->quick || c->arena <= limit->fits)) return PL_OK;
    pl__expanded_plan_free(f->packed);
    f->packed = NULL;
    PL_TRY(pl__candidate_measure(f, c));
    PL_TRY(pl__candidate_pack(f, c, limit, &f->packed));
    f->packed_of = which;
    c->arena = f->packed->plan->arena_bytes + c->held;
    c->quick = c->arena <= limit->fits;
    return PL_OK;
}
