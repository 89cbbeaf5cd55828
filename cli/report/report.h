/* report.h - the contents of a run folder, read for `plimsoll report`. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Columns of a row of measurements; NaN: not logged. */
enum { COL_STEP, COL_LOSS, COL_LR, COL_NORM, COL_MS, COL_WAIT, COL_USED, N_COLS };

typedef struct report {
    const char *dir;
    char *plan_text, *config; /* texts of plan.json and config.yaml */
    json_t *plan;
    json_t *evals;         /* array of objects, step and metrics */
    json_t *samples;       /* array of objects: step, name and path of a picture */
    json_t *end;           /* the last end event, NULL while it runs */
    double (*row)[N_COLS]; /* each the mean of `stride` steps */
    int n;
    int64_t steps, checkpoints, stride;
    /* measured bytes: at step 10 (or the last step before), at the last step, the most */
    uint64_t used_first, used_last, used_most;
} report;

/* Reads a run folder. False: an error was printed. */
bool report_read(report *r, const char *dir);
void report_release(report *r);
/* Returns whether the report shows picture i: the first, the last and two between of each name.
 * Writes its path inside the run folder into file (cap bytes). */
bool report_shows(const report *r, size_t i, char *file, size_t cap);
void report_html(const report *r, FILE *f);
void report_markdown(const report *r, FILE *f);

#endif
