/* pack_perturb.c - local search over the ranks of a skyline.
 *
 * The ranks are the state. A move gives a few buffers of the critical stack (a chain of touching
 * buffers from the bottom to the top of the arena) new ranks and runs the skyline again; it is kept
 * when the arena does not grow.
 *
 * Invariant: the kept ranks give the lowest placement so far. Cost: one skyline per move.
 */
#include "plan/pack/pack_greedy.h"

/* The chain of touching buffers that carries the highest one, from the last complete run.
 * Buffers were placed in order of offset, so one backward pass meets every supporter after its
 * load. */
static uint32_t critical_stack(const pl__pack_sky *k, int64_t height, uint32_t *out)
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

/* Moves the buffer at rank `from` to rank `to`; the buffers between shift by one. */
static void move_rank(pl__pack_sky *k, uint32_t from, uint32_t to)
{
    uint32_t *order = k->order, *rank = k->rank;
    uint32_t b = order[from];
    for (; from > to; from--) order[from] = order[from - 1], rank[order[from]] = from;
    for (; from < to; from++) order[from] = order[from + 1], rank[order[from]] = from;
    order[to] = b;
    rank[b] = to;
}

#define MAX_MOVES 3

/* One move: changes the ranks of a few buffers of the stack, runs, keeps or reverts. */
static bool perturb_step(pl__pack_sky *k, uint32_t *stack, uint32_t *n_stack, int64_t *height,
                         pl__pack_draws *d)
{
    uint32_t n = k->leaf->n, from[MAX_MOVES], to[MAX_MOVES], m = 1 + pl__pack_draw(d, MAX_MOVES);
    for (uint32_t i = 0; i < m; i++) {
        from[i] =
            k->rank[pl__pack_draw(d, 4) ? stack[pl__pack_draw(d, *n_stack)] : pl__pack_draw(d, n)];
        to[i] = pl__pack_draw(d, 4) ? pl__pack_draw(d, from[i] + 1) : pl__pack_draw(d, n);
        move_rank(k, from[i], to[i]);
    }
    int64_t h = pl__pack_sky_run(k, *height);
    if (h <= *height) {
        *height = h;
        *n_stack = critical_stack(k, h, stack);
        return true;
    }
    while (m-- > 0) move_rank(k, to[m], from[m]);
    return false;
}

/* The search starts from the lowest skyline; the portfolio may not have run on this leaf. */
static void find_best_key(pl__pack_leaf *leaf, pl__pack_sorter *s, pl__pack_sky *k)
{
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < PL__PACK_SKY_KEYS; i++) {
        pl__pack_sort_by(s, k, pl__pack_sky_keys[i]);
        int64_t h = pl__pack_sky_run(k, best - 1);
        if (h < best) best = h, leaf->sky_key = i + 1;
    }
}

pl_status pl__pack_perturb(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *e)
{
    pl_arena a = PL_ARENA_INIT;
    pl__pack_sky k;
    pl__pack_sorter s;
    pl__pack_draws d = {.seed = seed};
    pl_status rc = pl__pack_sky_init(&k, leaf, &a);
    if (rc == PL_OK) rc = pl__pack_sorter_init(&s, leaf, &a);
    uint32_t n_stack = 0, *stack = pl_arena_new(&a, uint32_t, leaf->n);
    if (rc == PL_OK && !stack) rc = PL_ERR_MEMORY;
    if (rc != PL_OK) goto out;

    if (!leaf->sky_key) find_best_key(leaf, &s, &k);
    pl__pack_sort_by(&s, &k, pl__pack_sky_keys[leaf->sky_key - 1]);
    int64_t best = pl__pack_sky_run(&k, INT64_MAX - 1);
    n_stack = critical_stack(&k, best, stack);
    while (leaf->height > leaf->goal && pl__pack_spend(e, k.work)) {
        k.work = 0;
        if (perturb_step(&k, stack, &n_stack, &best, &d)) pl__pack_keep(leaf, k.off, best);
    }
out:
    pl_arena_release(&a);
    return rc;
}
