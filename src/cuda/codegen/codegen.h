/* codegen.h - a fused group (ir/group/fused.h) as CUDA C text, with everything that a launch needs.
 *
 * The text is plain data and generating it needs no CUDA: tests generate it, compare it and run it
 * on the simulator of tests/cudasim. cuda_group.c compiles and launches it.
 *
 * Idea: a group becomes one kernel or a few, run in order. The text depends on the expression, the
 * dtypes and the kinds of access; sizes, strides and constants are arguments, so equal expressions
 * over other shapes share their text. Invariant: the order of a sum depends on sizes alone.
 *
 * Worked example: the group of fused.h, y = leaky_relu(x - mean) over [281600,64] and its column
 * sums, is one sheet pass (codegen_sheet.c): 978 blocks of 16 x 16 threads, a thread has V = 4
 * columns and walks down the rows of its part. Shortened, the text is
 *
 *   h1[j] = P1[b1 + j]                                 mean: read once, stays in registers
 *   while (row_ + 2 * Y_ + 1 < end_) {                 U = 4 rows at a time
 *     q0[u] = *(p_vec<float, V> *)(P0 + at0)           all loads of x first
 *     v2 = p_sub(v0, h1[j]); v3 = p_leaky_max(v2, a.f[0]);
 *     ac0[j] = p_fold_sum::op(ac0[j], v3);             the sum of a column, in a register
 *     *(p_vec<float, V> *)(W1 + z_) = w1;              y: one 16-byte store
 *   }
 *   partial sums of each block go to scratch; a second kernel (codegen_fold.c) adds them up
 */
#ifndef PL_CUDA_CODEGEN_H
#define PL_CUDA_CODEGEN_H

#include "ir/units.h"
#include "plan/cost/group_passes.h"

enum {
    PL_CODE_ARGS = 16384, /* most bytes of arguments of a kernel */
    PL_CODE_NODES = 64,   /* limit for the fuser */
    PL_CODE_OPERANDS = 48,
    PL_CODE_INSTRS = 384
};

/* Name of the kernel's function, and the type of its parameter. */
#define PL_CODE_ENTRY "pl_group"

/* A pointer among the arguments: the bytes at `at` become the base of in[index], out[index] or
 * the scratch, plus `plus`. */
typedef struct pl_code_patch {
    pl_code_space space;
    uint32_t at, index;
    int64_t plus;
    uint32_t align; /* alignment that the text assumes */
} pl_code_patch;

typedef struct pl_code_kernel {
    const char *text;
    size_t len;
    uint32_t grid, block_x, block_y;
    uint32_t shared;     /* bytes of dynamic shared memory */
    bool wgmma;          /* needs Hopper's own instructions, and the maps of a product */
    const uint8_t *args; /* pointers are zero */
    uint32_t arg_bytes, n_patches;
    const pl_code_patch *patch;
} pl_code_kernel;

typedef struct pl_code {
    pl_code_kernel *kernel;
    uint32_t n_kernels;
    size_t work_bytes;
    uint32_t n_in, n_out;
    const bool *inplace; /* the in-place table (ir/group/inplace.h) */
} pl_code;

/* Generates the kernels of a unit; everything lives in the arena. A unit of one node whose outputs
 * have no elements gives no kernels. */
pl_status pl_code_make(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_code *out) PL_MUST_USE;
/* Rows and columns of a tile of the product, and tiles in flight: what the maps of its operands
 * need. Of windows (pl_plain_product) also: pixels that a tile reads of the images in one line,
 * gaps of zeros included, and zeros behind each row and each image of the line
 * (cuda/conv/windows.cuh); `stages` are those of the line. */
typedef struct pl_code_tiles {
    int32_t bm, bn, stages, filters; /* filters: stages of the filter */
    int64_t range, gap[2];
} pl_code_tiles;
/* The same for a group that begins with a product (ir/group/product.h, codegen_product.c): the
 * first kernel has the maps of the product's operands as further arguments. ERR_UNSUPPORTED: the
 * group and its product are not one kernel. */
pl_status pl_code_make_product(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_code *out,
                               pl_code_tiles *tiles) PL_MUST_USE;
/* Writes the kernel's arguments for these pointers; false if a pointer has less alignment than the
 * text assumes. */
bool pl_code_bind(const pl_code_kernel *k, const void *const *in, void *const *out, void *work,
                  void *args);

#endif
