/* monitor.h - output of `plimsoll train` during a run: the line on a terminal, memory, and the
 * files metrics.csv, eval.csv and the TensorBoard events in the run folder.
 */
#ifndef CLI_MONITOR_H
#define CLI_MONITOR_H

#include "metrics_table.h"
#include "plimsoll_events.h"

#include <stdio.h>

typedef struct monitor {
    pl_run *run;
    const char *device; /* key `device` */
    /* the checkpoint that was resumed contains the evaluation of its step */
    bool evaluated;
    bool verbose;                        /* print warnings and summaries */
    int64_t steps, before, memory_every; /* steps: the last step; before: steps of earlier phases */
    const char *phase;                   /* NULL: no phases */
    double warn;                         /* share of the memory above which it warns */
    metrics_table metrics;               /* not open without a folder */
    FILE *evals;                         /* NULL without a folder */
    char dir[4096], evals_dir[4096];
    pl_events *events;
    uint64_t total, held; /* of the device, by all processes */
    uint64_t host_total, host_held;
    double asked; /* clock, seconds: when the four values above were read */
    bool warned_device, warned_host, warned_png;
    bool error_printed; /* the error that was returned has been printed */
} monitor;

/* Opens the files. dir NULL: no files. Evaluations go into phase_dir (NULL: into dir). After a
 * resume, drops the rows of later steps. last: last step of the run. */
pl_status monitor_open(monitor *m, pl_run *run, const char *dir, const char *phase_dir,
                       int64_t last, bool evaluated, bool verbose);
void monitor_close(monitor *m);
/* Returns when the rows and records so far are on the disk: a checkpoint says that they are. */
pl_status monitor_sync(monitor *m);
pl_status monitor_step(monitor *m, const pl_step_info *s);
/* Writes a picture of the sampling program as a file and to TensorBoard. Sets path (cap bytes); "":
 * no picture can be written on this machine; a warning appears once. */
pl_status monitor_picture(monitor *m, int64_t step, const pl_sheet *g, char *path, size_t cap);
/* Writes the arrays of the sampling program as a file. Sets path (cap bytes). */
pl_status monitor_arrays(monitor *m, int64_t step, char *path, size_t cap);
/* Flushes the pictures of a step to TensorBoard. */
pl_status monitor_pictures_end(monitor *m, int64_t step);
pl_status monitor_eval(monitor *m, int64_t step, const pl_eval_info *e);
/* Prints the memory summary: planned, held by the process, held on the device by all processes. */
void monitor_memory(monitor *m, FILE *out);
/* Returns whether to call monitor_tell: a summary is due, or memory should be read again. */
bool monitor_due(monitor *m, int64_t step, bool asked);
void monitor_tell(monitor *m, int64_t step, bool asked, FILE *out);

/* Writes the terms of a step that the recipe names (pl_recipe.shown): each as before, its name,
 * between, its value. Nothing where the step has none of them. */
void step_terms(const pl_run *run, const pl_step_info *s, const char *before, const char *between,
                char *out, size_t cap);
/* Writes the line of a terminal, at most `width` columns. elapsed: seconds; per: seconds per step;
 * wait: per cent. */
void step_line(monitor *m, const pl_step_info *s, double elapsed, double per, double wait,
               int width, char *out, size_t cap);

#endif
