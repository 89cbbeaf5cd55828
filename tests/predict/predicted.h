/* predicted.h - what the tests of predictions share: result files, and single evaluations of the
 * programs that predictions run. */
#ifndef PL_TESTS_PREDICTED_H
#define PL_TESTS_PREDICTED_H

#include "plimsoll_train.h"
#include "recipes/vae.h"

#include <stdbool.h>

/* All numbers of an .npy array of f32 in the test's folder, and its type; the caller frees them.
 * NULL: it cannot be read. */
float *predicted_numbers(const char *name, pl_type *type);
/* The pixels of a picture in the test's folder, 3 bytes each; the caller frees them. NULL: it
 * cannot be read. */
uint8_t *predicted_pixels(const char *name, int *width, int *height);
/* A metric of `eval --json`. */
double predicted_metric(const char *json, const char *name);

/* Starts a run for predictions, with the weights of a run folder below the test's folder; keys: n
 * further overrides. */
pl_status predicted_open(const char *folder, const char *const *keys, int n, pl_run **out);
/* The program of that name, NULL: the main one. */
pl_program *predicted_program(pl_run *run, const char *name);
/* Copies numbers into an input of a program. */
bool predicted_set(pl_run *run, pl_program *p, const char *name, const void *data, size_t bytes);
/* Runs a program and returns an output; NULL: it failed. */
const float *predicted_run(pl_run *run, pl_program *p, const char *output);

/* Element k of a weight, in the order of files. */
float predicted_weight(const char *name, int64_t k);
/* Builds a whole autoencoder for images of this side: "x", the decoder of latent "z" that fuses
 * features of "image" with this weight, and "moments" of the image. */
pl_status predicted_autoencoder(const vae_sizes *c, int64_t side, double weight, pl_graph *g);

#endif
