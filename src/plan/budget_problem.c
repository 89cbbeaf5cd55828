/* budget_problem.c - a program as the recompute planner sees it, and the lower bound of its arena.
 *
 * Units and buffers of the keep-all plan, in its order. Two things differ from the real plan:
 *
 * In place. The recompute planner gives each output its own bytes. An output that is in place in
 * the keep-all plan is modelled as scratch that is smaller by the reused bytes. Scratch cannot be
 * negative, so all scratch and all budgets are larger by one constant, f->shift. In-place reuse
 * that depends on the list is visible only in the true peak (budget_search.c).
 *
 * Slots. A unit that writes a slot's new value over the old one runs once; a value assigned to a
 * slot is never dropped. If a recomputed unit reads an old value after the update, the new value
 * must live in the arena: the true peak counts that.
 *
 * The bound: inputs exist before the first unit, and each unit needs the buffers that it reads and
 * writes. Cost: linear in units, reads and writes, plus one replay of the keep-all order.
 */
#include "plan/budget_int.h"
#include "plan/core/segment.h"

/* Whether the unit writes a slot's new value over the old value that it reads. */
static bool updates_in_place(const pl_problem *q, uint32_t unit)
{
    for (uint32_t w = q->writes.start[unit]; w < q->writes.start[unit + 1]; w++) {
        int32_t slot = q->buffer[q->writes.list[w]].direct;
        if (slot < 0 || q->old_of_slot[slot] == PL_NONE) continue;
        for (uint32_t e = q->reads.start[unit]; e < q->reads.start[unit + 1]; e++)
            if (q->reads.list[e] == q->old_of_slot[slot]) return true;
    }
    return false;
}

static pl_status describe_buffers(pl__search *f)
{
    const pl_problem *q = &f->units;
    uint64_t *bytes = pl_arena_new(&f->mem, uint64_t, q->n_buffers + 1);
    uint8_t *flags = pl_arena_new(&f->mem, uint8_t, q->n_buffers + 1);
    if (!bytes || !flags) return PL_ERR_MEMORY;
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        const pl_buffer *b = &q->buffer[s];
        bytes[s] = pl_buffer_arena_bytes(b);
        if (b->pinned) flags[s] = PL_RECOMPUTE_END;
        if (bytes[s] == 0) flags[s] = PL_RECOMPUTE_PINNED; /* a slot's memory, or nothing */
    }
    for (uint32_t i = 0; i < q->n_assigns; i++)
        flags[q->buffer_of[q->assigns[i].val]] = PL_RECOMPUTE_PINNED;
    f->problem.n_buffers = q->n_buffers;
    f->problem.bytes = bytes;
    f->problem.buffer_flags = flags;
    return PL_OK;
}

/* Whether the unit only writes slots, or next to nothing: an update, or a part of the gradients'
 * norm. */
static bool is_end(const pl_problem *q, uint32_t t)
{
    enum { LITTLE = 4096 };
    uint32_t from = q->writes.start[t], to = q->writes.start[t + 1];
    for (uint32_t w = from; w < to; w++) {
        const pl_buffer *b = &q->buffer[q->writes.list[w]];
        if (b->direct < 0 && b->bytes > LITTLE) return false;
    }
    return to > from;
}

/* Whether the unit works for such units alone: a gradient that is cast for its update. */
static bool works_for_ends(const pl_problem *q, uint32_t t)
{
    uint32_t n = 0;
    for (uint32_t w = q->writes.start[t]; w < q->writes.start[t + 1]; w++) {
        uint32_t s = q->writes.list[w];
        for (uint32_t e = q->readers.start[s]; e < q->readers.start[s + 1]; e++, n++)
            if (!is_end(q, q->readers.list[e])) return false;
    }
    return n != 0;
}

/* Fills early[unit]: whether the unit runs as soon as it can. */
static void find_early(const pl_problem *q, bool *early)
{
    for (uint32_t t = 0; t < q->n_units; t++) early[t] = is_end(q, t) || works_for_ends(q, t);
}

/* Sets f->order: the keep-all order or, where values may leave the device, the same order with
 * every such unit where it can run first. Keep-all orders gather updates for one launch; with moves
 * an early update frees its gradient and gives the channels work. */
static pl_status find_order(pl__search *f)
{
    const pl_problem *q = &f->units;
    const uint32_t *list = f->base->keep_all->order;
    uint32_t n = q->n_units;
    uint32_t *after = pl_arena_new(&f->mem, uint32_t, n + 1); /* per unit: entries before it */
    uint32_t *start = pl_arena_new(&f->mem, uint32_t, n + 2);
    bool *early = pl_arena_new(&f->mem, bool, n + 1);
    f->order = pl_arena_new(&f->mem, uint32_t, n + 1);
    if (!after || !start || !early || !f->order) return PL_ERR_MEMORY;
    if (f->spread) find_early(q, early);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = q->unit_number[list[i]];
        after[t] = early[t] ? 0 : i + 1;
        for (uint32_t e = q->preds.start[t]; early[t] && e < q->preds.start[t + 1]; e++)
            if (after[q->preds.list[e]] > after[t]) after[t] = after[q->preds.list[e]];
        start[after[t] + 1]++;
    }
    for (uint32_t i = 1; i <= n + 1; i++) start[i] += start[i - 1];
    for (int ends = 0; ends < 2; ends++) /* a unit, then the units that were moved behind it */
        for (uint32_t i = 0; i < n; i++) {
            uint32_t t = q->unit_number[list[i]];
            if (early[t] == (ends != 0)) f->order[start[after[t]]++] = list[i];
        }
    return PL_OK;
}

/* Concatenates the rows of all units, in the order of the keep-all plan. */
static pl_status list_rows(pl__search *f, const pl_plan_rows *rows, const uint32_t **at,
                           const uint32_t **list)
{
    uint32_t n = f->units.n_units, k = 0;
    uint32_t *start = pl_arena_new(&f->mem, uint32_t, n + 2);
    uint32_t *all = pl_arena_new(&f->mem, uint32_t, rows->start[n] + 1);
    if (!start || !all) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = f->unit_at[i];
        for (uint32_t e = rows->start[t]; e < rows->start[t + 1]; e++) all[k++] = rows->list[e];
        start[i + 1] = k;
    }
    *at = start;
    *list = all;
    return PL_OK;
}

/* Counts the bytes of inputs that each unit's outputs reuse in place, in the keep-all plan. */
static pl_status find_reused(pl__search *f, uint64_t *reused)
{
    const pl_problem *q = &f->units;
    pl_life life;
    PL_TRY(pl_life_new(q, &f->mem, &life));
    pl_life_replay(q, f->unit_at, UINT64_MAX, &life);
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        if (life.owner[s] == s || q->buffer[s].producer == PL_NONE) continue;
        uint64_t *c = &reused[q->buffer[s].producer];
        *c += pl_buffer_arena_bytes(&q->buffer[s]);
        if (*c > f->shift) f->shift = *c;
    }
    return PL_OK;
}

static pl_status describe_units(pl__search *f)
{
    const pl_problem *q = &f->units;
    uint32_t n = q->n_units;
    double *cost = pl_arena_new(&f->mem, double, n + 1);
    uint64_t *work = pl_arena_new(&f->mem, uint64_t, n + 1);
    uint64_t *reused = pl_arena_new(&f->mem, uint64_t, n + 1);
    uint8_t *flags = pl_arena_new(&f->mem, uint8_t, n + 1);
    f->unit_at = pl_arena_new(&f->mem, uint32_t, n + 1);
    if (!cost || !work || !reused || !flags || !f->unit_at) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) f->unit_at[i] = q->unit_number[f->order[i]];
    PL_TRY(find_reused(f, reused));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = f->unit_at[i];
        cost[i] = f->base->cost_ns[q->unit_id[t]];
        work[i] = q->work[t] + f->shift - reused[t];
        if (updates_in_place(q, t)) flags[i] = PL_RECOMPUTE_ONCE;
    }
    f->problem.n_units = n;
    f->problem.cost = cost;
    f->problem.work_bytes = work;
    f->problem.unit_flags = flags;
    PL_TRY(list_rows(f, &q->reads, &f->problem.in_at, &f->problem.in));
    return list_rows(f, &q->writes, &f->problem.out_at, &f->problem.out);
}

/* The segments that the model marks compete with the lists of the recompute planner, so no plan is
 * worse than running the segments. */
static pl_status seed_segments(pl__search *f)
{
    const pl_budget_base *b = f->base;
    const pl_plan *all = b->keep_all;
    uint32_t *list, n;
    uint32_t *unit_of = pl_arena_new(&f->mem, uint32_t, b->units->n + 1);
    if (!unit_of) return PL_ERR_MEMORY;
    PL_TRY(pl_segment_list(b->g, b->units, f->order, all->n_order, &f->mem, &list, &n));
    if (n == all->n_order) return PL_OK;
    for (uint32_t i = 0; i < all->n_order; i++) unit_of[f->order[i]] = i;
    for (uint32_t i = 0; i < n; i++) {
        list[i] = unit_of[list[i]];
        /* the recompute planner refuses to repeat a unit that must run once: no seed then */
        if (i && (f->problem.unit_flags[list[i]] & PL_RECOMPUTE_ONCE))
            for (uint32_t k = 0; k < i; k++)
                if (list[k] == list[i]) return PL_OK;
    }
    f->marked = (pl_recompute_plan){.n = n, .unit = list, .strategy = "marked segments"};
    return PL_OK;
}

/* Returns the arena bytes without which a unit cannot run: everything it reads and writes plus its
 * scratch, minus outputs that may be in place and inputs that may be a part of the output. */
static uint64_t unit_need(const pl_problem *q, uint32_t t)
{
    uint64_t need = q->work[t];
    for (uint32_t e = q->reads.start[t]; e < q->reads.start[t + 1]; e++)
        need += pl_buffer_arena_bytes(&q->buffer[q->reads.list[e]]);
    for (uint32_t k = 0; k < q->n_joins; k++) /* parts of a concat's result */
        if (q->joins[k].unit == t) need -= pl_buffer_arena_bytes(&q->buffer[q->joins[k].in]);
    for (uint32_t w = q->writes.start[t]; w < q->writes.start[t + 1]; w++) {
        uint32_t s = q->writes.list[w];
        bool in_place = false;
        for (uint32_t k = q->in_place_start[t]; k < q->in_place_start[t + 1]; k++)
            in_place |= q->in_place[k].out == s;
        if (!in_place) need += pl_buffer_arena_bytes(&q->buffer[s]);
    }
    return need;
}

static void find_bound(pl__search *f)
{
    const pl_problem *q = &f->units;
    f->bound = 0;
    f->bound_unit = PL_NO_UNIT;
    for (uint32_t s = 0; s < q->n_buffers; s++)
        if (q->buffer[s].producer == PL_NONE) f->bound += pl_buffer_arena_bytes(&q->buffer[s]);
    for (uint32_t t = 0; t < q->n_units; t++) {
        uint64_t need = unit_need(q, t);
        if (need <= f->bound) continue;
        f->bound = need;
        f->bound_unit = q->unit_id[t];
    }
}

pl_status pl__search_describe(pl__search *f)
{
    PL_TRY(pl_problem_build(&f->units, &f->mem));
    PL_TRY(pl_problem_slots(&f->units, &f->mem));
    PL_TRY(pl_join_list(&f->units, &f->mem));
    PL_TRY(find_order(f));
    PL_TRY(describe_buffers(f));
    PL_TRY(describe_units(f));
    PL_TRY(seed_segments(f));
    find_bound(f);
    return pl_recompute_keep_all(&f->problem, &f->keep_all_bytes);
}
