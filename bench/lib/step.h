/* step.h - runs one step: each of its programs once per micro-batch, then its update. */
#ifndef PL_BENCH_STEP_H
#define PL_BENCH_STEP_H

#include "plimsoll_train.h"

#include <stdint.h>

/* The run's programs are const to others; running one does not change it. */
static inline pl_program *runnable(const pl_program *p)
{
    return (pl_program *)(uintptr_t)p;
}

/* Calls `one` for every run of a program in a step (counted from 0), in their order. */
static inline pl_status each_run(const pl_run *r, int64_t step,
                                 pl_status (*one)(void *ctx, pl_program *p), void *ctx)
{
    enum { MOST = 256 };
    int turns[MOST], n = pl_run_step_programs_of(r, step, turns, MOST);
    pl_status rc =
        n > MOST ? pl_fail(PL_ERR_UNSUPPORTED, "a step of %d turns, at most %d are timed", n, MOST)
                 : PL_OK;
    for (int i = 0; rc == PL_OK && i < n; i++) {
        pl_run_step_program t = pl_run_step_program_at(r, turns[i]);
        for (int64_t k = 0; rc == PL_OK && k < pl_run_split_get(r).accumulate; k++)
            rc = one(ctx, runnable(t.run));
        if (rc == PL_OK && t.apply) rc = one(ctx, runnable(t.apply));
    }
    return rc;
}

#endif
