/* check_pack.c - a placement is right when no two buffers share a time and a byte.
 *
 * Buffers are visited by start time. Each is compared with every later buffer that starts before it
 * ends, so every pair that overlaps in time is compared exactly once. The code is deliberately
 * simple: this is the part that must be right.
 *
 * Cost: the number of pairs that overlap in time.
 */
#include "plan/pack/check_pack.h"

#include "base/sys.h"

#include <stdlib.h>

typedef unsigned long long ull;

static int by_start(const void *pa, const void *pb)
{
    const pl_pack_buffer *a = *(const pl_pack_buffer *const *)pa,
                         *b = *(const pl_pack_buffer *const *)pb;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

static pl_status check_alone(const pl_pack_buffer *b, size_t index, uint64_t align, uint64_t height)
{
    PL_FAIL_IF(align > 1 && b->offset % align != 0, PL_ERR_PLAN,
               "buffer %zu lies at offset %llu, which is not a multiple of %llu", index,
               (ull)b->offset, (ull)align);
    if (b->size == 0 || b->lo >= b->hi) return PL_OK;
    PL_FAIL_IF(b->offset > height || b->size > height - b->offset, PL_ERR_PLAN,
               "buffer %zu of %llu bytes at offset %llu reaches beyond the arena of %llu bytes",
               index, (ull)b->size, (ull)b->offset, (ull)height);
    return PL_OK;
}

/* alive: n pointers into bufs, sorted by start. */
static pl_status check_pairs(const pl_pack_buffer *buffers, const pl_pack_buffer **alive, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n && alive[j]->lo < alive[i]->hi; j++) {
            const pl_pack_buffer *a = alive[i], *b = alive[j];
            bool apart = a->offset + a->size <= b->offset || b->offset + b->size <= a->offset;
            PL_FAIL_IF(!apart, PL_ERR_PLAN,
                       "buffers %td (offset %llu, %llu bytes) and %td (offset %llu, %llu bytes) "
                       "overlap and are both alive at time %lld",
                       a - buffers, (ull)a->offset, (ull)a->size, b - buffers, (ull)b->offset,
                       (ull)b->size, (long long)b->lo);
        }
    return PL_OK;
}

pl_status pl_pack_check(const pl_pack_buffer *buffers, size_t n, uint64_t align, uint64_t height)
{
    for (size_t i = 0; i < n; i++) PL_TRY(check_alone(&buffers[i], i, align, height));
    const pl_pack_buffer **alive = pl_sys_alloc(sizeof *alive * n);
    if (!alive) return PL_ERR_MEMORY;
    size_t n_alive = 0;
    for (size_t i = 0; i < n; i++)
        if (buffers[i].size > 0 && buffers[i].lo < buffers[i].hi) alive[n_alive++] = &buffers[i];
    qsort(alive, n_alive, sizeof *alive, by_start);
    pl_status rc = check_pairs(buffers, alive, n_alive);
    pl_sys_free(alive);
    return rc;
}
