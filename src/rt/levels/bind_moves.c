/* bind_moves.c - moves as bound units, and what units and moves wait for.
 *
 * The plan says before which position a move must have ended (M14), which is where the arena's
 * lifetimes change. What really needs the move is the first unit after that position that touches
 * bytes of the move, and the moves before that unit that do. Only these wait: units in between run
 * during the move.
 *
 * Invariant: two that touch the same bytes, one of them writing, are a move and a unit or a move
 * that waits for it, or are ordered by the sequence of units or of one channel. Cost: for each move
 * the units up to the first that needs it, at most FAR.
 */
#include "rt/levels/levels.h"
#include "rt/rt_int.h"

enum { FAR = 4096 }; /* positions that are searched; the next unit waits, whatever it touches */

typedef struct range {
    const char *at;
    uint64_t bytes;
} range;

static bool overlap(range a, range b)
{
    return a.at && b.at && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

/* One side of a move: a level and bytes of it. */
typedef struct move_side {
    uint8_t level;
    range at;
} move_side;

/* Returns a side below the device as if its level's block began at address 1. */
static move_side side_below(const pl_session *s, uint8_t level, const pl_place *p, uint64_t bytes)
{
    uint64_t home = p->space == PL_SPACE_STATE ? s->homes->offset[p->slot] : 0;
    return (move_side){level, {(const char *)(uintptr_t)(1 + home + p->offset), bytes}};
}

static move_side source_of(const pl_session *s, const pl_move *m, const pl_bound_unit *l)
{
    if (m->from == PL_LEVEL_DEVICE) return (move_side){m->from, {l->from, l->bytes}};
    return side_below(s, m->from, &m->source, m->bytes);
}

static move_side dest_of(const pl_session *s, const pl_move *m, const pl_bound_unit *l)
{
    if (m->to == PL_LEVEL_DEVICE) return (move_side){m->to, {l->to, l->bytes}};
    return side_below(s, m->to, &m->dest, m->bytes);
}

static bool share(move_side a, move_side b)
{
    return a.level == b.level && overlap(a.at, b.at);
}

/* Whether two moves must not run at once: both touch bytes that one of them writes. */
static bool moves_conflict(const pl_session *s, const pl_move *a, const pl_bound_unit *x,
                           const pl_move *b, const pl_bound_unit *y)
{
    move_side to_a = dest_of(s, a, x), to_b = dest_of(s, b, y);
    return share(to_a, to_b) || share(to_a, source_of(s, b, y)) || share(source_of(s, a, x), to_b);
}

static bool call_writes(const pl_bound_unit *l, range r)
{
    const pl_call *c = &l->call;
    for (int k = 0; k < c->n_out; k++)
        if (overlap(r, (range){c->out[k], pl_type_bytes(&c->out_type[k])})) return true;
    return overlap(r, (range){c->work, l->exec->work_bytes});
}

static bool call_reads(const pl_bound_unit *l, range r)
{
    const pl_call *c = &l->call;
    for (int i = 0; i < c->n_in; i++)
        if (overlap(r, (range){c->in[i], pl_type_bytes(&c->in_type[i])})) return true;
    return false;
}

/* Whether a unit or copy needs the move to have ended: it touches bytes that the move writes on the
 * device, or writes bytes that the move reads there. */
static bool unit_conflicts(const pl_move *m, const pl_bound_unit *move, const pl_bound_unit *l)
{
    bool fetch = m->to == PL_LEVEL_DEVICE;
    if (!fetch && m->from != PL_LEVEL_DEVICE) return false;
    range r = {fetch ? move->to : move->from, move->bytes};
    bool writes = l->exec ? call_writes(l, r) : overlap(r, (range){l->to, l->bytes});
    if (writes || !fetch) return writes;
    return l->exec ? call_reads(l, r) : overlap(r, (range){l->from, l->bytes});
}

static void raise(uint32_t *wait, uint32_t number)
{
    if (number > *wait) *wait = number;
}

static uint64_t disk_offset(const pl_session *s, const pl_place *at)
{
    return at->space == PL_SPACE_STATE ? s->homes->offset[at->slot] + at->offset : at->offset;
}

static void bind_one(const pl_session *s, const pl_bound_program *b, const pl_move *m,
                     uint32_t number, pl_bound_unit *l)
{
    *l = (pl_bound_unit){.from = pl_bound_address(s, b, &m->source),
                         .to = pl_bound_address(s, b, &m->dest),
                         .bytes = m->bytes,
                         .move = number,
                         .channel = m->channel,
                         .levels = s->levels};
    if (m->from == PL_LEVEL_DISK) l->disk_at = disk_offset(s, &m->source);
    if (m->to == PL_LEVEL_DISK) l->disk_at = disk_offset(s, &m->dest);
}

/* Records who waits for move i of the plan. next: its first move after move i. */
static void bind_waits(const pl_session *s, const pl_plan *plan, uint32_t i, pl_bound_program *b)
{
    const pl_move *m = &plan->moves[i], *next = m + 1;
    const pl_bound_unit *l = &b->units[m->begin];
    uint32_t first = (uint32_t)(m->end > m->begin ? m->end : m->begin + 1);
    while (next < plan->moves + plan->n_moves && next->begin < (int32_t)first) next++;
    for (uint32_t k = first; k < b->n_units; k++) {
        pl_bound_unit *u = &b->units[k];
        if (!u->move) {
            if (k - first < FAR && !unit_conflicts(m, l, u)) continue;
            raise(&u->wait[m->channel], l->move);
            return;
        }
        if (u->channel != l->channel && moves_conflict(s, m, l, next, u))
            raise(&u->wait[m->channel], l->move);
        next++;
    }
}

void pl_levels_bind(const pl_session *s, const pl_program *p, pl_bound_program *b)
{
    const pl_plan *plan = p->plan;
    uint32_t n[PL_N_CHANNELS] = {0};
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const pl_move *m = &plan->moves[i];
        bind_one(s, b, m, ++n[m->channel], &b->units[m->begin]);
    }
    for (uint32_t i = 0; i < plan->n_moves; i++) bind_waits(s, plan, i, b);
}
