/* prefetch.h - batches from the source (source.h) into the inputs of programs, read ahead where
 * that helps.
 *
 * Worker threads (data/sets/loader.h) read training batches ahead into a ring of buffers;
 * pl_prefetch_bytes reports its size to the plan. With data.workers=0, and in evaluations, the
 * caller reads directly into the program's inputs. A batch has the same bytes either way.
 */
#ifndef PL_TRAIN_PREFETCH_H
#define PL_TRAIN_PREFETCH_H

#include "train/run/run.h"

typedef struct pl_prefetch pl_prefetch;

/* Opens the source, starts the workers and sets r->data.prefetch. Requires the session. */
pl_status pl_prefetch_open(pl_run *r) PL_MUST_USE;
void pl_prefetch_close(pl_run *r);
/* Copies training batch number `batch`, of r->build->micro samples, into the inputs of a program.
 * The programs of a step read the same batch, one after the other. */
pl_status pl_prefetch_read(pl_run *r, pl_program *p, int64_t batch) PL_MUST_USE;
/* Returns how many of the first `total` evaluation samples belong to a bucket. */
int64_t pl_prefetch_eval_rows(const pl_run *r, int bucket, int64_t total);
/* Reads samples [first, first + rows) of a bucket into the inputs of its evaluation program, and
 * repeats them until the batch is full. */
pl_status pl_prefetch_eval(pl_run *r, int bucket, int64_t first, int64_t rows) PL_MUST_USE;
/* The same for the first bucket, into another program that has some of these inputs. After the last
 * sample it continues with the first. */
pl_status pl_prefetch_eval_into(pl_run *r, pl_program *p, int64_t first, int64_t rows) PL_MUST_USE;
/* Reads samples [first, first + rows) of a subset in their stored order, and repeats the last one
 * until the batch is full. Without buckets only. */
pl_status pl_prefetch_rows(pl_run *r, pl_subset subset, pl_program *p, int64_t first,
                           int64_t rows) PL_MUST_USE;
/* Hashes the number of training samples and one micro-batch of them, spread over the set, so that
 * another data set has another hash. With buckets it hashes the number only. Call it before the
 * first step. */
pl_status pl_prefetch_hash(pl_run *r, uint64_t *out) PL_MUST_USE;
/* Whether pl_prefetch_read of this batch would return without waiting for a worker. */
bool pl_prefetch_ready(pl_run *r, int64_t batch);
/* Returns the host memory that pl_prefetch_open will take. Requires built programs. */
uint64_t pl_prefetch_bytes(const pl_run *r);

#endif
