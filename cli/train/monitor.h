/* monitor.h - what `plimsoll train` tells of a run while it goes: the line on a terminal, memory,
 * and the files metrics.csv, eval.csv and TensorBoard's events in the run's folder.
 */
#ifndef CLI_MONITOR_H
#define CLI_MONITOR_H

#include "plimsoll_events.h"
#include "plimsoll_train.h"

#include <stdio.h>

typedef struct monitor {
    pl_run *run;
    const char *device; /* key `device` */
    /* the checkpoint that is gone on from has the evaluation of its step */
    bool evaluated;
    bool told;                           /* people read along: warnings and summaries are printed */
    int64_t steps, before, memory_every; /* steps: the last one; before: those of earlier phases */
    const char *phase;                   /* NULL: there are none */
    double warn;                         /* share of a memory */
    FILE *metrics, *evals;               /* NULL without a folder */
    char dir[4096], evals_dir[4096];
    pl_events *events;
    uint64_t total, held; /* of the device, by anyone */
    uint64_t host_total, host_held;
    double asked; /* seconds: when the four above were looked up */
    bool warned_device, warned_host;
    bool failed; /* the failure that was returned has been printed */
} monitor;

/* dir NULL: no files. Evaluations go into the folder of the phase (NULL: into dir). A started run
 * that goes on drops what the files have of later steps. last: its last step. */
pl_status monitor_open(monitor *m, pl_run *run, const char *dir, const char *phase_dir,
                       int64_t last, bool evaluated, bool told);
void monitor_close(monitor *m);
pl_status monitor_step(monitor *m, const pl_step_info *s);
/* A picture of the recipe's sampling program: a file and TensorBoard. path (cap bytes) gets the
 * file's. */
pl_status monitor_picture(monitor *m, int64_t step, const pl_sheet *g, char *path, size_t cap);
/* The arrays of the same, if it has any: a file. */
pl_status monitor_arrays(monitor *m, int64_t step, char *path, size_t cap);
/* All of a step's are there. */
pl_status monitor_pictures_end(monitor *m, int64_t step);
pl_status monitor_eval(monitor *m, int64_t step, const pl_eval_info *e);
/* Memory now: planned, of the process, of the device by anyone. */
void monitor_memory(monitor *m, FILE *out);
/* True when the lines above a terminal's are about to grow: a warning or a summary is due. */
bool monitor_due(monitor *m, int64_t step, bool asked);
void monitor_tell(monitor *m, int64_t step, bool asked, FILE *out);

/* The line of a terminal, at most `width` columns; elapsed seconds, seconds a step. */
void step_line(monitor *m, const pl_step_info *s, double elapsed, double per, double wait,
               int width, char *out, size_t cap);

#endif
