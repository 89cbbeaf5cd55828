/* checkpoint.h - internals that the files of checkpoints share; the contract is
 * plimsoll_checkpoint.h. */
#ifndef PL_TRAIN_CHECKPOINT_H
#define PL_TRAIN_CHECKPOINT_H

#include "plimsoll_checkpoint.h"
#include "train/run/run.h"

enum { PL_PATH_BYTES = 4096 };

/* Writes dir/name to out; PL_ERR_IO when it is too long. */
pl_status pl__path(char out[PL_PATH_BYTES], const char *dir, const char *name) PL_MUST_USE;
pl_status pl__manifest_write(const char *path, const pl_checkpoint *c) PL_MUST_USE;
/* Reads the members without comparing the checksum, for fuzzers. */
pl_status pl__manifest_members(const char *text, size_t len, const char *name,
                               pl_checkpoint *out) PL_MUST_USE;
/* Removes the files that a checkpoint may hold, and the folder if it is then empty. */
void pl__checkpoint_remove(const char *dir);
/* Removes the files (not folders) of dir whose name matches a shell pattern. */
void pl__remove_matching(const char *dir, const char *pattern);

#endif
