/* vec_map.h - macros that generate the loops of a table from one-element expressions.
 *
 * A file defines T (the class's element type) and writes MAP1(name, expression of x), MAP2(name,
 * expression of x and y), CMP1/CMP2 for truth values. Each MAP2 gives three loops, one per mode.
 */
#ifndef PL_CPU_VEC_MAP_H
#define PL_CPU_VEC_MAP_H

#include "cpu/vec/vec.h"

#define MAP_HEAD(name)                                                                             \
 static void name(void *dst, const void *pa, const void *pb, const void *pc, int64_t n, double imm)
#define MAP_UNUSED (void)pa, (void)pb, (void)pc, (void)imm

#define LOOP1(name, R, expr)                                                                       \
 MAP_HEAD(name)                                                                                    \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  R *d = dst;                                                                                      \
  const T *a = pa;                                                                                 \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   T x = a[i];                                                                                     \
   d[i] = (R)(expr);                                                                               \
  }                                                                                                \
 }

#define LOOP2(name, R, expr)                                                                       \
 MAP_HEAD(name##_vv)                                                                               \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  R *d = dst;                                                                                      \
  const T *a = pa, *b = pb;                                                                        \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   T x = a[i], y = b[i];                                                                           \
   d[i] = (R)(expr);                                                                               \
  }                                                                                                \
 }                                                                                                 \
 MAP_HEAD(name##_vs)                                                                               \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  R *d = dst;                                                                                      \
  const T *a = pa;                                                                                 \
  const T y = *(const T *)pb;                                                                      \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   T x = a[i];                                                                                     \
   d[i] = (R)(expr);                                                                               \
  }                                                                                                \
 }                                                                                                 \
 MAP_HEAD(name##_sv)                                                                               \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  R *d = dst;                                                                                      \
  const T x = *(const T *)pa;                                                                      \
  const T *b = pb;                                                                                 \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   T y = b[i];                                                                                     \
   d[i] = (R)(expr);                                                                               \
  }                                                                                                \
 }

#define MAP1(name, expr) LOOP1(name, T, expr)
#define MAP2(name, expr) LOOP2(name, T, expr)
#define CMP1(name, expr) LOOP1(name, uint8_t, expr)
#define CMP2(name, expr) LOOP2(name, uint8_t, expr)

#define SELECT_LOOP(name, BDECL, BVAL, CDECL, CVAL)                                                \
 MAP_HEAD(name)                                                                                    \
 {                                                                                                 \
  MAP_UNUSED;                                                                                      \
  T *d = dst;                                                                                      \
  const uint8_t *m = pa;                                                                           \
  BDECL;                                                                                           \
  CDECL;                                                                                           \
  PL_VEC_LOOP for (int64_t i = 0; i < n; i++)                                                      \
  {                                                                                                \
   T y = BVAL, z = CVAL;                                                                           \
   d[i] = m[i] ? y : z;                                                                            \
  }                                                                                                \
 }
#define SELECT_LOOPS                                                                               \
 SELECT_LOOP(select_vv, const T *b = pb, b[i], const T *c = pc, c[i])                              \
 SELECT_LOOP(select_vs, const T *b = pb, b[i], const T c = *(const T *)pc, c)                      \
 SELECT_LOOP(select_sv, const T b = *(const T *)pb, b, const T *c = pc, c[i])                      \
 SELECT_LOOP(select_ss, const T b = *(const T *)pb, b, const T c = *(const T *)pc, c)

/* Table rows. */
#define ROW1(NAME, name)     [PL_SCALAR_##NAME] = {name}
#define ROW_LIBM(NAME, name) ROW1(NAME, name##_),
#define ROW2(NAME, name)     [PL_SCALAR_##NAME] = {name##_vv, name##_vs, name##_sv}
#define ROW3(NAME, name)     [PL_SCALAR_##NAME] = {name##_vv, name##_vs, name##_sv, name##_ss}

#define COMPARE_LOOPS                                                                              \
 CMP2(eq, x == y)                                                                                  \
 CMP2(ne, x != y)                                                                                  \
 CMP2(lt, x < y)                                                                                   \
 CMP2(le, x <= y)                                                                                  \
 CMP2(gt, x > y)                                                                                   \
 CMP2(ge, x >= y)
#define COMPARE_ROWS                                                                               \
 ROW2(EQ, eq), ROW2(NE, ne), ROW2(LT, lt), ROW2(LE, le), ROW2(GT, gt), ROW2(GE, ge)

/* The table of both types: a row for each function above; the rows of PL_SCALAR_LIBM follow it. */
#define MAP_ROWS                                                                                   \
 ROW1(NEG, neg), ROW1(ABS, abs_), ROW1(SIGN, sign), ROW1(FLOOR, floor_), ROW1(ROUND, round_),      \
     ROW1(RECIPROCAL, reciprocal), ROW1(SQUARE, square), ROW1(SQRT, sqrt_), ROW1(RSQRT, rsqrt),    \
     ROW1(SIN, sin_), ROW1(COS, cos_), ROW1(SIGMOID, sigmoid), ROW1(SOFTPLUS, softplus),           \
     ROW1(RELU, relu), ROW1(LEAKY_RELU, leaky_relu), ROW1(SILU, silu), ROW1(GELU, gelu),           \
     ROW1(GELU_SLOPE, gelu_slope), ROW1(GELU_TANH, gelu_tanh), ROW1(IS_FINITE, is_finite),         \
     ROW1(IS_NAN, is_nan), ROW2(ADD, add), ROW2(SUB, sub), ROW2(MUL, mul), ROW2(DIV, div_),        \
     ROW2(POW, pow), ROW2(MAX, max_), ROW2(MIN, min_), ROW2(MOD, mod), COMPARE_ROWS,               \
     ROW3(SELECT, select)

#endif
