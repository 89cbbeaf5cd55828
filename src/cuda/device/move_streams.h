/* move_streams.h - moves between levels while a list of bound units is enqueued. */
#ifndef PL_CUDA_MOVE_STREAMS_H
#define PL_CUDA_MOVE_STREAMS_H

#include "cuda/device/device_int.h"

/* The moves that have begun since the list's first unit. Zero: nothing. */
typedef struct pl_cuda_moves {
    uint32_t before[PL_N_CHANNELS]; /* number of the move before the list's first */
    uint32_t begun[PL_N_CHANNELS];  /* number of the last move that has begun; 0: none */
    /* moves that the main stream, and each channel's stream, has waited for */
    uint32_t seen[PL_N_CHANNELS], seen_by[PL_N_CHANNELS][PL_N_CHANNELS];
} pl_cuda_moves;

/* The main stream waits for the moves that the unit needs. */
pl_status pl_cuda_moves_wait(pl_cuda_moves *m, const pl_bound_unit *l) PL_MUST_USE;
/* Begins a move on its channel's stream. */
pl_status pl_cuda_moves_begin(pl_cuda_moves *m, const pl_bound_unit *l) PL_MUST_USE;
/* The main stream waits for all of them. */
pl_status pl_cuda_moves_end(pl_cuda_moves *m) PL_MUST_USE;

#endif
