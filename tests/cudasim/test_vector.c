/* test_vector.c - matrices times vectors (cuda/matmul/vector.h) beyond the cases of
 * vector_cases.h: plans respect the limits of kernels and grids for every shape, a profile knows
 * their workspace, and numbers that are not finite stay in their own output. */
#include "base/dtype.h"
#include "cuda/matmul/vector.h"
#include "plan/cost/cost_card.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

static int64_t some(uint64_t *seed, double most)
{
    return (int64_t)exp(log(most) * fabs(pl_test_noise(seed)));
}

static bool is_power(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static pl_vector_product random_product(uint64_t *seed, int i)
{
    static const pl_dtype types[3] = {PL_F32, PL_BF16, PL_F16};
    pl_vector_product v = {
        .dtype = types[i % 3], .batch = i % 5 == 0 ? some(seed, 100) : 1, .columns = i % 2};
    v.n = some(seed, 1e5);
    v.k = some(seed, 1e6);
    if (i % 7 < 4) v.n = (v.n + 7) / 8 * 8, v.k = (v.k + 7) / 8 * 8;
    return v;
}

TEST(vector_plans_fit_kernels_and_grids)
{
    uint64_t seed = 8;
    int in_parts = 0;
    for (int i = 0; i < 4000; i++) {
        pl_vector_product v = random_product(&seed, i);
        CHECK(pl_vector_plan(&v));
        in_parts += v.parts > 1;
        int64_t bytes = (int64_t)pl_dtype_bytes(v.dtype);
        int64_t wide = v.across * v.pack, groups = v.block / v.across,
                more = v.block / wide < groups / 2 ? v.block / wide : groups / 2;
        bool good = v.across >= 1 && v.across <= v.block && v.block % 32 == 0 && v.block >= 32 &&
                    v.block <= 1024;
        good &= v.columns || (is_power(v.across) && is_power(v.block));
        good &= v.parts >= 1 && v.parts <= 128 && v.each % 8 == 0 && (v.parts - 1) * v.each < v.k &&
                v.parts * v.each >= v.k;
        good &= v.pack == 1 || ((v.columns ? v.n : v.k) % v.pack == 0 && v.pack * bytes == 16);
        /* Sums of groups in shared memory, and their partial sums: at most the default size of a
         * block. */
        good &= !v.columns || (groups + more) * wide * 4 <= 48 * 1024;
        CHECK_MSG(good, "%s %lld x %lld: across %d of %d, %lld parts of %lld",
                  v.columns ? "columns" : "rows", (long long)v.n, (long long)v.k, v.across, v.block,
                  (long long)v.parts, (long long)v.each);
    }

    CHECK_MSG(in_parts > 100, "%d in parts", in_parts);
}

TEST(vector_scratch_is_what_a_profile_expects)
{
    uint64_t seed = 21;
    const pl_card *card = pl_card_find("h200");
    int in_parts = 0;
    for (int i = 0; i < 2000; i++) {
        pl_vector_product v = random_product(&seed, i);
        if (i % 11 == 0) v.n = 1;
        CHECK(pl_vector_plan(&v));
        bool left = i % 4 < 2;
        pl_cost c = {2.0 * (double)(v.batch * v.n * v.k),
                     0,
                     PL_WORK_PRODUCT,
                     left ? (double)v.n : 1,
                     left ? 1 : (double)v.n,
                     (double)v.k};
        uint64_t work = (pl_vector_work(&v) + 255) / 256 * 256;
        uint64_t planned = pl_card_workspace(card, &c, v.dtype, PL_CARD_SPLIT);
        in_parts += work > 0;
        bool fits = v.columns || v.n == 1 ? planned == work
                                          : planned >= work && planned <= work + (64 << 10);
        CHECK_MSG(fits, "%s, %lld of %lld x %lld: %llu bytes, not %llu",
                  v.columns ? "columns" : "rows", (long long)v.batch, (long long)v.n,
                  (long long)v.k, (unsigned long long)work, (unsigned long long)planned);
    }

    CHECK_MSG(in_parts > 50, "%d in parts", in_parts);
}

/* A matrix times a vector takes the time of its bytes, and no more for tiles that it does not
 * fill. */
TEST(vector_products_are_expected_to_take_their_bytes)
{
    const pl_card *card = pl_card_find("h200");
    pl_cost c = {2.0 * 8192 * 8192, 8192.0 * 8192 * 4, PL_WORK_PRODUCT, 8192, 1, 8192};
    double move = 1e9 * c.bytes / (PL_CARD_MOVES * card->bandwidth);
    for (int way = 0; way < 2; way++) {
        double ns = pl_card_ns(card, &c, PL_F32, PL_CARD_SPLIT) - pl_card_fixed_ns(card, &c);
        CHECK_MSG(fabs(ns / move - 1) < 0.01, "%g ns, %g for the bytes", ns, move);
        c.m = 1, c.n = 8192;
    }
}

/* Loads beyond the end read the last terms again: none of them may enter a sum. */
TEST(vector_products_keep_nan_in_their_output)
{
    enum { N = 40, MOST = 300 };
    static float a[N * MOST], x[MOST], y[N];
    for (int k = 1; k <= MOST; k += k < 20 ? 1 : 37)
        for (int columns = 0; columns < 2; columns++) {
            pl_vector_product v = {.dtype = PL_F32, .batch = 1, .n = N, .k = k, .columns = columns};
            CHECK(pl_vector_plan(&v) && pl_vector_work(&v) == 0);
            for (int i = 0; i < N * k; i++) a[i] = 1;
            for (int q = 0; q < k; q++) x[q] = 2;
            a[columns ? (k - 1) * N + 3 : 3 * k + k - 1] = INFINITY;
            a[columns ? (k - 1) * N + 17 : 17 * k + k - 1] = NAN;
            CHECK_OK(pl_vector_run(&v, a, x, NULL, y, NULL));
            for (int i = 0; i < N; i++) {
                bool good = i == 3 ? isinf(y[i]) : i == 17 ? isnan(y[i]) : y[i] == 2 * (float)k;
                CHECK_MSG(good, "%d terms, %s, output %d: %g", k, columns ? "columns" : "rows", i,
                          (double)y[i]);
            }
        }
}
