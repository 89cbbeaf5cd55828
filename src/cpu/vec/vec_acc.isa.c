/* vec_acc.isa.c - accumulating loops of reductions, in f64 (floats) and i64 (integers).
 *
 * The caller's geometry and the lane of an element (its position modulo PL_VEC_LANES) fix which
 * accumulator gets which element; vector registers hold neighbouring accumulators, so their width
 * does not change the result. The code uses the compiler's vector types: eight accumulators make
 * one 512-bit register, or two or four smaller ones.
 */
#include "cpu/vec/vec.h"

#include <math.h>
#include <string.h>

enum { G = 8 }; /* accumulators in a vector */
/* Vectors of a column block: as many as leave registers for the rest. */
#if defined(__AVX512F__)
enum { W = 8 };
#elif defined(__AVX2__)
enum { W = 4 };
#else
enum { W = 2 };
#endif
#if defined(__clang__)
# define UNROLL _Pragma("clang loop unroll(full)")
#else
# define UNROLL _Pragma("GCC unroll 8")
#endif

typedef double vf __attribute__((vector_size(64)));
typedef int64_t vi __attribute__((vector_size(64)));
typedef uint64_t vu __attribute__((vector_size(64)));
typedef float raw_f32 __attribute__((vector_size(32)));
typedef double raw_f64 __attribute__((vector_size(64)));
typedef int32_t raw_i32 __attribute__((vector_size(32)));
typedef int64_t raw_i64 __attribute__((vector_size(64)));
typedef uint8_t raw_u8 __attribute__((vector_size(8)));

/* One accumulation step, on vectors (V..) and on single elements (S..), of floats and integers. max
 * keeps the accumulator unless the element is larger or NaN; a NaN accumulator is never replaced by
 * a number. */
#define MAX_S(a, x) ((((x) > (a)) | ((x) != (x))) ? (x) : (a))
#define MIN_S(a, x) ((((x) < (a)) | ((x) != (x))) ? (x) : (a))

/* A select on vectors by mask, since C compilers do not have ?: on vectors. */
#define PICK_F(m, x, a) ((vf)(((vi)(m) & (vi)(x)) | (~(vi)(m) & (vi)(a))))
#define PICK_I(m, x, a) (((m) & (x)) | (~(m) & (a)))
#define VADD_F(a, x)    ((a) + (x))
#define VADD_I(a, x)    ((vi)((vu)(a) + (vu)(x)))
#define VMAX_F(a, x)    PICK_F(((x) > (a)) | ((x) != (x)), x, a)
#define VMIN_F(a, x)    PICK_F(((x) < (a)) | ((x) != (x)), x, a)
#define VMAX_I(a, x)    PICK_I((x) > (a), x, a)
#define VMIN_I(a, x)    PICK_I((x) < (a), x, a)
#define SADD_F(a, x)    ((a) + (x))
#define SADD_I(a, x)    ((int64_t)((uint64_t)(a) + (uint64_t)(x)))

#define LOAD(dst, ptr) memcpy(&(dst), (ptr), sizeof(dst))
#define SAVE(ptr, src) memcpy((ptr), &(src), sizeof(src))

/* Columns are processed in blocks whose accumulators stay in registers down the rows. */
#define COLUMNS(name, T, RAW, A, V, VSTEP, N)                                                      \
 static inline void columns_##name(A *acc, const T *x, int64_t rows, int64_t width)                \
 {                                                                                                 \
  V a[N];                                                                                          \
  UNROLL for (int k = 0; k < N; k++) LOAD(a[k], acc + k * G);                                      \
  for (int64_t r = 0; r < rows; r++, x += width) {                                                 \
   UNROLL for (int k = 0; k < N; k++)                                                              \
   {                                                                                               \
    RAW raw;                                                                                       \
    LOAD(raw, x + k * G);                                                                          \
    V e = __builtin_convertvector(raw, V);                                                         \
    a[k] = VSTEP(a[k], e);                                                                         \
   }                                                                                               \
  }                                                                                                \
  UNROLL for (int k = 0; k < N; k++) SAVE(acc + k * G, a[k]);                                      \
 }
#define VERT(name, T, RAW, A, V, VSTEP, SSTEP)                                                     \
 COLUMNS(name##_wide, T, RAW, A, V, VSTEP, W)                                                      \
 COLUMNS(name##_one, T, RAW, A, V, VSTEP, 1)                                                       \
 static void vert_##name(void *pacc, int64_t pitch, const void *px, int64_t rows, int64_t width)   \
 {                                                                                                 \
  (void)pitch;                                                                                     \
  A *acc = pacc;                                                                                   \
  const T *x = px;                                                                                 \
  int64_t c = 0;                                                                                   \
  for (; c + W * G <= width; c += W * G) columns_##name##_wide(acc + c, x + c, rows, width);       \
  for (; c + G <= width; c += G) columns_##name##_one(acc + c, x + c, rows, width);                \
  for (; c < width; c++) {                                                                         \
   A a = acc[c];                                                                                   \
   for (int64_t r = 0; r < rows; r++) {                                                            \
    A e = (A)x[r * width + c];                                                                     \
    a = SSTEP(a, e);                                                                               \
   }                                                                                               \
   acc[c] = a;                                                                                     \
  }                                                                                                \
 }                                                                                                 \
 static void horz_##name(void *plane, const void *px, int64_t pos, int64_t n)                      \
 {                                                                                                 \
  A *lane = plane;                                                                                 \
  const T *x = px;                                                                                 \
  int64_t i = 0;                                                                                   \
  for (; i < n && (pos + i) % PL_VEC_LANES != 0; i++) {                                            \
   A *a = &lane[(pos + i) % PL_VEC_LANES], e = (A)x[i];                                            \
   *a = SSTEP(*a, e);                                                                              \
  }                                                                                                \
  V a0, a1;                                                                                        \
  LOAD(a0, lane);                                                                                  \
  LOAD(a1, lane + G);                                                                              \
  for (; i + 2 * G <= n; i += 2 * G) {                                                             \
   RAW r0, r1;                                                                                     \
   LOAD(r0, x + i);                                                                                \
   LOAD(r1, x + i + G);                                                                            \
   V x0 = __builtin_convertvector(r0, V), x1 = __builtin_convertvector(r1, V);                     \
   a0 = VSTEP(a0, x0);                                                                             \
   a1 = VSTEP(a1, x1);                                                                             \
  }                                                                                                \
  SAVE(lane, a0);                                                                                  \
  SAVE(lane + G, a1);                                                                              \
  for (int l = 0; i < n; i++, l++) {                                                               \
   A e = (A)x[i];                                                                                  \
   lane[l] = SSTEP(lane[l], e);                                                                    \
  }                                                                                                \
 }

/* Several rows at once: lanes in registers. The end of a row is padded with the identity, which
 * does not change a lane's bits (a sum's lanes start at +0 and never become -0). */
#define ROWS(name, T, RAW, A, V, VSTEP, SSTEP, IDENTITY)                                           \
 static inline A tree_##name(const A *t)                                                           \
 {                                                                                                 \
  A a = SSTEP(t[0], t[4]), b = SSTEP(t[1], t[5]);                                                  \
  A c = SSTEP(t[2], t[6]), d = SSTEP(t[3], t[7]);                                                  \
  a = SSTEP(a, c);                                                                                 \
  b = SSTEP(b, d);                                                                                 \
  return SSTEP(a, b);                                                                              \
 }                                                                                                 \
 static void rows_##name(void *pout, int64_t pitch, const void *px, int64_t rows, int64_t len)     \
 {                                                                                                 \
  (void)pitch;                                                                                     \
  A *out = pout;                                                                                   \
  const T *x = px;                                                                                 \
  for (int64_t r = 0; r < rows && len < 2 * G; r++, x += len) {                                    \
   A t[G], low = IDENTITY; /* few elements: no detour through vectors */                           \
   for (int l = 0; l < G; l++) {                                                                   \
    A e = l < len ? (A)x[l] : IDENTITY, h = l + G < len ? (A)x[l + G] : IDENTITY;                  \
    e = SSTEP(low, e);                                                                             \
    h = SSTEP(low, h);                                                                             \
    t[l] = SSTEP(e, h);                                                                            \
   }                                                                                               \
   out[r] = tree_##name(t);                                                                        \
  }                                                                                                \
  for (int64_t r = 0; r < rows && len >= 2 * G; r++, x += len) {                                   \
   V a0 = (V){0} + IDENTITY, a1 = a0;                                                              \
   int64_t i = 0;                                                                                  \
   for (; i + 2 * G <= len; i += 2 * G) {                                                          \
    RAW r0, r1;                                                                                    \
    LOAD(r0, x + i);                                                                               \
    LOAD(r1, x + i + G);                                                                           \
    V x0 = __builtin_convertvector(r0, V), x1 = __builtin_convertvector(r1, V);                    \
    a0 = VSTEP(a0, x0);                                                                            \
    a1 = VSTEP(a1, x1);                                                                            \
   }                                                                                               \
   if (i < len) {                                                                                  \
    A end[2 * G];                                                                                  \
    for (int l = 0; l < 2 * G; l++) end[l] = i + l < len ? (A)x[i + l] : IDENTITY;                 \
    V x0, x1;                                                                                      \
    LOAD(x0, end);                                                                                 \
    LOAD(x1, end + G);                                                                             \
    a0 = VSTEP(a0, x0);                                                                            \
    a1 = VSTEP(a1, x1);                                                                            \
   }                                                                                               \
   a0 = VSTEP(a0, a1);                                                                             \
   A t[G];                                                                                         \
   SAVE(t, a0);                                                                                    \
   out[r] = tree_##name(t);                                                                        \
  }                                                                                                \
 }

#define START(name, T, A)                                                                          \
 static void start_##name(void *pacc, int64_t pitch, const void *px, int64_t rows, int64_t width)  \
 {                                                                                                 \
  (void)pitch, (void)rows;                                                                         \
  A *acc = pacc;                                                                                   \
  const T *x = px;                                                                                 \
  for (int64_t i = 0; i < width; i++) acc[i] = (A)x[i];                                            \
 }

#define CLASS(name, T, A, V, K, LOW, HIGH)                                                         \
 ROWS(sum_##name, T, raw_##name, A, V, VADD_##K, SADD_##K, (A)0)                                   \
 ROWS(max_##name, T, raw_##name, A, V, VMAX_##K, MAX_S, LOW)                                       \
 ROWS(min_##name, T, raw_##name, A, V, VMIN_##K, MIN_S, HIGH)                                      \
 VERT(sum_##name, T, raw_##name, A, V, VADD_##K, SADD_##K)                                         \
 VERT(max_##name, T, raw_##name, A, V, VMAX_##K, MAX_S)                                            \
 VERT(min_##name, T, raw_##name, A, V, VMIN_##K, MIN_S)                                            \
 START(name, T, A)

CLASS(f32, float, double, vf, F, -(double)INFINITY, (double)INFINITY)
CLASS(f64, double, double, vf, F, -(double)INFINITY, (double)INFINITY)
CLASS(i32, int32_t, int64_t, vi, I, INT64_MIN, INT64_MAX)
CLASS(i64, int64_t, int64_t, vi, I, INT64_MIN, INT64_MAX)
CLASS(u8, uint8_t, int64_t, vi, I, INT64_MIN, INT64_MAX)

#define MOMENT_COLUMNS(name, T, RAW, N)                                                            \
 static inline void columns_moments_##name(double *acc, int64_t pitch, const T *x, int64_t rows,   \
                                           int64_t width)                                          \
 {                                                                                                 \
  vf shift[N], s[N], q[N];                                                                         \
  UNROLL for (int k = 0; k < N; k++)                                                               \
  {                                                                                                \
   LOAD(shift[k], acc + k * G);                                                                    \
   LOAD(s[k], acc + pitch + k * G);                                                                \
   LOAD(q[k], acc + 2 * pitch + k * G);                                                            \
  }                                                                                                \
  for (int64_t r = 0; r < rows; r++, x += width) {                                                 \
   UNROLL for (int k = 0; k < N; k++)                                                              \
   {                                                                                               \
    RAW raw;                                                                                       \
    LOAD(raw, x + k * G);                                                                          \
    vf e = __builtin_convertvector(raw, vf) - shift[k];                                            \
    s[k] += e;                                                                                     \
    q[k] += e * e;                                                                                 \
   }                                                                                               \
  }                                                                                                \
  UNROLL for (int k = 0; k < N; k++)                                                               \
  {                                                                                                \
   SAVE(acc + pitch + k * G, s[k]);                                                                \
   SAVE(acc + 2 * pitch + k * G, q[k]);                                                            \
  }                                                                                                \
 }
#define MOMENTS(name, T)                                                                           \
 MOMENT_COLUMNS(name##_wide, T, raw_##name, W)                                                     \
 MOMENT_COLUMNS(name##_one, T, raw_##name, 1)                                                      \
 static void start_moments_##name(void *pacc, int64_t pitch, const void *px, int64_t rows,         \
                                  int64_t width)                                                   \
 {                                                                                                 \
  (void)rows;                                                                                      \
  double *acc = pacc;                                                                              \
  const T *x = px;                                                                                 \
  for (int64_t i = 0; i < width; i++) {                                                            \
   acc[i] = (double)x[i];                                                                          \
   acc[pitch + i] = 0.0;                                                                           \
   acc[2 * pitch + i] = 0.0;                                                                       \
  }                                                                                                \
 }                                                                                                 \
 static void vert_moments_##name(void *pacc, int64_t pitch, const void *px, int64_t rows,          \
                                 int64_t width)                                                    \
 {                                                                                                 \
  double *acc = pacc;                                                                              \
  const T *x = px;                                                                                 \
  int64_t c = 0;                                                                                   \
  for (; c + W * G <= width; c += W * G)                                                           \
   columns_moments_##name##_wide(acc + c, pitch, x + c, rows, width);                              \
  for (; c + G <= width; c += G) columns_moments_##name##_one(acc + c, pitch, x + c, rows, width); \
  for (; c < width; c++) {                                                                         \
   double s = acc[pitch + c], q = acc[2 * pitch + c];                                              \
   for (int64_t r = 0; r < rows; r++) {                                                            \
    double e = (double)x[r * width + c] - acc[c];                                                  \
    s += e;                                                                                        \
    q += e * e;                                                                                    \
   }                                                                                               \
   acc[pitch + c] = s;                                                                             \
   acc[2 * pitch + c] = q;                                                                         \
  }                                                                                                \
 }                                                                                                 \
 static void moments_one_##name(double *lane, int64_t l, T x)                                      \
 {                                                                                                 \
  double e = (double)x - lane[2 * PL_VEC_LANES];                                                   \
  lane[l] += e;                                                                                    \
  lane[PL_VEC_LANES + l] += e * e;                                                                 \
 }                                                                                                 \
 static void horz_moments_##name(void *plane, const void *px, int64_t pos, int64_t n)              \
 {                                                                                                 \
  double *lane = plane;                                                                            \
  const T *x = px;                                                                                 \
  int64_t i = 0;                                                                                   \
  for (; i < n && (pos + i) % PL_VEC_LANES != 0; i++)                                              \
   moments_one_##name(lane, (pos + i) % PL_VEC_LANES, x[i]);                                       \
  vf s0, s1, q0, q1;                                                                               \
  const double shift = lane[2 * PL_VEC_LANES];                                                     \
  LOAD(s0, lane);                                                                                  \
  LOAD(s1, lane + G);                                                                              \
  LOAD(q0, lane + 2 * G);                                                                          \
  LOAD(q1, lane + 3 * G);                                                                          \
  for (; i + 2 * G <= n; i += 2 * G) {                                                             \
   raw_##name r0, r1;                                                                              \
   LOAD(r0, x + i);                                                                                \
   LOAD(r1, x + i + G);                                                                            \
   vf e0 = __builtin_convertvector(r0, vf) - shift;                                                \
   vf e1 = __builtin_convertvector(r1, vf) - shift;                                                \
   s0 += e0;                                                                                       \
   s1 += e1;                                                                                       \
   q0 += e0 * e0;                                                                                  \
   q1 += e1 * e1;                                                                                  \
  }                                                                                                \
  SAVE(lane, s0);                                                                                  \
  SAVE(lane + G, s1);                                                                              \
  SAVE(lane + 2 * G, q0);                                                                          \
  SAVE(lane + 3 * G, q1);                                                                          \
  for (int64_t l = 0; i < n; i++, l++) moments_one_##name(lane, l, x[i]);                          \
 }
MOMENTS(f32, float)
MOMENTS(f64, double)

#define MOMENT_ROWS(name, T)                                                                       \
 static void rows_moments_##name(void *pout, int64_t pitch, const void *px, int64_t rows,          \
                                 int64_t len)                                                      \
 {                                                                                                 \
  double *out = pout;                                                                              \
  const T *x = px;                                                                                 \
  for (int64_t r = 0; r < rows; r++, x += len) {                                                   \
   const double shift = (double)x[0];                                                              \
   vf s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};                                                      \
   int64_t i = 0;                                                                                  \
   for (; i + 2 * G <= len; i += 2 * G) {                                                          \
    raw_##name r0, r1;                                                                             \
    LOAD(r0, x + i);                                                                               \
    LOAD(r1, x + i + G);                                                                           \
    vf e0 = __builtin_convertvector(r0, vf) - shift;                                               \
    vf e1 = __builtin_convertvector(r1, vf) - shift;                                               \
    s0 += e0;                                                                                      \
    s1 += e1;                                                                                      \
    q0 += e0 * e0;                                                                                 \
    q1 += e1 * e1;                                                                                 \
   }                                                                                               \
   if (i < len) {                                                                                  \
    double end[2 * G];                                                                             \
    for (int l = 0; l < 2 * G; l++) end[l] = i + l < len ? (double)x[i + l] - shift : 0.0;         \
    vf e0, e1;                                                                                     \
    LOAD(e0, end);                                                                                 \
    LOAD(e1, end + G);                                                                             \
    s0 += e0;                                                                                      \
    s1 += e1;                                                                                      \
    q0 += e0 * e0;                                                                                 \
    q1 += e1 * e1;                                                                                 \
   }                                                                                               \
   s0 += s1;                                                                                       \
   q0 += q1;                                                                                       \
   double t[G], u[G];                                                                              \
   SAVE(t, s0);                                                                                    \
   SAVE(u, q0);                                                                                    \
   out[r] = tree_sum_##name(t);                                                                    \
   out[pitch + r] = tree_sum_##name(u);                                                            \
  }                                                                                                \
 }
MOMENT_ROWS(f32, float)
MOMENT_ROWS(f64, double)

extern const pl_vec_acc PL_VEC_NAME(pl_vec_acc);
#define ALL(stem)                                                                                  \
 {                                                                                                 \
  stem##_f32, stem##_f64, stem##_i32, stem##_i64, stem##_u8                                        \
 }
const pl_vec_acc PL_VEC_NAME(pl_vec_acc) = {
    .start = {ALL(start), ALL(start), ALL(start), {start_moments_f32, start_moments_f64}},
    .vert = {ALL(vert_sum), ALL(vert_max), ALL(vert_min), {vert_moments_f32, vert_moments_f64}},
    .horz = {ALL(horz_sum), ALL(horz_max), ALL(horz_min), {horz_moments_f32, horz_moments_f64}},
    .rows = {ALL(rows_sum), ALL(rows_max), ALL(rows_min), {rows_moments_f32, rows_moments_f64}},
};
