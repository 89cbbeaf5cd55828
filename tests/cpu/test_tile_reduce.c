/* test_tile_reduce.c - the tile's reductions: accurate, and in one order for every split. */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "tests/cpu/tile_prog.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

typedef struct space {
    int rank;
    int64_t dim[PL_FUSED_RANK];
    uint32_t mask;
} space;

static const space spaces[] = {
    {1, {1}, 1},
    {1, {100000}, 1},
    {2, {5000, 64}, 1},
    {2, {5000, 64}, 2},
    {2, {3000, 3}, 1},
    {2, {3000, 3}, 2},
    {2, {16, 30011}, 1},
    {2, {16, 30011}, 2},
    {2, {1024, 1000}, 1},
    {2, {37, 2500}, 2},
    {3, {4, 700, 48}, 2},
    {4, {3, 500, 8, 6}, 10},
    {3, {5, 40, 300}, 5},
    {3, {2, 30000, 3}, 5},
    {4, {2, 3, 4, 5}, 9},
    {5, {3, 1, 7, 1, 33}, 20},
    {6, {2, 3, 2, 3, 2, 3}, 42},
    {3, {70, 1, 90}, 2},
    {2, {100, 100}, 0},
    {3, {9, 0, 4}, 2},
    {2, {0, 5}, 2},
};
enum { N_SPACES = sizeof spaces / sizeof *spaces };

static int64_t elems(const space *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++) n *= s->dim[d];
    return n;
}

/* Position in the result of the element at flat position i. */
static int64_t kept(const space *s, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        if (!((s->mask >> d) & 1u)) at += i % s->dim[d] * step, step *= s->dim[d];
        i /= s->dim[d];
    }
    return at;
}

static int64_t n_kept(const space *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++)
        if (!((s->mask >> d) & 1u)) n *= s->dim[d];
    return n;
}

/* Sums, extremes and moments in double, moments in two passes. */
static void reduce_ref(const space *s, pl_dtype d, const void *x, double *sum, double *hi,
                       double *lo, double *mean, double *var)
{
    int64_t n = elems(s), k = n_kept(s), per = k ? n / k : 0;
    for (int64_t i = 0; i < k; i++)
        sum[i] = var[i] = 0, hi[i] = -(double)INFINITY, lo[i] = (double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double v = pl_elem_get(d, x, i);
        int64_t at = kept(s, i);
        sum[at] += v;
        if (v > hi[at]) hi[at] = v;
        if (v < lo[at]) lo[at] = v;
    }
    for (int64_t i = 0; i < k; i++) mean[i] = sum[i] / (double)per;
    for (int64_t i = 0; i < n; i++) {
        double v = pl_elem_get(d, x, i) - mean[kept(s, i)];
        var[kept(s, i)] += v * v / (double)per;
    }
}

static tile_prog *reduce_prog(const space *s, pl_dtype d)
{
    tile_prog *g = tile_new(s->rank, s->dim, 0);
    int x = tile_ld(g, d, 0);
    tile_st_reduce(g, PL_REDUCE_SUM, x, s->mask);
    tile_st_reduce(g, PL_REDUCE_MAX, x, s->mask);
    tile_st_reduce(g, PL_REDUCE_MIN, x, s->mask);
    if (pl_dtype_is_float(d)) tile_st_reduce(g, PL_REDUCE_MOMENTS, x, s->mask);
    return g;
}

static bool check_space(const space *s, pl_dtype d, double offset)
{
    int64_t n = elems(s), k = n_kept(s);
    uint64_t seed = 4;
    void *x = tile_buf(n + 1), *out[5];
    double *ref[5];
    for (int i = 0; i < 5; i++) out[i] = tile_buf(k + 1), ref[i] = tile_buf(k + 1);
    for (int64_t i = 0; i < n; i++) pl_elem_set(d, x, i, pl_test_noise(&seed) * 3 + offset);
    reduce_ref(s, d, x, ref[0], ref[1], ref[2], ref[3], ref[4]);
    tile_prog *g = reduce_prog(s, d);
    bool ok = tile_run(g, (const void *[]){x}, out);
    double eps = d == PL_F64 ? 1e-13 : d == PL_F32 ? 1.3e-7 : d == PL_F16 ? 1e-3 : 8e-3;
    for (int r = 0; ok && r < (pl_dtype_is_float(d) ? 5 : 3); r++)
        for (int64_t i = 0; ok && i < k; i++) {
            double got = pl_elem_get(d, out[r], i), want = ref[r][i];
            if (n == 0 && r == 1 && d == PL_I32) want = INT32_MIN;
            if (n == 0 && r == 2 && d == PL_I32) want = INT32_MAX;
            /* f32 adds up in f32 inside blocks of columns: the error is of the terms' size */
            double terms = d == PL_F32 && k ? 2 * (offset + 3) * (r ? 1.0 : (double)(n / k)) : 0;
            double scale = r == 4             ? fabs(want) * 20 + offset * offset * 1e-13
                           : r == 0 || r == 3 ? fabs(want) * 2 + 1e-7 + terms
                                              : fabs(want);
            if (n == 0 && r > 2)
                ok = got != got;
            else
                ok = got == want || fabs(got - want) <= eps * scale;
            if (!ok)
                pl_test_fail(__FILE__, __LINE__,
                             "%s rank %d mask %u result %d [%lld]: %.9g, wanted %.9g",
                             pl_dtype_name(d), s->rank, s->mask, r, (long long)i, got, want);
        }
    pl_sys_free(g), pl_sys_free(x);
    for (int i = 0; i < 5; i++) pl_sys_free(out[i]), pl_sys_free(ref[i]);
    return ok;
}

TEST(tile_reductions_are_accurate)
{
    for (int i = 0; i < N_SPACES; i++) {
        CHECK(check_space(&spaces[i], PL_F32, 0.5));
        CHECK(check_space(&spaces[i], PL_F32, 1000.0));
        CHECK(check_space(&spaces[i], PL_F64, 10.0));
        if (elems(&spaces[i]) < 50000) CHECK(check_space(&spaces[i], PL_BF16, 0.5));
        CHECK(check_space(&spaces[i], PL_I32, 10.0));
    }
}

/* Every split, thread count and instruction set gives one result. */
TEST(tile_reductions_have_one_order)
{
    int threads = pl_threads_count();

    for (int i = 0; i < N_SPACES; i++) {
        const space *s = &spaces[i];
        int64_t n = elems(s), k = n_kept(s);
        uint64_t seed = 5;
        float *x = tile_buf(n + 1), *want[5], *got[5];
        for (int o = 0; o < 5; o++) want[o] = tile_buf(k + 1), got[o] = tile_buf(k + 1);
        tile_noise(PL_F32, x, n, &seed);
        tile_prog *g = reduce_prog(s, PL_F32);
        pl_threads_set(1);
        CHECK(tile_run(g, (const void *[]){x}, (void **)want));
        for (int v = 0; v < 5; v++) {
            pl_threads_set(v < 2 ? v + 2 : 1);
            if (v >= 2) setenv("PL_CPU_ISA", tile_isas[v - 2], 1);
            CHECK(tile_run(g, (const void *[]){x}, (void **)got));
            for (int o = 0; o < 5; o++) CHECK(tile_same_bits(PL_F32, want[o], got[o], k));
        }
        unsetenv("PL_CPU_ISA");
        /* a long prologue with a broadcast operand in the way of merging; x + 0 * c is x */
        pl_threads_set(2);
        float *c = tile_buf(n + 1);
        tile_prog *h = tile_new(s->rank, s->dim, 0);
        int a = tile_ld(h, PL_F32, 0),
            b = tile_ld(h, PL_F32, s->rank > 1 ? 1u << (s->rank / 2) : 0u);
        for (int r = 0; r < 9; r++)
            a = tile_map2(h, PL_SCALAR_ADD, a,
                          tile_map2(h, PL_SCALAR_MUL, b, tile_imm(h, PL_F32, 0)));
        tile_st_reduce(h, PL_REDUCE_SUM, a, s->mask);
        tile_st_reduce(h, PL_REDUCE_MAX, a, s->mask);
        tile_st_reduce(h, PL_REDUCE_MIN, a, s->mask);
        tile_st_reduce(h, PL_REDUCE_MOMENTS, a, s->mask);
        CHECK(tile_run(h, (const void *[]){x, c}, (void **)got));
        for (int o = 0; o < 5; o++) CHECK(tile_same_bits(PL_F32, want[o], got[o], k));
        pl_sys_free(g), pl_sys_free(h), pl_sys_free(x), pl_sys_free(c);
        for (int o = 0; o < 5; o++) pl_sys_free(want[o]), pl_sys_free(got[o]);
    }
    pl_threads_set(threads);
}

TEST(tile_reductions_ignore_how_dims_are_split)
{
    space a = {4, {6, 20, 25, 48}, 7}, b = {2, {3000, 48}, 1};
    float *x = tile_buf(elems(&a)), *r[5], *q[5];
    uint64_t seed = 6;
    tile_noise(PL_F32, x, elems(&a), &seed);
    for (int o = 0; o < 5; o++) r[o] = tile_buf(48), q[o] = tile_buf(48);
    tile_prog *g = reduce_prog(&a, PL_F32), *h = reduce_prog(&b, PL_F32);
    CHECK(tile_run(g, (const void *[]){x}, (void **)r));
    CHECK(tile_run(h, (const void *[]){x}, (void **)q));
    for (int o = 0; o < 5; o++) CHECK(tile_same_bits(PL_F32, r[o], q[o], 48));
    pl_sys_free(g), pl_sys_free(h), pl_sys_free(x);
    for (int o = 0; o < 5; o++) pl_sys_free(r[o]), pl_sys_free(q[o]);
}

TEST(tile_reductions_of_ten_million_terms_are_accurate)
{
    if (!pl_test_long()) SKIP("long");
    space s = {2, {625000, 16}, 1};
    CHECK(check_space(&s, PL_F32, 100.0));
    s.mask = 3;
    CHECK(check_space(&s, PL_F32, 100.0));
}

TEST(tile_reductions_pass_on_nan_and_infinity)
{
    float x[40], out[4];

    for (int i = 0; i < 40; i++) x[i] = (float)i - 20.0f;
    x[7] = INFINITY;
    tile_prog *g = tile_new(1, (int64_t[]){40}, 0);
    int a = tile_ld(g, PL_F32, 0);
    tile_st_reduce(g, PL_REDUCE_SUM, a, 1), tile_st_reduce(g, PL_REDUCE_MAX, a, 1),
        tile_st_reduce(g, PL_REDUCE_MIN, a, 1);
    void *o[] = {&out[0], &out[1], &out[2]};
    CHECK(tile_run(g, (const void *[]){x}, o));
    CHECK(isinf(out[0]) && isinf(out[1]) && out[2] == -20.0f);

    x[33] = NAN;
    CHECK(tile_run(g, (const void *[]){x}, o));
    CHECK(isnan(out[0]) && isnan(out[1]) && isnan(out[2]));
    pl_sys_free(g);
}
