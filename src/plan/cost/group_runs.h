/* group_runs.h - how the reductions of a fused group are added up on a GPU.
 *
 * Decided by sizes and the kind of reduction alone, so that a sum has the same bits in every group.
 * Two callers must decide alike: the code generator of the CUDA plug-in (cuda/codegen) and
 * group_passes.h, which the device that only plans for a GPU asks, too.
 */
#ifndef PL_PLAN_COST_GROUP_RUNS_H
#define PL_PLAN_COST_GROUP_RUNS_H

#include "ir/group/fused.h"

enum { PL_CG_RANK = PL_FUSED_RANK + 1, PL_CG_THREADS = 256 };

/* Runs of dims that are all kept or all reduced, outermost first; a long reduced run is split after
 * its outermost dim, so that sums over an image and sums over all images share a pass. */
typedef struct pl_cg_runs {
    int32_t n, along; /* along: the run that threads accumulate */
    int64_t size[PL_CG_RANK];
    uint32_t reduced; /* bit by run */
    bool moments;     /* lanes take more rows, because a lane's partial result is large */
} pl_cg_runs;

static inline bool pl_cg_reduced(const pl_cg_runs *r, int i)
{
    return r->reduced >> i & 1u;
}

/* How columns are summed: y threads share a column, parts of `part` rows are summed separately; all
 * of it follows from the sizes of the runs. */
typedef struct pl_cg_columns {
    int32_t tx, ty;
    int64_t tiles, part, parts;
} pl_cg_columns;

static inline int64_t pl_cg_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t pl_cg_clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

PL_SHARED_BEGIN
/* lead: of pl_fused_output. */
pl_cg_runs pl_cg_runs_of(const pl_fused *f, uint32_t mask, int64_t lead, bool moments);
/* Returns the elements of a row if only the innermost run is reduced (1: nothing is); else 0. */
int64_t pl_cg_row_of(const pl_cg_runs *r);
pl_cg_columns pl_cg_columns_of(const pl_cg_runs *r);
/* Whether walk b over the same rows has the parts of walk a; a is split, b is not. */
bool pl_cg_same_parts(const pl_cg_runs *a, const pl_cg_runs *b);
/* Whether partial results lie in strips, [columns / PL_CG_STRIP][runs before][parts][PL_CG_STRIP],
 * instead of [runs before][parts][runs after]. */
enum { PL_CG_STRIP = 8 };
bool pl_cg_strips(const pl_cg_runs *r);
/* Whether a row kernel also computes such column sums (cuda/codegen/codegen_beside.c). */
bool pl_cg_takes_columns(const pl_cg_runs *r);
/* Returns the threads that share a row of n. */
int32_t pl_cg_row_threads(int64_t n);
/* Returns a number of parts such that blocks, where they are many, fill whole waves of a large GPU:
 * eight blocks for each of 132 multiprocessors. A constant of this file, not of the GPU that
 * runs. */
int64_t pl_cg_rounds(int64_t parts, int64_t others);
enum { PL_CG_BLOCKS = 1056 };
PL_SHARED_END

#endif
