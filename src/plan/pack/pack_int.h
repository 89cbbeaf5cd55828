/* pack_int.h - shared by the files of the offset planner: one irreducible sub-problem (a leaf), the
 * remaining effort, and the solvers that improve a leaf.
 */
#ifndef PL_PLAN_PACK_INT_H
#define PL_PLAN_PACK_INT_H

#include "base/rng.h"
#include "plan/pack/pack.h"

/* Remaining effort. One unit is about one nanosecond of work, counted, never measured. */
typedef struct pl__pack_effort {
    uint64_t left;
    uint64_t deadline_ns; /* 0: none */
    const volatile int *stop;
} pl__pack_effort;

/* Spends effort; false when it is used up or the deadline has passed. */
bool pl__pack_spend(pl__pack_effort *e, uint64_t units);

/* A sub-problem in compressed time. Section s is a moment at which the set of live buffers is
 * largest among its neighbours; buffers share a moment exactly when they share a section. Buffers
 * are sorted by lo. Sizes and offsets are in units of the greatest common divisor. */
typedef struct pl__pack_leaf {
    uint32_t n, n_sections;
    uint32_t *lo, *hi; /* sections [lo,hi) of each buffer */
    int64_t *size;
    double *width;    /* the length of its life in the problem's own time */
    uint32_t *first;  /* of each section, and one past: the first buffer with lo >= it */
    int64_t *load;    /* of each section: the sum of the sizes alive in it */
    int64_t *peak;    /* of each buffer: the largest load among its sections */
    int64_t bound;    /* the largest load */
    int64_t goal;     /* stop at or below this height; never below bound */
    int64_t *off;     /* the best placement found */
    int64_t height;   /* its height; INT64_MAX before the first */
    int64_t proven;   /* no placement is lower */
    uint32_t sky_key; /* which key gives the lowest skyline, index + 1; 0: not known */
} pl__pack_leaf;

/* A buffer and its sort keys: compared one after the other, larger first, then the lower buffer. */
typedef struct pl__pack_keyed {
    double key[3];
    uint32_t buffer;
} pl__pack_keyed;
int pl__pack_by_keys(const void *a, const void *b); /* for qsort */

enum { PL__PACK_FIT_MAX = 16384 }; /* buffers: beyond, fits into gaps cost too much */

/* Random numbers, a function of the seed. */
typedef struct pl__pack_draws {
    uint64_t seed, n;
    uint32_t w[4];
} pl__pack_draws;

static inline uint32_t pl__pack_draw(pl__pack_draws *d, uint32_t below)
{
    if (d->n % 4 == 0) pl_rng_block(d->seed, 0, 0, d->n / 4, d->w);
    return (uint32_t)((uint64_t)d->w[d->n++ % 4] * below >> 32);
}

/* Each of these updates leaf->off and leaf->height to the best so far and stops at leaf->goal.
 * Running out of effort is not a failure; running out of memory is. */

/* Skylines under all keys and largest-first fits; takes no effort. */
pl_status pl__pack_portfolio(pl__pack_leaf *leaf, uint32_t off) PL_MUST_USE;
/* Places the buffers whose offset is negative into the gaps between the others, and sets the
 * height, which may be above what it was. Quadratic: for leaves up to PL__PACK_FIT_MAX buffers. */
pl_status pl__pack_complete(pl__pack_leaf *leaf, pl__pack_effort *e) PL_MUST_USE;
/* Local search over the key of the best skyline. */
pl_status pl__pack_perturb(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *e) PL_MUST_USE;
/* Local search within a height below the best, by ejecting buffers. Does nothing on leaves that are
 * too large for it. */
pl_status pl__pack_eject(pl__pack_leaf *leaf, uint64_t seed, pl__pack_effort *e) PL_MUST_USE;
/* Depth-first search: at the goal, or by bisection between the goal and the best height. Does
 * nothing on leaves that are too large for its tables. */
pl_status pl__pack_exact(pl__pack_leaf *leaf, bool at_goal, pl__pack_effort *e) PL_MUST_USE;

#endif
