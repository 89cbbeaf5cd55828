/* dtype.h - conversions between storage types; sizes and names are in plimsoll.h.
 *
 * Rounding is to nearest, ties to even. NaN stays NaN; values beyond f16's range become infinite.
 */
#ifndef PL_BASE_DTYPE_H
#define PL_BASE_DTYPE_H

#include "base/shared.h"
#include "plimsoll.h"

#include <string.h>

PL_SHARED_BEGIN

static inline float pl_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t pl_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    u += 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)(u >> 16);
}

float pl_f16_to_f32(uint16_t h);
uint16_t pl_f32_to_f16(float f);
/* The same as pl_f16_to_f32 for n elements, without a branch for each. */
void pl_f16s_to_f32(const uint16_t *from, int64_t n, float *to);

/* Read one element of any type as a double, and write it (rounded, clamped for integers). */
double pl_elem_get(pl_dtype d, const void *base, int64_t index);
void pl_elem_set(pl_dtype d, void *base, int64_t index, double v);

PL_SHARED_END

#endif
