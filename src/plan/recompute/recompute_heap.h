/* recompute_heap.h - buffers ordered by a key, the smallest first; ties go to the lower buffer.
 *
 * A binary heap that knows the index of each buffer, so that a buffer can be moved or removed
 * (base/heap.h cannot). The top does not depend on the order of insertion.
 */
#ifndef PL_PLAN_RECOMPUTE_HEAP_H
#define PL_PLAN_RECOMPUTE_HEAP_H

#include "base/arena.h"

typedef struct pl__recompute_heap {
    uint32_t *item, n; /* buffers */
    uint32_t *at;      /* of each buffer: its place, or PL_RECOMPUTE_NONE */
    float *key;        /* of each buffer */
} pl__recompute_heap;

pl_status pl__recompute_heap_init(pl__recompute_heap *h, pl_arena *a, uint32_t n_items) PL_MUST_USE;
void pl__recompute_heap_clear(pl__recompute_heap *h);
/* Inserts r, or moves it to the place of its new key. */
void pl__recompute_heap_set(pl__recompute_heap *h, uint32_t r, float key);
/* Removes r, if present. */
void pl__recompute_heap_remove(pl__recompute_heap *h, uint32_t r);

#endif
