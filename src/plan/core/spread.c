/* spread.c - offsets that leave time between two buffers in one place.
 *
 * A device that runs units beside each other must wait where a unit writes into memory that an
 * earlier unit still reads. A tight packing reuses memory as soon as it is free, so nearly every
 * unit waits for the previous unit. Away from the peak there is room: the offset search is repeated
 * with lifetimes that end a few positions later, as far as the bytes alive stay below the arena's
 * size. The arena never grows, and the order of units does not change.
 *
 * Cost: at most three runs of the packing portfolio, and O(buffers * MORE).
 */
#include "plan/core/plan_int.h"
#include "plan/pack/pack.h"

/* Lengthens lifetimes by up to `more` positions where the bytes alive stay within `limit`. */
static void lengthen(const pl_plan *p, pl_pack_buffer *b, int64_t more, uint64_t limit,
                     uint64_t *alive)
{
    int64_t n = (int64_t)p->n_positions;
    for (int64_t t = 0; t <= n; t++) alive[t] = 0;
    for (uint32_t i = 0; i < p->n_buffers; i++) { /* differences first: they wrap and sum up */
        alive[b[i].lo] += b[i].size;
        if (b[i].hi <= n) alive[b[i].hi] -= b[i].size;
    }
    for (int64_t t = 1; t <= n; t++) alive[t] += alive[t - 1];
    for (uint32_t i = 0; i < p->n_buffers; i++) {
        int64_t end = b[i].hi + more < n ? b[i].hi + more : n;
        while (b[i].hi < end && alive[b[i].hi] + b[i].size <= limit) alive[b[i].hi++] += b[i].size;
    }
}

pl_status pl_plan_spread(pl_plan *p, uint64_t seed, pl_arena *scratch)
{
    static const int64_t more[] = {12, 6, 3};
    enum {
        SPARE = 16
    }; /* a share of the arena that longer lifetimes leave free: packings have gaps */
    uint64_t height = UINT64_MAX;
    uint64_t *alive = pl_arena_new(scratch, uint64_t, p->n_positions + 2);
    pl_pack_buffer *b = pl_arena_new(scratch, pl_pack_buffer, p->n_buffers + 1);
    if (!alive || !b) return PL_ERR_MEMORY;
    for (int r = 0; r < 3 && height > p->arena_bytes; r++) {
        pl_pack_opts o = PL_PACK_OPTS_INIT;
        o.off = PL_PACK_NO_EXACT;
        o.work = 0;
        o.seed = seed;
        o.target = p->arena_bytes;
        for (uint32_t i = 0; i < p->n_buffers; i++) {
            const pl_placed_buffer *f = &p->buffers[i];
            b[i] = (pl_pack_buffer){f->first, f->last, f->bytes, 0};
        }
        lengthen(p, b, more[r], p->arena_bytes - p->arena_bytes / SPARE, alive);
        PL_TRY(pl_pack(b, p->n_buffers, &o, &height));
    }
    for (uint32_t i = 0; i < p->n_buffers && height <= p->arena_bytes; i++)
        p->buffers[i].offset = b[i].offset;
    return PL_OK;
}
