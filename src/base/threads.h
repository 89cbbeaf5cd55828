/* threads.h - parallel loops over the process's one team of threads.
 *
 * oneDNN's loops run on the same team (team.h): two teams would compete for the cores. Loops do not
 * nest: a loop inside a loop runs on its caller.
 */
#ifndef PL_BASE_THREADS_H
#define PL_BASE_THREADS_H

#include "base/err.h"

PL_SHARED_BEGIN

/* Returns the threads that a loop may use; fixed at first use from PL_THREADS, else
 * OMP_NUM_THREADS, else the cores that this process may run on. A thread that runs oneDNN must call
 * it first: its teams then have that size. */
int pl_threads_count(void);
void pl_threads_set(int n);

/* Calls fn(ctx, task, worker) for each task in [0, n_tasks), worker in [0, pl_threads_count()).
 * Workers get contiguous ranges of tasks; which worker runs a task must not change its result. */
void pl_threads_for(int64_t n_tasks, void (*fn)(void *ctx, int64_t task, int worker), void *ctx);

PL_SHARED_END

#endif
