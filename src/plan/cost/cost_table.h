/* cost_table.h - measured times of units, and estimates for units that were not measured.
 *
 * A table holds samples: a unit's fingerprint (op, attributes, types, kernel), its kind
 * ("conv.dnn.f32"), its cost and its nanoseconds. A unit with a known fingerprint has the measured
 * time; a unit of a known kind has a time interpolated from the kind's samples.
 *
 * A table is a text file that belongs to one owner (model of the device, threads, version of the
 * engine). It changes only when the user asks to measure, so two plans from one table are the same.
 */
#ifndef PL_PLAN_COST_TABLE_H
#define PL_PLAN_COST_TABLE_H

#include "base/arena.h"
#include "ir/op.h"

#define PL_TIME_KIND 48
typedef struct pl_time_sample {
    uint64_t unit;           /* fingerprint */
    char kind[PL_TIME_KIND]; /* no blanks */
    pl_cost cost;
    double ns;
} pl_time_sample;

typedef struct pl_time_table pl_time_table;

/* Reads the file. The table is empty for path NULL, if the file does not exist, is damaged, or
 * belongs to another owner. */
pl_status pl_time_table_load(const char *path, const char *owner, pl_time_table **out) PL_MUST_USE;
void pl_time_table_free(pl_time_table *t); /* NULL is fine */
/* Writes the whole file or nothing; drops the oldest samples beyond a fixed number. */
pl_status pl_time_table_save(const pl_time_table *t, const char *path,
                             const char *owner) PL_MUST_USE;

/* Replaces the sample of the same unit and kind. */
pl_status pl_time_table_put(pl_time_table *t, const pl_time_sample *s) PL_MUST_USE;
uint32_t pl_time_table_count(const pl_time_table *t);

/* Set the measured time, or the time interpolated from a kind; false: not known. The interpolated
 * time never falls as flops and bytes rise, for kinds whose work is PL_WORK_MOVE. */
bool pl_time_table_find(const pl_time_table *t, uint64_t unit, const char *kind, double *ns);
bool pl_time_table_like(pl_time_table *t, const char *kind, const pl_cost *cost, double *ns);

#endif
