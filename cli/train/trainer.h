/* trainer.h - the state of `plimsoll train`, shared by its files. */
#ifndef CLI_TRAINER_H
#define CLI_TRAINER_H

#include "cli_phases.h"
#include "hooks.h"
#include "monitor.h"
#include "plimsoll_ranks.h"
#include "run_folder.h"

typedef struct trainer {
    pl_run *run;     /* the run; with phases, the current phase */
    pl_run *list;    /* the run without a phase entered; equal to `run` without phases */
    pl_world *world; /* NULL: one process */
    bool shown_by_0; /* this rank samples with rank 0, which alone writes the pictures */
    const cli_args *args;
    const char *memory; /* --memory */
    run_folder folder;
    monitor monitor;
    hooks hooks;
    const char *name;
    bool json, quiet, bar, fresh, trace_nan;
    bool idle;    /* the run in the folder was complete: nothing was trained */
    bool over;    /* this phase ends the run */
    bool begun;   /* the files of the run folder are open */
    bool resumes; /* the first phase resumes from a checkpoint */
    /* this program was executed for a later phase of the same run */
    bool continued;
    int phase;      /* number of the first phase here */
    int64_t before; /* steps of the phases before it */
    /* seconds and peak bytes of the earlier phases, which ran before this program was executed */
    double before_s;
    uint64_t peak;
    uint64_t *peaks;                /* peak bytes of every rank, known at the end; NULL before */
    int largest;                    /* number of the phase that needs most memory; -1: none */
    bool keep_plan;                 /* plan.json is the plan of this phase */
    char handed[4096];              /* folder in which phases leave their weights */
    pl_json *events;                /* stdout with --json, else NULL */
    int64_t from;                   /* steps done when this phase started here */
    int64_t first;                  /* steps done when this process started */
    int64_t evaluated;              /* step of the last evaluation, -1 before */
    double began, started;          /* clock, seconds: start of this phase, of the run */
    double shown, data_ms, step_ms; /* clock of the last bar; sums since the last log line */
    int64_t sample_every, pictured; /* pictured: step of the last pictures; -1: none */
    int64_t steps, log_every, eval_every, since; /* steps: the last step of this phase */
    char metric[64]; /* name of the recipe's metric, "" before the first evaluation */
    double metric_first, metric_last;
} trainer;

/* Returns the current phase; NULL without phases. */
const pl_phase *trainer_phase(const trainer *t);
/* Converts a step of the run into a step of the current phase. */
int64_t trainer_step(const trainer *t, int64_t step);

/* Returns whether a signal asked to stop; with several ranks, once all of them agree. */
bool trainer_stopped(const trainer *t);
/* Returns the peak bytes of the process over all phases. */
uint64_t trainer_peak(const trainer *t);

/* ---- trainer.c ---- */
/* Trains the run, with or without phases; returns the exit code. */
int trainer_run(trainer *t);
/* Reads the settings of the run, or phase, that is built next. */
void trainer_settings(trainer *t);
/* Plans, starts and trains one run or phase. */
pl_status trainer_train(trainer *t);
/* Writes the model and the last lines, after the last phase. */
pl_status trainer_finish(trainer *t);
/* Says that the run in the folder is complete; returns the exit code. */
int trainer_done(trainer *t);
/* Returns the exit code for a status. */
int trainer_code(const trainer *t, pl_status rc);

/* ---- train_loop.c ---- */
pl_status trainer_loop(trainer *t); /* trains to the last step of the run or phase */

/* ---- train_phases.c ---- */
/* Reads from the environment whether this program was executed for a later phase. */
void phases_continue(trainer *t);
/* Finds the phase of the checkpoint in the run folder. */
pl_status phases_find(trainer *t);
int train_phases(trainer *t); /* returns the exit code */

/* ---- train_events.c: JSON events, and lines for people ---- */
typedef struct picture_event {
    int64_t step;
    const char *name, *path; /* name NULL: a file of arrays */
} picture_event;
typedef struct eval_event {
    int64_t step;
    const pl_eval_info *info;
} eval_event;
typedef struct error_event {
    int code;
    const char *message;
} error_event;
pl_status emit_plan(trainer *t);
pl_status emit_weights(trainer *t); /* table of the weights that were read from files, if any */
pl_status emit_phase(trainer *t);
pl_status emit_step(trainer *t, const pl_step_info *s);
/* Statistics of the first batch; nothing where the samples are made up. */
pl_status emit_batch(trainer *t);
pl_status emit_eval(trainer *t, int64_t step, const pl_eval_info *e);
pl_status emit_checkpoint(trainer *t, int64_t step);
pl_status emit_picture(trainer *t, int64_t step, const char *name, const char *path);
pl_status emit_arrays(trainer *t, int64_t step, const char *path);
pl_status emit_end(trainer *t, int64_t steps);
/* Reports that the run fails with this exit code. */
void emit_error(trainer *t, int code, const char *message);
void clear_bar(const trainer *t);
void show_bar(trainer *t, const pl_step_info *s);
void show_line(trainer *t, const pl_step_info *s);
void show_memory(trainer *t, int64_t step, bool asked);
void show_eval(trainer *t, int64_t step, const pl_eval_info *e);
void show_phase(trainer *t);

#endif
