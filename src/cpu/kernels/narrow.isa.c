/* narrow.isa.c - the loops of narrow.h over rows [lo, hi), compiled per instruction set. Lanes are
 * written as arrays of 16 so that every set adds in the same order. */
#include "cpu/kernels/narrow.h"
#include "cpu/isa/shuffle.h"

#include <string.h>

#define GLUE_(a, b) a##b
#define GLUE(a, b)  GLUE_(a, b)

enum { LANES = 16 };
typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t i16 __attribute__((vector_size(64)));

/* Sums of lanes, pairs first: after FOLD1 the even places hold pairs of a, the odd places pairs of
 * b. After all four over 16 rows, lane r holds the sum of row r. Macros, because a function that
 * takes vectors wider than the machine's has no stable calling convention. */
#define FOLD1(a, b)                                                                                \
 (PL_SHUFFLE(i16, a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +               \
  PL_SHUFFLE(i16, a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#define FOLD2(a, b)                                                                                \
 (PL_SHUFFLE(i16, a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +                \
  PL_SHUFFLE(i16, a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define FOLD4(a, b)                                                                                \
 (PL_SHUFFLE(i16, a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +                \
  PL_SHUFFLE(i16, a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
#define FOLD8(a, b)                                                                                \
 (PL_SHUFFLE(i16, a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +                  \
  PL_SHUFFLE(i16, a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))

/* Multiplies one row with one vector, in 16 lanes. */
static inline void row_lanes(const float *a, const float *b, int64_t n, v16 *out)
{
    v16 even = {0}, odd = {0}, x, y;
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES) {
        memcpy(&x, a + j, sizeof x), memcpy(&y, b + j, sizeof y);
        even += x * y;
        memcpy(&x, a + j + LANES, sizeof x), memcpy(&y, b + j + LANES, sizeof y);
        odd += x * y;
    }
    if (j + LANES <= n) {
        memcpy(&x, a + j, sizeof x), memcpy(&y, b + j, sizeof y);
        even += x * y;
        j += LANES;
    }
    if (j < n) {
        const size_t left = (size_t)(n - j) * sizeof *a;
        x = y = (v16){0};
        memcpy(&x, a + j, left), memcpy(&y, b + j, left);
        odd += x * y;
    }
    *out = even + odd;
}

/* 16 rows from r on, against one vector; rows past the end repeat the last. */
static inline void dot_rows(const pl_narrow *s, int64_t r, int64_t last, const float *a,
                            const float *b, v16 *out)
{
    v16 v[LANES];
    for (int i = 0; i < LANES; i++) {
        const int64_t at = r + i < last ? r + i : last;
        row_lanes(a + at * s->ld, b, s->cols, &v[i]);
    }
    for (int i = 0; i < 8; i++) v[i] = FOLD1(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 4; i++) v[i] = FOLD2(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; i++) v[i] = FOLD4(v[2 * i], v[2 * i + 1]);
    *out = FOLD8(v[0], v[1]);
}

static void dot(const pl_narrow *s, int64_t lo, int64_t hi, const float *a, const float *b,
                const float *bias, float *c)
{
    for (int64_t r = lo; r < hi; r += LANES)
        for (int64_t i = 0; i < s->n; i++) {
            v16 v;
            dot_rows(s, r, hi - 1, a, b + i * s->cols, &v);
            for (int64_t k = 0; k < LANES && r + k < hi; k++) {
                const float add = bias ? bias[(r + k) * s->bias_row + i * s->bias_vec] : 0.0f;
                c[(r + k) * s->n + i] = v[k] + add;
            }
        }
}

/* Four rows per iteration: c is read and written once for them. */
static void sum(const pl_narrow *s, int64_t lo, int64_t hi, const float *a, const float *b,
                float *c)
{
    const int64_t n = s->n, cols = s->cols;
    memset(c, 0, (size_t)(n * cols) * sizeof *c);
    int64_t r = lo;
    for (; r + 4 <= hi; r += 4)
        for (int64_t i = 0; i < n; i++) {
            const float *restrict a0 = a + r * s->ld, *restrict a1 = a0 + s->ld;
            const float *restrict a2 = a1 + s->ld, *restrict a3 = a2 + s->ld;
            const float b0 = b[r * n + i], b1 = b[(r + 1) * n + i];
            const float b2 = b[(r + 2) * n + i], b3 = b[(r + 3) * n + i];
            float *restrict to = c + i * cols;
            for (int64_t j = 0; j < cols; j++)
                to[j] += (a0[j] * b0 + a1[j] * b1) + (a2[j] * b2 + a3[j] * b3);
        }
    for (; r < hi; r++)
        for (int64_t i = 0; i < n; i++) {
            const float *restrict row = a + r * s->ld;
            const float by = b[r * n + i];
            float *restrict to = c + i * cols;
            for (int64_t j = 0; j < cols; j++) to[j] += row[j] * by;
        }
}

extern const pl_narrow_loops GLUE(pl_narrow_loops_, PL_ISA);
const pl_narrow_loops GLUE(pl_narrow_loops_, PL_ISA) = {dot, sum};
