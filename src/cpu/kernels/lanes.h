/* lanes.h - one vector register of floats, for files that are compiled for each instruction
 * set.
 *
 * LANES floats per vector. FMA rounds once where the processor supports it; files that promise the
 * same bits on every machine write a*b + c instead, which is never contracted.
 */
#ifndef PL_CPU_LANES_H
#define PL_CPU_LANES_H

#include <stdint.h>

#if defined(__AVX512F__)
# include <immintrin.h>
# define LANES        16
# define FMA(a, b, c) ((vec)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
/* The masked form with a full mask: gcc 12 warns inside the plain one. */
# define VMAX(a, b) ((vec)_mm512_mask_max_ps((__m512)(a), 0xffff, (__m512)(a), (__m512)(b)))
# define SPLAT(x)   ((vec)_mm512_set1_ps(x))
#elif defined(__AVX2__)
# include <immintrin.h>
# define LANES        8
# define FMA(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
# define VMAX(a, b)   ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
# define SPLAT(x)     ((vec)_mm256_set1_ps(x))
#else
# define LANES        4
# define FMA(a, b, c) ((a) * (b) + (c))
# define VMAX(a, b)   vmax_lanes(a, b)
# define SPLAT(x)     ((vec){(x), (x), (x), (x)})
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef uint32_t uvec __attribute__((vector_size(LANES * 4)));
typedef float loose_vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#if LANES == 4
static inline vec vmax_lanes(vec a, vec b)
{
    uvec m = (uvec)(a > b);
    return (vec)(((uvec)a & m) | ((uvec)b & ~m));
}
#endif

static inline vec load(const float *p)
{
    return (vec) * (const loose_vec *)p;
}

static inline void store(float *p, vec v)
{
    *(loose_vec *)p = (loose_vec)v;
}

#endif
