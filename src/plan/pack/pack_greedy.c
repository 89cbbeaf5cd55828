/* pack_greedy.c - keys that order placements, largest-first fits, and the portfolio of both.
 *
 * Skylines (pack_sky.c) are made under several keys. A fit is largest first, into the first or the
 * tightest gap among the placed neighbours: it costs n^2, where a skyline costs n log n.
 *
 * Invariant: pl__pack_keep takes a placement only if it is lower.
 */
#include "plan/pack/pack_greedy.h"

#include <stdlib.h>
#include <string.h>

void pl__pack_keep(pl__pack_leaf *leaf, const int64_t *off, int64_t height)
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
    return a->buffer < b->buffer ? -1 : 1;
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

/* No key wins on all problems, and a run costs milliseconds. */
const char *const pl__pack_sky_keys[PL__PACK_SKY_KEYS] = {"TWS", "TAS", "WAS", "AWS", "SWT",
                                                          "RWS", "TCS", "TDS", "CDS", "DCS",
                                                          "RAS", "TSW", "LUS", "ULS"};

pl_status pl__pack_sorter_init(pl__pack_sorter *s, const pl__pack_leaf *leaf, pl_arena *a)
{
    s->rows = pl_arena_new(a, pl__pack_keyed, leaf->n);
    s->load_sum = pl_arena_new(a, double, (size_t)leaf->n_sections + 1);
    if (!s->rows || !s->load_sum) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < leaf->n_sections; i++)
        s->load_sum[i + 1] = s->load_sum[i] + (double)leaf->load[i];
    return PL_OK;
}

/* Sets the ranks of k by up to three keys. */
void pl__pack_sort_by(pl__pack_sorter *s, pl__pack_sky *k, const char *keys)
{
    const pl__pack_leaf *leaf = k->leaf;
    for (uint32_t b = 0; b < leaf->n; b++) {
        s->rows[b].buffer = b;
        for (int i = 0; i < 3; i++) s->rows[b].key[i] = key_of(leaf, s->load_sum, b, keys[i]);
    }
    qsort(s->rows, leaf->n, sizeof(pl__pack_keyed), pl__pack_by_keys);
    for (uint32_t r = 0; r < leaf->n; r++) {
        k->order[r] = s->rows[r].buffer;
        k->rank[k->order[r]] = r;
    }
}

/* ---- largest-first fits ----------------------------------------------------------------- */

/* Placed buffers, by rising offset. */
typedef struct shelf {
    uint32_t n;
    int64_t *off, *top;
    uint32_t *lo, *hi, *buffer;
    uint8_t *meets; /* scratch, 8 bytes longer: per placed buffer, whether it overlaps the new one
                     * in time */
} shelf;

static pl_status shelf_init(shelf *s, uint32_t n, pl_arena *a)
{
    s->off = pl_arena_new(a, int64_t, n + 1);
    s->top = pl_arena_new(a, int64_t, n + 1);
    s->lo = pl_arena_new(a, uint32_t, n + 1);
    s->hi = pl_arena_new(a, uint32_t, n + 1);
    s->buffer = pl_arena_new(a, uint32_t, n + 1);
    s->meets = pl_arena_new(a, uint8_t, n + 8);
    bool ok = s->off && s->top && s->lo && s->hi && s->buffer && s->meets;
    return ok ? PL_OK : PL_ERR_MEMORY;
}

/* Most placed buffers do not overlap in time: all are tested at once, then skipped eight at a
 * time. */
static void find_meets(shelf *s, uint32_t lo, uint32_t hi)
{
    const uint32_t n = s->n, *restrict los = s->lo, *restrict his = s->hi;
    uint8_t *restrict meets = s->meets;
    for (uint32_t i = 0; i < n; i++) meets[i] = (los[i] < hi) & (his[i] > lo);
    memset(meets + n, 0, 8);
}

/* Returns the offset for a buffer: the first gap that holds it, or the tightest one. */
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

#define SHIFT(array, at, n)                                                                        \
 memmove((array) + (at) + 1, (array) + (at), sizeof *(array) * ((n) - (at)))

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
    SHIFT(s->buffer, at, n);
    s->off[at] = off;
    s->top[at] = off + leaf->size[b];
    s->lo[at] = leaf->lo[b];
    s->hi[at] = leaf->hi[b];
    s->buffer[at] = b;
}

/* Returns the height, or a value above cap as soon as the height exceeds it. */
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

/* Places the buffers of order whose offset is negative: into the tightest gaps, or the first. Those
 * that have an offset are given, by rising offset. */
static int64_t fit_rest(const pl__pack_leaf *leaf, const pl__pack_keyed *given, uint32_t n_given,
                        const uint32_t *order, bool tightest, shelf *s, int64_t *off)
{
    int64_t height = 0;
    s->n = 0;
    for (uint32_t i = 0; i < n_given; i++)
        shelf_add(s, given[i].buffer, leaf, off[given[i].buffer]);
    for (uint32_t i = 0; i < leaf->n; i++) {
        uint32_t b = order[i];
        if (off[b] < 0) {
            off[b] = find_gap(s, leaf->lo[b], leaf->hi[b], leaf->size[b], tightest);
            shelf_add(s, b, leaf, off[b]);
        }
        if (off[b] + leaf->size[b] > height) height = off[b] + leaf->size[b];
    }
    return height;
}

/* Lists the buffers that have an offset, by rising offset. */
static uint32_t list_given(const pl__pack_leaf *leaf, pl__pack_keyed *given)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < leaf->n; b++)
        if (leaf->off[b] >= 0) given[n++] = (pl__pack_keyed){{-(double)leaf->off[b], 0, 0}, b};
    qsort(given, n, sizeof *given, pl__pack_by_keys);
    return n;
}

pl_status pl__pack_complete(pl__pack_leaf *leaf, pl__pack_effort *e)
{
    pl_arena a = PL_ARENA_INIT;
    pl__pack_sky k;
    pl__pack_sorter s;
    shelf placed = {0};
    pl__pack_keyed *given = pl_arena_new(&a, pl__pack_keyed, leaf->n);
    int64_t *off = pl_arena_new(&a, int64_t, leaf->n), was = leaf->height;
    pl_status rc = pl__pack_sky_init(&k, leaf, &a);
    if (rc == PL_OK) rc = pl__pack_sorter_init(&s, leaf, &a);
    if (rc == PL_OK) rc = shelf_init(&placed, leaf->n, &a);
    if (rc == PL_OK && (!given || !off)) rc = PL_ERR_MEMORY;
    if (rc != PL_OK) goto out;
    uint32_t n = list_given(leaf, given);
    memcpy(off, leaf->off, sizeof *off * leaf->n);
    leaf->height = INT64_MAX;
    for (int tightest = 1; tightest >= 0 && leaf->height >= was; tightest--) {
        pl__pack_sort_by(&s, &k, tightest ? "TWS" : "SWT");
        memcpy(k.off, off, sizeof *off * leaf->n);
        pl__pack_keep(leaf, k.off, fit_rest(leaf, given, n, k.order, tightest, &placed, k.off));
        if (!pl__pack_spend(e, (uint64_t)leaf->n * leaf->n / 3)) break;
    }
out:
    pl_arena_release(&a);
    return rc;
}

pl_status pl__pack_portfolio(pl__pack_leaf *leaf, uint32_t off)
{
    pl_arena a = PL_ARENA_INIT;
    pl__pack_sky k;
    pl__pack_sorter s;
    shelf placed = {0};
    pl_status rc = pl__pack_sky_init(&k, leaf, &a);
    if (rc == PL_OK) rc = pl__pack_sorter_init(&s, leaf, &a);
    bool fits = leaf->n <= PL__PACK_FIT_MAX && !(off & PL_PACK_NO_FIT);
    if (rc == PL_OK && fits) rc = shelf_init(&placed, leaf->n, &a);
    if (rc != PL_OK) goto out;

    if (!(off & PL_PACK_NO_SKYLINE))
        for (size_t i = 0; i < PL__PACK_SKY_KEYS && leaf->height > leaf->goal; i++) {
            pl__pack_sort_by(&s, &k, pl__pack_sky_keys[i]);
            int64_t height = pl__pack_sky_run(&k, leaf->height - 1);
            if (height < leaf->height) leaf->sky_key = (uint32_t)i + 1;
            pl__pack_keep(leaf, k.off, height);
        }
    for (int tightest = 1; tightest >= 0 && fits && leaf->height > leaf->goal; tightest--) {
        pl__pack_sort_by(&s, &k, "SWT");
        pl__pack_keep(leaf, k.off,
                      fit_run(leaf, k.order, tightest, leaf->height - 1, &placed, k.off));
    }
    if (leaf->height == INT64_MAX) { /* everything is switched off, but a placement is required */
        pl__pack_sort_by(&s, &k, "SWT");
        pl__pack_keep(leaf, k.off, pl__pack_sky_run(&k, INT64_MAX - 1));
    }
out:
    pl_arena_release(&a);
    return rc;
}
