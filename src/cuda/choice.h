/* choice.h - algorithms chosen by timing, remembered in the process and on disk.
 *
 * A problem is a text key; a choice is a small text. The file, one for each card and pair of
 * library versions, lies in pl_cuda_cache_dir(); without a folder choices live as long as the
 * process. One problem has one choice while the process lives, so that its results do not
 * depend on which node asks.
 */
#ifndef PL_CUDA_CHOICE_H
#define PL_CUDA_CHOICE_H

#include "cuda/cuda.h"

/* false: never timed. value is cut to cap. */
bool pl_cuda_choice_get(const char *key, char *value, size_t cap);
/* The first value put under a key stays. Trouble with the disk is ignored: it costs time only. */
void pl_cuda_choice_put(const char *key, const char *value);

/* Milliseconds of one run(ctx) on the stream: the least of several, after a warm-up. */
pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms) PL_MUST_USE;

#endif
