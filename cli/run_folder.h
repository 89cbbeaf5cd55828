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
    bool told; /* the failure that was returned has been printed */
} run_folder;

/* Opens and locks RUN and, unless fresh, finds the checkpoint to go on from and compares its
 * configuration: what changed is told, what cannot be continued is an error. Call before building. */
pl_status folder_open(run_folder *f, pl_run *run, bool fresh);
/* Writes config.yaml and opens log.jsonl, cut to the checkpoint's position. */
pl_status folder_begin(run_folder *f, pl_run *run);
void folder_close(run_folder *f);

/* Whether a save is due after this step, by steps or by time. */
bool folder_due(const run_folder *f, int64_t step);
/* Saves unless this step is saved already; evaluated: what was due at it is done. */
pl_status folder_save(run_folder *f, pl_run *run, bool evaluated);
/* Looks at an evaluation: *best when it is the best so far, so that a save should follow. */
pl_status folder_judge(run_folder *f, int64_t step, const pl_eval_info *e, bool *best);

#endif
