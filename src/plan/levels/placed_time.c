/* placed_time.c - the predicted time of a packed plan with moves.
 *
 * level_time.c predicts before offsets are known: there a fetch takes all bytes that the moves
 * before it have left. A packed plan lists the bytes that each unit and each move touches, and only
 * units and moves that touch the same bytes wait, as when the plan runs (rt/levels/bind_moves.c). A
 * move begins when its position is reached, its channel is free and its source is there.
 *
 * Invariant: of a unit and a move, or two moves, that touch the same bytes, one of them writing,
 * the later one waits, or the positions of the plan order them. Cost: for each move the units up to
 * the first one that needs it.
 *
 * Example: a move takes 3 blocks to disk until tick 15. A fetch needs one of these blocks, and the
 * unit behind it writes the other two: both wait for tick 15.
 */
#include "plan/levels/level_plan.h"

/* Bytes of one level. */
typedef struct span {
    int level;
    uint64_t from, to;
} span;

typedef struct placed {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan *p;
    const pl_homes *homes;
    uint32_t *wait; /* per position and channel: 1 + the last move that it waits for */
} placed;

static span span_of(const placed *d, const pl_place *at, int level, uint64_t bytes)
{
    uint64_t home = at->space == PL_SPACE_STATE && level ? d->homes->offset[at->slot] : 0;
    return (span){level, home + at->offset, home + at->offset + bytes};
}

static bool overlap(span a, span b)
{
    return a.level == b.level && a.from < b.to && b.from < a.to;
}

/* Whether a value lies in these bytes of the arena. */
static bool lies_in(const placed *d, uint32_t val, span s)
{
    const pl_place *at = &d->p->place[val];
    if (at->space != PL_SPACE_ARENA) return false;
    return overlap(s, span_of(d, at, 0, pl_stored_bytes(d->g, d->units->bits, val)));
}

/* Whether a unit needs a move to have ended: it touches bytes that the move writes on the device,
 * or writes bytes that the move reads there. */
static bool unit_needs(const placed *d, uint32_t unit, const pl_move *m)
{
    const pl_unit *u = &d->units->unit[unit];
    bool fetch = m->to == PL_LEVEL_DEVICE;
    const pl_place *at = fetch ? &m->dest : &m->source;
    if ((!fetch && m->from != PL_LEVEL_DEVICE) || at->space != PL_SPACE_ARENA) return false;
    span s = span_of(d, at, 0, m->bytes);
    for (uint32_t i = 0; i < u->n_out; i++)
        if (lies_in(d, u->out[i], s)) return true;
    for (uint32_t i = 0; fetch && i < u->n_in; i++)
        if (lies_in(d, u->in[i], s)) return true;
    uint64_t work = d->p->work_bytes[unit], from = d->p->work_offset[unit];
    return work && overlap(s, (span){0, from, from + work});
}

/* Whether two moves must not run at once. */
static bool moves_conflict(const placed *d, const pl_move *a, const pl_move *b)
{
    span a_from = span_of(d, &a->source, a->from, a->bytes);
    span a_to = span_of(d, &a->dest, a->to, a->bytes);
    span b_from = span_of(d, &b->source, b->from, b->bytes);
    span b_to = span_of(d, &b->dest, b->to, b->bytes);
    return overlap(a_to, b_to) || overlap(a_to, b_from) || overlap(a_from, b_to);
}

/* Records what waits for move k: the first unit that needs it, and moves before that unit. */
static void list_waits(placed *d, uint32_t k)
{
    const pl_plan *p = d->p;
    const pl_move *m = &p->moves[k];
    uint32_t next = k + 1, at = (uint32_t)(m->end > m->begin ? m->end : m->begin + 1);
    while (next < p->n_moves && p->moves[next].begin < (int32_t)at) next++;
    for (; at < p->n_order; at++) {
        bool is_move = next < p->n_moves && p->moves[next].begin == (int32_t)at;
        bool waits =
            is_move ? p->moves[next].channel != m->channel && moves_conflict(d, m, &p->moves[next])
                    : unit_needs(d, p->order[at], m);
        next += is_move;
        if (waits) d->wait[(size_t)at * PL_N_CHANNELS + m->channel] = k + 1;
        if (waits && !is_move) return;
    }
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* Runs the plan. ended: per move. */
static void run(const placed *d, const double *cost_ns, const pl_level_opts *o, double *ended,
                double *begin_ns, double *move_ns, pl_level_times *out)
{
    const pl_plan *p = d->p;
    double now = 0, computed = 0, busy[PL_N_CHANNELS] = {0};
    for (uint32_t i = 0, m = 0; i < p->n_order; i++) {
        double ready = now;
        for (int ch = 0; ch < PL_N_CHANNELS; ch++) {
            uint32_t k = d->wait[(size_t)i * PL_N_CHANNELS + (uint32_t)ch];
            if (k) ready = later(ready, ended[k - 1]);
        }
        if (m == p->n_moves || p->moves[m].begin != (int32_t)i) {
            if (begin_ns) begin_ns[i] = ready;
            now = ready + cost_ns[i];
            computed += cost_ns[i];
            continue;
        }
        const pl_move *v = &p->moves[m];
        if (begin_ns) begin_ns[i] = now;
        if (v->after) ready = later(ready, ended[v->after - 1]);
        ready = later(ready, busy[v->channel]);
        ended[m] = ready + o->move_ns + o->channel_ns[v->channel] * (double)v->bytes;
        busy[v->channel] = ended[m];
        out->channel_ns[v->channel] += ended[m] - ready;
        out->moved_bytes += (double)v->bytes;
        if (move_ns) move_ns[2 * (size_t)m] = ready, move_ns[2 * (size_t)m + 1] = ended[m];
        m++;
    }
    for (int ch = 0; ch < PL_N_CHANNELS; ch++) now = later(now, busy[ch]);
    out->total_ns = now;
    out->wait_ns = now - computed;
}

pl_status pl_level_time_placed(const pl_graph *g, const pl_units *units, const pl_plan *p,
                               const double *cost_ns, const pl_level_opts *o, double *begin_ns,
                               double *move_ns, pl_level_times *out)
{
    pl_arena mem = PL_ARENA_INIT;
    placed d = {.g = g, .units = units, .p = p, .homes = o->homes};
    double *ended = pl_arena_new(&mem, double, p->n_moves + 1);
    d.wait = pl_arena_new(&mem, uint32_t, ((size_t)p->n_order + 1) * PL_N_CHANNELS);
    bool room = ended && d.wait;
    *out = (pl_level_times){0};
    for (uint32_t k = 0; room && k < p->n_moves; k++) list_waits(&d, k);
    if (room) run(&d, cost_ns, o, ended, begin_ns, move_ns, out);
    pl_arena_release(&mem);
    return room ? PL_OK : PL_ERR_MEMORY;
}
