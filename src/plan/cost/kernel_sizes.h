/* kernel_sizes.h - choices of the engine's GPU kernels that depend on sizes only, and their
 * scratch.
 *
 * Two callers must decide alike, so the decisions live here, without CUDA: the kernels of the CUDA
 * plug-in (cuda/matmul, cuda/attention, cuda/conv), and the device that plans for a GPU that is not
 * installed (plan/cost/scratch_card.c), whose plan reserves the scratch that the kernels will need.
 * A change here changes kernels and plans together.
 *
 * Valid C++ too.
 */
#ifndef PL_PLAN_COST_KERNEL_SIZES_H
#define PL_PLAN_COST_KERNEL_SIZES_H

#include "base/shared.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- f32 products on tensor cores (cuda/matmul/split.h) --------------------------------------
 * T(name, rows and columns of y in a tile, blocks that a multiprocessor holds, their rate beside
 * the best tile's). The kernels check at compile time that their tiles are these. */
#define PL_SPLIT_TILES(T)                                                                          \
 T(LARGE, 128, 128, 1, 1.0) T(NARROW, 128, 64, 2, 1.0) T(LITTLE, 64, 64, 3, 0.9)

typedef enum pl_split_tile {
#define T(name, m, n, blocks, rate) PL_SPLIT_##name,
    PL_SPLIT_TILES(T)
#undef T
        PL_N_SPLIT_TILES
} pl_split_tile;

enum {
    PL_SPLIT_TERMS = 32,     /* the number of terms of a part is a multiple of this */
    PL_SPLIT_LEAST_SUM = 512 /* with fewer terms, f32 units are clearly more accurate */
};

/* y [batch, m, n] of sums over k. */
typedef struct pl_split_sizes {
    int64_t batch, m, n, k;
} pl_split_sizes;

typedef struct pl_split_choice {
    pl_split_tile tile;
    int64_t parts;  /* parts of a sum; a second kernel adds them in order */
    double seconds; /* expected */
} pl_split_choice;

PL_SHARED_BEGIN
/* Returns the tile and the number of parts with the least expected time. whole: one part. */
pl_split_choice pl_split_choose(const pl_split_sizes *s, int64_t sms, bool whole);
/* Returns the terms of one part of a sum over k; the last part may have fewer. */
int64_t pl_split_terms(int64_t k, int64_t parts);
/* Returns the scratch of a product: its parts, in f32; 0 with one part. */
size_t pl_split_bytes(const pl_split_sizes *s, int64_t parts);
/* Whether tensor cores are probably faster than f32 units, and as accurate. */
bool pl_split_is_faster(const pl_split_sizes *s, const pl_split_choice *c, int64_t sms);

/* ---- a matrix times a vector (cuda/matmul/vector.h) ---------------------------------------- */
/* Returns the number of parts of each of the batch x n sums over k. elem: bytes of an element;
 * columns: the outputs of one term are adjacent in the matrix. */
int64_t pl_vector_parts(int64_t batch, int64_t n, int64_t k, int64_t elem, bool columns,
                        int64_t *terms);
size_t pl_vector_bytes(int64_t batch, int64_t n, int64_t parts);

/* ---- convolutions as products over columns (cuda/conv/conv_product.c) ------------------------ */
/* Returns the bytes of columns to make at a time, for operands (image and result) of so many
 * bytes. */
int64_t pl_columns_at_once(int64_t operand_bytes);

/* ---- f32 attention on tensor cores (cuda/attention/attention_split.h) ------------------------ */
enum {
    PL_ATTEND_KEYS = 64,     /* keys of a block of the backward kernel over keys */
    PL_ATTEND_QUERIES = 128, /* queries at a time are a multiple of this */
    PL_ATTEND_SLICE = 32     /* queries of a slice are a multiple of this */
};

typedef struct pl_attend_sizes {
    int64_t heads; /* of all batches */
    int64_t n, m;  /* queries, keys */
    int64_t d;     /* of a head */
    int64_t room;  /* bytes for gradients of scores, approximate; 0: as many as are useful */
} pl_attend_sizes;

/* A pass in portions: `heads` heads and `queries` queries at a time, the queries in `slices` slices
 * of `per`. Offsets into scratch follow; split_at: q, k, v and the gradient of the result,
 * split. */
typedef struct pl_attend_course {
    int64_t heads, queries, slices, per;
    size_t scores_at, parts_at, split_at[4], bytes;
} pl_attend_course;

/* Returns the size of a head that the kernels compute with: d rounded up. */
int64_t pl_attend_wide(int64_t d);
pl_attend_course pl_attend_forward_course(const pl_attend_sizes *s);
/* delta_bytes: scratch that precedes the rest (two numbers a query). */
pl_attend_course pl_attend_backward_course(const pl_attend_sizes *s, size_t delta_bytes);

/* ---- attention of f32 as TF32 (cuda/attention/attention_tf32.cu) ----------------------------- */
enum { PL_ATTEND_LARGEST = 256 }; /* bytes for the largest number of each tensor */
/* Returns the bytes of two numbers a query, and of queries or keys of 16 bits. */
size_t pl_attend_tf32_delta(const pl_attend_sizes *s);
size_t pl_attend_tf32_tensor(const pl_attend_sizes *s, bool keys);
/* Returns the scratch: q, k, v and, backward, d_o in 16 bits, after the numbers above. */
size_t pl_attend_tf32_bytes(const pl_attend_sizes *s, bool back);

/* ---- 16-bit attention by cuDNN (cuda/attention/attention_dnn.c) ------------------------------ */
/* Pairs of query and key of a head from which cuDNN is faster than our own kernels
 * (bench/results/attention.csv). */
enum { PL_ATTEND_DNN_PAIRS = 128 * 128 };
/* Pairs from which warpgroup products (cuda/attention/attention_wgmma.cu) are faster than warp
 * products, if cuDNN does not compute the gradient. */
enum { PL_ATTEND_WGMMA_PAIRS = 128 * 128 };
/* Queries of a tile and keys of a block of warpgroup products, for heads of up to 64 and up to 128
 * numbers. */
enum { PL_ATTEND_WG_QUERIES = 64, PL_ATTEND_WG_KEYS_64 = 192, PL_ATTEND_WG_KEYS = 128 };
/* Queries of a block of the forward pass on warpgroup products, and keys of its tiles. */
enum { PL_ATTEND_WG_ROWS_64 = 128, PL_ATTEND_WG_ROWS = 192, PL_ATTEND_WG_TILE = 64 };
/* Counters of a block. */
enum { PL_ATTEND_WG_ORDERS = 4 };
/* Scratch of warpgroup products for `heads` heads of all batches: two numbers a query, then sums of
 * the gradient of the queries in f32, then counters. */
typedef struct pl_attend_wg_work {
    size_t sums_at, counts_at, bytes;
} pl_attend_wg_work;
pl_attend_wg_work pl_attend_wg_work_of(int64_t heads, int64_t n, int64_t m, int64_t d);
/* Returns the scratch of a gradient of f32 that is rounded for warpgroup products: theirs, then the
 * rounded operands. */
size_t pl_attend_tf32_wg_bytes(const pl_attend_sizes *s);
/* Bytes of a backward pass for gradients of scores. */
#define PL_ATTEND_DNN_SCRATCH ((int64_t)256 << 20)
/* Batches and heads of one backward call, divisors of all batches and heads, and its bytes for
 * gradients of scores. batch 0: a call within PL_ATTEND_DNN_SCRATCH would leave most of a GPU idle,
 * and our own kernels are faster. */
typedef struct pl_attend_dnn_slice {
    int64_t batch, heads;
    int64_t bytes;
} pl_attend_dnn_slice;
pl_attend_dnn_slice pl_attend_dnn_slice_of(int64_t batch, int64_t heads, int64_t n, int64_t m);
/* Whether warpgroup products compute a gradient faster than cuDNN, which stores gradients of scores
 * for a fixed order of sums. heads: of all batches. Measured on an H200; between the measured sizes
 * the limits are ours. */
bool pl_attend_wg_is_faster(int64_t heads, int64_t n, int64_t m, int64_t d, bool causal);
PL_SHARED_END

#endif
