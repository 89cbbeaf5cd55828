/* vec.h - the vectorised loops of the tile interpreter (cpu/tile), one set for each instruction
 * set.
 *
 * Every loop is compiled three times (files X.isa.c); pl_vec_best picks a set at run time.
 * Invariant: all sets give the same bits. Values of a dtype live in registers of a class: bf16 and
 * f16 as f32 (already rounded), bool as u8.
 */
#ifndef PL_CPU_VEC_H
#define PL_CPU_VEC_H

#include "ir/op.h"

typedef enum pl_vec_class {
    PL_VEC_F32,
    PL_VEC_F64,
    PL_VEC_I32,
    PL_VEC_I64,
    PL_VEC_U8,
    PL_N_VECS
} pl_vec_class;

static inline pl_vec_class pl_vec_class_of(pl_dtype d)
{
    static const uint8_t of[PL_N_DTYPES] = {
        [PL_F32] = PL_VEC_F32, [PL_F64] = PL_VEC_F64, [PL_BF16] = PL_VEC_F32,
        [PL_F16] = PL_VEC_F32, [PL_I32] = PL_VEC_I32, [PL_I64] = PL_VEC_I64,
        [PL_U8] = PL_VEC_U8,   [PL_BOOL] = PL_VEC_U8};
    return (pl_vec_class)of[d];
}

static inline size_t pl_vec_width(pl_vec_class c)
{
    return c == PL_VEC_U8 ? 1 : c == PL_VEC_F64 || c == PL_VEC_I64 ? 8 : 4;
}

/* dst[i] = f(a[i], b[i], c[i]) for i in [0, n). dst may be any of the operands. A scalar operand is
 * one element used for all i; the mode of the function says which operands are scalar. */
typedef void (*pl_vec_fn)(void *dst, const void *a, const void *b, const void *c, int64_t n,
                          double imm);
/* Modes of two operands: both vectors, b scalar, a scalar. Modes of SELECT: bit 0: c is scalar, bit
 * 1: b is scalar; the condition is a vector. One operand: mode 0. */
enum { PL_VEC_VV = 0, PL_VEC_VS = 1, PL_VEC_SV = 2, PL_VEC_MODES = 4 };

typedef struct pl_vec_map {
    pl_vec_fn fn[PL_N_SCALARS][PL_VEC_MODES];
} pl_vec_map;

/* Moving and converting. */
typedef struct pl_vec_move {
    pl_vec_fn cast[PL_N_VECS][PL_N_VECS]; /* [from][to]; to u8 saturates */
    pl_vec_fn to_bool[PL_N_VECS];
    pl_vec_fn round_bf16, round_f16; /* f32 to f32 */
    pl_vec_fn load_bf16, load_f16;   /* memory to f32 */
    pl_vec_fn store_bf16, store_f16; /* f32 to memory */
    pl_vec_fn fill[PL_N_VECS];       /* dst[i] = a[0] */
    /* dst[r*len + i] = a[r], r in [0, n), len = (int64_t)imm */
    pl_vec_fn repeat[PL_N_VECS];
} pl_vec_move;

/* Accumulating. Accumulators are f64 for float classes and i64 for integers. */
enum { PL_VEC_LANES = 16 };
/* Vertical: acc[i] accumulates x[r*width + i] for r in [0, rows). Moments keep three planes of
 * `pitch` elements: shift, sum of x - shift, sum of its square. `start` initialises from a single
 * row. */
typedef void (*pl_vec_vert)(void *acc, int64_t pitch, const void *x, int64_t rows, int64_t width);
/* Horizontal: lane (pos + i) % LANES accumulates x[i]. Moments keep lanes of sums at [0], of
 * squares at [LANES], and the shift at [2*LANES]. */
typedef void (*pl_vec_horz)(void *lanes, const void *x, int64_t pos, int64_t n);
/* Whole rows of len <= one block: out[r] equals the result of horizontal lanes and their tree for
 * row r. Moments: out[r] is the sum of x - shift, out[pitch + r] of its square; the shift is the
 * row's first element. */
typedef void (*pl_vec_rows)(void *out, int64_t pitch, const void *x, int64_t rows, int64_t len);
typedef struct pl_vec_acc {
    pl_vec_vert start[4][PL_N_VECS], vert[4][PL_N_VECS]; /* [pl_reduce_fn] */
    pl_vec_horz horz[4][PL_N_VECS];
    pl_vec_rows rows[4][PL_N_VECS];
} pl_vec_acc;

/* Vertical sums and moments of f32, in blocks of rows: f32 inside a block, f64 totals. Rows [first,
 * first + rows) of a part, `width` columns each. An incomplete block waits in part and part_sq;
 * moments are about shift, the part's first row, and use all five. */
enum { PL_VEC_BLOCK_ROWS = 32 };
typedef struct pl_vec_cols {
    double *sum, *sq;
    float *part, *part_sq, *shift;
} pl_vec_cols;
typedef void (*pl_vec_block)(const pl_vec_cols *a, const float *x, int64_t first, int64_t rows,
                             int64_t width);
typedef struct pl_vec_blocks {
    pl_vec_block sum, moments;
} pl_vec_blocks;

/* Links of a chain: v becomes v + x[i], v - x[i], x[i] - v, v * x[i]; the same with a scalar x;
 * functions of v alone. */
typedef enum pl_link_code {
    PL_LINK_ADD,
    PL_LINK_SUB,
    PL_LINK_RSUB,
    PL_LINK_MUL,
    PL_LINK_ADD_S,
    PL_LINK_SUB_S,
    PL_LINK_RSUB_S,
    PL_LINK_MUL_S,
    PL_LINK_NEG,
    PL_LINK_SQUARE,
    PL_LINK_RELU,
    PL_LINK_LEAKY
} pl_link_code;
typedef struct pl_vec_link {
    pl_link_code code;
    float imm;
    const float *x;
} pl_vec_link;
/* dst[i] = a[i] through all links. dst may be any of the operands. */
typedef void (*pl_vec_chain)(float *dst, const float *a, const pl_vec_link *link, int n_link,
                             int64_t n);

typedef struct pl_vec {
    const char *name;
    const pl_vec_map *map[PL_N_VECS];
    const pl_vec_move *move;
    const pl_vec_acc *acc;
    const pl_vec_blocks *blocks;
    const pl_vec_chain *chain;
} pl_vec;

/* Returns the best set of this machine (cpu/isa/isa.h). */
const pl_vec *pl_vec_best(void);

/* Names of one file's tables: pl_vec_f32_avx2 ... */
#define PL_VEC_PASTE2(a, b) a##_##b
#define PL_VEC_PASTE(a, b)  PL_VEC_PASTE2(a, b)
#define PL_VEC_NAME(stem)   PL_VEC_PASTE(stem, PL_ISA)

/* The loop below may be vectorised although dst may equal an operand: elements are independent. */
#if defined(__clang__)
/* Loops around libm calls stay scalar; that is intended. */
# pragma clang diagnostic ignored "-Wpass-failed"
# define PL_VEC_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
# define PL_VEC_LOOP _Pragma("GCC ivdep")
#endif

#endif
