/* lifetime.c - the effect of an order on memory: which buffers are alive when, which are in place.
 *
 * A buffer is born at its producer (an input at position 0, M7) and dies after its last reader
 * (M2); pinned buffers live past the last unit. Where the op allows it and an input dies at its
 * unit, an output of the same size is written over the input, in place (M3): both then share the
 * bytes, which belong to the input's owner. Scratch is alive at its unit's position only (M6).
 *
 * A buffer that lies in another (its home: a concat's result) has no separate bytes; the home is
 * alive from the first write to the last read of any of them.
 *
 * A move reads its source from its position to its end: the source is alive until then (M14).
 *
 * Invariant: at each position, `alive` is the sum of the bytes of all buffers alive there. Cost:
 * one replay is O(units + reads), so that thousands of orders can be tried.
 *
 * Example: A makes a (4 bytes) from the input x (4), B makes b (4) from a in place, C reads b and
 * x.
 *     position   unit   born     dies    alive
 *     0          A      x, a     -       8       x is there before the first unit
 *     1          B      -        -       8       b is written over a: owner[b] = a
 *     2          C      -        a, x    8       the peak is 8, first reached at position 0
 */
#include "plan/core/plan_int.h"

pl_status pl_life_new(const pl_problem *p, pl_arena *mem, pl_life *out)
{
    out->owner = pl_arena_new(mem, uint32_t, p->n_buffers + 1);
    out->left = pl_arena_new(mem, uint32_t, p->n_buffers + 1);
    out->first = pl_arena_new(mem, int32_t, p->n_buffers + 1);
    out->last = pl_arena_new(mem, int32_t, p->n_buffers + 1);
    out->users = pl_arena_new(mem, uint32_t, p->n_buffers + 1);
    return out->owner && out->left && out->first && out->last && out->users ? PL_OK : PL_ERR_MEMORY;
}

static bool shared(const pl_problem *p, uint32_t s)
{
    return p->shared && p->shared[s];
}

/* Homes are not alive yet; a pinned home has a user that never comes. */
static void begin_homes(const pl_problem *p, pl_life *l)
{
    for (uint32_t s = 0; s < p->n_buffers && p->home; s++) l->users[s] = 0;
    for (uint32_t s = 0; s < p->n_buffers && p->home; s++) {
        if (!p->shared[s]) continue;
        l->owner[s] = p->home[s];
        l->first[s] = -1;
        l->users[p->home[s]] += l->left[s] + 1 + p->buffer[s].pinned;
    }
}

/* Sets the state before the first unit; returns the bytes alive. */
static uint64_t begin(const pl_problem *p, pl_life *l)
{
    uint64_t alive = 0;
    for (uint32_t s = 0; s < p->n_buffers; s++) {
        l->owner[s] = s;
        l->left[s] = p->readers.start[s + 1] - p->readers.start[s];
        l->first[s] = 0;
        l->last[s] = 0;
        if (p->buffer[s].producer == PL_NONE) alive += pl_buffer_arena_bytes(&p->buffer[s]);
    }
    begin_homes(p, l);
    return alive;
}

/* Whether input `in` dies at this unit and lies in the arena. */
static bool can_give(const pl_problem *p, const pl_life *l, uint32_t in)
{
    if (shared(p, in) && (p->home[in] != in || l->users[in] != 1)) return false;
    return l->left[in] == 1 && !p->buffer[in].pinned && pl_buffer_arena_bytes(&p->buffer[in]) > 0;
}

/* Writes outputs over inputs where that is allowed (M3). An input is given once, and not freed. */
static void reuse_in_place(const pl_problem *p, pl_life *l, uint32_t t)
{
    for (uint32_t k = p->in_place_start[t]; k < p->in_place_start[t + 1]; k++) {
        uint32_t in = p->in_place[k].in, out = p->in_place[k].out;
        if (!can_give(p, l, in) || p->buffer[out].direct >= 0 || l->owner[out] != out) continue;
        if (shared(p, out)) continue;
        l->owner[out] = l->owner[in];
        l->left[in] = 0;
    }
}

/* Records a write or read of a buffer that shares bytes. */
static void use_home(const pl_problem *p, pl_life *l, uint32_t s, int32_t now, uint64_t *born,
                     uint64_t *dead)
{
    uint32_t home = p->home[s];
    uint64_t bytes = pl_buffer_arena_bytes(&p->buffer[home]);
    if (l->first[home] < 0) {
        l->first[home] = now;
        *born += bytes;
    }
    l->last[home] = now + 1;
    if (--l->users[home] == 0) *dead += bytes;
}

/* Records the reads of unit t, the last of them at position `now`. */
static void read_operands(const pl_problem *p, pl_life *l, uint32_t t, int32_t now, uint64_t *born,
                          uint64_t *dead)
{
    for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
        uint32_t s = p->reads.list[e];
        if (shared(p, s)) {
            if (l->left[s])
                use_home(p, l, s, now, born, dead); /* else an output is written over it */
            if (l->left[s]) l->left[s]--;
            l->last[l->owner[s]] = now + 1;
            continue;
        }
        l->last[l->owner[s]] = now + 1;
        if (l->left[s] && --l->left[s] == 0 && !p->buffer[s].pinned)
            *dead += pl_buffer_arena_bytes(&p->buffer[s]);
    }
}

/* Runs unit t at position `now`: sets the bytes that it allocates and the bytes free after it. */
static void run_unit(const pl_problem *p, pl_life *l, uint32_t t, int32_t now, uint64_t *born,
                     uint64_t *dead)
{
    reuse_in_place(p, l, t);
    for (uint32_t w = p->writes.start[t]; w < p->writes.start[t + 1]; w++) {
        uint32_t s = p->writes.list[w];
        uint64_t bytes = pl_buffer_arena_bytes(&p->buffer[s]);
        if (shared(p, s)) {
            use_home(p, l, s, now, born, dead);
            continue;
        }
        if (l->owner[s] == s) {
            l->first[s] = now;
            *born += bytes;
        }
        l->last[l->owner[s]] = now + 1;
        if (!l->left[s] && !p->buffer[s].pinned) *dead += bytes;
    }
    bool moves = p->ends.start && p->units->unit[p->unit_id[t]].kind == PL_UNIT_MOVE;
    if (!moves) read_operands(p, l, t, now, born, dead);
}

/* Returns the bytes that moves free which have ended before a position. */
static uint64_t end_moves(const pl_problem *p, pl_life *l, uint32_t position)
{
    uint64_t born = 0, dead = 0;
    for (uint32_t e = p->ends.start[position]; e < p->ends.start[position + 1]; e++)
        read_operands(p, l, p->ends.list[e], (int32_t)position - 1, &born, &dead);
    return dead;
}

/* Inputs without a reader: the caller writes them, so they stay until the first position is
 * over. */
static uint64_t unread_inputs(const pl_problem *p, pl_life *l)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < p->n_buffers; s++) {
        if (p->buffer[s].producer != PL_NONE || l->left[s] || p->buffer[s].pinned) continue;
        bytes += pl_buffer_arena_bytes(&p->buffer[s]);
        l->last[s] = 1;
    }
    return bytes;
}

void pl_life_replay(const pl_problem *p, const uint32_t *order, uint64_t limit, pl_life *l)
{
    uint64_t alive = begin(p, l), unread = unread_inputs(p, l);
    l->peak = alive;
    l->peak_position = 0;
    for (uint32_t i = 0; i < p->n_units; i++) {
        uint64_t born = 0, dead = i ? 0 : unread;
        if (p->ends.start) alive -= end_moves(p, l, i);
        run_unit(p, l, order[i], (int32_t)i, &born, &dead);
        alive += born;
        uint64_t now = alive + p->work[order[i]];
        if (now > limit) {
            l->peak = UINT64_MAX;
            return;
        }
        if (now > l->peak) {
            l->peak = now;
            l->peak_position = (int32_t)i;
        }
        alive -= dead;
    }
    if (p->ends.start) end_moves(p, l, p->n_units);
}
