/* cache.h - outputs of a recipe's frozen encoder on disk (docs/DATA.md), and whether they are
 * stale.
 *
 *     DIR/cache.json                          the stamp; without it, or not "finished": no cache
 *     DIR/config.yaml                         the configuration that the cache was made with
 *     DIR/train/OUTPUT/00000.safetensors ...  rows of one output, in the order of the samples;
 *                                             the same in eval/
 *
 * The stamp has a hash of the encoder's weights; size, time and hash of every file that a key with
 * PL_CACHE_FILE or PL_CACHE_WEIGHTS names (pl_config_entry.cache); a hash of the names, sizes and
 * times of the data's files; and size and hash of every file of the cache. A run that reads the
 * cache compares everything except the weights' hash, which it cannot compute, and the values of
 * all keys that the encoder depends on.
 */
#ifndef PL_TRAIN_CACHE_H
#define PL_TRAIN_CACHE_H

#include "train/run/run.h"

/* Size, time and hash of a file, or the hash of a folder (stamp.c). */
typedef struct pl_stamp {
    uint64_t bytes;
    int64_t time_ns;
    uint64_t hash; /* file: of its bytes; folder: of names, sizes and times of its content */
} pl_stamp;
/* hash: also reads the bytes of a file. PL_ERR_DATA when the path does not exist. */
pl_status pl__stamp_path(const char *path, bool hash, pl_stamp *out) PL_MUST_USE;
/* Whether a file or folder is unchanged. A file of the same size but another time is compared by
 * its bytes. */
pl_status pl__stamp_same(const char *path, const pl_stamp *was, bool *same) PL_MUST_USE;

/* Whether samples come from a cache. */
bool pl__cache_wanted(const pl_run *r);
/* Whether the encoder's initial values come from the seed, not from a file. */
bool pl__cache_seeded(const pl_run *r);
/* Returns the key that names a file with the encoder's weights. */
const char *pl__cache_weights_key(const pl_run *r);
/* PL_ERR_CONFIG when the configuration requests random views, which a cache cannot provide. */
pl_status pl__cache_check_config(const pl_run *r) PL_MUST_USE;
/* Sets *fresh: whether the cache of data.cache may be used. If not, why has the reason: "data.crop
 * was center, is stretch". */
pl_status pl__cache_fresh(pl_run *r, bool *fresh, char *why, size_t cap) PL_MUST_USE;

/* A stamp that is being written. */
typedef struct pl_cache_file {
    const char *name; /* below the cache's folder */
    uint64_t bytes, hash;
} pl_cache_file;
typedef struct pl_cache_stamp {
    bool finished;
    uint64_t weights;
    int64_t samples[2]; /* by subset */
    const pl_cache_file *files;
    int n_files;
} pl_cache_stamp;
/* Writes cache.json and config.yaml into the folder of data.cache. */
pl_status pl__cache_stamp_write(pl_run *r, const pl_cache_stamp *s) PL_MUST_USE;

#endif
