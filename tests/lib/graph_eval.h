/* graph_eval.h - runs a graph node by node, every value in memory of its own: the plainest
 * possible execution, for tests of ops. No planning, no fusing, no reuse. */
#ifndef PL_GRAPH_EVAL_H
#define PL_GRAPH_EVAL_H

#include "ir/graph.h"

typedef struct graph_eval {
    const pl_graph *g;
    void **data;    /* per value id; made by graph_eval_new for every value but sources' */
    bool reference; /* "ref" kernels only; else the first that accepts */
} graph_eval;

graph_eval *graph_eval_new(const pl_graph *g, bool reference);
void graph_eval_free(graph_eval *e);
/* Memory of a value, zero until written: inputs and states are filled by the caller. */
void *graph_eval_at(graph_eval *e, pl_val v);
pl_status graph_eval_run(graph_eval *e) PL_MUST_USE;
/* Runs one kernel on a filled-in call with a workspace of exactly the bytes it asks for. */
pl_status graph_eval_kernel(const pl_kernel *k, pl_call *c) PL_MUST_USE;

/* Comparison with numbers from elsewhere: a value filled with sin(f*i + 0.1) along its flat index,
 * and a value's sum weighted with cos(0.23*i), which tells every element's place. off: the
 * difference from the wanted sum, divided by the tolerance of the type. */
void graph_eval_wave(graph_eval *e, pl_val v, double f);
double graph_eval_off(graph_eval *e, pl_val v, double want);

#endif
