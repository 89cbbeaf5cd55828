/* budget.h - from a budget to a plan, for one program.
 *
 *     PL_TRY(pl_budget_new(&base, PL_CHECKPOINT_AUTO, &b));
 *     rc = pl_budget_set(b, arena_bytes);    plans within so many bytes; PL_ERR_FIT says why not
 *     plan = pl_budget_plan(b);              the plan that is set; NULL: the keep-all plan
 *     rc = pl_budget_minimum(b, 0, &bytes);  the smallest arena for which a plan is found
 *
 * The keep-all plan is used whenever it fits. Below its size the recompute planner
 * (recompute/recompute.h) proposes lists of units in which some run more than once, core/expand.h
 * makes a graph of such a list, core/plan.h packs it, and the cheapest list whose packed arena is
 * within the budget wins. rt/process_budget.h computes the arena's share of a budget for the whole
 * process.
 *
 * A plan that recomputes has a separate graph, in host memory. Where the arena is host memory too
 * (pl_budget_count_plans), a plan takes its arena plus this graph: budgets then limit that sum, and
 * the minimum refers to it. The keep-all plan takes its arena only.
 */
#ifndef PL_PLAN_BUDGET_H
#define PL_PLAN_BUDGET_H

#include "plan/core/expand.h"
#include "plan/core/plan.h"
#include "plan/levels/level_plan.h"

typedef struct pl_budget pl_budget;

/* A program to plan. Everything is borrowed and must outlive the budget. */
typedef struct pl_budget_base {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan_opts *opts; /* of the keep-all plan */
    const pl_plan *keep_all;
    const double *cost_ns; /* per unit id */
    uint64_t effort;       /* of one search, about nanoseconds; 0: derived from the number of
                            * units */
} pl_budget_base;

/* A plan that recomputes, with the graph that it plans. */
typedef struct pl_expanded_plan {
    pl_expansion *x;
    pl_plan *plan;
    pl_plan_opts opts;    /* of the plan; their pointers are the expansion's */
    uint64_t *work_bytes; /* of opts */
    const pl_budget_base *base;
    double recompute_ns; /* time of the units that run a second time */
    double total_ns;     /* predicted time with moves and waiting; 0: there are no moves */
    uint64_t host_bytes; /* of the plan with its graph, as counted by the search; 0: not counted */
} pl_expanded_plan;

/* Starts with the keep-all plan. `how`: PL_CHECKPOINT_AUTO searches; PL_CHECKPOINT_BLOCKS runs the
 * segments that the model marks, for every budget; PL_CHECKPOINT_OFF never recomputes. */
pl_status pl_budget_new(const pl_budget_base *base, enum pl_checkpointing how,
                        pl_budget **out) PL_MUST_USE;
void pl_budget_free(pl_budget *b); /* NULL is fine */
/* Limits later searches: they return PL_ERR_STOPPED soon after *stop becomes nonzero (borrowed;
 * NULL: never), and keep candidate lists of about search_bytes (0: no limit). */
void pl_budget_limit(pl_budget *b, const volatile int *stop, uint64_t search_bytes);
/* Makes later searches quick: they take one of the first plans that fit. For a caller who asks
 * whether a plan fits and about how long its step takes. pl_budget_set refuses the same budgets. */
void pl_budget_quick(pl_budget *b, bool quick);
/* Whether budgets and minima include the host memory of plans. Before the first search. */
void pl_budget_count_plans(pl_budget *b, bool count);
bool pl_budget_has_keep_all(const pl_budget *b); /* segments need not be run as marked */
bool pl_budget_may_keep_all(const pl_budget *b); /* the same, and slots live on the device */
/* Returns about the host memory of a plan with levels, before one is made; 0: it does not count, or
 * the keep-all plan may run. */
uint64_t pl_budget_held_guess(const pl_budget *b);

/* Lets later plans use levels below the device (borrowed; NULL: the device only), and forgets what
 * earlier searches found. The plan that is set stays until the next pl_budget_set; that must follow
 * where slots live elsewhere now. */
void pl_budget_levels(pl_budget *b, const pl_level_opts *levels);
/* Estimates the time of the plan that pl_budget_set would find with those levels; HUGE_VAL where
 * none is expected to fit. */
pl_status pl_budget_levels_ns(pl_budget *b, uint64_t arena_budget, double *ns) PL_MUST_USE;
/* Sets a lower bound, quickly: no plan with those levels has a smaller arena. */
pl_status pl_budget_levels_bound(pl_budget *b, uint64_t *arena_bytes) PL_MUST_USE;

/* Replaces the plan with the cheapest plan found whose arena, or size, is at most arena_budget (0:
 * no limit).
 * PL_ERR_FIT changes nothing; the message proves by a unit that the budget is below the bound, or
 * else names the minimum. The result does not depend on earlier calls. */
pl_status pl_budget_set(pl_budget *b, uint64_t arena_budget) PL_MUST_USE;
/* Returns less than the host memory of any plan that recomputes; 0: it does not count. */
uint64_t pl_budget_least_host_bytes(const pl_budget *b);
/* Sets *may, quickly: false where pl_budget_set would refuse that budget. */
pl_status pl_budget_may_fit(pl_budget *b, uint64_t arena_budget, bool *may) PL_MUST_USE;
/* Returns the plan that is set; NULL: the keep-all plan. Borrowed until the next pl_budget_set. */
const pl_expanded_plan *pl_budget_plan(const pl_budget *b);

/* Finds the smallest arena for which a plan is found; pl_budget_set finds a plan for it, in any
 * process. The search ends at a plan of at most `enough` bytes; 0: it continues to the smallest,
 * for as long as that takes. */
pl_status pl_budget_minimum(pl_budget *b, uint64_t enough, uint64_t *arena_bytes) PL_MUST_USE;
/* Sets a lower bound, quickly: no plan has a smaller arena. */
pl_status pl_budget_bound(pl_budget *b, uint64_t *arena_bytes) PL_MUST_USE;

typedef struct pl_budget_figures {
    uint64_t minimum_bytes;      /* smallest arena or size found so far; 0: none was searched for */
    bool minimum_final;          /* final: searches find no smaller one */
    uint64_t minimum_host_bytes; /* the part of it that is host memory of its plan */
    uint64_t host_bytes;         /* of the plan that is set, with its graph; 0: the keep-all plan */
    uint32_t asked;              /* lists requested from the recompute planner */
    uint32_t packed;             /* lists that were packed */
} pl_budget_figures;
pl_budget_figures pl_budget_figures_get(const pl_budget *b);

/* Frees what only searches need; the plan and the figures stay, except asked and packed. */
void pl_budget_trim(pl_budget *b);
/* The same between two searches with levels: a few lists stay, because the next search uses them
 * again. */
void pl_budget_pause(pl_budget *b);

/* Returns the host memory of a plan and its graph; 0 for NULL. */
uint64_t pl_expanded_plan_bytes(const pl_expanded_plan *t);

#endif
