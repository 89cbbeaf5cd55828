/* metrics_table.h - metrics.csv of a run folder: one row per step.
 *
 * The first columns are the same in every run; then come the terms that the programs of the step
 * report. All columns are fixed before the first step. A later phase, or a program of another
 * version that resumes the run, may report further terms: their columns are appended when the table
 * is opened, and earlier rows get empty cells.
 */
#ifndef CLI_METRICS_TABLE_H
#define CLI_METRICS_TABLE_H

#include "plimsoll_train.h"

#include <stdio.h>

typedef struct metrics_table {
    FILE *f;       /* NULL: not open */
    char **column; /* columns of terms */
    int n;
} metrics_table;

/* Opens a table for appending and removes the rows of steps after `from` and an incomplete last
 * row. NULL: errno says why. */
FILE *table_open(const char *path, int64_t from);
/* fopen of a plain file; anything else (a pipe that nobody reads, a link of another user) is
 * refused without waiting. */
FILE *plain_open(const char *path, const char *mode);
/* Opens path. phases: the table has a column with the name of the phase. False: errno says why; the
 * table is closed. */
bool metrics_open(metrics_table *t, const char *path, const pl_run *run, int64_t from, bool phases);
/* Appends a row. used: bytes; phase: NULL without phases. False: errno says why. */
bool metrics_row(const metrics_table *t, const pl_step_info *s, uint64_t used, const char *phase);
void metrics_close(metrics_table *t);
/* Writes a comma and the number; nothing after the comma for NaN. */
void table_cell(FILE *f, double v);

#endif
