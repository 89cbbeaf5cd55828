/* schedule.c - when moves begin and end; see level_plan.h.
 *
 * A fetch begins as late as its channel allows for the value to be there when its reader begins;
 * the latest beginnings are found from the last reader to the first. It begins later where the
 * arena has no room for it that early; then the reader waits. A store begins as soon as its value
 * may leave. It must have ended when the channel is expected to be done with it, or earlier where
 * the arena needs the bytes. Where units wait for moves, a position is reached later than the units
 * before it take: a first schedule shows how much later, and a second one is made with these times.
 *
 * A value of the disk that passes through the host has two moves each way. The read begins as early
 * as the disk needs and the host's transit bytes allow, and ends before the fetch begins. The write
 * begins when the store has ended. Moves that pass through the host over several positions take at
 * most half of the transit bytes; where those of one entry do not fit beside them, they run one
 * after the other.
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
    uint8_t from, to; /* of the move that joins the device */
    int32_t at, end;  /* entries, as in pl_list_move */
    bool via;         /* a second move joins host and disk: */
    int32_t disk_at, disk_end;
    bool at_once; /* see pl_list_move */
} planned;

typedef struct schedule {
    pl_gaps *x;
    uint64_t budget; /* UINT64_MAX: none */
    planned *move;   /* fetches, then stores */
    uint32_t n_fetches, n_moves;
    const double *store_ns; /* per position: when it begins, as stores see it */
    uint64_t *transit;      /* per position: bytes of the host that values pass through */
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

/* Whether values of a level pass through the host. */
static bool passes_host(const schedule *s, uint8_t level)
{
    return level == PL_LEVEL_DISK && s->x->p->levels->transit;
}

/* Lets the device's side of a move end at the host where values of its level pass through it. */
static void enter_via(const schedule *s, planned *m)
{
    uint8_t *low = m->to == PL_LEVEL_DEVICE ? &m->from : &m->to;
    m->via = passes_host(s, *low);
    m->disk_at = m->at;
    m->disk_end = m->end;
    if (m->via) *low = PL_LEVEL_HOST;
    /* the write of a value that is read again begins before the entry that reads it */
    if (m->via && low == &m->to && m->end < (int32_t)s->x->p->n) m->end--;
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
        bool first = g->taken && g->stores; /* of the value's gaps, which are consecutive */
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
    for (uint32_t i = 0; i < s->n_moves; i++) enter_via(s, &s->move[i]);
    return PL_OK;
}

/* Returns the transit bytes for moves that span positions. */
static uint64_t most_transit(const schedule *s)
{
    return s->x->p->levels->transit / 2;
}

/* Takes the bytes of a move at a position, of the arena and of the host where it passes through;
 * returns whether both have room. */
static bool take_bytes(schedule *s, const planned *m, int32_t at)
{
    uint64_t *alive = &s->x->alive[at], *transit = &s->transit[at];
    uint64_t passes = m->via ? pl_level_round_up(m->bytes) : 0;
    if (*alive + m->bytes > s->budget || *transit + passes > most_transit(s)) return false;
    *alive += m->bytes;
    *transit += passes;
    return true;
}

/* Sets when the write of a store ends, which the store leaves to it at m->end: as late as the disk
 * is expected to be done, as far as the host has room. left: when the store has ended. */
static void end_write(schedule *s, planned *m, double left, double *disk_free)
{
    const pl_level_opts *o = s->x->p->levels;
    double begin = left > *disk_free ? left : *disk_free;
    *disk_free = begin + o->move_ns + o->channel_ns[PL_CHANNEL_WRITE] * (double)m->bytes;
    int32_t wish = position_after(s->x, s->store_ns, *disk_free), last = m->disk_end;
    uint64_t room = pl_level_round_up(m->bytes);
    if (wish > last) wish = last;
    m->disk_at = m->disk_end = m->end;
    for (; m->disk_end < wish && s->transit[m->disk_end] + room <= most_transit(s); m->disk_end++)
        s->transit[m->disk_end] += room;
}

/* Sets when the read of a fetch begins: when the disk must begin for the fetch to begin in time, as
 * far as the host has room. first: the earliest. need: when the disk must be free for the reads
 * after this one. */
static void begin_read(schedule *s, planned *m, int32_t first, double *need)
{
    enum { LEAD = 5 };
    const pl_gaps *x = s->x;
    const pl_level_opts *o = x->p->levels;
    double takes = o->move_ns + o->channel_ns[PL_CHANNEL_READ] * (double)m->bytes;
    if (x->begin_ns[m->at] < *need) *need = x->begin_ns[m->at];
    *need -= takes;
    int32_t wish = position_at(x, x->begin_ns, *need - takes / LEAD);
    if (wish < m->disk_at) wish = m->disk_at;
    if (wish < first) wish = first;
    m->disk_end = m->at;
    m->disk_at = wish < m->at ? wish : m->at;
}

/* The same with the host's room: later reads have taken theirs. */
static void fit_read(schedule *s, planned *m)
{
    uint64_t room = pl_level_round_up(m->bytes);
    int32_t at = m->at, wish = m->disk_at;
    m->disk_end = m->at;
    while (at > wish && s->transit[at - 1] + room <= most_transit(s)) s->transit[--at] += room;
    m->disk_at = at;
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
        while (end < wish && take_bytes(s, m, end)) end++;
        m->end = end;
        if (m->via) end_write(s, m, free_at[c], &free_at[PL_CHANNEL_WRITE]);
    }
}

/* Returns the position at which the store of a value has ended; 0: it has none. */
static int32_t stored_at(const schedule *s, uint32_t val)
{
    for (uint32_t i = s->n_fetches; i < s->n_moves; i++)
        if (s->move[i].val == val) {
            const planned *m = &s->move[i];
            return m->via ? m->disk_end + (m->disk_end == m->disk_at) : m->end + (m->end == m->at);
        }
    return 0;
}

/* Sets when fetches begin: `at` is the earliest possible before, the planned one after. Fetches
 * begin in the order of their readers: a reader would wait for a fetch that begins before its own.
 */
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
        if (m->via) begin_read(s, m, first, &need[PL_CHANNEL_READ]);
    }
    int32_t last[PL_N_CHANNELS] = {0};
    for (uint32_t i = 0; i < s->n_fetches; i++) {
        planned *m = &s->move[i];
        pl_channel c = pl_channel_between(m->from, m->to);
        int32_t at = m->end, first = m->at > last[c] ? m->at : last[c];
        while (at > first && take_bytes(s, m, at - 1)) at--;
        m->at = last[c] = at;
        if (m->via) fit_read(s, m);
    }
}

/* Whether a move passes through the host within one entry. */
static bool is_short(const planned *m)
{
    return m->via && m->at == m->end && m->disk_at == m->disk_end;
}

/* Moves of one entry that pass through the host run one after the other where the host has no room
 * for all of them. taken: per position, zero. */
static void split_entries(schedule *s, uint64_t *taken)
{
    for (uint32_t i = 0; i < s->n_moves; i++)
        if (is_short(&s->move[i])) taken[s->move[i].at] += pl_level_round_up(s->move[i].bytes);
    for (uint32_t i = 0; i < s->n_moves; i++) {
        planned *m = &s->move[i];
        m->at_once = is_short(m) && taken[m->at] + most_transit(s) > s->x->p->levels->transit;
    }
}

/* Moves of an entry: stores and their writes first, because they free bytes, then reads and
 * fetches. */
static int rank_of(const pl_list_move *m)
{
    if (m->to == PL_LEVEL_DEVICE) return 3;
    if (m->from == PL_LEVEL_DEVICE) return 0;
    return m->to == PL_LEVEL_DISK ? 1 : 2;
}

static int by_entry(const void *a, const void *b)
{
    const pl_list_move *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (rank_of(x) / 2 != rank_of(y) / 2) return rank_of(x) - rank_of(y);
    if (x->at_once != y->at_once) return x->at_once ? 1 : -1;
    if (x->at_once && x->val != y->val) return x->val < y->val ? -1 : 1;
    if (rank_of(x) != rank_of(y)) return rank_of(x) - rank_of(y);
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->val > y->val) - (x->val < y->val);
}

static int by_end(const void *a, const void *b)
{
    const pl_list_move *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (x->val > y->val) - (x->val < y->val);
}

static pl_status write_moves(const schedule *s, pl_arena *mem, pl_list_move **out, uint32_t *n)
{
    pl_list_move *m = pl_arena_new(mem, pl_list_move, 2 * (size_t)s->n_moves + 1);
    if (!m) return PL_ERR_MEMORY;
    *n = 0;
    for (uint32_t i = 0; i < s->n_moves; i++) {
        const planned *a = &s->move[i];
        m[(*n)++] =
            (pl_list_move){(uint32_t)a->at, (uint32_t)a->end, a->val, a->from, a->to, a->at_once};
        if (!a->via) continue;
        bool read = a->to == PL_LEVEL_DEVICE;
        m[(*n)++] = (pl_list_move){.at = (uint32_t)a->disk_at,
                                   .end = (uint32_t)a->disk_end,
                                   .val = a->val,
                                   .from = read ? PL_LEVEL_DISK : PL_LEVEL_HOST,
                                   .to = read ? PL_LEVEL_HOST : PL_LEVEL_DISK,
                                   .at_once = a->at_once};
    }
    qsort(m, *n, sizeof *m, by_entry);
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
                               pl_list_move **moves, uint32_t *n_moves, uint64_t *peak)
{
    pl_gaps *x = s->x;
    uint32_t n = x->p->n;
    uint64_t *alive = pl_arena_new(scratch, uint64_t, n + 2), *before = x->alive;
    s->transit = pl_arena_new(scratch, uint64_t, n + 2);
    uint64_t *taken = pl_arena_new(scratch, uint64_t, n + 2);
    if (!alive || !s->transit || !taken) return PL_ERR_MEMORY;
    memcpy(alive, before, (n + 2) * sizeof *alive);
    x->alive = alive;
    s->n_moves = s->n_fetches = 0;
    pl_status rc = list_moves(s, scratch);
    if (rc == PL_OK) {
        s->store_ns = waited ? waited : x->begin_ns;
        end_stores(s);
        begin_fetches(s);
        split_entries(s, taken);
        *peak = 0;
        for (uint32_t i = 0; i < n; i++)
            if (alive[i] > *peak) *peak = alive[i];
        rc = write_moves(s, mem, moves, n_moves);
    }
    x->alive = before;
    return rc;
}

/* Lets fetches begin when their channel is free for them, and not before: until then they would
 * only take bytes. Fetches that follow a read keep their begin. The list is sorted again. */
static void delay_fetches(const pl_gaps *x, pl_list_move *list, uint32_t n, const double *waited,
                          const double *move_ns, bool *is_read)
{
    enum { AHEAD = 3 }; /* moves: predicted times are not exact */
    for (uint32_t i = 0; i < n; i++)
        if (list[i].from == PL_LEVEL_DISK && list[i].to == PL_LEVEL_HOST)
            is_read[list[i].val] = true;
    for (uint32_t i = 0; i < n; i++) {
        pl_list_move *m = &list[i];
        if (m->to != PL_LEVEL_DEVICE || is_read[m->val]) continue;
        double begin = move_ns[2 * (size_t)i], takes = move_ns[2 * (size_t)i + 1] - begin;
        int32_t at = position_at(x, waited, begin - AHEAD * takes);
        if (at > (int32_t)m->end) at = (int32_t)m->end;
        if (at > (int32_t)m->at) m->at = (uint32_t)at;
    }
    qsort(list, n, sizeof *list, by_end);
    int32_t next = (int32_t)x->p->n;
    for (uint32_t i = n; i-- > 0;) { /* in the order of their readers, as before */
        pl_list_move *m = &list[i];
        if (m->to != PL_LEVEL_DEVICE) continue;
        if ((int32_t)m->at > next && !is_read[m->val]) m->at = (uint32_t)next;
        next = (int32_t)m->at;
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
                        uint32_t *n_moves, uint64_t *peak)
{
    const pl_level_problem *p = s->x->p;
    size_t most = 2 * (2 * (size_t)s->x->n_gaps + s->x->n_stores + 1);
    uint32_t n;
    bool *is_read = pl_arena_new(scratch, bool, p->g->n_vals + 1);
    tried t = {.entry_ns = pl_arena_new(scratch, double, p->n + 2),
               .move_ns = pl_arena_new(scratch, double, 2 * most),
               .best_ns = HUGE_VAL};
    if (!t.entry_ns || !t.move_ns || !is_read) return PL_ERR_MEMORY;
    PL_TRY(schedule_once(s, NULL, scratch, mem, &t.list, &n, peak));
    *n_moves = n;
    PL_TRY(keep_faster(p, &t, n, 1, moves));
    if (!n) return PL_OK;
    PL_TRY(schedule_once(s, t.entry_ns, scratch, mem, &t.list, &n, peak));
    PL_TRY(keep_faster(p, &t, n, 1, moves));
    pl_list_move *late = pl_arena_new(mem, pl_list_move, n + 1);
    if (!late) return PL_ERR_MEMORY;
    memcpy(late, t.list, n * sizeof *late);
    t.list = late;
    delay_fetches(s->x, late, n, t.entry_ns, t.move_ns, is_read);
    return keep_faster(p, &t, n, 1.01, moves);
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
    if (rc == PL_OK) rc = refine(&s, &scratch, mem, moves, n_moves, peak);
    pl_arena_release(&scratch);
    return rc;
}
