/* run_folder.h - the folder of a run, as `plimsoll train` uses it: go on or begin, log, save.
 *
 * Every function takes a folder that was never opened (no --out) and does nothing then.
 */
#ifndef CLI_RUN_FOLDER_H
#define CLI_RUN_FOLDER_H

#include "plimsoll_checkpoint.h"
#include "plimsoll_json.h"

typedef struct run_folder {
    const char *path; /* NULL: no folder */
    bool quiet;       /* no messages but warnings and errors */
    bool finished;    /* the run in it has all its steps and its model */
    bool ended;       /* it had ended before its last step (stop.*), and is to stay so */
    pl_folder *folder;
    FILE *log_file;
    pl_json *log;
    pl_checkpoint last; /* the newest one: step 0 before the first; its notes go into the next */
    char dir[4096];     /* of the one that is gone on from, "" if none */
    int64_t every, keep, saved; /* saved: step of the last checkpoint */
    double interval, saved_at;  /* seconds */
    char best[64];              /* metric, "" if none */
    bool best_is_max;
    int64_t best_step; /* 0: none */
    double best_value;
    bool older_model; /* models of the run as it was shorter are there */
    bool keep_log;    /* nothing of it was lost: it is gone on with as it is */
    bool told;        /* the failure that was returned has been printed */
} run_folder;

/* Opens and locks RUN and, unless fresh, finds the checkpoint to go on from: dir and last. */
pl_status folder_lock(run_folder *f, bool fresh);
/* The run, or the phase of it, that is about to be built: its settings. resume: it goes on from the
 * checkpoint, with whose configuration it is compared: what changed is told, what cannot be
 * continued is an error. Otherwise it begins, and what was noted of an earlier phase's evaluations
 * is forgotten. */
pl_status folder_enter(run_folder *f, pl_run *run, bool resume);
/* Writes config.yaml and opens log.jsonl, cut to the checkpoint's position. run: whose
 * configuration it is; with phases, the one that no phase was entered in. */
pl_status folder_begin(run_folder *f, pl_run *run);
/* RUN/best is the best checkpoint known: a newer one is of a past that was lost, or of another
 * phase. */
pl_status folder_settle_best(run_folder *f);
/* Folder of what a phase leaves, RUN/phases/NAME, which is made. */
pl_status folder_phase(const run_folder *f, const char *name, char *dir, size_t cap);
void folder_close(run_folder *f);

/* Whether a save is due after this step, by steps or by time. */
bool folder_due(const run_folder *f, int64_t step, int64_t phase_step);
/* Saves unless this step is saved already; evaluated: what was due at it is done. */
pl_status folder_save(run_folder *f, pl_run *run, bool evaluated);
/* Looks at an evaluation after some steps: *best when it is the best so far, so that a save should
 * follow. */
pl_status folder_judge(run_folder *f, int64_t step, const pl_eval_info *e, bool *best);

#endif
