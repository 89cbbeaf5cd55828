/* test_cuda_rows.c - generated kernels of rows that also sum columns: how many threads, how much
 * memory, how many passes, and the bits of single ops. Short rows: test_cuda_group.c. */
#include "pass/pass.h"
#include "plimsoll_ops.h"
#include "tests/cuda/cuda_group_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_val f32(pl_graph *g, pl_val x)
{
    return pl_cast(g, x, PL_F32);
}

/* Rows whose values are used, and sums of their columns. */
static void rows_and_columns(pl_graph *g, int64_t n, int64_t c)
{
    pl_val p = pl_softmax(g, pl_input(g, "x", PL_TYPE(PL_F32, n, c)), -1);
    pl_output(g, "p", p);
    pl_output(g, "sum", pl_sum(g, p, PL_AXIS(0), false));
}

/* One sum per row. */
static void centred(pl_graph *g, int64_t n, int64_t c)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, n, c));
    pl_val y = pl_sub(g, x, pl_scale(g, pl_sum(g, x, PL_AXIS(1), true), 1.0 / (double)c));
    pl_output(g, "y", y);
    pl_output(g, "sum", pl_sum(g, y, PL_AXIS(0), false));
}

/* A row of several warps: the CPU's results, and the same bits as by single ops. */
TEST(cuda_rows_of_several_warps_match_the_cpu)
{
    if (!pl_test_long()) SKIP("long");
    static const struct {
        void (*make)(pl_graph *g, int64_t n, int64_t c);
        int64_t n, c;
    } want[] = {
        {centred, 8450, 1028}, {rows_and_columns, 8450, 1280}, {rows_and_columns, 8450, 5000}};
    for (int i = 0; i < (pl_test_long() ? 3 : 1); i++) {
        group_job j = {.store = pl_store_new(), .name = "rows"};
        text_shop *shop = text_shop_new();
        j.g = pl_graph_new(j.store);
        want[i].make(j.g, want[i].n, want[i].c);
        CHECK(group_job_make(&j, shop));
        if (text_shop_build(shop)) CHECK(group_job_check(&j, shop));
        text_shop_free(shop);
        group_job_free(&j);
    }
}

/* A group reads each input once: the same pass sums the columns of rows that are used; for long
 * rows only where there are many. */
TEST(cuda_rows_sum_columns_while_rows_are_read)
{
    CHECK_INT(group_kernels(rows_and_columns, 300, 28), 3);
    CHECK_INT(group_kernels(rows_and_columns, 300, 32), 2);
    CHECK_INT(group_kernels(rows_and_columns, 300, 256), 2);
    CHECK_INT(group_kernels(rows_and_columns, 300, 2048), 3);
    CHECK_INT(group_kernels(rows_and_columns, 9000, 2048), 2);
    CHECK_INT(group_kernels(rows_and_columns, 9000, 8196), 3);
}

/* Rows that also sum columns: the next rows are prefetched, with every operand that changes per
 * row; operands that all rows share are read before. */
TEST(cuda_rows_prefetch_the_next_rows)
{
    static const struct {
        int64_t n;
        /* of two operands: rows before the walk and in it; groups that may be left */
        int sends, wait;
    } want[] = {{256, 6, 1}, {512, 5, 1}, {768, 4, 0}};
    for (int i = 0; i < 3; i++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        char *text;
        pl_val p = pl_softmax(g, pl_input(g, "x", PL_TYPE(PL_F32, 3000, want[i].n)), -1);
        pl_val q = pl_mul(g, p, pl_input(g, "y", PL_TYPE(PL_F32, 3000, want[i].n)));
        pl_output(g, "q", pl_mul(g, q, pl_input(g, "w", PL_TYPE(PL_F32, want[i].n))));
        pl_output(g, "sum", pl_sum(g, q, PL_AXIS(0), false));
        group_text_alone(g, &text);
        CHECK_INT(text_count(text, "p_send<16>("), want[i].sends);
        CHECK_INT(text_count(text, want[i].wait ? "p_came<1>()" : "p_came<0>()"), 1);
        const char *walk = strstr(text, "while (r_ "), *w = strstr(text, "P2 + (at");
        CHECK(walk && w && w < walk && !strstr(walk, "P2 + (at"));
        free(text);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* Rows of every length that also sum columns: one pass, whole warps, and no more shared memory
 * than every GPU has. */
TEST(cuda_rows_of_every_length_match_the_cpu)
{
    static const int64_t lengths[] = {32,   36,   48,   64,   88,   96,   124,  128,  132,  192,
                                      320,  384,  500,  576,  768,  1000, 1024, 1028, 1152, 1280,
                                      1408, 1536, 2048, 2560, 3072, 4096, 5000, 6144, 8192};
    static const pl_dtype types[] = {PL_F32, PL_F16};
    bool large = false, small = false;

    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        int64_t n = lengths[i / 2], rows = (128 << 20) / n;
        pl_arena a = PL_ARENA_INIT;
        pl_code code;
        pl_val x = pl_input(g, "x", PL_TYPE(types[i % 2], rows, n)),
               dy = pl_input(g, "dy", PL_TYPE(types[i % 2], rows, n));
        pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, n)), mean, var, grad[2];
        pl_moments(g, x, PL_AXIS(-1), true, &mean, &var);
        pl_val z = pl_mul(g, pl_sub(g, f32(g, x), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
        pl_grad(g, pl_sum(g, pl_mul(g, pl_mul(g, z, w), f32(g, dy)), PL_AXES_ALL, false),
                (pl_val[]){x, w}, 2, grad);
        pl_output(g, "dx", grad[0]);
        pl_output(g, "dw", grad[1]);
        CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.open = true}));
        CHECK(group_code(g, &a, &code));
        CHECK_MSG(code.n_kernels == 2, "rows of %lld: %u kernels", (long long)n, code.n_kernels);
        const pl_code_kernel *k = &code.kernel[0];
        const char *own = strstr(k->text, "unsigned char sm_["),
                   *meets = strstr(k->text, "p_meet<T>(lane_)");
        int bytes = own ? atoi(own + strlen("unsigned char sm_[")) : 0;
        large |= k->shared > 0;
        small |= !k->shared;
        CHECK_MSG(k->block_x % 32 == 0 && k->block_x <= 256, "rows of %lld: %u threads",
                  (long long)n, k->block_x);
        CHECK_MSG((k->shared > 0) == !own && bytes <= 48 << 10 && k->shared <= 64 << 10,
                  "rows of %lld: %d and %u bytes", (long long)n, bytes, k->shared);
        CHECK_MSG(!meets || n > 1024, "rows of %lld meet", (long long)n);
        int vec = 0, threads = 0, steps = 0;
        const char *sizes = strstr(k->text, "enum { V = ");
        CHECK(sizes &&
              sscanf(sizes, "enum { V = %d, T = %d, STEPS = %d", &vec, &threads, &steps) == 3);
        /* two rows of two operands for every lane, whether the lane has rows or only fills a
         * warp */
        if (n < 128)
            CHECK_INT(bytes, 4 * (int)k->block_x * steps * vec * (int)pl_dtype_bytes(types[i % 2]));
        CHECK_MSG((n == 96) <= (strstr(k->text, "end_ = lane_ < 10 ? hi_ : lo_;") != NULL),
                  "lanes that fill a warp have rows");
        CHECK_MSG(!strstr(k->text, "float k0[STEPS][V]"),
                  "rows of %lld keep conversions beside sums", (long long)n);
        size_t cubin = 0;
        if (nvrtc_here() && (pl_test_long() || n == 2048 || n == 500))
            CHECK_MSG(nvrtc_accepts(k->text, i % 2 ? 75 : 90, &cubin), "rows of %lld",
                      (long long)n);
        pl_arena_release(&a);
        pl_graph_free(g);
        pl_store_free(store);
    }
    CHECK(large && small);
}

/* A long expression of rows. */
static void much_to_do(pl_graph *g, int64_t n, int64_t c)
{
    pl_val v = pl_input(g, "x", PL_TYPE(PL_F32, n, c));
    for (int i = 0; i < 7; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        pl_val w = pl_input(g, name, PL_TYPE(PL_F32, c));
        v = pl_add(g, pl_mul(g, pl_tanh(g, pl_scale(g, v, 0.7)), w), pl_square(g, pl_sub(g, v, w)));
    }
    v = pl_sub(g, v, pl_scale(g, pl_sum(g, v, PL_AXIS(1), true), 1.0 / (double)c));
    pl_output(g, "y", pl_mul(g, v, pl_rsqrt(g, pl_sum(g, pl_square(g, v), PL_AXIS(1), true))));
}

/* Two operands of rows, a sum, and values that are expensive to compute for the sum and are
 * stored. */
static void keep_of(pl_graph *g, pl_dtype d, int64_t n, int64_t c)
{
    pl_val x = pl_sigmoid(g, f32(g, pl_input(g, "x", PL_TYPE(d, n, c)))),
           y = pl_sigmoid(g, f32(g, pl_input(g, "y", PL_TYPE(d, n, c))));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        pl_val w = pl_input(g, name, PL_TYPE(PL_F32, c));
        x = pl_add(g, pl_mul(g, pl_square(g, x), w), x);
        y = pl_mul(g, pl_sub(g, y, w), pl_square(g, y));
    }
    pl_output(g, "sum",
              pl_sum(g, pl_sub(g, pl_add(g, pl_square(g, x), pl_exp(g, y)), y), PL_AXIS(1), false));
    pl_output(g, "y", pl_cast(g, y, d));
    pl_output(g, "more", pl_cast(g, pl_exp(g, pl_scale(g, y, 0.5)), d));
}

static void much_to_keep(pl_graph *g, int64_t n, int64_t c)
{
    keep_of(g, PL_F32, n, c);
}

static void much_to_keep_16(pl_graph *g, int64_t n, int64_t c)
{
    keep_of(g, PL_F16, n, c);
}

/* Registers that spill use device memory for every thread of the GPU, which no plan counts. */
TEST(cuda_rows_spill_no_registers)
{
    if (!pl_test_long()) SKIP("long");
    static const struct {
        void (*make)(pl_graph *g, int64_t n, int64_t c);
        int64_t n;
    } want[] = {{much_to_do, 1536},       {much_to_do, 16384},     {much_to_keep, 32768},
                {much_to_keep_16, 32768}, /* long runs: */
                {much_to_do, 1024},       {much_to_do, 1408},      {much_to_do, 8192},
                {much_to_do, 12000},      {much_to_keep, 16384},   {much_to_keep, 8192},
                {much_to_keep_16, 16384}, {much_to_keep_16, 30000}};
    if (!nvrtc_here()) SKIP("no libnvrtc");
    for (int i = 0; i < (pl_test_long() ? (int)(sizeof want / sizeof *want) : 4); i++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_arena mem = PL_ARENA_INIT;
        pl_code code;
        want[i].make(g, 64, want[i].n);
        CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.open = true}));
        CHECK(group_code(g, &mem, &code));
        int stack = nvrtc_stack_bytes(code.kernel[0].text, 90);
        CHECK_MSG(stack >= 0 && stack <= 16, "rows of %lld: %d bytes a thread",
                  (long long)want[i].n, stack);
        pl_arena_release(&mem);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* Warps of a row synchronise after each sum, and before the next row's first sum could overwrite
 * values that this row still reads. */
TEST(cuda_rows_synchronise_their_warps)
{
    void (*const make[])(pl_graph * g, int64_t n, int64_t c) = {centred, rows_and_columns};
    for (int i = 0; i < 2; i++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        char *text;
        make[i](g, 9000, 2048);
        CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.open = true}));
        group_text_alone(g, &text);
        /* and the rows of lanes without a row */
        CHECK_INT(text_count(text, "p_meet<T>(lane_);"), 2 + 2);
        free(text);
        pl_graph_free(g);
        pl_store_free(store);
    }
}
