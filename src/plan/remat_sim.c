/* remat_sim.c - the eviction simulator: one pass over the order under a budget.
 *
 * Ops run in order. What an op misses is computed first, and what that misses before it. When a
 * computation does not fit, the storage with the least score is dropped:
 *
 *     weight * (cost of it and its dropped ancestors + L * cost of dropped descendants)
 *     ---------------------------------------------------------------------------------
 *                              bytes^B * gap^G
 *
 * gap is the time to its next use, where a use by a dropped storage that is itself wanted counts
 * as one: dropping the source of such a storage would hurt as early. Descendants that are not
 * computed yet are no "dropped" ones. Storages that nothing wants go before all others, but stay
 * while there is room: they may save work when something made from them is dropped.
 *
 * What makes it fast:
 *   - The two walks behind a score (up over dropped ancestors, down over dropped descendants)
 *     are cached; a drop or a recomputation marks dirty just those it can have changed.
 *   - A storage is "settled" when neither an op to come nor any recomputation can want it again.
 *     Settled storages are dropped at once and never walked over.
 *   - Candidates lie in a heap by what their score is at least, so that few are looked at for a drop.
 *   - Small storages (below budget / 10^4) are candidates only when nothing else is left.
 *   - The state is one block of memory. Checkpoints of it are taken along the way, so a run
 *     with other weights starts at the last one which those weights cannot have changed.
 *
 * Locks: the inputs of every computation under way are locked. When all that is left is locked,
 * an input of an outer computation is given up and fetched again later, a bounded number of
 * times; when that fails too the run has failed. No function here recurses.
 */
#include <math.h>
#include <string.h>

#include "base/sys.h"
#include "plan/remat_heap.h"
#include "plan/remat_int.h"

enum {
    N_MARKS = 24,     /* checkpoints along the order */
    MAX_BREAKS = 64,  /* locks given up for one op of the order */
    MAX_DOWN = 400,   /* dropped descendants looked at: near ones tell enough */
    LONG_RUN = 8,     /* a run of more than this many instructions an op has failed */
    /* What a cached walk may have missed. "More": only drops, so that the true score is at least
     * the cached one; "less": something came back, and it may be lower. */
    UP_MORE = 1,
    UP_LESS = 2,
    DOWN_MORE = 4,
    DOWN_LESS = 8,
    ALL_DIRTY = UP_LESS | DOWN_LESS,
};
#define NEVER UINT32_MAX

/* The part of the state that a checkpoint saves: pointers into one block. */
typedef struct state {
    uint64_t alive;
    double cost;
    uint32_t n_seq, n_cand, pos;
    uint8_t *have;      /* of each value: there */
    uint8_t *settled;   /* of each root: never wanted again */
    uint8_t *dirty;     /* of each root */
    uint32_t *use;      /* of each root: index of its next use in the model's list */
    uint32_t *next;     /* of each root: op of the next use, dropped descendants included */
    uint32_t *cand;     /* roots that may be dropped, in no order */
    uint32_t *cand_at;  /* of each root: its place in cand, or NONE */
    uint16_t *drops;    /* of each root: dropped while wanted */
    float *up, *down;   /* of each root: cost of dropped ancestors and itself; descendants */
} state;

struct pl__remat_sim {
    const pl__remat *m;
    pl__remat_setting set;
    uint64_t budget;   /* of this run */
    uint64_t least;    /* smaller storages are no candidates at first */
    double cost_limit;
    uint64_t work;
    state st;
    uint8_t *block; /* st's arrays */
    size_t block_bytes;
    bool marks;       /* checkpoints are taken: this run is to be run again with other weights */
    uint32_t n_marks;
    state mark[N_MARKS];
    uint8_t *mark_block[N_MARKS];
    float *weight;       /* of each root */
    float *by_size;      /* of each root: bytes^-B */
    float size_power;    /* that by_size was made for */
    float *own;          /* of each root: cost of its op, infinite if it cannot run again */
    uint32_t *lock;      /* of each root: serial of the last locking that had it */
    uint32_t locking;
    uint8_t *evictable;  /* of each root */
    uint32_t *walk_root, *walk_op; /* serial of the last walk that saw it */
    uint32_t walk;
    uint32_t *stack;     /* of roots, for walks */
    uint32_t *frames;    /* ops under way, each waiting for the one above it */
    uint32_t n_frames;
    uint32_t *first_drop; /* of each root: order position of its first drop in the last run */
    /* Candidates by what their score is at least: large ones, small ones. Those whose score may have
     * fallen wait in `touched` for a new number. */
    pl__remat_heap heap[2];
    uint32_t *touched, n_touched, *held;
    uint8_t *is_touched; /* of each root */
    pl__remat_seq seq;
    uint32_t breaks;
    uint16_t *kept_drops; /* of the last successful run */
    pl_arena arena;
};

/* ---- state ------------------------------------------------------------------------------ */
static void *carve(uint8_t **at, size_t bytes)
{
    void *p = *at;
    *at += (bytes + 15) / 16 * 16;
    return p;
}

static void lay_out(state *st, uint8_t *block, uint32_t n)
{
    uint8_t *at = block;
    st->up = carve(&at, n * sizeof(float));
    st->down = carve(&at, n * sizeof(float));
    st->use = carve(&at, n * sizeof(uint32_t));
    st->next = carve(&at, n * sizeof(uint32_t));
    st->cand = carve(&at, n * sizeof(uint32_t));
    st->cand_at = carve(&at, n * sizeof(uint32_t));
    st->drops = carve(&at, n * sizeof(uint16_t));
    st->have = carve(&at, n);
    st->settled = carve(&at, n);
    st->dirty = carve(&at, n);
}

static void save_state(state *to, uint8_t *to_block, const state *from, const uint8_t *block,
                       size_t bytes, uint32_t n)
{
    *to = *from;
    memcpy(to_block, block, bytes);
    lay_out(to, to_block, n);
}

static void set_evictable(pl__remat_sim *s)
{
    const pl__remat *m = s->m;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        uint32_t op = m->writer[v];
        s->evictable[v] = m->root[v] == v && !m->pinned[v] && !m->end[v] && m->bytes[v] > 0;
        s->own[v] = op == PL_REMAT_NONE || m->once[op] ? INFINITY : (float)m->cost[op];
    }
}

pl_status pl__remat_sim_new(const pl__remat *m, pl__remat_sim **out)
{
    pl__remat_sim *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    uint32_t n = m->n_vals + 1;
    pl_arena *a = &s->arena;
    s->m = m;
    s->block_bytes = (size_t)n * (6 * 4 + 2 + 3) + 10 * 16;
    bool ok = (s->block = pl_arena_alloc(a, s->block_bytes)) != NULL;
    s->weight = pl_arena_new(a, float, n);
    s->by_size = pl_arena_new(a, float, n);
    s->own = pl_arena_new(a, float, n);
    s->lock = pl_arena_new(a, uint32_t, n);
    s->evictable = pl_arena_new(a, uint8_t, n);
    s->walk_root = pl_arena_new(a, uint32_t, n);
    s->walk_op = pl_arena_new(a, uint32_t, m->n_ops + 1);
    s->stack = pl_arena_new(a, uint32_t, n);
    s->frames = pl_arena_new(a, uint32_t, m->n_ops + 1);
    s->first_drop = pl_arena_new(a, uint32_t, n);
    s->touched = pl_arena_new(a, uint32_t, n);
    s->held = pl_arena_new(a, uint32_t, n);
    s->is_touched = pl_arena_new(a, uint8_t, n);
    for (int i = 0; i < 2 && ok; i++) ok = pl__remat_heap_init(&s->heap[i], a, n) == PL_OK;
    s->kept_drops = pl_arena_new(a, uint16_t, n);
    if (!ok || !s->weight || !s->by_size || !s->own || !s->lock || !s->evictable || !s->walk_root ||
        !s->walk_op || !s->stack || !s->frames || !s->first_drop || !s->kept_drops ||
        !s->touched || !s->held || !s->is_touched) {
        pl__remat_sim_free(s);
        return PL_ERR_MEMORY;
    }
    s->size_power = -1;
    lay_out(&s->st, s->block, n);
    set_evictable(s);
    *out = s;
    return PL_OK;
}

void pl__remat_sim_free(pl__remat_sim *s)
{
    if (!s) return;
    pl__remat_seq_release(&s->seq);
    pl_arena_release(&s->arena);
    pl_sys_free(s);
}

const pl__remat_seq *pl__remat_sim_seq(const pl__remat_sim *s)
{
    return &s->seq;
}

uint64_t pl__remat_sim_work(const pl__remat_sim *s)
{
    return s->work;
}

const uint16_t *pl__remat_sim_drops(const pl__remat_sim *s)
{
    return s->kept_drops;
}

/* ---- walks ------------------------------------------------------------------------------ */

/* Op of the next use of root r at or after the current op. */
static uint32_t next_use(const pl__remat_sim *s, uint32_t r)
{
    const pl__remat_list *uses = &s->m->uses;
    uint32_t i = s->st.use[r], end = uses->at[r + 1];
    while (i < end && uses->item[i] < s->st.pos) i++;
    s->st.use[r] = i;
    return i < end ? uses->item[i] : NEVER;
}

/* Computed at least once, not there, and perhaps wanted again. */
static bool is_dropped(const pl__remat_sim *s, uint32_t r)
{
    uint32_t w = s->m->writer[r];
    return !s->st.have[r] && !s->st.settled[r] && (w == PL_REMAT_NONE || w < s->st.pos);
}

/* Cost of computing r again now: its op and those of its dropped ancestors. */
static float walk_up(pl__remat_sim *s, uint32_t r)
{
    const pl__remat *m = s->m;
    uint32_t n = 0, walk = ++s->walk;
    double cost = 0;
    uint32_t op = m->writer[r];
    if (op == PL_REMAT_NONE || m->once[op]) return INFINITY;
    s->walk_op[op] = walk;
    s->stack[n++] = op;
    while (n) {
        op = s->stack[--n];
        cost += m->cost[op];
        s->work += 6;
        for (uint32_t i = m->needs.at[op]; i < m->needs.at[op + 1]; i++) {
            uint32_t q = m->needs.item[i];
            if (s->st.have[q]) continue;
            uint32_t w = m->writer[q];
            if (w == PL_REMAT_NONE || m->once[w]) return INFINITY;
            if (s->walk_op[w] == walk) continue;
            s->walk_op[w] = walk;
            s->stack[n++] = w;
        }
    }
    return (float)cost;
}

/* Next use of r through dropped descendants, and their cost. */
static void walk_down(pl__remat_sim *s, uint32_t r)
{
    const pl__remat *m = s->m;
    uint32_t n = 0, walk = ++s->walk, next = next_use(s, r), steps = 0;
    double cost = 0;
    s->stack[n++] = r;
    s->walk_root[r] = walk;
    while (n && steps++ < MAX_DOWN) {
        uint32_t q = s->stack[--n];
        s->work += 6;
        for (uint32_t i = m->feeds.at[q]; i < m->feeds.at[q + 1]; i++) {
            uint32_t d = m->feeds.item[i];
            if (m->writer[d] > s->st.pos) break; /* nothing from here on has been computed */
            s->work++;
            if (s->walk_root[d] == walk || !is_dropped(s, d)) continue;
            s->walk_root[d] = walk;
            s->stack[n++] = d;
            uint32_t at = next_use(s, d);
            if (at == NEVER) continue;
            if (at < next) next = at;
            cost += m->cost[m->writer[d]];
        }
    }
    s->st.next[r] = next;
    s->st.down[r] = (float)cost;
}

static void touch(pl__remat_sim *s, uint32_t r)
{
    if (s->is_touched[r] || s->st.cand_at[r] == PL_REMAT_NONE) return;
    s->is_touched[r] = 1;
    s->touched[s->n_touched++] = r;
}

/* The part of mark_dirty that looks at what was made from r. Pointers and counters are local: the compiler must take
 * every byte that is written for one that changes them. */
static uint64_t mark_below(pl__remat_sim *s, uint32_t r, bool gone)
{
    const uint32_t *at = s->m->feeds.at, *item = s->m->feeds.item, *writer = s->m->writer;
    const uint8_t *have = s->st.have, *settled = s->st.settled;
    uint32_t *seen = s->walk_root, *stack = s->stack;
    uint8_t *dirty = s->st.dirty, up = gone ? UP_MORE : UP_LESS;
    uint32_t n = 0, walk = s->walk, pos = s->st.pos;
    uint64_t work = 0;
    stack[n++] = r;
    while (n) {
        uint32_t q = stack[--n], end = at[q + 1];
        for (uint32_t i = at[q]; i < end; i++) {
            uint32_t d = item[i], w = writer[d];
            if (w > pos) break; /* nothing from here on has been computed */
            work++;
            if (seen[d] == walk) continue;
            seen[d] = walk;
            if (have[d]) {
                dirty[d] |= up;
                if (!gone) touch(s, d);
            } else if (!settled[d] && w < pos) {
                stack[n++] = d;
            }
        }
    }
    return work;
}

static uint64_t mark_above(pl__remat_sim *s, uint32_t r, bool gone)
{
    const uint32_t *at = s->m->needs.at, *item = s->m->needs.item, *writer = s->m->writer;
    const uint8_t *have = s->st.have;
    uint32_t *seen = s->walk_root, *stack = s->stack;
    uint8_t *dirty = s->st.dirty, down = gone ? DOWN_MORE : DOWN_LESS;
    uint32_t n = 0, walk = s->walk;
    uint64_t work = 0;
    stack[n++] = r;
    while (n) {
        uint32_t op = writer[stack[--n]];
        if (op == PL_REMAT_NONE) continue;
        for (uint32_t i = at[op], end = at[op + 1]; i < end; i++) {
            uint32_t q = item[i];
            work++;
            if (seen[q] == walk) continue;
            seen[q] = walk;
            if (have[q]) {
                dirty[q] |= down;
                if (!gone) touch(s, q);
            } else {
                stack[n++] = q;
            }
        }
    }
    return work;
}

/* r has gone or come back: whose cached walks pass through it? */
static void mark_dirty(pl__remat_sim *s, uint32_t r, bool gone)
{
    s->walk++;
    s->st.dirty[r] = ALL_DIRTY;
    s->work += mark_below(s, r, gone);
    s->work += mark_above(s, r, gone);
}

static void refresh(pl__remat_sim *s, uint32_t r)
{
    uint8_t d = s->st.dirty[r];
    if (d & (DOWN_MORE | DOWN_LESS) || s->st.next[r] < s->st.pos) walk_down(s, r);
    s->st.dirty[r] &= UP_MORE | UP_LESS;
    if (s->st.next[r] == NEVER || !s->st.dirty[r]) return;
    s->st.up[r] = walk_up(s, r);
    s->st.dirty[r] = 0;
}

/* ---- coming and going ------------------------------------------------------------------- */
static void add_candidate(pl__remat_sim *s, uint32_t r)
{
    if (!s->evictable[r] || s->st.cand_at[r] != PL_REMAT_NONE) return;
    s->st.cand_at[r] = s->st.n_cand;
    s->st.cand[s->st.n_cand++] = r;
    touch(s, r);
}

static void remove_candidate(pl__remat_sim *s, uint32_t r)
{
    uint32_t at = s->st.cand_at[r];
    if (at == PL_REMAT_NONE) return;
    uint32_t moved = s->st.cand[--s->st.n_cand];
    s->st.cand[at] = moved;
    s->st.cand_at[moved] = at;
    s->st.cand_at[r] = PL_REMAT_NONE;
    for (int i = 0; i < 2; i++) pl__remat_heap_remove(&s->heap[i], r);
}

static void forget_views(pl__remat_sim *s, uint32_t r)
{
    for (uint32_t i = s->m->views.at[r]; i < s->m->views.at[r + 1]; i++)
        s->st.have[s->m->views.item[i]] = 0;
}

static void drop(pl__remat_sim *s, uint32_t r)
{
    s->st.have[r] = 0;
    forget_views(s, r);
    s->st.alive -= s->m->bytes[r];
    remove_candidate(s, r);
}

/* Nothing to come reads r, and all that was made from it is settled or stays for good. */
static bool is_settled(const pl__remat_sim *s, uint32_t r)
{
    const pl__remat *m = s->m;
    if (m->pinned[r] || m->end[r] || next_use(s, r) != NEVER) return false;
    for (uint32_t i = m->feeds.at[r]; i < m->feeds.at[r + 1]; i++) {
        uint32_t d = m->feeds.item[i];
        if (!s->st.settled[d] && !m->pinned[d] && !(m->end[d] && s->st.have[d])) return false;
    }
    return true;
}

/* Settles r if it can be, then those that only it still wanted. */
static void settle(pl__remat_sim *s, uint32_t r)
{
    const pl__remat *m = s->m;
    uint32_t n = 0;
    s->stack[n++] = r;
    while (n) {
        uint32_t q = s->stack[--n];
        s->work += 4;
        if (s->st.settled[q] || !is_settled(s, q)) continue;
        s->st.settled[q] = 1;
        if (s->st.have[q]) drop(s, q);
        uint32_t op = m->writer[q];
        if (op == PL_REMAT_NONE) continue;
        for (uint32_t i = m->needs.at[op]; i < m->needs.at[op + 1]; i++) {
            uint32_t up = m->needs.item[i];
            if (!s->st.settled[up] && n < m->n_vals) s->stack[n++] = up;
        }
    }
}

/* ---- making room ------------------------------------------------------------------------ */
static float gap_factor(const pl__remat_sim *s, uint32_t next)
{
    float g = s->set.gap_power;
    if (g == 0) return 1;
    double gap = s->set.by_index ? (double)(next - s->st.pos) + 1
                                 : s->m->time[next] - s->m->time[s->st.pos] + 1;
    if (g == 1) return (float)gap;
    float root = sqrtf((float)gap);
    return g == 0.5f ? root : sqrtf(root);
}

/* Storages that nobody wants score below zero; of those, the cheap and large ones go first,
 * without regard to ancestors, as most of them are never wanted again. */
static float score_of(const pl__remat_sim *s, uint32_t r, float up, float down, uint32_t next)
{
    if (next == NEVER) return -1 / (1 + s->own[r] * s->by_size[r]);
    return s->weight[r] * (up + s->set.kin * down) * s->by_size[r] / gap_factor(s, next);
}

/* At most the score that a refresh would give. */
static float least_score(const pl__remat_sim *s, uint32_t r)
{
    uint8_t d = s->st.dirty[r];
    uint32_t next = s->st.next[r];
    float up = d & UP_LESS ? s->own[r] : s->st.up[r], down = s->st.down[r];
    if (d & DOWN_LESS || next < s->st.pos) {
        down = 0;
        next = next_use(s, r);
    }
    return score_of(s, r, up, down, next);
}

/* The walk up matters only to those that are wanted. */
static bool is_stale(const pl__remat_sim *s, uint32_t r)
{
    uint8_t matters = s->st.next[r] == NEVER ? DOWN_MORE | DOWN_LESS : 0xff;
    return s->st.dirty[r] & matters || s->st.next[r] < s->st.pos;
}

static void place_touched(pl__remat_sim *s)
{
    while (s->n_touched) {
        uint32_t r = s->touched[--s->n_touched];
        s->is_touched[r] = 0;
        if (s->st.cand_at[r] == PL_REMAT_NONE) continue;
        pl__remat_heap_set(&s->heap[s->m->bytes[r] < s->least], r, least_score(s, r));
        s->work += 30;
    }
}

/* The number of the top one as it is now; false when that is more than it was. */
static bool renew_top(pl__remat_sim *s, pl__remat_heap *h)
{
    uint32_t r = h->item[0];
    float was = h->key[r], now;
    if (is_stale(s, r)) {
        if ((now = least_score(s, r)) > was) {
            pl__remat_heap_set(h, r, now);
            return false;
        }
        refresh(s, r);
    }
    now = score_of(s, r, s->st.up[r], s->st.down[r], s->st.next[r]);
    if (now == was) return true;
    pl__remat_heap_set(h, r, now);
    return false;
}

/* The least score among the candidates that are not locked, or NONE; ties go to the lower number. A
 * number in the heap is at most the score: as time goes on, scores rise, and what lowers one touches
 * it. So the first one that comes to the top twice is the least. */
static uint32_t pick(pl__remat_sim *s, pl__remat_heap *h)
{
    uint32_t best = PL_REMAT_NONE, n_held = 0;
    place_touched(s);
    while (h->n && best == PL_REMAT_NONE) {
        uint32_t r = h->item[0];
        s->work += 30;
        if (h->key[r] == INFINITY) break;
        if (s->lock[r] == s->locking) {
            pl__remat_heap_remove(h, r);
            s->held[n_held++] = r;
        } else if (renew_top(s, h)) {
            best = r;
        }
    }
    while (n_held) {
        uint32_t r = s->held[--n_held];
        pl__remat_heap_set(h, r, h->key[r]);
    }
    return best;
}

/* Locks what the computations under way read, and the outputs of the top one, as those that are
 * there are written over. */
static void lock_frames(pl__remat_sim *s)
{
    const pl__remat *m = s->m;
    uint32_t locking = ++s->locking;
    for (uint32_t f = 0; f < s->n_frames; f++) {
        uint32_t op = s->frames[f];
        for (uint32_t i = m->needs.at[op]; i < m->needs.at[op + 1]; i++)
            s->lock[m->needs.item[i]] = locking;
    }
    uint32_t top = s->frames[s->n_frames - 1];
    for (uint32_t i = m->makes.at[top]; i < m->makes.at[top + 1]; i++)
        s->lock[m->makes.item[i]] = locking;
    s->work += 4 * (uint64_t)s->n_frames;
}

static void evict(pl__remat_sim *s, uint32_t r)
{
    if (s->st.next[r] != NEVER && s->st.drops[r] < UINT16_MAX) s->st.drops[r]++;
    if (s->first_drop[r] > s->st.pos) s->first_drop[r] = s->st.pos;
    drop(s, r);
    mark_dirty(s, r, true);
}

/* Gives up the largest input of a computation that waits for the one at the top. */
static bool break_lock(pl__remat_sim *s)
{
    if (s->n_frames < 2 || s->breaks >= MAX_BREAKS) return false;
    const pl__remat *m = s->m;
    uint32_t top = s->frames[s->n_frames - 1], walk = ++s->walk, best = PL_REMAT_NONE;
    for (uint32_t i = m->needs.at[top]; i < m->needs.at[top + 1]; i++)
        s->walk_root[m->needs.item[i]] = walk;
    for (uint32_t i = m->makes.at[top]; i < m->makes.at[top + 1]; i++)
        s->walk_root[m->makes.item[i]] = walk;
    for (uint32_t i = 0; i < s->st.n_cand; i++) {
        uint32_t r = s->st.cand[i];
        if (s->walk_root[r] == walk) continue;
        if (best == PL_REMAT_NONE || m->bytes[r] > m->bytes[best] ||
            (m->bytes[r] == m->bytes[best] && r < best))
            best = r;
    }
    if (best == PL_REMAT_NONE) return false;
    refresh(s, best);
    if (isinf(walk_up(s, best))) return false;
    s->breaks++;
    evict(s, best);
    return true;
}

static bool make_room(pl__remat_sim *s, uint64_t need)
{
    if (s->st.alive + need <= s->budget) return true;
    lock_frames(s);
    while (s->st.alive + need > s->budget) {
        uint32_t r = pick(s, &s->heap[0]);
        if (r == PL_REMAT_NONE) r = pick(s, &s->heap[1]);
        if (r != PL_REMAT_NONE) evict(s, r);
        else if (!break_lock(s)) return false;
    }
    return true;
}

/* ---- computing -------------------------------------------------------------------------- */
static bool push_frame(pl__remat_sim *s, uint32_t op)
{
    if (s->n_frames >= s->m->n_ops || (op != s->st.pos && s->m->once[op])) return false;
    s->frames[s->n_frames++] = op;
    return true;
}

/* The first input of op that is not there, or NONE. */
static uint32_t missing_input(const pl__remat_sim *s, uint32_t op)
{
    const pl__remat *m = s->m;
    for (uint32_t i = m->in.at[op]; i < m->in.at[op + 1]; i++)
        if (!s->st.have[m->in.item[i]]) return m->in.item[i];
    return PL_REMAT_NONE;
}

/* All inputs are there: makes room and computes. */
static pl_status execute(pl__remat_sim *s, uint32_t op, bool *ok)
{
    const pl__remat *m = s->m;
    const pl_remat_problem *p = m->p;
    uint64_t need = pl__remat_work(m, op);
    for (uint32_t i = m->makes.at[op]; i < m->makes.at[op + 1]; i++)
        if (!s->st.have[m->makes.item[i]]) need += m->bytes[m->makes.item[i]];
    *ok = make_room(s, need);
    if (!*ok) return PL_OK;
    bool again = op < s->st.pos;
    for (uint32_t i = p->out_at[op]; i < p->out_at[op + 1]; i++) {
        uint32_t v = p->out[i];
        if (m->root[v] == v && !(m->pinned[v] && again)) {
            forget_views(s, v);
            if (!s->st.have[v]) s->st.alive += m->bytes[v];
            s->st.have[v] = 1;
            add_candidate(s, v);
            if (again) mark_dirty(s, v, false);
            else s->st.dirty[v] = ALL_DIRTY;
            touch(s, v);
        }
        s->st.have[v] = 1;
    }
    PL_TRY(pl__remat_seq_push(&s->seq, op));
    s->st.cost += m->cost[op];
    s->work += 20;
    *ok = s->st.cost <= s->cost_limit && s->seq.n < LONG_RUN * m->n_ops + 64;
    return PL_OK;
}

/* Computes the next op of the order with all that it misses. */
static pl_status compute_next(pl__remat_sim *s, bool *ok)
{
    s->n_frames = 0;
    s->breaks = 0;
    *ok = push_frame(s, s->st.pos);
    while (*ok && s->n_frames) {
        uint32_t op = s->frames[s->n_frames - 1], v = missing_input(s, op);
        if (v != PL_REMAT_NONE) {
            *ok = s->m->writer[v] != PL_REMAT_NONE && push_frame(s, s->m->writer[v]);
            continue;
        }
        PL_TRY(execute(s, op, ok));
        if (*ok) s->n_frames--;
    }
    return PL_OK;
}

/* ---- runs ------------------------------------------------------------------------------- */
static void clear_heaps(pl__remat_sim *s)
{
    for (int i = 0; i < 2; i++) pl__remat_heap_clear(&s->heap[i]);
    while (s->n_touched) s->is_touched[s->touched[--s->n_touched]] = 0;
}

static void start(pl__remat_sim *s)
{
    const pl__remat *m = s->m;
    uint32_t n = m->n_vals;
    memset(s->block, 0, s->block_bytes);
    s->st.alive = 0;
    s->st.cost = 0;
    s->st.n_seq = s->st.n_cand = s->st.pos = 0;
    clear_heaps(s);
    memset(s->first_drop, 0xff, n * sizeof *s->first_drop);
    for (uint32_t v = 0; v < n; v++) {
        s->st.cand_at[v] = PL_REMAT_NONE;
        s->st.dirty[v] = ALL_DIRTY;
        s->st.use[v] = m->uses.at[v];
        if (m->writer[v] != PL_REMAT_NONE) continue;
        s->st.have[v] = 1;
        s->st.alive += m->bytes[v];
        if (m->root[v] == v) add_candidate(s, v);
    }
    s->n_marks = 0;
    s->seq.n = 0;
}

static pl_status checkpoint(pl__remat_sim *s)
{
    uint32_t every = s->m->n_ops / N_MARKS + 1;
    if (s->st.pos % every || s->st.pos / every != s->n_marks || s->n_marks == N_MARKS)
        return PL_OK;
    uint8_t **block = &s->mark_block[s->n_marks];
    if (!*block && !(*block = pl_arena_alloc(&s->arena, s->block_bytes))) return PL_ERR_MEMORY;
    s->st.n_seq = s->seq.n;
    save_state(&s->mark[s->n_marks], *block, &s->st, s->block, s->block_bytes, s->m->n_vals + 1);
    s->work += s->block_bytes / 16;
    s->n_marks++;
    return PL_OK;
}

static pl_status advance(pl__remat_sim *s, bool *ok)
{
    const pl__remat *m = s->m;
    *ok = true;
    while (*ok && s->st.pos < m->n_ops) {
        if (s->marks) PL_TRY(checkpoint(s));
        PL_TRY(compute_next(s, ok));
        if (!*ok) break;
        uint32_t op = s->st.pos++;
        for (uint32_t i = m->needs.at[op]; i < m->needs.at[op + 1]; i++) {
            settle(s, m->needs.item[i]);
            touch(s, m->needs.item[i]); /* its next use is another one now */
        }
        for (uint32_t i = m->makes.at[op]; i < m->makes.at[op + 1]; i++)
            settle(s, m->makes.item[i]);
    }
    if (*ok) memcpy(s->kept_drops, s->st.drops, m->n_vals * sizeof *s->kept_drops);
    s->seq.cost = s->st.cost;
    return PL_OK;
}

static void set_sizes(pl__remat_sim *s, float power)
{
    if (s->size_power == power) return;
    s->size_power = power;
    for (uint32_t v = 0; v < s->m->n_vals; v++)
        s->by_size[v] = s->m->bytes[v] ? powf((float)s->m->bytes[v], -power) : 1;
}

pl_status pl__remat_sim_run(pl__remat_sim *s, const pl__remat_setting *set, uint64_t budget,
                            const float *weight, double cost_limit, bool *ok)
{
    s->set = *set;
    s->budget = set->tight < 1 ? (uint64_t)((double)budget * (double)set->tight) : budget;
    s->least = s->budget / 10000;
    s->cost_limit = cost_limit;
    s->marks = weight != NULL;
    set_sizes(s, set->size_power);
    for (uint32_t v = 0; v < s->m->n_vals; v++) s->weight[v] = weight ? weight[v] : 1;
    start(s);
    return advance(s, ok);
}

pl_status pl__remat_sim_rerun(pl__remat_sim *s, const float *weight, const uint32_t *changed,
                              uint32_t n_changed, double cost_limit, bool *ok)
{
    const pl__remat *m = s->m;
    uint32_t from = m->n_ops;
    for (uint32_t i = 0; i < n_changed; i++) {
        uint32_t v = changed[i];
        /* A heavier weight matters only where the storage went; a lighter one anywhere after
         * its first computation. */
        uint32_t at = weight[v] > s->weight[v] ? s->first_drop[v]
                      : m->writer[v] == PL_REMAT_NONE ? 0 : m->writer[v];
        if (at < from) from = at;
        s->weight[v] = weight[v];
    }
    while (s->n_marks > 1 && s->mark[s->n_marks - 1].pos > from) s->n_marks--;
    uint32_t k = s->n_marks - 1;
    save_state(&s->st, s->block, &s->mark[k], s->mark_block[k], s->block_bytes, m->n_vals + 1);
    s->seq.n = s->st.n_seq;
    clear_heaps(s);
    for (uint32_t i = 0; i < s->st.n_cand; i++) touch(s, s->st.cand[i]);
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (s->first_drop[v] >= s->st.pos) s->first_drop[v] = PL_REMAT_NONE;
    s->cost_limit = cost_limit;
    s->work += s->block_bytes / 8;
    return advance(s, ok);
}
