/* vec_block.isa.c - sums and moments down the columns of f32 rows, in blocks.
 *
 * The loop adds PL_VEC_BLOCK_ROWS rows of a column in f32, then adds the block's sum to an f64
 * total. The rounding error is the error of one block, for any length of the column. A loop that
 * converts each element to f64 would process half as many elements per instruction. Blocks are
 * counted from the first row of the caller's part. A call may stop inside a block; its sum then
 * waits in memory, with the same bits. Columns are independent, so the width of vectors does not
 * change the result.
 */
#include "cpu/kernels/lanes.h"
#include "cpu/vec/vec.h"

enum { B = PL_VEC_BLOCK_ROWS };

#if defined(__clang__)
# define UNROLL _Pragma("clang loop unroll(full)")
#else
# define UNROLL _Pragma("GCC unroll 8")
#endif

/* Adds the block that ends with row k - 1 to the totals; the first block sets them. */
static inline void flush(double *total, const float *part, int n, int64_t k)
{
    if (k == B)
        for (int i = 0; i < n; i++) total[i] = (double)part[i];
    else
        for (int i = 0; i < n; i++) total[i] += (double)part[i];
}

static inline int64_t block_end(int64_t k, int64_t end)
{
    int64_t stop = k - k % B + B;
    return stop < end ? stop : end;
}

/* Sums N vectors of columns from column c on. -0 is the empty sum: adding x to it gives x. */
#define SUM_COLUMNS(N)                                                                             \
 static inline void sum_##N(const pl_vec_cols *a, int64_t c, const float *x, int64_t k,            \
                            int64_t rows, int64_t width)                                           \
 {                                                                                                 \
  int64_t end = k + rows;                                                                          \
  for (x += c; k < end;) {                                                                         \
   vec s[N];                                                                                       \
   float t[N * LANES];                                                                             \
   UNROLL for (int i = 0; i < N; i++) s[i] = k % B ? load(a->part + c + i * LANES) : SPLAT(-0.0f); \
   for (int64_t stop = block_end(k, end); k < stop; k++, x += width) {                             \
    UNROLL for (int i = 0; i < N; i++) s[i] += load(x + i * LANES);                                \
   }                                                                                               \
   float *to = k % B ? a->part + c : t;                                                            \
   UNROLL for (int i = 0; i < N; i++) store(to + i * LANES, s[i]);                                 \
   if (k % B == 0) flush(a->sum + c, t, N * LANES, k);                                             \
  }                                                                                                \
 }

/* Moments about the part's first row. */
#define MOMENT_COLUMNS(N)                                                                          \
 static inline void moments_##N(const pl_vec_cols *a, int64_t c, const float *x, int64_t k,        \
                                int64_t rows, int64_t width)                                       \
 {                                                                                                 \
  int64_t end = k + rows;                                                                          \
  for (x += c; k < end;) {                                                                         \
   vec m[N], s[N], q[N];                                                                           \
   float t[N * LANES], u[N * LANES];                                                               \
   int64_t stop = block_end(k, end);                                                               \
   UNROLL for (int i = 0; i < N; i++)                                                              \
   {                                                                                               \
    m[i] = load(k ? a->shift + c + i * LANES : x + i * LANES);                                     \
    s[i] = k % B ? load(a->part + c + i * LANES) : SPLAT(0.0f);                                    \
    q[i] = k % B ? load(a->part_sq + c + i * LANES) : SPLAT(0.0f);                                 \
   }                                                                                               \
   if (k == 0) {                                                                                   \
    UNROLL for (int i = 0; i < N; i++) store(a->shift + c + i * LANES, m[i]);                      \
    k++, x += width;                                                                               \
   }                                                                                               \
   for (; k < stop; k++, x += width) UNROLL for (int i = 0; i < N; i++)                            \
    {                                                                                              \
     vec e = load(x + i * LANES) - m[i];                                                           \
     s[i] += e;                                                                                    \
     q[i] += e * e;                                                                                \
    }                                                                                              \
   UNROLL for (int i = 0; i < N; i++)                                                              \
   {                                                                                               \
    store((k % B ? a->part + c : t) + i * LANES, s[i]);                                            \
    store((k % B ? a->part_sq + c : u) + i * LANES, q[i]);                                         \
   }                                                                                               \
   if (k % B) continue;                                                                            \
   flush(a->sum + c, t, N * LANES, k);                                                             \
   flush(a->sq + c, u, N * LANES, k);                                                              \
  }                                                                                                \
 }

SUM_COLUMNS(8)
SUM_COLUMNS(4)
SUM_COLUMNS(1)
MOMENT_COLUMNS(4)
MOMENT_COLUMNS(1)
#if LANES == 16 /* 32 registers */
MOMENT_COLUMNS(8)
#endif

static inline void sum_tail(const pl_vec_cols *a, int64_t c, const float *x, int64_t k,
                            int64_t rows, int64_t width)
{
    for (int64_t end = k + rows; k < end;) {
        float s = k % B ? a->part[c] : -0.0f;
        for (int64_t stop = block_end(k, end); k < stop; k++, x += width) s += x[c];
        if (k % B)
            a->part[c] = s;
        else
            flush(a->sum + c, &s, 1, k);
    }
}

static inline void moments_tail(const pl_vec_cols *a, int64_t c, const float *x, int64_t k,
                                int64_t rows, int64_t width)
{
    for (int64_t end = k + rows; k < end;) {
        float s = k % B ? a->part[c] : 0.0f, q = k % B ? a->part_sq[c] : 0.0f;
        int64_t stop = block_end(k, end);
        if (k == 0) a->shift[c] = x[c], k++, x += width;
        for (; k < stop; k++, x += width) {
            float e = x[c] - a->shift[c];
            s += e;
            q += e * e;
        }
        if (k % B) {
            a->part[c] = s, a->part_sq[c] = q;
        } else {
            flush(a->sum + c, &s, 1, k);
            flush(a->sq + c, &q, 1, k);
        }
    }
}

static void block_sum(const pl_vec_cols *a, const float *x, int64_t first, int64_t rows,
                      int64_t width)
{
    int64_t c = 0;
    for (; c + 8 * LANES <= width; c += 8 * LANES) sum_8(a, c, x, first, rows, width);
    for (; c + 4 * LANES <= width; c += 4 * LANES) sum_4(a, c, x, first, rows, width);
    for (; c + LANES <= width; c += LANES) sum_1(a, c, x, first, rows, width);
    for (; c < width; c++) sum_tail(a, c, x, first, rows, width);
}

static void block_moments(const pl_vec_cols *a, const float *x, int64_t first, int64_t rows,
                          int64_t width)
{
    int64_t c = 0;
#if LANES == 16
    for (; c + 8 * LANES <= width; c += 8 * LANES) moments_8(a, c, x, first, rows, width);
#endif
    for (; c + 4 * LANES <= width; c += 4 * LANES) moments_4(a, c, x, first, rows, width);
    for (; c + LANES <= width; c += LANES) moments_1(a, c, x, first, rows, width);
    for (; c < width; c++) moments_tail(a, c, x, first, rows, width);
}

extern const pl_vec_blocks PL_VEC_NAME(pl_vec_blocks);
const pl_vec_blocks PL_VEC_NAME(pl_vec_blocks) = {block_sum, block_moments};
