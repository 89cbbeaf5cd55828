/* remat_eval.h - the working memory behind pl__remat_eval, shared by remat_seq.c (peak) and
 * remat_fill.c (undoing recomputation). */
#ifndef PL_PLAN_REMAT_EVAL_H
#define PL_PLAN_REMAT_EVAL_H

#include "plan/recompute/remat_int.h"

typedef struct pl__remat_fill_mem pl__remat_fill_mem;

struct pl__remat_eval {
    const pl__remat *m;
    pl_arena arena;
    uint8_t *wanted;       /* of each value: somebody later reads it */
    uint8_t *seen;         /* of each op */
    uint32_t *born, *last; /* of each value: its copy's instruction and last read */
    int64_t *level;        /* of each instruction: change of the bytes alive */
    uint8_t *first;        /* of each instruction: the op's first computation */
    uint32_t cap;          /* of level and first */
    pl__remat_fill_mem *fill;
};

void pl__remat_fill_release(pl__remat_eval *e);

#endif
