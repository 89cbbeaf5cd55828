/* pack_sky.c - the skyline: placement from the bottom up, without backtracking.
 *
 * Of all unplaced buffers, place the buffer whose lowest reachable offset is least, ties by a
 * static rank, at that offset. "Reachable" considers tops only: a buffer never goes under a placed
 * buffer, so offsets come out in non-decreasing order. The algorithm raises a level from top to
 * top. Sections whose floor the level has reached are open; when a section opens, only buffers
 * inside the run of open sections around it can be placed, all of them exactly at the level. One
 * tree finds the run, another the best rank inside it, so a run over all buffers takes O(n) memory
 * and about n log n time, where lists of overlapping pairs would need tens of millions of entries
 * at 30k buffers.
 *
 * Invariant: no section's floor is below a placed top in it, so no two buffers overlap.
 */
#include "base/heap.h"
#include "plan/pack/pack_greedy.h"

#include <string.h>

/* ---- floors: range maximum under "raise the range [l,r) to v" --------------------------- */

static void floors_clear(pl__pack_floors *f)
{
    memset(f->max, 0, sizeof(int64_t) * 2 * f->leaves);
    memset(f->raise, 0, sizeof(int64_t) * 2 * f->leaves);
}

static int64_t floors_max(const pl__pack_floors *f, uint32_t lo, uint32_t hi)
{
    int64_t m = 0;
    uint32_t l = lo + f->leaves, r = hi + f->leaves;
    for (uint32_t a = l >> 1, b = (r - 1) >> 1; a; a >>= 1, b >>= 1) {
        if (f->raise[a] > m) m = f->raise[a];
        if (f->raise[b] > m) m = f->raise[b];
    }
    for (; l < r; l >>= 1, r >>= 1) {
        if ((l & 1) && f->max[l] > m) m = f->max[l];
        l += l & 1;
        if ((r & 1) && f->max[r - 1] > m) m = f->max[r - 1];
        r -= r & 1;
    }
    return m;
}

/* v is at least every floor in [lo,hi), so a node inside the range can take v without a
 * comparison. */
static void floors_raise(pl__pack_floors *f, uint32_t lo, uint32_t hi, int64_t v)
{
    uint32_t l = lo + f->leaves, r = hi + f->leaves;
    for (uint32_t a = l >> 1, b = (r - 1) >> 1; a; a >>= 1, b >>= 1) {
        if (f->max[a] < v) f->max[a] = v;
        if (f->max[b] < v) f->max[b] = v;
    }
    for (; l < r; l >>= 1, r >>= 1) {
        if (l & 1) f->max[l] = f->raise[l] = v, l++;
        if (r & 1) r--, f->max[r] = f->raise[r] = v;
    }
}

/* Returns the end of the run of sections around s whose floors are not above level; s is one of
 * them. */
static uint32_t run_end(const pl__pack_floors *f, uint32_t s, int64_t level)
{
    uint32_t i = s + f->leaves;
    while ((i & 1) || f->max[i + 1] <= level) /* nothing high to the right below the parent */
        if ((i >>= 1) <= 1) return f->leaves;
    for (i++; i < f->leaves && f->raise[i] <= level;) i = 2 * i + (f->max[2 * i] <= level);
    while (i < f->leaves) i = 2 * i; /* all of it is high */
    return i - f->leaves;
}

static uint32_t run_start(const pl__pack_floors *f, uint32_t s, int64_t level)
{
    uint32_t i = s + f->leaves;
    while (!(i & 1) || f->max[i - 1] <= level)
        if ((i >>= 1) <= 1) return 0;
    for (i--; i < f->leaves && f->raise[i] <= level;) i = 2 * i + (f->max[2 * i + 1] > level);
    while (i < f->leaves) i = 2 * i + 1;
    return i - f->leaves + 1;
}

/* ---- skyline ---------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t p = 2;
    while (p < at_least) p *= 2;
    return p;
}

pl_status pl__pack_sky_init(pl__pack_sky *k, const pl__pack_leaf *leaf, pl_arena *a)
{
    *k = (pl__pack_sky){.leaf = leaf};
    k->floors.leaves = power_of_two(leaf->n_sections);
    k->leaves = power_of_two(leaf->n);
    k->floors.max = pl_arena_new(a, int64_t, 2 * (size_t)k->floors.leaves);
    k->floors.raise = pl_arena_new(a, int64_t, 2 * (size_t)k->floors.leaves);
    k->heap = pl_arena_new(a, pl__pack_event, leaf->n);
    k->least = pl_arena_new(a, pl__pack_least, 2 * (size_t)k->leaves);
    k->order = pl_arena_new(a, uint32_t, leaf->n);
    k->rank = pl_arena_new(a, uint32_t, leaf->n);
    k->placed = pl_arena_new(a, uint32_t, leaf->n);
    k->off = pl_arena_new(a, int64_t, leaf->n);
    bool ok = k->floors.max && k->floors.raise && k->heap && k->least && k->order && k->rank &&
              k->placed && k->off;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

static bool is_lower(const void *unused, const pl__pack_event *a, const pl__pack_event *b)
{
    (void)unused;
    return a->top < b->top;
}
PL_HEAP_DEFINE(events, pl__pack_event, const void *, is_lower)

static void join(pl__pack_sky *k, uint32_t node)
{
    pl__pack_least l = k->least[2 * node], r = k->least[2 * node + 1];
    k->least[node].hi = l.hi < r.hi ? l.hi : r.hi;
    k->least[node].rank = l.rank < r.rank ? l.rank : r.rank;
}

#define NONE UINT32_MAX

static void least_fill(pl__pack_sky *k)
{
    for (uint32_t b = 0; b < k->leaves; b++)
        k->least[k->leaves + b] = b < k->leaf->n ? (pl__pack_least){k->leaf->hi[b], k->rank[b]}
                                                 : (pl__pack_least){NONE, NONE};
    for (uint32_t i = k->leaves - 1; i; i--) join(k, i);
}

static void least_remove(pl__pack_sky *k, uint32_t b)
{
    uint32_t i = b + k->leaves;
    k->least[i] = (pl__pack_least){NONE, NONE};
    while (i >>= 1) join(k, i);
}

/* A query of the tree: the least rank among buffers [b_lo,b_hi) that end by hi. */
typedef struct query {
    uint32_t b_lo, b_hi, hi, best;
} query;

/* Searches below a node that spans buffers [at, at + span), the better half first. */
static void ask(pl__pack_sky *k, query *q, uint32_t node, uint32_t at, uint32_t span)
{
    pl__pack_least v = k->least[node];
    if (v.hi > q->hi || v.rank >= q->best || at >= q->b_hi || at + span <= q->b_lo) return;
    k->work += 5;
    if (span == 1) {
        q->best = v.rank;
        return;
    }
    uint32_t right = k->least[2 * node + 1].rank < k->least[2 * node].rank, half = span / 2;
    ask(k, q, 2 * node + right, at + right * half, half);
    ask(k, q, 2 * node + !right, at + !right * half, half);
}

/* Places at level what fits in the sections [lo,hi), none of which is higher: the least rank first,
 * then what fits before and after it. */
static void fill_run(pl__pack_sky *k, uint32_t lo, uint32_t hi, int64_t level)
{
    const pl__pack_leaf *leaf = k->leaf;
    while (lo < hi) {
        query q = {leaf->first[lo], leaf->first[hi], hi, NONE};
        ask(k, &q, 1, 0, k->leaves);
        k->work += 60;
        if (q.best == NONE) return;
        uint32_t b = k->order[q.best];
        int64_t top = level + leaf->size[b];
        if (top > k->height) k->height = top;
        k->off[b] = level;
        k->placed[k->n_placed++] = b;
        floors_raise(&k->floors, leaf->lo[b], leaf->hi[b], top);
        least_remove(k, b);
        events_push(NULL, k->heap, &k->n_heap, (pl__pack_event){top, b});
        bool before = leaf->lo[b] - lo < hi - leaf->hi[b]; /* recurse into the shorter side */
        fill_run(k, before ? lo : leaf->hi[b], before ? leaf->lo[b] : hi, level);
        lo = before ? leaf->hi[b] : lo;
        hi = before ? hi : leaf->lo[b];
    }
}

/* The level rises from top to top; sections open when it reaches their floor, and a buffer that
 * then fits in the open run around them could not be placed before. */
int64_t pl__pack_sky_run(pl__pack_sky *k, int64_t cap)
{
    const pl__pack_leaf *leaf = k->leaf;
    floors_clear(&k->floors);
    least_fill(k);
    k->n_placed = k->n_heap = 0;
    k->height = 0;
    k->work += 10 * (uint64_t)(leaf->n + leaf->n_sections);
    fill_run(k, 0, leaf->n_sections, 0);
    while (k->n_placed < leaf->n && k->height <= cap) {
        pl__pack_event e = events_pop(NULL, k->heap, &k->n_heap);
        uint32_t s = leaf->lo[e.buffer];
        if (floors_max(&k->floors, s, leaf->hi[e.buffer]) > e.top)
            continue; /* filled by a twin event */
        uint32_t hi = run_end(&k->floors, s, e.top);
        fill_run(k, run_start(&k->floors, s, e.top), hi < leaf->n_sections ? hi : leaf->n_sections,
                 e.top);
    }
    return k->height <= cap ? k->height : INT64_MAX;
}
