/* check_line.c - a line of bytes with tags; see check_int.h.
 *
 * The tags live in a segment tree over all range borders that occur: both operations are O(log n).
 */
#include "plan/core/check_int.h"

#include <stdlib.h>

#define MIXED UINT32_MAX

pl_status pl_check_line_new(pl_arena *mem, size_t ranges, size_t writes, pl_check_line *out)
{
    *out = (pl_check_line){.border = pl_arena_new(mem, uint64_t, 2 * ranges),
                           .tree = pl_arena_new(mem, uint32_t, 16 * ranges),
                           .tags = pl_arena_new(mem, pl_check_line_tag, writes + 1),
                           .n_tags = 1};
    return out->border && out->tree && out->tags ? PL_OK : PL_ERR_MEMORY;
}

void pl_check_line_border(pl_check_line *l, uint64_t at)
{
    l->border[l->n_borders++] = at;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void pl_check_line_close(pl_check_line *l)
{
    qsort(l->border, l->n_borders, sizeof *l->border, by_value);
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_borders; i++)
        if (!n || l->border[n - 1] != l->border[i]) l->border[n++] = l->border[i];
    l->n_borders = n;
    l->n_leaves = n > 1 ? n : 2;
}

static uint32_t border_index(const pl_check_line *l, uint64_t at)
{
    uint32_t lo = 0, hi = l->n_borders - 1;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (l->border[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void put(uint32_t *tree, uint32_t node, uint32_t lo, uint32_t hi, uint32_t a, uint32_t b,
                uint32_t tag)
{
    if (a <= lo && hi <= b) {
        tree[node] = tag;
        return;
    }
    if (tree[node] != MIXED) tree[2 * node] = tree[2 * node + 1] = tree[node];
    uint32_t mid = (lo + hi) / 2;
    if (a < mid) put(tree, 2 * node, lo, mid, a, b, tag);
    if (b > mid) put(tree, 2 * node + 1, mid, hi, a, b, tag);
    tree[node] = tree[2 * node] == tree[2 * node + 1] ? tree[2 * node] : MIXED;
}

/* Returns the single tag of leaves [a,b), or MIXED. */
static uint32_t get(const uint32_t *tree, uint32_t node, uint32_t lo, uint32_t hi, uint32_t a,
                    uint32_t b)
{
    if (tree[node] != MIXED || (a <= lo && hi <= b)) return tree[node];
    uint32_t mid = (lo + hi) / 2;
    if (b <= mid) return get(tree, 2 * node, lo, mid, a, b);
    if (a >= mid) return get(tree, 2 * node + 1, mid, hi, a, b);
    uint32_t x = get(tree, 2 * node, lo, mid, a, b);
    return x != MIXED && x == get(tree, 2 * node + 1, mid, hi, a, b) ? x : MIXED;
}

uint32_t pl_check_line_write(pl_check_line *l, uint64_t lo, uint64_t hi, uint32_t content,
                             uint64_t off)
{
    uint32_t tag = l->n_tags++;
    l->tags[tag] = (pl_check_line_tag){content, lo, off};
    if (lo < hi) put(l->tree, 1, 0, l->n_leaves, border_index(l, lo), border_index(l, hi), tag);
    return tag;
}

uint32_t pl_check_line_read(const pl_check_line *l, uint64_t lo, uint64_t hi)
{
    return get(l->tree, 1, 0, l->n_leaves, border_index(l, lo), border_index(l, hi));
}

const pl_check_line_tag *pl_check_line_tag_of(const pl_check_line *l, uint32_t tag)
{
    return tag == MIXED || tag == 0 ? NULL : &l->tags[tag];
}
