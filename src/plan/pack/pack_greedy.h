/* pack_greedy.h - the skyline and its orders: shared by the portfolio and the local search.
 */
#ifndef PL_PLAN_PACK_GREEDY_H
#define PL_PLAN_PACK_GREEDY_H

#include "base/arena.h"
#include "plan/pack/pack_int.h"

/* pack_sky.c. Floors of sections: range maximum under "raise the range [l,r) to v". */
typedef struct pl__pack_floors {
    uint32_t leaves; /* a power of two */
    int64_t *max;    /* of the node's range, its own raises included */
    int64_t *raise;  /* raises of the whole range of the node */
} pl__pack_floors;

/* A placed buffer whose top the level has not reached. */
typedef struct pl__pack_event {
    int64_t top;
    uint32_t buffer;
} pl__pack_event;

/* Minima over the unplaced buffers below a node. */
typedef struct pl__pack_least {
    uint32_t hi, rank;
} pl__pack_least;

typedef struct pl__pack_sky {
    const pl__pack_leaf *leaf;
    pl__pack_floors floors;
    pl__pack_event *heap; /* the lowest top first */
    uint32_t n_heap;
    pl__pack_least *least;  /* tree over the unplaced buffers */
    uint32_t leaves;        /* its number of leaves, a power of two */
    uint32_t *order, *rank; /* rank -> buffer and back */
    uint32_t *placed;       /* buffers in the order of placement */
    uint32_t n_placed;
    int64_t *off;
    int64_t height;
    uint64_t work; /* of the runs since it was last cleared */
} pl__pack_sky;

pl_status pl__pack_sky_init(pl__pack_sky *k, const pl__pack_leaf *leaf, pl_arena *a) PL_MUST_USE;
/* Places all buffers by k->order; returns the height, or INT64_MAX as soon as it exceeds cap. */
int64_t pl__pack_sky_run(pl__pack_sky *k, int64_t cap);

/* pack_greedy.c. Orders: up to three keys each. */
enum { PL__PACK_SKY_KEYS = 14 };
extern const char *const pl__pack_sky_keys[PL__PACK_SKY_KEYS];
typedef struct pl__pack_sorter {
    pl__pack_keyed *rows;
    double *load_sum; /* prefix sums over sections */
} pl__pack_sorter;

pl_status pl__pack_sorter_init(pl__pack_sorter *s, const pl__pack_leaf *leaf,
                               pl_arena *a) PL_MUST_USE;
/* Sets the ranks of k by keys. */
void pl__pack_sort_by(pl__pack_sorter *s, pl__pack_sky *k, const char *keys);
/* Stores a placement in the leaf if it is lower. */
void pl__pack_keep(pl__pack_leaf *leaf, const int64_t *off, int64_t height);

#endif
