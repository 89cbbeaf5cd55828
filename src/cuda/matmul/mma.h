/* mma.h - tensor-core instructions from compute capability 8.0 on, one function each.
 *
 * Fragments of mma.m16n8k16, by lane (q = lane/4, r = lane%4), registers of two elements:
 *
 *   A [16][16]  a0 row q, cols 2r 2r+1;  a1 row q+8;  a2, a3 the same with cols + 8
 *   B [16][8]   b0 rows 2r 2r+1, col q;  b1 rows + 8
 *   C [16][8]   c0 c1 row q, cols 2r 2r+1;  c2 c3 row q+8        in f32
 *
 * so the C of two products side by side is the A of the next one. For mma.m16n8k8 with TF32
 * operands, registers of one element:
 *
 *   A [16][8]   a0 row q, col r;  a1 row q+8;  a2, a3 the same with col + 4
 *   B [8][8]    b0 row r, col q;  b1 row r+4
 *   C as above
 *
 * GPUs read the upper 19 bits of a TF32 operand, and truncate sums to f32 instead of rounding: the
 * simulator does so too. It computes by exchanging registers between lanes.
 */
#ifndef PL_CUDA_MMA_H
#define PL_CUDA_MMA_H

#include "cuda/device/launch.h"

static __device__ __forceinline__ unsigned pl_pack2(float a, float b, pl_f16)
{
    __half2 h = __floats2half2_rn(a, b);
    unsigned u;
    memcpy(&u, &h, 4);
    return u;
}
static __device__ __forceinline__ unsigned pl_pack2(float a, float b, pl_bf16)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
    unsigned u;
    memcpy(&u, &h, 4);
    return u;
}

/* Whether the instructions exist. A kernel that needs them begins with "if (!PL_HAS_MMA) return;",
 * so that the code for older GPUs, which is never launched, compiles to nothing. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
# define PL_HAS_MMA false
#else
# define PL_HAS_MMA true
#endif

#if !defined(__CUDACC__)
/* ---- the simulator ------------------------------------------------------------------------- */
static inline float pl_power2(float x)
{
    return exp2f(x);
}
static inline void pl_copy16(void *to, const void *from, bool valid)
{
    if (valid)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
static inline void pl_copy4(void *to, const void *from, bool valid)
{
    if (valid)
        memcpy(to, from, 4);
    else
        memset(to, 0, 4);
}
static inline void pl_copies_end(void)
{
}
template <int PENDING> static inline void pl_copies_wait(void)
{
}

/* Words w[0] and w[1] of all lanes. */
static inline void pl_sim_all(unsigned (*to)[32], const unsigned *w)
{
    const uint64_t *slot = pl_sim_warp(0xffffffffu, w[0] | (uint64_t)w[1] << 32, 20);
    for (int i = 0; i < 32; i++) to[0][i] = (unsigned)slot[i], to[1][i] = (unsigned)(slot[i] >> 32);
}
static inline void pl_sim_rows(const unsigned short **to, const void *p)
{
    const uint64_t *slot = pl_sim_warp(0xffffffffu, (uint64_t)(uintptr_t)p, 21);
    for (int i = 0; i < 32; i++) to[i] = (const unsigned short *)(uintptr_t)slot[i];
}
static inline void pl_load4(unsigned *r, const void *p)
{
    const unsigned short *row[32];
    pl_sim_rows(row, p);
    int lane = pl_sim_lane();
    for (int i = 0; i < 4; i++) memcpy(&r[i], row[i * 8 + lane / 4] + lane % 4 * 2, 4);
}
static inline void pl_load4t(unsigned *r, const void *p)
{
    const unsigned short *row[32];
    pl_sim_rows(row, p);
    int lane = pl_sim_lane(), k = lane % 4 * 2, c = lane / 4;
    for (int i = 0; i < 4; i++) r[i] = row[i * 8 + k][c] | (unsigned)row[i * 8 + k + 1][c] << 16;
}
template <class T> static inline float pl_sim_half(unsigned w, int i)
{
    unsigned short u = (unsigned short)(w >> 16 * i);
    T v;
    memcpy(&v, &u, 2);
    return pl_elem<T>::get(v);
}
template <class T> static inline void pl_multiply(float *c, const unsigned *a, const unsigned *b, T)
{
    unsigned all[6][32];
    pl_sim_all(all, a);
    pl_sim_all(all + 2, a + 2);
    pl_sim_all(all + 4, b);
    int lane = pl_sim_lane(), q = lane / 4, r = lane % 4;
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++) {
            int from = k % 8 / 2, col = r * 2 + e % 2;
            float x = pl_sim_half<T>(all[e / 2 + k / 8 * 2][q * 4 + from], k % 2);
            float y = pl_sim_half<T>(all[4 + k / 8][col * 4 + from], k % 2);
            c[e] += x * y;
        }
}
/* Rounds to f32 towards zero. */
static inline float pl_sim_cut(double x)
{
    float f = (float)x;
    return fabs((double)f) > fabs(x) ? nextafterf(f, 0.0f) : f;
}
static inline unsigned pl_to_tf32(float x)
{
    unsigned u = __float_as_uint(x);
    if ((u & 0x7f800000u) == 0x7f800000u) return u & 0x7fffff ? 0x7fffe000u : u;
    return (u + 0x1000u) & 0xffffe000u;
}
static inline void pl_multiply_tf32(float *to, const unsigned *a, const unsigned *b, const float *c)
{
    unsigned all[6][32];
    pl_sim_all(all, a);
    pl_sim_all(all + 2, a + 2);
    pl_sim_all(all + 4, b);
    int lane = pl_sim_lane(), q = lane / 4, r = lane % 4;
    for (int e = 0; e < 4; e++) {
        double sum = (double)c[e];
        for (int k = 0; k < 8; k++) {
            int col = r * 2 + e % 2;
            float x = __uint_as_float(all[e / 2 + k / 4 * 2][q * 4 + k % 4] & 0xffffe000u);
            float y = __uint_as_float(all[4 + k / 4][col * 4 + k % 4] & 0xffffe000u);
            sum += (double)x * (double)y;
        }
        to[e] = pl_sim_cut(sum);
    }
}
template <class T>
static inline void pl_sim_multiply(float *to, const unsigned *a, const unsigned *b, const float *c)
{
    unsigned all[6][32];
    pl_sim_all(all, a);
    pl_sim_all(all + 2, a + 2);
    pl_sim_all(all + 4, b);
    int lane = pl_sim_lane(), q = lane / 4, r = lane % 4;
    for (int e = 0; e < 4; e++) {
        double sum = (double)c[e];
        for (int k = 0; k < 16; k++) {
            int from = k % 8 / 2, col = r * 2 + e % 2;
            float x = pl_sim_half<T>(all[e / 2 + k / 8 * 2][q * 4 + from], k % 2);
            float y = pl_sim_half<T>(all[4 + k / 8][col * 4 + from], k % 2);
            sum += (double)x * (double)y;
        }
        to[e] = pl_sim_cut(sum);
    }
}
static inline void pl_multiply_f16(float *to, const unsigned *a, const unsigned *b, const float *c)
{
    pl_sim_multiply<pl_f16>(to, a, b, c);
}
static inline void pl_multiply_bf16(float *to, const unsigned *a, const unsigned *b, const float *c)
{
    pl_sim_multiply<pl_bf16>(to, a, b, c);
}
#else
static __device__ __forceinline__ float pl_power2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
# if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
static __device__ __forceinline__ unsigned pl_shared_at(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
/* Copies 16 bytes to shared memory asynchronously, or zeros. */
static __device__ __forceinline__ void pl_copy16(void *to, const void *from, bool valid)
{
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(pl_shared_at(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}
/* The same with 4 bytes, at any address of an f32. */
static __device__ __forceinline__ void pl_copy4(void *to, const void *from, bool valid)
{
    int bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(pl_shared_at(to)), "l"(from),
                 "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void pl_copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> static __device__ __forceinline__ void pl_copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
/* Loads four 8x8 matrices; lane i gives the address of row i%8 of matrix i/8; t: transposed. */
static __device__ __forceinline__ void pl_load4(unsigned *r, const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(pl_shared_at(p))
                 : "memory");
}
static __device__ __forceinline__ void pl_load4t(unsigned *r, const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(pl_shared_at(p))
                 : "memory");
}
static __device__ __forceinline__ void pl_multiply(float *c, const unsigned *a, const unsigned *b,
                                                   pl_f16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void pl_multiply(float *c, const unsigned *a, const unsigned *b,
                                                   pl_bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Rounds to nearest, halves away from zero; NaN stays NaN. */
static __device__ __forceinline__ unsigned pl_to_tf32(float x)
{
    unsigned u;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x));
    return u;
}
/* to = a b + c: f32 read as TF32, f16, bf16. */
#  define PL_MULTIPLY(name, shape)                                                                 \
   static __device__ __forceinline__ void name(float *to, const unsigned *a, const unsigned *b,    \
                                               const float *c)                                     \
   {                                                                                               \
    asm("mma.sync.aligned." shape ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};" \
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),  \
          "f"(c[2]), "f"(c[3]));                                                                   \
   }
PL_MULTIPLY(pl_multiply_tf32, "m16n8k8.row.col.f32.tf32.tf32")
PL_MULTIPLY(pl_multiply_f16, "m16n8k16.row.col.f32.f16.f16")
PL_MULTIPLY(pl_multiply_bf16, "m16n8k16.row.col.f32.bf16.bf16")
#  undef PL_MULTIPLY
# else
/* Never launched below 8.0; the code must only compile there. */
static __device__ void pl_copy16(void *, const void *, bool)
{
}
static __device__ void pl_copy4(void *, const void *, bool)
{
}
static __device__ void pl_copies_end(void)
{
}
static __device__ unsigned pl_to_tf32(float)
{
    return 0;
}
static __device__ void pl_multiply_tf32(float *, const unsigned *, const unsigned *, const float *)
{
}
static __device__ void pl_multiply_f16(float *, const unsigned *, const unsigned *, const float *)
{
}
static __device__ void pl_multiply_bf16(float *, const unsigned *, const unsigned *, const float *)
{
}
template <int PENDING> static __device__ void pl_copies_wait(void)
{
}
static __device__ void pl_load4(unsigned *, const void *)
{
}
static __device__ void pl_load4t(unsigned *, const void *)
{
}
template <class T>
static __device__ void pl_multiply(float *, const unsigned *, const unsigned *, T)
{
}
# endif
#endif

#endif
