/* ref_eval.h - the oracle: evaluates a graph with reference kernels, node by node, in memory of its
 * own for every value. It shares no code with planner and runtime, so tests compare their results
 * with it.
 *
 *     ref_eval *e = ref_eval_new(g);                      the graph as it is now; borrowed
 *     memcpy(ref_eval_input(e, "x"), x, sizeof x);
 *     CHECK_OK(ref_eval_run(e));
 *     const float *y = ref_eval_get(e, y_val);            before the next run
 *     ref_eval_free(e);
 */
#ifndef PL_TEST_REF_EVAL_H
#define PL_TEST_REF_EVAL_H

#include "plimsoll.h"

typedef struct ref_eval ref_eval;

/* NULL when out of memory. Nodes added to the graph later are not seen. */
ref_eval *ref_eval_new(const pl_graph *g);
void ref_eval_free(ref_eval *e); /* NULL is fine */
/* Bytes of an input, kept from run to run; NULL if there is none of that name. */
void *ref_eval_input(ref_eval *e, const char *name);
/* Bytes of a slot of the graph's store, zero at first; NULL if the graph does not use it. A run
 * reads them and leaves what was assigned. */
void *ref_eval_slot(ref_eval *e, int slot);
pl_status ref_eval_run(ref_eval *e) PL_MUST_USE;
/* Bytes of any value of the last run. */
const void *ref_eval_get(const ref_eval *e, pl_val v);
/* Value that pl_output names; PL_NO_VAL if there is none. */
pl_val ref_eval_output(const ref_eval *e, const char *name);

#endif
