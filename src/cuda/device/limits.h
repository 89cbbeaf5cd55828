/* limits.h - the largest counts of one launch, and the handling of larger counts.
 *
 * Indices are 32-bit where the launcher has checked that a launch counts at most pl_most_items(),
 * in as many launches as necessary; where one image or one row has more items, 64-bit. Tests in the
 * simulator set a small limit.
 *
 * Valid C++ too.
 */
#ifndef PL_CUDA_LIMITS_H
#define PL_CUDA_LIMITS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef PL_CUDASIM
# include "sim.h"
# define PL_MOST_ITEMS pl_most_items()
#else
# define PL_MOST_ITEMS 0x7fffffff
/* Returns the number of items that 32-bit indices count. */
static inline int64_t pl_most_items(void)
{
    return PL_MOST_ITEMS;
}
/* Returns the largest number of blocks along y, and along z, of every GPU. */
static inline int64_t pl_grid_side(void)
{
    return 65535;
}
/* Launchers declare what they count with indices of that many bytes: too much for 32 bits is an
 * error in the simulator. */
static inline void pl_counts(int64_t n, size_t bytes)
{
    (void)n, (void)bytes;
}
#endif

#ifdef PL_CUDA_LAUNCH_H
/* Like pl_divmod of launch.h, for n of any size. */
static __device__ __forceinline__ uint64_t pl_divmod(uint64_t n, const pl_divisor &d,
                                                     uint64_t *rest)
{
    uint64_t q = n <= (uint64_t)PL_MOST_ITEMS ? pl_quot((uint32_t)n, d) : n / d.d;
    *rest = n - q * d.d;
    return q;
}
static __device__ __forceinline__ int64_t pl_divmod(int64_t n, const pl_long_divisor &d,
                                                    int64_t *rest)
{
    return pl_long_divmod(n, d, rest);
}
#endif

#endif
