/* trace.h - op-level traces of training steps as recomputation problems.
 *
 * The text: line 1 `storages tensors ops commands`; line 2 the bytes of each storage; then one line
 * per op: `cost_ns constant n_args arg... n_results (tensor storage is_alias)...`; then commands:
 * `C op` computes the op for the first time, `G t` adds a reference to tensor t, `P t` requires t
 * at the end, `R t` drops a reference. A new tensor has one reference.
 *
 * Tensors become the buffers of the problem, ops its units; aliases are views, results of constants
 * are pinned.
 */
#ifndef PL_PLAN_FILES_TRACE_H
#define PL_PLAN_FILES_TRACE_H

#include "base/arena.h"
#include "plan/recompute/recompute.h"

typedef struct pl_trace {
    pl_recompute_problem problem; /* its arrays are owned by the arena */
    uint64_t peak_bytes;          /* of the program as traced: storages live while referenced */
    const uint32_t *op;           /* of each unit: the number of its op in the text */
    pl_arena arena;
} pl_trace;

#define PL_TRACE_INIT                                                                              \
 {                                                                                                 \
  0                                                                                                \
 }
void pl_trace_release(pl_trace *t);
/* PL_ERR_DATA with the line number when the text is wrong; *out is then empty. */
pl_status pl_trace_parse(const char *text, size_t len, pl_trace *out) PL_MUST_USE;
pl_status pl_trace_read(const char *path, pl_trace *out) PL_MUST_USE;

/* trace_budgets.c: finds a plan within opts->budget_bytes. Over calls with rising budgets the cost
 * never rises. opts->pool is not used; opts->effort is for each search of the ladder. PL_ERR_FIT
 * when no plan is found: the message names the smallest budget that has one. */
pl_status pl_trace_climb(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         pl_recompute_plan **out) PL_MUST_USE;
/* Finds one plan for each of n budgets, in any order; NULL for a budget without a plan. The cost
 * never rises with the budget, and pl_trace_climb finds plans of the same cost. Ignores
 * opts->budget_bytes. */
pl_status pl_trace_sweep(const pl_recompute_problem *p, const pl_recompute_opts *opts,
                         const uint64_t *budgets, uint32_t n, pl_recompute_plan **out) PL_MUST_USE;

/* Writes a plan of the trace as text, with the numbers of the trace: `C op` computes an op, for the
 * first time or again; `D tensor` frees the storage of a tensor. */
pl_status pl_trace_write(const pl_trace *t, const pl_recompute_plan *plan,
                         const char *path) PL_MUST_USE;

#endif
