/* recompute_made.h - recomputation problems made up for tests. */
#ifndef PL_TESTS_REMAT_MADE_H
#define PL_TESTS_REMAT_MADE_H

#include "plan/recompute/recompute.h"

enum { MAX_UNITS = 2048, MAX_BUFS = 4096, MAX_EDGES = 16384 };

typedef struct made {
    pl_recompute_problem p;
    double cost[MAX_UNITS];
    uint64_t work[MAX_UNITS], bytes[MAX_BUFS];
    uint8_t unit_flags[MAX_UNITS], buffer_flags[MAX_BUFS];
    uint32_t in_at[MAX_UNITS + 1], in[MAX_EDGES], out_at[MAX_UNITS + 1], out[MAX_BUFS],
        base[MAX_BUFS];
} made;

/* l steps from x0; adjoints b(l-1)..b(0), where b(i) reads x(i) and b(i+1). All have size 1;
 * only the steps cost. Freed with free(), like the others. */
made *make_chain(uint32_t l);
/* A training step of 2*nf units: forward with skips, backward that reads part of it. Costs are
 * whole numbers, as the oracle needs. */
made *make_training(uint64_t seed, uint32_t nf);
/* Any problem: several outputs, views of views, workspace, pinned and given buffers, units that
 * must not repeat. */
made *make_any(uint64_t seed, uint32_t n_units);

/* For problems made by hand: add buffers first, then each unit, then its inputs and outputs. */
made *made_new(void);
uint32_t add_buffer(made *m, uint64_t bytes);
void add_unit(made *m, double cost);
void reads(made *m, uint32_t buf);
void writes(made *m, uint32_t buf);

#endif
