/* pack_search.c - depth-first search for a placement within a given height.
 *
 * After MiniMalloc (Moffitt, ASPLOS 2023). Only canonical placements are searched: buffers are
 * placed in order of (offset, static rank), each at its lowest reachable offset, so every
 * bottom-justified solution is met once. These prune the tree:
 *
 * Sections. The floor of a section plus the sizes still to be placed in it must fit. A floor is the
 * highest placed top, raised to the least reachable offset of the unplaced buffers there and to the
 * offset placed last, since later ones are not lower.
 *
 * Dominance. No buffer goes at or above the lowest top that an unplaced buffer could have at this
 * node, because that unplaced buffer would have fitted below.
 *
 * Hats. A buffer that no unplaced buffer overlaps takes no room from any other: when the search
 * below it fails, its siblings fail too. So do twins of a buffer that failed at the same offset.
 *
 * Parts. Where no unplaced buffer crosses a boundary between sections the problem splits in two
 * parts, which are searched independently with their own ranks; a part that fails is not retried
 * for each solution of the other.
 *
 * Ranks decide how soon a solution is found, and no single ranking is good for all problems, so
 * several rankings alternate under node limits that double. All changes are recorded on one trail;
 * a failure undoes changes back to a mark. Buffers are sorted by first section, so a part is a
 * range of buffers and a range of sections.
 *
 * Invariant: undoing to a mark restores floors, counts and placements exactly. Cost: exponential in
 * the worst case; node limits and the effort end it.
 */
#include "plan/pack/pack_int.h"

#include "base/arena.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Beyond these sizes the tables are too large, and the tree is too deep to search. The search
 * recurses once per placed buffer, about 230 bytes of stack each. */
#define MAX_BUFS  6000u
#define MAX_PAIRS 12000000u

#define PLACED INT64_MAX /* as a reachable offset: already placed */

typedef enum outcome { FAILED, FOUND, STOPPED } outcome;

typedef struct change {
    int64_t old;
    uint32_t index;
    enum { REACH, FLOOR, RANK, PLACE } what;
} change;

typedef struct cand {
    int64_t off;
    uint32_t buffer, rank;
} cand;

typedef struct dfs {
    const pl__pack_leaf *leaf;
    uint32_t *near_at, *near; /* overlapping buffers of b: near[near_at[b]..near_at[b+1]) */
    uint32_t *live_at, *live; /* buffers alive in section s */
    uint32_t *rank;
    int64_t *reach;    /* lowest reachable offset, PLACED once placed */
    int64_t *at;       /* where it was placed */
    int64_t *floor;    /* of each section */
    int64_t *waiting;  /* of each section: sizes of the unplaced */
    uint32_t *witness; /* of each section: a buffer that once kept the floor from rising */
    uint32_t *cross;   /* unplaced buffers alive on both sides of the start of section s */
    change *trail;
    size_t n_trail, cap_trail;
    cand *cands; /* candidate lists of all open nodes, one after the other */
    size_t n_cands, cap_cands;
    pl__pack_keyed *rows; /* scratch of set_ranks */
    const char *keys;     /* by which it ranks, one of ORDERS */
    int64_t cap;          /* the height to stay within */
    uint64_t nodes_left, work;
    pl__pack_effort *effort;
    pl_status status; /* why STOPPED, if memory */
} dfs;

typedef struct part {
    uint32_t buf_lo, buf_hi, sec_lo, sec_hi;
} part;

/* ---- trail ------------------------------------------------------------------------------ */

static bool grow(void **p, size_t *cap, size_t elem)
{
    size_t more = *cap ? *cap * 2 : 4096;
    void *q = pl_sys_realloc(*p, *cap * elem, more * elem);
    if (!q) return false;
    *p = q;
    *cap = more;
    return true;
}

/* Reserves room for n more changes, so that placing a buffer cannot stop half-way. */
static bool trail_reserve(dfs *d, size_t n)
{
    while (d->cap_trail - d->n_trail < n) {
        void *p = d->trail;
        if (!grow(&p, &d->cap_trail, sizeof(change))) {
            d->status = PL_ERR_MEMORY;
            return false;
        }
        d->trail = p;
    }
    return true;
}

static void note(dfs *d, int what, uint32_t index, int64_t old)
{
    change *c = &d->trail[d->n_trail++];
    c->old = old;
    c->index = index;
    c->what = what;
}

static void undo(dfs *d, size_t mark)
{
    const pl__pack_leaf *leaf = d->leaf;
    while (d->n_trail > mark) {
        change c = d->trail[--d->n_trail];
        if (c.what == REACH) {
            d->reach[c.index] = c.old;
        } else if (c.what == FLOOR) {
            d->floor[c.index] = c.old;
        } else if (c.what == RANK) {
            d->rank[c.index] = (uint32_t)c.old;
        } else {
            uint32_t b = c.index;
            d->reach[b] = c.old;
            for (uint32_t s = leaf->lo[b]; s < leaf->hi[b]; s++) d->waiting[s] += leaf->size[b];
            for (uint32_t s = leaf->lo[b] + 1; s < leaf->hi[b]; s++) d->cross[s]++;
        }
    }
}

/* ---- placing ---------------------------------------------------------------------------- */

/* Raises the floor of s to the least reachable offset of its unplaced buffers. Nearly always the
 * previous witness still lies at or below the floor, and nothing changes. */
static void raise_floor(dfs *d, uint32_t s)
{
    int64_t floor = d->floor[s], least = PLACED;
    if (d->reach[d->witness[s]] <= floor) return;
    for (uint32_t i = d->live_at[s]; i < d->live_at[s + 1]; i++) {
        uint32_t b = d->live[i];
        if (d->reach[b] >= least) continue;
        least = d->reach[b];
        d->witness[s] = b;
        if (least <= floor) return;
    }
    d->work += d->live_at[s + 1] - d->live_at[s];
    note(d, FLOOR, s, floor);
    d->floor[s] = least;
}

/* The cheap check of all floors comes first: it finds most failures. */
static bool sections_fit(dfs *d, part p, int64_t off)
{
    d->work += p.sec_hi - p.sec_lo;
    for (uint32_t s = p.sec_lo; s < p.sec_hi; s++) {
        int64_t floor = d->floor[s] > off ? d->floor[s] : off;
        if (d->waiting[s] && floor + d->waiting[s] > d->cap) return false;
    }
    for (uint32_t s = p.sec_lo; s < p.sec_hi; s++) {
        if (d->waiting[s] == 0) continue;
        raise_floor(d, s);
        if (d->floor[s] + d->waiting[s] > d->cap) return false;
    }
    return true;
}

/* Whether the sections of b have room above b at its reachable offset. *hat: an unplaced buffer
 * overlaps b. */
static bool has_room(const dfs *d, uint32_t b, bool *hat)
{
    const pl__pack_leaf *leaf = d->leaf;
    int64_t room = d->cap - d->reach[b], size = leaf->size[b], most = 0;
    for (uint32_t s = leaf->lo[b]; s < leaf->hi[b]; s++)
        if (d->waiting[s] > most) most = d->waiting[s];
    *hat = most > size;
    return most <= room;
}

/* Places b at its reachable offset. False when the remaining buffers cannot fit; the changes are on
 * the trail either way. */
static bool place(dfs *d, part p, uint32_t b)
{
    const pl__pack_leaf *leaf = d->leaf;
    int64_t off = d->reach[b], size = leaf->size[b], top = off + size;
    bool ok = true;
    note(d, PLACE, b, off);
    d->at[b] = off;
    d->reach[b] = PLACED;
    for (uint32_t s = leaf->lo[b] + 1; s < leaf->hi[b]; s++) d->cross[s]--;
    for (uint32_t s = leaf->lo[b]; s < leaf->hi[b]; s++) {
        d->waiting[s] -= size;
        note(d, FLOOR, s, d->floor[s]);
        d->floor[s] = top;
    }
    for (uint32_t i = d->near_at[b]; i < d->near_at[b + 1]; i++) {
        uint32_t c = d->near[i];
        if (d->reach[c] >= top) continue; /* placed, or out of the way */
        note(d, REACH, c, d->reach[c]);
        d->reach[c] = top;
        if (top + leaf->size[c] > d->cap) ok = false;
    }
    d->work += 2 * (leaf->hi[b] - leaf->lo[b]) + d->near_at[b + 1] - d->near_at[b];
    return ok && sections_fit(d, p, off);
}

/* ---- ranks ------------------------------------------------------------------------------ */

/* MiniMalloc's three orders, once with the length of life in time and once in sections: T is
 * the largest load still waiting in the buffer's sections, W and C its length, A and D its
 * area. */
static const char *const ORDERS[] = {"WAT", "TAW", "TWA", "CDT", "TDC", "TCD"};
#define N_ORDERS (sizeof ORDERS / sizeof ORDERS[0])

static double rank_key(const dfs *d, uint32_t b, char key)
{
    const pl__pack_leaf *leaf = d->leaf;
    double sections = (double)(leaf->hi[b] - leaf->lo[b]), size = (double)leaf->size[b];
    int64_t peak = 0;
    switch (key) {
    case 'W': return leaf->width[b];
    case 'A': return leaf->width[b] * size;
    case 'C': return sections;
    case 'D': return sections * size;
    default:
        for (uint32_t s = leaf->lo[b]; s < leaf->hi[b]; s++)
            if (d->waiting[s] > peak) peak = d->waiting[s];
        return (double)peak;
    }
}

/* Ranks the unplaced buffers of a part by its current loads. */
static void set_ranks(dfs *d, part p)
{
    const pl__pack_leaf *leaf = d->leaf;
    uint32_t n = 0;
    for (uint32_t b = p.buf_lo; b < p.buf_hi; b++) {
        if (d->reach[b] == PLACED) continue;
        pl__pack_keyed *row = &d->rows[n++];
        row->buffer = b;
        for (int i = 0; i < 3; i++) row->key[i] = rank_key(d, b, d->keys[i]);
        d->work += leaf->hi[b] - leaf->lo[b];
    }
    qsort(d->rows, n, sizeof(pl__pack_keyed), pl__pack_by_keys);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t b = d->rows[r].buffer;
        note(d, RANK, b, d->rank[b]);
        d->rank[b] = r;
    }
    d->work += 100 * n;
}

/* ---- nodes ------------------------------------------------------------------------------ */

static bool cand_less(const cand *a, const cand *b)
{
    return a->off != b->off ? a->off < b->off : a->rank < b->rank;
}

static int by_order(const void *a, const void *b)
{
    return cand_less(a, b) ? -1 : cand_less(b, a);
}

/* Moves candidate i of [base, end) to its place in the order; the candidates before it are in
 * place. A node seldom needs more than its first candidates, so these are selected one by one, and
 * the rest is sorted only when they fail. */
static void bring(cand *c, size_t base, size_t i, size_t end)
{
    enum { ONE_BY_ONE = 4 };
    if (i - base == ONE_BY_ONE) qsort(c + i, end - i, sizeof *c, by_order);
    if (i - base >= ONE_BY_ONE) return;
    size_t least = i;
    for (size_t j = i + 1; j < end; j++)
        if (cand_less(&c[j], &c[least])) least = j;
    cand first = c[least];
    c[least] = c[i];
    c[i] = first;
}

/* Lists the candidates of a node, unordered: not before last, and below the lowest top that an
 * unplaced buffer could have. Appends them to d->cands; returns the number of unplaced buffers. */
static uint32_t list_candidates(dfs *d, part p, cand last)
{
    const int64_t *size = d->leaf->size;
    int64_t low_top = INT64_MAX;
    uint32_t unplaced = 0;
    for (uint32_t b = p.buf_lo; b < p.buf_hi; b++) {
        if (d->reach[b] == PLACED) continue;
        unplaced++;
        if (d->reach[b] + size[b] < low_top) low_top = d->reach[b] + size[b];
    }
    for (uint32_t b = p.buf_lo; b < p.buf_hi; b++) {
        if (d->reach[b] >= low_top) continue;
        cand c = {d->reach[b], b, d->rank[b]};
        if (!cand_less(&c, &last)) d->cands[d->n_cands++] = c;
    }
    d->work += 2 * (p.buf_hi - p.buf_lo);
    return unplaced;
}

static bool is_twin(const pl__pack_leaf *leaf, const cand *a, const cand *b)
{
    return a->off == b->off && leaf->size[a->buffer] == leaf->size[b->buffer] &&
           leaf->lo[a->buffer] == leaf->lo[b->buffer] && leaf->hi[a->buffer] == leaf->hi[b->buffer];
}

static outcome search(dfs *d, part p, cand last);

/* After b was placed: searches the parts into which p splits, one by one. */
static outcome search_parts(dfs *d, part p, cand last)
{
    uint32_t b = last.buffer, start = p.sec_lo;
    for (uint32_t s = d->leaf->lo[b] + 1; s <= d->leaf->hi[b]; s++) {
        bool end = s == d->leaf->hi[b];
        if (!end && d->cross[s]) continue;
        uint32_t stop = end ? p.sec_hi : s;
        part q = {d->leaf->first[start], d->leaf->first[stop], start, stop};
        if (start != p.sec_lo || stop != p.sec_hi) {
            if (!trail_reserve(d, q.buf_hi - q.buf_lo)) return STOPPED;
            set_ranks(d, q);
            last = (cand){.buffer = last.buffer};
        }
        outcome r = search(d, q, last);
        if (r != FOUND) return r;
        start = stop;
    }
    return FOUND;
}

/* One node: tries every candidate after last, the placement before it. */
static outcome search(dfs *d, part p, cand last)
{
    if (d->nodes_left == 0) return STOPPED;
    size_t base = d->n_cands;
    while (d->cap_cands - base < p.buf_hi - p.buf_lo) {
        void *q = d->cands;
        if (!grow(&q, &d->cap_cands, sizeof(cand))) {
            d->status = PL_ERR_MEMORY;
            return STOPPED;
        }
        d->cands = q;
    }
    if (list_candidates(d, p, last) == 0) return FOUND;
    d->nodes_left--;
    if (d->work > 100000) {
        uint64_t work = d->work;
        d->work = 0;
        if (!pl__pack_spend(d->effort, work)) return STOPPED;
    }
    size_t end = d->n_cands;
    size_t most_changes = (size_t)d->leaf->n + 2 * (size_t)d->leaf->n_sections + 1;
    for (size_t i = base; i < end; i++) {
        bring(d->cands, base, i, end);
        cand c = d->cands[i];
        bool twin = false, hat = false;
        for (size_t j = base; j < i && !twin; j++) twin = is_twin(d->leaf, &c, &d->cands[j]);
        if (twin) continue;
        size_t mark = d->n_trail;
        if (!trail_reserve(d, most_changes)) return STOPPED;
        outcome r = FAILED;
        if (has_room(d, c.buffer, &hat) && place(d, p, c.buffer)) r = search_parts(d, p, c);
        if (r != FAILED) return r;
        undo(d, mark);
        if (!hat) break;
    }
    d->n_cands = base;
    return FAILED;
}

/* ---- setting up ------------------------------------------------------------------------- */

/* Overlapping pairs and section members, counted first and then filled. */
static pl_status dfs_lists(dfs *d, pl_arena *a, bool *small)
{
    const pl__pack_leaf *leaf = d->leaf;
    uint32_t n = leaf->n, ns = leaf->n_sections;
    d->near_at = pl_arena_new(a, uint32_t, (size_t)n + 1);
    d->live_at = pl_arena_new(a, uint32_t, (size_t)ns + 1);
    if (!d->near_at || !d->live_at) return PL_ERR_MEMORY;
    uint64_t pairs = 0, area = 0;
    for (uint32_t b = 0; b < n; b++) {
        pairs += d->leaf->first[leaf->hi[b]] - b - 1;
        area += leaf->hi[b] - leaf->lo[b];
    }
    *small = pairs <= MAX_PAIRS && area <= MAX_PAIRS;
    if (!*small) return PL_OK;
    d->near = pl_arena_new(a, uint32_t, 2 * pairs + 1);
    d->live = pl_arena_new(a, uint32_t, area + 1);
    if (!d->near || !d->live) return PL_ERR_MEMORY;
    uint32_t at = 0;
    for (uint32_t b = 0; b < n; b++) {
        d->near_at[b] = at;
        for (uint32_t c = 0; c < d->leaf->first[leaf->hi[b]]; c++)
            if (c != b && leaf->hi[c] > leaf->lo[b]) d->near[at++] = c;
    }
    d->near_at[n] = at;
    at = 0;
    for (uint32_t s = 0; s < ns; s++) {
        d->live_at[s] = at;
        for (uint32_t b = 0; b < d->leaf->first[s + 1]; b++)
            if (leaf->hi[b] > s) d->live[at++] = b;
    }
    d->live_at[ns] = at;
    return PL_OK;
}

static pl_status dfs_init(dfs *d, const pl__pack_leaf *leaf, pl_arena *a, bool *small)
{
    d->leaf = leaf;
    PL_TRY(dfs_lists(d, a, small));
    if (!*small) return PL_OK;
    d->rows = pl_arena_new(a, pl__pack_keyed, leaf->n);
    d->rank = pl_arena_new(a, uint32_t, leaf->n);
    d->reach = pl_arena_new(a, int64_t, leaf->n);
    d->at = pl_arena_new(a, int64_t, leaf->n);
    d->floor = pl_arena_new(a, int64_t, leaf->n_sections);
    d->waiting = pl_arena_new(a, int64_t, leaf->n_sections);
    d->witness = pl_arena_new(a, uint32_t, leaf->n_sections);
    d->cross = pl_arena_new(a, uint32_t, leaf->n_sections);
    bool ok =
        d->rows && d->rank && d->reach && d->at && d->floor && d->waiting && d->witness && d->cross;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

static void dfs_reset(dfs *d, int64_t cap, uint64_t nodes)
{
    const pl__pack_leaf *leaf = d->leaf;
    d->cap = cap;
    d->nodes_left = nodes;
    d->n_trail = d->n_cands = 0;
    memset(d->reach, 0, sizeof(int64_t) * leaf->n);
    memset(d->floor, 0, sizeof(int64_t) * leaf->n_sections);
    memset(d->cross, 0, sizeof(uint32_t) * leaf->n_sections);
    memcpy(d->waiting, leaf->load, sizeof(int64_t) * leaf->n_sections);
    for (uint32_t s = 0; s < leaf->n_sections; s++) d->witness[s] = d->live[d->live_at[s]];
    for (uint32_t b = 0; b < leaf->n; b++)
        for (uint32_t s = leaf->lo[b] + 1; s < leaf->hi[b]; s++) d->cross[s]++;
}

/* ---- driving ---------------------------------------------------------------------------- */

static void keep_found(const dfs *d, pl__pack_leaf *leaf)
{
    int64_t h = 0;
    for (uint32_t b = 0; b < leaf->n; b++)
        if (d->at[b] + leaf->size[b] > h) h = d->at[b] + leaf->size[b];
    if (h >= leaf->height) return;
    leaf->height = h;
    memcpy(leaf->off, d->at, sizeof(int64_t) * leaf->n);
}

/* Tries all orders in turn at one height, with node limits that double, until a result or no
 * effort. */
static outcome try_height(dfs *d, pl__pack_leaf *leaf, int64_t cap, pl__pack_effort *e)
{
    part all = {0, leaf->n, 0, leaf->n_sections};
    d->effort = e;
    for (uint64_t nodes = 2 * (uint64_t)leaf->n;; nodes *= 2)
        for (size_t i = 0; i < N_ORDERS; i++) {
            dfs_reset(d, cap, nodes);
            if (!trail_reserve(d, leaf->n)) return STOPPED;
            d->keys = ORDERS[i];
            set_ranks(d, all);
            outcome r = search(d, all, (cand){0, 0, 0});
            if (r == FOUND) keep_found(d, leaf);
            if (r == FAILED) leaf->proven = cap + 1;
            if (r != STOPPED || d->status != PL_OK) return r;
            if (!pl__pack_spend(e, d->work)) return STOPPED;
            d->work = 0;
        }
}

/* Bisects the heights between the goal and the best known. A height without a result within its
 * share of the effort counts as out of reach; when the gap has closed, the search tries the goal
 * and larger heights again with the remaining effort, in larger shares. */
static void bisect(dfs *d, pl__pack_leaf *leaf, pl__pack_effort *e)
{
    for (uint64_t parts = 16; parts && leaf->height > leaf->goal && d->status == PL_OK;
         parts /= 2) {
        int64_t lo = leaf->proven > leaf->goal ? leaf->proven : leaf->goal;
        uint64_t share = e->left / parts;
        while (lo < leaf->height && e->left && d->status == PL_OK) {
            int64_t mid = lo + (leaf->height - 1 - lo) / 2;
            pl__pack_effort f = {share < e->left ? share : e->left, e->deadline_ns, e->stop};
            uint64_t before = f.left;
            if (try_height(d, leaf, mid, &f) != FOUND) lo = mid + 1;
            if (!pl__pack_spend(e, before - f.left)) return;
        }
    }
}

pl_status pl__pack_exact(pl__pack_leaf *leaf, bool at_goal, pl__pack_effort *e)
{
    if (leaf->n > MAX_BUFS) return PL_OK;
    pl_arena a = PL_ARENA_INIT;
    dfs d = {0};
    bool small = true;
    pl_status rc = dfs_init(&d, leaf, &a, &small);
    if (rc == PL_OK && small) {
        if (!at_goal)
            bisect(&d, leaf, e);
        else if (leaf->proven <= leaf->goal)
            try_height(&d, leaf, leaf->goal, e);
        rc = d.status;
    }
    pl_sys_free(d.trail);
    pl_sys_free(d.cands);
    pl_arena_release(&a);
    return rc;
}
