/* pack.c - the offset planner: reduces a problem to independent leaves and runs the solvers on
 * them. Buffers that are alive at the same position get different bytes (M1 of docs/MEMORY.md).
 *
 * Two exact reductions, repeated until neither applies. First, a problem splits at a time that no
 * buffer crosses: the pieces share the arena and are solved independently. Second, within a piece,
 * a buffer that overlaps every other may lie at the bottom (remove it from any solution, lower what
 * was above, and put it below). This stacks weights and other buffers that live the whole step, and
 * often allows another split. A piece that neither reduction changes is a leaf.
 *
 * The arena is as high as its highest leaf, so a leaf below the goal needs no more work. All leaves
 * get the portfolio; then the highest leaf is searched, repeatedly, while effort is left.
 *
 * Invariant: every leaf has a placement once the portfolio ran; more effort only lowers it.
 * Cost: the portfolio takes O(n log n) a key; after it, opts->work.
 */
#include "plan/pack/pack_int.h"

#include "base/arena.h"
#include "base/asked.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

#define SUM_MAX ((uint64_t)1 << 62)

typedef struct item {
    int64_t lo, hi;
    int64_t size; /* rounded up to the alignment */
    int64_t off;
    size_t buffer; /* whose it is */
} item;

/* A run of items, sorted by lo, that lies above base. */
typedef struct piece {
    size_t first, n;
    int64_t base;
    int64_t height;   /* of a leaf: base + the height of its placement */
    bool done;        /* of a leaf: no further search */
    uint32_t sky_key; /* of a leaf: see pl__pack_leaf */
} piece;

typedef struct packing {
    const pl_pack_opts *opts;
    item *items;
    size_t n;
    piece *pieces; /* a stack while reducing; */
    piece *leaves; /* then the leaves */
    size_t n_pieces, n_leaves;
    item *stacked;  /* scratch */
    int64_t goal;   /* no leaf needs to be lower than this */
    int64_t height; /* of the stacked buffers; later of everything */
    pl__pack_effort effort;
    pl_arena arena;
} packing;

bool pl__pack_spend(pl__pack_effort *e, uint64_t units)
{
    bool enough = units < e->left;
    e->left = enough ? e->left - units : 0;
    if (pl_asked(e->stop)) e->left = 0;
    if (enough && e->deadline_ns && pl_sys_now_ns() > e->deadline_ns) e->left = 0;
    return e->left > 0;
}

/* ---- reading the problem ---------------------------------------------------------------- */

static int item_by_lo(const void *pa, const void *pb)
{
    const item *a = pa, *b = pb;
    if (a->lo != b->lo) return a->lo < b->lo ? -1 : 1;
    return a->buffer < b->buffer ? -1 : 1;
}

/* Reads the buffers that need room: sizes rounded up, sorted by lo. */
static pl_status read_items(const pl_pack_buffer *buffers, size_t n, uint64_t align, pl_arena *a,
                            item **items, size_t *n_items)
{
    if (align == 0) align = 1;
    PL_FAIL_IF(n >= UINT32_MAX / 4, PL_ERR_ARG, "%zu buffers are too many to place", n);
    PL_FAIL_IF(align > SUM_MAX / 4, PL_ERR_ARG, "alignment %llu is too large",
               (unsigned long long)align);
    item *out = pl_arena_new(a, item, n);
    if (!out) return PL_ERR_MEMORY;
    uint64_t sum = 0;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (buffers[i].size == 0 || buffers[i].lo >= buffers[i].hi) continue;
        PL_FAIL_IF(buffers[i].size > SUM_MAX, PL_ERR_ARG, "buffer %zu of %llu bytes is too large",
                   i, (unsigned long long)buffers[i].size);
        uint64_t size = (buffers[i].size + align - 1) / align * align;
        sum += size;
        PL_FAIL_IF(sum > SUM_MAX, PL_ERR_ARG,
                   "the sizes of the first %zu buffers add up to more than 2^62 bytes", i + 1);
        out[m++] = (item){buffers[i].lo, buffers[i].hi, (int64_t)size, 0, i};
    }
    qsort(out, m, sizeof(item), item_by_lo);
    *items = out;
    *n_items = m;
    return PL_OK;
}

/* ---- sections --------------------------------------------------------------------------- */

typedef struct ending {
    int64_t hi;
    uint32_t index;
} ending;

static int ending_cmp(const void *pa, const void *pb)
{
    const ending *a = pa, *b = pb;
    if (a->hi != b->hi) return a->hi < b->hi ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* A section begins with the first start after an end: just before that end the live set was the
 * largest, and every pair that overlaps does so at one such moment. */
static pl_status find_sections(const item *items, pl__pack_leaf *leaf, pl_arena *a)
{
    uint32_t n = leaf->n, s = 0, e = 0;
    leaf->lo = pl_arena_new(a, uint32_t, n);
    leaf->hi = pl_arena_new(a, uint32_t, n);
    leaf->load = pl_arena_new(a, int64_t, (size_t)n + 1);
    ending *ends = pl_arena_new(a, ending, n);
    if (!leaf->lo || !leaf->hi || !leaf->load || !ends) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) ends[i] = (ending){items[i].hi, i};
    qsort(ends, n, sizeof(ending), ending_cmp);
    for (uint32_t i = 0; i < n; i++) {
        bool ended = false;
        for (; e < n && ends[e].hi <= items[i].lo; e++, ended = true)
            leaf->hi[ends[e].index] = s + 1;
        s += ended;
        leaf->lo[i] = s;
    }
    for (; e < n; e++) leaf->hi[ends[e].index] = s + 1;
    leaf->n_sections = n ? s + 1 : 0;

    for (uint32_t i = 0; i < n; i++) { /* differences, then their running sum */
        leaf->load[leaf->lo[i]] += items[i].size;
        leaf->load[leaf->hi[i]] -= items[i].size;
    }
    for (uint32_t i = 1; i <= leaf->n_sections && i <= n; i++) leaf->load[i] += leaf->load[i - 1];
    for (uint32_t i = 0; i < leaf->n_sections; i++)
        if (leaf->load[i] > leaf->bound) leaf->bound = leaf->load[i];
    return PL_OK;
}

pl_status pl_pack_bound(const pl_pack_buffer *buffers, size_t n, uint64_t align, uint64_t *bound)
{
    pl_arena a = PL_ARENA_INIT;
    item *items = NULL;
    size_t m = 0;
    pl__pack_leaf all = {0};
    pl_status rc = read_items(buffers, n, align, &a, &items, &m);
    all.n = (uint32_t)m;
    if (rc == PL_OK) rc = find_sections(items, &all, &a);
    if (rc == PL_OK) *bound = (uint64_t)all.bound;
    pl_arena_release(&a);
    return rc;
}

/* ---- reductions ------------------------------------------------------------------------- */

/* Stacks the buffers of a piece that overlap all others; true if there were any. The other buffers
 * keep their order. */
static bool stack_universal(packing *k, piece *p)
{
    item *it = k->items + p->first;
    int64_t last_lo = it[p->n - 1].lo, first_hi = INT64_MAX;
    for (size_t i = 0; i < p->n; i++)
        if (it[i].hi < first_hi) first_hi = it[i].hi;
    size_t kept = 0, n_stacked = 0;
    int64_t base = p->base;
    for (size_t i = 0; i < p->n; i++) {
        item x = it[i];
        if (x.lo < first_hi && x.hi > last_lo) {
            x.off = base;
            base += x.size;
            k->stacked[n_stacked++] = x;
        } else {
            it[kept++] = x;
        }
    }
    memcpy(it + kept, k->stacked, sizeof(item) * n_stacked);
    bool any = n_stacked > 0; /* they lie behind the piece and are not visited any more */
    p->n = kept;
    p->base = base;
    if (base > k->height) k->height = base;
    return any;
}

/* Splits the top piece at the first time that no buffer crosses; the halves replace it. */
static bool split_piece(packing *k, piece p)
{
    const item *it = k->items + p.first;
    int64_t hi = it[0].hi;
    for (size_t i = 1; i < p.n; i++) {
        if (it[i].lo >= hi) {
            k->pieces[k->n_pieces++] = (piece){.first = p.first + i, .n = p.n - i, .base = p.base};
            k->pieces[k->n_pieces++] = (piece){.first = p.first, .n = i, .base = p.base};
            return true;
        }
        if (it[i].hi > hi) hi = it[i].hi;
    }
    return false;
}

static pl_status reduce(packing *k)
{
    k->pieces = pl_arena_new(&k->arena, piece, k->n + 2);
    k->leaves = pl_arena_new(&k->arena, piece, k->n + 1);
    k->stacked = pl_arena_new(&k->arena, item, k->n);
    if (!k->pieces || !k->leaves || !k->stacked) return PL_ERR_MEMORY;
    k->pieces[k->n_pieces++] = (piece){.first = 0, .n = k->n};
    while (k->n_pieces) {
        piece p = k->pieces[--k->n_pieces];
        if (p.n == 0) continue;
        if (!(k->opts->off & PL_PACK_NO_SPLIT)) {
            if (split_piece(k, p)) continue;
            if (stack_universal(k, &p)) {
                if (p.n) k->pieces[k->n_pieces++] = p;
                continue;
            }
        }
        k->leaves[k->n_leaves++] = p;
    }
    return PL_OK;
}

/* ---- leaves ----------------------------------------------------------------------------- */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Builds the leaf of n items. Sizes are counted in *unit, the greatest common divisor of the items'
 * sizes. height: height of the placement that the items have, in their own unit; 0: none. */
static pl_status leaf_init(const item *it, size_t n, int64_t height, pl_arena *a,
                           pl__pack_leaf *leaf, int64_t *unit)
{
    *leaf = (pl__pack_leaf){.n = (uint32_t)n};
    PL_TRY(find_sections(it, leaf, a));
    leaf->size = pl_arena_new(a, int64_t, n);
    leaf->peak = pl_arena_new(a, int64_t, n);
    leaf->off = pl_arena_new(a, int64_t, n);
    leaf->width = pl_arena_new(a, double, n);
    leaf->first = pl_arena_new(a, uint32_t, (size_t)leaf->n_sections + 1);
    if (!leaf->first || !leaf->size || !leaf->peak || !leaf->off || !leaf->width)
        return PL_ERR_MEMORY;
    for (uint32_t s = 0, b = 0; s <= leaf->n_sections; s++) {
        while (b < leaf->n && leaf->lo[b] < s) b++;
        leaf->first[s] = b;
    }
    int64_t g = 0;
    for (size_t i = 0; i < n; i++) g = gcd(g, it[i].size);
    *unit = g;
    for (uint32_t s = 0; s < leaf->n_sections; s++) leaf->load[s] /= g;
    leaf->bound = leaf->proven = leaf->bound / g;
    for (uint32_t i = 0; i < leaf->n; i++) {
        leaf->size[i] = it[i].size / g;
        leaf->off[i] = it[i].off / g;
        leaf->width[i] = (double)it[i].hi - (double)it[i].lo;
        for (uint32_t s = leaf->lo[i]; s < leaf->hi[i]; s++)
            if (leaf->load[s] > leaf->peak[i]) leaf->peak[i] = leaf->load[s];
    }
    leaf->height = height ? height / g : INT64_MAX;
    return PL_OK;
}

static void leaf_take(packing *k, piece *p, const pl__pack_leaf *leaf, int64_t unit)
{
    for (uint32_t i = 0; i < leaf->n; i++) k->items[p->first + i].off = leaf->off[i] * unit;
    p->height = p->base + leaf->height * unit;
    p->sky_key = leaf->sky_key;
}

/* Reserves part of the effort for one solver; give_back returns the unused part. */
static pl__pack_effort take(pl__pack_effort *e, uint64_t units)
{
    pl__pack_effort part = {units, e->deadline_ns, e->stop};
    e->left -= units;
    return part;
}

static void give_back(pl__pack_effort *e, pl__pack_effort part)
{
    e->left += part.left;
}

/* Which solver works next on a leaf, and on how many sixteenths of the remaining effort. A result
 * at the goal ends the work, so a short search for it comes first; then a good height is secured,
 * in case the deadline comes early; then the goal gets its long search. The two local searches
 * alternate, because they get stuck in different places. */
enum { N_STEPS = 10 };
static const struct {
    enum { AT_GOAL, PERTURB, EJECT, BISECT } what;
    uint32_t sixteenths;
} STEPS[N_STEPS] = {{AT_GOAL, 2}, {PERTURB, 1}, {BISECT, 2}, {EJECT, 2},   {AT_GOAL, 12},
                    {PERTURB, 5}, {EJECT, 8},   {BISECT, 8}, {PERTURB, 8}, {EJECT, 16}};

static pl_status run_steps(const packing *k, pl__pack_leaf *leaf, pl__pack_effort *e)
{
    for (size_t i = 0; i < N_STEPS && leaf->height > leaf->goal; i++) {
        int what = STEPS[i].what;
        bool local = what == PERTURB || what == EJECT;
        if (k->opts->off & (local ? PL_PACK_NO_PERTURB : PL_PACK_NO_EXACT)) continue;
        pl__pack_effort part = take(e, e->left / 16 * STEPS[i].sixteenths);
        PL_TRY(what == PERTURB ? pl__pack_perturb(leaf, k->opts->seed + i, &part)
               : what == EJECT ? pl__pack_eject(leaf, k->opts->seed + i, &part)
                               : pl__pack_exact(leaf, what == AT_GOAL, &part));
        give_back(e, part);
    }
    return PL_OK;
}

/* Returns the number of buffers that are hard to place, and copies them to `full`: buffers that are
 * alive in a full section, and buffers larger than the free bytes of their fullest section. A
 * section is full when its load is at least `percent` of the bound. Sets *height to the height of
 * the copied buffers. */
static uint32_t list_full(const pl__pack_leaf *leaf, int percent, item *full, int64_t *height)
{
    uint32_t n = 0;
    *height = 0;
    for (uint32_t b = 0; b < leaf->n; b++) {
        bool easy = leaf->peak[b] < leaf->bound / 100 * percent &&
                    leaf->size[b] <= leaf->bound - leaf->peak[b];
        if (easy) continue;
        full[n++] = (item){leaf->lo[b], leaf->hi[b], leaf->size[b], leaf->off[b], b};
        if (leaf->off[b] + leaf->size[b] > *height) *height = leaf->off[b] + leaf->size[b];
    }
    return n;
}

/* Completes the placement of n buffers of the leaf with all others, and keeps it if it is lower. */
static pl_status complete(packing *k, pl__pack_leaf *leaf, const item *full, uint32_t n,
                          pl__pack_effort *e)
{
    pl__pack_leaf all = *leaf;
    all.off = pl_arena_new(&k->arena, int64_t, leaf->n);
    if (!all.off) return PL_ERR_MEMORY;
    for (uint32_t b = 0; b < leaf->n; b++) all.off[b] = -1;
    for (uint32_t i = 0; i < n; i++) all.off[full[i].buffer] = full[i].off;
    PL_TRY(pl__pack_complete(&all, e));
    if (all.height >= leaf->height) { /* the buffers above the height of the leaf move */
        all.height = leaf->height;
        PL_TRY(pl__pack_eject(&all, k->opts->seed, e));
    }
    if (all.height < leaf->height) {
        memcpy(leaf->off, all.off, sizeof *all.off * leaf->n);
        leaf->height = all.height;
    }
    return PL_OK;
}

/* Searches for a lower placement of the buffers of full sections only: often a fourth of all, so
 * that a move costs a fourth. The others then fit into the gaps, as a rule. */
static pl_status search_full(packing *k, pl__pack_leaf *leaf, int percent, uint32_t *sky_key,
                             pl__pack_effort *e)
{
    item *full = pl_arena_new(&k->arena, item, leaf->n);
    if (!full) return PL_ERR_MEMORY;
    int64_t height, unit = 1;
    uint32_t n = list_full(leaf, percent, full, &height);
    if (n > leaf->n / 4 * 3) return PL_OK;
    pl__pack_leaf part;
    PL_TRY(leaf_init(full, n, height, &k->arena, &part, &unit));
    part.goal = leaf->goal / unit;
    part.sky_key = *sky_key;
    pl__pack_effort most = take(e, e->left / 4 * 3);
    PL_TRY(run_steps(k, &part, &most));
    give_back(e, most);
    *sky_key = part.sky_key;
    if (part.height * unit >= leaf->height) return PL_OK;
    for (uint32_t i = 0; i < n; i++) full[i].off = part.off[i] * unit;
    return complete(k, leaf, full, n, e);
}

/* Beyond FULL_MAX buffers the effort does not suffice for both searches; the search over all
 * buffers leaves the smaller gaps there. */
static pl_status leaf_search(packing *k, pl__pack_leaf *leaf, pl__pack_effort *e)
{
    enum { FULL_MAX = 6000 };
    static const int percent[] = {90, 75};
    bool full = leaf->n <= FULL_MAX && !(k->opts->off & (PL_PACK_NO_FULL | PL_PACK_NO_FIT));
    uint32_t sky_key = 0; /* of the first part; the second is much like it */
    for (size_t i = 0; i < 2 && full && leaf->height > leaf->goal; i++) {
        pl__pack_effort half = take(e, e->left / 2);
        PL_TRY(search_full(k, leaf, percent[i], &sky_key, &half));
        give_back(e, half);
    }
    return run_steps(k, leaf, e);
}

/* Runs the portfolio on a new leaf, and a search on a leaf that has a placement. */
static pl_status leaf_solve(packing *k, piece *p, pl__pack_effort *e)
{
    pl_arena_mark mark = pl_arena_mark_get(&k->arena);
    pl__pack_leaf leaf;
    int64_t unit = 1;
    pl_status rc = leaf_init(k->items + p->first, p->n, p->height ? p->height - p->base : 0,
                             &k->arena, &leaf, &unit);
    leaf.sky_key = p->sky_key;
    if (rc == PL_OK) {
        int64_t room = (k->goal - p->base) / unit;
        leaf.goal = room > leaf.bound ? room : leaf.bound;
        rc = e ? leaf_search(k, &leaf, e) : pl__pack_portfolio(&leaf, k->opts->off);
        p->done = e != NULL;
    }
    if (rc == PL_OK) leaf_take(k, p, &leaf, unit);
    pl_arena_rewind(&k->arena, mark);
    return rc;
}

/* Takes the placement of a leaf from the offsets of an earlier call: the same buffers reduce to the
 * same leaves. */
static void leaf_read(const packing *k, piece *p, const pl_pack_buffer *buffers)
{
    p->height = p->base;
    for (size_t i = 0; i < p->n; i++) {
        item *it = &k->items[p->first + i];
        it->off = (int64_t)buffers[it->buffer].offset - p->base;
        if (p->base + it->off + it->size > p->height) p->height = p->base + it->off + it->size;
    }
}

static pl_status solve_leaves(packing *k, const pl_pack_buffer *buffers)
{
    for (size_t i = 0; i < k->n_leaves; i++) {
        if (k->opts->improve)
            leaf_read(k, &k->leaves[i], buffers);
        else
            PL_TRY(leaf_solve(k, &k->leaves[i], NULL));
    }
    while (k->opts->work) {
        piece *worst = NULL;
        uint64_t n_high = 0;
        for (size_t i = 0; i < k->n_leaves; i++) {
            piece *p = &k->leaves[i];
            n_high += !p->done && p->height > k->goal;
            if (!p->done && p->height > k->goal && (!worst || p->height > worst->height)) worst = p;
        }
        if (!worst) break;
        pl__pack_effort part = take(&k->effort, k->effort.left / n_high);
        PL_TRY(leaf_solve(k, worst, &part));
        give_back(&k->effort, part);
        if (worst->height > k->goal) k->goal = worst->height;
    }
    return PL_OK;
}

static pl_status pack_items(packing *k, uint64_t bound, pl_pack_buffer *buffers, size_t n)
{
    PL_TRY(reduce(k));
    k->goal = (int64_t)bound;
    if (k->opts->target > bound)
        k->goal = k->opts->target < SUM_MAX ? (int64_t)k->opts->target : INT64_MAX / 2;
    PL_TRY(solve_leaves(k, buffers));
    for (size_t i = 0; i < k->n_leaves; i++) {
        const piece *p = &k->leaves[i];
        for (size_t j = 0; j < p->n; j++) k->items[p->first + j].off += p->base;
        if (p->height > k->height) k->height = p->height;
    }
    for (size_t i = 0; i < n; i++) buffers[i].offset = 0;
    for (size_t i = 0; i < k->n; i++)
        buffers[k->items[i].buffer].offset = (uint64_t)k->items[i].off;
    return PL_OK;
}

pl_status pl_pack(pl_pack_buffer *buffers, size_t n, const pl_pack_opts *opts, uint64_t *height)
{
    const pl_pack_opts defaults = PL_PACK_OPTS_INIT;
    packing k = {.opts = opts ? opts : &defaults};
    uint64_t bound = 0;
    k.effort.left = k.opts->work;
    k.effort.stop = k.opts->stop;
    if (k.opts->time_limit_s > 0)
        k.effort.deadline_ns = pl_sys_now_ns() + (uint64_t)(k.opts->time_limit_s * 1e9);
    pl_status rc = pl_pack_bound(buffers, n, k.opts->align, &bound);
    if (rc == PL_OK) rc = read_items(buffers, n, k.opts->align, &k.arena, &k.items, &k.n);
    if (rc == PL_OK) rc = pack_items(&k, bound, buffers, n);
    if (rc == PL_OK) *height = (uint64_t)k.height;
    pl_arena_release(&k.arena);
    return rc;
}
