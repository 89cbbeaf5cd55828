/* source.h - the samples of a run, wherever they come from.
 *
 * By data.source, data.path, data.prompts and data.cache the source is a cache of encoder outputs
 * (cache.h), images (image_set.h), arrays in files (dataset.h), prompts (text_set.h) or the
 * recipe's own data (generate.c). This file hides which: it reports how many samples there are,
 * chooses the samples of a training batch, and reads samples into a batch. Everything is a pure
 * function of the configuration and the batch number, so any thread may read any batch and a
 * resumed run reads the same batches.
 */
#ifndef PL_TRAIN_SOURCE_H
#define PL_TRAIN_SOURCE_H

#include "train/data/sampling.h"
#include "train/run/run.h"

/* Opens the source into r->data. readers: threads that will call pl_source_read. */
pl_status pl_source_open(pl_run *r, int readers) PL_MUST_USE;
void pl_source_close(pl_run *r);
/* Returns the key that names data of the user, whether the source is open or not; NULL: the
 * recipe's own data. */
const char *pl_source_real(const pl_run *r);
/* Returns the number of samples of a subset; 0: endless. */
int64_t pl_source_size(pl_run *r, pl_subset subset);
/* Whether a set on disk has no samples for a subset (a size of 0 is otherwise endless). */
bool pl_source_lacks(pl_run *r, pl_subset subset);
/* Sets the fold that evaluations read and training leaves out; false: none. */
bool pl_source_fold(pl_run *r, pl_fold *f);
/* Returns the bucket of a step's batch; 0 without buckets. */
int pl_source_bucket(const pl_run *r, int64_t step);
/* Writes n samples of training batch `number`, from row `first` on, and their passes: how often
 * each was trained on before. Rows are those of this rank's micro-batch, r->build->micro; rows
 * before and after it are the rows of the micro-batches and ranks around it. pooled: through the
 * shuffle buffer (data.pool). */
typedef struct pl_choice {
    int64_t number, first, n;
    bool pooled;
} pl_choice;
void pl_source_choose(pl_run *r, pl_choice c, int64_t *samples, int64_t *passes);
/* Reads a batch. PL_ERR_DATA when it has NaN or infinite values, unless data.allow_nonfinite. */
pl_status pl_source_read(pl_run *r, const pl_read_job *j) PL_MUST_USE;

#endif
