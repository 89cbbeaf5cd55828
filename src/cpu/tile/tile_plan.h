/* tile_plan.h - a compiled group: tile.c creates it, tile_run.c executes it.
 *
 * The space, with size-1 dims dropped and dims merged where every operand allows it, is cut at
 * one dim: a tile takes up to `tile_t` indices of dim `t` and all of the dims inside (`inner`
 * elements), so tiles are contiguous in row-major order. In row mode the dims inside hold whole
 * rows.
 *
 * A value lives at one of three levels: one element for the whole tile, one per row, or the whole
 * tile. A value that does not change along dim t is stable: it is computed when the dims outside t
 * change, not for every tile. A stable value that only chains read is brief: it holds few rows,
 * which the chain reads repeatedly. Whole-tile values that are dense in memory are not copied.
 */
#ifndef PL_CPU_TILE_PLAN_H
#define PL_CPU_TILE_PLAN_H

#include "cpu/tile/tile_reduce.h"

typedef enum pl_level { PL_LEVEL_ONE, PL_LEVEL_ROW, PL_LEVEL_FULL } pl_level;

typedef enum pl_step_code {
    PL_STEP_LOAD,
    PL_STEP_IMM,
    PL_STEP_IOTA,
    PL_STEP_DRAW,
    PL_STEP_MAP,    /* fn of the arguments */
    PL_STEP_RAISE,  /* spreads the argument to a higher level */
    PL_STEP_REDUCE, /* over each row */
    PL_STEP_VAR     /* second result of the moments in arg[0] */
} pl_step_code;

enum { PL_SPACE_RANK = PL_FUSED_RANK + 1 }; /* one dim may be added in front */

typedef struct pl_reader {
    uint32_t in; /* index into run's in[] */
    pl_dtype dtype;
    int64_t offset;
    int64_t stride[PL_SPACE_RANK];
    bool whole; /* reads the space densely: may be an output's memory */
    bool bits;
} pl_reader;

/* How a load, iota or draw walks a tile: dim t first, innermost last. */
typedef struct pl_walk {
    int32_t rank;
    int64_t size[PL_SPACE_RANK]; /* [0] is the tile's extent along t, given at run time */
    int64_t stride[PL_SPACE_RANK];
    double step[PL_SPACE_RANK];
    double outer[PL_SPACE_RANK]; /* iota, draw: steps of the dims up to t */
    bool dense;                  /* consecutive elements */
} pl_walk;

enum { PL_TILE_LINKS = 16 };

/* A function of a chain, and the step that computes its other operand. */
typedef struct pl_chain_link {
    pl_link_code code;
    float imm;
    int32_t arg;
} pl_chain_link;

typedef struct pl_step {
    pl_step_code code;
    pl_level level;
    pl_dtype dtype;
    pl_vec_class cls;
    bool stable, alias;
    bool per_row;  /* MAP: row by row, row values as scalars */
    bool chain;    /* the head of a chain */
    bool absorbed; /* part of a later step's chain */
    bool brief;    /* stable, and only chains read it: brief_t indices along t are enough */
    int32_t n_arg, arg[3];
    /* Chains (tile_chain.c). flow: the absorbed step before in the chain, which is arg[flow_arg],
     * or -1. A head has n_link links from first_link on, starting at step `from`. */
    int32_t map; /* the pl_scalar_fn of a MAP, or -1: a cast */
    int32_t n_link, first_link, flow, flow_arg, from;
    int32_t operand; /* LOAD; DRAW: the key */
    uint32_t stream; /* DRAW */
    bool normal;
    int32_t last_use;
    int32_t slot;             /* register number within its pool; -1: none */
    size_t at;                /* of the register in a worker's memory */
    int32_t first_out, n_out; /* outputs fed by this step */
    pl_vec_fn fn, round;      /* round: NULL, or applied to the result */
    double imm;
    pl_reduce_fn reduce;
    pl_walk *walk; /* LOAD, IOTA, DRAW */
    union {
        float f;
        double d;
        int32_t i;
        int64_t l;
        uint8_t u;
    } value; /* IMM */
} pl_step;

typedef struct pl_tile_place {
    pl_fused_out_kind kind;
    int32_t out, out2;
    size_t width;
    bool direct; /* STORE: the step may compute directly into the output */
    bool bits;
    uint64_t hazard; /* STORE: operands read after the step; if one shares the output's memory,
                      * store late */
    pl_vec_fn store; /* memory conversion; NULL: a plain copy */
    pl_red red;
    size_t acc_at;
} pl_tile_place;

typedef struct pl_span {
    int64_t lo, hi;
} pl_span;

struct pl_tile_code {
    const pl_vec *vec;
    bool empty;
    bool bits; /* an output is stored as bits: tasks begin at a byte */
    bool busy; /* enough steps between tiles to prefetch memory */
    int32_t rank, t;
    int64_t dim[PL_SPACE_RANK];
    int64_t total, inner, tile_t, row; /* row: elements of a row; 0 without row mode */
    int64_t brief_t;
    int32_t n_in, n_step, n_place;
    pl_reader *in; /* strides of the merged dims */
    pl_step *step;
    pl_tile_place *place; /* by step */
    pl_chain_link *link;
    int32_t n_link;
    /* Jobs: flat ranges, or (columns) ranges along dim t taken for all outer indices. */
    bool columns, row_order; /* row_order: outer indices first (some reduction is horizontal) */
    int32_t n_task;
    pl_span *task;
    /* Memory: accumulators, then one block per worker. */
    size_t acc_bytes, worker_bytes;
    size_t ptr_at, base_at, changed_at, lanes_at, raw_at; /* in a worker's block */
};

enum { PL_TILE_TASKS = 128 };

/* tile_check.c */
pl_status pl_tile_check(const pl_fused *p) PL_MUST_USE;
/* tile_chain.c: marks chains and fills link[], which has room for one link per step. */
void pl_tile_chains(pl_tile_code *t);
/* tile_cut.c: fills task[], which has room for PL_TILE_TASKS tasks. */
void pl_tile_cut(pl_tile_code *t);

#endif
