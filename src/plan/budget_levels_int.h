/* budget_levels_int.h - shared by budget_levels.c and budget_lists.c: a search for a plan with
 * moves. */
#ifndef PL_PLAN_BUDGET_LEVELS_INT_H
#define PL_PLAN_BUDGET_LEVELS_INT_H

#include "plan/budget_int.h"

/* PL__LEVEL_KEPT: options that may be planned. PL__LEVEL_MIXED: place of a list that
 * budget_levels_mix.c makes, behind those of budget_lists.c. */
enum { PL__LEVEL_KEPT = 6, PL__LEVEL_MIXED = PL__LEVEL_LISTS, PL__LEVEL_PLACES };

/* A list with a target of its schedule. */
typedef struct pl__level_option {
    uint32_t list;
    uint64_t target;
    bool bare; /* the list's graph: see pl__levels_search */
    double ns; /* estimated */
} pl__level_option;

typedef struct pl__levels_search {
    pl__search *f;
    pl__search *plain; /* without moves; NULL: f */
    const pl_level_opts *levels;
    /* Of the arena, with the plan's host memory where that counts; UINT64_MAX: no limit. */
    uint64_t budget;
    uint64_t enough; /* the search for the smallest plan ends at an arena of so many bytes */
    bool quick;      /* only estimates */
    pl_expanded_plan *best;
    pl_arena mem;
    /* Graphs without moves; 0: the keep-all order. Of the others one at a time: their memory counts
     * on the host. */
    pl_expanded_plan *still[PL__LEVEL_PLACES];
    double *cost[PL__LEVEL_PLACES];    /* per unit of the graph */
    double asked_ns[PL__LEVEL_PLACES]; /* of running a list as the recompute planner asks */
    /* Graphs of lists are made without further runs of cheap units. */
    bool bare;
    uint32_t n_lists;                            /* lists after this one do not exist */
    pl__level_option option[PL__LEVEL_KEPT + 1]; /* fastest first */
    uint32_t n_options;
} pl__levels_search;

/* ---- budget_levels.c ---- */
/* Plans a graph with these moves, and keeps the plan if it fits and is faster than the best. *over:
 * by how many bytes its arena is too large. */
pl_status pl__levels_try_moves(pl__levels_search *s, const pl_expanded_plan *still,
                               const pl_list_move *moves, uint32_t n, uint64_t *over) PL_MUST_USE;

/* An estimate of a list with a target of its schedule. */
typedef struct pl__level_guess {
    double ns;  /* HUGE_VAL: it does not fit */
    bool waits; /* units wait for moves */
    bool spare; /* the list's further runs of cheap units take longer than units wait */
} pl__level_guess;
pl_status pl__levels_estimate(pl__levels_search *s, uint32_t list, uint64_t target,
                              pl__level_guess *out) PL_MUST_USE;
/* Plans an option, asks for less until it fits, and keeps the plan if it is faster than the
 * best. */
pl_status pl__levels_try_option(pl__levels_search *s, const pl__level_option *o) PL_MUST_USE;

/* ---- budget_levels_mix.c ---- */
/* Tries lists between list `near` and its neighbours. */
pl_status pl__levels_search_between(pl__levels_search *s, uint32_t near) PL_MUST_USE;
/* Tries the chosen list of the plain search with less recompute and with moves. */
pl_status pl__levels_search_above(pl__levels_search *s) PL_MUST_USE;

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
/* Returns the question that list k > 0 answers: a budget of the recompute planner. */
uint64_t pl__levels_asked(const pl__search *f, uint32_t k);
/* Makes a list of the recompute planner, which `of` asked for, the mixed list. */
pl_status pl__levels_add_mixed(pl__levels_search *s, pl__search *of,
                               const pl_recompute_plan *plan) PL_MUST_USE;
void pl__levels_free_graphs(pl__levels_search *s); /* of all lists that recompute */
void pl__levels_free_lists(pl__levels_search *s);

#endif
