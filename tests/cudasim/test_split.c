/* test_split.c - products on TF32 units (cuda/matmul/split.h) in the simulator, whose units read
 * TF32 and truncate sums as a GPU's do: every layout, split sums, batches, edges, following
 * operations; and that they are as accurate as f32. */
#include "cuda/matmul/split.h"
#include "plan/cost/cost_card.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct given {
    pl_split_lay a, b;
    int64_t batch, m, n, k;
    bool share_a, share_b, bias, add, relu;
} given;

static float *numbers(int64_t n, uint64_t *seed, bool positive)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);
    if (!p) abort();
    for (int64_t i = 0; i < n; i++) {
        float v = (float)pl_test_noise(seed);
        p[i] = positive ? fabsf(v) : v;
    }
    return p;
}

static double element(const float *p, pl_split_lay lay, int64_t rows, int64_t k, int64_t row,
                      int64_t term)
{
    return (double)(lay == PL_SPLIT_ROWS ? p[row * k + term] : p[term * rows + row]);
}

static pl_split_product product_of(const given *g)
{
    pl_split_product s = {.batch = g->batch, .m = g->m, .n = g->n, .k = g->k, .a = g->a, .b = g->b};
    s.a_ld = g->a == PL_SPLIT_ROWS ? g->k : g->m;
    s.b_ld = g->b == PL_SPLIT_ROWS ? g->k : g->n;
    s.a_step = g->share_a ? 0 : g->m * g->k;
    s.b_step = g->share_b ? 0 : g->n * g->k;
    return s;
}

/* The largest error relative to the sum of the terms' sizes. */
static double error_of(const given *g, pl_split_product s, bool positive)
{
    uint64_t seed = 5;
    float *a = numbers(g->batch * g->m * g->k, &seed, positive),
          *b = numbers(g->batch * g->n * g->k, &seed, positive);
    float *bias = numbers(g->n, &seed, false), *add = numbers(g->batch * g->m * g->n, &seed, false);
    float *y = numbers(g->batch * g->m * g->n, &seed, false);
    void *work = aligned_alloc(64, (pl_split_work(&s) + 127) / 64 * 64);
    pl_split_tail t = {g->bias ? bias : NULL, g->add ? add : NULL, g->relu};
    double worst = 0;
    if (pl_split_run(&s, a, b, &t, y, work) != PL_OK) worst = (double)INFINITY;
    for (int64_t i = 0; i < g->batch * g->m * g->n; i++) {
        int64_t at = i / (g->m * g->n), row = i / g->n % g->m, col = i % g->n;
        double sum = (g->bias ? (double)bias[col] : 0) + (g->add ? (double)add[i] : 0), size = 1e-3;
        for (int64_t q = 0; q < g->k; q++) {
            double v = element(a + at * s.a_step, g->a, g->m, g->k, row, q) *
                       element(b + at * s.b_step, g->b, g->n, g->k, col, q);
            sum += v;
            size += fabs(v);
        }
        if (g->relu && sum < 0) sum = 0;
        worst = fmax(worst, fabs((double)y[i] - sum) / size);
    }
    free(a), free(b), free(bias), free(add), free(y), free(work);
    return worst;
}

TEST(split_products_match_the_definition)
{
    static const struct {
        given g;
        pl_split_tile tile;
        int64_t parts;
    } list[] = {
        {{PL_SPLIT_ROWS, PL_SPLIT_ROWS, 1, 70, 33, 36, .add = true, .relu = true},
         PL_SPLIT_LITTLE,
         1},
        {{PL_SPLIT_ROWS, PL_SPLIT_COLS, 1, 130, 100, 40, .bias = true, .add = true},
         PL_SPLIT_LARGE,
         1},
        {{PL_SPLIT_COLS, PL_SPLIT_ROWS, 1, 68, 63, 36, .relu = true}, PL_SPLIT_LARGE, 1},
        {{PL_SPLIT_COLS, PL_SPLIT_COLS, 1, 60, 72, 45, .bias = true}, PL_SPLIT_NARROW, 1},
        {{PL_SPLIT_ROWS, PL_SPLIT_ROWS, 1, 60, 65, 36}, PL_SPLIT_NARROW, 1},
        {{PL_SPLIT_COLS, PL_SPLIT_COLS, 2, 20, 36, 161, .share_b = true}, PL_SPLIT_LITTLE, 1},
        {{PL_SPLIT_ROWS, PL_SPLIT_COLS, 2, 40, 12, 64, .share_a = true, .add = true},
         PL_SPLIT_LITTLE,
         1},
        {{PL_SPLIT_COLS, PL_SPLIT_ROWS, 2, 8, 5, 100, .bias = true, .add = true},
         PL_SPLIT_LITTLE,
         3},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        pl_split_product s = product_of(&list[i].g);
        CHECK(pl_split_plan(&s));
        s.choice.tile = list[i].tile;
        s.choice.parts = list[i].parts;
        double e = error_of(&list[i].g, s, false);
        CHECK_MSG(e < 6e-7, "product %zu: %g", i, e);
    }
}

/* Long sums, split and whole, of terms that do not cancel: truncated sums drift. */
TEST(split_sums_are_as_exact_as_f32)
{
    given g = {PL_SPLIT_COLS, PL_SPLIT_COLS, 1, 8, 12, 1030, .bias = true, .add = true};
    pl_split_product s = product_of(&g);
    CHECK(pl_split_plan(&s));
    CHECK_MSG(s.choice.tile == PL_SPLIT_LITTLE && s.choice.parts > 1, "tile %d, %lld parts",
              (int)s.choice.tile, (long long)s.choice.parts);

    double parts = error_of(&g, s, true);
    s.choice.parts = 1;
    double whole = error_of(&g, s, true);
    CHECK_MSG(parts < 5e-7 && whole < 5e-7, "%g in parts, %g whole", parts, whole);
}

TEST(split_refuses_what_it_cannot_read)
{
    given odd = {PL_SPLIT_ROWS, PL_SPLIT_ROWS, 1, 64, 64, 66},
          side = {PL_SPLIT_COLS, PL_SPLIT_COLS, 1, 63, 64, 66};
    pl_split_product s = product_of(&odd);
    CHECK(!pl_split_plan(&s));
    s = product_of(&side);
    CHECK(!pl_split_plan(&s));
}

/* A NaN stays a NaN in its own row, whatever its bits are. */
TEST(split_products_keep_nan_in_their_row)
{
    enum { SIDE = 16, TERMS = 32 };
    static _Alignas(16) float a[SIDE * TERMS], b[SIDE * TERMS], y[SIDE * SIDE];
    pl_split_product s = {
        .batch = 1, .m = SIDE, .n = SIDE, .k = TERMS, .a_ld = TERMS, .b_ld = TERMS};
    pl_split_tail none = {NULL, NULL, false};
    const uint32_t bits[4] = {0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0x7f800000u};
    for (int i = 0; i < SIDE * TERMS; i++) a[i] = b[i] = 1.5f;
    for (int i = 0; i < 4; i++) memcpy(&a[(3 * i + 1) * TERMS + 5 * i], &bits[i], 4);

    CHECK(pl_split_plan(&s));
    CHECK_OK(pl_split_run(&s, a, b, &none, y, NULL));
    for (int i = 0; i < SIDE * SIDE; i++) {
        bool bad = i / SIDE % 3 == 1 && i / SIDE < 12;
        CHECK_MSG(bad ? !isfinite(y[i]) : y[i] == 2.25f * TERMS, "row %d: %g", i / SIDE,
                  (double)y[i]);
    }
}

/* Planning for a GPU that is not in this machine knows how many parts a product will have. */
TEST(split_scratch_is_what_a_profile_expects)
{
    pl_card card = *pl_card_find("h200");
    uint64_t seed = 3;
    int with_parts = 0;
    card.sms = pl_cuda_props_get()->sms;
    for (int i = 0; i < 300; i++) {
        given g = {.batch = i % 3 == 0 ? 4 : 1};
        int64_t *size[3] = {&g.m, &g.n, &g.k};
        for (int d = 0; d < 3; d++) *size[d] = 4 * (int64_t)exp(1 + 7 * fabs(pl_test_noise(&seed)));
        pl_split_product s = product_of(&g);
        if (!pl_split_plan(&s)) continue;
        pl_cost c = {2.0 * (double)(g.batch * g.m * g.n * g.k),
                     0,
                     PL_WORK_PRODUCT,
                     (double)g.m,
                     (double)g.n,
                     (double)g.k};
        size_t work = pl_split_work(&s);
        with_parts += work > 0;
        CHECK_MSG(pl_card_workspace(&card, &c, PL_F32, PL_CARD_SPLIT) == (work + 255) / 256 * 256,
                  "%lld of %lld x %lld x %lld: %zu bytes in %lld parts, not %llu",
                  (long long)g.batch, (long long)g.m, (long long)g.n, (long long)g.k, work,
                  (long long)s.choice.parts,
                  (unsigned long long)pl_card_workspace(&card, &c, PL_F32, PL_CARD_SPLIT));
    }

    CHECK_MSG(with_parts > 20, "%d with parts", with_parts);
}
