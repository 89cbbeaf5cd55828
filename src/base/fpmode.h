/* fpmode.h - whether a thread computes with denormal numbers or takes them as zero.
 *
 * Denormals are too small to have a full mantissa (below 1.2e-38 in f32). Some processors need a
 * hundred times as long for an instruction with a denormal operand, even in an unused vector lane.
 */
#ifndef PL_BASE_FPMODE_H
#define PL_BASE_FPMODE_H

#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
enum { PL_FP_FLUSHES = 1 }; /* pl_fp_flushing has an effect here */

static inline uint32_t pl_fp_mode(void)
{
    return __builtin_ia32_stmxcsr() & ~0x3fu; /* without the exception flags */
}

static inline void pl_fp_set(uint32_t mode)
{
    __builtin_ia32_ldmxcsr(mode);
}

/* Returns the mode in which denormal operands and results count as zero. */
static inline uint32_t pl_fp_flushing(uint32_t mode)
{
    return mode | 0x8040u;
}
#else
enum { PL_FP_FLUSHES = 0 };

static inline uint32_t pl_fp_mode(void)
{
    return 0;
}

static inline void pl_fp_set(uint32_t mode)
{
    (void)mode;
}

static inline uint32_t pl_fp_flushing(uint32_t mode)
{
    return mode;
}
#endif

#endif
