/* calibrate.h - expected times of a program's units, and measuring them.
 *
 * A unit's time comes from the first source that has it:
 *   measured    the device's table of times (plan/cost/cost_table.h) has this very unit, or the
 *               device timed the kernel when it chose it (pl_exec.measured_ns)
 *   calibrated  the table has units of the same kind
 *   estimated   the device predicts it from arithmetic and bytes (pl_device.unit_ns)
 * Tables lie in the cache folder, one for each device (model, threads, version). Compiling reads
 * the table; only measuring on request writes it.
 */
#ifndef PL_RT_CALIBRATE_H
#define PL_RT_CALIBRATE_H

#include "base/str.h"
#include "rt/rt_int.h"

/* Sets the nanoseconds of every base unit, and p's time_source and copy times. Requires prepared
 * units. */
pl_status pl_program_time(pl_program *p, double *cost_ns) PL_MUST_USE;
/* Returns the scratch bytes of a prepared base unit: what its kernel requested, or what the device
 * expects where nothing can run. */
uint64_t pl_program_scratch(const pl_program *p, uint32_t unit);
/* Returns the expected time of a base unit if it multiplied the other 16-bit type; its own time
 * where its operands have no 16-bit type or its time is not an estimate. */
double pl_program_swapped_ns(const pl_program *p, uint32_t unit);
/* Returns the expected time of one copy at the end of a run. */
double pl_copy_ns(const pl_program *p, uint64_t bytes);

/* ---- measuring -------------------------------------------------------------------------- */
typedef struct pl_measure pl_measure;

/* Starts to time every unit of the session's programs, which must have run before; keeps at most
 * `most` samples, and at most PL_MEASURE_SAMPLES. */
enum { PL_MEASURE_SAMPLES = 64 };
pl_status pl_measure_new(pl_session *s, int most, pl_measure **out) PL_MUST_USE;
/* Records one sample: all runs since the last sample (or the beginning). Call it after a step, on
 * the thread that runs the programs. */
void pl_measure_take(pl_measure *m);
/* Returns the share of the time in which threads of the samples that count waited for a core that
 * other programs held; 0 for a device with its own clock. Samples above PL_TIMES_BUSY do not count,
 * unless fewer than three are below; then the three quietest count. */
double pl_measure_waited(const pl_measure *m);
/* Replaces pl_sys_waited_ns in measurements, for tests; NULL restores it. */
void pl_measure_set_waited(uint64_t (*waited_ns)(void));
/* Adds the median of each unit's samples to the device's table on disk, and stops timing. *units
 * (may be NULL): how many units were added. */
pl_status pl_measure_save(pl_measure *m, int *units) PL_MUST_USE;
/* Adds a line to `out` for each unit, at most PL_MEASURE_OFF of a program, whose time and predicted
 * time differ by more than `factor` and by 1 % of the program's time: those that matter most. */
enum { PL_MEASURE_OFF = 5 };
pl_status pl_measure_off(pl_measure *m, double factor, pl_str *out) PL_MUST_USE;
void pl_measure_free(pl_measure *m); /* NULL is fine */
/* Returns the constant to subtract from n units timed one by one, so that they sum to a whole run,
 * which takes `whole` ns. 0 where the whole is not known (0), or not less than the sum. */
double pl_measure_excess(const double *ns, uint32_t n, double whole);

#endif
