/* narrow.isa.c - the loops of narrow.h over rows [lo, hi), compiled per instruction set. Lanes
 * are written out as arrays of 16 so that every set adds in the same order. */
#include "cpu/narrow.h"

#include <string.h>

#define GLUE_(a, b) a##b
#define GLUE(a, b)  GLUE_(a, b)

enum { LANES = 16 };

static inline float lanes_sum(float *lane)
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* One row against one vector. */
static inline float dot_one(const float *a, const float *b, int64_t n)
{
    float lane[LANES] = {0};
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += a[j + i] * b[j + i];
    for (int i = 0; j < n; j++, i++) lane[i] += a[j] * b[j];
    return lanes_sum(lane);
}

static void dot(const pl_narrow *s, int64_t lo, int64_t hi, const float *a, const float *b,
                const float *bias, float *c)
{
    for (int64_t r = lo; r < hi; r++)
        for (int64_t i = 0; i < s->n; i++) {
            float v = dot_one(a + r * s->ld, b + i * s->cols, s->cols);
            if (bias) v += bias[r * s->bias_row + i * s->bias_vec];
            c[r * s->n + i] = v;
        }
}

/* Four rows a turn: c is read and written once for them. */
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
