/* plimsoll_levels.h - memory below the device: tensors that a plan keeps on the host or on disk,
 * and their moves.
 *
 * With the keys host_memory and disk, values and slots that do not fit on the device live in host
 * memory or in a file; moves bring them to the device and back while kernels run.
 */
#ifndef PLIMSOLL_LEVELS_H
#define PLIMSOLL_LEVELS_H

#include "plimsoll.h"
#include "plimsoll_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Figures of one run of a program. */
typedef struct pl_level_info {
    uint64_t host_bytes, disk_bytes; /* blocks below the device; programs of a session share them */
    double moved_bytes;              /* over all channels */
    double wait_ms;                  /* predicted: no kernel runs, because a move has not ended */
    double hidden_ms;                /* predicted: time of moves while kernels run */
    int32_t moves;
} pl_level_info;
PL_API pl_level_info pl_program_levels(const pl_program *p);

enum pl_move_channel { PL_MOVE_DOWN, PL_MOVE_UP, PL_MOVE_WRITE, PL_MOVE_READ };
/* A move: it begins at a position of the plan and must have ended before position `end`. */
typedef struct pl_plan_move {
    const char *label; /* "move conv.weight" */
    enum pl_move_channel channel;
    int32_t begin, end;
    uint64_t bytes;
    double begin_ms, end_ms; /* predicted */
} pl_plan_move;
/* Fills at most cap moves and returns how many there are. */
PL_API int pl_program_moves(const pl_program *p, pl_plan_move *out, int cap);

/* Of a run: the largest block over its programs, and a mean step. */
typedef struct pl_run_levels {
    uint64_t host_bytes, host_budget_bytes, disk_bytes, disk_budget_bytes;
    uint64_t host_overhead_bytes; /* of the host budget: memory of the process besides the block */
    uint64_t host_state_bytes, disk_state_bytes; /* of these: slots that live there */
    double moved_bytes_per_step, wait_ms, hidden_ms;
    bool host_updates;     /* weights are updated on the host, while the device waits */
    double host_update_ms; /* of it: predicted time in a step */
} pl_run_levels;
PL_API pl_run_levels pl_run_levels_get(const pl_run *r);
/* Returns whether a slot of the run's store lives below the device. */
PL_API bool pl_run_slot_is_below(const pl_run *r, int slot);

/* Measures the link between a device's memory and the host's, or, where folder is not NULL, the
 * disk of that folder, in bytes per second; plans on this machine use the rates from now on. */
PL_API pl_status pl_calibrate_link(const char *device, const char *folder, double *up,
                                   double *down) PL_MUST_USE;

/* Returns the reason why the disk level uses threads instead of io_uring; NULL: it uses
 * io_uring. */
PL_API const char *pl_io_uring_missing(void);

#ifdef __cplusplus
}
#endif

#endif
