/* choice.h - algorithms chosen by timing, remembered in the process and on disk.
 *
 * A problem is a text key; a choice is a small text. The file, one for each card and pair of
 * library versions, lies in pl_cuda_cache_dir(); without a folder choices live as long as the
 * process. One problem has one choice for all processes that share the folder, so that results do
 * not depend on which node asks, or which run.
 */
#ifndef PL_CUDA_CHOICE_H
#define PL_CUDA_CHOICE_H

#include "cuda/device/cuda.h"

/* false: never timed. value is cut to cap. */
bool pl_cuda_choice_get(const char *key, char *value, size_t cap);
/* The first value put under a key stays, by whichever process: value is then that one. Processes
 * that start at the same time thus choose alike, and so do those that come later. Trouble with the
 * disk is ignored. */
void pl_cuda_choice_put(const char *key, char *value, size_t cap);

/* Milliseconds of one run(ctx) on the stream, as part of a step: the least of several, after a
 * warm-up. */
pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms) PL_MUST_USE;

#endif
