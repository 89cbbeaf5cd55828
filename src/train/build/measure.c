/* measure.c - times the kernels of a run, for the predictions of later plans.
 *
 * The kernels are timed inside training steps, where their operands are as warm in the caches as in
 * training. The run's weights change, so the caller must discard the run.
 */
#include "base/sys.h"
#include "rt/calibrate.h"
#include "train/run/run.h"

/* Trains for so many seconds, at least some steps, with every kernel timed. */
static pl_status take_steps(pl_run *r, double seconds, pl_measure **out, int *steps)
{
    enum { WARM = 2, LEAST = 5, MOST = 64 };
    pl_step_info info;
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "the run is not started");
    for (int i = 0; i < WARM; i++) PL_TRY(pl_run_step(r, &info));
    PL_TRY(pl_measure_new(r->session, MOST, out));
    pl_status rc = PL_OK;
    uint64_t begin = pl_sys_now_ns();
    int n = 0;
    while (rc == PL_OK && n < MOST &&
           (n < LEAST || (double)(pl_sys_now_ns() - begin) < seconds * 1e9)) {
        rc = pl_run_step(r, &info);
        pl_measure_take(*out);
        n++;
    }
    if (rc == PL_OK) *steps = n;
    return rc;
}

pl_status pl_run_measure(pl_run *r, double seconds, int *steps, int *units, double *waited)
{
    pl_measure *m = NULL;
    pl_status rc = take_steps(r, seconds, &m, steps);
    if (rc == PL_OK) *waited = pl_measure_waited(m);
    if (rc == PL_OK) rc = pl_measure_save(m, units);
    pl_measure_free(m);
    return rc;
}

/* Returns the answer even if the table of times cannot be written. */
pl_status pl_run_check_times(pl_run *r, double seconds, double factor, double *waited, char **text)
{
    pl_measure *m = NULL;
    pl_str lines = PL_STR_INIT;
    int steps, units;
    pl_status rc = take_steps(r, seconds, &m, &steps);
    if (rc == PL_OK) rc = pl_measure_off(m, factor, &lines);
    *waited = rc == PL_OK ? pl_measure_waited(m) : 0;
    bool any = rc == PL_OK && lines.len > 0, quiet = *waited <= PL_TIMES_BUSY;
    bool saved = any && quiet && pl_measure_save(m, &units) == PL_OK;
    (void)saved;
    if (any) rc = pl_str_take(&lines, text);
    if (rc == PL_OK && !any) *text = NULL;
    pl_str_release(&lines);
    pl_measure_free(m);
    return rc;
}
