/* trainer.h - what the files of `plimsoll train` share: the run that is going on and how it is
 * told. */
#ifndef CLI_TRAINER_H
#define CLI_TRAINER_H

#include "cli_phases.h"
#include "monitor.h"
#include "plimsoll_ranks.h"
#include "run_folder.h"

typedef struct trainer {
    pl_run *run;     /* with phases: the one that is going on */
    pl_run *list;    /* no phase is entered in it; it is `run` where there are none */
    pl_world *world; /* NULL: alone */
    bool shown_by_0; /* this rank makes pictures along with rank 0, which has the folder */
    const cli_args *args;
    const char *memory; /* --memory */
    run_folder folder;
    monitor monitor;
    const char *name;
    bool json, quiet, bar, fresh, trace_nan;
    bool over;    /* a phase has ended the run */
    bool begun;   /* log and configuration of the folder are open */
    bool resumes; /* it goes on from a checkpoint of the phase to begin with */
    /* this program has been started for a phase that follows one of the same run */
    bool continued;
    int phase; /* to begin with, and the steps of those before it */
    int64_t before;
    /* seconds that earlier programs of the run took, and the most that they held */
    double before_s;
    uint64_t peak;
    uint64_t *peaks;                /* of every rank, at the end; NULL */
    int largest;                    /* number of the phase that takes most; -1 */
    bool keep_plan;                 /* this phase's plan is the one in the run's folder */
    char handed[4096];              /* folder that phases leave their weights in */
    pl_json *events;                /* stdout with --json, else NULL */
    int64_t from;                   /* steps done before this process, or before this phase */
    int64_t first;                  /* steps done before this process */
    int64_t evaluated;              /* step of the last evaluation, -1 before */
    double began, started;          /* seconds: of this phase, of the first one here */
    double shown, data_ms, step_ms; /* seconds; sums since the last line */
    int64_t sample_every, pictured; /* pictured: step of the last pictures, -1 before */
    int64_t steps, log_every, eval_every, since; /* steps: the last one of this phase */
    char metric[64]; /* name of the recipe's metric, "" before the first evaluation */
    double metric_first, metric_last;
} trainer;

/* The phase that is going on; NULL without phases. */
const pl_phase *trainer_phase(const trainer *t);
/* Of this phase. */
int64_t trainer_step(const trainer *t, int64_t step);

bool trainer_stopped(const trainer *t); /* by a signal; of several ranks: agreed on by all */
/* The most that the process has held, in all phases. */
uint64_t trainer_peak(const trainer *t);

/* ---- cmd_train.c ---- */
void trainer_settings(trainer *t); /* of the run that is about to be built */
/* Builds and trains it; then what comes after the last phase, or when there is nothing to do. */
pl_status trainer_train(trainer *t);
pl_status trainer_finish(trainer *t);
int trainer_done(trainer *t);
int trainer_code(const trainer *t, pl_status rc);

/* ---- train_phases.c ---- */
/* Whether this program follows another of the same run. */
void phases_continue(trainer *t);
/* The phase that the folder's checkpoint is of. */
pl_status phases_find(trainer *t);
int train_phases(trainer *t); /* returns the exit code */

/* ---- train_events.c: one object a line, and lines for people ---- */
typedef struct picture_event {
    int64_t step;
    const char *name, *path; /* name NULL: arrays */
} picture_event;
typedef struct eval_event {
    int64_t step;
    const pl_eval_info *info;
} eval_event;
pl_status emit_plan(trainer *t);
pl_status emit_phase(trainer *t);
pl_status emit_step(trainer *t, const pl_step_info *s);
pl_status emit_eval(trainer *t, int64_t step, const pl_eval_info *e);
pl_status emit_checkpoint(trainer *t, int64_t step);
pl_status emit_picture(trainer *t, int64_t step, const char *name, const char *path);
pl_status emit_arrays(trainer *t, int64_t step, const char *path);
pl_status emit_end(trainer *t, int64_t steps);
void clear_bar(const trainer *t);
void show_bar(trainer *t, const pl_step_info *s);
void show_line(trainer *t, const pl_step_info *s);
void show_memory(trainer *t, int64_t step, bool asked);
void show_eval(trainer *t, int64_t step, const pl_eval_info *e);
void show_phase(trainer *t);

#endif
