/* cuda_group_lab.h - a graph whose groups run as generated kernels on the simulator, beside the
 * CPU's. */
#ifndef PL_TEST_CUDA_GROUP_LAB_H
#define PL_TEST_CUDA_GROUP_LAB_H

#include "base/arena.h"
#include "pass/fuse/fuse.h"
#include "tests/cuda/cuda_text.h"

#include <stdbool.h>

typedef struct group_job {
    pl_store *store;
    pl_graph *g;
    pl_units *units[2]; /* fused, one node each */
    pl_code *code[2];   /* per unit */
    pl_arena arena;
    const char *name;
} group_job;

/* Fuses the job's graph both ways and hands its kernels to the shop, which is to be built before
 * they are checked. */
bool group_job_make(group_job *j, text_shop *shop);
void group_job_free(group_job *j);
/* The CPU's results within rounding, in place too, and the same bits in both partitions and in any
 * order of threads. */
bool group_job_check(const group_job *j, text_shop *shop);
/* Makes, builds and checks n jobs at once, and frees them. PL_TEST_COUNT prints how many kernels.
 */
bool group_jobs_check(group_job *jobs, int n);

/* The code of a graph's one group, as a card has it; false, and the test fails, where there is none
 * or another. */
bool group_code(const pl_graph *g, pl_arena *mem, pl_code *out);
/* The text of its first kernel, to be freed: with what all kernels begin with, and the kernel
 * alone. NVRTC accepts it, where it is. */
void group_text(const pl_graph *g, char **out);
void group_text_alone(const pl_graph *g, char **out);
/* How often `what` is in a text. */
int text_count(const char *text, const char *what);
/* Kernels of the one group of the graph that make(g, a, b) makes. */
uint32_t group_kernels(void (*make)(pl_graph *g, int64_t a, int64_t b), int64_t a, int64_t b);

#endif
