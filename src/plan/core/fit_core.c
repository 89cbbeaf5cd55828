/* fit_core.c - the problem as the recomputation planner sees it; see fit.c.
 *
 * Units and buffers of the keep-all plan, in its order, less what it knows nothing of: outputs
 * that take over the bytes of inputs are told to it as less scratch.
 */
#include "plan/core/fit_int.h"
#include "plan/core/segment.h"

/* ---- the problem as the core sees it ---------------------------------------------------- */
/* A unit that makes a slot's new value over the old one which it reads. */
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

static pl_status describe_buffers(pl_fit *f)
{
    const pl_problem *q = &f->q;
    uint64_t *bytes = pl_arena_new(&f->mem, uint64_t, q->n_buffers + 1);
    uint8_t *flags = pl_arena_new(&f->mem, uint8_t, q->n_buffers + 1);
    if (!bytes || !flags) return PL_ERR_MEMORY;
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        const pl_buffer *st = &q->buffer[s];
        bytes[s] = pl_buffer_arena_bytes(st);
        if (st->pinned) flags[s] = PL_RECOMPUTE_END;
        if (bytes[s] == 0) flags[s] = PL_RECOMPUTE_PINNED; /* a slot's memory, or nothing */
    }
    for (uint32_t i = 0; i < q->n_assigns; i++)
        flags[q->buffer_of[q->assigns[i].val]] = PL_RECOMPUTE_PINNED;
    f->core.n_buffers = q->n_buffers;
    f->core.bytes = bytes;
    f->core.buffer_flags = flags;
    return PL_OK;
}

/* The rows of some units as one list, in the order of the keep-all plan. */
static pl_status list_rows(pl_fit *f, const pl_rows *rows, const uint32_t **at,
                           const uint32_t **list)
{
    uint32_t n = f->q.n_units, k = 0;
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

/* Bytes that each unit's outputs take over from its inputs when everything is kept. */
static pl_status find_credit(pl_fit *f, uint64_t *credit)
{
    const pl_problem *q = &f->q;
    pl_life life;
    PL_TRY(pl_life_new(q, &f->mem, &life));
    pl_life_replay(q, f->unit_at, UINT64_MAX, &life);
    for (uint32_t s = 0; s < q->n_buffers; s++) {
        if (life.owner[s] == s || q->buffer[s].producer == PL_NONE) continue;
        uint64_t *c = &credit[q->buffer[s].producer];
        *c += pl_buffer_arena_bytes(&q->buffer[s]);
        if (*c > f->shift) f->shift = *c;
    }
    return PL_OK;
}

static pl_status describe_units(pl_fit *f)
{
    const pl_problem *q = &f->q;
    uint32_t n = q->n_units;
    double *cost = pl_arena_new(&f->mem, double, n + 1);
    uint64_t *work = pl_arena_new(&f->mem, uint64_t, n + 1);
    uint64_t *credit = pl_arena_new(&f->mem, uint64_t, n + 1);
    uint8_t *flags = pl_arena_new(&f->mem, uint8_t, n + 1);
    f->unit_at = pl_arena_new(&f->mem, uint32_t, n + 1);
    if (!cost || !work || !credit || !flags || !f->unit_at) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) f->unit_at[i] = q->unit_number[f->base->keep_all->order[i]];
    PL_TRY(find_credit(f, credit));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t t = f->unit_at[i];
        cost[i] = f->base->cost_ns[q->unit_id[t]];
        work[i] = q->work[t] + f->shift - credit[t];
        if (updates_in_place(q, t)) flags[i] = PL_RECOMPUTE_ONCE;
    }
    f->core.n_units = n;
    f->core.cost = cost;
    f->core.work_bytes = work;
    f->core.unit_flags = flags;
    PL_TRY(list_rows(f, &q->reads, &f->core.in_at, &f->core.in));
    return list_rows(f, &q->writes, &f->core.out_at, &f->core.out);
}

/* The model's own segments compete with what the core finds, so nothing found is worse. */
static pl_status seed_segments(pl_fit *f)
{
    const pl_fit_base *b = f->base;
    const pl_plan *all = b->keep_all;
    uint32_t *list, n;
    uint32_t *unit_of = pl_arena_new(&f->mem, uint32_t, b->units->n + 1);
    if (!unit_of) return PL_ERR_MEMORY;
    PL_TRY(pl_segment_list(b->g, b->units, all->order, all->n_order, &f->mem, &list, &n));
    if (n == all->n_order) return PL_OK;
    for (uint32_t i = 0; i < all->n_order; i++) unit_of[all->order[i]] = i;
    for (uint32_t i = 0; i < n; i++) {
        list[i] = unit_of[list[i]];
        /* the core refuses to repeat what must run once: then this is no seed */
        if (i && (f->core.unit_flags[list[i]] & PL_RECOMPUTE_ONCE))
            for (uint32_t k = 0; k < i; k++)
                if (list[k] == list[i]) return PL_OK;
    }
    f->marked = (pl_recompute_plan){.n = n, .unit = list, .strategy = "marked segments"};
    return PL_OK;
}

/* ---- the lower bound -------------------------------------------------------------------- */
/* Bytes of the arena without which a unit cannot run: all it reads and writes, less what an output
 * may take over from an input, and its scratch. */
static uint64_t unit_need(const pl_problem *q, uint32_t t)
{
    uint64_t need = q->work[t];
    for (uint32_t e = q->reads.start[t]; e < q->reads.start[t + 1]; e++)
        need += pl_buffer_arena_bytes(&q->buffer[q->reads.list[e]]);
    for (uint32_t k = 0; k < q->n_joins; k++) /* what may be a part of the result */
        if (q->joins[k].unit == t) need -= pl_buffer_arena_bytes(&q->buffer[q->joins[k].in]);
    for (uint32_t w = q->writes.start[t]; w < q->writes.start[t + 1]; w++) {
        uint32_t s = q->writes.list[w];
        bool takes = false;
        for (uint32_t k = q->in_place_start[t]; k < q->in_place_start[t + 1]; k++)
            takes |= q->in_place[k].out == s;
        if (!takes) need += pl_buffer_arena_bytes(&q->buffer[s]);
    }
    return need;
}

static void find_bound(pl_fit *f)
{
    const pl_problem *q = &f->q;
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

pl_status pl__fit_describe(pl_fit *f)
{
    PL_TRY(pl_problem_build(&f->q, &f->mem));
    PL_TRY(pl_problem_slots(&f->q, &f->mem));
    PL_TRY(pl_join_list(&f->q, &f->mem));
    PL_TRY(describe_buffers(f));
    PL_TRY(describe_units(f));
    PL_TRY(seed_segments(f));
    find_bound(f);
    return pl_recompute_keep_all(&f->core, &f->core_keep_all);
}
