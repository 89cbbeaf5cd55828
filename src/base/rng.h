/* rng.h - counter-based random numbers: Philox4x32-10.
 *
 * A draw is a pure function of (seed, stream, step, element), so recomputing, resuming and any
 * device give the same numbers. Block b holds elements 4b..4b+3. Reference: Salmon et al.,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef PL_BASE_RNG_H
#define PL_BASE_RNG_H

#include "base/shared.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* GPU kernels draw with the same code. */
#if defined(__CUDACC__)
# define PL_RNG_INLINE static inline __host__ __device__
#else
# define PL_RNG_INLINE static inline
#endif

PL_SHARED_BEGIN

/* Maps key (seed) and counter (block, stream, step) to four 32-bit words. step is taken modulo
 * 2^32; stream is the number of a node's draw. */
void pl_rng_block(uint64_t seed, uint32_t stream, uint64_t step, uint64_t block, uint32_t out[4]);
/* Returns a uniform number in [0,1) with 24 bits. */
PL_RNG_INLINE float pl_rng_uniform(uint32_t w)
{
    return (float)(w >> 8) * (1.0f / 16777216.0f);
}

/* log(u), 0 < u <= 1: u = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1)). Plain
 * double operations in a fixed order: the same bits from a loop of any width, and on any machine.
 * Relative error below 1e-13. */
PL_RNG_INLINE double pl_rng_log(double u)
{
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    double e = (double)(int32_t)(bits >> 52) - 1023, m;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &bits, sizeof m);
    double above = m > 1.4142135623730951 ? 1 : 0;
    e += above;
    m -= above * 0.5 * m;
    double s = (m - 1) / (m + 1), z = s * s;
    double p = 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return e * 0.6931471805599453 + 2 * s * (p * z + 1);
}

/* Sets cos and sin of the angle b/2^32 of a turn: the nearest quarter turn is removed in integers,
 * the rest is within an eighth and goes through Taylor's series. Absolute error below 1e-13. */
PL_RNG_INLINE void pl_rng_turn(uint32_t b, double *cosine, double *sine)
{
    uint32_t quarter = (b + 0x20000000u) >> 30;
    double x = (double)(int32_t)(b - (quarter << 30)) * (6.283185307179586 * 0x1p-32), z = x * x;
    double s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * x + x;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1;
    double a = quarter & 1 ? s : c, o = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -a : a;
    *sine = quarter & 2 ? -o : o;
}

/* Maps two words to two normal draws: Box-Muller, in double. */
PL_RNG_INLINE void pl_rng_normal2(uint32_t a, uint32_t b, float out[2])
{
    double u = ((double)(int32_t)(a ^ 0x80000000u) + 2147483649.0) * 0x1p-32; /* in (0,1] */
    double r = sqrt(-2 * pl_rng_log(u)), c, s;
    pl_rng_turn(b, &c, &s);
    out[0] = (float)(r * c);
    out[1] = (float)(r * s);
}

PL_SHARED_END

#endif
