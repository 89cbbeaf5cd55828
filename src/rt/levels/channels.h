/* channels.h - threads that move bytes between levels beside the kernels: a queue per channel.
 *
 * Moves of one channel run one after the other, in the order in which they begin. A move is cut
 * into parts, and several parts of a move are on their way at a time, so that memory is copied
 * while the disk works: a channel of the disk has one thread with a ring of io_uring, or else two
 * threads that wait for the disk. Nothing is allocated and no thread is started after
 * pl_channels_open.
 */
#ifndef PL_RT_CHANNELS_H
#define PL_RT_CHANNELS_H

#include "rt/device.h"
#include "rt/levels/ring.h"

enum { PL_PART_BYTES = 1 << 20 }; /* of a move, at most */

typedef struct pl_channels pl_channels;

/* Bytes [at, at + bytes) of a move. buffer, for channels of the disk: room for them, aligned to
 * PL_LEVEL_ALIGN, for this part alone. */
typedef struct pl_part {
    const pl_bound_unit *move;
    uint64_t at;
    size_t bytes;
    void *buffer;
    pl_ring_transfer transfer;
} pl_part;

/* A part runs in three steps: `before` copies what is to be copied first and says what is to be
 * read or written (bytes 0: nothing); that transfer; `after` does the rest. */
typedef struct pl_part_steps {
    void (*before)(void *ctx, pl_part *part);
    pl_status (*after)(void *ctx, pl_part *part);
} pl_part_steps;

/* used: the channels that get threads. file: of the disk's channels. rings: they may use rings. */
pl_status pl_channels_open(const bool used[PL_N_CHANNELS], int file, bool rings,
                           const pl_part_steps *steps, void *ctx, pl_channels **out) PL_MUST_USE;
void pl_channels_free(pl_channels *c); /* NULL is fine; no move is in progress */
/* Returns the host memory of the threads and buffers of those channels: the same with rings and
 * without them. */
uint64_t pl_channels_bytes(const bool used[PL_N_CHANNELS]);

/* Begin, wait, end: see levels.h. */
void pl_channels_begin(pl_channels *c, const pl_bound_unit *move);
pl_status pl_channels_wait(pl_channels *c, pl_channel channel, uint32_t number) PL_MUST_USE;
pl_status pl_channels_end_run(pl_channels *c) PL_MUST_USE;

/* Returns the first failure since the last call, and forgets it: for runs whose end is not
 * reported. */
pl_status pl_channels_failure(pl_channels *c) PL_MUST_USE;

/* For tests: every part of that channel takes up to so many microseconds longer, drawn from
 * seed. */
void pl_channels_delay(pl_channels *c, pl_channel channel, uint32_t most_us, uint64_t seed);

#endif
