/* text_set.h - text as an input: prompts as the samples of a run, captions of images, and their
 * embeddings.
 *
 * The recipe's pl_image_feed names the input (text) and the function that converts a caption to a
 * row of it (encode). With data.embeddings the row is read instead: row k of that array belongs to
 * line k of data.prompts, and a caption's row is the row of the line equal to it.
 */
#ifndef PL_TRAIN_TEXTS_H
#define PL_TRAIN_TEXTS_H

#include "train/run/run.h"

/* Whether the lines of data.prompts are the samples. */
bool pl__prompts_wanted(const pl_run *r);
/* Opens data.prompts and data.embeddings, where set, into r->data.texts. */
pl_status pl__texts_open(pl_run *r) PL_MUST_USE;
void pl__texts_close(pl_run *r);

int64_t pl__prompts_size(const pl_run *r, pl_subset subset);
/* Writes the rows of the text input for n samples that are prompts. */
pl_status pl__prompts_read(pl_run *r, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch) PL_MUST_USE;
/* Writes row i of the text input, if the program has one, from a caption. */
pl_status pl__text_write(pl_run *r, const char *caption, int64_t i, pl_batch *batch) PL_MUST_USE;

#endif
