/* recompute.h - which units to run a second time, so that a program fits a number of bytes.
 *
 * The problem is plain data, without graphs: units in the order in which each first runs, with a
 * cost, and the buffers that they read and write. A plan is a list of units; an index in the list
 * is a position. Units first appear in the given order; in between, units appear a second time
 * where a dropped buffer is read again. Each run of a unit makes a new copy of its buffers; a copy
 * lives from its position to the last position that reads it, never longer. So the peak is a
 * function of the list alone: simulated, never estimated.
 *
 *   - All outputs of a unit are recomputed together; outputs without a reader die at once. A unit
 *     that runs while an output still lives makes a new copy: the old one ends at its last read
 *     before.
 *   - A view has no bytes and lives in its base. It belongs to the copy of the base that it was
 *     taken from: when the base is dropped, the view is recomputed as well, if it has a reader.
 *   - A buffer that no unit writes exists from the start, and is dropped after its last read.
 *     Pinned buffers are never dropped; when their unit runs again for its other outputs, it writes
 *     the same bytes again, so their views stay valid.
 *   - A random unit that runs a second time must draw the same numbers; otherwise mark it ONCE.
 *
 * A result is a function of the problem, the options and the seed: effort is counted in steps of
 * work, not in seconds; the time limit is a safety net, and only a run that reaches it depends on
 * the machine. recompute_check.h replays a plan and shares no code with the planner.
 *
 * Example, used in all files of this room. Units A B C D E; A makes a, B makes b from a, C reads b,
 * D makes d from b, E reads a and d. Buffers have 4 bytes, units cost 1.
 *
 *     list           bytes alive at each position     peak   cost
 *     A B C D E      4 8 8 12 8                       12     5     keep-all
 *     A B C D A E    4 8 4 8 8 8                       8     6     a is dropped after B
 */
#ifndef PL_PLAN_RECOMPUTE_H
#define PL_PLAN_RECOMPUTE_H

#include "base/err.h"

#define PL_RECOMPUTE_NONE UINT32_MAX

enum pl_recompute_unit_flags {
    PL_RECOMPUTE_ONCE = 1 << 0, /* must not run a second time */
};
enum pl_recompute_buffer_flags {
    PL_RECOMPUTE_PINNED = 1 << 0, /* never dropped; there from the start unless a unit writes it */
    PL_RECOMPUTE_END = 1 << 1,    /* must be there after the last position */
};

/* Everything is borrowed. Ranges are offsets: the inputs of unit i are in[in_at[i] .. in_at[i+1]).
 * A unit reads only buffers that an earlier unit writes or that no unit writes; a buffer has one
 * writer. */
typedef struct pl_recompute_problem {
    uint32_t n_units, n_buffers;
    const double *cost;         /* of each unit, finite and >= 0: nanoseconds */
    const uint64_t *work_bytes; /* of each unit: alive during it only; NULL: none */
    const uint8_t *unit_flags;  /* NULL: none */
    const uint32_t *in_at, *in; /* n_units + 1 offsets; buffers */
    const uint32_t *out_at, *out;
    const uint64_t *bytes;       /* of each buffer; a view's are ignored */
    const uint8_t *buffer_flags; /* NULL: none */
    const uint32_t *base;        /* of each buffer: what it is a view of, itself an input of its
                               * writer; PL_RECOMPUTE_NONE for all others. NULL: no views */
} pl_recompute_problem;

/* The plan as plain data, one block, freed with pl_recompute_plan_free. */
typedef struct pl_recompute_plan {
    uint32_t n;                     /* positions */
    const uint32_t *unit;           /* of each position */
    const uint32_t *drop_at, *drop; /* n + 1 offsets; buffers (not views) that end with the
                                     * position */
    uint64_t peak_bytes;            /* most bytes alive in one position */
    double cost_ns;                 /* sum over the positions */
    double base_cost_ns;            /* cost of running every unit once */
    const char *strategy;           /* which seed the plan grew from; static text */
} pl_recompute_plan;
void pl_recompute_plan_free(pl_recompute_plan *p);

/* Techniques, each of which can be switched off to measure its effect. */
enum pl_recompute_off {
    PL_RECOMPUTE_NO_CHAIN = 1 << 0,   /* dynamic program over cut points */
    PL_RECOMPUTE_NO_GRID = 1 << 1,    /* more than one setting of the eviction score */
    PL_RECOMPUTE_NO_FILL = 1 << 2,    /* undoing recomputation where room is left */
    PL_RECOMPUTE_NO_SEARCH = 1 << 3,  /* perturbed weights */
    PL_RECOMPUTE_NO_EXACT = 1 << 4,   /* best-first search on small problems */
    PL_RECOMPUTE_NO_MINIMUM = 1 << 5, /* reporting the smallest budget when nothing fits */
    PL_RECOMPUTE_NO_SIM = 1 << 6,     /* the simulator, and with it all searches */
    PL_RECOMPUTE_NO_CHOICE = 1 << 7,  /* continuing after the first plan that fits */
    PL_RECOMPUTE_NO_WHOLE = 1 << 8,   /* the whole grid: the settings that win most often run */
};

/* Results of the settings of the eviction score at the last few budgets, for calls with the same
 * problem that differ in their effort only. */
typedef struct pl_recompute_memo pl_recompute_memo;
pl_status pl_recompute_memo_new(pl_recompute_memo **out) PL_MUST_USE;
void pl_recompute_memo_free(pl_recompute_memo *memo); /* NULL is fine */

typedef struct pl_recompute_opts {
    uint64_t budget_bytes; /* the peak must not exceed it */
    uint64_t effort;       /* work of the search after the first plans, about a nanosecond a
                            * unit; 0: none. The first plans are not limited by it */
    double time_limit_s;   /* safety net over everything; 0: none */
    uint64_t seed;
    uint32_t off;      /* enum pl_recompute_off */
    uint32_t settings; /* of the eviction score to run at most; 0: all that `off` allows */
    /* Plans of the same problem that the caller has, borrowed: plans that fit compete, so that a
     * plan made for a smaller budget is never lost. */
    const pl_recompute_plan *const *pool;
    uint32_t n_pool;
    /* the search ends soon after *stop becomes nonzero; its result must then not be used */
    const volatile int *stop;
    pl_recompute_memo *memo; /* borrowed; changes no result; NULL: none */
} pl_recompute_opts;

/* A search that keeps the whole within 0.2 s at 500 units and 2 s at 3,000 on one core. */
#define PL_RECOMPUTE_EFFORT_AUTO UINT64_MAX

#define PL_RECOMPUTE_OPTS_INIT                                                                     \
 {                                                                                                 \
  .budget_bytes = UINT64_MAX, .effort = PL_RECOMPUTE_EFFORT_AUTO, .time_limit_s = 0, .seed = 1,    \
  .off = 0, .pool = NULL, .n_pool = 0, .stop = NULL, .memo = NULL                                  \
 }

/* Finds a plan within the budget, as cheap as possible. PL_ERR_FIT when there is none: the message
 * names the unit and the bytes when the budget is below the lower bound (a proof), and otherwise
 * the smallest budget with a plan. opts may be NULL. */
pl_status pl_recompute_solve(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                             pl_recompute_plan **out) PL_MUST_USE;
/* Searches at two budgets that differ a little may end in plans that differ by chance. A caller
 * that needs plans for many budgets searches only at the rungs of a ladder, which are the same for
 * all budgets. Returns the highest rung that is not above the budget, 0 below the bound. `scale` is
 * the peak of the keep-all plan; there are `rungs` rungs up to it, and up to four times as many
 * near the bound, where cost falls steeply. */
uint64_t pl_recompute_rung(uint64_t budget, uint64_t bound, uint64_t scale, uint32_t rungs);

/* Sets a lower bound of the peak of all plans: the largest need of one unit, pinned + inputs +
 * outputs + workspace, or what must exist at the end (then *unit is PL_RECOMPUTE_NONE). */
pl_status pl_recompute_bound(const pl_recompute_problem *p, uint64_t *bytes,
                             uint32_t *unit) PL_MUST_USE;
/* Sets the peak of running every unit once. */
pl_status pl_recompute_keep_all(const pl_recompute_problem *p, uint64_t *bytes) PL_MUST_USE;
/* Finds the smallest budget with a plan; pl_recompute_solve finds a plan for it, given the same
 * options. */
pl_status pl_recompute_minimum(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                               uint64_t *bytes) PL_MUST_USE;
/* The descent to the minimum, plan by plan: each call sets a smaller budget that has a plan, and
 * the plan, which the caller owns; *plan is NULL at the end, and *bytes of the call before is the
 * minimum. The first plan is the keep-all plan. from: 0, or the minimum of a first descent. On
 * large problems a second descent from there finds smaller budgets, and takes longer. */
typedef struct pl_recompute_descent pl_recompute_descent;
pl_status pl_recompute_descent_new(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                                   uint64_t from, pl_recompute_descent **out) PL_MUST_USE;
pl_status pl_recompute_descend(pl_recompute_descent *d, uint64_t *bytes,
                               pl_recompute_plan **plan) PL_MUST_USE;
void pl_recompute_descent_free(pl_recompute_descent *d); /* NULL is fine */

/* The ladder: plans for rising budgets, from the minimum to the keep-all plan; see
 * recompute_ladder.c. Its plans depend on the problem, the effort, the seed and `off` only, and the
 * cost never rises with the budget.
 *
 * pl_recompute_ladder_new finds the minimum. opts->budget_bytes and opts->pool are ignored;
 * opts->effort is the work of the searches at one rung. Everything is borrowed. */
typedef struct pl_recompute_ladder pl_recompute_ladder;
pl_status pl_recompute_ladder_new(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                                  pl_recompute_ladder **out) PL_MUST_USE;
/* Returns the plan for a budget, which the caller owns. Budgets must not fall from call to call.
 * PL_ERR_FIT below the minimum: the message names the minimum, or proves by a unit that no plan
 * exists. */
pl_status pl_recompute_ladder_plan(pl_recompute_ladder *l, uint64_t budget,
                                   pl_recompute_plan **out) PL_MUST_USE;
void pl_recompute_ladder_free(pl_recompute_ladder *l); /* NULL is fine */

#endif
