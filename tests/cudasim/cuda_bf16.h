/* cuda_bf16.h - __nv_bfloat16 for the simulator: storage and conversions, rounding to nearest
 * even. */
#ifndef PL_CUDASIM_BF16_H
#define PL_CUDASIM_BF16_H

#include "cudasim.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __align__(2) __nv_bfloat16
{
    unsigned short x;
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw r) : x(r.x)
    {
    }
    operator __nv_bfloat16_raw() const
    {
        return __nv_bfloat16_raw{x};
    }
};
struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float((unsigned)h.x << 16);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
    unsigned u = __float_as_uint(f);
    u = (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu << 16 : u + 0x7fffu + (u >> 16 & 1u);
    return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)(u >> 16)});
}

static inline __nv_bfloat16 __float2bfloat16(float f)
{
    return __float2bfloat16_rn(f);
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u)
{
    return __nv_bfloat16(__nv_bfloat16_raw{u});
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h)
{
    return h.x;
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162{__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}

#endif
