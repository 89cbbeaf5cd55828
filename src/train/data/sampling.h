/* sampling.h - the order of samples in the endless stream of a run: a pure function of seed and
 * position, so that a resumed run needs one number to continue.
 */
#ifndef PL_TRAIN_SAMPLING_H
#define PL_TRAIN_SAMPLING_H

#include "plimsoll_train.h"

/* Returns the sample number at position p: each epoch is a permutation of [0, size) that depends on
 * seed and epoch only. */
int64_t pl__sample_at(uint64_t seed, int64_t size, int64_t p);

/* n buckets of size[k] samples, at least one of them not empty, in batches of `batch`. */
typedef struct pl_strata {
    const int64_t *size;
    int n;
    int64_t batch;
} pl_strata;
/* A batch of the run: its bucket, and its number among that bucket's batches. It has the samples at
 * positions [index * batch, (index + 1) * batch) of the bucket's own stream. */
typedef struct pl_stratum {
    int bucket;
    int64_t index;
} pl_stratum;
pl_stratum pl__stratum_at(uint64_t seed, const pl_strata *s, int64_t number);

/* data.folds: evaluations read the training samples [begin, end) of `size`, training the others. */
typedef struct pl_fold {
    int64_t begin, end, size;
} pl_fold;
/* Whether the run has folds; a run that fills a cache has none, it reads all samples. */
bool pl__folded(const pl_run *r);
/* Sets the fold; false when the configuration has no folds. */
bool pl__fold_of(const pl_config *c, int64_t size, pl_fold *f);
/* PL_ERR_CONFIG when that many samples cannot be divided into the folds. */
pl_status pl__fold_check(const pl_config *c, int64_t size) PL_MUST_USE;

#endif
