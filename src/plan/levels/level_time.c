/* level_time.c - the predicted time of a plan with moves.
 *
 * Units run one after the other. A move begins when its position is reached and its channel is
 * free; a position begins when the moves that must have ended before it have ended. Cost: linear in
 * positions and moves.
 */
#include "plan/levels/level_plan.h"

#include "base/sys.h"

typedef struct clock_state {
    double now, busy_until[PL_N_CHANNELS];
} clock_state;

/* Waits for moves that must have ended before `position`. by_end: moves sorted by end. */
static void wait_for(const pl_plan *p, const uint32_t *by_end, uint32_t *k, int32_t position,
                     const double *ended, clock_state *c)
{
    for (; *k < p->n_moves && p->moves[by_end[*k]].end <= position; (*k)++)
        if (ended[by_end[*k]] > c->now) c->now = ended[by_end[*k]];
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
        wait_for(p, by_end, &k, (int32_t)i, ended, &c);
        if (begin_ns) begin_ns[i] = c.now;
        if (m == p->n_moves || p->moves[m].begin != (int32_t)i) {
            c.now += cost_ns[i];
            computed += cost_ns[i];
            continue;
        }
        const pl_move *v = &p->moves[m];
        double took = o->move_ns + o->channel_ns[v->channel] * (double)v->bytes;
        double *busy = &c.busy_until[v->channel], begin = *busy > c.now ? *busy : c.now;
        *busy = ended[m] = begin + took;
        out->channel_ns[v->channel] += took;
        out->moved_bytes += (double)v->bytes;
        if (move_ns) move_ns[2 * (size_t)m] = begin, move_ns[2 * (size_t)m + 1] = begin + took;
        m++;
    }
    if (rc == PL_OK) wait_for(p, by_end, &k, (int32_t)p->n_order, ended, &c);
    pl_arena_release(&mem);
    out->total_ns = c.now;
    out->wait_ns = c.now - computed;
    return rc;
}
