/* tile.h - the CPU tile interpreter: runs a fused group (ir/group/fused.h) in one pass over memory.
 *
 * Idea: instructions run one after the other over a tile of the space that is small enough for the
 * results to stay in the first caches, and tile follows tile. Memory is read once and written once
 * for any number of instructions. No code is generated: each instruction is a call of a vectorised
 * loop over the tile.
 *
 * Worked example: the group of fused.h, y = leaky_relu(x - mean) over [281600,64] and its column
 * sums, on one thread:
 *   tile.c      chooses 64 rows per tile: 4096 elements, 16 KiB of x
 *   tile_chain  joins sub and leaky_relu to one loop: load x, subtract mean[i % 64], choose, store
 *   tile_cut    splits the 281600 rows into tasks that end where a block of column sums ends
 *   tile_run    for each tile: %0 is the memory of x itself (no copy); %1 is six rows of mean,
 *               copied once; the chain writes %3 directly into out[0]; the sum reads
 *               these 16 KiB, still in cache, into 64 accumulators
 *   at the end  tile_reduce.c folds the accumulators of all tasks into out[1]
 *
 * Invariant (bits, M11 of docs/MEMORY.md): the value of an instruction depends on its operands'
 * values alone: not on the rest of the group, nor on tile boundaries, threads or instruction set.
 * Nothing is contracted. bf16 and f16 instructions compute in f32 and round each result. The order
 * of a reduction depends on the sizes of the space, the mask and the kind of number (f32 class,
 * f64, integer), after neighbouring dims with the same mask bit have been merged and dims of size 1
 * dropped: [N,H,W,C] over {0,1,2} gives the bits of [N*H*W,C] over {0}. A row reduction gives the
 * bits of the edge reduction over the same dims.
 *
 * Cost: one read of each operand and one write of each output, plus a call (some tens of
 * nanoseconds) for each instruction and tile.
 *
 * Numbers. Float sums accumulate in f64, moments as shifted sums in f64 whose parts are merged by
 * Chan's formula. Column sums of f32 accumulate in f32 over blocks of 32 rows, and blocks in f64:
 * the error is a few ulps of the terms' size, for any length of the column. Results are rounded
 * once to f32 (f64 for f64 values), then to the result's dtype. Integer sums wrap. Integer DIV
 * rounds towards zero; DIV and MOD by zero give 0. max and min give NaN when an element is NaN. An
 * empty sum is 0, an empty maximum -inf (or the smallest integer), empty moments are NaN.
 *
 * Rows are never split, so row reductions can feed later instructions: softmax, layer norm and
 * cross-entropy take one pass.
 *
 * Limits: PL_TILE_INPUTS operands, PL_TILE_OUTPUTS outputs, PL_TILE_INSTRS instructions, rows of
 * PL_TILE_ROW elements. Beyond them pl_tile_compile returns ERR_UNSUPPORTED.
 */
#ifndef PL_CPU_TILE_H
#define PL_CPU_TILE_H

#include "ir/group/fused.h"

enum { PL_TILE_INPUTS = 64, PL_TILE_OUTPUTS = 128, PL_TILE_INSTRS = 512, PL_TILE_ROW = 16384 };

typedef struct pl_tile_code pl_tile_code;

/* Checks the description and lays out tiles, registers and reductions. *out lives in the arena and
 * does not refer to the description. ERR_ARG: malformed; ERR_UNSUPPORTED: beyond the limits, or a
 * function that its dtype does not have. */
pl_status pl_tile_compile(const pl_fused *f, pl_arena *a, pl_tile_code **out) PL_MUST_USE;

/* Returns the scratch bytes that run needs, 64-byte aligned: registers of every thread and
 * accumulators, for the number of threads at the time of the call. */
size_t pl_tile_work_bytes(const pl_tile_code *t);

/* Runs on all threads. in[] and out[] are the unit's buffers, aligned to their element. Allocates
 * nothing. `work` needs no initial content. out[j] may be the same address as in[i] where
 * pl_inplace_operand (ir/group/inplace.h) says so; all other overlaps are undefined. */
void pl_tile_run(const pl_tile_code *t, const void *const *in, void *const *out, void *work);

/* Returns whether fn exists for operands of this dtype. */
bool pl_tile_has(pl_scalar_fn fn, pl_dtype dtype);

#endif
