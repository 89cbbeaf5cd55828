/* plimsoll_checkpoint.h - checkpoints, and the run folder they lie in.
 *
 *     RUN/config.yaml                        resolved configuration
 *     RUN/log.jsonl                          one event a line
 *     RUN/lock                               held, with its number inside, by the process that trains
 *     RUN/checkpoints/step-00000120/         one checkpoint:
 *         model.safetensors                    weights, PyTorch's names and layouts
 *         state.safetensors                    everything else that a step changes, in our layout
 *         part-00000-of-00004.safetensors ...  of it, what ranks share: one file a rank
 *         config.yaml                          the configuration it was written under
 *         manifest.json                        position, notes, sizes and checksums; written last
 *     RUN/best -> checkpoints/step-...       with checkpoint.best
 *     RUN/phases/NAME/                       what a phase left
 *     RUN/model.safetensors                  at the end
 *
 * A checkpoint is written into a folder of another name, its files are fsynced, and the folder is
 * renamed: under its own name it is whole, or it was damaged later, and then the checksums say so.
 */
#ifndef PLIMSOLL_CHECKPOINT_H
#define PLIMSOLL_CHECKPOINT_H

#include "plimsoll_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one checkpoint --------------------------------------------------------------------- */
#define PL_MAX_NOTES 64
#define PL_MAX_PARTS 1024 /* files of ranks that share state, one each */

/* What manifest.json says. Of a checkpoint to be written, the caller sets log_bytes, evaluated and
 * notes. */
typedef struct pl_checkpoint {
    int64_t step;       /* optimiser steps done, over all phases */
    int64_t phase_step; /* in this phase: the position in data, schedules and draws */
    int phase;          /* number of the phase; -1: the run has none */
    char phase_name[64];
    int64_t samples;    /* of the training set; 0 when they never end */
    int64_t accumulate; /* micro-batches of a step */
    int threads;
    char recipe[64], version[32], device[64];
    char written[32];   /* UTC */
    uint64_t log_bytes; /* of log.jsonl when it was written */
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
} pl_checkpoint;

/* A number that is to be there again after a resume; not finite: removed. Too many are dropped. */
PL_API void pl_checkpoint_note(pl_checkpoint *c, const char *key, double value);
/* fallback when it was never noted. */
PL_API double pl_checkpoint_noted(const pl_checkpoint *c, const char *key, double fallback);

/* Reads the manifest; PL_ERR_FILE when it is none. */
PL_API pl_status pl_checkpoint_read(const char *dir, pl_checkpoint *out) PL_MUST_USE;
/* The same for a manifest in memory; name is for messages. */
PL_API pl_status pl_checkpoint_parse(const char *text, size_t len, const char *name,
                                     pl_checkpoint *out) PL_MUST_USE;
/* Reads the manifest and every byte of every file. PL_ERR_FILE names what is damaged. */
PL_API pl_status pl_checkpoint_verify(const char *dir, pl_checkpoint *out) PL_MUST_USE;

/* Writes the started run's state as the checkpoint `dir` and fills c. On failure nothing is left of
 * it; when the disk is full the message says how many bytes are missing. */
PL_API pl_status pl_checkpoint_save(pl_run *r, const char *dir, pl_checkpoint *c) PL_MUST_USE;
/* pl_run_start is to go on from this checkpoint, whose files were verified. Call it before
 * pl_run_build, which splits the batch as it was split (accumulate: auto). */
PL_API pl_status pl_run_resume(pl_run *r, const char *dir) PL_MUST_USE;
/* Steps done since the first start, over all phases; before pl_run_start those of earlier phases
 * only. */
PL_API int64_t pl_run_steps_done(const pl_run *r);
/* An evaluation, and the search for a plan, ends with PL_ERR_STOPPED as soon as *stop is not 0 (set
 * by a signal handler). */
PL_API void pl_run_set_stop(pl_run *r, const volatile int *stop);

/* ---- another configuration than the checkpoint's ---------------------------------------- */
typedef enum pl_change {
    PL_CHANGE_FREE,   /* changes no result */
    PL_CHANGE_ONWARD, /* changes how it goes on from here */
    PL_CHANGE_ROUND,  /* changes results by rounding only */
    PL_CHANGE_REFUSED /* the state does not belong to it */
} pl_change;
/* Calls each for every key that differs; *refused counts those that cannot be continued with. */
PL_API pl_status pl_checkpoint_compare(const pl_run *r, const char *dir,
                                       void (*each)(void *ctx, const char *key,
                                                    const char *old_value, const char *new_value,
                                                    pl_change change),
                                       void *ctx, int *refused) PL_MUST_USE;

/* ---- run folders ------------------------------------------------------------------------ */
typedef struct pl_folder pl_folder;

/* Makes the folder if need be, locks it and clears what a killed process left. PL_ERR_IO names the
 * process that holds it. */
PL_API pl_status pl_folder_open(const char *path, pl_folder **out) PL_MUST_USE;
PL_API void pl_folder_close(pl_folder *f);
/* Removes checkpoints, log, configuration and model: what Plimsoll wrote, nothing else. */
PL_API pl_status pl_folder_clear(pl_folder *f) PL_MUST_USE;
/* The newest checkpoint that is whole; dir (cap bytes) gets its path. damaged hears of each newer
 * one that is not, with the reason. c->step is 0 and dir "" when the folder has none at all;
 * PL_ERR_FILE when it has some and all are damaged. */
PL_API pl_status pl_folder_newest(pl_folder *f, pl_checkpoint *c, char *dir, size_t cap,
                                  void (*damaged)(void *ctx, const char *dir, const char *why),
                                  void *ctx) PL_MUST_USE;
/* Saves RUN/checkpoints/step-N, then removes older ones but for `keep` and the best. */
PL_API pl_status pl_folder_save(pl_folder *f, pl_run *r, pl_checkpoint *c,
                                int64_t keep) PL_MUST_USE;
/* The checkpoint of that step is the best so far; 0: there is none. */
PL_API pl_status pl_folder_set_best(pl_folder *f, int64_t step) PL_MUST_USE;
/* A copy of a file as RUN/name, whole or not at all. */
PL_API pl_status pl_folder_copy(pl_folder *f, const char *from, const char *name) PL_MUST_USE;
/* A small file in the folder, whole or not at all. */
PL_API pl_status pl_folder_write(pl_folder *f, const char *name, const char *text) PL_MUST_USE;

/* For looking, without a lock: steps of the checkpoints in a run folder, newest first; at most cap
 * are filled in, and how many there are is returned. 0 when it is no run folder. */
PL_API int pl_folder_steps(const char *path, int64_t *steps, int cap);
/* RUN/checkpoints/step-N. */
PL_API void pl_folder_checkpoint(const char *path, int64_t step, char *dir, size_t cap);
/* Step of the best checkpoint, 0 if none. */
PL_API int64_t pl_folder_best(const char *path);

#ifdef __cplusplus
}
#endif
#endif
