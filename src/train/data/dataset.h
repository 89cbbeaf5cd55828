/* dataset.h - arrays on disk as the source of a run: one array per input, one row per sample.
 *
 *     DIR/train/frames.npy          [N, ...]   row i is input "frames" of sample i
 *     DIR/train/frames/0.npy, ...              the same in pieces, in the order of their names;
 *                                              also 0.safetensors, 0.h5, ...
 *     DIR/train.npz, .safetensors, .h5         arrays "frames", "target", ... in one file
 *     DIR/train.csv                            columns of numbers
 *     DIR/train/0.safetensors, ...             the same in pieces
 *     DIR/eval/...                             likewise; also val, valid, validation, test
 *     DIR/frames.npy, FILE.npz, FILE.csv, ...  a training set without a folder `train`
 *
 * Without evaluation files a share of the training rows is held out: of every 1/share rows one, by
 * a hash, the same in every run.
 *
 * Every input of the programs has an array; each row has the dtype and shape of one sample. Rows
 * are read directly into the inputs: nothing is kept in memory or allocated after opening. Errors
 * are PL_ERR_DATA and name the file.
 */
#ifndef PL_TRAIN_DATASET_H
#define PL_TRAIN_DATASET_H

#include "train/run/run.h"

typedef struct pl_dataset pl_dataset;

typedef struct pl_dataset_opts {
    const char *fields;     /* "input=name,..." for arrays with other names; "": none */
    const pl_run *train;    /* its step programs read training samples; NULL: none are read */
    const pl_program *eval; /* reads evaluation samples; NULL: none are read */
    bool folded;            /* evaluations read the training set too (data.folds) */
    bool mixed;             /* inputs of pl__mix_fills are not in the files */
    double eval_share;      /* of a set without evaluation files; 0: none */
} pl_dataset_opts;
pl_status pl_dataset_open(const char *dir, const pl_dataset_opts *o, pl_dataset **out) PL_MUST_USE;
void pl_dataset_close(pl_dataset *d);
int64_t pl_dataset_rows(const pl_dataset *d, pl_subset subset);
/* Returns the path of the file with a row of an input, for messages; "" if there is none. */
const char *pl_dataset_path(const pl_dataset *d, pl_subset subset, const char *input, int64_t row);
pl_status pl_dataset_read(const pl_dataset *d, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch) PL_MUST_USE;
/* Returns the name of an input's array in the files, by `fields` (above); NULL: out of memory. */
const char *pl_dataset_field(pl_arena *mem, const char *fields, const char *input);
/* Returns the memory of the processes that read HDF5 files below dir, as one array for each of
 * n_inputs; row_bytes: of one sample. 0: there are none, or this process reads them itself. */
uint64_t pl_dataset_process_bytes(const char *dir, int n_inputs, uint64_t row_bytes);
/* "train" or "eval". */
const char *pl_subset_name(pl_subset subset);

#endif
