/* plimsoll_checkpoint.h - checkpoints, and the run folder that contains them.
 *
 *     RUN/config.yaml                        resolved configuration
 *     RUN/log.jsonl                          one event per line
 *     RUN/lock                               locked by the training process; has its number
 *     RUN/checkpoints/step-00000120/         one checkpoint:
 *         model.safetensors                    weights, PyTorch's names and layouts
 *         state.safetensors                    everything else that a step changes, in our layout
 *         part-00000-of-00004.safetensors ...  sharded state, one file per rank
 *         config.yaml                          the configuration at that time
 *         manifest.json                        step, notes, sizes and checksums; written last
 *     RUN/best -> checkpoints/step-...       with checkpoint.best
 *     RUN/phases/NAME/                       results of a phase
 *     RUN/model.safetensors                  at the end
 *     RUN/finished.json                      written last: the results of the run, with checksums
 *
 * The save writes the files into a folder with a temporary name, fsyncs them, and renames the
 * folder. So a folder with the final name is complete, unless it was damaged later, which the
 * checksums show.
 */
#ifndef PLIMSOLL_CHECKPOINT_H
#define PLIMSOLL_CHECKPOINT_H

#include "plimsoll_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one checkpoint --------------------------------------------------------------------- */
#define PL_CHECKPOINT_FORMAT 1 /* of manifests that this version writes and reads */
#define PL_MAX_NOTES         64
#define PL_MAX_PARTS         1024 /* most files with sharded state, one per rank */

/* The contents of manifest.json. The caller of a save sets log_bytes, evaluated and the notes. */
typedef struct pl_checkpoint {
    int64_t step; /* steps done, over all phases */
    int64_t
        phase_step; /* steps done in this phase: determines data, schedules and random numbers */
    int phase;      /* number of the phase; -1: no phases */
    char phase_name[64];
    int64_t samples;    /* of the training set; 0: endless */
    int64_t accumulate; /* micro-batches per step */
    bool host_updates;  /* weights are updated on the host, beside a GPU */
    int threads;
    char recipe[64], version[32], device[64];
    char written[32];   /* UTC */
    uint64_t log_bytes; /* length of log.jsonl at the time of the save */
    bool evaluated;     /* the evaluation due at this step is done */
    uint64_t bytes;     /* of its files, without the manifest */
    struct {
        char name[32];
        uint64_t bytes, hash; /* XXH64 */
    } file[4 + PL_MAX_PARTS];
    int n_files;
    struct {
        char key[48];
        double value;
    } note[PL_MAX_NOTES];
    int n_notes;
    int64_t format; /* of the manifest; above PL_CHECKPOINT_FORMAT: a newer version wrote it */
} pl_checkpoint;

/* Stores a number in the checkpoint; a number that is not finite removes the note. Notes beyond
 * PL_MAX_NOTES are dropped. */
PL_API void pl_checkpoint_note(pl_checkpoint *c, const char *key, double value);
/* Returns a noted number, or fallback. */
PL_API double pl_checkpoint_noted(const pl_checkpoint *c, const char *key, double fallback);

/* Reads the manifest; PL_ERR_FILE when it is not valid. */
PL_API pl_status pl_checkpoint_read(const char *dir, pl_checkpoint *out) PL_MUST_USE;
/* The same for a manifest in memory; name is for messages. */
PL_API pl_status pl_checkpoint_parse(const char *text, size_t len, const char *name,
                                     pl_checkpoint *out) PL_MUST_USE;
/* Reads the manifest and every byte of every file. PL_ERR_FILE: a file is damaged; the message
 * names it. */
PL_API pl_status pl_checkpoint_verify(const char *dir, pl_checkpoint *out) PL_MUST_USE;

/* Writes the state of a started run as the checkpoint `dir` and fills c. On failure it removes the
 * incomplete files; when the disk is full the message says how many bytes are missing. */
PL_API pl_status pl_checkpoint_save(pl_run *r, const char *dir, pl_checkpoint *c) PL_MUST_USE;
/* Makes pl_run_start resume from this checkpoint, whose files were verified. Call it before
 * pl_run_build, which then uses the micro-batches of the checkpoint (accumulate: auto). */
PL_API pl_status pl_run_resume(pl_run *r, const char *dir) PL_MUST_USE;
/* Restores the weights, moments and statistics of a started run from one of its checkpoints. The
 * position in the data does not change: the batches since the checkpoint are left out. */
PL_API pl_status pl_run_rollback(pl_run *r, const char *dir) PL_MUST_USE;
/* Returns the steps done over all phases; before pl_run_start, the steps of earlier phases only. */
PL_API int64_t pl_run_steps_done(const pl_run *r);
/* Makes evaluation and planning return PL_ERR_STOPPED when *stop is not 0 (set by a signal). */
PL_API void pl_run_set_stop(pl_run *r, const volatile int *stop);

/* ---- comparing configurations with a checkpoint ---------------------------------------- */
typedef enum pl_change {
    PL_CHANGE_FREE,   /* changes no result */
    PL_CHANGE_ONWARD, /* changes training from the resumed step on */
    PL_CHANGE_ROUND,  /* changes results by rounding only */
    PL_CHANGE_REFUSED /* the state does not fit the configuration */
} pl_change;
/* Calls each for every key that differs; *refused counts keys that must not change on resume. */
PL_API pl_status pl_checkpoint_compare(const pl_run *r, const char *dir,
                                       void (*each)(void *ctx, const char *key,
                                                    const char *old_value, const char *new_value,
                                                    pl_change change),
                                       void *ctx, int *refused) PL_MUST_USE;

/* ---- run folders ------------------------------------------------------------------------ */
typedef struct pl_folder pl_folder;
/* Creates a folder and the missing folders above it. Succeeds if the folder exists. */
PL_API pl_status pl_folder_make(const char *path) PL_MUST_USE;

/* Creates the folder if necessary, locks it and removes temporary files of a killed process.
 * PL_ERR_IO names the process that has the lock. */
PL_API pl_status pl_folder_open(const char *path, pl_folder **out) PL_MUST_USE;
/* Unlocks the folder. Removes the folders that pl_folder_open created if they are still empty. */
PL_API void pl_folder_close(pl_folder *f);
/* Removes checkpoints, log, configuration and model: only files that Plimsoll wrote. */
PL_API pl_status pl_folder_clear(pl_folder *f) PL_MUST_USE;
/* Finds the newest checkpoint that passes its checksum; sets its path, dir (cap bytes). Calls
 * damaged for each newer checkpoint that is damaged, with the reason. c->step is 0 and dir "" when
 * the folder has no checkpoint; PL_ERR_FILE when all are damaged. */
PL_API pl_status pl_folder_newest(pl_folder *f, pl_checkpoint *c, char *dir, size_t cap,
                                  void (*damaged)(void *ctx, const char *dir, const char *why),
                                  void *ctx) PL_MUST_USE;
/* Saves RUN/checkpoints/step-N, then removes older checkpoints, except the newest `keep` and the
 * best. */
PL_API pl_status pl_folder_save(pl_folder *f, pl_run *r, pl_checkpoint *c,
                                int64_t keep) PL_MUST_USE;
/* Points RUN/best to the checkpoint of that step; 0: removes the link. */
PL_API pl_status pl_folder_set_best(pl_folder *f, int64_t step) PL_MUST_USE;
/* Returns PL_OK while the path of the folder leads to the folder that was locked. PL_ERR_FILE: the
 * folder was removed, moved or replaced, and its path may lead to files of another program. Every
 * function below that writes checks this first. */
PL_API pl_status pl_folder_mine(const pl_folder *f) PL_MUST_USE;
/* Marks the run as finished: writes RUN/finished.json, which lists the existing files of the n
 * names, with length and checksum, and RUN/SUMS.xxh64, which lists the other files outside
 * RUN/checkpoints. The files must be complete and synced. last: the last checkpoint. */
PL_API pl_status pl_folder_finish(pl_folder *f, const pl_checkpoint *last, const char *const *names,
                                  int n) PL_MUST_USE;
/* Removes RUN/finished.json, because the run continues. */
PL_API pl_status pl_folder_unfinish(pl_folder *f) PL_MUST_USE;
/* Reads RUN/finished.json, and every byte of the files that it lists; models_only: reads only the
 * files that can be written again from the last checkpoint, such as models. PL_ERR_FILE: the run is
 * not finished, or a file is missing or damaged. */
PL_API pl_status pl_folder_finished(const char *path, bool models_only,
                                    pl_checkpoint *out) PL_MUST_USE;
/* Name of the file with checksums of the other files of a run or of an export, in the format of
 * `xxhsum -c`. */
#define PL_SUMS "SUMS.xxh64"
/* Reads every file that dir/SUMS.xxh64 lists, calls bad for each file that is missing or damaged,
 * and sets *files to the number of listed files. PL_ERR_FILE: a file is missing or damaged. */
PL_API pl_status pl_sums_verify(const char *dir, void (*bad)(void *ctx, const char *why), void *ctx,
                                int *files) PL_MUST_USE;
/* Copies a file to RUN/name, completely or not at all. */
PL_API pl_status pl_folder_copy(pl_folder *f, const char *from, const char *name) PL_MUST_USE;
/* Writes a small file into the folder, completely or not at all. */
PL_API pl_status pl_folder_write(pl_folder *f, const char *name, const char *text) PL_MUST_USE;

/* Lists the steps of the checkpoints in a run folder, newest first, without a lock. Fills at most
 * cap and returns how many there are; 0 when it is not a run folder. */
PL_API int pl_folder_steps(const char *path, int64_t *steps, int cap);
/* Writes the path RUN/checkpoints/step-N. */
PL_API void pl_folder_checkpoint(const char *path, int64_t step, char *dir, size_t cap);
/* Returns the step of the best checkpoint; 0: none. */
PL_API int64_t pl_folder_best(const char *path);

#ifdef __cplusplus
}
#endif
#endif
