/* group_passes.h - a fused group cut into passes, each of which goes over the space once and is one
 * kernel on a GPU, or two when partial results are folded afterwards.
 *
 * The code generator of the CUDA plug-in lays out and writes the passes (cuda/codegen/codegen.c).
 * The device that only plans for a GPU (rt/device_profile.c) cuts groups by the same function, so
 * that both allow the same in-place results: an operand that a pass reads after the pass that
 * stores is not overwritten.
 *
 *   y = x / max(x over a row), s = sum of y over columns (too few rows to go beside the row pass)
 *   pass 0, row:   reads x, stores y, keeps the maxima of rows in scratch
 *   pass 1, sheet: reads x and the maxima, adds up s        so y may not take over x
 */
#ifndef PL_PLAN_COST_GROUP_PASSES_H
#define PL_PLAN_COST_GROUP_PASSES_H

#include "ir/units.h"
#include "plan/cost/group_runs.h"

enum {
    PL_CG_MAX_PASSES = 32,
    PL_CG_MAX_ROW = 65536 /* longest row that is reduced inside a group */
};

typedef enum pl_cg_shape { PL_CG_FLAT, PL_CG_SHEET, PL_CG_ROW } pl_cg_shape;
typedef enum pl_cg_set { PL_CG_OUTER, PL_CG_ALONG, PL_CG_INNER, PL_CG_SETS } pl_cg_set;

/* Where an operand lies. */
typedef enum pl_code_space { PL_CODE_IN, PL_CODE_OUT, PL_CODE_WORK } pl_code_space;

typedef struct pl_cg_operand {
    pl_code_space space;
    uint32_t index, align; /* align: bytes that the base is known to be a multiple of */
    int64_t plus;          /* bytes from the base */
    pl_dtype dtype;
    int64_t offset, stride[PL_CG_RANK];
} pl_cg_operand;

/* A result of a pass: a group's output, or (save >= 0) a row value kept in scratch. */
typedef struct pl_cg_sink {
    pl_fused_out_kind kind;
    int32_t src, out, out2;
    pl_dtype dtype;
    pl_reduce_fn reduce;
    int64_t save;    /* ROWS into scratch at this byte; -1: into out */
    int64_t partial; /* REDUCE: first byte of its partial results */
    uint32_t folded; /* REDUCE: which of the pass's runs it folds; always the run that threads
                      * walk */
} pl_cg_sink;

typedef struct pl_cg_pass {
    pl_cg_shape shape;
    int32_t rank, first[PL_CG_SETS + 1]; /* dims of set s: [first[s], first[s+1]) */
    int64_t dim[PL_CG_RANK];
    int64_t size[PL_CG_SETS];
    int32_t n_op, n_instr, n_sink;
    pl_cg_operand *op;
    pl_fused_instr *instr;
    double *step; /* of ramps: [instruction][PL_CG_RANK], in the pass's dims */
    pl_cg_sink *sink;
    bool *used;   /* per instruction */
    bool reduces; /* a sink is a REDUCE over more than its row */
    pl_cg_runs runs;
    bool columns; /* row: REDUCE sinks are column sums with the walk `walk` */
    pl_cg_runs walk;
    /* launch */
    int32_t vec, unroll; /* elements per chunk, chunks in flight */
    /* sheet: minimum of blocks per multiprocessor; 0: the compiler decides */
    int32_t resident;
    int32_t tx, ty;      /* threads; row: tx threads per row, ty rows per block */
    int64_t parts, part; /* pieces of inner (flat) or along (sheet), and their length */
    int64_t tiles;       /* sheet: columns of blocks */
    int32_t steps;       /* row: chunks per thread, 0: not fixed in the text */
    bool wide, direct;   /* 64-bit indices; reductions have one part */
    int32_t seg;         /* sheet: dims of along that only change from segment to segment */
} pl_cg_pass;

/* Returns the first sink that computes the same sum as sink s: only that sink has accumulators; the
 * others share its sums and may fold other runs. */
static inline int pl_cg_twin(const pl_cg_pass *p, int s)
{
    const pl_cg_sink *x = &p->sink[s];
    for (int i = 0; i < s && x->kind == PL_FUSED_REDUCE; i++)
        if (p->sink[i].kind == PL_FUSED_REDUCE && p->sink[i].src == x->src &&
            p->sink[i].reduce == x->reduce)
            return i;
    return s;
}

/* A group that is cut up; everything lies in the arena. */
typedef struct pl_cg_group {
    const pl_graph *g;
    const pl_unit *u;
    pl_arena *a;
    pl_fused f;
    pl_cg_operand *op; /* the group's operands, then saved row values */
    pl_fused_instr *instr;
    int n_op, n_instr;
    int store_pass; /* the pass that stores elementwise outputs */
    int n_passes;   /* 0: all outputs are empty */
    pl_cg_pass pass[PL_CG_MAX_PASSES];
    bool main_row[PL_CG_MAX_PASSES]; /* computes the group's row values */
    size_t work;                     /* bytes of scratch: saved row values */
} pl_cg_group;

PL_SHARED_BEGIN
/* Cuts the group of a unit into passes: their operands, instructions and sinks. */
pl_status pl_cg_cut(const pl_graph *g, const pl_unit *u, pl_arena *a,
                    pl_cg_group **out) PL_MUST_USE;
/* Takes bytes of scratch; returns where they begin. */
size_t pl_cg_work_take(pl_cg_group *k, size_t bytes);
/* Makes the in-place table of the group (ir/group/inplace.h), by what passes read after outputs are
 * stored. */
pl_status pl_cg_inplace(const pl_cg_group *k, bool **out) PL_MUST_USE;
/* Bytes of an accumulator over values of dtype d. */
size_t pl_cg_acc_bytes(pl_dtype d, pl_reduce_fn fn);
PL_SHARED_END

#endif
