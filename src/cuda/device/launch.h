/* launch.h - shared by kernels in .cu files: launches, element types, 16-byte accesses, division.
 *
 * The files compile in two ways: by nvcc for GPUs, and by a C++ compiler for the simulator
 * (tests/cudasim), which runs them on the host in the tests. Only PL_LAUNCH and PL_SHARED differ
 * between the two.
 *
 * Storage types f16 and bf16 are computed in f32 and rounded once. Indices are 32-bit wherever the
 * launcher has checked that the operands have fewer than 2^31 elements, 64-bit otherwise.
 */
#ifndef PL_CUDA_LAUNCH_H
#define PL_CUDA_LAUNCH_H

#include "cuda/device/cuda.h"

#ifdef __CUDACC__
# include <cuda_bf16.h>
# include <cuda_fp16.h>
/* Put a kernel with template arguments in parentheses: PL_LAUNCH((k<float, 4>), ...). */
# define PL_LAUNCH(kernel, grid, block, shared_bytes, ...)                                         \
  kernel<<<(grid), (block), (shared_bytes), pl_cuda_stream()>>>(__VA_ARGS__)
/* Dynamic shared memory as `T *name`. */
# define PL_SHARED(T, name)                                                                        \
  extern __shared__ __align__(16) unsigned char pl_shared_bytes[];                                 \
  T *name = reinterpret_cast<T *>(pl_shared_bytes)
#else
# include "cudasim.h"
# define PL_LAUNCH(kernel, grid, block, shared_bytes, ...)                                         \
  pl_sim_call((grid), (block), (shared_bytes), kernel, __VA_ARGS__)
# define PL_SHARED(T, name) T *name = static_cast<T *>(pl_sim_shared())
#endif

/* ---- element types ---------------------------------------------------------------------- */
typedef __half pl_f16;
typedef __nv_bfloat16 pl_bf16;

/* acc: the type in which sums and products of T are computed. */
template <class T> struct pl_elem {
    typedef T acc;
    static __device__ __forceinline__ T get(T v)
    {
        return v;
    }
    static __device__ __forceinline__ T put(T v)
    {
        return v;
    }
};
template <> struct pl_elem<pl_f16> {
    typedef float acc;
    static __device__ __forceinline__ float get(pl_f16 v)
    {
        return __half2float(v);
    }
    static __device__ __forceinline__ pl_f16 put(float v)
    {
        return __float2half_rn(v);
    }
};
template <> struct pl_elem<pl_bf16> {
    typedef float acc;
    static __device__ __forceinline__ float get(pl_bf16 v)
    {
        return __bfloat162float(v);
    }
    static __device__ __forceinline__ pl_bf16 put(float v)
    {
        return __float2bfloat16_rn(v);
    }
};
template <class T> static __device__ __forceinline__ typename pl_elem<T>::acc pl_get(T v)
{
    return pl_elem<T>::get(v);
}
template <class T> static __device__ __forceinline__ T pl_put(typename pl_elem<T>::acc v)
{
    return pl_elem<T>::put(v);
}

/* Runs the statement with T as the C++ type of a dtype; unsupported dtypes fail. */
#define PL_CASE_OF(dtype_, type_, ...)                                                             \
case dtype_: {                                                                                     \
 typedef type_ T;                                                                                  \
 __VA_ARGS__;                                                                                      \
} break;
#define PL_NO_KERNEL(d)                                                                            \
default:                                                                                           \
 PL_FAIL(PL_ERR_UNSUPPORTED, "no CUDA kernel for elements of %s", pl_dtype_name(d))
#define PL_FLOAT_TYPES(d, ...)                                                                     \
 switch (d) {                                                                                      \
  PL_CASE_OF(PL_F32, float, __VA_ARGS__)                                                           \
  PL_CASE_OF(PL_F16, pl_f16, __VA_ARGS__)                                                          \
  PL_CASE_OF(PL_BF16, pl_bf16, __VA_ARGS__)                                                        \
  PL_CASE_OF(PL_F64, double, __VA_ARGS__)                                                          \
  PL_NO_KERNEL(d);                                                                                 \
 }
#define PL_ALL_TYPES(d, ...)                                                                       \
 switch (d) {                                                                                      \
  PL_CASE_OF(PL_F32, float, __VA_ARGS__)                                                           \
  PL_CASE_OF(PL_F16, pl_f16, __VA_ARGS__)                                                          \
  PL_CASE_OF(PL_BF16, pl_bf16, __VA_ARGS__)                                                        \
  PL_CASE_OF(PL_F64, double, __VA_ARGS__)                                                          \
  PL_CASE_OF(PL_I32, int32_t, __VA_ARGS__)                                                         \
  PL_CASE_OF(PL_I64, int64_t, __VA_ARGS__)                                                         \
  PL_CASE_OF(PL_U8, uint8_t, __VA_ARGS__)                                                          \
  PL_CASE_OF(PL_BOOL, uint8_t, __VA_ARGS__)                                                        \
  PL_NO_KERNEL(d);                                                                                 \
 }

/* ---- wide accesses ---------------------------------------------------------------------- */
/* N elements that one access moves. */
template <class T, int N> struct __align__(sizeof(T) * N) pl_pack
{
    T v[N];
};
template <class T, int N> static __device__ __forceinline__ pl_pack<T, N> pl_read(const T *p)
{
    return *reinterpret_cast<const pl_pack<T, N> *>(p);
}
template <class T, int N>
static __device__ __forceinline__ void pl_write(T *p, const pl_pack<T, N> &v)
{
    *reinterpret_cast<pl_pack<T, N> *>(p) = v;
}

/* Copies do not interpret elements: runs the statement with U as an unsigned type of that many
 * bytes, 1 to 16. */
#define PL_UNIT_TYPES(bytes, ...)                                                                  \
 switch (bytes) {                                                                                  \
 case 1: {                                                                                         \
  typedef uint8_t U;                                                                               \
  __VA_ARGS__;                                                                                     \
 } break;                                                                                          \
 case 2: {                                                                                         \
  typedef uint16_t U;                                                                              \
  __VA_ARGS__;                                                                                     \
 } break;                                                                                          \
 case 4: {                                                                                         \
  typedef uint32_t U;                                                                              \
  __VA_ARGS__;                                                                                     \
 } break;                                                                                          \
 case 8: {                                                                                         \
  typedef uint2 U;                                                                                 \
  __VA_ARGS__;                                                                                     \
 } break;                                                                                          \
 default: {                                                                                        \
  typedef uint4 U;                                                                                 \
  __VA_ARGS__;                                                                                     \
 } break;                                                                                          \
 }
/* Returns the widest access, in bytes and at most 16, of which `n` (a size, a stride, a pointer) is
 * a multiple; `wide` is what other operands allow. */
static inline int64_t pl_widest(int64_t wide, int64_t n)
{
    while (wide > 1 && n % wide) wide /= 2;
    return wide;
}
static inline int64_t pl_widest_at(int64_t wide, const void *p)
{
    return pl_widest(wide, (int64_t)(uintptr_t)p);
}

/* ---- division by a number that is fixed for a launch --------------------------------------- */
/* n / d for n < 2^31, d >= 1: n * mul >> 32 >> shift, mul = ceil(2^(32+shift) / d), with the least
 * shift for which 2^shift >= d. Granlund and Montgomery, "Division by invariant integers using
 * multiplication", PLDI 1994. */
struct pl_divisor {
    uint32_t d, mul, shift;
};
static inline pl_divisor pl_div_by(int64_t d)
{
    pl_divisor r = {(uint32_t)d, 0, 0};
    while (((uint64_t)1 << r.shift) < (uint64_t)d) r.shift++;
    r.mul = (uint32_t)(((((uint64_t)1 << r.shift) - (uint64_t)d) << 32) / (uint64_t)d + 1);
    return r;
}
static __device__ __forceinline__ uint32_t pl_quot(uint32_t n, const pl_divisor &d)
{
    return (__umulhi(n, d.mul) + n) >> d.shift;
}
/* Returns the quotient, and the remainder in *rest. */
static __device__ __forceinline__ uint32_t pl_divmod(uint32_t n, const pl_divisor &d,
                                                     uint32_t *rest)
{
    uint32_t q = pl_quot(n, d);
    *rest = n - q * d.d;
    return q;
}

/* For n and d of any size; fast where both are below 2^31. */
struct pl_long_divisor {
    pl_divisor fast; /* fast.d 0: d is too large */
    int64_t d;
};
static inline pl_long_divisor pl_long_div_by(int64_t d)
{
    pl_long_divisor r = {pl_div_by(d <= 0x7fffffff ? d : 1), d};
    if (d > 0x7fffffff) r.fast.d = 0;
    return r;
}
static __device__ __forceinline__ int64_t pl_long_divmod(int64_t n, const pl_long_divisor &d,
                                                         int64_t *rest)
{
    int64_t q = n <= 0x7fffffff && d.fast.d ? (int64_t)pl_quot((uint32_t)n, d.fast) : n / d.d;
    *rest = n - q * d.d;
    return q;
}

/* ---- grids ------------------------------------------------------------------------------ */
static inline int64_t pl_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
/* Returns the blocks for n items, `per` to a block, for kernels that loop over items beyond the
 * grid. */
static inline unsigned pl_blocks(int64_t n, int64_t per)
{
    int64_t most = (int64_t)pl_cuda_props_get()->sms * 64, want = pl_ceil_div(n, per);
    return (unsigned)(want < 1 ? 1 : want < most ? want : most);
}
/* A tensor seen along one axis: [outer, size, inner]. */
struct pl_axis_view {
    int64_t outer, size, inner;
};
static inline pl_axis_view pl_along_axis(const pl_type *t, int64_t axis)
{
    pl_axis_view l = {1, t->dim[axis], 1};
    for (int i = 0; i < axis; i++) l.outer *= t->dim[i];
    for (int i = (int)axis + 1; i < t->rank; i++) l.inner *= t->dim[i];
    return l;
}
/* Item of this thread and the distance to its next item. */
#define PL_ITEM  ((int64_t)blockIdx.x * blockDim.x + threadIdx.x)
#define PL_ITEMS ((int64_t)gridDim.x * blockDim.x)

/* ---- tables ----------------------------------------------------------------------------- */
/* An op's list of one kernel, and the head of a file's table of ops. */
#define PL_CUDA_KERNEL(list, prepare, run)                                                         \
 static const pl_kernel list[] = {{"cuda", NULL, prepare, NULL, run},                              \
                                  {NULL, NULL, NULL, NULL, NULL}}
#define PL_CUDA_ENTRIES(name)                                                                      \
 extern "C" const pl_cuda_entry name[];                                                            \
 const pl_cuda_entry name[]

#endif
