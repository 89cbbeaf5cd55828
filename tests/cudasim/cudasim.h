/* cudasim.h - CUDA C++ on the host: compiles kernels with a plain C++17 compiler and runs them.
 *
 * Blocks run one after another; the threads of a block are fibers that change hands only at
 * barriers and warp collectives. A thread that never meets one runs on the launcher's fiber like a
 * plain call, so kernels without barriers cost a loop. The order of blocks and threads can be
 * reversed (pl_sim_reverse): a kernel whose result changes has a race.
 *
 * What it finds, as a failed launch with a text (pl_sim_error):
 *   - threads of a block at different barriers, or finished while others wait at one
 *   - lanes of a warp collective that never come, a lane outside its own mask
 *   - impossible launches: empty or too large grids and blocks, too much shared memory
 * Under AddressSanitizer accesses outside buffers and outside dynamic shared memory are seen, under
 * UBSan misaligned vector accesses. Dynamic shared memory is filled with NaN before every block.
 *
 * Memory is the host's. Static __shared__ variables are static variables, which is enough for
 * blocks in turn. Dynamic shared memory comes through PL_SHARED (cuda/device/launch.h).
 */
#ifndef PL_CUDASIM_H
#define PL_CUDASIM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cuda_runtime_api.h"

/* ---- the machine ------------------------------------------------------------------------ */
#define PL_SIM_API extern "C" __attribute__((visibility("default")))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

PL_SIM_API uint3 pl_sim_thread, pl_sim_block;
PL_SIM_API dim3 pl_sim_block_dim, pl_sim_grid_dim;

/* Runs body(ctx) for every thread of the grid; ctx holds the arguments. */
PL_SIM_API void pl_sim_launch(void (*body)(void *ctx), void *ctx, dim3 grid, dim3 block,
                              size_t shared_bytes);
/* Dynamic shared memory of the running block, 16-byte aligned. */
PL_SIM_API void *pl_sim_shared(void);
/* All threads of the block wait here; returns how many gave a true `vote`. site: the line of the
 * barrier, which must be the same for all. */
PL_SIM_API int pl_sim_barrier(int vote, int site);
/* Threads [first, first + count) of the block wait here for each other. */
PL_SIM_API void pl_sim_meet(int first, int count);
/* Leaves 8 bytes with the lanes of mask and waits for them; then those of lane i are slots[i],
 * valid until the caller's next collective. `kind` tells collectives apart. */
PL_SIM_API const uint64_t *pl_sim_warp(unsigned mask, uint64_t value, int kind);
/* The lanes that came to the collective just passed. */
PL_SIM_API unsigned pl_sim_warp_lanes(void);
/* Threads and blocks last to first. */
PL_SIM_API void pl_sim_reverse(bool on);
/* What went wrong in the last failed launch; "" if nothing did. */
PL_SIM_API const char *pl_sim_error(void);

template <class... P, class... A>
static void pl_sim_call(dim3 grid, dim3 block, size_t shared, void (*kernel)(P...), A... a)
{
    auto body = [=] { kernel(P(a)...); };
    typedef decltype(body) body_t;
    pl_sim_launch([](void *ctx) { (*static_cast<body_t *>(ctx))(); }, &body, grid, block, shared);
}

#define threadIdx pl_sim_thread
#define blockIdx  pl_sim_block
#define blockDim  pl_sim_block_dim
#define gridDim   pl_sim_grid_dim
#define warpSize  32

#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __shared__      static
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- barriers and warps ----------------------------------------------------------------- */
static inline void __syncthreads(int site = __builtin_LINE())
{
    pl_sim_barrier(0, site);
}
static inline int __syncthreads_count(int p, int site = __builtin_LINE())
{
    return pl_sim_barrier(p != 0, site);
}
static inline int __syncthreads_or(int p, int site = __builtin_LINE())
{
    return pl_sim_barrier(p != 0, site) > 0;
}
static inline int __syncthreads_and(int p, int site = __builtin_LINE())
{
    return pl_sim_barrier(p == 0, site) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    pl_sim_warp(mask, 0, 1);
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

static inline int pl_sim_lane()
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u);
}

/* from: the lane to read; outside its segment the caller keeps its own value. */
template <class T> static inline T pl_sim_shfl(unsigned mask, T v, int from, bool in, int kind)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    const uint64_t *slot = pl_sim_warp(mask, bits, kind);
    if (!in) return v;
    T out;
    memcpy(&out, &slot[from], sizeof out);
    return out;
}

template <class T> static inline T __shfl_sync(unsigned mask, T v, int src, int width = 32)
{
    int base = pl_sim_lane() & ~(width - 1);
    return pl_sim_shfl(mask, v, base | (src & (width - 1)), true, 2);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    int lane = pl_sim_lane(), from = lane - (int)d;
    return pl_sim_shfl(mask, v, from & 31, from >= (lane & ~(width - 1)), 3);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32)
{
    int lane = pl_sim_lane(), from = lane + (int)d;
    return pl_sim_shfl(mask, v, from & 31, from < (lane & ~(width - 1)) + width, 4);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int m, int width = 32)
{
    int lane = pl_sim_lane(), from = lane ^ m;
    return pl_sim_shfl(mask, v, from & 31, from < (lane & ~(width - 1)) + width, 5);
}
static inline unsigned __ballot_sync(unsigned mask, int p)
{
    const uint64_t *slot = pl_sim_warp(mask, p != 0, 6);
    unsigned out = 0, lanes = pl_sim_warp_lanes();
    for (unsigned i = 0; i < 32; i++)
        if ((lanes >> i & 1u) && slot[i]) out |= 1u << i;
    return out;
}
static inline int __any_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, p) != 0;
}
static inline int __all_sync(unsigned mask, int p)
{
    return __ballot_sync(mask, !p) == 0;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    const uint64_t *slot = pl_sim_warp(mask, bits, 7);
    unsigned out = 0, lanes = pl_sim_warp_lanes();
    for (unsigned i = 0; i < 32; i++)
        if ((lanes >> i & 1u) && slot[i] == bits) out |= 1u << i;
    return out;
}

/* ---- memory ----------------------------------------------------------------------------- */
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> static inline void __stcg(T *p, T v)
{
    *p = v;
}

template <class T> static inline T atomicAdd(T *p, T v)
{
    T old = *p;
    *p = (T)(old + v);
    return old;
}
template <class T> static inline T atomicMax(T *p, T v)
{
    T old = *p;
    if (v > old) *p = v;
    return old;
}
template <class T> static inline T atomicMin(T *p, T v)
{
    T old = *p;
    if (v < old) *p = v;
    return old;
}
template <class T> static inline T atomicOr(T *p, T v)
{
    T old = *p;
    *p = old | v;
    return old;
}
template <class T> static inline T atomicExch(T *p, T v)
{
    T old = *p;
    *p = v;
    return old;
}
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    T old = *p;
    if (old == expected) *p = v;
    return old;
}

/* ---- vector types ----------------------------------------------------------------------- */
#define PL_SIM_VEC(T, name)                                                                        \
 struct __align__(2 * sizeof(T)) name##2                                                           \
 {                                                                                                 \
  T x, y;                                                                                          \
 };                                                                                                \
 struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4                                 \
 {                                                                                                 \
  T x, y, z, w;                                                                                    \
 };                                                                                                \
 static inline name##2 make_##name##2(T x, T y)                                                    \
 {                                                                                                 \
  return name##2 {x, y};                                                                           \
 }                                                                                                 \
 static inline name##4 make_##name##4(T x, T y, T z, T w)                                          \
 {                                                                                                 \
  return name##4 {x, y, z, w};                                                                     \
 }
PL_SIM_VEC(float, float)
PL_SIM_VEC(double, double)
PL_SIM_VEC(int, int)
PL_SIM_VEC(unsigned, uint)
PL_SIM_VEC(short, short)
PL_SIM_VEC(unsigned short, ushort)
PL_SIM_VEC(signed char, char)
PL_SIM_VEC(unsigned char, uchar)
PL_SIM_VEC(long long, longlong)
PL_SIM_VEC(unsigned long long, ulonglong)
#undef PL_SIM_VEC

/* ---- numbers ---------------------------------------------------------------------------- */
static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __int_as_float(int i)
{
    return __uint_as_float((unsigned)i);
}
static inline int __float_as_int(float f)
{
    return (int)__float_as_uint(f);
}
static inline double __longlong_as_double(long long i)
{
    double d;
    memcpy(&d, &i, 8);
    return d;
}
static inline long long __double_as_longlong(double d)
{
    long long i;
    memcpy(&i, &d, 8);
    return i;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
    return r;
}

#define PL_SIM_MINMAX(T)                                                                           \
 static inline T min(T a, T b)                                                                     \
 {                                                                                                 \
  return b < a ? b : a;                                                                            \
 }                                                                                                 \
 static inline T max(T a, T b)                                                                     \
 {                                                                                                 \
  return a < b ? b : a;                                                                            \
 }
PL_SIM_MINMAX(int)
PL_SIM_MINMAX(unsigned)
PL_SIM_MINMAX(long)
PL_SIM_MINMAX(unsigned long)
PL_SIM_MINMAX(long long)
PL_SIM_MINMAX(unsigned long long)
#undef PL_SIM_MINMAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float __saturatef(float x)
{
    return fminf(fmaxf(x, 0.0f), 1.0f);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __frsqrt_rn(float a)
{
    return 1.0f / sqrtf(a);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
static inline float __double2float_rn(double a)
{
    return (float)a;
}
static inline float __int2float_rn(int a)
{
    return (float)a;
}
static inline float __uint2float_rn(unsigned a)
{
    return (float)a;
}
static inline float __ll2float_rn(long long a)
{
    return (float)a;
}
static inline int __float2int_rn(float a)
{
    return (int)rintf(a);
}
static inline int __float2int_rz(float a)
{
    return (int)a;
}
static inline int __float2int_rd(float a)
{
    return (int)floorf(a);
}
/* These names are the C library's own internals where it declares them; the macros go past it. */
static inline float pl_sim_expf(float x)
{
    return expf(x);
}
static inline float pl_sim_exp2f(float x)
{
    return exp2f(x);
}
static inline float pl_sim_exp10f(float x)
{
    return powf(10.0f, x);
}
static inline float pl_sim_logf(float x)
{
    return logf(x);
}
static inline float pl_sim_log2f(float x)
{
    return log2f(x);
}
static inline float pl_sim_log10f(float x)
{
    return log10f(x);
}
static inline float pl_sim_sinf(float x)
{
    return sinf(x);
}
static inline float pl_sim_cosf(float x)
{
    return cosf(x);
}
static inline float pl_sim_tanf(float x)
{
    return tanf(x);
}
static inline float pl_sim_powf(float x, float y)
{
    return powf(x, y);
}
#define __expf   pl_sim_expf
#define __exp2f  pl_sim_exp2f
#define __exp10f pl_sim_exp10f
#define __logf   pl_sim_logf
#define __log2f  pl_sim_log2f
#define __log10f pl_sim_log10f
#define __sinf   pl_sim_sinf
#define __cosf   pl_sim_cosf
#define __tanf   pl_sim_tanf
#define __powf   pl_sim_powf
static inline void pl_sim_sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
#define __sincosf pl_sim_sincosf

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#endif
