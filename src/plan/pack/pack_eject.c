/* pack_eject.c - local search within a given height: a buffer without a gap ejects other buffers.
 *
 * The height limit is a little below the best known height, and buffers above it are out. As long
 * as any buffer is out, the heaviest of them goes where the buffers in its way weigh least, and
 * those buffers are out instead. An ejected buffer gets heavier by a fifth: buffers that eject each
 * other settle first, one below the other, and the light ones, which fit into many gaps, come in
 * last. The first weight is the square root of the buffer's area, a measure of how hard it is to
 * place.
 *
 * A move visits the buffers that overlap in time, by rising offset and by rising top, and so finds
 * the weight in the way of each place that touches one of them; no other place has less weight in
 * its way. A move takes microseconds, where a placement from scratch takes a millisecond, and only
 * buffers in the way move.
 *
 * When too many buffers are out, or after too many moves, the weights are misleading: the search
 * restarts from the best placement, with first weights and a smaller step down.
 *
 * Invariant: placed buffers do not overlap and stay within the height; the best placement is stored
 * separately. Cost: microseconds per move, as many moves as the effort allows.
 */
#include "plan/pack/pack_int.h"

#include "base/arena.h"

#include <math.h>
#include <string.h>

enum {
    EJECT_MAX = 16384, /* a move visits all buffers */
    HEAVIER = 5,       /* by a fifth */
    PATIENCE = 16,     /* moves per buffer before a restart */
    FIRST_CUT = 2,     /* steps down: a fourth of the distance to the goal, then less */
    LAST_CUT = 5,
};
#define OUT        INT64_MAX /* as an offset: not placed */
#define FIRST_MOST 1e6       /* weight of a buffer that fills the whole problem */
#define MOST       ((uint64_t)1 << 45)

/* Placed buffers by rising key, then by number. */
typedef struct ranks {
    uint32_t *buffer, *lo, *hi;
    int64_t *key;
    /* scratch: indices, in these arrays, of the buffers that overlap one buffer in time */
    uint32_t *met;
} ranks;

typedef struct eject {
    pl__pack_leaf *leaf;
    int64_t *off;
    uint64_t *weight;
    ranks by_off, by_top;
    uint32_t n_placed;
    uint32_t *out, n_out;
    int64_t cap;
    pl__pack_draws draws;
    uint64_t moves, work;
} eject;

/* ---- placed buffers --------------------------------------------------------------------- */
static pl_status ranks_init(ranks *r, uint32_t n, pl_arena *a)
{
    r->buffer = pl_arena_new(a, uint32_t, n + 1);
    r->lo = pl_arena_new(a, uint32_t, n + 1);
    r->hi = pl_arena_new(a, uint32_t, n + 1);
    r->met = pl_arena_new(a, uint32_t, n + 1);
    r->key = pl_arena_new(a, int64_t, n + 1);
    return r->buffer && r->lo && r->hi && r->met && r->key ? PL_OK : PL_ERR_MEMORY;
}

static uint32_t rank_of(const ranks *r, uint32_t n, int64_t key, uint32_t b)
{
    uint32_t l = 0, h = n;
    while (l < h) {
        uint32_t mid = l + (h - l) / 2;
        bool before = r->key[mid] != key ? r->key[mid] < key : r->buffer[mid] < b;
        if (before)
            l = mid + 1;
        else
            h = mid;
    }
    return l;
}

#define SHIFT(array, to, from, n) memmove((array) + (to), (array) + (from), sizeof *(array) * (n))

static void ranks_shift(ranks *r, uint32_t to, uint32_t from, uint32_t n)
{
    SHIFT(r->buffer, to, from, n);
    SHIFT(r->lo, to, from, n);
    SHIFT(r->hi, to, from, n);
    SHIFT(r->key, to, from, n);
}

static void ranks_add(ranks *r, uint32_t n, int64_t key, uint32_t b, const pl__pack_leaf *leaf)
{
    uint32_t at = rank_of(r, n, key, b);
    ranks_shift(r, at + 1, at, n - at);
    r->buffer[at] = b;
    r->lo[at] = leaf->lo[b];
    r->hi[at] = leaf->hi[b];
    r->key[at] = key;
}

static void ranks_remove(ranks *r, uint32_t n, int64_t key, uint32_t b)
{
    uint32_t at = rank_of(r, n, key, b);
    ranks_shift(r, at, at + 1, n - at - 1);
}

/* Returns how many buffers overlap b in time; they are in r->met. */
static uint32_t find_met(const ranks *r, uint32_t n, uint32_t lo, uint32_t hi)
{
    const uint32_t *restrict los = r->lo, *restrict his = r->hi;
    uint32_t *restrict met = r->met, k = 0;
    for (uint32_t i = 0; i < n; i++) {
        met[k] = i;
        k += (los[i] < hi) & (his[i] > lo);
    }
    return k;
}

static void put_in(eject *e, uint32_t b, int64_t off)
{
    e->off[b] = off;
    ranks_add(&e->by_off, e->n_placed, off, b, e->leaf);
    ranks_add(&e->by_top, e->n_placed, off + e->leaf->size[b], b, e->leaf);
    e->work += e->n_placed++;
}

static void lighten_all(eject *e)
{
    for (uint32_t b = 0; b < e->leaf->n; b++) e->weight[b] = e->weight[b] / 1024 + 1;
}

static void put_out(eject *e, uint32_t b)
{
    ranks_remove(&e->by_off, e->n_placed, e->off[b], b);
    ranks_remove(&e->by_top, e->n_placed, e->off[b] + e->leaf->size[b], b);
    e->work += e->n_placed--;
    e->off[b] = OUT;
    e->out[e->n_out++] = b;
    e->weight[b] += e->weight[b] / HEAVIER + 1;
    if (e->weight[b] > MOST) lighten_all(e);
}

/* ---- a move ----------------------------------------------------------------------------- */
static uint32_t take_heaviest(eject *e)
{
    uint32_t at = e->n_out - 1;
    for (uint32_t i = 0; i < e->n_out; i++)
        if (e->weight[e->out[i]] > e->weight[e->out[at]]) at = i;
    uint32_t b = e->out[at];
    e->out[at] = e->out[--e->n_out];
    e->work += 2 * (uint64_t)e->n_out;
    return b;
}

/* A buffer searches its place among the k buffers that it overlaps in time. The place rises:
 * `below` of them, by offset, begin below its end, and `ended`, by top, end by its beginning. A
 * buffer is in the way if it has begun and not ended. */
typedef struct look {
    int64_t size, at;
    uint32_t k, below, ended, next_off;
    uint64_t begun, gone; /* sums of their weights */
} look;

static uint64_t weigh(const eject *e, look *l)
{
    const ranks *o = &e->by_off, *t = &e->by_top;
    for (; l->below < l->k && o->key[o->met[l->below]] < l->at + l->size; l->below++)
        l->begun += e->weight[o->buffer[o->met[l->below]]];
    for (; l->ended < l->k && t->key[t->met[l->ended]] <= l->at; l->ended++)
        l->gone += e->weight[t->buffer[t->met[l->ended]]];
    return l->begun - l->gone;
}

/* Returns the next place on top of one of them or right below one. */
static int64_t next_place(const eject *e, look *l)
{
    const ranks *o = &e->by_off, *t = &e->by_top;
    while (l->next_off < l->k && o->key[o->met[l->next_off]] - l->size <= l->at) l->next_off++;
    int64_t top = l->ended < l->k ? t->key[t->met[l->ended]] : INT64_MAX;
    int64_t under = l->next_off < l->k ? o->key[o->met[l->next_off]] - l->size : INT64_MAX;
    return top < under ? top : under;
}

/* Returns the place with the least weight in the way; ties are broken at random. */
static int64_t find_place(eject *e, uint32_t b, uint64_t *least, uint32_t *n_met)
{
    const pl__pack_leaf *leaf = e->leaf;
    look l = {.size = leaf->size[b]};
    int64_t highest = e->cap - l.size, best = 0;
    uint32_t equals = 0;
    *n_met = l.k = find_met(&e->by_off, e->n_placed, leaf->lo[b], leaf->hi[b]);
    find_met(&e->by_top, e->n_placed, leaf->lo[b], leaf->hi[b]);
    e->work += 2 * (uint64_t)e->n_placed + 6 * (uint64_t)l.k;
    *least = UINT64_MAX;
    for (;;) {
        uint64_t weight = weigh(e, &l);
        if (weight < *least) equals = 0;
        if (weight < *least || (weight == *least && pl__pack_draw(&e->draws, equals + 1) == 0)) {
            *least = weight;
            best = l.at;
        }
        equals += weight == *least;
        if (l.at == highest) return best;
        int64_t next = next_place(e, &l);
        l.at = next < highest ? next : highest;
    }
}

static void move(eject *e)
{
    const int64_t *size = e->leaf->size;
    uint64_t weight;
    uint32_t b = take_heaviest(e), n_met, n = 0, *in_way = e->by_top.met;
    int64_t at = find_place(e, b, &weight, &n_met);
    for (uint32_t i = 0; i < n_met && weight; i++) {
        uint32_t c = e->by_off.buffer[e->by_off.met[i]];
        if (e->off[c] < at + size[b] && e->off[c] + size[c] > at) in_way[n++] = c;
    }
    for (uint32_t i = 0; i < n; i++) put_out(e, in_way[i]);
    put_in(e, b, at);
    e->moves++;
}

/* ---- driving ---------------------------------------------------------------------------- */
static void set_weights(eject *e)
{
    const pl__pack_leaf *leaf = e->leaf;
    double all = (double)leaf->bound * (double)leaf->n_sections;
    for (uint32_t b = 0; b < leaf->n; b++) {
        double area = (double)leaf->size[b] * (double)(leaf->hi[b] - leaf->lo[b]);
        e->weight[b] = 1 + (uint64_t)(FIRST_MOST * sqrt(area / all));
    }
}

/* Starts from the best placement; buffers above the new height are out. */
static void begin(eject *e, int cut)
{
    const pl__pack_leaf *leaf = e->leaf;
    int64_t down = (leaf->height - leaf->goal) >> cut;
    e->cap = leaf->height - (down > 1 ? down : 1);
    e->n_placed = e->n_out = 0;
    e->moves = 0;
    for (uint32_t b = 0; b < leaf->n; b++) {
        bool in = leaf->off[b] + leaf->size[b] <= e->cap;
        if (in)
            put_in(e, b, leaf->off[b]);
        else
            e->out[e->n_out++] = b;
    }
}

static void keep_placement(const eject *e)
{
    pl__pack_leaf *leaf = e->leaf;
    leaf->height = 0;
    for (uint32_t b = 0; b < leaf->n; b++) {
        leaf->off[b] = e->off[b];
        if (leaf->off[b] + leaf->size[b] > leaf->height)
            leaf->height = leaf->off[b] + leaf->size[b];
    }
}

static bool is_lost(const eject *e)
{
    return e->n_out > e->leaf->n / 2 || e->moves > (uint64_t)e->leaf->n * PATIENCE;
}

static void search(eject *e, pl__pack_effort *effort)
{
    enum { OFTEN = 20000 }; /* work between two checks of the remaining effort */
    int cut = FIRST_CUT;
    set_weights(e);
    while (e->leaf->height > e->leaf->goal) {
        begin(e, cut);
        while (e->n_out && !is_lost(e)) {
            move(e);
            if (e->work <= OFTEN) continue;
            if (!pl__pack_spend(effort, e->work)) return;
            e->work = 0;
        }
        if (!e->n_out) {
            keep_placement(e);
            continue;
        }
        cut = cut == LAST_CUT ? FIRST_CUT : cut + 1;
        set_weights(e);
    }
}

pl_status pl__pack_eject(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *effort)
{
    if (leaf->n > EJECT_MAX || leaf->height == INT64_MAX) return PL_OK;
    pl_arena a = PL_ARENA_INIT;
    eject e = {.leaf = leaf, .draws = {.seed = seed}};
    pl_status rc = ranks_init(&e.by_off, leaf->n, &a);
    if (rc == PL_OK) rc = ranks_init(&e.by_top, leaf->n, &a);
    e.off = pl_arena_new(&a, int64_t, leaf->n);
    e.weight = pl_arena_new(&a, uint64_t, leaf->n);
    e.out = pl_arena_new(&a, uint32_t, leaf->n);
    if (rc == PL_OK && (!e.off || !e.weight || !e.out)) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) search(&e, effort);
    pl_arena_release(&a);
    return rc;
}
