/* level_plan.h - moves for an order of units under an arena budget, and the time that they take.
 *
 * Everything here works on a graph whose units run once each, in a given order: the base graph, or
 * an expansion with recompute. Positions are indices in that order.
 */
#ifndef PL_PLAN_LEVEL_PLAN_H
#define PL_PLAN_LEVEL_PLAN_H

#include "plan/core/expand.h"
#include "plan/core/plan.h"

/* The memory below the device that a program may use. Zero: nothing. */
typedef struct pl_level_opts {
    const pl_homes *homes;          /* where slots live; NULL: on the device */
    uint64_t capacity[PL_N_LEVELS]; /* of each level's block, slots included; 0: not available */
    /* With host and disk: bytes of the host's block that values pass through on their way between
     * device and disk. 0: moves join device and disk. */
    uint64_t transit;
    double channel_ns[PL_N_CHANNELS]; /* time of each byte */
    double move_ns;                   /* fixed time of a move */
    bool only_moves;                  /* no recompute: a quick look */
} pl_level_opts;

/* A graph in its order. Everything is borrowed. */
typedef struct pl_level_problem {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan_opts *opts; /* fixed_order is the order */
    uint32_t n;               /* units in the order */
    const double *cost_ns;    /* per unit id */
    const pl_level_opts *levels;
} pl_level_problem;

/* Returns whether a slot may live below the device: its old value is not an output and is not
 * assigned to another slot, and its new value comes from a unit. */
bool pl_level_slot_may_move(const pl_graph *g, const pl_units *units, int slot);

/* Sets *list, in mem, to the order of p with further runs of units that read slots on the device
 * only, where running them takes less time than moving their results away and back. */
pl_status pl_level_repeat_cheap(const pl_level_problem *p, pl_arena *mem, uint32_t **list,
                                uint32_t *n) PL_MUST_USE;
/* Moves units that assign slots behind the last entry that reads the old value, and what reads
 * their results with them. list: n unit ids, as pl_expand takes them; reordered in place. */
pl_status pl_level_delay_updates(const pl_graph *g, const pl_units *units, uint32_t *list,
                                 uint32_t n) PL_MUST_USE;

/* Sets the most bytes alive at once if everything that can leave the arena does, and moves take no
 * time: no schedule of this order needs less. */
pl_status pl_level_bound(const pl_level_problem *p, uint64_t *bytes) PL_MUST_USE;

/* Chooses moves so that about `target` bytes of the arena are alive at most (0: no limit): first
 * the moves that slots below the device need, then values with the longest time between two uses.
 * Moves that are on their way may take `budget` bytes with the rest: a target below the budget
 * leaves room for fetching ahead. The moves are sorted and lie in mem. *peak: about the most bytes
 * alive; the caller measures. */
pl_status pl_level_schedule(const pl_level_problem *p, uint64_t target, uint64_t budget,
                            pl_arena *mem, pl_list_move **moves, uint32_t *n_moves,
                            uint64_t *peak) PL_MUST_USE;

/* The predicted run of a plan with moves. */
typedef struct pl_level_times {
    double total_ns;                  /* until units and moves have ended */
    double wait_ns;                   /* of it: no unit runs */
    double moved_bytes;               /* over all channels */
    double channel_ns[PL_N_CHANNELS]; /* each channel's busy time */
} pl_level_times;
/* cost_ns: per position. begin_ns, per position, and move_ns, two per move (begin and end), are
 * filled unless NULL. */
pl_status pl_level_time(const pl_plan *plan, const double *cost_ns, const pl_level_opts *o,
                        double *begin_ns, double *move_ns, pl_level_times *out) PL_MUST_USE;
/* The same for a packed plan of the graph, whose offsets say what waits for what. */
pl_status pl_level_time_placed(const pl_graph *g, const pl_units *units, const pl_plan *plan,
                               const double *cost_ns, const pl_level_opts *o, double *begin_ns,
                               double *move_ns, pl_level_times *out) PL_MUST_USE;
/* The same for moves of an order that is not planned yet. entry_ns: filled, per entry and at the
 * end, with the time at which the entry begins unless NULL. */
pl_status pl_level_estimate(const pl_level_problem *p, const pl_list_move *moves, uint32_t n_moves,
                            double *entry_ns, double *move_ns, pl_level_times *out) PL_MUST_USE;

#endif
