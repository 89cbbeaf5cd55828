/* draw.h - random numbers in blocks, compiled for each instruction set.
 *
 * The same functions as base/rng.h, many at a time: integer arithmetic and plain double operations
 * in one fixed order, so every set gives the same bits as the scalar functions. Groups draw numbers
 * again where they are read instead of storing them (M13 of docs/MEMORY.md).
 */
#ifndef PL_CPU_DRAW_H
#define PL_CPU_DRAW_H

#include "plimsoll.h"

enum { PL_DRAW_BLOCKS = 64 }; /* blocks of four words per call of words() */

typedef struct pl_draw {
    /* Writes the words of blocks first, first + 1, ...: 4 * PL_DRAW_BLOCKS of them. */
    void (*words)(uint64_t seed, uint32_t stream, uint64_t step, uint64_t first, uint32_t *out);
    /* Makes one uniform number per word, from the bits that `keep` leaves. */
    void (*uniform)(const uint32_t *words, uint32_t keep, float *out);
    /* Makes one normal number per word, in pairs. */
    void (*normal)(const uint32_t *words, float *out);
} pl_draw;

/* Returns the best set that this machine supports. */
const pl_draw *pl_draw_best(void);

/* A stream of numbers of one kind and dtype. Uniform numbers have 24 random bits in f32 and f64,
 * and as many as fit below 1 in bf16 (8) and f16 (11). */
typedef struct pl_draws {
    uint64_t seed, step;
    uint32_t stream;
    bool normal;
    pl_dtype dtype;
} pl_draws;

/* Returns the mask of the bits of a word that a uniform number of this dtype holds exactly, so that
 * none rounds to 1. */
uint32_t pl_draw_bits(pl_dtype d);
/* Draws numbers first .. first + n - 1, in f32 (not yet rounded to a shorter dtype). */
void pl_draw_run(const pl_draws *from, int64_t first, int64_t n, float *out);
/* Draws the numbers first + sum of index * stride over a box, row-major, contiguous in `out`: f64
 * for dtype f64, else f32. Dim 0 is the outermost. */
void pl_draw_box(const pl_draws *from, int64_t first, int rank, const int64_t *size,
                 const int64_t *stride, void *out);

#endif
