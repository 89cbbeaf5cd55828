/* expand.h - a graph in which some units run more than once.
 *
 * Recomputation changes the graph, not the runtime (M12): a list of units with repeats becomes a
 * graph in which each run is a unit of its own, with nodes of its own, and every reader reads the
 * latest run before it. All that follows (lifetimes, offsets, the checker, kernels) sees an
 * ordinary graph, each of whose units runs once.
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

/* list: n unit ids of `units`, views left out, each unit at least once and after the producers of
 * what it reads. A value assigned to a slot is that of its unit's first run, for all readers; an
 * output is that of the last. */
pl_status pl_expand(const pl_graph *g, const pl_units *units, const uint32_t *list, uint32_t n,
                    pl_expansion **out) PL_MUST_USE;
void pl_expansion_free(pl_expansion *x); /* NULL is fine */

#endif
