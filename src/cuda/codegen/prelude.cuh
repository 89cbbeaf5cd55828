// clang-format off
// prelude.cuh - the text that every generated kernel begins with: scalar functions, element types,
// reductions.
//
// p_NAME exists for each row of src/ir/scalar.def and each register type of that row. f16 and bf16
// values live in registers as floats that hold a rounded value and, where two elements are written
// at a time, also as words of two. The text includes no header, so NVRTC needs none at run time. It
// also compiles as plain C++ for the simulator (tests/cudasim), where the few lines of PTX have an
// equivalent. NVRTC compiles with --fmad=false: nothing is contracted, so a value has the same bits
// in every kernel.
//
// codegen_write.c embeds this file and leaves out blank lines and lines that begin with //, because
// compiled kernels are cached by their text. A comment therefore stands on its own line.

#define DEV_IN __device__ __forceinline__
#define DEV static DEV_IN
#ifdef __CUDACC__
#define GRID_CONST __grid_constant__
typedef unsigned long long p_size;
#define P_LARGE(name) extern __shared__ __align__(16) unsigned char name[]
#else
#define GRID_CONST
#define P_LARGE(name) unsigned char *const name = (unsigned char *)pl_sim_shared()
typedef unsigned long p_size;
#endif
typedef unsigned short p_u16; typedef unsigned char p_u8; typedef long long p_i64;
struct p_by { unsigned d, m, s; };
// Exact for numerators below 2^31.
DEV int p_quot(int n, p_by v) { return (int)((__umulhi((unsigned)n, v.m) + (unsigned)n) >> v.s); }
DEV p_i64 p_quot(p_i64 n, p_by v) { return n / v.d; }
DEV constexpr p_size p_whole(p_size bytes, p_size one) { return bytes % 16 == 0 ? 16 : bytes & bytes - 1 ? one : bytes; }
template <class T, int N> struct alignas(p_whole(sizeof(T) * N, alignof(T))) p_vec { T x[N]; };
// V bytes, kept as 32-bit words when V is a multiple of 4: comparing all bytes with one value then
// takes one XOR for four bytes and one test for each byte.
template <int V, bool W = V % 4 == 0> struct alignas(V) p_bytes {
    unsigned w[V / 4];
    DEV_IN int at(int j) const { return w[j / 4] >> 8 * (j % 4) & 255; }
    DEV_IN int same(int j, int v) const { return ((w[j / 4] ^ (unsigned)v * 0x01010101u) & 255u << 8 * (j % 4)) == 0; }
};
template <int V> struct alignas(V) p_bytes<V, false> {
    p_u8 x[V];
    DEV_IN int at(int j) const { return x[j]; }
    DEV_IN int same(int j, int v) const { return x[j] == v; }
};

// ---- asynchronous copies to shared memory ----
// p_send starts one copy; p_sent closes a group of copies; p_came waits for all groups of this
// thread except the last N.
template <int B> DEV void p_send(unsigned char *to, const void *from)
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "n"(B) : "memory");
#else
    *(p_vec<unsigned, B / 4> *)to = *(const p_vec<unsigned, B / 4> *)from;
#endif
}
DEV void p_sent()
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> DEV void p_came()
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}

// ---- a barrier for set number `which` of T threads; __syncthreads uses hardware barrier 0 ----
template <int T> DEV void p_meet(int which)
{
#ifdef __CUDACC__
    asm volatile("bar.sync %0, %1;" :: "r"(which + 1), "n"(T) : "memory");
#else
    pl_sim_meet(which * T, T);
#endif
}

// ---- programmatic dependent launch: a kernel may start before its predecessor ends ----
// p_begun: the successor may start once all blocks of this kernel have called it. p_after: waits
// until everything that the predecessor wrote is visible.
DEV void p_begun()
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEV void p_after()
{
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- 16-bit floats ----
#ifdef __CUDACC__
DEV float p_h2f(p_u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
// The packed conversion (f16x2) has several times the throughput of the scalar one.
#if __CUDA_ARCH__ >= 800
DEV p_u16 p_f2h(float f)
{
    unsigned u;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(0.0f), "f"(f));
    return (p_u16)u;
}
#else
DEV p_u16 p_f2h(float f) { p_u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif
#else
DEV float p_h2f(p_u16 h)
{
    unsigned s = (unsigned)(h & 0x8000u) << 16, m = h & 0x7fffu;
    if (m >= 0x7c00u) return __uint_as_float(s | 0x7f800000u | (m & 0x3ffu) << 13);
    float f = __uint_as_float(m << 13) * 5.192296858534828e33f;
    return __uint_as_float(s | __float_as_uint(f));
}
DEV p_u16 p_f2h(float f)
{
    unsigned u = __float_as_uint(f), s = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return (p_u16)(s | 0x7e00u);
    if (u >= 0x477ff000u) return (p_u16)(s | 0x7c00u);
    if (u < 0x38800000u) {
        float r = __uint_as_float(u) + 0.5f;
        return (p_u16)(s | (__float_as_uint(r) - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1u);
    return (p_u16)(s | (u - 0x38000000u) >> 13);
}
#endif
DEV float p_b2f(p_u16 h) { return __uint_as_float((unsigned)h << 16); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
DEV p_u16 p_f2b(float f)
{
    unsigned u;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(0.0f), "f"(f));
    return (p_u16)u;
}
#else
DEV p_u16 p_f2b(float f)
{
    unsigned u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (p_u16)0x7fff;
    return (p_u16)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
#endif
DEV float p_rh(float f) { return p_h2f(p_f2h(f)); }
DEV float p_rb(float f) { return p_b2f(p_f2b(f)); }

// ---- two 16-bit floats in a word, the first in the low half ----
// BOTH loops over elements i_ and i_ + 1 of a chunk.
#define BOTH _Pragma("unroll") for (int h_ = 0, j = i_; h_ < 2; h_++, j++)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
DEV unsigned p_f2hh(float x, float y) { unsigned u; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x)); return u; }
DEV unsigned p_f2bb(float x, float y) { unsigned u; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(y), "f"(x)); return u; }
#else
DEV unsigned p_f2hh(float x, float y) { return p_f2h(x) | (unsigned)p_f2h(y) << 16; }
DEV unsigned p_f2bb(float x, float y) { return p_f2b(x) | (unsigned)p_f2b(y) << 16; }
#endif
DEV float p_hh2f(unsigned u, int h) { return p_h2f((p_u16)(u >> 16 * h)); }
DEV float p_bb2f(unsigned u, int h) { return __uint_as_float(h ? u & 0xffff0000u : u << 16); }
// A 16-bit sum or product, rounded once, has the same bits as the f32 result rounded to 16 bits:
// f32's significand has more than twice the digits plus two (Figueroa 1995). Subnormal results are
// exact in f32, or zero both ways.
#define FLOATS(name, kind, op) \
    DEV unsigned p_##name##_##kind(unsigned a, unsigned b) \
    { return p_f2##kind(p_##kind##2f(a, 0) op p_##kind##2f(b, 0), p_##kind##2f(a, 1) op p_##kind##2f(b, 1)); }
#define WORDS(name, kind, type) \
    DEV unsigned p_##name##_##kind(unsigned a, unsigned b) \
    { unsigned u; asm(#name ".rn." #type " %0, %1, %2;" : "=r"(u) : "r"(a), "r"(b)); return u; }
#ifdef __CUDACC__
WORDS(add, hh, f16x2) WORDS(sub, hh, f16x2) WORDS(mul, hh, f16x2)
#else
FLOATS(add, hh, +) FLOATS(sub, hh, -) FLOATS(mul, hh, *)
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
WORDS(add, bb, bf16x2) WORDS(sub, bb, bf16x2) WORDS(mul, bb, bf16x2)
#else
FLOATS(add, bb, +) FLOATS(sub, bb, -) FLOATS(mul, bb, *)
#endif

// ---- scalar functions of floats ----
#define ONE(name, expr) \
    DEV float p_##name(float x) { typedef float R; return (R)(expr); } \
    DEV double p_##name(double x) { typedef double R; return (R)(expr); }
#define MATH(name, f, d) \
    DEV float p_##name(float x) { return f; } \
    DEV double p_##name(double x) { return d; }
#define TWO(name, expr) \
    DEV float p_##name(float x, float y) { return expr; } \
    DEV double p_##name(double x, double y) { return expr; }
ONE(neg, -x)
MATH(abs, fabsf(x), fabs(x))
ONE(sign, x != x ? x : (R)(x > 0) - (R)(x < 0))
MATH(floor, floorf(x), floor(x))
MATH(round, rintf(x), rint(x))
ONE(reciprocal, (R)1 / x)
ONE(square, x * x)
MATH(sqrt, sqrtf(x), sqrt(x))
// Error within 1 ulp, without the subroutines for square root and division: the hardware's
// approximation r and one Newton step. Where r is 0 or infinite the correction is NaN; the clamp
// turns the NaN into 0.5, and r + 0.5 r is still 0 or infinite.
DEV double p_rsqrt(double x) { return 1.0 / sqrt(x); }
DEV float p_rsqrt(float x)
{
#ifdef __CUDACC__
    float r;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float e = __fmaf_rn(-__fmul_rn(x, r), r, 1.0f);
    return __fmaf_rn(fmaxf(fminf(0.5f * e, 0.5f), -0.5f), r, r);
#else
    return 1.0f / sqrtf(x);
#endif
}
// x / n, given inv = 1 / n: the quotient, corrected by its remainder.
DEV double p_over(double x, double n, double) { return x / n; }
DEV float p_over(float x, float n, float inv)
{
    const float q = x * inv, r = __fmaf_rn(__fmaf_rn(-q, n, x), inv, q);
    return r != r ? q : r;
}
// MATH for each row PL_SCALAR_LIBM of scalar.def (codegen_write.c):
MATH_LIBM
MATH(sin, sinf(x), sin(x))
MATH(cos, cosf(x), cos(x))
// 1/d for d >= 1, error within 1 ulp: the division's slow path for tiny operands is not needed.
DEV double p_inv(double d) { return 1.0 / d; }
DEV float p_inv(float d)
{
#ifdef __CUDACC__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
    return d > 8.5e37f ? 0.0f : r;
#else
    return 1.0f / d;
#endif
}
ONE(sigmoid, p_inv((R)1 + p_exp(-x)))
ONE(silu, x * p_inv((R)1 + p_exp(-x)))
MATH(softplus, (x <= 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))), (x <= 0.0 ? 0.0 : x) + log1p(exp(-fabs(x))))
ONE(relu, x <= (R)0 ? (R)0 : x)
TWO(leaky_relu, x > 0 ? x : x * y)
// Same bits as p_leaky_relu for slopes in (0, 1], with one comparison less.
DEV float p_leaky_max(float x, float y) { return fmaxf(x, x * y); }
// Returns the normal distribution's upper tail at |x|, and e^(-x^2/2) in *e. The tail is e P(t),
// t = 1/(1 + 0.28 |x|); fit 1.5e-8, relative 7e-5 up to 5. One exponential and one reciprocal.
DEV float p_tail(float x, float *e)
{
    const float t = p_inv(__fmaf_rn(0.28f, fabsf(x), 1.0f));
    float q = -0.106861127f;
    q = __fmaf_rn(q, t, 0.394260388f);
    q = __fmaf_rn(q, t, -0.244258627f);
    q = __fmaf_rn(q, t, 0.274888491f);
    q = __fmaf_rn(q, t, 0.0650534349f);
    q = __fmaf_rn(q, t, 0.116917425f);
    *e = p_exp(-0.5f * x * x);
    return *e * (q * t);
}
DEV float p_gelu(float x)
{
    float e, tail = p_tail(x, &e);
    return x * (x > 0.0f ? 1.0f - tail : tail);
}
DEV double p_gelu(double x) { return 0.5 * x * (1.0 + erf(x * 0.7071067811865476)); }
DEV float p_gelu_slope(float x)
{
    float e, tail = p_tail(x, &e);
    return __fmaf_rn(0.39894228f * fminf(fmaxf(x, -15.5f), 15.5f), e, x > 0.0f ? 1.0f - tail : tail);
}
DEV double p_gelu_slope(double x)
{
    return 0.5 * (1.0 + erf(x * 0.7071067811865476)) + 0.3989422804014327 * fmin(fmax(x, -40.0), 40.0) * exp(-0.5 * x * x);
}
MATH(gelu_tanh, 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))), 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
DEV int p_is_nan(float x) { return x != x; }
DEV int p_is_nan(double x) { return x != x; }
DEV int p_is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
DEV int p_is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }
TWO(add, x + y)
TWO(sub, x - y)
TWO(mul, x * y)
TWO(div, x / y)
DEV float p_pow(float x, float y) { return powf(x, y); }
DEV double p_pow(double x, double y) { return pow(x, y); }
TWO(max, (x > y || x != x) ? x : y)
TWO(min, (x < y || x != x) ? x : y)
DEV float p_mod(float x, float y) { float r = fmodf(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }
DEV double p_mod(double x, double y) { double r = fmod(x, y); return r != 0 && (r < 0) != (y < 0) ? r + y : r; }

// ---- scalar functions of integers: overflow wraps, division by zero gives 0 ----
#define INTS(T, U) \
    DEV T p_neg(T x) { return (T)((U)0 - (U)x); } \
    DEV T p_abs(T x) { return x < 0 ? (T)((U)0 - (U)x) : x; } \
    DEV T p_sign(T x) { return (T)((x > 0) - (x < 0)); } \
    DEV T p_floor(T x) { return x; } \
    DEV T p_round(T x) { return x; } \
    DEV T p_square(T x) { return (T)((U)x * (U)x); } \
    DEV T p_relu(T x) { return x > 0 ? x : 0; } \
    DEV T p_add(T x, T y) { return (T)((U)x + (U)y); } \
    DEV T p_sub(T x, T y) { return (T)((U)x - (U)y); } \
    DEV T p_mul(T x, T y) { return (T)((U)x * (U)y); } \
    DEV T p_div(T x, T y) { return y == 0 ? 0 : y == -1 ? (T)((U)0 - (U)x) : x / y; } \
    DEV T p_mod(T x, T y) { T r = y == 0 || y == -1 ? 0 : x % y; return r != 0 && (r < 0) != (y < 0) ? r + y : r; } \
    DEV T p_max(T x, T y) { return x > y ? x : y; } \
    DEV T p_min(T x, T y) { return x < y ? x : y; } \
    DEV int p_is_nan(T) { return 0; } \
    DEV int p_is_finite(T) { return 1; }
INTS(int, unsigned)
INTS(p_i64, unsigned long long)
DEV int p_not(int x) { return x == 0; }
DEV int p_and(int x, int y) { return x != 0 && y != 0; }
DEV int p_or(int x, int y) { return x != 0 || y != 0; }
DEV int p_xor(int x, int y) { return (x != 0) != (y != 0); }
template <class T> DEV int p_eq(T x, T y) { return x == y; }
template <class T> DEV int p_ne(T x, T y) { return x != y; }
template <class T> DEV int p_lt(T x, T y) { return x < y; }
template <class T> DEV int p_le(T x, T y) { return x <= y; }
template <class T> DEV int p_gt(T x, T y) { return x > y; }
template <class T> DEV int p_ge(T x, T y) { return x >= y; }
template <class T> DEV T p_select(int c, T x, T y) { return c ? x : y; }

// ---- casts to integers: round towards zero, saturate, NaN becomes 0 ----
DEV p_i64 p_i64_of(double x)
{
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return 0x7fffffffffffffffLL;
    if (x < -9223372036854775808.0) return -0x7fffffffffffffffLL - 1;
    return (p_i64)x;
}
DEV p_i64 p_i64_of(float x)
{
    if (x != x) return 0;
    if (x >= 9223372036854775808.0f) return 0x7fffffffffffffffLL;
    if (x < -9223372036854775808.0f) return -0x7fffffffffffffffLL - 1;
    return (p_i64)x;
}
DEV p_i64 p_i64_of(p_i64 x) { return x; }
DEV p_i64 p_i64_of(int x) { return x; }
DEV int p_clip(p_i64 x, p_i64 lo, p_i64 hi) { return (int)(x < lo ? lo : x > hi ? hi : x); }
template <class T> DEV int p_i32_of(T x) { return p_clip(p_i64_of(x), -2147483647 - 1, 2147483647); }
template <class T> DEV int p_u8_of(T x) { return p_clip(p_i64_of(x), 0, 255); }
DEV int p_u8_of(int x) { return x < 0 ? 0 : x > 255 ? 255 : x; }
#ifdef __CUDACC__
DEV int p_i32_of(float x) { return __float2int_rz(x); }
#endif
template <class T> DEV int p_bool_of(T x) { return x != (T)0; }

// ---- reductions ----
DEV float p_low(float) { return __uint_as_float(0xff800000u); }
DEV float p_high(float) { return __uint_as_float(0x7f800000u); }
DEV double p_low(double) { return (double)p_low(0.0f); }
DEV double p_high(double) { return (double)p_high(0.0f); }
DEV int p_low(int) { return -2147483647 - 1; }
DEV int p_high(int) { return 2147483647; }
DEV p_i64 p_low(p_i64) { return -0x7fffffffffffffffLL - 1; }
DEV p_i64 p_high(p_i64) { return 0x7fffffffffffffffLL; }
struct p_fold_sum {
    template <class T> static __device__ __forceinline__ T none() { return (T)0; }
    template <class T> static __device__ __forceinline__ T op(T a, T b) { return a + b; }
};
struct p_fold_max {
    template <class T> static __device__ __forceinline__ T none() { return p_low((T)0); }
    template <class T> static __device__ __forceinline__ T op(T a, T b) { return p_max(a, b); }
};
struct p_fold_min {
    template <class T> static __device__ __forceinline__ T none() { return p_high((T)0); }
    template <class T> static __device__ __forceinline__ T op(T a, T b) { return p_min(a, b); }
};
// Moments of n elements: the mean and the sum of squared distances from the mean. Partial moments
// are merged by Chan's formula. Each partial sum is taken relative to one of its own elements
// (shift), so that numbers far from zero keep their digits.
template <class T> struct p_mom { T mean, m2, n; };
template <class T> DEV p_mom<T> p_moments(T shift, T sum, T squares, T n)
{
    T d = sum * p_inv(n < 1 ? (T)1 : n), m2 = squares - sum * d;
    return p_mom<T>{shift + d, m2 < 0 ? (T)0 : m2, n};
}
struct p_fold_mom {
    template <class T> static __device__ __forceinline__ T none() { return T{0, 0, 0}; }
    template <class T> static __device__ __forceinline__ T op(T a, T b)
    {
        auto n = a.n + b.n, d = b.mean - a.mean, part = b.n * p_inv(n < 1 ? 1 : n);
        T r = T{a.mean + d * part, a.m2 + b.m2 + d * d * (a.n * part), n};
        bool none = b.n == 0, only = a.n == 0;
        r.mean = none ? a.mean : only ? b.mean : r.mean;
        r.m2 = none ? a.m2 : only ? b.m2 : r.m2;
        return r;
    }
};
// Reduces V values across `lanes` threads whose indices are `width` apart; lane 0 gets the result.
// The reduction is a tree whose order depends only on the number of lanes. The levels that lie in
// the first warp use shuffles instead of shared memory.
template <class T> DEV T p_down(unsigned mask, T v, int d) { return __shfl_down_sync(mask, v, d); }
template <class T> DEV p_mom<T> p_down(unsigned mask, p_mom<T> v, int d)
{
    return p_mom<T>{p_down(mask, v.mean, d), p_down(mask, v.m2, d), p_down(mask, v.n, d)};
}
template <class F, int V, class T> DEV void p_lanes(T (&v)[V], void *shared, int thread, int lane, int lanes, int width)
{
    T *s = (T *)shared;
    int d = 1, threads = lanes * width;
    while (2 * d < lanes) d *= 2;
    for (; d > 0 && 2 * d * width > 32; d /= 2) {
        __syncthreads();
        if (lane >= d && lane < 2 * d)
#pragma unroll
            for (int j = 0; j < V; j++) s[j * threads + thread - d * width] = v[j];
        __syncthreads();
        if (lane < d && lane + d < lanes)
#pragma unroll
            for (int j = 0; j < V; j++) v[j] = F::op(v[j], s[j * threads + thread]);
    }
    if (thread >= 32) return;
    const unsigned mask = threads < 32 ? (1u << threads) - 1u : 0xffffffffu;
    for (; d > 0; d /= 2)
#pragma unroll
        for (int j = 0; j < V; j++) {
            T o = p_down(mask, v[j], d * width);
            if (lane < d && lane + d < lanes) v[j] = F::op(v[j], o);
        }
}
// Reduces the V values of one thread to one, as a tree.
template <class F, int V, class T> DEV T p_within(T (&v)[V])
{
#pragma unroll
    for (int d = V / 2; d > 0; d /= 2)
#pragma unroll
        for (int j = 0; j < d; j++) v[j] = F::op(v[j], v[j + d]);
    return v[0];
}
// Reduces L values that are `step` apart in memory, in the tree order of p_lanes.
template <class F, int D, int L, class T> DEV void p_halve(T (&v)[L])
{
#pragma unroll
    for (int k = 0; k < D; k++)
        if (k + D < L) v[k] = F::op(v[k], v[k + D]);
    if constexpr (D > 1) p_halve<F, D / 2>(v);
}
template <class F, int L, class T> DEV T p_tree(const T *s, int step)
{
    T v[L];
#pragma unroll
    for (int k = 0; k < L; k++) v[k] = s[k * step];
    p_halve<F, (L > 16 ? 16 : L > 8 ? 8 : L > 4 ? 4 : L > 2 ? 2 : 1)>(v);
    return v[0];
}
// Reduces V values of each of Y lanes, for X columns side by side: first within each warp, then
// across warps. Thread c < X * V of the X * Y threads gets the result of column c. A block may do
// this for several sets of threads, each with its own shared memory; threads outside all sets must
// call it too, for the barrier.
template <class F, int X, int Y, int V, class T> DEV T p_across(T (&v)[V], void *shared, int thread)
{
    T *s = (T *)shared;
    const int x = thread % 32;
#pragma unroll
    for (int d = 16; d >= X; d /= 2)
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = F::op(v[j], p_down(0xffffffffu, v[j], d));
    if (x < X)
#pragma unroll
        for (int j = 0; j < V; j++) s[(thread / 32 * X + x) * V + j] = v[j];
    __syncthreads();
    if (thread >= X * V) return v[0];
    return p_tree<F, X * Y / 32>(s + thread, X * V);
}
// Reduces one value of each of T neighbouring threads of a warp; all T threads get the result.
template <class F, int T, class V> DEV V p_row(V v)
{
#pragma unroll
    for (int d = T / 2; d > 0; d /= 2) v = F::op(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}
