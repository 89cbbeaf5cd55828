/* small.h - a joint search for what to keep, recompute and move in a small program.
 *
 * The problem is plain data: units in the order of their first runs, values as bits. The result is
 * a list of units with moves, as pl_list_move has them. */
#ifndef PL_PLAN_SMALL_H
#define PL_PLAN_SMALL_H

#include "plan/levels/level_plan.h"

enum { PL_SMALL_UNITS = 40, PL_SMALL_VALUES = 64, PL_SMALL_NONE = 255, PL_SMALL_ENTRIES = 160 };

typedef struct pl_small_problem {
    uint32_t n_units, n_values;
    double cost_ns[PL_SMALL_UNITS];  /* > 0 */
    uint64_t work[PL_SMALL_UNITS];   /* bytes */
    uint64_t reads[PL_SMALL_UNITS];  /* values as bits */
    uint64_t writes[PL_SMALL_UNITS]; /* values as bits */
    bool once[PL_SMALL_UNITS];       /* must not run a second time */
    uint64_t bytes[PL_SMALL_VALUES];
    uint8_t made_by[PL_SMALL_VALUES]; /* unit; PL_SMALL_NONE */
    uint64_t home[PL_N_LEVELS];       /* values as bits that are there at the start; below the
                                       * device they stay there */
    uint64_t stays;                   /* values as bits that never leave the device */
    uint64_t small;                   /* values as bits that are not worth a move */
    uint64_t wanted;                  /* values as bits: on the device at the end */
    uint64_t arena;                   /* bytes */
    uint64_t room[PL_N_LEVELS];       /* bytes of the levels below, without slots */
    const pl_level_opts *levels;
} pl_small_problem;

typedef struct pl_small_move {
    uint32_t at, end; /* entries, as in pl_list_move */
    uint8_t value, from, to;
    bool late;
} pl_small_move;

typedef struct pl_small_plan {
    double ns;
    uint32_t n, n_moves;
    uint8_t unit[PL_SMALL_ENTRIES];
    pl_small_move move[2 * PL_SMALL_ENTRIES];
} pl_small_plan;

/* Finds up to `most` schedules, the fastest first; *n is 0 when none was found. */
pl_status pl_small_search(const pl_small_problem *p, pl_small_plan *out, uint32_t most,
                          uint32_t *n) PL_MUST_USE;

#endif
