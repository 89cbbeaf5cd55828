/* choice.h - algorithms chosen by timing, stored in the process and on disk.
 *
 * A problem is a text key; a choice is a short text. The file, one for each GPU model and pair of
 * library versions, lies in pl_cuda_cache_dir(); without a folder choices live as long as the
 * process. One problem has one choice for all processes that share the folder, so results depend
 * neither on the node nor on the run.
 */
#ifndef PL_CUDA_CHOICE_H
#define PL_CUDA_CHOICE_H

#include "cuda/device/cuda.h"

#include <stdio.h>

/* Copies the choice for a key to value, truncated to cap. false: none is known. */
bool pl_cuda_choice_get(const char *key, char *value, size_t cap);
/* Proposes a choice. The first choice under a key stays, whichever process made it, and value
 * becomes that choice. So processes that start together choose alike. Disk errors are ignored. */
void pl_cuda_choice_put(const char *key, char *value, size_t cap);

/* A timed choice among the entries of a list that the library always gives in the same order. */
typedef struct pl_cuda_timed {
    int at;   /* position in the list; -1: none */
    float ms; /* its time; 0 or less: not known */
} pl_cuda_timed;
static inline bool pl_cuda_timed_parse(const char *value, int n, pl_cuda_timed *out)
{
    pl_cuda_timed t = {-1, 0};
    if (sscanf(value, "%d %f", &t.at, &t.ms) < 1 || t.at < 0 || t.at >= n) return false;
    *out = t;
    return true;
}
/* Reads the choice among n entries that is stored under a key. false: none, or not one of the n. */
static inline bool pl_cuda_timed_get(const char *key, int n, pl_cuda_timed *out)
{
    char value[48];
    return pl_cuda_choice_get(key, value, sizeof value) && pl_cuda_timed_parse(value, n, out);
}
/* Like pl_cuda_choice_put: *choice becomes the choice that stays, if it is one of the n. */
static inline void pl_cuda_timed_put(const char *key, int n, pl_cuda_timed *choice)
{
    char value[48];
    snprintf(value, sizeof value, "%d %.6f", choice->at, (double)choice->ms);
    pl_cuda_choice_put(key, value, sizeof value);
    (void)pl_cuda_timed_parse(value, n, choice);
}

/* Milliseconds that a process measures: choices are part of the time to the first step. After that
 * the expected kernels are taken, and stored like all choices. max-autotune has no limit. */
#define PL_CUDA_TIMING_MS 10000.0
bool pl_cuda_time_left(void);
/* Measures the milliseconds of one run(ctx) on the stream as part of a step: the minimum of several
 * runs, after a warm-up. */
pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms) PL_MUST_USE;
/* The same from two runs, for kernels that may be slow and need no fine comparison. */
pl_status pl_cuda_time_few(pl_status (*run)(void *ctx), void *ctx, float *ms) PL_MUST_USE;

#endif
