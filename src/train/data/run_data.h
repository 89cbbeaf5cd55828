/* run_data.h - the data of a run, and one batch of it. source.h opens and reads them.
 *
 * At most one of dataset and images is open; texts may be open together with images or alone.
 * Without any of them the recipe generates its samples.
 */
#ifndef PL_TRAIN_RUN_DATA_H
#define PL_TRAIN_RUN_DATA_H

#include "plimsoll_train.h"

typedef struct pl_run_data {
    struct pl_dataset *dataset; /* arrays of data.path; NULL */
    struct pl_images *images;   /* images of data.path; NULL */
    struct pl_texts *texts;     /* of data.prompts; NULL */
    void *recipe;               /* context of the recipe's data_read, once recipe_open */
    bool recipe_open;
    struct pl_classes *classes; /* names of labels, once classes_known; NULL: there are none */
    bool classes_known;
    int64_t outputs;                /* classes of the network (pl_builder_outputs); 0: not told */
    bool encode_eval;               /* PL_GOAL_ENCODE: the samples of evaluations are encoded too */
    struct pl_prefetch *prefetch;   /* reads ahead on worker threads; NULL: not started */
    struct pl_index_input *indices; /* inputs that pick rows; ends with a NULL name */
    const char *warning;            /* see pl_run_start_warning; NULL */
} pl_run_data;

/* The handle behind pl_batch_input: finds the memory of an input. */
struct pl_batch {
    void *(*find)(void *ctx, const char *name, pl_type *type);
    const char *(*input_at)(void *ctx,
                            int i); /* name of input i, NULL past the last; pl_source_read */
    void *find_ctx;
    const int64_t *passes; /* of each sample; NULL: all 0 */
};

/* A batch to read: which samples, into which memory, with which threads. */
typedef struct pl_read_job {
    pl_subset subset;
    int bucket;
    int64_t *samples, *passes; /* `rows` of them */
    int64_t rows;              /* r->build->micro */
    pl_batch *batch;
    int thread, n_threads; /* scratch memory of threads [thread, thread + n_threads) may be used */
    bool bytes;            /* images of pl__images_as_bytes are written as bytes */
    int64_t number;        /* of the training batch; -1: not a training batch */
    void *extra;           /* mix_batch.c: memory for one more sample, pl__mix_bytes */
} pl_read_job;

/* Opens the recipe's own data, once. */
pl_status pl__recipe_data_open(pl_run *r) PL_MUST_USE;
/* Writes samples of the recipe's own data, which is open, into a batch. */
pl_status pl__recipe_data_read(pl_run *r, pl_subset subset, const int64_t *sample, int n,
                               pl_batch *batch) PL_MUST_USE;
/* Samples of the recipe's own data; 0: endless. */
int64_t pl__recipe_samples(const pl_run *r, pl_subset subset);
/* Sets the number of samples that generate writes: the requested number, otherwise all that the
 * recipe has. */
pl_status pl__generate_count(pl_run *r, pl_subset subset, int64_t asked, int64_t *out) PL_MUST_USE;
/* Returns the number of samples of the training set; 0: endless. */
int64_t pl__run_samples(pl_run *r);
/* cache_write.c: compares what training reads from a cache with what the built encoder gives. */
pl_status pl__cache_check_reader(pl_run *r) PL_MUST_USE;

#endif
