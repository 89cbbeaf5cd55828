/* vecmath.h - f32 functions without branches, for loops that the compiler vectorises.
 *
 * Plain IEEE operations in a fixed order and no contraction, so every instruction set gives the
 * same bits. Polynomials are weighted minimax fits (iteratively reweighted least squares in
 * double); the bounds below are the fit's relative error, and tests/cpu/test_tile_fn.c checks the
 * whole function against double precision over all exponents. Functions whose argument needs more
 * than f32 (sin, cos, pow) reduce it in double; for large arguments the caller uses libm.
 */
#ifndef PL_CPU_VECMATH_H
#define PL_CPU_VECMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t vm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float vm_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline uint64_t vm_bits64(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static inline double vm_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

static inline float vm_copysign(float x, float sign)
{
    return vm_float((vm_bits(x) & 0x7fffffffu) | (vm_bits(sign) & 0x80000000u));
}

/* 2^n for n in [-126, 127]. */
static inline float vm_pow2(uint32_t n)
{
    return vm_float((n + 127u) << 23);
}

/* e^x: x = n ln2 + r, |r| <= ln2/2. Adding 1.5*2^23 rounds to an integer and leaves it in the
 * low bits. 2^n is applied in two halves, so results reach subnormals and infinity. Fit 3e-9.
 */
static inline float vm_exp(float x)
{
    const float magic = 12582912.0f;
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float t = x * 1.44269504f + magic;
    float n = t - magic;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.985779059e-4f;
    p = p * r + 1.393359750e-3f;
    p = p * r + 8.333360729e-3f;
    p = p * r + 4.166646553e-2f;
    p = p * r + 1.666666653e-1f;
    p = p * r + 5.000000013e-1f;
    p = (p * (r * r) + r) + 1.0f;
    int32_t k = (int32_t)(vm_bits(t) - 0x4b400000u);
    int32_t h = k >> 1;
    return p * vm_pow2((uint32_t)h) * vm_pow2((uint32_t)(k - h));
}

/* log of a positive normal m*2^k with m in [sqrt(1/2), sqrt(2)); f = m - 1. Fit 7e-8 of f^3's
 * factor. The caller gives e = k. */
static inline float vm_log_parts(float f, float e)
{
    float z = f * f;
    float p = 7.037947068e-2f;
    p = p * f + -1.151387106e-1f;
    p = p * f + 1.167651126e-1f;
    p = p * f + -1.242023623e-1f;
    p = p * f + 1.424939678e-1f;
    p = p * f + -1.666805445e-1f;
    p = p * f + 2.000071137e-1f;
    p = p * f + -2.499999402e-1f;
    p = p * f + 3.333333121e-1f;
    float y = p * f * z;
    y = y + e * -2.12194440e-4f;
    y = y - 0.5f * z;
    return (f + y) + e * 0.693359375f;
}

static inline float vm_log(float x)
{
    float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f;
    float s = x * (tiny != 0.0f ? 8388608.0f : 1.0f);
    /* Counting from sqrt(1/2)'s bits puts the mantissa in [sqrt(1/2), sqrt(2)). */
    uint32_t u = vm_bits(s) - 0x3f3504f3u;
    int32_t k = (int32_t)u >> 23;
    float f = vm_float((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float y = vm_log_parts(f, (float)k - tiny * 23.0f);
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* log(1+e) for e in [0, 1]: log of the rounded sum, corrected by what the sum lost. */
static inline float vm_log1p_unit(float e)
{
    float u = 1.0f + e;
    float lost = e - (u - 1.0f);
    float half = u > 1.41421356f ? 1.0f : 0.0f;
    float f = (u * (1.0f - 0.5f * half)) - 1.0f;
    return vm_log_parts(f, half) + lost / u;
}

/* log(1+x): log of the rounded sum, corrected by what the sum lost. Where the sum is 1 the result
 * is x, sign of zero included. */
static inline float vm_log1p(float x)
{
    float u = 1.0f + x;
    float lost = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    uint32_t b = vm_bits(u) - 0x3f3504f3u; /* as in vm_log; u is 0 or at least 2^-24 */
    int32_t k = (int32_t)b >> 23;
    float f = vm_float((b & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float y = vm_log_parts(f, (float)k) + lost / u;
    y = fabsf(x) < 2.98023224e-8f ? x : y;
    y = x > 3.40282347e38f ? x : y;
    y = x == -1.0f ? -INFINITY : y;
    return x >= -1.0f ? y : NAN;
}

/* Odd polynomial near zero (fit 1.4e-7 of x^3's factor), 1 - 2/(e^2x + 1) beyond. */
static inline float vm_tanh(float x)
{
    float a = fabsf(x), z = x * x;
    float p = -6.090205264e-3f;
    p = p * z + 2.099275824e-2f;
    p = p * z + -5.384999667e-2f;
    p = p * z + 1.333276399e-1f;
    p = p * z + -3.333332890e-1f;
    float near = x + x * (z * p);
    float far = 1.0f - 2.0f / (vm_exp(a + a) + 1.0f);
    return a < 0.625f ? near : vm_copysign(far, x);
}

/* e^-|x| never overflows, so both tails keep their relative accuracy. */
static inline float vm_sigmoid(float x)
{
    float e = vm_exp(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

static inline float vm_silu(float x)
{
    return x * vm_sigmoid(x);
}

static inline float vm_softplus(float x)
{
    float m = x <= 0.0f ? 0.0f : x;
    return m + vm_log1p_unit(vm_exp(-fabsf(x)));
}

/* erfc(t) for t in [0, 11]: e^(-t^2) P(u)/(1+2t), u = (t-2)/(t+2); fit 1.5e-8. t comes from a with
 * t^2 = scale*a^2; the square is formed exactly as hi + lo with a 12-bit head, because e^x
 * magnifies the rounding of a large argument. *e_of: e^(-t^2). */
static inline float vm_erfc_parts(float t, float a, float scale, float *e_of)
{
    float h = vm_float(vm_bits(a) & 0xfffff000u);
    float lo = (a - h) * (a + h) * scale;
    float e = vm_exp(-(h * h) * scale);
    e = e - e * (lo * (1.0f - lo * (0.5f - lo * (0.166666667f - lo * 0.0416666667f))));
    float u = (t - 2.0f) / (t + 2.0f);
    float p = -3.961059981e-4f;
    p = p * u + -1.222339593e-3f;
    p = p * u + 1.312570778e-3f;
    p = p * u + 8.625355971e-3f;
    p = p * u + -8.060888551e-3f;
    p = p * u + -5.420262161e-2f;
    p = p * u + 1.640556547e-1f;
    p = p * u + -1.660315718e-1f;
    p = p * u + -9.276399739e-2f;
    p = p * u + 1.276978396e0f;
    *e_of = e;
    return e * (p / (1.0f + (t + t)));
}

static inline float vm_erfc_pos(float t, float a, float scale)
{
    float e;
    return vm_erfc_parts(t, a, scale, &e);
}

static inline float vm_erf(float x)
{
    float a = fabsf(x), z = x * x;
    float p = 7.854017206e-5f;
    p = p * z + -8.010245320e-4f;
    p = p * z + 5.188334289e-3f;
    p = p * z + -2.685381599e-2f;
    p = p * z + 1.128358527e-1f;
    p = p * z + -3.761262584e-1f;
    p = p * z + 0.128379166f;
    float near = x + x * p;
    float t = a > 11.0f ? 11.0f : a;
    float far = vm_copysign(1.0f - vm_erfc_pos(t, t, 1.0f), x);
    far = x != x ? x : far;
    return a < 1.0f ? near : far;
}

/* x times the cumulative normal distribution, whose left tail comes from erfc: no cancellation. */
static inline float vm_gelu(float x)
{
    float a = fabsf(x);
    a = a > 15.5f ? 15.5f : a;
    float tail = 0.5f * vm_erfc_pos(a * 0.707106781f, a, 0.5f);
    float phi = x < 0.0f ? tail : 1.0f - tail;
    return x * (x != x ? x : phi);
}

/* The derivative of vm_gelu: the cumulative normal distribution + x times its density. */
static inline float vm_gelu_slope(float x)
{
    float a = fabsf(x), e;
    a = a > 15.5f ? 15.5f : a;
    float tail = 0.5f * vm_erfc_parts(a * 0.707106781f, a, 0.5f, &e);
    float y = (x < 0.0f ? tail : 1.0f - tail) + vm_copysign(a * (0.398942280f * e), x);
    return x != x ? x : y;
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). */
static inline float vm_gelu_tanh(float x)
{
    float u = 1.59576912f * (x + 0.044715f * (x * x * x));
    return x * vm_sigmoid(u);
}

/* Arguments up to 2^24 quarter turns: pi/2 = head of 33 bits + tail, in double. For larger and
 * non-finite arguments the caller uses libm. */
#define VM_TRIG_MAX 1.0e7f

static inline float vm_trig(float x, uint64_t shift)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double t = (double)x * 0.63661977236758134 + magic;
    double n = t - magic;
    float r = (float)(((double)x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11);
    uint64_t q = vm_bits64(t) + shift;
    float z = r * r;
    float s = 2.726318824e-6f;
    s = s * z + -1.984023106e-4f;
    s = s * z + 8.333332318e-3f;
    s = s * z + -1.666666667e-1f;
    s = r + r * (z * s);
    float c = 2.454053203e-5f;
    c = c * z + -1.388826787e-3f;
    c = c * z + 4.166666448e-2f;
    c = (1.0f - 0.5f * z) + (z * z) * c;
    float y = (q & 1u) ? c : s;
    return (q & 2u) ? -y : y;
}

static inline float vm_sin(float x)
{
    return vm_trig(x, 0);
}

static inline float vm_cos(float x)
{
    return vm_trig(x, 1);
}

/* x^y = e^(y log x) in double for finite x > 0; fits 8e-14 and 5e-11. For other arguments the
 * caller uses libm. */
static inline float vm_pow(float x, float y)
{
    uint64_t u = vm_bits64((double)x) - 0x3fe6a09e667f3bcdu;
    int64_t k = (int64_t)((u >> 52) ^ 0x800u) - 0x800; /* arithmetic shift of a 12-bit field */
    double m = vm_double((u & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 8.31968306215288000e-02;
    p = p * z + 9.06951112767791778e-02;
    p = p * z + 1.11114446587474436e-01;
    p = p * z + 1.42857119438394936e-01;
    p = p * z + 2.00000000060008759e-01;
    p = p * z + 3.33333333333308501e-01;
    double l = 2.0 * (s + s * (z * p)) + (double)(int32_t)k * 0.69314718055994531;
    double a = (double)y * l;
    a = a > 100.0 ? 100.0 : a;
    a = a < -120.0 ? -120.0 : a;
    const double magic = 6755399441055744.0;
    double t = a * 1.4426950408889634 + magic;
    double n = t - magic;
    double r = a - n * 0.69314718055994531;
    double q = 2.48209093970902377e-05;
    q = q * r + 1.98993401300852395e-04;
    q = q * r + 1.38889238844223419e-03;
    q = q * r + 8.33329841949881529e-03;
    q = q * r + 4.16666664038199755e-02;
    q = q * r + 1.66666667190849604e-01;
    q = q * r + 5.00000000002104983e-01;
    q = (q * (r * r) + r) + 1.0;
    return (float)(q * vm_double((vm_bits64(t) + 1023u) << 52));
}

/* ---- 16-bit floats ---------------------------------------------------------------------- */
/* Returns the f32 nearest to x that bf16 can hold; ties to even, NaN stays NaN. */
static inline float vm_round_bf16(float x)
{
    uint32_t u = vm_bits(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    uint32_t nan = (u & 0xffff0000u) | 0x00400000u;
    return vm_float((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

static inline float vm_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, em = h & 0x7fffu;
    /* A product moves the exponent's bias of normal numbers, and also normalises subnormals. */
    float f = vm_float(em << 13) * 5.19229686e33f; /* 2^112 */
    uint32_t special = 0x7f800000u | (em << 13);
    special |= em > 0x7c00u ? 0x00400000u : 0u;
    uint32_t u = em >= 0x7c00u ? special : vm_bits(f);
    return vm_float(u | sign);
}

static inline uint16_t vm_f32_to_f16(float x)
{
    uint32_t u = vm_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    /* Normal results: rebias and round to even in the integer domain. */
    uint32_t n = (a - 0x38000000u + 0x0fffu + ((a >> 13) & 1u)) >> 13;
    /* Subnormal results: adding 0.5 puts the rounded value in the low bits. */
    uint32_t s = vm_bits(vm_float(a) + 0.5f) - 0x3f000000u;
    uint32_t h = a < 0x38800000u ? s : n;
    h = a >= 0x477ff000u ? 0x7c00u : h;
    h = a > 0x7f800000u ? (0x7e00u | (a >> 13 & 0x3ffu)) : h;
    return (uint16_t)(h | sign);
}

#endif
