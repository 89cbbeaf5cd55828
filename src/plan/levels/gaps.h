/* gaps.h - shared by gaps.c and schedule.c: uses of buffers, and what leaves the arena when. */
#ifndef PL_PLAN_GAPS_H
#define PL_PLAN_GAPS_H

#include "plan/core/plan_int.h"
#include "plan/levels/level_plan.h"

/* One stay away from the arena: a buffer is not used at positions (after, before). after = -1: from
 * the start on (a slot that lives below the device). */
typedef struct pl_gap {
    uint32_t buffer;
    uint32_t val;          /* value that is moved */
    int32_t after, before; /* positions of the uses at both ends */
    uint64_t bytes;
    uint8_t level; /* where it stays */
    bool stores;   /* a move takes it there after `after` */
    bool taken;    /* chosen */
} pl_gap;

/* A new value of a slot that lives below the device: it is stored once position `after` has run. */
typedef struct pl_slot_store {
    uint32_t val;
    int32_t after;
    uint64_t bytes;
    uint8_t level;
} pl_slot_store;

typedef struct pl_gaps {
    const pl_level_problem *p;
    pl_problem q;
    pl_life life;
    uint32_t *pos;    /* per unit of q: its position */
    double *begin_ns; /* per position, and at the end: without waiting */
    uint64_t *alive;  /* per position: bytes of the arena, scratch included */
    pl_gap *gap;
    uint32_t n_gaps;
    pl_slot_store *store;
    uint32_t n_stores;
    uint64_t used[PL_N_LEVELS]; /* bytes of each level's block */
} pl_gaps;

/* Lists gaps and bytes alive, with everything that must be away taken and nothing else. */
pl_status pl_gaps_list(const pl_level_problem *p, pl_arena *mem, pl_gaps *out) PL_MUST_USE;
/* Takes gaps until at most `budget` bytes are alive, or no gap helps. */
pl_status pl_gaps_take(pl_gaps *x, uint64_t budget) PL_MUST_USE;
/* Takes every gap, even beyond the room of its level. */
void pl_gaps_take_all(pl_gaps *x);
/* Returns the time of moving bytes between a level and the device. */
double pl_gap_fetch_ns(const pl_level_opts *o, uint8_t level, uint64_t bytes);
double pl_gap_store_ns(const pl_level_opts *o, uint8_t level, uint64_t bytes);

#endif
