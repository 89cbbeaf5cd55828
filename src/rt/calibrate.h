/* calibrate.h - what the units of a program are expected to take, and measuring it.
 *
 * A unit's time comes from the first that knows it:
 *   measured    the device's table of times (plan/cost/cost_table.h) has this very unit
 *   calibrated  the table has units of its kind
 *   estimated   arithmetic and bytes at the rates of a card (plan/cost/cost_card.h) or of a usual CPU
 * Tables lie in the cache folder, one a device (model, threads, version). Compiling reads the
 * table, only measuring on request writes it.
 */
#ifndef PL_RT_CALIBRATE_H
#define PL_RT_CALIBRATE_H

#include "rt/rt_int.h"

/* Nanoseconds of every base unit, and p's time_source and copy times. Units are prepared. */
pl_status pl_program_time(pl_program *p, double *cost_ns) PL_MUST_USE;
/* Bytes of scratch of a base unit that is prepared: what it asked for, or on a card that is not
 * here what it is expected to ask for. */
uint64_t pl_program_scratch(const pl_program *p, uint32_t unit);
/* Of a base unit if it multiplied the other 16-bit type; its own time where it multiplies none, or
 * where that is no estimate of a card's. */
double pl_program_swapped_ns(const pl_program *p, uint32_t unit);
/* Of one copy at the end of a run. */
double pl_copy_ns(const pl_program *p, uint64_t bytes);

/* ---- measuring -------------------------------------------------------------------------- */
typedef struct pl_measure pl_measure;

/* Starts to time every launch of the session's programs, which have run before; at most `most`
 * takes are kept. */
pl_status pl_measure_new(pl_session *s, int most, pl_measure **out) PL_MUST_USE;
/* One take: what ran since the last one (or the beginning). Call it after a step. */
void pl_measure_take(pl_measure *m);
/* Adds the takes (of each launch the median) to the device's table on disk, and stops timing.
 * *units (may be NULL): how many. */
pl_status pl_measure_save(pl_measure *m, int *units) PL_MUST_USE;
void pl_measure_free(pl_measure *m); /* NULL is fine */
/* What each of n launches timed one by one takes more than in a run as a whole, which takes `whole`
 * (0: not known). */
double pl_measure_excess(const double *ns, uint32_t n, double whole);

#endif
