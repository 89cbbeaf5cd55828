/* images.h - a set of images (data/images.h) as the source of a run, through the recipe's pl_image_feed. */
#ifndef PL_TRAIN_IMAGES_H
#define PL_TRAIN_IMAGES_H

#include "train/train_int.h"

/* Whether data.source and data.path ask for images. */
bool pl__images_wanted(const pl_run *r);
/* Host memory for so many reading threads; 0 when no images are wanted. */
uint64_t pl__images_bytes(const pl_run *r, int threads);
pl_status pl__images_open(pl_run *r, int threads) PL_MUST_USE;
void pl__images_close(pl_run *r);
int64_t pl__images_size(const pl_run *r, pl_subset subset);
/* Sample at position p of the training stream. */
int64_t pl__images_pick(const pl_run *r, uint64_t seed, int64_t p);
/* Samples of batch number `number` into the batch. */
pl_status pl__images_read(pl_run *r, pl_subset subset, int64_t number, const int64_t *samples,
                          pl_batch *batch, int thread) PL_MUST_USE;

#endif
