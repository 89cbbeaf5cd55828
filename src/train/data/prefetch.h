/* prefetch.h - what a run trains on: where batches come from and how they get into a program's
 * inputs.
 *
 * The source is the recipe's own data, arrays on disk (dataset.h) or images (data/sets/images.h),
 * by the keys `data.source` and `data.path`. Training batches are read ahead by worker threads
 * (data/sets/loader.h) into a ring that pl_prefetch_bytes counts; with data.workers=0, and for
 * evaluation, they are read by the caller straight into the program's inputs. Batch b of a subset
 * is the same bytes either way.
 */
#ifndef PL_TRAIN_PREFETCH_H
#define PL_TRAIN_PREFETCH_H

#include "train/run/train_int.h"

typedef struct pl_prefetch pl_prefetch;

/* Opens the data and starts the workers; into r->data.prefetch. The session exists. */
pl_status pl_prefetch_open(pl_run *r) PL_MUST_USE;
void pl_prefetch_close(pl_run *r);
/* Samples of a subset; 0: endless. */
int64_t pl_prefetch_size(pl_run *r, pl_subset subset);
/* Whether a set on disk has no samples for a subset (a size of 0 is otherwise endless). */
bool pl_prefetch_lacks(pl_run *r, pl_subset subset);
/* Batch number `batch` (of r->build->micro samples) of the training stream into the inputs of a program.
 * The programs of a step read the same batch one after the other. */
pl_status pl_prefetch_read(pl_run *r, pl_program *p, int64_t batch) PL_MUST_USE;
/* The bucket that a step's batch is of; 0 without buckets. */
int pl_prefetch_bucket(const pl_run *r, int64_t step);
/* How many of the first `total` evaluation samples are of a bucket. */
int64_t pl_prefetch_eval_rows(const pl_run *r, int bucket, int64_t total);
/* Of those, numbers first to first + rows - 1, again and again until the batch is full, into the
 * inputs of the bucket's evaluation program. */
pl_status pl_prefetch_eval(pl_run *r, int bucket, int64_t first, int64_t rows) PL_MUST_USE;
/* The same, without buckets or of the first, into the inputs of another program that has some of
 * them; past the last sample comes the first. */
pl_status pl_prefetch_eval_into(pl_run *r, pl_program *p, int64_t first, int64_t rows) PL_MUST_USE;
/* Samples first to first + rows - 1 of a subset as they stand in it, the last of them until the
 * batch is full. Without buckets. */
pl_status pl_prefetch_rows(pl_run *r, pl_subset subset, pl_program *p, int64_t first,
                           int64_t rows) PL_MUST_USE;
/* Of a micro-batch of samples from all over the training set, with their number: two sets of data
 * that differ have two. With buckets, of the number alone. Before the first step. */
pl_status pl_prefetch_hash(pl_run *r, uint64_t *out) PL_MUST_USE;
/* Whether pl_prefetch_read of this training batch would not wait for a worker. */
bool pl_prefetch_ready(pl_run *r, int64_t batch);
/* Host memory that pl_prefetch_open will take; for planning, after build. */
uint64_t pl_prefetch_bytes(const pl_run *r);

#endif
