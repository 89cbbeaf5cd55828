/* schedule.c - when moves begin and end; see level_plan.h.
 *
 * A fetch begins as late as its channel allows for the value to be there when its reader begins;
 * the latest beginnings are found from the last reader to the first. It begins later where the
 * arena has no room for it that early; then the reader waits. A store begins as soon as its value
 * may leave. It must have ended when the channel is expected to be done with it, or earlier where
 * the arena needs the bytes.
 *
 * Invariant: begun at its latest possible position and ended at its earliest, every move costs the
 * arena nothing beyond pl_gaps.alive. Cost: linear in moves and the positions that they span.
 */
#include "plan/levels/gaps.h"

#include <stdlib.h>

/* A move, before it becomes a pl_list_move. */
typedef struct planned {
    uint32_t val;
    uint64_t bytes;
    uint8_t from, to;
    int32_t at, end; /* entries, as in pl_list_move */
} planned;

typedef struct schedule {
    pl_gaps *x;
    uint64_t budget; /* UINT64_MAX: none */
    planned *move;   /* fetches, then stores */
    uint32_t n_fetches, n_moves;
} schedule;

/* Returns the last position that begins at or before a time. */
static int32_t position_at(const pl_gaps *x, double ns)
{
    int32_t lo = 0, hi = (int32_t)x->p->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo + 1) / 2;
        if (x->begin_ns[mid] <= ns)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Returns the first position that begins at or after a time; n: none. */
static int32_t position_after(const pl_gaps *x, double ns)
{
    int32_t at = position_at(x, ns), n = (int32_t)x->p->n;
    return x->begin_ns[at] >= ns || at == n ? at : at + 1;
}

static int by_reader(const void *a, const void *b)
{
    const planned *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->val > y->val) - (x->val < y->val);
}

static int by_leaving(const void *a, const void *b)
{
    const planned *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->val > y->val) - (x->val < y->val);
}

static pl_status list_moves(schedule *s, pl_arena *mem)
{
    const pl_gaps *x = s->x;
    s->move = pl_arena_new(mem, planned, 2 * (size_t)x->n_gaps + x->n_stores + 1);
    if (!s->move) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < x->n_gaps; i++) {
        const pl_gap *g = &x->gap[i];
        if (!g->taken) continue;
        s->move[s->n_fetches++] = (planned){.val = g->val,
                                            .bytes = g->bytes,
                                            .from = g->level,
                                            .at = g->after + 1,
                                            .end = g->before};
    }
    qsort(s->move, s->n_fetches, sizeof *s->move, by_reader);
    s->n_moves = s->n_fetches;
    for (uint32_t i = 0; i < x->n_gaps; i++) {
        const pl_gap *g = &x->gap[i];
        bool first = g->taken && g->stores; /* of the value's gaps, which stand together */
        for (uint32_t k = i; first && k-- > 0 && x->gap[k].buffer == g->buffer;)
            first = !x->gap[k].taken;
        if (first)
            s->move[s->n_moves++] = (planned){.val = g->val,
                                              .bytes = g->bytes,
                                              .to = g->level,
                                              .at = g->after + 1,
                                              .end = g->before};
    }
    for (uint32_t i = 0; i < x->n_stores; i++)
        s->move[s->n_moves++] = (planned){.val = x->store[i].val,
                                          .bytes = x->store[i].bytes,
                                          .to = x->store[i].level,
                                          .at = x->store[i].after + 1,
                                          .end = (int32_t)x->p->n};
    qsort(s->move + s->n_fetches, s->n_moves - s->n_fetches, sizeof *s->move, by_leaving);
    return PL_OK;
}

/* Sets when stores end: `end` is the latest possible before, the planned one after. */
static void end_stores(schedule *s)
{
    pl_gaps *x = s->x;
    double free_at[PL_N_CHANNELS] = {0};
    for (uint32_t i = s->n_fetches; i < s->n_moves; i++) {
        planned *m = &s->move[i];
        pl_channel c = pl_channel_between(m->from, m->to);
        double begin = x->begin_ns[m->at] > free_at[c] ? x->begin_ns[m->at] : free_at[c];
        free_at[c] = begin + pl_gap_store_ns(x->p->levels, m->to, m->bytes);
        int32_t wish = position_after(x, free_at[c]), end = m->at;
        if (wish > m->end) wish = m->end;
        while (end < wish && x->alive[end] + m->bytes <= s->budget) x->alive[end++] += m->bytes;
        m->end = end;
    }
}

/* Returns the position at which the store of a value has ended; 0: it has none. */
static int32_t stored_at(const schedule *s, uint32_t val)
{
    for (uint32_t i = s->n_fetches; i < s->n_moves; i++)
        if (s->move[i].val == val) return s->move[i].end + (s->move[i].end == s->move[i].at);
    return 0;
}

/* Sets when fetches begin: `at` is the earliest possible before, the planned one after. */
static void begin_fetches(schedule *s)
{
    enum { LEAD = 5 }; /* begin earlier by a fifth of the move's time */
    pl_gaps *x = s->x;
    double need[PL_N_CHANNELS];
    for (int c = 0; c < PL_N_CHANNELS; c++) need[c] = x->begin_ns[x->p->n];
    for (uint32_t i = s->n_fetches; i-- > 0;) {
        planned *m = &s->move[i];
        pl_channel c = pl_channel_between(m->from, m->to);
        double takes = pl_gap_fetch_ns(x->p->levels, m->from, m->bytes);
        if (x->begin_ns[m->end] < need[c]) need[c] = x->begin_ns[m->end];
        need[c] -= takes;
        int32_t wish = position_at(x, need[c] - takes / LEAD), first = stored_at(s, m->val);
        if (wish < m->at) wish = m->at;
        if (wish < first) wish = first < m->end ? first : m->end;
        m->at = wish;
    }
    for (uint32_t i = 0; i < s->n_fetches; i++) {
        planned *m = &s->move[i];
        int32_t at = m->end;
        while (at > m->at && x->alive[at - 1] + m->bytes <= s->budget) x->alive[--at] += m->bytes;
        m->at = at;
    }
}

static int by_entry(const void *a, const void *b)
{
    const pl_list_move *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    bool fetch_x = x->to == PL_LEVEL_DEVICE, fetch_y = y->to == PL_LEVEL_DEVICE;
    if (fetch_x != fetch_y) return fetch_x ? 1 : -1; /* stores first: they free bytes */
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->val > y->val) - (x->val < y->val);
}

static pl_status write_moves(const schedule *s, pl_arena *mem, pl_list_move **out)
{
    pl_list_move *m = pl_arena_new(mem, pl_list_move, s->n_moves + 1);
    if (!m) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < s->n_moves; i++)
        m[i] = (pl_list_move){.at = (uint32_t)s->move[i].at,
                              .end = (uint32_t)s->move[i].end,
                              .val = s->move[i].val,
                              .from = s->move[i].from,
                              .to = s->move[i].to};
    qsort(m, s->n_moves, sizeof *m, by_entry);
    *out = m;
    return PL_OK;
}

pl_status pl_level_bound(const pl_level_problem *p, uint64_t *bytes)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_gaps x;
    pl_status rc = pl_gaps_list(p, &scratch, &x);
    *bytes = 0;
    if (rc == PL_OK) {
        pl_gaps_take_all(&x);
        for (uint32_t i = 0; i < p->n; i++)
            if (x.alive[i] > *bytes) *bytes = x.alive[i];
    }
    pl_arena_release(&scratch);
    return rc;
}

pl_status pl_level_schedule(const pl_level_problem *p, uint64_t target, uint64_t budget,
                            pl_arena *mem, pl_list_move **moves, uint32_t *n_moves, uint64_t *peak)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_gaps x;
    schedule s = {.x = &x, .budget = budget ? budget : UINT64_MAX};
    pl_status rc = pl_gaps_list(p, &scratch, &x);
    if (rc == PL_OK) rc = pl_gaps_take(&x, target);
    if (rc == PL_OK) rc = list_moves(&s, &scratch);
    *peak = 0;
    if (rc == PL_OK) {
        end_stores(&s);
        begin_fetches(&s);
        for (uint32_t i = 0; i < p->n; i++)
            if (x.alive[i] > *peak) *peak = x.alive[i];
        rc = write_moves(&s, mem, moves);
    }
    if (rc == PL_OK) *n_moves = s.n_moves;
    pl_arena_release(&scratch);
    return rc;
}
