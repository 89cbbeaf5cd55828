/* ring.h - reads and writes of the disk level's file: one at a time by pread and pwrite, or several
 * at a time through a ring of io_uring.
 *
 * One thread uses a ring. A ring allocates nothing after pl_ring_open, and no transfer is in
 * progress when it is freed, except where the ring is broken (pl_ring_end). liburing is opened at
 * run time. There are no rings on a machine without liburing, and on a system that does not allow
 * io_uring (containers often do not).
 */
#ifndef PL_RT_RING_H
#define PL_RT_RING_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PL_RING_DEPTH = 4 }; /* transfers in progress, at most */

typedef struct pl_ring_transfer {
    void *memory;
    uint64_t at; /* in the file */
    size_t bytes;
    bool writes;
    size_t done;     /* bytes that have been transferred */
    const char *why; /* why the transfer failed; NULL: it did not fail */
} pl_ring_transfer;

/* Runs a transfer from its byte `done` to its end. */
void pl_ring_transfer_run(int file, pl_ring_transfer *t);

typedef struct pl_ring pl_ring;
/* Returns a ring for that file; NULL: this machine has none. */
pl_ring *pl_ring_open(int file);
void pl_ring_free(pl_ring *r); /* NULL is fine */
/* Begins a transfer. *t is borrowed until pl_ring_end returns it. */
void pl_ring_begin(pl_ring *r, pl_ring_transfer *t);
/* Waits until one of the transfers in progress has ended, and returns it. When the system no longer
 * answers, the ring is broken: every transfer fails at once. */
pl_ring_transfer *pl_ring_end(pl_ring *r);
/* Returns why this machine has no rings; NULL: it has rings. The environment variable
 * PLIMSOLL_IO_URING=0 switches them off. */
const char *pl_ring_missing(void);

#endif
