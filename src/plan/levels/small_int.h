/* small_int.h - shared by small.c and small_sim.c: a simulated step and its settings. */
#ifndef PL_PLAN_SMALL_INT_H
#define PL_PLAN_SMALL_INT_H

#include "plan/levels/small.h"

enum { PL__SMALL_DROPS = 3 * PL_SMALL_ENTRIES };

typedef struct pl__small_step {
    double begin, end;
    uint8_t what; /* value or unit */
    uint8_t channel;
} pl__small_step;

/* What happened in a simulation. */
typedef struct pl__small_story {
    double ns; /* HUGE_VAL: it came to no end */
    pl__small_step run[PL_SMALL_ENTRIES], move[2 * PL_SMALL_ENTRIES];
    uint32_t n_runs, n_moves;
    double drop_ns[PL__SMALL_DROPS];
    uint64_t dropped[PL__SMALL_DROPS][2]; /* from device and host */
    uint32_t n_drops;
} pl__small_story;

/* What may happen to a value between two uses. */
enum { PL__SMALL_KEEP, PL__SMALL_MOVE, PL__SMALL_AGAIN, PL__SMALL_WAYS };

typedef struct pl__small_settings {
    uint8_t how[PL_SMALL_VALUES];
    int8_t bias[PL_SMALL_VALUES]; /* added to the next use, in units */
    uint8_t ahead, ahead_disk;    /* units */
    int8_t lead[PL_SMALL_VALUES]; /* added to these */
    /* waits for stores instead of dropping a value that is needed sooner */
    bool patient;
    bool recompute_first; /* fetches operands of units that run again before others */
    bool early;           /* runs units again before the unit that needs it is due */
    /* Drops operands that only values need which do not run again; nothing can make these then. */
    bool frugal;
} pl__small_settings;

/* Simulates a step, up to `limit`. useful: per number of units that ran first, see
 * pl__small_useful, with all values. */
void pl__small_simulate(const pl_small_problem *p, const uint64_t *useful,
                        const pl__small_settings *set, double limit, pl__small_story *t);
/* Fills useful[0 .. n_units] with the values that may be needed after so many first runs, if the
 * values of `again`, as bits, may be made again. */
void pl__small_useful(const pl_small_problem *p, uint64_t again, uint64_t *useful);
/* Returns the channel that brings values to the device. */
int pl__small_up(const pl_small_problem *p);

static inline uint64_t pl__small_bit(unsigned v)
{
    return (uint64_t)1 << v;
}

#endif
