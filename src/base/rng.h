/* rng.h - counter-based random numbers: Philox4x32-10.
 *
 * A draw is a pure function of (seed, stream, step, element), so recomputing, resuming and any
 * device give the same numbers. Block b holds elements 4b..4b+3. Reference: Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef PL_BASE_RNG_H
#define PL_BASE_RNG_H

#include <stdint.h>

/* Key (seed), counter (block, stream, step) to four 32-bit words. step is taken modulo 2^32;
 * stream numbers a node's draw. */
void pl_rng_block(uint64_t seed, uint32_t stream, uint64_t step, uint64_t block,
                  uint32_t out[4]);
/* Uniform in [0,1) with 24 bits. */
static inline float pl_rng_uniform(uint32_t w)
{
    return (float)(w >> 8) * (1.0f / 16777216.0f);
}
/* Two words to two normal draws (Box-Muller, double arithmetic inside). */
void pl_rng_normal2(uint32_t a, uint32_t b, float out[2]);

#endif
