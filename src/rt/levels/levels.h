/* levels.h - the memory below the device of one session: a pinned host block, a file, and the
 * threads that move bytes beside the kernels.
 *
 *     open ... { begin, wait, begin, wait, ..., end_run } for every run ... free
 *
 * Everything a run needs exists when pl_levels_open returns: runs allocate nothing, open nothing
 * and start no thread (M9 of docs/MEMORY.md). The file has no name from the first moment on, so a
 * killed process leaves nothing behind.
 */
#ifndef PL_RT_LEVELS_H
#define PL_RT_LEVELS_H

#include "rt/device.h"

typedef struct pl_levels pl_levels;
struct pl_bound_program;
struct pl_channels;

/* bytes: the size of each level's block; bytes[PL_LEVEL_DEVICE] does not count. disk_dir: folder of
 * the file; needed where bytes[PL_LEVEL_DISK] is not 0. A machine without the memory, or a file
 * system without the room, is an error that names both numbers. */
pl_status pl_levels_open(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS],
                         const char *disk_dir, pl_levels **out) PL_MUST_USE;
void pl_levels_free(pl_levels *l); /* NULL is fine */
/* Returns the host block; NULL: there is none. */
void *pl_levels_host(const pl_levels *l);
/* Returns the host memory besides the blocks: buffers and threads. */
uint64_t pl_levels_overhead(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS]);
struct pl_channels *pl_levels_channels(const pl_levels *l); /* for tests */

/* Copy bytes [at, at + bytes) of a level's block, between runs. */
pl_status pl_levels_read(pl_levels *l, int level, uint64_t at, void *to, size_t bytes) PL_MUST_USE;
pl_status pl_levels_write(pl_levels *l, int level, uint64_t at, const void *from,
                          size_t bytes) PL_MUST_USE;

/* Begins a move; its channel's threads run it after the moves that its wait[] names. The bound unit
 * must outlive the run. */
void pl_levels_begin(pl_levels *l, const pl_bound_unit *move);
/* Waits until the first `number` moves of a channel have ended; a move that failed is the error. */
pl_status pl_levels_wait(pl_levels *l, pl_channel channel, uint32_t number) PL_MUST_USE;
/* Waits for everything that has begun, and ends the run: moves are numbered from 1 again. */
pl_status pl_levels_end_run(pl_levels *l) PL_MUST_USE;

PL_SHARED_BEGIN
/* Runs a move between host and disk, and returns when it has ended: for a device that calls the
 * host at the right moment. A failure is kept for pl_levels_failure. */
void pl_levels_move(const pl_bound_unit *move);
PL_SHARED_END
/* Returns the first failure of such moves since the last call, and forgets it. */
pl_status pl_levels_failure(pl_levels *l) PL_MUST_USE;

/* bind_moves.c: binds the moves of a program and records what each unit and move waits for. */
void pl_levels_bind(const pl_session *s, const pl_program *p, struct pl_bound_program *b);

#endif
