/* measure.c - times the kernels of a run, for the predictions of later plans.
 *
 * The kernels are timed inside training steps, where their operands are as warm in the caches as in
 * training. The run's weights change, so the caller must discard the run.
 */
#include "base/sys.h"
#include "rt/calibrate.h"
#include "train/run/run.h"

pl_status pl_run_measure(pl_run *r, double seconds, int *steps, int *units)
{
    enum { WARM = 2, LEAST = 5, MOST = 64 };
    pl_measure *m = NULL;
    pl_step_info info;
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "the run is not started");
    for (int i = 0; i < WARM; i++) PL_TRY(pl_run_step(r, &info));
    PL_TRY(pl_measure_new(r->session, MOST, &m));
    pl_status rc = PL_OK;
    uint64_t begin = pl_sys_now_ns();
    int n = 0;
    while (rc == PL_OK && n < MOST &&
           (n < LEAST || (double)(pl_sys_now_ns() - begin) < seconds * 1e9)) {
        rc = pl_run_step(r, &info);
        pl_measure_take(m);
        n++;
    }
    if (rc == PL_OK) rc = pl_measure_save(m, units);
    if (rc == PL_OK) *steps = n;
    pl_measure_free(m);
    return rc;
}
