/* recompute_seq.c - a plan as a list of units, and its exact peak.
 *
 * Lifetimes follow from the list: a read refers to the latest copy before it, and a copy lives from
 * its position to its last read. Two passes suffice. Backwards: keep first runs and runs with a
 * reader; delete unread repetitions, with all that only they read. Forwards: find the last read of
 * each copy, then add up the bytes as differences.
 *
 * Invariant: after pl__recompute_tighten, cost and peak describe the list. Cost: linear in the
 * positions and their reads.
 *
 * Example (recompute.h): A B C A D A E. Backwards, E reads the last a; no unit reads the a made
 * before D, so that run is deleted: A B C D A E. Copies: a [0,1], b [1,3], d [3,5], a' [4,5].
 * Differences give 4 8 4 8 8 8: the peak is 8.
 */
#include <string.h>

#include "base/sys.h"
#include "plan/recompute/recompute_eval.h"

void pl__recompute_seq_release(pl__recompute_seq *s)
{
    pl_sys_free(s->unit);
    *s = (pl__recompute_seq){0};
}

static pl_status seq_reserve(pl__recompute_seq *s, uint32_t n)
{
    if (n <= s->cap) return PL_OK;
    uint32_t cap = n + n / 2 + 64;
    uint32_t *unit = pl_sys_realloc(s->unit, s->cap * sizeof *unit, cap * sizeof *unit);
    if (!unit) return PL_ERR_MEMORY;
    s->unit = unit;
    s->cap = cap;
    return PL_OK;
}

pl_status pl__recompute_seq_copy(pl__recompute_seq *to, const pl__recompute_seq *from)
{
    PL_TRY(seq_reserve(to, from->n));
    if (from->n) memcpy(to->unit, from->unit, from->n * sizeof *to->unit);
    to->n = from->n;
    to->cost = from->cost;
    to->peak = from->peak;
    to->strategy = from->strategy;
    return PL_OK;
}

pl_status pl__recompute_seq_push(pl__recompute_seq *s, uint32_t unit)
{
    PL_TRY(seq_reserve(s, s->n + 1));
    s->unit[s->n++] = unit;
    return PL_OK;
}

pl_status pl__recompute_eval_new(const pl__recompute *m, pl__recompute_eval **out)
{
    pl__recompute_eval *e = pl_sys_alloc(sizeof *e);
    if (!e) return PL_ERR_MEMORY;
    e->m = m;
    e->wanted = pl_arena_new(&e->arena, uint8_t, m->n_vals + 1);
    e->seen = pl_arena_new(&e->arena, uint8_t, m->n_units + 1);
    e->born = pl_arena_new(&e->arena, uint32_t, m->n_vals + 1);
    e->last = pl_arena_new(&e->arena, uint32_t, m->n_vals + 1);
    if (!e->wanted || !e->seen || !e->born || !e->last) {
        pl__recompute_eval_free(e);
        return PL_ERR_MEMORY;
    }
    *out = e;
    return PL_OK;
}

void pl__recompute_eval_free(pl__recompute_eval *e)
{
    if (!e) return;
    pl_sys_free(e->level);
    pl_sys_free(e->first);
    pl_arena_release(&e->arena);
    pl__recompute_fill_release(e);
    pl_sys_free(e);
}

pl_status pl__recompute_eval_reserve(pl__recompute_eval *e, uint32_t n)
{
    if (n + 2 <= e->cap) return PL_OK;
    uint32_t cap = n + n / 2 + 64;
    pl_sys_free(e->level);
    pl_sys_free(e->first);
    e->cap = 0;
    e->level = pl_sys_alloc(cap * sizeof *e->level);
    e->first = pl_sys_alloc(cap);
    if (!e->level || !e->first) return PL_ERR_MEMORY;
    e->cap = cap;
    return PL_OK;
}

/* Marks which positions are first computations. */
static void mark_first(pl__recompute_eval *e, const pl__recompute_seq *s)
{
    memset(e->seen, 0, e->m->n_units);
    for (uint32_t k = 0; k < s->n; k++) {
        e->first[k] = !e->seen[s->unit[k]];
        e->seen[s->unit[k]] = 1;
    }
}

static void delete_unread(pl__recompute_eval *e, pl__recompute_seq *s)
{
    const pl__recompute *m = e->m;
    const pl_recompute_problem *p = m->p;
    uint32_t keep = s->n; /* the kept positions gather at the top end */
    for (uint32_t v = 0; v < m->n_vals; v++) e->wanted[v] = m->end[v];
    for (uint32_t k = s->n; k-- > 0;) {
        uint32_t unit = s->unit[k];
        bool stays = e->first[k];
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            uint32_t v = p->out[i];
            if (e->wanted[v] && !m->pinned[m->owner[v]]) stays = true;
        }
        if (!stays) continue;
        for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
            /* A pinned value is needed from its first computation on: a repetition for another
             * output must not hide that. */
            uint32_t v = p->out[i];
            if (!m->pinned[m->owner[v]]) e->wanted[v] = 0;
        }
        for (uint32_t i = m->in.at[unit]; i < m->in.at[unit + 1]; i++) e->wanted[m->in.item[i]] = 1;
        s->unit[--keep] = unit;
    }
    memmove(s->unit, s->unit + keep, (s->n - keep) * sizeof *s->unit);
    s->n -= keep;
}

/* Ends the copy of owner r that began at born[r]: its bytes count up to its last read. */
static void close_copy(pl__recompute_eval *e, uint32_t r, uint32_t n)
{
    if (e->born[r] == PL_RECOMPUTE_NONE) return;
    uint32_t last = e->m->pinned[r] ? n - 1 : e->last[r];
    e->level[e->born[r]] += (int64_t)e->m->bytes[r];
    e->level[last + 1] -= (int64_t)e->m->bytes[r];
}

/* Reads the inputs of position k; false when a value does not exist. born of a view is the birth of
 * the copy of its owner that it was taken from. */
static bool read_inputs(pl__recompute_eval *e, uint32_t unit, uint32_t k)
{
    const pl__recompute *m = e->m;
    for (uint32_t i = m->in.at[unit]; i < m->in.at[unit + 1]; i++) {
        uint32_t v = m->in.item[i], r = m->owner[v];
        if (e->born[v] == PL_RECOMPUTE_NONE || e->born[v] != e->born[r]) return false;
        e->last[r] = k;
    }
    return true;
}

static void write_outputs(pl__recompute_eval *e, uint32_t unit, uint32_t k, uint32_t n)
{
    const pl__recompute *m = e->m;
    const pl_recompute_problem *p = m->p;
    for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
        uint32_t v = p->out[i], r = m->owner[v];
        if (v != r) {
            e->born[v] = e->born[r];
        } else if (!m->pinned[r] || e->born[r] == PL_RECOMPUTE_NONE) {
            close_copy(e, r, n);
            e->born[r] = e->last[r] = k;
        }
    }
}

/* Cost, and the peak through differences of the bytes alive. */
static bool measure(pl__recompute_eval *e, pl__recompute_seq *s)
{
    const pl__recompute *m = e->m;
    memset(e->level, 0, (s->n + 2) * sizeof *e->level);
    for (uint32_t v = 0; v < m->n_vals; v++) {
        e->born[v] = m->writer[v] == PL_RECOMPUTE_NONE ? 0 : PL_RECOMPUTE_NONE;
        e->last[v] = 0;
    }
    s->cost = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t unit = s->unit[k];
        if (!read_inputs(e, unit, k)) return false;
        write_outputs(e, unit, k, s->n);
        s->cost += m->cost[unit];
    }
    for (uint32_t v = 0; v < m->n_vals; v++) {
        if (m->owner[v] != v) {
            if (m->end[v] && e->born[v] != e->born[m->owner[v]]) return false;
            continue;
        }
        if (m->end[v] && s->n) e->last[v] = s->n - 1;
        close_copy(e, v, s->n);
    }
    int64_t now = 0, peak = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        now += e->level[k];
        int64_t here = now + (int64_t)pl__recompute_work(m, s->unit[k]);
        if (here > peak) peak = here;
    }
    s->peak = (uint64_t)peak;
    return true;
}

pl_status pl__recompute_tighten(pl__recompute_eval *e, pl__recompute_seq *s, bool *ok)
{
    PL_TRY(pl__recompute_eval_reserve(e, s->n));
    mark_first(e, s);
    delete_unread(e, s);
    *ok = measure(e, s);
    return PL_OK;
}
