/* cost.h - expected cost of units; see cost.c. */
#ifndef PL_PLAN_COST_H
#define PL_PLAN_COST_H

#include "ir/units.h"

/* Fills *out for a unit; scratch is rewound. */
pl_status pl_unit_cost(const pl_graph *g, const pl_unit *u, pl_arena *scratch,
                       pl_cost *out) PL_MUST_USE;
/* Expected milliseconds on a CPU with that many threads. */
double pl_cost_ms(const pl_cost *c, int threads);

#endif
