/* channels.h - threads that move bytes between levels beside the kernels: a queue per channel.
 *
 * Moves of one channel run one after the other, in the order in which they begin. A move is cut
 * into parts, and the threads of its channel share the parts, so that one thread copies memory
 * while another waits for the disk. Nothing is allocated and no thread is started after
 * pl_channels_open.
 */
#ifndef PL_RT_CHANNELS_H
#define PL_RT_CHANNELS_H

#include "rt/device.h"

enum { PL_PART_BYTES = 1 << 20 }; /* of a move, and of each thread's buffer */

typedef struct pl_channels pl_channels;

/* Copies bytes [at, at + bytes) of a move. buffer: PL_PART_BYTES, aligned to PL_LEVEL_ALIGN, for
 * this thread alone. */
typedef pl_status (*pl_part_copy)(void *ctx, const pl_bound_unit *move, uint64_t at, size_t bytes,
                                  void *buffer);

/* used: the channels that get threads. */
pl_status pl_channels_open(const bool used[PL_N_CHANNELS], pl_part_copy copy, void *ctx,
                           pl_channels **out) PL_MUST_USE;
void pl_channels_free(pl_channels *c); /* NULL is fine; no move is in progress */
/* Returns the host memory of the threads and buffers of those channels. */
uint64_t pl_channels_bytes(const bool used[PL_N_CHANNELS]);

/* Begin, wait, end: see levels.h. */
void pl_channels_begin(pl_channels *c, const pl_bound_unit *move);
pl_status pl_channels_wait(pl_channels *c, pl_channel channel, uint32_t number) PL_MUST_USE;
pl_status pl_channels_end_run(pl_channels *c) PL_MUST_USE;

/* Returns the first failure since the last call, and forgets it: for runs whose end nobody
 * tells. */
pl_status pl_channels_failure(pl_channels *c) PL_MUST_USE;

/* For tests: every part of that channel takes up to so many microseconds longer, drawn from
 * seed. */
void pl_channels_delay(pl_channels *c, pl_channel channel, uint32_t most_us, uint64_t seed);

#endif
