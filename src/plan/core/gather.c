/* gather.c - moves updates of slots together, on devices that run adjacent updates as one launch.
 *
 * The order with the lowest peak updates each weight as soon as its gradient exists. An update
 * frees its gradient and nothing waits for it, so it may run later wherever memory allows: updates
 * are held back, and all of them run together before the first unit that
 *   - would exceed the peak of the order with the gradients that wait in memory, or
 *   - reads what one of them writes;
 * at the latest at the end. Where memory is tight, updates stay where they were. The replay has the
 * last word: an order with a higher peak is given up.
 *
 * Cost: at most five replays, O(units + edges).
 */
#include "plan/core/plan_int.h"

#include <string.h>

typedef struct gathering {
    const pl_problem *p;
    const pl_life *life;
    int64_t *use;   /* per position: bytes alive in the order before */
    int64_t *frees; /* per position: bytes that its unit frees */
    uint32_t *wait; /* units held back, in their order */
    bool *waits;    /* per unit: held back */
    uint32_t n_waits;
    int64_t waiting;  /* bytes that live longer for them */
    uint32_t *out, n; /* the new order */
} gathering;

/* Whether the unit writes slots and nothing else. */
static bool is_update(const pl_problem *p, uint32_t t)
{
    uint32_t from = p->writes.start[t], to = p->writes.start[t + 1];
    for (uint32_t w = from; w < to; w++)
        if (p->buffer[p->writes.list[w]].direct < 0) return false;
    return to > from && p->work[t] == 0;
}

/* Fills the bytes alive at each position from the lifetimes of the last replay. */
static void sum_alive(gathering *g, const uint32_t *order)
{
    const pl_problem *p = g->p;
    for (uint32_t s = 0; s < p->n_buffers; s++) {
        int64_t bytes = (int64_t)pl_buffer_arena_bytes(&p->buffer[s]);
        if (g->life->owner[s] != s || g->life->last[s] <= g->life->first[s]) continue;
        g->use[g->life->first[s]] += bytes;
        if ((uint32_t)g->life->last[s] < p->n_units) g->use[g->life->last[s]] -= bytes;
    }
    for (uint32_t i = 1; i < p->n_units; i++) g->use[i] += g->use[i - 1];
    for (uint32_t i = 0; i < p->n_units; i++) g->use[i] += (int64_t)p->work[order[i]];
}

/* Returns the bytes that the unit at a position frees. */
static int64_t freed_at(const gathering *g, uint32_t t, uint32_t position)
{
    const pl_problem *p = g->p;
    int64_t bytes = 0;
    for (uint32_t e = p->reads.start[t]; e < p->reads.start[t + 1]; e++) {
        uint32_t owner = g->life->owner[p->reads.list[e]];
        if ((uint32_t)g->life->last[owner] == position + 1)
            bytes += (int64_t)pl_buffer_arena_bytes(&p->buffer[owner]);
    }
    return bytes;
}

static bool reads_waiting(const gathering *g, uint32_t t)
{
    const pl_problem *p = g->p;
    for (uint32_t e = p->preds.start[t]; e < p->preds.start[t + 1]; e++)
        if (g->waits[p->preds.list[e]]) return true;
    return false;
}

/* Runs everything held back. Updates that read another's result (a moving average of weights) come
 * after all that do not, so that equal kernels stay adjacent. */
static void run_waiting(gathering *g)
{
    while (g->n_waits) {
        uint32_t left = 0, from = g->n;
        for (uint32_t i = 0; i < g->n_waits; i++) {
            uint32_t t = g->wait[i];
            if (reads_waiting(g, t))
                g->wait[left++] = t;
            else
                g->out[g->n++] = t;
        }
        for (uint32_t i = from; i < g->n; i++) g->waits[g->out[i]] = false;
        g->n_waits = left;
    }
    g->waiting = 0;
}

/* most: bytes that may be alive. */
static void gather(gathering *g, const uint32_t *order, int64_t most)
{
    g->n = 0;
    for (uint32_t i = 0; i < g->p->n_units; i++) {
        uint32_t t = order[i];
        if (is_update(g->p, t)) {
            g->wait[g->n_waits++] = t;
            g->waits[t] = true;
            g->waiting += g->frees[i];
            continue;
        }
        if (g->n_waits && (g->use[i] + g->waiting > most || reads_waiting(g, t))) run_waiting(g);
        g->out[g->n++] = t;
    }
    run_waiting(g);
}

/* The sums here do not know which results are in place in the new order; a margin covers the
 * difference. */
static void try_margins(gathering *g, pl_life *life, uint32_t *order)
{
    static const uint64_t part[] = {0, 256, 64, 16};
    uint64_t peak = life->peak;
    sum_alive(g, order);
    for (uint32_t i = 0; i < g->p->n_units; i++) g->frees[i] = freed_at(g, order[i], i);
    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
        gather(g, order, (int64_t)(peak - (part[k] ? peak / part[k] : 0)));
        pl_life_replay(g->p, g->out, peak, life);
        if (life->peak > peak) continue;
        memcpy(order, g->out, g->p->n_units * sizeof *order);
        return;
    }
}

pl_status pl_order_gather(const pl_problem *p, uint32_t *order)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_life life;
    gathering g = {.p = p,
                   .life = &life,
                   .use = pl_arena_new(&mem, int64_t, p->n_units + 1),
                   .frees = pl_arena_new(&mem, int64_t, p->n_units + 1),
                   .wait = pl_arena_new(&mem, uint32_t, p->n_units + 1),
                   .waits = pl_arena_new(&mem, bool, p->n_units + 1),
                   .out = pl_arena_new(&mem, uint32_t, p->n_units + 1)};
    pl_status rc = pl_life_new(p, &mem, &life);
    if (rc == PL_OK && (!g.use || !g.frees || !g.wait || !g.waits || !g.out)) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) {
        pl_life_replay(p, order, UINT64_MAX, &life);
        try_margins(&g, &life, order);
    }
    pl_arena_release(&mem);
    return rc;
}
