/* mix_batch.h - mixup and CutMix (data/augment/mixing.h) of the batches of a run.
 *
 * A recipe whose training program has, for its label input L, the inputs L.mixed and L.share
 * (pl_builder_label_loss) trains on mixed batches: sample i of the step's whole batch is mixed with
 * sample i-1, the first with the last, however micro-batches and ranks divide the batch. L.mixed
 * gets the label of sample i-1, L.share the weight of sample i. Every input of pictures, f32 of
 * rank 4, is mixed.
 */
#ifndef PL_TRAIN_MIX_BATCH_H
#define PL_TRAIN_MIX_BATCH_H

#include "train/run/run.h"

/* Returns whether the configuration enables mixed batches. */
bool pl__mix_wanted(const pl_config *c);
/* Whether an input has a name that mixing fills: L.mixed or L.share. */
bool pl__mix_fills(const char *input);
/* PL_ERR_CONFIG when the configuration enables mixed batches and the training program has no label
 * or no pictures to mix. */
pl_status pl__mix_check(const pl_run *r) PL_MUST_USE;
/* Returns the bytes of pl_read_job.extra for a bucket: pictures and label of one sample. */
size_t pl__mix_bytes(const pl_run *r, int bucket);

/* A batch of one sample in pl_read_job.extra. */
typedef struct pl_mix_extra {
    const pl_read_job *job;
} pl_mix_extra;
pl_batch pl__mix_extra_batch(const pl_read_job *j, pl_mix_extra *where);
/* Mixes a batch whose samples, and the sample before its first in j->extra, have been read. A job
 * without a number is not mixed: its samples have a share of 1. */
void pl__mix_batch(const pl_run *r, const pl_read_job *j);

#endif
