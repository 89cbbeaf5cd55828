/* cuda_fp16.h - __half for the simulator: storage and conversions, rounding to nearest even. */
#ifndef PL_CUDASIM_FP16_H
#define PL_CUDASIM_FP16_H

#include "cudasim.h"

struct __half_raw {
    unsigned short x;
};
struct __align__(2) __half
{
    unsigned short x;
    __half() = default;
    __half(__half_raw r) : x(r.x)
    {
    }
    operator __half_raw() const
    {
        return __half_raw{x};
    }
};
struct __align__(4) __half2
{
    __half x, y;
};
typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half h)
{
    unsigned sign = (unsigned)(h.x & 0x8000u) << 16, e = h.x >> 10 & 31u, m = h.x & 1023u;
    if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
    if (e) return __uint_as_float(sign | (e + 112u) << 23 | m << 13);
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}

static inline __half __float2half_rn(float f)
{
    unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu, h;
    if (a > 0x7f800000u)
        h = 0x7fffu;
    else if (a >= 0x477ff000u) /* 65520 and above */
        h = 0x7c00u;
    else if (a < 0x38800000u) /* below 2^-14: a multiple of 2^-24 */
        h = (unsigned)rintf(__uint_as_float(a) * 0x1p24f);
    else
        h = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
    return __half(__half_raw{(unsigned short)(sign | h)});
}

static inline __half __float2half(float f)
{
    return __float2half_rn(f);
}
static inline __half __ushort_as_half(unsigned short u)
{
    return __half(__half_raw{u});
}
static inline unsigned short __half_as_ushort(__half h)
{
    return h.x;
}
static inline float __low2float(__half2 v)
{
    return __half2float(v.x);
}
static inline float __high2float(__half2 v)
{
    return __half2float(v.y);
}
static inline float2 __half22float2(__half2 v)
{
    return make_float2(__half2float(v.x), __half2float(v.y));
}
static inline __half2 __floats2half2_rn(float a, float b)
{
    return __half2{__float2half_rn(a), __float2half_rn(b)};
}
static inline __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}

#endif
