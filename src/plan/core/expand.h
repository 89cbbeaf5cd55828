/* expand.h - a graph in which some units run more than once.
 *
 * Recompute changes the graph, not the runtime (M12): a list of units with repeats becomes a graph
 * in which each run is a separate unit with its own nodes, and every reader reads the latest run
 * before it. All later stages (lifetimes, offsets, the checker, kernels) see an ordinary graph in
 * which each unit runs once.
 */
#ifndef PL_PLAN_EXPAND_H
#define PL_PLAN_EXPAND_H

#include "ir/units.h"

typedef struct pl_expansion {
    pl_arena mem;
    pl_graph *g;
    pl_units *units;
    uint32_t *base;   /* per new unit: the unit it is a run of */
    bool *recomputed; /* per new unit: not its first run */
    uint32_t *order;  /* new units without views, in the order of the list */
    uint32_t n_order;
} pl_expansion;

/* list: n unit ids of `units`, without views, each unit at least once and after the producers of
 * what it reads. All readers of a value that is assigned to a slot read the result of its unit's
 * first run; an output is the result of the last run. */
pl_status pl_expand(const pl_graph *g, const pl_units *units, const uint32_t *list, uint32_t n,
                    pl_expansion **out) PL_MUST_USE;
void pl_expansion_free(pl_expansion *x); /* NULL is fine */

#endif
