/* cost.h - predicted cost of units; see cost.c. */
#ifndef PL_PLAN_COST_H
#define PL_PLAN_COST_H

#include "ir/units.h"

pl_status pl_unit_cost(const pl_graph *g, const pl_unit *u, pl_arena *scratch,
                       pl_cost *out) PL_MUST_USE;
double pl_cost_ms(const pl_cost *c, int threads);

#endif
