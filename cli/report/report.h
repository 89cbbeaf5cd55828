/* report.h - what a run folder says of its run, read for `plimsoll report`. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Of a step; NaN where there is none. */
enum { COL_STEP, COL_LOSS, COL_LR, COL_NORM, COL_MS, COL_WAIT, COL_USED, N_COLS };

typedef struct report {
    const char *dir;
    char *plan_text, *config; /* plan.json and config.yaml as they are */
    json_t *plan;
    json_t *evals;         /* array of objects, step and metrics */
    json_t *samples;       /* array of objects: step, name and path of a picture */
    json_t *end;           /* the last end event, NULL while it runs */
    double (*row)[N_COLS]; /* thinned: each the mean of `stride` steps */
    int n;
    int64_t steps, checkpoints, stride;
    /* measured: at the tenth step (or the last), now, most */
    uint64_t used_first, used_last, used_most;
} report;

bool report_read(report *r, const char *dir); /* false: said why */
void report_release(report *r);
/* Whether picture i is shown: of each name the first, the last and two between. file (cap bytes)
 * gets its path below the run's folder. */
bool report_shows(const report *r, size_t i, char *file, size_t cap);
void report_html(const report *r, FILE *f);
void report_markdown(const report *r, FILE *f);

#endif
