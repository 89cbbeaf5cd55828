/* recompute_score.c - the choice of the next buffer to drop in the eviction simulator; see
 * recompute_sim.c for the score.
 *
 * The two walks behind a score (up over dropped ancestors, down over dropped descendants) are
 * cached; a drop or a recompute marks dirty only the walks that it may have changed. Candidates lie
 * in a heap ordered by a lower bound of their score, so that a drop visits few of them.
 *
 * Invariant: a cached walk is correct for the state as far as walks go (MAX_WALK), or marked dirty;
 * a candidate's key is at most its cached score. Cost: a drop visits the candidates whose key is
 * below the best score, mostly one to three.
 *
 * Example: a -> b -> c, where a and b are dropped. The walk of c goes up over b and a: dropping c
 * means recomputing all three. When b is recomputed, the walks of c (up) and of a (down) are marked
 * dirty; their keys stay, since scores are computed only when they reach the top of the heap.
 */
#include <math.h>

#include "plan/recompute/recompute_sim.h"

/* Limits of the units that a walk visits, nearest first: MAX_WALK dropped ancestors, or units below
 * a change; MAX_DOWN dropped descendants. Near units are enough for the score; without a limit,
 * every drop in a long chain of dropped units would visit all of them. */
enum { MAX_WALK = 128, MAX_DOWN = 400 };

/* ---- walks ------------------------------------------------------------------------------ */

/* In these walks pointers and counters are local: the compiler must assume that every byte written
 * may change them. */
float pl__sim_walk_up(pl__recompute_sim *s, uint32_t r)
{
    const uint32_t *at = s->m->needs.at, *item = s->m->needs.item, *writer = s->m->writer;
    const uint8_t *have = s->st.have, *once = s->m->once;
    const double *unit_cost = s->m->cost;
    uint32_t *seen = s->walk_unit, *stack = s->stack;
    uint32_t n = 0, head = 0, walk = ++s->walk, unit = writer[r];
    double cost = 0;
    if (unit == PL_RECOMPUTE_NONE || once[unit]) return INFINITY;
    seen[unit] = walk;
    stack[n++] = unit;
    for (; head < n && head < MAX_WALK; head++) {
        unit = stack[head];
        cost += unit_cost[unit];
        for (uint32_t i = at[unit], end = at[unit + 1]; i < end; i++) {
            uint32_t q = item[i];
            if (have[q]) continue;
            uint32_t w = writer[q];
            if (w == PL_RECOMPUTE_NONE || once[w]) {
                s->work += 6 * (uint64_t)(head + 1);
                return INFINITY;
            }
            if (seen[w] == walk) continue;
            seen[w] = walk;
            stack[n++] = w;
        }
    }
    s->work += 6 * (uint64_t)head;
    return (float)cost;
}

/* Next use of r through dropped descendants, and their cost. Descendants are dropped where they
 * were computed, do not exist, and may be needed again. */
static void walk_down(pl__recompute_sim *s, uint32_t r)
{
    const pl__recompute *m = s->m;
    const uint32_t *at = m->feeds.at, *item = m->feeds.item, *writer = m->writer;
    const uint8_t *have = s->st.have, *settled = s->st.settled;
    uint32_t *seen = s->walk_owner, *stack = s->stack;
    uint32_t n = 0, walk = ++s->walk, next = pl__sim_next_use(s, r), steps = 0, pos = s->st.pos;
    uint64_t work = 0;
    double cost = 0;
    stack[n++] = r;
    seen[r] = walk;
    while (n && steps++ < MAX_DOWN) {
        uint32_t q = stack[--n], end = at[q + 1];
        work += 6;
        for (uint32_t i = at[q]; i < end; i++) {
            uint32_t d = item[i], w = writer[d];
            if (w > pos) break; /* nothing from here on has been computed */
            work++;
            if (seen[d] == walk || have[d] || settled[d] || w == pos) continue;
            seen[d] = walk;
            stack[n++] = d;
            uint32_t use = pl__sim_next_use(s, d);
            if (use == PL__SIM_NEVER) continue;
            if (use < next) next = use;
            cost += m->cost[w];
        }
    }
    s->work += work;
    s->st.next[r] = next;
    s->st.down[r] = (float)cost;
}

/* The part of mark_dirty that visits what was made from r. */
static uint64_t mark_below(pl__recompute_sim *s, uint32_t r, bool gone)
{
    const uint32_t *at = s->m->feeds.at, *item = s->m->feeds.item, *writer = s->m->writer;
    const uint8_t *have = s->st.have, *settled = s->st.settled;
    uint32_t *seen = s->walk_owner, *stack = s->stack;
    uint8_t *dirty = s->st.dirty, up = gone ? PL__SIM_UP_MORE : PL__SIM_UP_LESS;
    uint32_t n = 0, head = 0, walk = s->walk, pos = s->st.pos;
    uint64_t work = 0;
    stack[n++] = r;
    while (head < n && head < MAX_WALK) {
        uint32_t q = stack[head++], end = at[q + 1];
        for (uint32_t i = at[q]; i < end; i++) {
            uint32_t d = item[i], w = writer[d];
            if (w > pos) break; /* nothing from here on has been computed */
            work++;
            if (seen[d] == walk) continue;
            seen[d] = walk;
            if (have[d]) {
                dirty[d] |= up;
                if (!gone) pl__sim_touch(s, d);
            } else if (!settled[d] && w < pos) {
                stack[n++] = d;
            }
        }
    }
    return work;
}

static uint64_t mark_above(pl__recompute_sim *s, uint32_t r, bool gone)
{
    const uint32_t *at = s->m->needs.at, *item = s->m->needs.item, *writer = s->m->writer;
    const uint8_t *have = s->st.have;
    uint32_t *seen = s->walk_owner, *stack = s->stack;
    uint8_t *dirty = s->st.dirty, down = gone ? PL__SIM_DOWN_MORE : PL__SIM_DOWN_LESS;
    uint32_t n = 0, head = 0, walk = s->walk;
    uint64_t work = 0;
    stack[n++] = r;
    while (head < n && head < MAX_WALK) {
        uint32_t unit = writer[stack[head++]];
        if (unit == PL_RECOMPUTE_NONE) continue;
        for (uint32_t i = at[unit], end = at[unit + 1]; i < end; i++) {
            uint32_t q = item[i];
            work++;
            if (seen[q] == walk) continue;
            seen[q] = walk;
            if (have[q]) {
                dirty[q] |= down;
                if (!gone) pl__sim_touch(s, q);
            } else {
                stack[n++] = q;
            }
        }
    }
    return work;
}

void pl__sim_mark_dirty(pl__recompute_sim *s, uint32_t r, bool gone)
{
    s->walk++;
    s->st.dirty[r] = PL__SIM_DIRTY;
    s->work += mark_below(s, r, gone);
    s->work += mark_above(s, r, gone);
}

void pl__sim_refresh(pl__recompute_sim *s, uint32_t r)
{
    uint8_t d = s->st.dirty[r];
    if (d & (PL__SIM_DOWN_MORE | PL__SIM_DOWN_LESS) || s->st.next[r] < s->st.pos) walk_down(s, r);
    s->st.dirty[r] &= PL__SIM_UP_MORE | PL__SIM_UP_LESS;
    if (s->st.next[r] == PL__SIM_NEVER || !s->st.dirty[r]) return;
    s->st.up[r] = pl__sim_walk_up(s, r);
    s->st.dirty[r] = 0;
}

/* ---- scores ----------------------------------------------------------------------------- */
static float gap_factor(const pl__recompute_sim *s, uint32_t next)
{
    float g = s->set.gap_power;
    if (g == 0) return 1;
    double gap = s->set.by_index ? (double)(next - s->st.pos) + 1
                                 : s->m->time[next] - s->m->time[s->st.pos] + 1;
    if (g == 1) return (float)gap;
    float owner = sqrtf((float)gap);
    return g == 0.5f ? owner : sqrtf(owner);
}

/* Buffers that no unit needs have scores below zero; of those, cheap and large ones go first. Their
 * ancestors do not count, since most of these buffers are never needed again. */
static float score_of(const pl__recompute_sim *s, uint32_t r, float up, float down, uint32_t next)
{
    if (next == PL__SIM_NEVER) return -1 / (1 + s->own[r] * s->by_size[r]);
    return s->weight[r] * (up + s->set.kin * down) * s->by_size[r] / gap_factor(s, next);
}

/* A lower bound of the score that a refresh would give. */
static float score_bound(const pl__recompute_sim *s, uint32_t r)
{
    uint8_t d = s->st.dirty[r];
    uint32_t next = s->st.next[r];
    float up = d & PL__SIM_UP_LESS ? s->own[r] : s->st.up[r], down = s->st.down[r];
    if (d & PL__SIM_DOWN_LESS || next < s->st.pos) {
        down = 0;
        next = pl__sim_next_use(s, r);
    }
    return score_of(s, r, up, down, next);
}

/* Whether a walk that the score depends on is dirty; the walk up counts for needed buffers only. */
static bool is_stale(const pl__recompute_sim *s, uint32_t r)
{
    uint8_t matters = s->st.next[r] == PL__SIM_NEVER ? PL__SIM_DOWN_MORE | PL__SIM_DOWN_LESS : 0xff;
    return s->st.dirty[r] & matters || s->st.next[r] < s->st.pos;
}

static void place_touched(pl__recompute_sim *s)
{
    while (s->n_touched) {
        uint32_t r = s->touched[--s->n_touched];
        s->is_touched[r] = 0;
        if (s->st.cand_at[r] == PL_RECOMPUTE_NONE) continue;
        pl__recompute_heap_set(&s->heap[s->m->bytes[r] < s->least], r, score_bound(s, r));
        s->work += 30;
    }
}

/* Recomputes the key of the top candidate; false when the key has changed, and perhaps the top. */
static bool renew_top(pl__recompute_sim *s, pl__recompute_heap *h)
{
    uint32_t r = h->item[0];
    float was = h->key[r], now;
    if (is_stale(s, r)) {
        if ((now = score_bound(s, r)) > was) {
            pl__recompute_heap_set(h, r, now);
            return false;
        }
        pl__sim_refresh(s, r);
    }
    now = score_of(s, r, s->st.up[r], s->st.down[r], s->st.next[r]);
    if (now == was) return true;
    pl__recompute_heap_set(h, r, now);
    return false;
}

/* Returns the candidate with the smallest score that is not locked, or NONE; ties go to the lower
 * buffer. A key in the heap is at most the score: scores rise as positions pass, and every change
 * that lowers a score updates its key. So the first candidate whose key is its score is the
 * smallest. */
uint32_t pl__sim_pick(pl__recompute_sim *s, pl__recompute_heap *h)
{
    uint32_t best = PL_RECOMPUTE_NONE, n_held = 0;
    place_touched(s);
    while (h->n && best == PL_RECOMPUTE_NONE) {
        uint32_t r = h->item[0];
        s->work += 30;
        if (h->key[r] == INFINITY) break;
        if (s->lock[r] == s->locking) {
            pl__recompute_heap_remove(h, r);
            s->held[n_held++] = r;
        } else if (renew_top(s, h)) {
            best = r;
        }
    }
    while (n_held) {
        uint32_t r = s->held[--n_held];
        pl__recompute_heap_set(h, r, h->key[r]);
    }
    return best;
}
