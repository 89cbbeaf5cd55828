/* fused.h - the description of a fused group: an expression over one iteration space.
 *
 * This is the one description that all devices compile: the CPU's tile interpreter
 * (cpu/tile/tile.h), the CUDA code generator (cuda/codegen/codegen.h), and the planner's profiles
 * of GPUs, which only read sizes and the in-place rule (inplace.h) from it.
 *
 * The space has as many positions as the largest value of the group, in row-major order. A value of
 * that size is computed at its own position. A smaller value is computed at each position where it
 * is read: a row value (one element per row, after a reduction inside the row) or a vector that is
 * broadcast. Inline nodes (role.h) are not instructions: they are strides of operands and steps of
 * ramps. A reduction reads the whole space; its result leaves the group, or, when the reduced dims
 * are the innermost ones (a row), later instructions may read it.
 *
 * Example: y = leaky_relu(x - mean), s = sum of y over the batch; x is f32[281600,64], mean
 * f32[64]:
 *
 *   space [281600,64]   %0 = load in[0]   stride 64,1   x
 *                       %1 = load in[1]   stride 0,1    mean: a broadcast is a stride of 0
 *                       %2 = map sub %0 %1
 *                       %3 = map leaky_relu %2
 *   outputs             store %3 -> out[0]              the whole space
 *                       reduce sum %3, mask {0} -> out[1]
 */
#ifndef PL_IR_FUSED_H
#define PL_IR_FUSED_H

#include "ir/group/amap.h"
#include "ir/group/role.h"
#include "ir/units.h"

PL_SHARED_BEGIN

enum { PL_FUSED_RANK = 6 };

typedef enum pl_fused_code {
    PL_FUSED_LOAD, /* an element of `operand`, of the same dtype */
    PL_FUSED_RAMP, /* imm + sum over dims of coordinate * step; all steps 0: a constant */
    PL_FUSED_DRAW, /* not stored (M13 of docs/MEMORY.md): random draw number imm + sum over dims of coordinate * step (base/rng.h);
                            `operand` starts with the key {seed, step} */
    PL_FUSED_MAP,  /* fn of arg[0 .. n_arg); imm is LEAKY_RELU's slope. CAST: to dtype; floats
                            to integers truncate and saturate, NaN gives 0; to bool: "not zero" */
    PL_FUSED_ROW_REDUCE, /* `reduce` of arg[0] over the row, the same for the whole row; MOMENTS:
                            the mean */
    PL_FUSED_ROW_VAR     /* the variance that belongs to the MOMENTS instruction arg[0] */
} pl_fused_code;

/* Instruction i computes value %i; arguments are earlier instructions. dtype is the result's. */
typedef struct pl_fused_instr {
    pl_fused_code code;
    pl_dtype dtype;
    pl_scalar_fn fn;     /* MAP */
    pl_reduce_fn reduce; /* ROW_REDUCE */
    int32_t n_arg, arg[3];
    int32_t operand; /* LOAD, DRAW */
    double imm;
    double step[PL_FUSED_RANK]; /* RAMP, DRAW */
    pl_drawing draw; /* DRAW; dtype says which bits of a word count (cpu/kernels/draw.h) */
} pl_fused_instr;

/* One way to read an input. Position c reads element offset + sum over dims of c_d * stride_d.
 * An input that is read in two ways is two operands. */
typedef struct pl_fused_operand {
    uint32_t in;                   /* index into the unit's in[] */
    pl_dtype dtype;                /* of the memory */
    int64_t offset;                /* in elements */
    int64_t stride[PL_FUSED_RANK]; /* in elements; 0 broadcasts, negative flips */
    bool bits;                     /* a bool stored as bits (units.h) */
} pl_fused_operand;

typedef enum pl_fused_out_kind {
    PL_FUSED_STORE, /* the whole space, dense, row-major */
    PL_FUSED_ROWS,  /* one element per row, dense; src is the same along the row */
    PL_FUSED_REDUCE /* `reduce` over the dims of `mask`: the other dims, dense, row-major */
} pl_fused_out_kind;

typedef struct pl_fused_output {
    pl_fused_out_kind kind;
    int32_t src;       /* instruction */
    int32_t out, out2; /* indices into the unit's out[]; -1: not wanted. out2: the variance */
    pl_dtype dtype;    /* of the memory; src is cast to it if it differs */
    pl_reduce_fn reduce;
    uint32_t mask; /* bit d: dim d is reduced */
    int64_t lead;  /* REDUCE: size of the node's outermost dim if the node reduces it together with
                      dims after it, else 0. The space can be cut at that dim (CUDA's partial sums
                      are cut there). */
    bool bits;     /* STORE of a bool: as bits (units.h), spare bits of the last byte 0 */
} pl_fused_output;

/* rank 0: one element. row_rank > 0: the innermost row_rank dims are the row. */
typedef struct pl_fused {
    int32_t rank, row_rank;
    int64_t dim[PL_FUSED_RANK];
    int32_t n_in, n_instr, n_out;
    pl_fused_operand *in;
    pl_fused_instr *instr;
    pl_fused_output *out;
} pl_fused;

/* Describes a group unit. Arrays live in the arena. ERR_UNSUPPORTED: the nodes cannot be one group
 * (pass/fuse never makes such a unit). */
pl_status pl_fused_make(const pl_graph *g, const pl_unit *u, pl_arena *a,
                        pl_fused *out) PL_MUST_USE;

PL_SHARED_END

#endif
