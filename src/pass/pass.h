/* pass.h - the pipeline: which passes a graph goes through before it is planned, in one table.
 *
 * A pass reads a graph and writes a new one over the same store. The graph is verified after
 * each, and a failure names the pass.
 */
#ifndef PL_PASS_PASS_H
#define PL_PASS_PASS_H

#include "ir/graph.h"

typedef struct pl_pass {
    const char *name, *about;
    pl_status (*run)(const pl_graph *in, pl_graph **out);
    bool repeat; /* again while the graph shrinks */
    bool open;   /* only for devices whose groups gain from ops taken apart */
} pl_pass;

int pl_pass_count(void);
const pl_pass *pl_pass_at(int i);

/* Runs all passes, those of `open` only if asked; *g is replaced, the old graph freed. On failure *g is still a graph to free.
 */
pl_status pl_passes_run(pl_graph **g, bool open) PL_MUST_USE;

#endif
