/* report.h - the contents of a run folder, read for `plimsoll report` and `plimsoll watch`. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Columns of a row of measurements; NaN: not logged. */
enum { COL_STEP, COL_LOSS, COL_LR, COL_NORM, COL_MS, COL_WAIT, COL_USED, N_COLS };

/* A term of the loss: a curve of its own. Cells as in the rows of measurements. */
typedef struct report_term {
    char *name;
    double *cell; /* one per row; NaN: the term was not computed */
    int64_t in;   /* values merged into the last cell */
} report_term;

/* The state of reading the log: the values read so far, and enough to notice that the file was
 * replaced. */
typedef struct report_log {
    int64_t at, last_at; /* bytes that were read; where the last complete line begins */
    char *last;          /* that line */
    uint64_t file;       /* inode */
    double quiet_s;      /* seconds since the file changed */
    int64_t in;          /* steps merged into the last row */
} report_log;

typedef struct report {
    const char *dir;
    char *plan_text, *config; /* texts of plan.json and config.yaml */
    json_t *plan;
    json_t *evals;         /* array of objects, step and metrics */
    json_t *samples;       /* array of objects: step, name and path of a picture */
    json_t *end, *error;   /* the event that ended the run; NULL: not ended, or it goes on */
    json_t *tail;          /* the last events */
    json_t *phase;         /* the last phase event; NULL: none */
    double (*row)[N_COLS]; /* each the mean of `stride` steps */
    int n;
    report_term *term; /* in the order in which the log names them */
    int n_terms;
    int64_t steps, checkpoints, stride;
    /* measured bytes: at step 10 (or the last step before), at the last step, the most */
    uint64_t used_first, used_last, used_most;
    report_log log;
} report;

/* report_read.c: reads a run folder. False: an error was printed. */
bool report_read(report *r, const char *dir);
/* Reads new lines of the log; all of it when it was cut or replaced. False: the log cannot be
 * read. */
bool report_follow(report *r);
void report_release(report *r);
/* Returns whether the report shows picture i: the first, the last and two between of each name.
 * Writes its path inside the run folder into file (cap bytes). */
bool report_shows(const report *r, size_t i, char *file, size_t cap);
/* Mean of a column; NaN without rows. */
double report_mean(const report *r, int column);

/* report_html.c: the page. live: the page of `plimsoll watch`, a member "live" of report_run_json;
 * NULL: a report. */
void report_html(const report *r, const json_t *live, FILE *f);
/* The object that the page reads: measurements, configuration, pictures. */
void report_run_json(const report *r, const json_t *live, FILE *f);
/* Writes a JSON value that is safe inside a script element. */
void report_put_json(const json_t *v, FILE *f);
/* Writes the rows of measurements as an array of arrays, null where there is no number. */
void report_put_rows(const report *r, FILE *f);
/* Writes the terms of the loss as an array of {name, points}, points as [step, value]. */
void report_put_terms(const report *r, FILE *f);
void report_markdown(const report *r, FILE *f);

/* report_compare.c: several runs beside each other, as a page or as a document. */
bool compare_write(const report *runs, int n, bool markdown, FILE *f);

#endif
