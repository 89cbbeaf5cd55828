/* packed_blocks.h - loops over blocks of packed numbers (base/number/packed.h), and rounding to
 * bf16 at random.
 *
 * All sets give the same bits: every number goes through one division, comparisons and one product
 * in f32.
 */
#ifndef PL_CPU_PACKED_BLOCKS_H
#define PL_CPU_PACKED_BLOCKS_H

#include "base/number/packed.h"

typedef struct pl_packed_loops {
    /* Packs n numbers into one block, n at most the block's size; the other codes become 0. A
     * number that is not finite makes the whole block NaN. */
    void (*pack)(const pl_packed_table *t, const float *x, int n, uint8_t *block);
    void (*unpack)(const pl_packed_table *t, const uint8_t *block, int n, float *x);
    /* Rounds x up or down to bf16, up with the probability of its distance from below: 16 bits of
     * each random word, from bit `shift` on, are added below the last bit that bf16 keeps. */
    void (*round)(const float *x, const uint32_t *words, int shift, int n, uint16_t *out);
    void (*widen)(const uint16_t *x, int n, float *out); /* bf16 to f32 */
} pl_packed_loops;

/* Returns the best set that this machine supports. */
const pl_packed_loops *pl_packed_best(void);

#endif
