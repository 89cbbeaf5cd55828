/* pack_greedy.c - placements without backtracking, and a local search over their keys.
 *
 * Skyline: of all unplaced buffers, place the one whose lowest reachable offset is least, ties
 * by a static rank, at that offset. "Reachable" looks only at tops: a buffer never goes under
 * one that is already placed, so offsets come out in non-decreasing order. It runs as a level
 * that rises from top to top. Sections whose floor the level has reached are open; when one
 * opens, only buffers inside the run of open sections around it can be placed, all of them
 * exactly at the level. One tree finds the run, another the best rank inside it, so a run over
 * all buffers takes O(n) memory and about n log n time, where lists of overlapping pairs would
 * need tens of millions of entries at 30k buffers.
 *
 * Fit: largest first, into the first or the tightest gap among the placed neighbours.
 *
 * Local search: the skyline's ranks are the state. A move gives a few buffers of the critical
 * stack (a chain of touching buffers from the bottom to the top of the arena) new ranks and is
 * kept when the arena does not grow. The same is done with the order of the first fit, which puts
 * small buffers into gaps that a skyline leaves.
 */
#include "plan/pack_int.h"

#include "base/arena.h"
#include "base/rng.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Fits cost n^2: beyond this many buffers the skylines, n log n, are alone. */
#define FIT_MAX   16384
#define REFIT_MAX 4096

/* ---- floors: range maximum under "raise the range [l,r) to v" --------------------------- */

typedef struct floors {
    uint32_t leaves; /* a power of two */
    int64_t *max;    /* of the node's range, its own raises included */
    int64_t *raise;  /* raises of the whole range of the node */
} floors;

static void floors_clear(floors *f)
{
    memset(f->max, 0, sizeof(int64_t) * 2 * f->leaves);
    memset(f->raise, 0, sizeof(int64_t) * 2 * f->leaves);
}

static int64_t floors_max(const floors *f, uint32_t lo, uint32_t hi)
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

/* v is at least every floor in [lo,hi), so that a node inside the range takes it unseen. */
static void floors_raise(floors *f, uint32_t lo, uint32_t hi, int64_t v)
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

/* The run of sections around s, itself no higher than level, whose floors are no higher either.
 */
static uint32_t run_end(const floors *f, uint32_t s, int64_t level)
{
    uint32_t i = s + f->leaves;
    while ((i & 1) || f->max[i + 1] <= level) /* nothing high to the right below the parent */
        if ((i >>= 1) <= 1) return f->leaves;
    for (i++; i < f->leaves && f->raise[i] <= level;) i = 2 * i + (f->max[2 * i] <= level);
    while (i < f->leaves) i = 2 * i; /* all of it is high */
    return i - f->leaves;
}

static uint32_t run_start(const floors *f, uint32_t s, int64_t level)
{
    uint32_t i = s + f->leaves;
    while (!(i & 1) || f->max[i - 1] <= level)
        if ((i >>= 1) <= 1) return 0;
    for (i--; i < f->leaves && f->raise[i] <= level;) i = 2 * i + (f->max[2 * i + 1] > level);
    while (i < f->leaves) i = 2 * i + 1;
    return i - f->leaves + 1;
}

/* ---- skyline ---------------------------------------------------------------------------- */

/* A placed buffer whose top the level has yet to reach. */
typedef struct event {
    int64_t top;
    uint32_t buf;
} event;

/* Of the unplaced buffers below a node. */
typedef struct least {
    uint32_t hi, rank;
} least;

typedef struct sky {
    const pl__pack_leaf *leaf;
    floors floors;
    event *heap; /* the lowest top first */
    uint32_t n_heap;
    least *least;           /* tree over the unplaced buffers */
    uint32_t leaves;        /* its number of leaves, a power of two */
    uint32_t *order, *rank; /* rank -> buffer and back */
    uint32_t *placed;       /* buffers in the order of placement */
    uint32_t n_placed;
    int64_t *off;
    int64_t height;
    uint64_t work; /* of the runs since it was last cleared */
} sky;

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t p = 2;
    while (p < at_least) p *= 2;
    return p;
}

static pl_status sky_init(sky *k, const pl__pack_leaf *leaf, pl_arena *a)
{
    *k = (sky){.leaf = leaf};
    k->floors.leaves = power_of_two(leaf->n_sections);
    k->leaves = power_of_two(leaf->n);
    k->floors.max = pl_arena_new(a, int64_t, 2 * (size_t)k->floors.leaves);
    k->floors.raise = pl_arena_new(a, int64_t, 2 * (size_t)k->floors.leaves);
    k->heap = pl_arena_new(a, event, leaf->n);
    k->least = pl_arena_new(a, least, 2 * (size_t)k->leaves);
    k->order = pl_arena_new(a, uint32_t, leaf->n);
    k->rank = pl_arena_new(a, uint32_t, leaf->n);
    k->placed = pl_arena_new(a, uint32_t, leaf->n);
    k->off = pl_arena_new(a, int64_t, leaf->n);
    bool ok = k->floors.max && k->floors.raise && k->heap && k->least && k->order && k->rank &&
              k->placed && k->off;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

static void heap_push(sky *k, event e)
{
    uint32_t i = k->n_heap++;
    for (; i && k->heap[(i - 1) / 2].top > e.top; i = (i - 1) / 2)
        k->heap[i] = k->heap[(i - 1) / 2];
    k->heap[i] = e;
}

static event heap_pop(sky *k)
{
    event top = k->heap[0], e = k->heap[--k->n_heap];
    uint32_t n = k->n_heap, i = 0;
    for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && k->heap[c + 1].top < k->heap[c].top) c++;
        if (k->heap[c].top >= e.top) break;
        k->heap[i] = k->heap[c];
    }
    k->heap[i] = e;
    return top;
}

static void join(sky *k, uint32_t node)
{
    least l = k->least[2 * node], r = k->least[2 * node + 1];
    k->least[node].hi = l.hi < r.hi ? l.hi : r.hi;
    k->least[node].rank = l.rank < r.rank ? l.rank : r.rank;
}

#define NONE UINT32_MAX

static void least_fill(sky *k)
{
    for (uint32_t b = 0; b < k->leaves; b++)
        k->least[k->leaves + b] =
            b < k->leaf->n ? (least){k->leaf->hi[b], k->rank[b]} : (least){NONE, NONE};
    for (uint32_t i = k->leaves - 1; i; i--) join(k, i);
}

static void least_remove(sky *k, uint32_t b)
{
    uint32_t i = b + k->leaves;
    k->least[i] = (least){NONE, NONE};
    while (i >>= 1) join(k, i);
}

/* What is asked of the tree: the least rank among buffers [b_lo,b_hi) that end by hi. */
typedef struct query {
    uint32_t b_lo, b_hi, hi, best;
} query;

/* Searches below a node that spans buffers [at, at + span), the better half first. */
static void ask(sky *k, query *q, uint32_t node, uint32_t at, uint32_t span)
{
    least v = k->least[node];
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

/* Places at level what fits in the sections [lo,hi), none of which is higher: the least rank
 * first, then what fits before and after it. */
static void fill_run(sky *k, uint32_t lo, uint32_t hi, int64_t level)
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
        heap_push(k, (event){top, b});
        bool before = leaf->lo[b] - lo < hi - leaf->hi[b]; /* recurse into the shorter side */
        fill_run(k, before ? lo : leaf->hi[b], before ? leaf->lo[b] : hi, level);
        lo = before ? leaf->hi[b] : lo;
        hi = before ? hi : leaf->lo[b];
    }
}

/* Places all buffers by k->order; the height, or INT64_MAX as soon as it exceeds cap. The level
 * rises from top to top; sections open when it reaches their floor, and whatever then fits in
 * the open run around them could not be placed before. */
static int64_t sky_run(sky *k, int64_t cap)
{
    const pl__pack_leaf *leaf = k->leaf;
    floors_clear(&k->floors);
    least_fill(k);
    k->n_placed = k->n_heap = 0;
    k->height = 0;
    k->work += 10 * (uint64_t)(leaf->n + leaf->n_sections);
    fill_run(k, 0, leaf->n_sections, 0);
    while (k->n_placed < leaf->n && k->height <= cap) {
        event e = heap_pop(k);
        uint32_t s = leaf->lo[e.buf];
        if (floors_max(&k->floors, s, leaf->hi[e.buf]) > e.top)
            continue; /* filled by a twin event */
        uint32_t hi = run_end(&k->floors, s, e.top);
        fill_run(k, run_start(&k->floors, s, e.top),
                 hi < leaf->n_sections ? hi : leaf->n_sections, e.top);
    }
    return k->height <= cap ? k->height : INT64_MAX;
}

static void keep(pl__pack_leaf *leaf, const int64_t *off, int64_t height)
{
    if (height >= leaf->height) return;
    leaf->height = height;
    memcpy(leaf->off, off, sizeof(int64_t) * leaf->n);
}

/* ---- keys ------------------------------------------------------------------------------- */

int pl__pack_by_keys(const void *pa, const void *pb)
{
    const pl__pack_keyed *a = pa, *b = pb;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] > b->key[i] ? -1 : 1;
    return a->buf < b->buf ? -1 : 1;
}

/* T: largest load among the sections; W and C: length of life, in time and in sections; A and
 * D: area, likewise; S: size; R: sum of the loads of the sections, the pressure over the whole
 * life; L: early start; U: late end. */
static double key_of(const pl__pack_leaf *leaf, const double *load_sum, uint32_t b, char key)
{
    double w = leaf->width[b], c = (double)(leaf->hi[b] - leaf->lo[b]);
    double size = (double)leaf->size[b];
    switch (key) {
    case 'T': return (double)leaf->peak[b];
    case 'W': return w;
    case 'C': return c;
    case 'A': return w * size;
    case 'D': return c * size;
    case 'S': return size;
    case 'L': return -(double)leaf->lo[b];
    case 'U': return (double)leaf->hi[b];
    case 'R': return load_sum[leaf->hi[b]] - load_sum[leaf->lo[b]];
    default: return 0;
    }
}

/* None of these wins on all problems, and a run costs milliseconds. */
static const char *const SKYLINE_KEYS[] = {"TWS", "TAS", "WAS", "AWS", "SWT", "RWS", "TCS",
                                           "TDS", "CDS", "DCS", "RAS", "TSW", "LUS", "ULS"};
#define N_SKYLINE_KEYS (sizeof SKYLINE_KEYS / sizeof SKYLINE_KEYS[0])

typedef struct sorter {
    pl__pack_keyed *rows;
    double *load_sum; /* prefix sums over sections */
} sorter;

static pl_status sorter_init(sorter *s, const pl__pack_leaf *leaf, pl_arena *a)
{
    s->rows = pl_arena_new(a, pl__pack_keyed, leaf->n);
    s->load_sum = pl_arena_new(a, double, (size_t)leaf->n_sections + 1);
    if (!s->rows || !s->load_sum) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < leaf->n_sections; i++)
        s->load_sum[i + 1] = s->load_sum[i] + (double)leaf->load[i];
    return PL_OK;
}

static void rank_rows(sorter *s, sky *k)
{
    uint32_t n = k->leaf->n;
    qsort(s->rows, n, sizeof(pl__pack_keyed), pl__pack_by_keys);
    for (uint32_t r = 0; r < n; r++) {
        k->order[r] = s->rows[r].buf;
        k->rank[k->order[r]] = r;
    }
}

/* Gives the ranks of k by up to three keys. */
static void sort_by(sorter *s, sky *k, const char *keys)
{
    const pl__pack_leaf *leaf = k->leaf;
    for (uint32_t b = 0; b < leaf->n; b++) {
        s->rows[b].buf = b;
        for (int i = 0; i < 3; i++) s->rows[b].key[i] = key_of(leaf, s->load_sum, b, keys[i]);
    }
    rank_rows(s, k);
}

/* Ranks by the placement that the leaf has. */
static void sort_by_offset(sorter *s, sky *k)
{
    const pl__pack_leaf *leaf = k->leaf;
    for (uint32_t b = 0; b < leaf->n; b++)
        s->rows[b] = (pl__pack_keyed){.buf = b, .key = {-(double)leaf->off[b]}};
    rank_rows(s, k);
}

/* ---- largest-first fits ----------------------------------------------------------------- */

/* What is placed, by rising offset. */
typedef struct shelf {
    uint32_t n;
    int64_t *off, *top;
    uint32_t *lo, *hi, *buf;
    uint8_t *meets; /* scratch: of each, in the way of the one that is to be placed; and 8 more */
} shelf;

static pl_status shelf_init(shelf *s, uint32_t n, pl_arena *a)
{
    s->off = pl_arena_new(a, int64_t, n + 1);
    s->top = pl_arena_new(a, int64_t, n + 1);
    s->lo = pl_arena_new(a, uint32_t, n + 1);
    s->hi = pl_arena_new(a, uint32_t, n + 1);
    s->buf = pl_arena_new(a, uint32_t, n + 1);
    s->meets = pl_arena_new(a, uint8_t, n + 8);
    bool ok = s->off && s->top && s->lo && s->hi && s->buf && s->meets;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

/* Most of what is placed is not in the way: found for all at once, then passed over by eights. */
static void find_meets(shelf *s, uint32_t lo, uint32_t hi)
{
    const uint32_t n = s->n, *restrict los = s->lo, *restrict his = s->hi;
    uint8_t *restrict meets = s->meets;
    for (uint32_t i = 0; i < n; i++) meets[i] = (los[i] < hi) & (his[i] > lo);
    memset(meets + n, 0, 8);
}

/* Where a buffer goes: the first gap that holds it, or the tightest one. */
static int64_t find_gap(shelf *s, uint32_t lo, uint32_t hi, int64_t size, bool tightest)
{
    int64_t cur = 0, best = -1, best_gap = INT64_MAX;
    find_meets(s, lo, hi);
    for (uint32_t eight = 0; eight < s->n; eight += 8) {
        uint64_t any;
        memcpy(&any, s->meets + eight, 8);
        for (uint32_t i = eight; any; i++, any >>= 8) {
            if (!(any & 1)) continue;
            int64_t gap = s->off[i] - cur;
            if (gap >= size && gap < best_gap) {
                best = cur, best_gap = gap;
                if (!tightest) return best;
            }
            if (s->top[i] > cur) cur = s->top[i];
        }
    }
    return best >= 0 ? best : cur;
}

#define SHIFT(array, at, n) memmove((array) + (at) + 1, (array) + (at), sizeof *(array) * ((n) - (at)))

static void shelf_add(shelf *s, uint32_t b, const pl__pack_leaf *leaf, int64_t off)
{
    uint32_t at = s->n, n = s->n++;
    for (uint32_t l = 0; l < at;) { /* the first one above */
        uint32_t mid = l + (at - l) / 2;
        if (s->off[mid] <= off)
            l = mid + 1;
        else
            at = mid;
    }
    SHIFT(s->off, at, n);
    SHIFT(s->top, at, n);
    SHIFT(s->lo, at, n);
    SHIFT(s->hi, at, n);
    SHIFT(s->buf, at, n);
    s->off[at] = off;
    s->top[at] = off + leaf->size[b];
    s->lo[at] = leaf->lo[b];
    s->hi[at] = leaf->hi[b];
    s->buf[at] = b;
}

/* The height, or more than cap as soon as it is. */
static int64_t fit_run(const pl__pack_leaf *leaf, const uint32_t *order, bool tightest, int64_t cap,
                       shelf *s, int64_t *off)
{
    int64_t height = 0;
    s->n = 0;
    while (s->n < leaf->n && height <= cap) {
        uint32_t b = order[s->n];
        off[b] = find_gap(s, leaf->lo[b], leaf->hi[b], leaf->size[b], tightest);
        shelf_add(s, b, leaf, off[b]);
        if (off[b] + leaf->size[b] > height) height = off[b] + leaf->size[b];
    }
    return height;
}

pl_status pl__pack_portfolio(pl__pack_leaf *leaf, uint32_t off)
{
    pl_arena a = PL_ARENA_INIT;
    sky k;
    sorter s;
    shelf placed;
    pl_status rc = sky_init(&k, leaf, &a);
    if (rc == PL_OK) rc = sorter_init(&s, leaf, &a);
    bool fits = leaf->n <= FIT_MAX && !(off & PL_PACK_NO_FIT);
    if (rc == PL_OK && fits) rc = shelf_init(&placed, leaf->n, &a);
    if (rc != PL_OK) goto out;

    if (!(off & PL_PACK_NO_SKYLINE))
        for (size_t i = 0; i < N_SKYLINE_KEYS && leaf->height > leaf->goal; i++) {
            sort_by(&s, &k, SKYLINE_KEYS[i]);
            keep(leaf, k.off, sky_run(&k, leaf->height - 1));
        }
    for (int tightest = 1; tightest >= 0 && fits && leaf->height > leaf->goal; tightest--) {
        sort_by(&s, &k, "SWT");
        keep(leaf, k.off, fit_run(leaf, k.order, tightest, leaf->height - 1, &placed, k.off));
    }
    if (leaf->height ==
        INT64_MAX) { /* everything is switched off: some placement there must be */
        sort_by(&s, &k, "SWT");
        keep(leaf, k.off, sky_run(&k, INT64_MAX - 1));
    }
out:
    pl_arena_release(&a);
    return rc;
}

/* ---- local search over ranks ------------------------------------------------------------ */

typedef struct draws {
    uint64_t seed, n;
    uint32_t w[4];
} draws;

static uint32_t draw(draws *d, uint32_t below)
{
    if (d->n % 4 == 0) pl_rng_block(d->seed, 0, 0, d->n / 4, d->w);
    return (uint32_t)((uint64_t)d->w[d->n++ % 4] * below >> 32);
}

/* The chain of touching buffers that carries the highest one, from the last complete run.
 * Buffers were placed in order of offset, so one backward pass meets every supporter after its
 * load. */
static uint32_t critical_stack(const sky *k, int64_t height, uint32_t *out)
{
    const pl__pack_leaf *leaf = k->leaf;
    uint32_t n = 0;
    for (uint32_t i = k->n_placed; i-- > 0;) {
        uint32_t b = k->placed[i], up = n ? out[n - 1] : b;
        int64_t want = n ? k->off[up] : height;
        bool meets = leaf->lo[b] < leaf->hi[up] && leaf->lo[up] < leaf->hi[b];
        if (meets && k->off[b] + leaf->size[b] == want) out[n++] = b;
    }
    return n;
}

/* Moves the buffer at rank from to rank to; those between shift by one. */
static void move_rank(sky *k, uint32_t from, uint32_t to)
{
    uint32_t *order = k->order, *rank = k->rank;
    uint32_t b = order[from];
    for (; from > to; from--) order[from] = order[from - 1], rank[order[from]] = from;
    for (; from < to; from++) order[from] = order[from + 1], rank[order[from]] = from;
    order[to] = b;
    rank[b] = to;
}

#define MAX_MOVES 3

/* One step: move a few buffers of the stack, run, keep or take back. */
static bool perturb_step(sky *k, uint32_t *stack, uint32_t *n_stack, int64_t *height, draws *d)
{
    uint32_t n = k->leaf->n, from[MAX_MOVES], to[MAX_MOVES], m = 1 + draw(d, MAX_MOVES);
    for (uint32_t i = 0; i < m; i++) {
        from[i] = k->rank[draw(d, 4) ? stack[draw(d, *n_stack)] : draw(d, n)];
        to[i] = draw(d, 4) ? draw(d, from[i] + 1) : draw(d, n);
        move_rank(k, from[i], to[i]);
    }
    int64_t h = sky_run(k, *height);
    if (h <= *height) {
        *height = h;
        *n_stack = critical_stack(k, h, stack);
        return true;
    }
    while (m-- > 0) move_rank(k, to[m], from[m]);
    return false;
}

pl_status pl__pack_perturb(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *e)
{
    pl_arena a = PL_ARENA_INIT;
    sky k;
    sorter s;
    draws d = {.seed = seed};
    pl_status rc = sky_init(&k, leaf, &a);
    if (rc == PL_OK) rc = sorter_init(&s, leaf, &a);
    uint32_t n_stack = 0, *stack = pl_arena_new(&a, uint32_t, leaf->n);
    if (rc == PL_OK && !stack) rc = PL_ERR_MEMORY;
    if (rc != PL_OK) goto out;

    int64_t best = INT64_MAX;
    size_t best_key = 0;
    for (size_t i = 0; i < N_SKYLINE_KEYS; i++) { /* start from the best key */
        sort_by(&s, &k, SKYLINE_KEYS[i]);
        int64_t h = sky_run(&k, best - 1);
        if (h < best) best = h, best_key = i;
    }
    sort_by(&s, &k, SKYLINE_KEYS[best_key]);
    best = sky_run(&k, INT64_MAX - 1);
    n_stack = critical_stack(&k, best, stack);
    while (leaf->height > leaf->goal && pl__pack_spend(e, k.work)) {
        k.work = 0;
        if (perturb_step(&k, stack, &n_stack, &best, &d)) keep(leaf, k.off, best);
    }
out:
    pl_arena_release(&a);
    return rc;
}

/* ---- local search over the order of fits ------------------------------------------------ */

/* As critical_stack, from all blocks of a complete run. */
static uint32_t touching_stack(const shelf *s, int64_t height, uint32_t *out)
{
    uint32_t n = 0, up = UINT32_MAX;
    for (uint32_t i = s->n; i-- > 0;) {
        bool first = up == UINT32_MAX;
        bool meets = first || (s->lo[i] < s->hi[up] && s->lo[up] < s->hi[i]);
        if (!meets || s->top[i] != (first ? height : s->off[up])) continue;
        out[n++] = s->buf[i];
        up = i;
    }
    return n;
}

typedef struct refit {
    sky k; /* for its order and offsets */
    shelf placed;
    uint32_t *stack, n_stack;
    int64_t now, best;
    draws d;
} refit;

/* Moves a few buffers of the stack in the order. A little more height than the best is no reason to go
 * back: the way to less leads over it. */
static void refit_step(refit *r, pl__pack_leaf *leaf)
{
    sky *k = &r->k;
    draws *d = &r->d;
    uint32_t n = leaf->n, from[MAX_MOVES], to[MAX_MOVES], m = 1 + draw(d, MAX_MOVES);
    for (uint32_t i = 0; i < m; i++) {
        from[i] = k->rank[draw(d, 4) ? r->stack[draw(d, r->n_stack)] : draw(d, n)];
        to[i] = draw(d, 4) ? draw(d, from[i] + 1) : draw(d, n);
        move_rank(k, from[i], to[i]);
    }
    int64_t limit = r->best + (r->best - leaf->goal) / 8;
    if (r->now > limit) limit = r->now;
    int64_t h = fit_run(leaf, k->order, false, limit, &r->placed, k->off);
    if (h > limit) {
        while (m-- > 0) move_rank(k, to[m], from[m]);
        return;
    }
    keep(leaf, k->off, h);
    r->now = h;
    if (h < r->best) r->best = h;
    r->n_stack = touching_stack(&r->placed, h, r->stack);
}

pl_status pl__pack_refit(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *e)
{
    if (leaf->n > REFIT_MAX) return PL_OK;
    pl_arena a = PL_ARENA_INIT;
    sorter s;
    refit r = {.d = {.seed = seed}};
    pl_status rc = sky_init(&r.k, leaf, &a);
    if (rc == PL_OK) rc = sorter_init(&s, leaf, &a);
    if (rc == PL_OK) rc = shelf_init(&r.placed, leaf->n, &a);
    r.stack = pl_arena_new(&a, uint32_t, leaf->n);
    if (rc == PL_OK && !r.stack) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) {
        sort_by(&s, &r.k, "SWT");
        r.best = fit_run(leaf, r.k.order, false, INT64_MAX, &r.placed, r.k.off);
        if (leaf->height <= r.best) sort_by_offset(&s, &r.k); /* gives no more than that height */
        r.now = r.best = fit_run(leaf, r.k.order, false, INT64_MAX, &r.placed, r.k.off);
        r.n_stack = touching_stack(&r.placed, r.best, r.stack);
        keep(leaf, r.k.off, r.best);
        /* a step: so much for each buffer, and for each that lies before it */
        uint64_t work = leaf->n * (60 + (uint64_t)leaf->n / 6);
        while (leaf->height > leaf->goal && pl__pack_spend(e, work)) refit_step(&r, leaf);
    }
    pl_arena_release(&a);
    return rc;
}
