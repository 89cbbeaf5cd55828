/* cuda_group_lab.h - a graph whose groups run as generated kernels on the simulator, beside the CPU's. */
#ifndef PL_TEST_CUDA_GROUP_LAB_H
#define PL_TEST_CUDA_GROUP_LAB_H

#include "base/arena.h"
#include "cuda_text.h"
#include "pass/fuse.h"

#include <stdbool.h>

typedef struct group_job {
    pl_store *store;
    pl_graph *g;
    pl_units *units[2]; /* fused, one node each */
    pl_code *code[2];   /* per unit */
    pl_arena arena;
    const char *name;
} group_job;

/* Fuses the job's graph both ways and hands its kernels to the shop, which is to be built before they are checked. */
bool group_job_make(group_job *j, text_shop *shop);
void group_job_free(group_job *j);
/* The CPU's results within rounding, in place too, and the same bits in both partitions. */
bool group_job_check(const group_job *j, text_shop *shop);

#endif
