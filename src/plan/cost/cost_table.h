/* cost_table.h - times that were measured, and what they tell of units that were not.
 *
 * A table holds samples: a unit's fingerprint (op, attributes, types, kernel), its kind (what it is
 * alike with: "conv.dnn.f32"), its cost and its nanoseconds. A unit with the same fingerprint takes
 * what was measured; one of a known kind takes what its size and shape make of the kind's samples.
 *
 * A table is a text file that belongs to one owner (a device's model, its threads, the engine's
 * version). It changes when something is measured on request and at no other time, so two plans
 * from one table are the same.
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

/* What the file says; an empty table when there is none, when it is damaged or somebody else's.
 * path NULL: empty. */
pl_status pl_time_table_load(const char *path, const char *owner, pl_time_table **out) PL_MUST_USE;
void pl_time_table_free(pl_time_table *t); /* NULL is fine */
/* Written whole or not at all; the oldest samples give way beyond a fixed number. */
pl_status pl_time_table_save(const pl_time_table *t, const char *path,
                             const char *owner) PL_MUST_USE;

/* Replaces the sample of the same unit and kind. */
pl_status pl_time_table_put(pl_time_table *t, const pl_time_sample *s) PL_MUST_USE;
uint32_t pl_time_table_count(const pl_time_table *t);

/* False when the table does not know. The second never falls as flops and bytes rise, for kinds
 * whose work is PL_WORK_MOVE. */
bool pl_time_table_find(const pl_time_table *t, uint64_t unit, const char *kind, double *ns);
bool pl_time_table_like(pl_time_table *t, const char *kind, const pl_cost *cost, double *ns);

#endif
