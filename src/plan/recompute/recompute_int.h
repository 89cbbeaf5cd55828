/* recompute_int.h - shared by the files of the recompute planner: the problem with its edges in
 * both directions (the model), a candidate plan (a list of units), and the solvers.
 *
 *   recompute.c          model, bounds, the driver, the plan handed out
 *   recompute_seq.c      lists: exact peak, unread runs deleted
 *   recompute_fill.c     lists: recomputation undone where room is left
 *   recompute_sim.c      the eviction simulator
 *   recompute_score.c    what it drops next
 *   recompute_heap.c     its candidates, the smallest score first
 *   recompute_repeat.c   buffers that play the same part in repeated layers
 *   recompute_search.c   its grid of settings and the search over its weights
 *   recompute_chain.c    the dynamic program over cut points
 *   recompute_exact.c    best-first search for small problems
 *   recompute_minimum.c  the smallest budget
 *   recompute_ladder.c   plans for rising budgets
 */
#ifndef PL_PLAN_RECOMPUTE_INT_H
#define PL_PLAN_RECOMPUTE_INT_H

#include "base/arena.h"
#include "base/asked.h"
#include "plan/recompute/recompute.h"

/* Offsets and items, as in pl_recompute_problem. */
typedef struct pl__recompute_list {
    uint32_t *at, *item;
} pl__recompute_list;

/* The problem, checked. A "value" is a buffer or a view; the "owner" of a view is the buffer
 * that has its bytes, the owner of a buffer itself. */
typedef struct pl__recompute {
    const pl_recompute_problem *p;
    uint32_t n_units, n_vals;
    const double *cost;
    uint32_t *owner; /* of each value */
    /* of each value: its unit, PL_RECOMPUTE_NONE if it exists at the start */
    uint32_t *writer;
    uint64_t *bytes;       /* of each value; 0 for views */
    uint8_t *pinned, *end; /* of each value; end is set for the owners of such views too */
    uint8_t *once;         /* of each unit */
    pl__recompute_list in; /* of each unit: the values it reads, each once */
    pl__recompute_list
        needs; /* of each unit: the owners it reads, each once, without pinned ones */
    pl__recompute_list makes; /* of each unit: the owners it writes */
    pl__recompute_list
        /* of each owner: the units that read it or a view of it, rising; n_units at the end means
         * "after the last position" */
        uses;
    pl__recompute_list feeds; /* of each owner: the owners written by the units that read it */
    pl__recompute_list views; /* of each owner: the views of it */
    double *time;             /* n_units + 2: cost of all units before unit i */
    double base_cost;
    pl_arena arena;
} pl__recompute;

/* Checks the problem and builds the model. The caller releases m->arena, also on failure. */
pl_status pl__recompute_build(const pl_recompute_problem *p, pl__recompute *m) PL_MUST_USE;
/* See pl_recompute_bound. */
void pl__recompute_lower_bound(const pl__recompute *m, uint64_t *bytes, uint32_t *unit);

static inline uint64_t pl__recompute_work(const pl__recompute *m, uint32_t unit)
{
    return m->p->work_bytes ? m->p->work_bytes[unit] : 0;
}

/* A candidate: units in the order in which they run. */
typedef struct pl__recompute_seq {
    uint32_t *unit;
    uint32_t n, cap;
    double cost;
    uint64_t peak;
    const char *strategy;
} pl__recompute_seq;
void pl__recompute_seq_release(pl__recompute_seq *s);
pl_status pl__recompute_seq_copy(pl__recompute_seq *to, const pl__recompute_seq *from) PL_MUST_USE;
pl_status pl__recompute_seq_push(pl__recompute_seq *s, uint32_t unit) PL_MUST_USE;

/* Working memory of the functions on sequences, grown as needed. */
typedef struct pl__recompute_eval pl__recompute_eval;
pl_status pl__recompute_eval_new(const pl__recompute *m, pl__recompute_eval **out) PL_MUST_USE;
void pl__recompute_eval_free(pl__recompute_eval *e);
/* Deletes repeated units without a reader (and then the repetitions that only those read), then
 * sets cost and peak. *ok is false when the sequence is not a plan: a value that is read does not
 * exist. */
pl_status pl__recompute_tighten(pl__recompute_eval *e, pl__recompute_seq *s, bool *ok) PL_MUST_USE;
/* Undoes recompute within the budget: deletes a repeated unit where the copy before it can be held
 * until its readers, in order of cost saved per bytes times waiting. s must be tightened. Without
 * `exact` it may hold too much, and then changes nothing: searches, which fill thousands of lists,
 * find better plans that way. */
pl_status pl__recompute_fill(pl__recompute_eval *e, pl__recompute_seq *s, uint64_t budget,
                             bool exact) PL_MUST_USE;

/* One setting of the eviction score, see recompute_sim.c. */
typedef struct pl__recompute_setting {
    float size_power; /* B */
    float gap_power;  /* G: 0, 0.25, 0.5 or 1 */
    float kin;        /* L: share of the cost of dropped descendants */
    float tight;      /* the simulator's budget as a share of the real one */
    bool by_index;    /* waiting is counted in units, not in time */
} pl__recompute_setting;

typedef struct pl__recompute_sim pl__recompute_sim;
pl_status pl__recompute_sim_new(const pl__recompute *m, pl__recompute_sim **out) PL_MUST_USE;
void pl__recompute_sim_free(pl__recompute_sim *s);
/* Runs the whole order with these weights (of each value; NULL: all 1). Stops early when the cost
 * exceeds cost_limit. The sequence is borrowed until the next run; *ok is false when the run was
 * stopped or found no room. */
pl_status pl__recompute_sim_run(pl__recompute_sim *s, const pl__recompute_setting *set,
                                uint64_t budget, const float *weight, double cost_limit,
                                bool *ok) PL_MUST_USE;
/* Runs again with weights that differ from the last run's, which had weights, only in the values
 * listed; starts at the last checkpoint that they cannot have changed. */
pl_status pl__recompute_sim_rerun(pl__recompute_sim *s, const float *weight,
                                  const uint32_t *changed, uint32_t n_changed, double cost_limit,
                                  bool *ok) PL_MUST_USE;
const pl__recompute_seq *pl__recompute_sim_seq(const pl__recompute_sim *s);
/* Returns the steps of work since the simulator was created: about a nanosecond each. */
uint64_t pl__recompute_sim_work(const pl__recompute_sim *s);
/* Returns, for the last successful run, how often each value was dropped while still needed. */
const uint16_t *pl__recompute_sim_drops(const pl__recompute_sim *s);

/* Settings of a search for any plan. */
enum pl__recompute_probes {
    PL__PROBE_ALL,  /* no quick search */
    PL__PROBE_FEW,  /* the first settings of the grid */
    PL__PROBE_WIDE, /* settings that together find the smallest budgets */
};

/* The best plan so far and what is left to spend; solvers offer candidates to it. */
typedef struct pl__recompute_best {
    const pl__recompute *m;
    const pl_recompute_opts *opts;
    pl__recompute_eval *eval;
    uint64_t budget;
    pl__recompute_seq seq;            /* seq.n = 0 until a plan fits */
    pl__recompute_seq work;           /* the candidate being improved */
    double floor;                     /* cheaper candidates are not kept; 0: none */
    uint64_t least_peak;              /* lowest peak of any candidate seen, fitting or not */
    uint64_t deadline_ns;             /* 0: none */
    bool optimal;                     /* nothing cheaper exists */
    bool any;                         /* the first plan that fits will do */
    enum pl__recompute_probes probes; /* not ALL: a quick search, with a few settings */
    uint32_t probe;     /* of WIDE: the first to run; out: the one that found the plan */
    uint64_t grid_work; /* out: steps of work of the settings */
    uint64_t effort;    /* for the search */
} pl__recompute_best;
pl_status pl__recompute_best_init(pl__recompute_best *b, const pl__recompute *m,
                                  const pl_recompute_opts *opts) PL_MUST_USE;
void pl__recompute_best_release(pl__recompute_best *b);
/* Runs all solvers that the options allow, from cheap to expensive. */
pl_status pl__recompute_compete(pl__recompute_best *b) PL_MUST_USE;
/* Copies a sequence that was offered into a plan with its own memory. */
pl_status pl__recompute_hand_out(const pl__recompute *m, const pl__recompute_seq *s,
                                 pl_recompute_plan **out) PL_MUST_USE;
/* Takes a copy of the candidate, tightens it, fills it, and keeps it if it fits and is cheaper.
 * *better (may be NULL) says so. */
pl_status pl__recompute_offer(pl__recompute_best *b, const uint32_t *unit, uint32_t n,
                              const char *strategy, bool *better) PL_MUST_USE;
/* Offers the keep-all plan; nothing is cheaper, so b->optimal is set when it fits. */
pl_status pl__recompute_offer_once(pl__recompute_best *b) PL_MUST_USE;
/* PL_ERR_FIT with the unit and the bytes when the budget is below the lower bound. */
pl_status pl__recompute_refuse_below_bound(const pl__recompute *m, uint64_t budget) PL_MUST_USE;
bool pl__recompute_late(const pl__recompute_best *b);
/* Whether the caller has aborted the search. */
static inline bool pl__recompute_stopped(const pl__recompute_best *b)
{
    return pl_asked(b->opts->stop);
}

/* Buffers that play the same part in repeated layers, see recompute_repeat.c. The class of value v
 * is member[first[v] .. first[v] + n[v]), by rising number; n[v] is 0 for values that are never
 * dropped. */
typedef struct pl__recompute_repeat {
    uint32_t *first, *n, *member;
} pl__recompute_repeat;
pl_status pl__recompute_repeats(const pl__recompute *m, pl_arena *mem,
                                pl__recompute_repeat *out) PL_MUST_USE;

/* The best settings so far, best first: the search over weights starts from them. */
enum { PL__RECOMPUTE_STARTS = 6 };
typedef struct pl__recompute_starts {
    pl__recompute_setting set[PL__RECOMPUTE_STARTS];
    double cost[PL__RECOMPUTE_STARTS];
    uint32_t n;
} pl__recompute_starts;
/* Runs at most `most` settings of the grid at b->budget and offers what they find. */
pl_status pl__recompute_grid(pl__recompute_best *b, pl__recompute_sim *sim, uint32_t most,
                             pl__recompute_starts *st) PL_MUST_USE;
/* The search over weights. It remembers the setting and the weights that it ended with. */
typedef struct pl__recompute_search pl__recompute_search;
pl_status pl__recompute_search_new(pl__recompute_best *b, pl__recompute_sim *sim,
                                   pl__recompute_search **out) PL_MUST_USE;
void pl__recompute_search_free(pl__recompute_search *s); /* NULL is fine */
/* Searches at b->budget from each of the settings, then from the best result. */
pl_status pl__recompute_search_from(pl__recompute_search *s, const pl__recompute_starts *st,
                                    uint64_t effort) PL_MUST_USE;
/* Copies the state on which a later search depends: both are searches of the same problem. */
void pl__recompute_search_copy(pl__recompute_search *to, const pl__recompute_search *from);
/* Searches at b->budget from the weights that the last search ended with. */
pl_status pl__recompute_search_on(pl__recompute_search *s, uint64_t effort) PL_MUST_USE;
/* Runs the simulator over its grid of settings, the exact search, then the search over weights. */
pl_status pl__recompute_simulate(pl__recompute_best *b) PL_MUST_USE;
pl_status pl__recompute_chain(pl__recompute_best *b) PL_MUST_USE;
/* Finds the smallest budget with a plan, and the plan (NULL: not wanted); `refused`: a full search
 * has found nothing there. */
pl_status pl__recompute_minimum(const pl__recompute *m, const pl_recompute_opts *opts,
                                uint64_t refused, uint64_t *bytes,
                                pl__recompute_seq *plan) PL_MUST_USE;
/* Does nothing on problems that are too large for it. */
pl_status pl__recompute_exact(pl__recompute_best *b) PL_MUST_USE;

#endif
