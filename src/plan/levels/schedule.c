/* schedule.c - when moves begin and end; see level_plan.h.
 *
 * A fetch begins as late as its channel allows for the value to be there when its reader begins;
 * the latest beginnings are found from the last reader to the first. It begins later where the
 * arena has no room for it that early; then the reader waits. A store begins as soon as its value
 * may leave. It must have ended when the channel is expected to be done with it, or earlier where
 * the arena needs the bytes. Where units wait for moves, a position is reached later than the units
 * before it take: a first schedule shows how much later, and a second one is made with these times.
 *
 * Invariant: begun at its latest possible position and ended at its earliest, every move costs the
 * arena nothing beyond pl_gaps.alive. Cost: linear in moves and the positions that they span.
 */
#include "plan/levels/gaps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    const double *store_ns; /* per position: when it begins, as stores see it */
} schedule;

/* Returns the last position that begins at or before a time. */
static int32_t position_at(const pl_gaps *x, const double *begin_ns, double ns)
{
    int32_t lo = 0, hi = (int32_t)x->p->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo + 1) / 2;
        if (begin_ns[mid] <= ns)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Returns the first position that begins at or after a time; n: none. */
static int32_t position_after(const pl_gaps *x, const double *begin_ns, double ns)
{
    int32_t at = position_at(x, begin_ns, ns), n = (int32_t)x->p->n;
    return begin_ns[at] >= ns || at == n ? at : at + 1;
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
        double begin = s->store_ns[m->at] > free_at[c] ? s->store_ns[m->at] : free_at[c];
        free_at[c] = begin + pl_gap_store_ns(x->p->levels, m->to, m->bytes);
        int32_t wish = position_after(x, s->store_ns, free_at[c]), end = m->at;
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
        int32_t wish = position_at(x, x->begin_ns, need[c] - takes / LEAD);
        int32_t first = stored_at(s, m->val);
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

/* Schedules the chosen moves. waited: when positions begin if units wait for moves; NULL: not
 * known. x->alive is changed and put back. */
static pl_status schedule_once(schedule *s, const double *waited, pl_arena *scratch, pl_arena *mem,
                               pl_list_move **moves, uint64_t *peak)
{
    pl_gaps *x = s->x;
    uint32_t n = x->p->n;
    uint64_t *alive = pl_arena_new(scratch, uint64_t, n + 2), *before = x->alive;
    if (!alive) return PL_ERR_MEMORY;
    memcpy(alive, before, (n + 2) * sizeof *alive);
    x->alive = alive;
    s->n_moves = s->n_fetches = 0;
    pl_status rc = list_moves(s, scratch);
    if (rc == PL_OK) {
        s->store_ns = waited ? waited : x->begin_ns;
        end_stores(s);
        begin_fetches(s);
        *peak = 0;
        for (uint32_t i = 0; i < n; i++)
            if (alive[i] > *peak) *peak = alive[i];
        rc = write_moves(s, mem, moves);
    }
    x->alive = before;
    return rc;
}

/* Lets fetches begin when their channel is free for them, and not before: until then they would
 * only take bytes. The list is sorted again. */
static void delay_fetches(const pl_gaps *x, pl_list_move *list, uint32_t n, const double *waited,
                          const double *move_ns)
{
    enum { AHEAD = 3 }; /* moves: predicted times are not exact */
    for (uint32_t i = 0; i < n; i++) {
        pl_list_move *m = &list[i];
        if (m->to != PL_LEVEL_DEVICE) continue;
        double begin = move_ns[2 * (size_t)i], takes = move_ns[2 * (size_t)i + 1] - begin;
        int32_t at = position_at(x, waited, begin - AHEAD * takes);
        if (at > (int32_t)m->end) at = (int32_t)m->end;
        if (at > (int32_t)m->at) m->at = (uint32_t)at;
    }
    qsort(list, n, sizeof *list, by_entry);
}

/* One schedule, its times, and the best so far. */
typedef struct tried {
    pl_list_move *list;
    double *entry_ns, *move_ns;
    double best_ns; /* HUGE_VAL: none */
} tried;

/* Keeps the schedule t->list if it takes at most `most` times as long as the best. */
static pl_status keep_faster(const pl_level_problem *p, tried *t, uint32_t n, double most,
                             pl_list_move **moves)
{
    pl_level_times times;
    PL_TRY(pl_level_estimate(p, t->list, n, t->entry_ns, t->move_ns, &times));
    if (times.total_ns > t->best_ns * most) return PL_OK;
    if (times.total_ns < t->best_ns) t->best_ns = times.total_ns;
    *moves = t->list;
    return PL_OK;
}

/* First as if units never waited; then stores end where they do with the waits of the first
 * schedule; then fetches begin where their channel is free for them. The last schedule may be 1 %
 * slower: an arena with bytes to spare packs without gaps, one that is full everywhere does not. */
static pl_status refine(schedule *s, pl_arena *scratch, pl_arena *mem, pl_list_move **moves,
                        uint64_t *peak)
{
    const pl_level_problem *p = s->x->p;
    size_t most = 2 * (size_t)s->x->n_gaps + s->x->n_stores + 1;
    tried t = {.entry_ns = pl_arena_new(scratch, double, p->n + 2),
               .move_ns = pl_arena_new(scratch, double, 2 * most),
               .best_ns = HUGE_VAL};
    if (!t.entry_ns || !t.move_ns) return PL_ERR_MEMORY;
    PL_TRY(schedule_once(s, NULL, scratch, mem, &t.list, peak));
    PL_TRY(keep_faster(p, &t, s->n_moves, 1, moves));
    if (!s->n_moves) return PL_OK;
    PL_TRY(schedule_once(s, t.entry_ns, scratch, mem, &t.list, peak));
    PL_TRY(keep_faster(p, &t, s->n_moves, 1, moves));
    pl_list_move *late = pl_arena_new(mem, pl_list_move, s->n_moves + 1);
    if (!late) return PL_ERR_MEMORY;
    memcpy(late, t.list, s->n_moves * sizeof *late);
    t.list = late;
    delay_fetches(s->x, late, s->n_moves, t.entry_ns, t.move_ns);
    return keep_faster(p, &t, s->n_moves, 1.01, moves);
}

pl_status pl_level_schedule(const pl_level_problem *p, uint64_t target, uint64_t budget,
                            pl_arena *mem, pl_list_move **moves, uint32_t *n_moves, uint64_t *peak)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_gaps x;
    schedule s = {.x = &x, .budget = budget ? budget : UINT64_MAX};
    pl_status rc = pl_gaps_list(p, &scratch, &x);
    if (rc == PL_OK) rc = pl_gaps_take(&x, target);
    *peak = 0;
    if (rc == PL_OK) rc = refine(&s, &scratch, mem, moves, peak);
    if (rc == PL_OK) *n_moves = s.n_moves;
    pl_arena_release(&scratch);
    return rc;
}
