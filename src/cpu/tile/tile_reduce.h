/* tile_reduce.h - reductions in a fixed order, for any partition of the space.
 *
 * Idea: a reduction is planned from sizes and mask alone. Dims of size 1 are dropped and neighbours
 * with the same mask bit merged, which leaves runs that alternate between kept and reduced. One
 * reduced run is accumulated element by element into few partial results, which are folded at the
 * end over the parts and over the other reduced runs.
 *
 *   horizontal  [outer, len]         the innermost run is reduced: blocks of PL_RED_BLOCK elements,
 *                                    in each 16 lanes (position modulo 16), combined as a tree
 *   vertical    [outer, len, inner]  rows of `inner` elements are added into accumulators; short
 *                                    rows are taken `groups` at a time to fill vectors. len is cut
 *                                    into parts of part_rows rows, each with its accumulators
 *
 * Example: [N,HW,G,C/G] over {1,3} has runs N | HW | G | C/G: vertical along HW with inner = C,
 * then folded over the parts and over C/G.
 *
 * Invariant: accumulators of different parts are independent. The space may be given to threads in
 * pieces that end where pl_red_next_cut says; inside a piece elements come in increasing position
 * (vertical: of each accumulator) and may be cut anywhere. Positions are flat positions in the
 * row-major space.
 */
#ifndef PL_CPU_TILE_REDUCE_H
#define PL_CPU_TILE_REDUCE_H

#include "cpu/tile/tile.h"
#include "cpu/vec/vec.h"

enum { PL_RED_BLOCK = 1024, PL_RED_LANES = 3 * PL_VEC_LANES };

typedef union pl_acc {
    double f; /* float classes */
    int64_t i;
} pl_acc;

typedef struct pl_red {
    pl_reduce_fn fn;
    pl_vec_class cls; /* of the source */
    pl_dtype dtype;   /* of the result */
    bool vertical;
    bool blocks;           /* vertical sums and moments of f32: see tile_block.c */
    bool direct;           /* a block is a whole result: written directly, no accumulators */
    int32_t n_runs, along; /* along: the run that is accumulated */
    int64_t run[PL_FUSED_RANK + 1];
    bool reduced[PL_FUSED_RANK + 1];
    int64_t outer, len, inner;
    int64_t part_rows, parts, groups;
    int64_t period, unit;  /* elements of [len, inner] and of one part */
    int64_t n_acc, planes; /* planes of n_acc accumulators */
    int64_t n_out;         /* results */
} pl_red;

void pl_red_plan(pl_red *r, pl_reduce_fn fn, pl_dtype src, pl_dtype result, int rank,
                 const int64_t *dim, uint32_t mask);
static inline size_t pl_red_bytes(const pl_red *r)
{
    if (r->blocks) /* two f64 and three f32, or one and one */
        return (size_t)r->n_acc * (r->fn == PL_REDUCE_MOMENTS ? 28 : 12);
    return r->direct ? 0 : (size_t)(r->n_acc * r->planes) * sizeof(pl_acc);
}
/* Returns the smallest position >= x where a piece may end. */
int64_t pl_red_next_cut(const pl_red *r, int64_t x);

/* Accumulates x[0, n), the elements at positions [at, at + n). lanes: PL_RED_LANES of the calling
 * thread, kept between calls. out, out2: results, used when direct; NULL if not wanted. */
void pl_red_take(const pl_red *r, const pl_vec *v, pl_acc *acc, pl_acc *lanes, const void *x,
                 int64_t at, int64_t n, void *out, void *out2);
/* Folds the accumulators of results [lo, hi); nothing to do when direct. */
void pl_red_fold(const pl_red *r, const pl_acc *acc, int64_t lo, int64_t hi, void *out, void *out2);
/* Returns the number of results per task of the fold. */
int64_t pl_red_fold_step(const pl_red *r);
/* Writes the results of an empty space. */
void pl_red_empty(const pl_red *r, void *out, void *out2);

/* Where results of rows go: element r of out, and of out2 for the variance; NULL: not wanted.
 */
typedef struct pl_row_sink {
    pl_dtype dtype;
    void *out, *out2;
} pl_row_sink;
/* Reduces rows of n elements each, with the bits of the edge reduction over them. */
void pl_red_rows(const pl_vec *v, pl_reduce_fn fn, pl_vec_class cls, const void *x, int64_t rows,
                 int64_t n, pl_acc *lanes, pl_row_sink *sink);
/* Writes a result, rounded to f32 unless the class is f64, as element i of dtype d. */
void pl_red_put(pl_vec_class cls, pl_dtype d, void *out, int64_t i, pl_acc value);

/* ---- shared by tile_reduce.c and tile_block.c ------------------------------------------- */

/* A partial result: a value, or the moments of n elements. */
typedef struct pl_partial {
    pl_acc v; /* value, or mean */
    double m2;
    double n;
} pl_partial;

/* Converts shifted sums to moments. Rounding can leave a sum of squares below zero by an ulp. */
static inline pl_partial pl_red_moments_of(double shift, double sum, double squares, double n)
{
    pl_partial p = {{.f = shift + sum / n}, squares - sum * (sum / n), n};
    if (p.m2 < 0.0) p.m2 = 0.0;
    return p;
}
/* Returns the number of elements in the accumulators of part p, group j. */
int64_t pl_red_rows_behind(const pl_red *r, int64_t p, int64_t j);

/* Accumulates x[0, n), at positions [at, at + n) of one part. */
void pl_red_take_blocks(const pl_red *r, const pl_vec *v, pl_acc *acc, const float *x, int64_t at,
                        int64_t n);
/* Returns the partial result of accumulator i over its n elements. */
pl_partial pl_red_block_at(const pl_red *r, const pl_acc *acc, int64_t i, int64_t n);
/* Folds results [lo, hi) when no other run is reduced. */
void pl_red_fold_blocks(const pl_red *r, const pl_acc *acc, int64_t lo, int64_t hi, void *out,
                        void *out2);

#endif
