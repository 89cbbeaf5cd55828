/* level_time.c - the predicted time of a plan with moves.
 *
 * Units run one after the other. A move begins when its position is reached and its channel is
 * free. A unit waits for the moves that must have ended before its position. Where moves must have
 * ended before a position at which another move begins, they made room for a fetch: the fetch waits
 * for them, and units continue to run. A move of another move's result waits for that move. Cost:
 * linear in positions and moves.
 */
#include "plan/levels/level_plan.h"

#include "base/sys.h"

typedef struct clock_state {
    double now, busy_until[PL_N_CHANNELS];
    double room; /* times at which bytes become free after moves and are not reused yet */
    double gate; /* the same for bytes that fetches have taken */
} clock_state;

/* Whether a move goes from disk to host: what waits for it is the next move of its value, not a
 * unit. */
static bool is_read_ahead(const pl_move *m)
{
    return m->from == PL_LEVEL_DISK && m->to == PL_LEVEL_HOST;
}

/* Moves that must have ended before `position` have. by_end: moves sorted by end. */
static void end_before(const pl_plan *p, const uint32_t *by_end, uint32_t *k, int32_t position,
                       const double *ended, clock_state *c)
{
    for (; *k < p->n_moves && p->moves[by_end[*k]].end <= position; (*k)++)
        if (!is_read_ahead(&p->moves[by_end[*k]]) && ended[by_end[*k]] > c->room)
            c->room = ended[by_end[*k]];
}

/* Returns when a move ends that begins now. ready: when its source is there. */
static double run_move(const pl_move *v, const pl_level_opts *o, double ready, clock_state *c,
                       double *begin)
{
    double *busy = &c->busy_until[v->channel];
    *begin = *busy > c->now ? *busy : c->now;
    if (ready > *begin) *begin = ready;
    if (v->to == PL_LEVEL_DEVICE) {
        if (c->room > c->gate) c->gate = c->room;
        if (c->gate > *begin) *begin = c->gate;
        c->room = 0;
    }
    *busy = *begin + o->move_ns + o->channel_ns[v->channel] * (double)v->bytes;
    return *busy;
}

/* Sorts moves by their end: a bucket per position. */
static pl_status sort_by_end(const pl_plan *p, pl_arena *mem, uint32_t **out)
{
    uint32_t *start = pl_arena_new(mem, uint32_t, p->n_order + 2);
    *out = pl_arena_new(mem, uint32_t, p->n_moves + 1);
    if (!start || !*out) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->n_moves; i++) start[p->moves[i].end + 1]++;
    for (uint32_t i = 1; i <= p->n_order + 1; i++) start[i] += start[i - 1];
    for (uint32_t i = 0; i < p->n_moves; i++) (*out)[start[p->moves[i].end]++] = i;
    return PL_OK;
}

pl_status pl_level_time(const pl_plan *p, const double *cost_ns, const pl_level_opts *o,
                        double *begin_ns, double *move_ns, pl_level_times *out)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *by_end, k = 0, m = 0;
    clock_state c = {0};
    double computed = 0;
    double *ended = pl_arena_new(&mem, double, p->n_moves + 1);
    pl_status rc = ended ? sort_by_end(p, &mem, &by_end) : PL_ERR_MEMORY;
    *out = (pl_level_times){0};
    for (uint32_t i = 0; rc == PL_OK && i < p->n_order; i++) {
        end_before(p, by_end, &k, (int32_t)i, ended, &c);
        if (m == p->n_moves || p->moves[m].begin != (int32_t)i) {
            if (c.room > c.now) c.now = c.room;
            c.room = 0;
            if (begin_ns) begin_ns[i] = c.now;
            c.now += cost_ns[i];
            computed += cost_ns[i];
            continue;
        }
        const pl_move *v = &p->moves[m];
        double begin;
        if (begin_ns) begin_ns[i] = c.now;
        ended[m] = run_move(v, o, v->after ? ended[v->after - 1] : 0, &c, &begin);
        out->channel_ns[v->channel] += ended[m] - begin;
        out->moved_bytes += (double)v->bytes;
        if (move_ns) move_ns[2 * (size_t)m] = begin, move_ns[2 * (size_t)m + 1] = ended[m];
        m++;
    }
    for (int ch = 0; ch < PL_N_CHANNELS; ch++)
        if (c.busy_until[ch] > c.now) c.now = c.busy_until[ch];
    pl_arena_release(&mem);
    out->total_ns = c.now;
    out->wait_ns = c.now - computed;
    return rc;
}

/* Returns the bytes of a value. */
static uint64_t bytes_of(const pl_level_problem *p, uint32_t val)
{
    return pl_stored_bytes(p->g, p->units->bits, val);
}

/* Returns the position before which move k must have ended, as expand.c has it. */
static uint32_t end_of_move(const pl_level_problem *p, const pl_list_move *moves, uint32_t n_moves,
                            uint32_t k, const uint32_t *before, const pl_plan *plan)
{
    const pl_list_move *m = &moves[k];
    if (m->at_once) return (uint32_t)plan->moves[k].begin + 1;
    if (m->to != PL_LEVEL_DEVICE && m->at < m->end && !m->late) return before[m->end];
    for (uint32_t i = k + 1; m->to != PL_LEVEL_DEVICE && i < n_moves && moves[i].at == m->at; i++)
        if (moves[i].val == m->val && moves[i].from == m->to) return (uint32_t)plan->moves[i].begin;
    return m->end < p->n ? before[m->end + 1] - 1 : plan->n_order;
}

/* Fills the positions that expand.c gives units and moves: moves of an entry come before it.
 * on_host: per value, zero. */
static void lay_out(const pl_level_problem *p, const pl_list_move *moves, uint32_t n_moves,
                    uint32_t *before, uint32_t *on_host, double *cost, pl_plan *plan)
{
    uint32_t k = 0, at = 0;
    for (uint32_t i = 0; i <= p->n; i++) {
        before[i] = at; /* the first move of the entry, or the entry */
        for (; k < n_moves && moves[k].at == i; k++, at++) {
            plan->moves[k] =
                (pl_move){.begin = (int32_t)at,
                          .from = moves[k].from,
                          .to = moves[k].to,
                          .channel = (uint8_t)pl_channel_between(moves[k].from, moves[k].to),
                          .bytes = bytes_of(p, moves[k].val),
                          .after = moves[k].from == PL_LEVEL_HOST ? on_host[moves[k].val] : 0};
            if (moves[k].to == PL_LEVEL_HOST) on_host[moves[k].val] = k + 1;
        }
        if (i < p->n) cost[at++] = p->cost_ns[p->opts->fixed_order[i]];
    }
}

pl_status pl_level_estimate(const pl_level_problem *p, const pl_list_move *moves, uint32_t n_moves,
                            double *entry_ns, double *move_ns, pl_level_times *out)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t n = p->n + n_moves, *before = pl_arena_new(&mem, uint32_t, p->n + 2);
    double *cost = pl_arena_new(&mem, double, n + 1);
    double *begin = pl_arena_new(&mem, double, n + 1);
    uint32_t *on_host = pl_arena_new(&mem, uint32_t, p->g->n_vals + 1);
    pl_plan plan = {
        .n_order = n, .n_moves = n_moves, .moves = pl_arena_new(&mem, pl_move, n_moves + 1)};
    pl_status rc = before && cost && begin && on_host && plan.moves ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) lay_out(p, moves, n_moves, before, on_host, cost, &plan);
    for (uint32_t k = 0; rc == PL_OK && k < n_moves; k++)
        plan.moves[k].end = (int32_t)end_of_move(p, moves, n_moves, k, before, &plan);
    if (rc == PL_OK) rc = pl_level_time(&plan, cost, p->levels, begin, move_ns, out);
    for (uint32_t i = 0; rc == PL_OK && entry_ns && i < p->n; i++)
        entry_ns[i] = begin[before[i + 1] - 1];
    if (rc == PL_OK && entry_ns) entry_ns[p->n] = out->total_ns;
    pl_arena_release(&mem);
    return rc;
}
