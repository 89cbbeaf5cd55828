/* tile_block.c - vertical sums and moments of f32 in blocks of rows (vec_block.isa.c): their
 * accumulators, and the fold, which processes columns in vectors because neighbouring columns have
 * the same counts.
 *
 * Accumulators: planes of n_acc f64 totals (sums; for moments also squares), then f32 planes: sums
 * and squares of the incomplete block, and the shift.
 */
#include "cpu/tile/tile_reduce.h"

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static pl_vec_cols cols_at(const pl_red *r, pl_acc *acc, int64_t i)
{
    bool moments = r->fn == PL_REDUCE_MOMENTS;
    double *total = &acc->f;
    float *f = (float *)(void *)(total + r->n_acc * (moments ? 2 : 1));
    return (pl_vec_cols){.sum = total + i,
                         .sq = moments ? total + r->n_acc + i : NULL,
                         .part = f + i,
                         .part_sq = moments ? f + r->n_acc + i : NULL,
                         .shift = moments ? f + 2 * r->n_acc + i : NULL};
}

void pl_red_take_blocks(const pl_red *r, const pl_vec *v, pl_acc *acc, const float *x, int64_t at,
                        int64_t n)
{
    int64_t width = r->groups * r->inner;
    int64_t o = at / r->period, rest = at % r->period, p = rest / r->unit;
    int64_t q = rest - p * r->unit, row = q / width, c = q % width;
    pl_vec_block fn = r->fn == PL_REDUCE_MOMENTS ? v->blocks->moments : v->blocks->sum;
    for (int64_t first = (o * r->parts + p) * width; n > 0; c = 0) {
        bool whole = c == 0 && n >= width;
        int64_t rows = whole ? n / width : 1, m = whole ? width : min64(n, width - c);
        pl_vec_cols a = cols_at(r, acc, first + c);
        fn(&a, x, row, rows, m);
        row += rows;
        n -= rows * m;
        x += rows * m;
    }
}

/* Adds a total and its incomplete block. */
static double sum_of(double total, float part, int64_t n)
{
    if (n % PL_VEC_BLOCK_ROWS == 0) return total;
    return n < PL_VEC_BLOCK_ROWS ? (double)part : total + (double)part;
}

pl_partial pl_red_block_at(const pl_red *r, const pl_acc *acc, int64_t i, int64_t n)
{
    const double *total = &acc->f;
    if (r->fn != PL_REDUCE_MOMENTS) {
        const float *part = (const float *)(const void *)(total + r->n_acc);
        return (pl_partial){{.f = sum_of(total[i], part[i], n)}, 0.0, (double)n};
    }
    const float *part = (const float *)(const void *)(total + 2 * r->n_acc);
    const float *sq = part + r->n_acc, *shift = sq + r->n_acc;
    return pl_red_moments_of((double)shift[i], sum_of(total[i], part[i], n),
                             sum_of(total[r->n_acc + i], sq[i], n), (double)n);
}

enum { SOME = 64 };

/* Reads the sums of m neighbouring accumulators, n rows each. */
static void read_sums(const double *total, const float *part, int64_t m, int64_t n, double *to)
{
    if (n % PL_VEC_BLOCK_ROWS == 0)
        for (int64_t i = 0; i < m; i++) to[i] = total[i];
    else if (n < PL_VEC_BLOCK_ROWS)
        for (int64_t i = 0; i < m; i++) to[i] = (double)part[i];
    else
        for (int64_t i = 0; i < m; i++) to[i] = total[i] + (double)part[i];
}

static void read_some(const pl_red *r, const pl_acc *acc, int64_t at, int64_t m, int64_t rows,
                      double *mean, double *m2)
{
    const double *total = &acc->f;
    bool moments = r->fn == PL_REDUCE_MOMENTS;
    const float *part = (const float *)(const void *)(total + r->n_acc * (moments ? 2 : 1));
    read_sums(total + at, part + at, m, rows, mean);
    if (!moments) return;
    const float *shift = part + 2 * r->n_acc + at;
    double n = (double)rows;
    read_sums(total + r->n_acc + at, part + r->n_acc + at, m, rows, m2);
    for (int64_t i = 0; i < m; i++) {
        pl_partial p = pl_red_moments_of((double)shift[i], mean[i], m2[i], n);
        mean[i] = p.v.f;
        m2[i] = p.m2;
    }
}

/* Chan's formula on columns that all have n and rows elements. */
static void merge_some(bool moments, double *mean, double *m2, double n, const double *b_mean,
                       const double *b_m2, double rows, int64_t m)
{
    if (!moments) {
        for (int64_t i = 0; i < m; i++) mean[i] += b_mean[i];
        return;
    }
    double share = rows / (n + rows), weight = n * share;
    for (int64_t i = 0; i < m; i++) {
        double delta = b_mean[i] - mean[i];
        mean[i] += delta * share;
        m2[i] += b_m2[i] + delta * delta * weight;
    }
}

static void put_some(const pl_red *r, void *out, int64_t k, const double *x, int64_t m)
{
    float *to = out;
    if (out && r->dtype == PL_F32) {
        for (int64_t i = 0; i < m; i++) to[k + i] = (float)x[i];
        return;
    }
    for (int64_t i = 0; i < m; i++) pl_red_put(r->cls, r->dtype, out, k + i, (pl_acc){.f = x[i]});
}

/* Computes the results of m neighbouring columns whose first accumulators start at `at`. */
static void fold_some(const pl_red *r, const pl_acc *acc, int64_t at, int64_t m, int64_t k,
                      void *out, void *out2)
{
    double mean[SOME], m2[SOME], b_mean[SOME], b_m2[SOME], n = 0.0;
    bool moments = r->fn == PL_REDUCE_MOMENTS;
    for (int64_t p = 0; p < r->parts; p++)
        for (int64_t j = 0; j < r->groups; j++, at += r->inner) {
            int64_t rows = pl_red_rows_behind(r, p, j);
            if (rows == 0) continue;
            bool first = n == 0.0;
            read_some(r, acc, at, m, rows, first ? mean : b_mean, first ? m2 : b_m2);
            if (!first) merge_some(moments, mean, m2, n, b_mean, b_m2, (double)rows, m);
            n += (double)rows;
        }
    put_some(r, out, k, mean, m);
    if (!moments) return;
    for (int64_t i = 0; i < m; i++) m2[i] /= n;
    put_some(r, out2, k, m2, m);
}

void pl_red_fold_blocks(const pl_red *r, const pl_acc *acc, int64_t lo, int64_t hi, void *out,
                        void *out2)
{
    int64_t width = r->parts * r->groups * r->inner;
    for (int64_t k = lo; k < hi;) {
        int64_t o = k / r->inner, i = k % r->inner;
        int64_t m = min64(SOME, min64(hi - k, r->inner - i));
        fold_some(r, acc, o * width + i, m, k, out, out2);
        k += m;
    }
}
