/* checkpoint.h - internals that the files of checkpoints share; the contract is
 * plimsoll_checkpoint.h. */
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "base/str.h"
#include "plimsoll_checkpoint.h"
#include "train/run/run.h"

enum { PL_PATH_BYTES = 4096 };
/* The manifest of the results of a run, in its folder. */
#define PL_FINISHED "finished.json"

/* Writes dir/name to out; PL_ERR_IO when it is too long. */
pl_status pl__path(char out[PL_PATH_BYTES], const char *dir, const char *name) PL_MUST_USE;
pl_status pl__manifest_write(const char *path, const pl_checkpoint *c) PL_MUST_USE;
/* Sets the length of a file and its XXH64 (pl_file_sum). */
pl_status pl__file_sum(const char *path, uint64_t *bytes, uint64_t *hash) PL_MUST_USE;
/* Adds the file dir/name, with its length and checksum. */
pl_status pl__manifest_add(const char *dir, const char *name, pl_checkpoint *c) PL_MUST_USE;
/* Reads the manifest dir/name. what: "a checkpoint", for the message when there is none. */
pl_status pl__manifest_read(const char *dir, const char *name, const char *what,
                            pl_checkpoint *out) PL_MUST_USE;
/* Reads every byte of the listed files whose names match a shell pattern. PL_ERR_FILE names the
 * first that is missing or damaged. */
pl_status pl__manifest_verify(const char *dir, const pl_checkpoint *c,
                              const char *pattern) PL_MUST_USE;
/* SUMS.xxh64 (folder_sums.c): adds the line of dir/name to s; of all plain files in dir whose names
 * match a pattern (the list ends with NULL), and of all below folders that do; writes
 * dir/SUMS.xxh64. Hidden and temporary files are left out. */
pl_status pl__sums_add(pl_str *s, const char *dir, const char *name) PL_MUST_USE;
pl_status pl__sums_add_all(pl_str *s, const char *dir, const char *const *patterns) PL_MUST_USE;
pl_status pl__sums_write(const char *dir, const pl_str *s) PL_MUST_USE;
/* Compares a file with the manifest of the checkpoint or run that it lies in; PL_OK when there is
 * none, or it does not list the file. */
pl_status pl__recorded_check(const char *path) PL_MUST_USE;
/* Reads the members without comparing the checksum, for fuzzers. */
pl_status pl__manifest_members(const char *text, size_t len, const char *name,
                               pl_checkpoint *out) PL_MUST_USE;
/* Removes the files that a checkpoint may hold, and the folder if it is then empty. */
void pl__checkpoint_remove(const char *dir);
/* Removes the files (not folders) of dir whose name matches a shell pattern. */
void pl__remove_matching(const char *dir, const char *pattern);

#endif
