/* vec_move.isa.c - conversions between register classes and to and from memory. */
#include "cpu/kernels/vecmath.h"
#include "cpu/vec/vec_map.h"

#define MOVE(name, S, R, expr)                                                                     \
 MAP_HEAD(name)                                                                                    \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  R *d = dst;                                                                                      \
  const S *a = pa;                                                                                 \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   S x = a[i];                                                                                     \
   d[i] = (R)(expr);                                                                               \
  }                                                                                                \
 }

/* Floats to integers: towards zero, saturating, NaN to 0. */
static inline int64_t i64_of(double x)
{
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return INT64_MAX;
    if (x < -9223372036854775808.0) return INT64_MIN;
    return (int64_t)x;
}

static inline int32_t i32_of(double x)
{
    double y = x != x ? 0.0 : x;
    y = y < -2147483648.0 ? -2147483648.0 : y;
    y = y > 2147483647.0 ? 2147483647.0 : y;
    return (int32_t)y;
}

static inline uint8_t u8_of(double x)
{
    double y = x != x ? 0.0 : x;
    y = y < 0.0 ? 0.0 : y;
    y = y > 255.0 ? 255.0 : y;
    return (uint8_t)(int32_t)y;
}

MOVE(f32_f64, float, double, x)
MOVE(f32_i32, float, int32_t, i32_of((double)x))
MOVE(f32_i64, float, int64_t, i64_of((double)x))
MOVE(f32_u8, float, uint8_t, u8_of((double)x))
MOVE(f64_f32, double, float, x)
MOVE(f64_i32, double, int32_t, i32_of(x))
MOVE(f64_i64, double, int64_t, i64_of(x))
MOVE(f64_u8, double, uint8_t, u8_of(x))
MOVE(i32_f32, int32_t, float, x)
MOVE(i32_f64, int32_t, double, x)
MOVE(i32_i64, int32_t, int64_t, x)
MOVE(i32_u8, int32_t, uint8_t, x<0 ? 0 : x> 255 ? 255 : x)
MOVE(i64_f32, int64_t, float, x)
MOVE(i64_f64, int64_t, double, x)
MOVE(i64_i32, int64_t, int32_t, x<INT32_MIN ? INT32_MIN : x> INT32_MAX ? INT32_MAX : x)
MOVE(i64_u8, int64_t, uint8_t, x<0 ? 0 : x> 255 ? 255 : x)
MOVE(u8_f32, uint8_t, float, x)
MOVE(u8_f64, uint8_t, double, x)
MOVE(u8_i32, uint8_t, int32_t, x)
MOVE(u8_i64, uint8_t, int64_t, x)

MOVE(f32_bool, float, uint8_t, x != 0.0f)
MOVE(f64_bool, double, uint8_t, x != 0.0)
MOVE(i32_bool, int32_t, uint8_t, x != 0)
MOVE(i64_bool, int64_t, uint8_t, x != 0)
MOVE(u8_bool, uint8_t, uint8_t, x != 0)

static void copy(void *dst, const void *src, int64_t n, size_t width)
{
    if (dst != src) memcpy(dst, src, (size_t)n * width);
}
#define COPY(name, width)                                                                          \
 MAP_HEAD(name)                                                                                    \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  copy(dst, pa, n, width);                                                                         \
 }
COPY(copy_1, 1)
COPY(copy_4, 4)
COPY(copy_8, 8)

MOVE(round_bf16, float, float, vm_round_bf16(x))
MOVE(load_bf16, uint16_t, float, vm_float((uint32_t)x << 16))
MOVE(store_bf16, float, uint16_t, vm_bits(x) >> 16) /* registers hold rounded values */

#if defined(__F16C__)
# include <immintrin.h>
# define ROUND_16 (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
MAP_HEAD(load_f16)
{
    MAP_UNUSED;
    float *d = dst;
    const uint16_t *a = pa;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i))));
    for (; i < n; i++) d[i] = vm_f16_to_f32(a[i]);
}
MAP_HEAD(store_f16)
{
    MAP_UNUSED;
    uint16_t *d = dst;
    const float *a = pa;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), ROUND_16));
    for (; i < n; i++) d[i] = vm_f32_to_f16(a[i]);
}
MAP_HEAD(round_f16)
{
    MAP_UNUSED;
    float *d = dst;
    const float *a = pa;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(a + i), ROUND_16);
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(h));
    }
    for (; i < n; i++) d[i] = vm_f16_to_f32(vm_f32_to_f16(a[i]));
}
#else
MOVE(load_f16, uint16_t, float, vm_f16_to_f32(x))
MOVE(store_f16, float, uint16_t, vm_f32_to_f16(x))
MOVE(round_f16, float, float, vm_f16_to_f32(vm_f32_to_f16(x)))
#endif

#define FILL(name, W)                                                                              \
 MAP_HEAD(fill_##name)                                                                             \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  W *d = dst;                                                                                      \
  const W x = *(const W *)pa;                                                                      \
  for (int64_t i = 0; i < n; i++) d[i] = x;                                                        \
 }                                                                                                 \
 MAP_HEAD(repeat_##name)                                                                           \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  W *d = dst;                                                                                      \
  const W *a = pa;                                                                                 \
  int64_t len = (int64_t)imm;                                                                      \
  for (int64_t r = 0; r < n; r++) {                                                                \
   const W x = a[r];                                                                               \
   for (int64_t i = 0; i < len; i++) d[r * len + i] = x;                                           \
  }                                                                                                \
 }
FILL(1, uint8_t)
FILL(4, uint32_t)
FILL(8, uint64_t)

extern const pl_vec_move PL_VEC_NAME(pl_vec_move);
const pl_vec_move PL_VEC_NAME(pl_vec_move) = {
    .cast = {{copy_4, f32_f64, f32_i32, f32_i64, f32_u8},
             {f64_f32, copy_8, f64_i32, f64_i64, f64_u8},
             {i32_f32, i32_f64, copy_4, i32_i64, i32_u8},
             {i64_f32, i64_f64, i64_i32, copy_8, i64_u8},
             {u8_f32, u8_f64, u8_i32, u8_i64, copy_1}},
    .to_bool = {f32_bool, f64_bool, i32_bool, i64_bool, u8_bool},
    .round_bf16 = round_bf16,
    .round_f16 = round_f16,
    .load_bf16 = load_bf16,
    .load_f16 = load_f16,
    .store_bf16 = store_bf16,
    .store_f16 = store_f16,
    .fill = {fill_4, fill_8, fill_4, fill_8, fill_1},
    .repeat = {repeat_4, repeat_8, repeat_4, repeat_8, repeat_1},
};
