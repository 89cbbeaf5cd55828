/* recompute_heap.c - see recompute_heap.h. */
#include "plan/recompute/recompute_heap.h"

#include "plan/recompute/recompute.h"

pl_status pl__recompute_heap_init(pl__recompute_heap *h, pl_arena *a, uint32_t n_items)
{
    h->item = pl_arena_new(a, uint32_t, n_items + 1);
    h->at = pl_arena_new(a, uint32_t, n_items + 1);
    h->key = pl_arena_new(a, float, n_items + 1);
    if (!h->item || !h->at || !h->key) return PL_ERR_MEMORY;
    for (uint32_t r = 0; r < n_items; r++) h->at[r] = PL_RECOMPUTE_NONE;
    return PL_OK;
}

void pl__recompute_heap_clear(pl__recompute_heap *h)
{
    while (h->n) h->at[h->item[--h->n]] = PL_RECOMPUTE_NONE;
}

static bool is_less(const pl__recompute_heap *h, uint32_t a, uint32_t b)
{
    return h->key[a] < h->key[b] || (h->key[a] == h->key[b] && a < b);
}

static void place(pl__recompute_heap *h, uint32_t r, uint32_t at)
{
    h->item[at] = r;
    h->at[r] = at;
}

static void sift_up(pl__recompute_heap *h, uint32_t r)
{
    uint32_t at = h->at[r];
    for (; at; at = (at - 1) / 2) {
        uint32_t above = h->item[(at - 1) / 2];
        if (!is_less(h, r, above)) break;
        place(h, above, at);
    }
    place(h, r, at);
}

static void sift_down(pl__recompute_heap *h, uint32_t r)
{
    uint32_t at = h->at[r];
    for (uint32_t below; (below = 2 * at + 1) < h->n; at = below) {
        if (below + 1 < h->n && is_less(h, h->item[below + 1], h->item[below])) below++;
        if (!is_less(h, h->item[below], r)) break;
        place(h, h->item[below], at);
    }
    place(h, r, at);
}

void pl__recompute_heap_set(pl__recompute_heap *h, uint32_t r, float key)
{
    if (h->at[r] == PL_RECOMPUTE_NONE) place(h, r, h->n++);
    h->key[r] = key;
    sift_up(h, r);
    sift_down(h, r);
}

void pl__recompute_heap_remove(pl__recompute_heap *h, uint32_t r)
{
    uint32_t at = h->at[r];
    if (at == PL_RECOMPUTE_NONE) return;
    uint32_t last = h->item[--h->n];
    h->at[r] = PL_RECOMPUTE_NONE;
    if (last == r) return;
    place(h, last, at);
    sift_up(h, last);
    sift_down(h, last);
}
