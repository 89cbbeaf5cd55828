/* small_run.h - shared by tests of training: a small recipe, its samples and its run. */
#ifndef PL_TESTS_SMALL_RUN_H
#define PL_TESTS_SMALL_RUN_H

#include "plimsoll_train.h"

/* Noise in the inputs x and y, a pure function of the sample. */
pl_status small_run_noise(void *data, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch);
/* The smallest network that trains: y from x, two numbers a sample, by one linear layer "fc". */
pl_status small_run_linear(pl_builder *b);
/* A run of a recipe that is not registered: `keys` are n overrides. The caller
 * frees *out, also after a failure. */
pl_status small_run_open(const pl_recipe *recipe, const char *const *keys, int n, pl_run **out);

/* The losses of the first steps of a configuration and n overrides. */
pl_status small_run_losses(const char *config, const char *const *keys, int n, double *loss,
                           int steps);

/* The random weights of a configuration and n overrides (seed=...), saved. */
pl_status small_run_save(const char *config, const char *const *keys, int n, const char *path);

#endif
