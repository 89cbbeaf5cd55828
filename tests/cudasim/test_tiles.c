/* test_tiles.c - which of the library's algorithms a product uses where none is timed
 * (cuda/matmul/matmul_tiles.h). */
#include "base/dtype.h"
#include "cuda/matmul/matmul_tiles.h"
#include "ops/core/attr.h"
#include "tests/lib/test.h"

typedef struct asked {
    int64_t m, n, k;
    pl_lt_tile tile[4];
    int want;
} asked;

/* Answers of the library on an H200; the wanted ones are faster there. */
TEST(tiles_that_do_not_fit_the_product_are_skipped)
{
    static const asked list[] = {
        /* padded */
        {2, 1024, 256, {{8, 64, 0.97f}, {64, 8, 0.12f}, {24, 64, 0.33f}, {40, 64, 0.2f}}, 1},
        {2, 1280, 1280, {{16, 64, 0.61f}, {64, 8, 0.15f}, {24, 64, 0.41f}, {40, 64, 0.24f}}, 1},
        {32, 1024, 256, {{64, 8, 0.48f}, {64, 16, 0.24f}, {8, 64, 0.97f}, {24, 64, 0.33f}}, 0},
        /* odd */
        {8192,
         320,
         320,
         {{168, 128, 0.97f}, {80, 128, 1.94f}, {160, 64, 1.94f}, {176, 128, 0.97f}},
         1},
        {8192,
         320,
         1280,
         {{168, 128, 0.97f}, {176, 128, 0.97f}, {80, 128, 1.94f}, {160, 64, 1.94f}},
         2},
        {8192,
         336,
         1280,
         {{168, 128, 0.97f}, {176, 128, 0.97f}, {80, 128, 1.94f}, {112, 128, 1.94f}},
         0},
        {8190,
         320,
         320,
         {{168, 128, 0.97f}, {80, 128, 1.94f}, {160, 64, 1.94f}, {176, 128, 0.97f}},
         0},
        /* short */
        {8192,
         2560,
         320,
         {{256, 128, 4.85f}, {128, 256, 4.85f}, {128, 160, 7.88f}, {128, 128, 9.7f}},
         3},
        {2048,
         5120,
         640,
         {{128, 160, 3.94f}, {168, 128, 3.76f}, {128, 128, 4.85f}, {176, 128, 3.64f}},
         2},
        {8192,
         2560,
         1280,
         {{256, 128, 4.85f}, {128, 256, 4.85f}, {128, 160, 7.88f}, {128, 128, 9.7f}},
         0},
        {8192,
         768,
         256,
         {{192, 128, 1.94f}, {128, 192, 1.95f}, {256, 96, 1.95f}, {128, 128, 2.91f}},
         0},
        /* nothing is known about the first, or about any other */
        {2, 1024, 256, {{0, 0, 0.97f}, {64, 8, 0.12f}, {24, 64, 0.33f}, {40, 64, 0.2f}}, 0},
        {8192, 320, 320, {{168, 128, 0.97f}, {0, 0, 1.94f}, {0, 0, 1.94f}, {0, 0, 0.97f}}, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        pl_product p = {
            .dtype = PL_BF16, .batch = 1, .m = list[i].m, .n = list[i].n, .k = list[i].k};
        int got = pl_tiles_choose(&p, list[i].tile, 4);
        CHECK_MSG(got == list[i].want, "%lld x %lld x %lld: answer %d, not %d", (long long)p.m,
                  (long long)p.n, (long long)p.k, got, list[i].want);
        CHECK_INT(pl_tiles_choose(&p, list[i].tile, 1), 0);
    }
}

/* Which algorithm a product of the type runs, through the kernel that a GPU would use. */
static void check_algo(pl_dtype dtype, int want)
{
    enum { M = 2, N = 128, K = 16 };
    static _Alignas(64) uint16_t a[M * K * 2], b[N * K * 2], y[M * N * 2];
    pl_type in_type[2] = {PL_TYPE(dtype, M, K), PL_TYPE(dtype, N, K)},
            out_type[1] = {PL_TYPE(dtype, M, N)};
    const void *in[2] = {a, b};
    void *out[1] = {y}, *prep = NULL;
    pl_matmul_attr attr = {.tb = true};
    size_t bytes = 0;
    const pl_kernel *k = pl_cuda_kernels_of("matmul");
    pl_call c = {.in_type = in_type,
                 .out_type = out_type,
                 .in = in,
                 .out = out,
                 .attr = &attr,
                 .n_in = 2,
                 .n_out = 1};
    while (k && !k->accepts(&c)) k++;
    CHECK_OK(k->prepare(&c, &prep, &bytes));
    c.prep = prep;
    CHECK_OK(k->run(&c));
    k->release(prep);
    CHECK_INT(pl_sim_lt_now.last_algo, want);
}

TEST(tiles_are_chosen_by_shape_in_16_bits_only)
{
    pl_sim_lt was = pl_sim_lt_now;
    pl_sim_lt_now.tile[0] = CUBLASLT_MATMUL_TILE_8x64;
    pl_sim_lt_now.tile[1] = CUBLASLT_MATMUL_TILE_24x64;
    pl_sim_lt_now.tile[2] = CUBLASLT_MATMUL_TILE_64x8;
    check_algo(PL_BF16, 2);
    check_algo(PL_F16, 2);
    check_algo(PL_F32, 0);
    pl_sim_lt_now = was;
}
