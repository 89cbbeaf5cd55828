/* wgmma.h - products of a warpgroup (compute capability 9.0a): four warps multiply 64 rows at once,
 * with operands in shared memory.
 *
 * A tile [rows][64] of 16-bit numbers lies in rows of 128 bytes, its 16-byte chunks swizzled by row
 * (chunk ^ row % 8), at a multiple of 1024 bytes. It is read along its rows (ALONG: the 64 numbers
 * are summed over) or across them (ACROSS: the rows are summed over). A wider tile is several of
 * these, one after the other.
 *
 * The result [64][N] lies as that of mma.h, 16 rows to a warp: d[4 j + ..] are columns 8 j + ..;
 * packed, it is the left operand of the next product.
 */
#ifndef PL_CUDA_WGMMA_H
#define PL_CUDA_WGMMA_H

#include "cuda/matmul/mma.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
# define PL_HAS_WGMMA true
#else
# define PL_HAS_WGMMA false
#endif

/* A place in shared memory, in units of 16 bytes; plus pl_wg_step(n): n elements further. */
static __device__ __forceinline__ unsigned pl_wg_place(const void *tile)
{
    return ((unsigned)__cvta_generic_to_shared(tile) & 0x3ffff) >> 4;
}
static __device__ __forceinline__ constexpr unsigned pl_wg_step(int elements)
{
    return (unsigned)elements / 8;
}
/* The operands of a product: the tile's place, the bytes to the next 64 columns, the bytes to the
 * next 8 rows, the swizzle. */
static __device__ __forceinline__ uint64_t pl_wg_operand(unsigned place, unsigned next_tile)
{
    return (place | next_tile >> 4 << 16) | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
static __device__ __forceinline__ void pl_wg_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void pl_wg_end(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups of products run. */
template <int PENDING> static __device__ __forceinline__ void pl_wg_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Results of products that were waited for: nothing that reads them moves before this line. */
template <int N> static __device__ __forceinline__ void pl_wg_done(float (&d)[N])
{
# pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
/* Left operands stay in their registers up to this line. */
template <int N> static __device__ __forceinline__ void pl_wg_done(const unsigned (&a)[N])
{
# pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" ::"r"(a[i]) : "memory");
}
/* Makes this thread's writes to shared memory visible to products. */
static __device__ __forceinline__ void pl_wg_written(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Changes the registers of each thread of this warpgroup; all of its warps call. Other warpgroups
 * get the registers that one warpgroup gives up. */
template <int N> static __device__ __forceinline__ void pl_wg_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void pl_wg_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

# define PL_WG_64                                                                                  \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),     \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),   \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),   \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
# define PL_WG_D64                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, "                                                               \
  "%8, %9, %10, %11, %12, %13, %14, %15, "                                                         \
  "%16, %17, %18, %19, %20, %21, %22, %23, "                                                       \
  "%24, %25, %26, %27, %28, %29, %30, %31"
# define PL_WG_128                                                                                 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),     \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),   \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),   \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),   \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),   \
      "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),   \
      "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),   \
      "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
# define PL_WG_D128                                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, "                                                               \
  "%8, %9, %10, %11, %12, %13, %14, %15, "                                                         \
  "%16, %17, %18, %19, %20, %21, %22, %23, "                                                       \
  "%24, %25, %26, %27, %28, %29, %30, %31, "                                                       \
  "%32, %33, %34, %35, %36, %37, %38, %39, "                                                       \
  "%40, %41, %42, %43, %44, %45, %46, %47, "                                                       \
  "%48, %49, %50, %51, %52, %53, %54, %55, "                                                       \
  "%56, %57, %58, %59, %60, %61, %62, %63"

/* d [64][N] = a b or d + a b over 16 numbers; a and b ALONG. */
# define PL_WG_ALONG(N, TYPE, NAME, LAST)                                                          \
  static __device__ __forceinline__ void pl_wg_along(float(&d)[N / 2], uint64_t a, uint64_t b,     \
                                                     int add, NAME)                                \
  {                                                                                                \
   asm volatile("{ .reg .pred p; setp.ne.b32 p, %" LAST(2) ", 0; "                                 \
                                                           "wgmma.mma_async.sync.aligned.m64n" #N  \
                                                           "k16.f32." TYPE "." TYPE                \
                                                           " {" PL_WG_D##N                         \
                "}, %" LAST(0) ", %" LAST(1) ", p, 1, 1, 0, 0; }"                                  \
                : PL_WG_##N                                                                        \
                : "l"(a), "l"(b), "r"(add));                                                       \
  }
/* d [64][N] += a b over 16 numbers; a: registers of this thread, b ACROSS. */
# define PL_WG_ACROSS(N, TYPE, NAME, LAST)                                                         \
  static __device__ __forceinline__ void pl_wg_across(float(&d)[N / 2], const unsigned *a,         \
                                                      uint64_t b, NAME)                            \
  {                                                                                                \
   asm volatile(                                                                                   \
       "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" PL_WG_D##N             \
       "}, {%" LAST(0) ", %" LAST(1) ", %" LAST(2) ", %" LAST(3) "}, %" LAST(4) ", 1, 1, 1, 1;"    \
       : PL_WG_##N                                                                                 \
       : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                      \
  }
/* d [64][N] = a b or d + a b over 16 numbers; a and b ACROSS. */
# define PL_WG_TURNED(N, TYPE, NAME, LAST)                                                         \
  static __device__ __forceinline__ void pl_wg_turned(float(&d)[N / 2], uint64_t a, uint64_t b,    \
                                                      int add, NAME)                               \
  {                                                                                                \
   asm volatile("{ .reg .pred p; setp.ne.b32 p, %" LAST(2) ", 0; "                                 \
                                                           "wgmma.mma_async.sync.aligned.m64n" #N  \
                                                           "k16.f32." TYPE "." TYPE                \
                                                           " {" PL_WG_D##N                         \
                "}, %" LAST(0) ", %" LAST(1) ", p, 1, 1, 1, 1; }"                                  \
                : PL_WG_##N                                                                        \
                : "l"(a), "l"(b), "r"(add));                                                       \
  }
# define PL_WG_AT32_0  "32"
# define PL_WG_AT32_1  "33"
# define PL_WG_AT32_2  "34"
# define PL_WG_AT32_3  "35"
# define PL_WG_AT32_4  "36"
# define PL_WG_AT64_0  "64"
# define PL_WG_AT64_1  "65"
# define PL_WG_AT64_2  "66"
# define PL_WG_AT64_3  "67"
# define PL_WG_AT64_4  "68"
# define PL_WG_AT32(i) PL_WG_AT32_##i
# define PL_WG_AT64(i) PL_WG_AT64_##i
PL_WG_ALONG(64, "bf16", pl_bf16, PL_WG_AT32)
PL_WG_ALONG(64, "f16", pl_f16, PL_WG_AT32)
PL_WG_ACROSS(64, "bf16", pl_bf16, PL_WG_AT32)
PL_WG_ACROSS(64, "f16", pl_f16, PL_WG_AT32)
PL_WG_TURNED(64, "bf16", pl_bf16, PL_WG_AT32)
PL_WG_TURNED(64, "f16", pl_f16, PL_WG_AT32)
PL_WG_ACROSS(128, "bf16", pl_bf16, PL_WG_AT64)
PL_WG_ACROSS(128, "f16", pl_f16, PL_WG_AT64)
#endif

#endif
