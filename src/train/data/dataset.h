/* dataset.h - arrays on disk as the source of a run: one array per input, one row per sample.
 *
 *     DIR/train/frames.npy          [N, ...]   row i is input "frames" of sample i
 *     DIR/train/frames/0.npy, ...              the same in pieces, in the order of their names;
 *                                              also 0.safetensors, 0.h5, ...
 *     DIR/train.safetensors, DIR/train.h5      arrays "frames", "target", ... in one file
 *     DIR/train/0.safetensors, ...             the same in pieces
 *     DIR/eval/...                             likewise
 *
 * Every input of the program has an array; each row has the dtype and shape of one sample. Rows are
 * read directly into the program's inputs: nothing is kept in memory or allocated after opening.
 * Errors are PL_ERR_DATA and name the file.
 */
#ifndef PL_TRAIN_DATASET_H
#define PL_TRAIN_DATASET_H

#include "train/run/run.h"

typedef struct pl_dataset pl_dataset;

/* train or eval NULL: its files need not exist. folded: evaluations read the training set too.
 * fields: "input=name,..." for inputs whose arrays have other names; "": none. */
pl_status pl_dataset_open(const char *dir, const char *fields, const pl_program *train,
                          const pl_program *eval, bool folded, pl_dataset **out) PL_MUST_USE;
void pl_dataset_close(pl_dataset *d);
int64_t pl_dataset_rows(const pl_dataset *d, pl_subset subset);
/* Returns the path of the file with a row of an input, for messages; "" if there is none. */
const char *pl_dataset_path(const pl_dataset *d, pl_subset subset, const char *input, int64_t row);
pl_status pl_dataset_read(const pl_dataset *d, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch) PL_MUST_USE;
/* Returns the name of an input's array in the files, by `fields` (above); NULL: out of memory. */
const char *pl_dataset_field(pl_arena *mem, const char *fields, const char *input);
/* "train" or "eval". */
const char *pl_subset_name(pl_subset subset);

#endif
