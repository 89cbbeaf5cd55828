/* loader.h - prefetch: worker threads that fill a fixed ring of batch buffers ahead of the user.
 *
 * A batch is a position in an endless stream; its contents are a pure function of that position, so
 * the number of workers changes when a batch is ready, never its contents. Position p lives in
 * buffer p modulo the ring's depth. Workers take positions in order and stop when the ring is full;
 * the user takes them in order and returns each.
 *
 *      position   7 8 9 | 10 11 12 13
 *                 used    ^taken by the user next; 11 ready, 12 and 13 being filled
 *
 * pl_loader_new allocates all memory. A fill that fails keeps its status and message, which the
 * user gets when it takes that position: a bad batch far ahead does not fail the current step.
 */
#ifndef PL_DATA_LOADER_H
#define PL_DATA_LOADER_H

#include "base/err.h"

typedef struct pl_loader pl_loader;

/* Writes the batch at position into buffer. worker is in [0, workers): for scratch memory. */
typedef pl_status (*pl_loader_fill_fn)(void *ctx, int64_t position, void *buffer, int worker);

/* Called once, before a worker starts, with the ring: buffers begin at a page, stride apart. */
typedef void (*pl_loader_ring_fn)(void *ctx, void *buffers, size_t stride, int depth);

typedef struct pl_loader_opts {
    int workers; /* at least 1 */
    int depth;   /* batches in the ring; at least 1 */
    size_t buffer_bytes;
    int64_t first; /* position to begin with */
    pl_loader_fill_fn fill;
    pl_loader_ring_fn ring; /* may be NULL */
    void *ctx;
} pl_loader_opts;

pl_status pl_loader_new(const pl_loader_opts *o, pl_loader **out) PL_MUST_USE;
void pl_loader_free(pl_loader *l); /* waits for fills in progress */
/* Returns the memory that pl_loader_new takes, including the touched part of the workers'
 * stacks. */
uint64_t pl_loader_bytes(int workers, int depth, size_t buffer_bytes);

/* Waits for the batch at position; *buffer is valid until pl_loader_done. Any position is allowed:
 * a position that is not the next restarts the ring from there. */
pl_status pl_loader_take(pl_loader *l, int64_t position, void **buffer) PL_MUST_USE;
/* The same without waiting: false when the batch is not ready. */
bool pl_loader_ready(pl_loader *l, int64_t position);
/* Returns the taken buffer to the workers. */
void pl_loader_done(pl_loader *l);

#endif
