/* recompute_eval.h - the working memory behind pl__recompute_eval, shared by recompute_seq.c (peak)
 * and recompute_fill.c (undoing recomputation). */
#ifndef PL_PLAN_RECOMPUTE_EVAL_H
#define PL_PLAN_RECOMPUTE_EVAL_H

#include "plan/recompute/recompute_int.h"

typedef struct pl__recompute_fill_mem pl__recompute_fill_mem;

struct pl__recompute_eval {
    const pl__recompute *m;
    pl_arena arena;
    uint8_t *wanted;       /* of each value: a later unit reads it */
    uint8_t *seen;         /* of each unit */
    uint32_t *born, *last; /* of each value: its copy's position and last read */
    int64_t *level;        /* of each position: change of the bytes alive */
    uint8_t *first;        /* of each position: the unit's first computation */
    uint32_t cap;          /* of level and first */
    pl__recompute_fill_mem *fill;
};

/* Makes room for a list of n positions. */
pl_status pl__recompute_eval_reserve(pl__recompute_eval *e, uint32_t n) PL_MUST_USE;
void pl__recompute_fill_release(pl__recompute_eval *e);

#endif
