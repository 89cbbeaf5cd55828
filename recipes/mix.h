/* mix.h - reproducible numbers for generated data: a hash of 64 bits, and a number in [0,1) of it.
 */
#ifndef RECIPES_MIX_H
#define RECIPES_MIX_H

#include <stdint.h>

#define MIX_STEP 0x9E3779B97F4A7C15u /* multiples of it are well apart */

/* The output function of splitmix64: one-to-one, without visible relation to x. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline double mix_unit(uint64_t x)
{
    return (double)(mix(x) >> 11) * 0x1p-53;
}

#endif
