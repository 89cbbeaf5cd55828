/* run_folder.h - the run folder of `plimsoll train --out RUN`: resume or start, log, checkpoints.
 *
 * Every function does nothing without a folder (path is NULL).
 */
#ifndef CLI_RUN_FOLDER_H
#define CLI_RUN_FOLDER_H

#include "plimsoll_checkpoint.h"
#include "plimsoll_json.h"

typedef struct run_folder {
    const char *path; /* NULL: no folder */
    bool quiet;       /* print only warnings and errors */
    bool finished;    /* the run in the folder has all its steps and all its results */
    bool ended;       /* the run stopped early (stop.*) and stays stopped */
    pl_folder *folder;
    FILE *log_file;
    pl_json *log;
    pl_checkpoint last; /* the newest checkpoint, step 0: none; its notes go into the next one */
    char dir[4096];     /* folder of the checkpoint that is resumed; "": none */
    int64_t every, keep, saved; /* saved: step of the last checkpoint */
    double interval, saved_at;  /* seconds */
    char best[64];              /* metric, "" if none */
    bool best_is_max;
    int64_t best_step; /* 0: none */
    double best_value;
    int64_t before_step; /* the best before best_step, for a save that fails */
    double before_value;
    bool older_model;   /* the folder has models of an earlier, shorter run */
    bool keep_log;      /* append to the log without cutting it */
    bool error_printed; /* the error that was returned has been printed */
} run_folder;

/* Opens and locks RUN. Unless fresh, finds the newest checkpoint: sets dir and last. */
pl_status folder_lock(run_folder *f, bool fresh);
/* Reads the settings of the run, or phase, that is built next. resume: compares its configuration
 * with the checkpoint, prints what changed, fails on a change that cannot be resumed, and loads the
 * checkpoint. Otherwise forgets the notes about evaluations of an earlier phase. */
pl_status folder_enter(run_folder *f, pl_run *run, bool resume);
/* Writes config.yaml and opens log.jsonl, cut to the length it had at the checkpoint. run: with
 * phases, the run without a phase entered. */
pl_status folder_begin(run_folder *f, pl_run *run);
/* Points RUN/best to the best checkpoint of this run. A later one belongs to steps that were undone
 * by the resume, or to another phase. */
pl_status folder_settle_best(run_folder *f);
/* Makes RUN/phases/NAME, the folder for the results of a phase, and writes its path. */
pl_status folder_phase(const run_folder *f, const char *name, char *dir, size_t cap);
void folder_close(run_folder *f);

/* Returns whether a checkpoint is due after this step, by steps or by time. */
bool folder_due(const run_folder *f, int64_t step, int64_t phase_step);
/* Saves a checkpoint, unless this step has one. evaluated: the evaluation of this step is done. */
pl_status folder_save(run_folder *f, pl_run *run, bool evaluated);
/* Marks the run as finished, after everything else has been written and synced. */
pl_status folder_finish(run_folder *f);
/* Sets *best when the evaluation is the best so far; a save should follow. */
pl_status folder_judge(run_folder *f, int64_t step, const pl_eval_info *e, bool *best);

#endif
