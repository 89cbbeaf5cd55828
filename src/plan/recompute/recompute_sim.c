/* recompute_sim.c - the eviction simulator: one pass over the order under a budget.
 *
 * Units run in order. Missing inputs of a unit are computed first, and their missing inputs before
 * them. When a computation does not fit, the buffer with the smallest score is dropped:
 *
 *     weight * (cost of it and its dropped ancestors + L * cost of dropped descendants)
 *     ---------------------------------------------------------------------------------
 *                              bytes^B * gap^G
 *
 * gap is the time to its next use, where a use by a dropped buffer that is itself needed counts as
 * a use: dropping the source of such a buffer would hurt as early. Descendants that are not
 * computed yet do not count as dropped. Buffers that no unit needs go before all others, but stay
 * while there is room: they may save work when a buffer made from them is dropped.
 *
 * What makes it fast:
 *   - Scores are cached, see recompute_score.c.
 *   - A buffer is "settled" when neither a later unit nor any recompute can need it again.
 *     Settled buffers are dropped at once and never walked over.
 *   - Small buffers (below budget / 10^4) are candidates only when nothing else is left.
 *   - The state is one block of memory. The simulator saves checkpoints of it along the order, so a
 *     run with other weights starts at the last checkpoint that those weights cannot have changed.
 *
 * Locks: the inputs of every computation under way are locked. When all remaining buffers are
 * locked, an input of an outer computation is unlocked, dropped, and recomputed later, a bounded
 * number of times; when that fails too the run has failed. No function here recurses.
 *
 * Invariant: bytes alive never exceed the budget; what a unit reads exists when it runs. Cost:
 * about (positions + drops) times the logarithm of the candidates.
 *
 * Example (recompute.h), budget 8. A, B, C run: a and b are there, 8 bytes. D needs 4 more. b is
 * locked, since D reads it, so a is dropped: cost 1 / (4 bytes * 1 unit to its next use, E). After
 * D, b is settled and goes at once. E misses a: A runs first. The list is A B C D A E.
 */
#include <math.h>
#include <string.h>

#include "base/sys.h"
#include "plan/recompute/recompute_sim.h"

enum {
    MAX_BREAKS = 64, /* locks broken for one unit of the order */
    LONG_RUN = 8,    /* a run of more than this many positions per unit has failed */
};

/* ---- state ------------------------------------------------------------------------------ */
static void *carve(uint8_t **at, size_t bytes)
{
    void *p = *at;
    *at += (bytes + 15) / 16 * 16;
    return p;
}

static void lay_out(pl__sim_state *st, uint8_t *block, uint32_t n)
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

static void save_state(pl__sim_state *to, uint8_t *to_block, const pl__sim_state *from,
                       const uint8_t *block, size_t bytes, uint32_t n)
{
    *to = *from;
    memcpy(to_block, block, bytes);
    lay_out(to, to_block, n);
}

static void set_evictable(pl__recompute_sim *s)
{
    const pl__recompute *m = s->m;
    uint64_t sum = 0, n = 0;
    for (uint32_t v = 0; v < m->n_vals; v++) {
        uint32_t unit = m->writer[v];
        s->evictable[v] = m->owner[v] == v && !m->pinned[v] && !m->end[v] && m->bytes[v] > 0;
        if (s->evictable[v]) sum += m->bytes[v];
        n += s->evictable[v];
        s->own[v] = unit == PL_RECOMPUTE_NONE || m->once[unit] ? INFINITY : (float)m->cost[unit];
    }
    s->mean_bytes = n ? sum / n : 0;
}

pl_status pl__recompute_sim_new(const pl__recompute *m, pl__recompute_sim **out)
{
    pl__recompute_sim *s = pl_sys_alloc(sizeof *s);
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
    s->walk_owner = pl_arena_new(a, uint32_t, n);
    s->walk_unit = pl_arena_new(a, uint32_t, m->n_units + 1);
    s->stack = pl_arena_new(a, uint32_t, n);
    s->frames = pl_arena_new(a, uint32_t, m->n_units + 1);
    s->first_drop = pl_arena_new(a, uint32_t, n);
    s->touched = pl_arena_new(a, uint32_t, n);
    s->held = pl_arena_new(a, uint32_t, n);
    s->is_touched = pl_arena_new(a, uint8_t, n);
    for (int i = 0; i < 2 && ok; i++) ok = pl__recompute_heap_init(&s->heap[i], a, n) == PL_OK;
    s->kept_drops = pl_arena_new(a, uint16_t, n);
    if (!ok || !s->weight || !s->by_size || !s->own || !s->lock || !s->evictable ||
        !s->walk_owner || !s->walk_unit || !s->stack || !s->frames || !s->first_drop ||
        !s->kept_drops || !s->touched || !s->held || !s->is_touched) {
        pl__recompute_sim_free(s);
        return PL_ERR_MEMORY;
    }
    s->size_power = -1;
    lay_out(&s->st, s->block, n);
    set_evictable(s);
    *out = s;
    return PL_OK;
}

void pl__recompute_sim_free(pl__recompute_sim *s)
{
    if (!s) return;
    pl__recompute_seq_release(&s->seq);
    pl_arena_release(&s->arena);
    pl_sys_free(s);
}

const pl__recompute_seq *pl__recompute_sim_seq(const pl__recompute_sim *s)
{
    return &s->seq;
}

uint64_t pl__recompute_sim_work(const pl__recompute_sim *s)
{
    return s->work;
}

const uint16_t *pl__recompute_sim_drops(const pl__recompute_sim *s)
{
    return s->kept_drops;
}

/* ---- allocating and dropping ------------------------------------------------------------ */
static void add_candidate(pl__recompute_sim *s, uint32_t r)
{
    if (!s->evictable[r] || s->st.cand_at[r] != PL_RECOMPUTE_NONE) return;
    s->st.cand_at[r] = s->st.n_cand;
    s->st.cand[s->st.n_cand++] = r;
    pl__sim_touch(s, r);
}

static void remove_candidate(pl__recompute_sim *s, uint32_t r)
{
    uint32_t at = s->st.cand_at[r];
    if (at == PL_RECOMPUTE_NONE) return;
    uint32_t moved = s->st.cand[--s->st.n_cand];
    s->st.cand[at] = moved;
    s->st.cand_at[moved] = at;
    s->st.cand_at[r] = PL_RECOMPUTE_NONE;
    for (int i = 0; i < 2; i++) pl__recompute_heap_remove(&s->heap[i], r);
}

static void forget_views(pl__recompute_sim *s, uint32_t r)
{
    for (uint32_t i = s->m->views.at[r]; i < s->m->views.at[r + 1]; i++)
        s->st.have[s->m->views.item[i]] = 0;
}

static void drop(pl__recompute_sim *s, uint32_t r)
{
    s->st.have[r] = 0;
    forget_views(s, r);
    s->st.alive -= s->m->bytes[r];
    remove_candidate(s, r);
}

/* Whether no later unit reads r, and all that was made from r is settled or never dropped. */
static bool is_settled(const pl__recompute_sim *s, uint32_t r)
{
    const pl__recompute *m = s->m;
    if (m->pinned[r] || m->end[r] || pl__sim_next_use(s, r) != PL__SIM_NEVER) return false;
    for (uint32_t i = m->feeds.at[r]; i < m->feeds.at[r + 1]; i++) {
        uint32_t d = m->feeds.item[i];
        if (!s->st.settled[d] && !m->pinned[d] && !(m->end[d] && s->st.have[d])) return false;
    }
    return true;
}

/* Settles r if possible, then the buffers that only r still needed. */
static void settle(pl__recompute_sim *s, uint32_t r)
{
    const pl__recompute *m = s->m;
    uint32_t n = 0;
    s->stack[n++] = r;
    while (n) {
        uint32_t q = s->stack[--n];
        s->work += 4;
        if (s->st.settled[q] || !is_settled(s, q)) continue;
        s->st.settled[q] = 1;
        if (s->st.have[q]) drop(s, q);
        uint32_t unit = m->writer[q];
        if (unit == PL_RECOMPUTE_NONE) continue;
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++) {
            uint32_t up = m->needs.item[i];
            if (!s->st.settled[up] && n < m->n_vals) s->stack[n++] = up;
        }
    }
}

/* ---- making room ------------------------------------------------------------------------ */
/* Locks what the computations under way read, and the outputs of the innermost computation, because
 * existing ones are overwritten. */
static void lock_frames(pl__recompute_sim *s)
{
    const pl__recompute *m = s->m;
    uint32_t locking = ++s->locking;
    for (uint32_t f = 0; f < s->n_frames; f++) {
        uint32_t unit = s->frames[f];
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++)
            s->lock[m->needs.item[i]] = locking;
    }
    uint32_t top = s->frames[s->n_frames - 1];
    for (uint32_t i = m->makes.at[top]; i < m->makes.at[top + 1]; i++)
        s->lock[m->makes.item[i]] = locking;
    s->work += 4 * (uint64_t)s->n_frames;
}

static void evict(pl__recompute_sim *s, uint32_t r)
{
    if (s->st.next[r] != PL__SIM_NEVER && s->st.drops[r] < UINT16_MAX) s->st.drops[r]++;
    if (s->first_drop[r] > s->st.pos) s->first_drop[r] = s->st.pos;
    drop(s, r);
    pl__sim_mark_dirty(s, r, true);
}

/* Unlocks and drops the largest input of an outer computation, one that waits for the computation
 * on top of the stack; the input is recomputed later. */
static bool break_lock(pl__recompute_sim *s)
{
    if (s->n_frames < 2 || s->breaks >= MAX_BREAKS) return false;
    const pl__recompute *m = s->m;
    uint32_t top = s->frames[s->n_frames - 1], walk = ++s->walk, best = PL_RECOMPUTE_NONE;
    for (uint32_t i = m->needs.at[top]; i < m->needs.at[top + 1]; i++)
        s->walk_owner[m->needs.item[i]] = walk;
    for (uint32_t i = m->makes.at[top]; i < m->makes.at[top + 1]; i++)
        s->walk_owner[m->makes.item[i]] = walk;
    for (uint32_t i = 0; i < s->st.n_cand; i++) {
        uint32_t r = s->st.cand[i];
        if (s->walk_owner[r] == walk) continue;
        if (best == PL_RECOMPUTE_NONE || m->bytes[r] > m->bytes[best] ||
            (m->bytes[r] == m->bytes[best] && r < best))
            best = r;
    }
    if (best == PL_RECOMPUTE_NONE) return false;
    pl__sim_refresh(s, best);
    if (isinf(pl__sim_walk_up(s, best))) return false;
    s->breaks++;
    evict(s, best);
    return true;
}

static bool make_room(pl__recompute_sim *s, uint64_t need)
{
    if (s->st.alive + need <= s->budget) return true;
    lock_frames(s);
    while (s->st.alive + need > s->budget) {
        uint32_t r = pl__sim_pick(s, &s->heap[0]);
        if (r == PL_RECOMPUTE_NONE) r = pl__sim_pick(s, &s->heap[1]);
        if (r != PL_RECOMPUTE_NONE)
            evict(s, r);
        else if (!break_lock(s))
            return false;
    }
    return true;
}

/* ---- computing -------------------------------------------------------------------------- */
static bool push_frame(pl__recompute_sim *s, uint32_t unit)
{
    if (s->n_frames >= s->m->n_units || (unit != s->st.pos && s->m->once[unit])) return false;
    s->frames[s->n_frames++] = unit;
    return true;
}

/* Returns the first missing input of unit, or NONE. */
static uint32_t missing_input(const pl__recompute_sim *s, uint32_t unit)
{
    const pl__recompute *m = s->m;
    for (uint32_t i = m->in.at[unit]; i < m->in.at[unit + 1]; i++)
        if (!s->st.have[m->in.item[i]]) return m->in.item[i];
    return PL_RECOMPUTE_NONE;
}

/* Requires that all inputs exist: makes room and computes. */
static pl_status execute(pl__recompute_sim *s, uint32_t unit, bool *ok)
{
    const pl__recompute *m = s->m;
    const pl_recompute_problem *p = m->p;
    uint64_t need = pl__recompute_work(m, unit);
    for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++)
        if (!s->st.have[m->makes.item[i]]) need += m->bytes[m->makes.item[i]];
    *ok = make_room(s, need);
    if (!*ok) return PL_OK;
    bool again = unit < s->st.pos;
    for (uint32_t i = p->out_at[unit]; i < p->out_at[unit + 1]; i++) {
        uint32_t v = p->out[i];
        if (m->owner[v] == v && !(m->pinned[v] && again)) {
            forget_views(s, v);
            if (!s->st.have[v]) s->st.alive += m->bytes[v];
            s->st.have[v] = 1;
            add_candidate(s, v);
            if (again)
                pl__sim_mark_dirty(s, v, false);
            else
                s->st.dirty[v] = PL__SIM_DIRTY;
            pl__sim_touch(s, v);
        }
        s->st.have[v] = 1;
    }
    PL_TRY(pl__recompute_seq_push(&s->seq, unit));
    s->st.cost += m->cost[unit];
    s->work += 20;
    /* every later unit runs at least once, for any choice of recompute */
    double rest = m->base_cost - m->time[again ? s->st.pos : s->st.pos + 1];
    *ok = s->st.cost + rest <= s->cost_limit && s->seq.n < LONG_RUN * m->n_units + 64;
    return PL_OK;
}

/* Computes the next unit of the order with all missing inputs. */
static pl_status compute_next(pl__recompute_sim *s, bool *ok)
{
    s->n_frames = 0;
    s->breaks = 0;
    *ok = push_frame(s, s->st.pos);
    while (*ok && s->n_frames) {
        uint32_t unit = s->frames[s->n_frames - 1], v = missing_input(s, unit);
        if (v != PL_RECOMPUTE_NONE) {
            *ok = s->m->writer[v] != PL_RECOMPUTE_NONE && push_frame(s, s->m->writer[v]);
            continue;
        }
        PL_TRY(execute(s, unit, ok));
        if (*ok) s->n_frames--;
    }
    return PL_OK;
}

/* ---- runs ------------------------------------------------------------------------------- */
static void clear_heaps(pl__recompute_sim *s)
{
    for (int i = 0; i < 2; i++) pl__recompute_heap_clear(&s->heap[i]);
    while (s->n_touched) s->is_touched[s->touched[--s->n_touched]] = 0;
}

static void start(pl__recompute_sim *s)
{
    const pl__recompute *m = s->m;
    uint32_t n = m->n_vals;
    memset(s->block, 0, s->block_bytes);
    s->st.alive = 0;
    s->st.cost = 0;
    s->st.n_seq = s->st.n_cand = s->st.pos = 0;
    clear_heaps(s);
    memset(s->first_drop, 0xff, n * sizeof *s->first_drop);
    for (uint32_t v = 0; v < n; v++) {
        s->st.cand_at[v] = PL_RECOMPUTE_NONE;
        s->st.dirty[v] = PL__SIM_DIRTY;
        s->st.use[v] = m->uses.at[v];
        if (m->writer[v] != PL_RECOMPUTE_NONE) continue;
        s->st.have[v] = 1;
        s->st.alive += m->bytes[v];
        if (m->owner[v] == v) add_candidate(s, v);
    }
    s->n_marks = 0;
    s->seq.n = 0;
}

static pl_status checkpoint(pl__recompute_sim *s)
{
    uint32_t every = s->m->n_units / PL__SIM_MARKS + 1;
    if (s->st.pos % every || s->st.pos / every != s->n_marks || s->n_marks == PL__SIM_MARKS)
        return PL_OK;
    uint8_t **block = &s->mark_block[s->n_marks];
    if (!*block && !(*block = pl_arena_alloc(&s->arena, s->block_bytes))) return PL_ERR_MEMORY;
    s->st.n_seq = s->seq.n;
    save_state(&s->mark[s->n_marks], *block, &s->st, s->block, s->block_bytes, s->m->n_vals + 1);
    s->work += s->block_bytes / 16;
    s->n_marks++;
    return PL_OK;
}

static pl_status advance(pl__recompute_sim *s, bool *ok)
{
    const pl__recompute *m = s->m;
    *ok = true;
    while (*ok && s->st.pos < m->n_units) {
        if (s->marks) PL_TRY(checkpoint(s));
        PL_TRY(compute_next(s, ok));
        if (!*ok) break;
        uint32_t unit = s->st.pos++;
        for (uint32_t i = m->needs.at[unit]; i < m->needs.at[unit + 1]; i++) {
            settle(s, m->needs.item[i]);
            pl__sim_touch(s, m->needs.item[i]); /* its next use has changed */
        }
        for (uint32_t i = m->makes.at[unit]; i < m->makes.at[unit + 1]; i++)
            settle(s, m->makes.item[i]);
    }
    if (*ok) memcpy(s->kept_drops, s->st.drops, m->n_vals * sizeof *s->kept_drops);
    s->seq.cost = s->st.cost;
    return PL_OK;
}

static void set_sizes(pl__recompute_sim *s, float power)
{
    if (s->size_power == power) return;
    s->size_power = power;
    for (uint32_t v = 0; v < s->m->n_vals; v++)
        s->by_size[v] = s->m->bytes[v] ? powf((float)s->m->bytes[v], -power) : 1;
}

/* Returns the size below which a buffer is dropped only when no larger one is left: dropping
 * thousands of small buffers makes little room. A buffer of at least a fourth of the mean size is
 * never small: in a step of very many units every buffer is a small part of the budget. */
static uint64_t smallest_candidate(const pl__recompute_sim *s)
{
    enum { PARTS = 10000, OF_MEAN = 4 };
    uint64_t of_budget = s->budget / PARTS, of_mean = s->mean_bytes / OF_MEAN;
    return of_budget < of_mean ? of_budget : of_mean;
}

pl_status pl__recompute_sim_run(pl__recompute_sim *s, const pl__recompute_setting *set,
                                uint64_t budget, const float *weight, double cost_limit, bool *ok)
{
    s->set = *set;
    s->budget = set->tight < 1 ? (uint64_t)((double)budget * (double)set->tight) : budget;
    s->least = smallest_candidate(s);
    s->cost_limit = cost_limit;
    s->marks = weight != NULL;
    set_sizes(s, set->size_power);
    for (uint32_t v = 0; v < s->m->n_vals; v++) s->weight[v] = weight ? weight[v] : 1;
    start(s);
    return advance(s, ok);
}

pl_status pl__recompute_sim_rerun(pl__recompute_sim *s, const float *weight,
                                  const uint32_t *changed, uint32_t n_changed, double cost_limit,
                                  bool *ok)
{
    const pl__recompute *m = s->m;
    uint32_t from = m->n_units;
    for (uint32_t i = 0; i < n_changed; i++) {
        uint32_t v = changed[i];
        /* A heavier weight matters only where the buffer was dropped; a lighter weight anywhere
         * after its first computation. */
        uint32_t at = weight[v] > s->weight[v]            ? s->first_drop[v]
                      : m->writer[v] == PL_RECOMPUTE_NONE ? 0
                                                          : m->writer[v];
        if (at < from) from = at;
        s->weight[v] = weight[v];
    }
    while (s->n_marks > 1 && s->mark[s->n_marks - 1].pos > from) s->n_marks--;
    uint32_t k = s->n_marks - 1;
    save_state(&s->st, s->block, &s->mark[k], s->mark_block[k], s->block_bytes, m->n_vals + 1);
    s->seq.n = s->st.n_seq;
    clear_heaps(s);
    for (uint32_t i = 0; i < s->st.n_cand; i++) pl__sim_touch(s, s->st.cand[i]);
    for (uint32_t v = 0; v < m->n_vals; v++)
        if (s->first_drop[v] >= s->st.pos) s->first_drop[v] = PL_RECOMPUTE_NONE;
    s->cost_limit = cost_limit;
    s->work += s->block_bytes / 8;
    return advance(s, ok);
}
