/* recompute_check.c - a plan is accepted only if this replay can follow it.
 *
 * The replay stores, for each buffer, the serial number of its current copy (0: none) and, for each
 * view, the serial number of the base's copy that it was taken from. Bytes are added when a copy is
 * made and subtracted when it is dropped. Nothing is inferred: a buffer that the plan does not drop
 * stays and counts, so lifetimes that are too short or too long are both found.
 */
#include "plan/recompute/recompute_check.h"

#include "base/arena.h"

typedef struct replay {
    const pl_recompute_problem *p;
    const pl_recompute_plan *plan;
    uint32_t *copy;  /* of each buffer: serial of the current copy, 0 for none */
    uint32_t *taken; /* of each view: serial of its base's copy when it was computed */
    uint8_t *done;   /* of each unit: computed at least once */
    uint32_t serial, next_unit;
    uint64_t alive, peak;
    double cost;
} replay;

static bool is_view(const pl_recompute_problem *p, uint32_t b)
{
    return p->base && p->base[b] != PL_RECOMPUTE_NONE;
}

static unsigned flags_of(const pl_recompute_problem *p, uint32_t b)
{
    return p->buffer_flags ? p->buffer_flags[b] : 0;
}

/* A view of a view exists when each link of the chain does. */
static bool is_there(const replay *r, uint32_t b)
{
    while (is_view(r->p, b)) {
        uint32_t base = r->p->base[b];
        if (!r->copy[b] || r->taken[b] != r->copy[base]) return false;
        b = base;
    }
    return r->copy[b] != 0;
}

/* Buffers that no unit writes exist before the first position. */
static void set_start(replay *r, uint8_t *written)
{
    const pl_recompute_problem *p = r->p;
    for (uint32_t i = 0; i < p->out_at[p->n_units]; i++) written[p->out[i]] = 1;
    for (uint32_t b = 0; b < p->n_buffers; b++) {
        if (written[b] || is_view(p, b)) continue;
        r->copy[b] = ++r->serial;
        r->alive += p->bytes[b];
    }
}

static pl_status check_unit(replay *r, uint32_t k, uint32_t unit)
{
    const pl_recompute_problem *p = r->p;
    PL_FAIL_IF(unit >= p->n_units, PL_ERR_PLAN, "position %u: unit %u does not exist", k, unit);
    if (!r->done[unit]) {
        PL_FAIL_IF(unit != r->next_unit, PL_ERR_PLAN,
                   "position %u: unit %u runs for the first time before unit %u", k, unit,
                   r->next_unit);
        r->next_unit++;
    } else {
        PL_FAIL_IF(p->unit_flags && p->unit_flags[unit] & PL_RECOMPUTE_ONCE, PL_ERR_PLAN,
                   "position %u: unit %u must not be recomputed", k, unit);
    }
    r->done[unit] = 1;
    for (uint32_t i = p->in_at[unit]; i < p->in_at[unit + 1]; i++)
        PL_FAIL_IF(!is_there(r, p->in[i]), PL_ERR_PLAN,
                   "position %u: unit %u reads buffer %u, which is not alive", k, unit, p->in[i]);
    return PL_OK;
}

/* Writes the outputs of a position: existing copies are replaced in their own bytes, except pinned
 * ones, which remain the same copy. */
static void write_outputs(replay *r, uint32_t unit)
{
    const pl_recompute_problem *p = r->p;
    for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
        uint32_t b = p->out[i];
        if (r->copy[b] && !is_view(p, b) && flags_of(p, b) & PL_RECOMPUTE_PINNED) continue;
        if (is_view(p, b)) {
            r->taken[b] = r->copy[p->base[b]];
        } else if (!r->copy[b]) {
            r->alive += p->bytes[b];
        }
        r->copy[b] = ++r->serial;
    }
    uint64_t now = r->alive + (p->work_bytes ? p->work_bytes[unit] : 0);
    if (now > r->peak) r->peak = now;
    r->cost += p->cost[unit];
}

static pl_status drop_dead(replay *r, uint32_t k)
{
    const pl_recompute_problem *p = r->p;
    for (uint32_t i = r->plan->drop_at[k]; i < r->plan->drop_at[k + 1]; i++) {
        uint32_t b = r->plan->drop[i];
        PL_FAIL_IF(b >= p->n_buffers || is_view(p, b), PL_ERR_PLAN,
                   "position %u drops %u, which is not a buffer", k, b);
        PL_FAIL_IF(!r->copy[b], PL_ERR_PLAN, "position %u drops buffer %u twice", k, b);
        PL_FAIL_IF(flags_of(p, b) & PL_RECOMPUTE_PINNED, PL_ERR_PLAN,
                   "position %u drops buffer %u, which is pinned", k, b);
        r->copy[b] = 0;
        r->alive -= p->bytes[b];
    }
    return PL_OK;
}

static pl_status check_totals(const replay *r, uint64_t budget)
{
    const pl_recompute_problem *p = r->p;
    const pl_recompute_plan *plan = r->plan;
    PL_FAIL_IF(r->next_unit != p->n_units, PL_ERR_PLAN, "unit %u is never computed", r->next_unit);
    for (uint32_t b = 0; b < p->n_buffers; b++)
        PL_FAIL_IF(flags_of(p, b) & PL_RECOMPUTE_END && !is_there(r, b), PL_ERR_PLAN,
                   "buffer %u is not alive at the end", b);
    PL_FAIL_IF(r->peak != plan->peak_bytes, PL_ERR_PLAN,
               "the plan states a peak of %llu bytes, its replay has %llu",
               (unsigned long long)plan->peak_bytes, (unsigned long long)r->peak);
    PL_FAIL_IF(r->peak > budget, PL_ERR_PLAN, "the peak of %llu bytes exceeds the budget of %llu",
               (unsigned long long)r->peak, (unsigned long long)budget);
    double off = r->cost - plan->cost_ns;
    PL_FAIL_IF(off > 1e-9 * r->cost || -off > 1e-9 * r->cost, PL_ERR_PLAN,
               "the plan states a cost of %g ns, its replay has %g", plan->cost_ns, r->cost);
    return PL_OK;
}

static pl_status run(replay *r, uint64_t budget)
{
    r->peak = r->alive;
    for (uint32_t k = 0; k < r->plan->n; k++) {
        uint32_t unit = r->plan->unit[k];
        PL_TRY(check_unit(r, k, unit));
        write_outputs(r, unit);
        PL_TRY(drop_dead(r, k));
    }
    return check_totals(r, budget);
}

pl_status pl_recompute_check(const pl_recompute_problem *p, const pl_recompute_plan *plan,
                             uint64_t budget_bytes)
{
    pl_arena a = PL_ARENA_INIT;
    replay r = {.p = p, .plan = plan};
    r.copy = pl_arena_new(&a, uint32_t, p->n_buffers + 1);
    r.taken = pl_arena_new(&a, uint32_t, p->n_buffers + 1);
    r.done = pl_arena_new(&a, uint8_t, p->n_units + 1);
    uint8_t *written = pl_arena_new(&a, uint8_t, p->n_buffers + 1);
    pl_status s = PL_ERR_MEMORY;
    if (r.copy && r.taken && r.done && written) {
        set_start(&r, written);
        s = run(&r, budget_bytes);
    }
    pl_arena_release(&a);
    return s;
}
