/* tile.h - the CPU tile interpreter: one pass over memory for a whole group of elementwise ops,
 * with reductions inside rows and at the edge.
 *
 * A program is an expression in SSA form over an iteration space. Instructions run one after the
 * other over a tile of the space, small enough for the results to stay in cache, and tile follows
 * tile; so memory is read once and written once however many instructions there are. No code is
 * generated: each instruction is a call of a vectorised loop over the tile.
 *
 *   space [281600,64]   %0 = load x          strides 64,1    (aliases memory: no copy)
 *                       %1 = load mean       strides 0,1     (one vector a channel, kept)
 *                       %2 = sub %0 %1
 *                       %3 = leaky_relu %2                   store -> out[0]
 *                                                            reduce sum, dims {0} -> out[1]
 *
 * Bits. The value of an instruction depends on its operands' values alone: not on the rest of the
 * program, nor on tile boundaries, threads or instruction set. Nothing is contracted. bf16 and f16
 * instructions compute in f32 and round each result. The order of a reduction depends on the sizes
 * of the space, the mask and the kind of number (f32 class, f64, integer), after neighbouring dims
 * with the same mask bit have been merged and dims of size 1 dropped: [N,H,W,C] over {0,1,2} gives
 * the bits of [N*H*W,C] over {0}. A row reduction gives the bits of the edge reduction over the
 * same dims.
 *
 * Numbers. Float sums accumulate in f64, moments as shifted sums in f64 whose parts are merged by
 * Chan's formula. Down columns f32 adds up in f32 over blocks of 32 rows, and blocks in f64: the
 * error is a few ulps of the terms' size, however long the column. Results are rounded once to f32
 * (f64 for f64 values), then to the result's dtype. Integer sums wrap. max and min give NaN when an
 * element is NaN. The sum of nothing is 0, the largest of nothing -inf (or the smallest integer),
 * the moments of nothing NaN.
 *
 * Rows. With row_rank > 0 the trailing row_rank dims are the row, which is never split, so row
 * reductions can feed later instructions: softmax, layer norm and cross-entropy take one pass.
 *
 * Draws. Random numbers are functions of their number in a stream, so they are made where they are
 * read, the bits of cpu/kernels/draw.h whatever the tile.
 *
 * Limits: PL_TILE_RANK dims, PL_TILE_INPUTS operands, PL_TILE_OUTPUTS outputs, PL_TILE_INSTRS
 * instructions, rows of PL_TILE_ROW elements. Beyond them pl_tile_compile says ERR_UNSUPPORTED.
 */
#ifndef PL_CPU_TILE_H
#define PL_CPU_TILE_H

#include "base/arena.h"

enum {
    PL_TILE_RANK = 6,
    PL_TILE_INPUTS = 64,
    PL_TILE_OUTPUTS = 128,
    PL_TILE_INSTRS = 512,
    PL_TILE_ROW = 16384
};

/* The scalar functions, in the order of scalar.def. */
#pragma push_macro("PL_SCALAR")
#undef PL_SCALAR
typedef enum pl_tile_fn {
#define PL_SCALAR(NAME, name, arity, result) PL_TILE_FN_##NAME,
#include "ir/scalar.def"
#undef PL_SCALAR
    PL_TILE_N_FNS
} pl_tile_fn;
#pragma pop_macro("PL_SCALAR")

typedef enum pl_tile_reduce_fn {
    PL_TILE_SUM,
    PL_TILE_MAX,
    PL_TILE_MIN,
    PL_TILE_MOMENTS /* mean and biased variance; floats only */
} pl_tile_reduce_fn;

/* How in[i] is read: element offset + sum over dims of coordinate * stride. */
typedef struct pl_tile_operand {
    pl_dtype dtype;
    int64_t offset;
    int64_t stride[PL_TILE_RANK]; /* in elements; 0 broadcasts, negative flips */
    bool bits; /* a bool, element e being bit e % 8 of byte e / 8; never in place */
} pl_tile_operand;

typedef enum pl_tile_code {
    PL_TILE_LOAD,       /* operand `index`, of the same dtype */
    PL_TILE_IMM,        /* imm */
    PL_TILE_IOTA,       /* imm + sum over dims of coordinate * step */
    PL_TILE_DRAW,       /* draw number imm + sum over dims of coordinate * step (base/rng.h), of
                     * `stream` under the key {seed, step} that operand `index` starts with */
    PL_TILE_SCALAR,     /* fn of arg[0..arity); imm is LEAKY_RELU's slope */
    PL_TILE_CAST,       /* arg[0]; floats to integers truncate and saturate, NaN gives 0; anything
                     * to bool is "not zero" */
    PL_TILE_ROW_REDUCE, /* `reduce` of arg[0] over the row, as a broadcast; MOMENTS gives the
                           mean */
    PL_TILE_ROW_VAR     /* the variance of the MOMENTS instruction arg[0] */
} pl_tile_code;

/* dtype is the result's. Integer DIV rounds towards zero; DIV and MOD by zero give 0. NOT, AND,
 * OR and XOR take bool. Functions of a continuous kind (EXP...) take floats only. */
typedef struct pl_tile_instr {
    pl_tile_code code;
    pl_dtype dtype;
    int32_t arg[3];           /* earlier instructions */
    int32_t index;            /* LOAD: which operand */
    pl_tile_fn fn;            /* SCALAR */
    pl_tile_reduce_fn reduce; /* ROW_REDUCE */
    double imm;
    double step[PL_TILE_RANK]; /* IOTA, DRAW */
    uint32_t stream;           /* DRAW */
    bool normal;
} pl_tile_instr;

typedef enum pl_tile_out_kind {
    PL_TILE_STORE, /* the whole space, dense, row-major */
    PL_TILE_ROWS,  /* one value a row, dense; src must be the same along the row: made of row
                    * reductions, constants and operands with stride 0 in the row */
    PL_TILE_REDUCE /* `reduce` over the dims of `mask`: the other dims, dense, row-major */
} pl_tile_out_kind;

typedef struct pl_tile_output {
    pl_tile_out_kind kind;
    int32_t src;    /* instruction */
    pl_dtype dtype; /* of the memory; src is cast to it if it differs */
    int32_t out;    /* index into run's out[] */
    int32_t out2;   /* MOMENTS: where the variance goes; out and out2 may be -1: not wanted */
    pl_tile_reduce_fn reduce;
    uint32_t mask; /* bit d: dim d is reduced */
    bool bits;     /* STORE of a bool: as bits, spare bits of the last byte 0 */
} pl_tile_output;

typedef struct pl_tile_program {
    int32_t rank, row_rank; /* rank 0: one element; row_rank 0: no row mode */
    int64_t dim[PL_TILE_RANK];
    int32_t n_in, n_instr, n_out;
    const pl_tile_operand *in;
    const pl_tile_instr *instr;
    const pl_tile_output *out;
} pl_tile_program;

typedef struct pl_tile pl_tile;

/* Checks the program and lays out tiles, registers and reductions. *out lives in the arena and
 * does not refer to the program. ERR_ARG: malformed; ERR_UNSUPPORTED: beyond the limits, or a
 * function its dtype does not have. */
pl_status pl_tile_compile(const pl_tile_program *p, pl_arena *a, pl_tile **out) PL_MUST_USE;

/* Scratch that run needs, 64-byte aligned: registers of every thread, accumulators. It is what
 * the pool's number of threads at the time of the call takes. */
size_t pl_tile_work_bytes(const pl_tile *t);

/* Runs on the pool. in[i] and out[j] are the dense buffers' first bytes, aligned to their
 * element. Allocates nothing. `work` needs no initial content.
 *
 * In place. out[j] of a STORE may be the same address as in[i] when
 *   - operand i reads the whole space densely from offset 0 (row-major strides; dims of size 1
 * may have any stride) and its elements are as wide as the output's,
 *   - no other operand of the program reads that memory in another pattern, and
 *   - no other output writes it.
 * pl_tile_inplace tells whether the first condition holds. All other overlaps are undefined. */
void pl_tile_run(const pl_tile *t, const void *const *in, void *const *out, void *work);
bool pl_tile_inplace(const pl_tile_program *p, int operand, int output);

/* Whether fn exists for operands of this dtype. */
bool pl_tile_has(pl_tile_fn fn, pl_dtype dtype);
/* The instruction set in use: "base", "avx2" or "avx512"; PL_CPU_ISA in the environment asks
 * for one that the machine has. Read at compile of each tile. */
const char *pl_tile_isa(void);

#endif
