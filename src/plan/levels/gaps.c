/* gaps.c - which values leave the arena between two uses; see gaps.h.
 *
 * A buffer is used by its producer and its readers. Between two uses that are far apart its bytes
 * can go below the device. The copy there stays valid, so only the first stay of a value needs a
 * store, and a slot that lives below needs none.
 *
 * Idea: look at the position with the most bytes alive, and among the gaps that cover it take the
 * gap whose time is longest compared with the time of its moves; repeat. Farthest next use first is
 * the optimal rule of caches that know the future; dividing by the moves' time prefers moves that
 * units hide.
 *
 * Invariant: alive[] is the sum of the bytes of buffers that are in the arena at a position, if
 * moves take no time. Cost: one pass over positions and gaps for each gap taken.
 */
#include "plan/levels/gaps.h"

#include <stdlib.h>

enum { SMALLEST = 4096 }; /* a smaller buffer is not worth a move */

double pl_gap_fetch_ns(const pl_level_opts *o, uint8_t level, uint64_t bytes)
{
    pl_channel c = pl_channel_between(level, PL_LEVEL_DEVICE);
    return o->move_ns + o->channel_ns[c] * (double)bytes;
}

double pl_gap_store_ns(const pl_level_opts *o, uint8_t level, uint64_t bytes)
{
    pl_channel c = pl_channel_between(PL_LEVEL_DEVICE, level);
    return o->move_ns + o->channel_ns[c] * (double)bytes;
}

/* ---- the given order ---------------------------------------------------------------------- */
/* Adds bytes to positions [from, to). */
static void add_bytes(pl_gaps *x, int32_t from, int32_t to, uint64_t bytes)
{
    for (int32_t i = from; i < to; i++) x->alive[i] += bytes;
}

static pl_status replay(pl_gaps *x, pl_arena *mem)
{
    const pl_level_problem *p = x->p;
    uint32_t *order = pl_arena_new(mem, uint32_t, p->n + 1);
    x->pos = pl_arena_new(mem, uint32_t, p->n + 1);
    x->begin_ns = pl_arena_new(mem, double, p->n + 2);
    x->alive = pl_arena_new(mem, uint64_t, p->n + 2);
    if (!order || !x->pos || !x->begin_ns || !x->alive) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t id = p->opts->fixed_order[i];
        order[i] = x->q.unit_number[id];
        x->pos[order[i]] = i;
        x->begin_ns[i + 1] = x->begin_ns[i] + p->cost_ns[id];
    }
    PL_TRY(pl_life_new(&x->q, mem, &x->life));
    PL_TRY(pl_join_list(&x->q, mem));
    PL_TRY(pl_join_choose(&x->q, order, mem, &x->life));
    for (uint32_t s = 0; s < x->q.n_buffers; s++)
        if (x->q.buffer[s].pinned) x->life.last[x->life.owner[s]] = (int32_t)p->n;
    for (uint32_t s = 0; s < x->q.n_buffers; s++) {
        uint64_t bytes = pl_buffer_arena_bytes(&x->q.buffer[s]);
        if (x->life.owner[s] == s && bytes) add_bytes(x, x->life.first[s], x->life.last[s], bytes);
    }
    for (uint32_t i = 0; i < p->n; i++) x->alive[i] += x->q.work[order[i]];
    return PL_OK;
}

static int by_position(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Writes the positions that read a buffer to out, in order; returns how many. */
static uint32_t list_reads(const pl_gaps *x, uint32_t s, int32_t *out)
{
    uint32_t n = 0;
    for (uint32_t e = x->q.readers.start[s]; e < x->q.readers.start[s + 1]; e++)
        out[n++] = (int32_t)x->pos[x->q.readers.list[e]];
    qsort(out, n, sizeof *out, by_position);
    return n;
}

/* ---- slots below the device --------------------------------------------------------------- */
bool pl_level_slot_may_move(const pl_graph *g, const pl_units *units, int slot)
{
    uint32_t assigned = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if ((pl_node_get(g, n)->op->flags & PL_OP_EFFECT) && pl_node_slot(g, n) == slot)
            assigned = pl_node_in(g, n)[0];
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!(pl_node_get(g, n)->op->flags & PL_OP_EFFECT)) continue;
        uint32_t val = pl_node_in(g, n)[0], unit;
        while ((unit = units->unit_of[val]) && units->unit[unit - 1].kind == PL_UNIT_VIEW)
            val = units->unit[unit - 1].in[0];
        int of = unit ? -1 : pl_node_slot(g, pl_producer(g, val));
        int to = pl_node_slot(g, n);
        if (of == slot && to != slot) return false; /* leaves the program, or goes elsewhere */
        if (assigned && pl_node_in(g, n)[0] == assigned && to >= 0 && to != slot) return false;
        if (to == slot && !unit && (of != slot || val != pl_node_in(g, n)[0])) return false;
    }
    return true;
}

/* The reads of an old value: a gap before each of them; those after the first are open. */
static void add_old_value(pl_gaps *x, uint32_t s, int32_t *reads)
{
    const pl_buffer *b = &x->q.buffer[s];
    uint8_t level = pl_home_level(x->p->levels->homes, b->old_slot);
    uint32_t n = list_reads(x, s, reads);
    for (uint32_t i = 0; i < n; i++) {
        x->gap[x->n_gaps++] = (pl_gap){.buffer = s,
                                       .val = b->val,
                                       .after = i ? reads[i - 1] : -1,
                                       .before = reads[i],
                                       .bytes = b->bytes,
                                       .level = level,
                                       .taken = i == 0};
        add_bytes(x, i ? reads[i - 1] + 1 : reads[i], reads[i] + 1, b->bytes);
    }
}

/* A new value lies in the arena until it is stored. Where its unit may not write it over the old
 * value, both are in the arena at that position. */
static void add_new_value(pl_gaps *x, const pl_assign_rec *a, int32_t *reads)
{
    uint32_t s = x->q.buffer_of[a->val], old = x->q.old_of_slot[a->slot];
    const pl_buffer *b = &x->q.buffer[s];
    int32_t made = (int32_t)x->pos[b->producer], after = made, last = made;
    uint32_t n = old == PL_NONE ? 0 : list_reads(x, old, reads);
    if (n && reads[n - 1] > after) after = reads[n - 1];
    uint32_t m = list_reads(x, s, reads + n);
    if (m && reads[n + m - 1] > last) last = reads[n + m - 1];
    if (last < after) last = after;
    uint64_t bytes = pl_type_bytes(pl_type_of(x->q.g, a->val));
    x->store[x->n_stores++] =
        (pl_slot_store){a->val, after, bytes, pl_home_level(x->p->levels->homes, a->slot)};
    if (b->direct < 0) return; /* an ordinary buffer, pinned */
    bool in_place = n && reads[n - 1] == made;
    add_bytes(x, made + in_place, last + 1, b->bytes);
}

static void add_slots(pl_gaps *x, int32_t *reads)
{
    const pl_homes *h = x->p->levels->homes;
    for (uint32_t s = 0; s < x->q.n_buffers; s++)
        if (x->q.buffer[s].old_slot >= 0 && pl_home_level(h, x->q.buffer[s].old_slot))
            add_old_value(x, s, reads);
    for (uint32_t i = 0; i < x->q.n_assigns; i++)
        if (pl_home_level(h, x->q.assigns[i].slot)) add_new_value(x, &x->q.assigns[i], reads);
}

/* ---- values of the run ---------------------------------------------------------------------- */
static bool can_leave(const pl_gaps *x, uint32_t s)
{
    const pl_buffer *b = &x->q.buffer[s];
    if (b->old_slot >= 0 || b->direct >= 0 || b->pinned || b->bytes < SMALLEST) return false;
    if (x->q.shared && x->q.shared[s]) return false;
    for (uint32_t i = 0; i < x->q.n_assigns; i++)
        if (x->q.buffer_of[x->q.assigns[i].val] == s) return false;
    return true;
}

/* The level of a value is chosen when its first gap is taken. */
static void add_values(pl_gaps *x, int32_t *reads)
{
    for (uint32_t s = 0; s < x->q.n_buffers; s++) {
        const pl_buffer *b = &x->q.buffer[s];
        if (!can_leave(x, s)) continue;
        uint32_t n = list_reads(x, s, reads);
        int32_t at = b->producer == PL_NONE ? 0 : (int32_t)x->pos[b->producer];
        for (uint32_t i = 0; i < n; i++) {
            if (reads[i] > at + 1)
                x->gap[x->n_gaps++] = (pl_gap){.buffer = s,
                                               .val = b->val,
                                               .after = at,
                                               .before = reads[i],
                                               .bytes = b->bytes,
                                               .stores = true};
            at = reads[i];
        }
    }
}

/* Whether some level takes moved values. */
static bool has_room(const pl_level_opts *o)
{
    bool any = false;
    for (uint8_t level = 1; level < PL_N_LEVELS; level++) any |= o->capacity[level] != 0;
    return any;
}

pl_status pl_gaps_list(const pl_level_problem *p, pl_arena *mem, pl_gaps *x)
{
    *x = (pl_gaps){.p = p, .q = {.g = p->g, .units = p->units, .opts = p->opts}};
    PL_TRY(pl_problem_build(&x->q, mem));
    PL_TRY(pl_problem_slots(&x->q, mem));
    PL_TRY(replay(x, mem));
    size_t reads = x->q.readers.start[x->q.n_buffers];
    int32_t *list = pl_arena_new(mem, int32_t, reads + 1);
    x->gap = pl_arena_new(mem, pl_gap, reads + 1);
    x->store = pl_arena_new(mem, pl_slot_store, x->q.n_assigns + 1);
    if (!list || !x->gap || !x->store) return PL_ERR_MEMORY;
    for (int level = 1; level < PL_N_LEVELS && p->levels->homes; level++)
        x->used[level] = p->levels->homes->bytes[level];
    add_slots(x, list);
    if (has_room(p->levels)) add_values(x, list);
    return PL_OK;
}

/* ---- choice ------------------------------------------------------------------------------- */
/* Whether the value has been stored by a gap that is taken. */
static bool is_stored(const pl_gaps *x, const pl_gap *g)
{
    if (!g->stores) return true;
    for (const pl_gap *k = g; k-- > x->gap && k->buffer == g->buffer;)
        if (k->taken) return true;
    for (const pl_gap *k = g + 1; k < x->gap + x->n_gaps && k->buffer == g->buffer; k++)
        if (k->taken) return true;
    return false;
}

/* Returns the highest level with room for a value that is not stored yet; PL_LEVEL_DEVICE: none. A
 * value that takes more than half of the bytes through which it would pass does not go to disk. */
static uint8_t level_with_room(const pl_gaps *x, uint64_t bytes)
{
    const pl_level_opts *o = x->p->levels;
    for (uint8_t level = 1; level < PL_N_LEVELS; level++) {
        uint64_t takes = pl_level_round_up(bytes);
        if (level == PL_LEVEL_HOST) takes += o->transit;
        if (level == PL_LEVEL_DISK && o->transit && bytes > o->transit / 2) continue;
        if (x->used[level] + takes <= o->capacity[level]) return level;
    }
    return PL_LEVEL_DEVICE;
}

/* Returns how much longer the gap is than its moves; 0: it cannot be taken. */
static double score(const pl_gaps *x, const pl_gap *g)
{
    const pl_level_opts *o = x->p->levels;
    bool stored = is_stored(x, g);
    uint8_t level = stored ? g->level : level_with_room(x, g->bytes);
    if (!level) return 0;
    double takes = pl_gap_fetch_ns(o, level, g->bytes);
    if (!stored) takes += pl_gap_store_ns(o, level, g->bytes);
    double time = x->begin_ns[g->before] - x->begin_ns[g->after + 1];
    return (time + 1) / takes;
}

/* Takes a gap; a value that was not stored gets its level, which all its gaps have. */
static void take(pl_gaps *x, pl_gap *g)
{
    if (!is_stored(x, g)) {
        uint8_t level = level_with_room(x, g->bytes);
        pl_gap *first = g;
        while (first > x->gap && first[-1].buffer == g->buffer) first--;
        for (; first < x->gap + x->n_gaps && first->buffer == g->buffer; first++)
            first->level = level;
        x->used[level] += pl_level_round_up(g->bytes);
    }
    g->taken = true;
    for (int32_t i = g->after + 1; i < g->before; i++) x->alive[i] -= g->bytes;
}

void pl_gaps_take_all(pl_gaps *x)
{
    for (uint32_t i = 0; i < x->n_gaps; i++) {
        pl_gap *g = &x->gap[i];
        if (g->taken) continue;
        g->taken = true;
        for (int32_t k = g->after + 1; k < g->before; k++) x->alive[k] -= g->bytes;
    }
}

pl_status pl_gaps_take(pl_gaps *x, uint64_t budget)
{
    uint32_t n = x->p->n;
    for (uint32_t tries = 0; budget && tries <= x->n_gaps; tries++) {
        uint32_t peak = 0;
        pl_gap *best = NULL;
        double most = 0;
        for (uint32_t i = 1; i < n; i++)
            if (x->alive[i] > x->alive[peak]) peak = i;
        if (!n || x->alive[peak] <= budget) break;
        for (uint32_t i = 0; i < x->n_gaps; i++) {
            pl_gap *g = &x->gap[i];
            if (g->taken || g->after >= (int32_t)peak || g->before <= (int32_t)peak) continue;
            double s = score(x, g);
            if (s > most) most = s, best = g;
        }
        if (!best) break;
        take(x, best);
    }
    return PL_OK;
}
