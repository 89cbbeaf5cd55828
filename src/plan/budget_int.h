/* budget_int.h - shared by the files of plan/budget.h: a search and its candidates.
 *
 *   budget.c            one program's plan: the plan that is set, figures of the minimum
 *   budget_search.c     the cheapest plan within a budget
 *   budget_minimum.c    the smallest arena for which a plan is found
 *   budget_candidate.c  lists of units: asked for, measured, packed
 *   budget_levels.c     plans with moves below the device
 *   budget_lists.c      lists that these start from
 *   budget_levels_mix.c lists between those
 *   budget_small.c      plans with moves of small programs
 *   budget_problem.c    the program as the recompute planner sees it, and the lower bound
 */
#ifndef PL_PLAN_BUDGET_INT_H
#define PL_PLAN_BUDGET_INT_H

#include "plan/budget.h"
#include "plan/core/plan_int.h"
#include "plan/recompute/recompute.h"

/* PL__CLOSE_RUNGS: rungs of the ladder, and also the fine steps at which recompute is undone. */
enum { PL__MAX_CANDIDATES = 600, PL__MAX_FAILED = 32, PL__CLOSE_RUNGS = 400 };
/* The first descent, and the second one of large problems. */
enum { PL__FIRST, PL__SECOND, PL__DESCENTS };
/* Lists that plans with moves start from, with the keep-all order. */
enum { PL__LEVEL_LISTS = 12 };

/* An answer of the recompute planner to a question of budget_levels.c. It does not depend on where
 * slots live, so it outlasts the search: searches for many choices of slots ask the same. */
typedef struct pl__level_list {
    bool known;     /* it was asked */
    uint32_t *unit; /* ids; NULL: no plan */
    uint32_t n;
    double cost_ns;
} pl__level_list;

/* A list of units, the question that the recompute planner answered with it, and its figures. */
typedef struct pl__candidate {
    pl_recompute_plan *plan;
    uint64_t peak;  /* true bytes alive at once, plus `held`; 0: not measured */
    uint64_t arena; /* after packing, plus `held`; 0: not packed */
    uint64_t held;  /* host memory of its plan where that counts (pl_budget_count_plans), else 0 */
    bool quick;     /* packing stopped at the first arena that fits; a longer search may pack
                     * smaller */
    /* The question: a budget, an effort of search, and the candidate to fill up (index + 1; 0:
     * none, search). of_descent: the plan that pl_recompute_descend finds at that budget. */
    uint64_t asked, effort;
    uint32_t filled_from;
    uint32_t settings; /* of the eviction score; 0: all */
    bool of_descent;
    bool whole;    /* asks with the whole grid: a small peak counts, not only the cost */
    bool competes; /* the budget that is being solved asked for it */
} pl__candidate;

/* A descent to the smallest plan, see budget_minimum.c. */
typedef struct pl__descent {
    pl_recompute_descent *steps; /* NULL: it has not begun, or has ended */
    pl__candidate last;          /* the last plan; a candidate once the descent ends */
    pl__candidate lean;          /* counts: the plan with the smallest size */
    uint64_t lean_bytes;         /* that size, approximate */
    uint32_t fat;                /* plans since then */
    uint64_t asked;              /* budget of `problem` for the smallest plan */
    uint64_t peak;               /* smallest true peak; 0: not measured */
    pl__candidate smallest;      /* the question of the plan with that peak */
    uint64_t minimum;            /* smallest arena or size so far; 0: none yet */
    uint64_t held;               /* the part of it that is host memory of its plan */
    bool ended;
    bool loose; /* the true peak of its smallest plan is much larger than the budget of `problem` */
    bool known; /* the smallest plan was packed */
} pl__descent;

typedef struct pl__search {
    pl_arena mem;
    const pl_budget_base *base;
    bool counts;       /* see pl_budget_count_plans */
    pl_problem units;  /* of the program */
    bool spread;       /* values may leave the device: see `order` */
    uint32_t *order;   /* unit ids of the keep-all plan; spread: updates run as early as possible */
    uint32_t *unit_at; /* unit of `problem` -> unit of `units` */
    pl_recompute_problem problem;
    uint64_t shift;           /* constant added to all budgets of `problem` */
    uint64_t keep_all_bytes;  /* peak of running every unit once, in `problem` */
    pl_recompute_plan marked; /* the segments that the model marks; n = 0: none */
    uint64_t bound;           /* no plan has a smaller arena */
    uint32_t bound_unit;      /* id of the unit that needs `bound`; PL_NO_UNIT: the inputs */
    pl__candidate candidates[PL__MAX_CANDIDATES];
    uint32_t n_candidates;
    uint64_t candidate_bytes;             /* host memory of their lists */
    pl__candidate failed[PL__MAX_FAILED]; /* questions without an answer */
    uint32_t n_failed;
    pl_recompute_memo *memo;
    pl__descent descent[PL__DESCENTS];
    uint64_t minimum;           /* smallest arena or size so far; 0: none yet */
    uint64_t minimum_held;      /* the part of it that is host memory of its plan */
    bool knows_minimum;         /* all descents have ended, and their smallest plans were packed */
    bool quick;                 /* see pl_budget_quick */
    uint64_t minimum_before;    /* the minimum that an earlier search found; 0: none */
    pl_expanded_plan *packed;   /* of the candidate packed last; NULL: none, or handed out */
    uint32_t packed_of;         /* candidate, index + 1 */
    uint32_t chosen;            /* candidate of the last plan that was found, index + 1; 0: none */
    uint32_t n_asked, n_packed; /* see pl_budget_figures */
    pl__level_list *lists;      /* PL__LEVEL_LISTS, of the pl_budget */
    uint32_t fastest_list; /* of the last estimate with levels, see budget_levels.c; 0: none fits */
} pl__search;

/* Returns PL_ERR_STOPPED once opts->stop is set; results of a search after that must not be
 * used. */
pl_status pl__search_stopped(const pl__search *f) PL_MUST_USE;

/* ---- budget_problem.c ---- */
/* Fills in units, unit_at, problem, marked, shift, bound and keep_all_bytes over f->base. */
pl_status pl__search_describe(pl__search *f) PL_MUST_USE;

/* ---- budget_candidate.c ---- */
/* Limits of the offset search, see pl_plan_opts. */
typedef struct pl__pack_limits {
    uint64_t enough, fits;
    bool rough; /* a short search */
} pl__pack_limits;
extern const pl__pack_limits pl__no_limits;

bool pl__is_same_question(const pl__candidate *a, const pl__candidate *b);
/* Calls the recompute planner with the problem in `want`. *found is NULL when no plan exists. */
pl_status pl__candidate_ask(pl__search *f, const pl__candidate *want,
                            pl__candidate **found) PL_MUST_USE;
/* Sets c->held and c->peak. */
pl_status pl__candidate_measure(pl__search *f, pl__candidate *c) PL_MUST_USE;
/* Creates and checks the plan of a candidate that was measured. Limits include c->held. */
pl_status pl__candidate_pack(pl__search *f, const pl__candidate *c, const pl__pack_limits *limit,
                             pl_expanded_plan **out) PL_MUST_USE;
/* The same into f->packed, and sets c->arena: the candidate packed last is often requested next. An
 * arena of at most limit->fits bytes need not be small; 0: as small as possible. */
pl_status pl__candidate_keep(pl__search *f, pl__candidate *c,
                             const pl__pack_limits *limit) PL_MUST_USE;
/* Plans the given list of unit ids, for any size of the arena; see pl_expand. */
pl_status pl__plan_of_list(const pl_budget_base *base, const uint32_t *list, uint32_t n,
                           pl_expanded_plan **out) PL_MUST_USE;
void pl__expanded_plan_free(pl_expanded_plan *t); /* NULL is fine */
/* Makes the graph of a list of unit ids, and the options to plan it with, in t, which is zero. */
pl_status pl__expand_list(const pl_budget_base *b, const uint32_t *list, uint32_t n,
                          pl_expanded_plan *t) PL_MUST_USE;
/* Fills in the options of t->x, whose units are runs of the base's units. */
pl_status pl__expanded_opts(const pl_budget_base *b, pl_expanded_plan *t) PL_MUST_USE;
/* Writes the unit ids of a recompute plan to *out. */
pl_status pl__list_units(pl__search *f, const pl_recompute_plan *plan, pl_arena *mem,
                         uint32_t **out) PL_MUST_USE;

/* ---- budget_levels.c ---- */
/* Finds the fastest plan within the budget (0: no limit) with moves, with or without recompute.
 * effort: of a search for a plan without moves, which is the answer where it is fastest; 0: slots
 * live below the device, so no plan is without moves. plain: the search that plans without levels
 * use, for the plan without moves; NULL: f. */
pl_status pl__search_levels(pl__search *f, pl__search *plain, const pl_level_opts *levels,
                            enum pl_checkpointing how, uint64_t arena_budget, uint64_t effort,
                            pl_expanded_plan **out) PL_MUST_USE;
/* Estimates the time of that plan without making it; HUGE_VAL where none is expected to fit. */
pl_status pl__search_levels_estimate(pl__search *f, const pl_level_opts *levels,
                                     enum pl_checkpointing how, uint64_t arena_budget,
                                     double *ns) PL_MUST_USE;
/* Finds a small budget; for it and all larger ones pl__search_levels finds a plan. stays: plans
 * without moves count. enough: an arena of so many bytes need not be smaller. *held: the part of it
 * that is host memory of its plan. */
pl_status pl__search_levels_minimum(pl__search *f, const pl_level_opts *levels,
                                    enum pl_checkpointing how, bool stays, uint64_t enough,
                                    uint64_t *bytes, uint64_t *held) PL_MUST_USE;
/* Sets a lower bound, quickly: no plan with these levels has a smaller arena. */
pl_status pl__search_levels_bound(pl__search *f, const pl_level_opts *levels,
                                  uint64_t *bytes) PL_MUST_USE;

/* ---- budget_minimum.c ---- */
/* See pl_budget_minimum. */
pl_status pl__search_minimum(pl__search *f, uint64_t enough, uint64_t *arena_bytes) PL_MUST_USE;
/* The same of one descent: PL__FIRST or PL__SECOND. Leaves the plan in f->packed for a search that
 * continues. */
pl_status pl__search_find_minimum(pl__search *f, int which, uint64_t enough,
                                  uint64_t *arena_bytes) PL_MUST_USE;
/* Returns the host memory of the graph, its units and the keep-all plan. */
static inline uint64_t pl__base_host_bytes(const pl_budget_base *b)
{
    return pl_graph_bytes(b->g) + b->units->arena.total + b->keep_all->mem.total;
}
/* Returns about the host memory of a plan that recomputes little; 0: it does not count. */
uint64_t pl__search_held_guess(const pl__search *f);
/* Whether a climb takes much longer than a descent. */
bool pl__search_is_large(const pl__search *f);
/* Whether there is a second descent. */
bool pl__search_has_second(const pl__search *f);
/* Sets *c to the candidate of a descent with the smallest true peak; NULL: none. It is not
 * packed. */
pl_status pl__search_least(pl__search *f, int which, pl__candidate **c) PL_MUST_USE;
/* Sets *which to the first descent that has a plan within the budget; PL__DESCENTS: none has. Where
 * the budget is clearly above its minimum, the descent need not end. */
pl_status pl__search_place(pl__search *f, uint64_t budget, int *which) PL_MUST_USE;
/* Moves what the descents found out of a search, and into the next search of the same problem. */
void pl__search_take_descents(pl__search *f, pl__descent out[PL__DESCENTS]);
void pl__search_give_descents(pl__search *f, pl__descent in[PL__DESCENTS]);
void pl__descents_free(pl__descent d[PL__DESCENTS]);

/* ---- budget_search.c ---- */
/* Finds the cheapest plan within the budget. `effort` limits the search at the highest rung. */
pl_status pl__search_solve(pl__search *f, uint64_t arena_budget, uint64_t effort,
                           pl_expanded_plan **out) PL_MUST_USE;

/* Sets *may, quickly: false where that search refuses the budget. */
pl_status pl__search_may_fit(pl__search *f, uint64_t arena_budget, bool *may) PL_MUST_USE;

#endif
