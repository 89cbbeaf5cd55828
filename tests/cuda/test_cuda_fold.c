/* test_cuda_fold.c - the kernel that folds partial results, where a block has several sets of
 * threads. Only sums of large tensors reach this case, so the kernel runs alone, on partial
 * results of whole numbers, whose sums are exact. */
#include "base/arena.h"
#include "base/sys.h"
#include "plimsoll_ops.h"
#include "tests/cuda/cuda_group_lab.h"
#include "tests/cudasim/sim.h"
#include "tests/lib/test.h"

#include <string.h>

enum { PIXELS = 281600, CHANNELS = 64, STRIP = 8 };

/* Channels' sums of each picture, two kinds, and of all pictures. */
static void three_sums(pl_graph *g, int64_t images)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, images, PIXELS, CHANNELS));
    pl_output(g, "each", pl_sum(g, pl_square(g, x), PL_AXIS(1), false));
    pl_output(g, "more", pl_sum(g, pl_abs(g, x), PL_AXIS(1), false));
    pl_output(g, "all", pl_sum(g, pl_exp(g, x), PL_AXIS(0) | PL_AXIS(1), false));
}

/* Partial result r of a column, of n: strips of columns, each with all its rows. */
static float *partial(float *of, int64_t n, int64_t r, int64_t column)
{
    return &of[(column / STRIP * n + r) * STRIP + column % STRIP];
}

/* Number of results [sets][CHANNELS], each of n / sets partial results, that differ from the
 * sums. */
static int count_wrong(float *of, int64_t n, const float *result, int64_t sets)
{
    int wrong = 0;
    for (int64_t c = 0; c < CHANNELS; c++)
        for (int64_t i = 0; i < sets; i++) {
            double sum = 0;
            for (int64_t r = 0; r < n / sets; r++)
                sum += (double)*partial(of, n, i * (n / sets) + r, c);
            wrong += (double)result[i * CHANNELS + c] != sum;
        }
    return wrong;
}

static void check_fold(const pl_code *code, text_shop *shop, int64_t images)
{
    int64_t n = (int64_t)code->work_bytes / 3 / (4 * CHANNELS);
    pl_code fold = *code;
    fold.kernel = &code->kernel[1];
    fold.n_kernels = 1;
    float *work = pl_sys_alloc(code->work_bytes),
          *out = pl_sys_alloc((size_t)(4 * (2 * images + 1) * CHANNELS));
    float *more = out + images * CHANNELS, *all = more + images * CHANNELS;
    CHECK_INT(n % images, 0);
    for (int64_t i = 0; i < 3 * n * CHANNELS; i++) work[i] = (float)(i * 7919 % 101 - 40);
    for (int reverse = 0; reverse < 2; reverse++) {
        pl_sim_reverse(reverse);
        CHECK(text_shop_run(shop, &fold, NULL, (void *const[]){out, more, all}, work));
        pl_sim_reverse(false);
        CHECK_INT(count_wrong(work, n, out, images), 0);
        CHECK_INT(count_wrong(work + n * CHANNELS, n, more, images), 0);
        CHECK_INT(count_wrong(work + 2 * n * CHANNELS, n, all, 1), 0);
    }
    pl_sys_free(work);
    pl_sys_free(out);
}

/* The sum with the most partial results sets the size of blocks. For other sums a block has
 * several sets, or idle threads. */
static void check_images(int64_t images, const char *sets)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_arena a = PL_ARENA_INIT;
    text_shop *shop = text_shop_new();
    pl_code code;
    three_sums(g, images);
    CHECK(group_code(g, &a, &code));
    CHECK_INT(code.n_kernels, 2);
    CHECK(strstr(code.kernel[1].text, sets) != NULL);
    CHECK(code.kernel[1].grid <= 132);
    text_shop_add(shop, &code);
    if (text_shop_build(shop)) check_fold(&code, shop, images);
    text_shop_free(shop);
    pl_arena_release(&a);
    pl_graph_free(g);
    pl_store_free(store);
}

TEST(cuda_fold_of_several_thread_sets_is_exact)
{
    check_images(20, "SETS = 2");
    check_images(3, "SETS = 1");
}
