/* budget_levels_int.h - shared by budget_levels.c and budget_lists.c: a search for a plan with
 * moves. */
#ifndef PL_PLAN_BUDGET_LEVELS_INT_H
#define PL_PLAN_BUDGET_LEVELS_INT_H

#include "plan/budget_int.h"

enum { PL__LEVEL_KEPT = 6 }; /* options that may be planned */

/* A list with a target of its schedule. */
typedef struct pl__level_option {
    uint32_t list;
    uint64_t target;
    double ns; /* estimated */
} pl__level_option;

typedef struct pl__levels_search {
    pl__search *f;
    const pl_level_opts *levels;
    /* Of the arena, with the plan's host memory where that counts; UINT64_MAX: no limit. */
    uint64_t budget;
    uint64_t enough; /* the search for the smallest plan ends at an arena of so many bytes */
    bool quick;      /* only estimates */
    pl_expanded_plan *best;
    pl_arena mem;
    /* Graphs without moves; 0: the keep-all order. Of the others one at a time: their memory counts
     * on the host. */
    pl_expanded_plan *still[PL__LEVEL_LISTS];
    double *cost[PL__LEVEL_LISTS];               /* per unit of the graph */
    uint32_t n_lists;                            /* lists after this one do not exist */
    pl__level_option option[PL__LEVEL_KEPT + 1]; /* fastest first */
    uint32_t n_options;
} pl__levels_search;

/* ---- budget_levels.c ---- */
/* Plans a graph with these moves, and keeps the plan if it fits and is faster than the best. *over:
 * by how many bytes its arena is too large. */
pl_status pl__levels_try_moves(pl__levels_search *s, const pl_expanded_plan *still,
                               const pl_list_move *moves, uint32_t n, uint64_t *over) PL_MUST_USE;

/* ---- budget_small.c ---- */
/* Searches small programs for a faster plan than the best. */
pl_status pl__levels_search_small(pl__levels_search *s) PL_MUST_USE;

/* ---- budget_lists.c ---- */
pl_status pl__levels_new_plan(pl_expanded_plan **out) PL_MUST_USE;
/* Adds the keep-all order as list 0. */
pl_status pl__levels_add_keep_all(pl__levels_search *s) PL_MUST_USE;
/* Adds list k of the recompute planner. *added: there is one, and its units take less than
 * `most`. */
pl_status pl__levels_add_recompute(pl__levels_search *s, uint32_t k, double most,
                                   bool *added) PL_MUST_USE;
void pl__levels_free_graphs(pl__levels_search *s); /* of all lists that recompute */
void pl__levels_free_lists(pl__levels_search *s);

#endif
