/* draw.h - random numbers by the block, compiled for each instruction set.
 *
 * The same functions as base/rng.h, many at a time: integer arithmetic and plain double operations
 * in one fixed order, so every set gives the bits of the scalar ones.
 */
#ifndef PL_CPU_DRAW_H
#define PL_CPU_DRAW_H

#include <stdint.h>

enum { PL_DRAW_BLOCKS = 64 }; /* blocks of four words that words() makes at a time */

typedef struct pl_draw {
    /* Words of blocks first, first + 1, ...: 4 * PL_DRAW_BLOCKS of them. */
    void (*words)(uint64_t seed, uint32_t stream, uint64_t step, uint64_t first, uint32_t *out);
    /* One uniform number a word, of the bits that `keep` leaves. */
    void (*uniform)(const uint32_t *words, uint32_t keep, float *out);
    /* One normal number a word, made in pairs. */
    void (*normal)(const uint32_t *words, float *out);
} pl_draw;

/* The best set this machine has. */
const pl_draw *pl_draw_best(void);

#endif
