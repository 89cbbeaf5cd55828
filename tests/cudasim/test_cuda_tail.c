/* test_cuda_tail.c - products with following operations in the simulator, beyond the cases of
 * the op table (test_cuda_ops.c): operations that a library's kernel leaves out
 * (cuda/matmul/tail.cu), and how much is asked of a library that lacks some operations, lacks
 * them at odd addresses, or is slower with them than without (cuda/matmul/matmul.c). */
#include "base/dtype.h"
#include "cublasLt.h"
#include "cuda/device/work.h"
#include "tests/lib/test.h"

#include <math.h>

static double wanted(int act, double v)
{
    switch (act) {
    case PL_ACT_RELU: return v > 0 ? v : 0;
    case PL_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    default: return v;
    }
}

static double wanted_slope(int act, double z)
{
    const double e = 1e-5;
    return (wanted(act, z + e) - wanted(act, z - e)) / (2 * e);
}

/* Rows of n at `off` elements past an aligned address. */
static void check_follow(pl_dtype d, int act, bool slope, int64_t n, int off)
{
    enum { FOLLOW_ROWS = 9, MOST = FOLLOW_ROWS * 64 + 64 };
    static double y[MOST], other[MOST], bias[64];
    static _Alignas(64) unsigned char bytes[4][MOST * 8];
    uint64_t s = 9;
    size_t each = pl_dtype_bytes(d);
    void *at[4];
    for (int k = 0; k < 4; k++) at[k] = bytes[k] + (size_t)off * each;
    for (int64_t i = 0; i < FOLLOW_ROWS * n; i++) {
        pl_elem_set(d, at[0], i, 2 * pl_test_noise(&s));
        pl_elem_set(d, at[1], i, 2 * pl_test_noise(&s) + 0.01);
        y[i] = pl_elem_get(d, at[0], i);
        other[i] = pl_elem_get(d, at[1], i);
    }
    for (int64_t i = 0; i < n; i++) {
        pl_elem_set(d, at[2], i, pl_test_noise(&s));
        bias[i] = pl_elem_get(d, at[2], i);
    }
    pl_cuda_tail t = {.act = act};
    if (slope) {
        t.slope_at = at[1];
    } else {
        t.bias = at[2];
        t.add = at[1];
        t.keep = at[3];
    }
    CHECK_OK(pl_cuda_tail_run(d, at[0], FOLLOW_ROWS, n, &t));
    double eps = d == PL_BF16 ? 0x1p-8 : d == PL_F16 ? 0x1p-11 : d == PL_F32 ? 4e-7 : 1e-9;
    for (int64_t i = 0; i < FOLLOW_ROWS * n; i++) {
        double z = y[i] + bias[i % n] + other[i];
        double want = slope ? y[i] * wanted_slope(act, other[i]) : wanted(act, z);
        double got = pl_elem_get(d, at[0], i);
        CHECK_MSG(fabs(got - want) <= eps * (fabs(want) + 2), "%s act %d%s at %lld: %g, wanted %g",
                  pl_dtype_name(d), act, slope ? " slope" : "", (long long)i, got, want);
        if (!slope) CHECK_NEAR(pl_elem_get(d, at[3], i), z, eps * (fabs(z) + 0.1));
    }
}

TEST(tail_behind_a_product_matches_separate_ops)
{
    static const pl_dtype types[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    for (int d = 0; d < 4; d++)
        for (int slope = 0; slope < 2; slope++)
            for (int off = 0; off < 2; off++) {
                check_follow(types[d], PL_ACT_GELU_TANH, slope, 32, off);
                check_follow(types[d], PL_ACT_RELU, slope, 7, off);
            }
}

/* ---- how much the library is asked for ---------------------------------------------------- */
enum { K = 12, N = 16 };

/* relu(a b + bias) of m rows through the kernel that a GPU would use, `off` elements past
 * aligned addresses; checks the numbers. The fake library records the requests. */
static void check_product(int64_t m, int off)
{
    static _Alignas(64) float a[64 * K + 8], b[K * N + 8], bias[N + 8], y[64 * N + 8];
    pl_type in_type[3] = {PL_TYPE(PL_F32, m, K), PL_TYPE(PL_F32, K, N), PL_TYPE(PL_F32, N)};
    pl_type out_type[1] = {PL_TYPE(PL_F32, m, N)};
    pl_matmul_tail_attr attr = {.tail = {.act = PL_ACT_RELU}};
    const void *in[3] = {a + off, b + off, bias + off};
    void *out[1] = {y + off}, *prep = NULL;
    size_t bytes = 0;
    uint64_t s = 3;
    for (int64_t i = 0; i < m * K; i++) a[off + i] = (float)pl_test_noise(&s);
    for (int64_t i = 0; i < K * N; i++) b[off + i] = (float)pl_test_noise(&s);
    for (int64_t i = 0; i < N; i++) bias[off + i] = (float)pl_test_noise(&s);
    const pl_kernel *k = pl_cuda_kernels_of("matmul_tail");
    pl_call c = {.in_type = in_type,
                 .out_type = out_type,
                 .in = in,
                 .out = out,
                 .attr = &attr,
                 .n_in = 3,
                 .n_out = 1};
    while (k && !k->accepts(&c)) k++;
    CHECK(k != NULL);
    CHECK_OK(k->prepare(&c, &prep, &bytes));
    CHECK_INT(bytes, 0);
    c.prep = prep;
    CHECK_OK(k->run(&c));
    k->release(prep);
    for (int64_t i = 0; i < m * N; i++) {
        double z = (double)bias[off + i % N];
        for (int64_t q = 0; q < K; q++)
            z += (double)a[off + i / N * K + q] * (double)b[off + q * N + i % N];
        CHECK_NEAR(y[off + i], wanted(PL_ACT_RELU, z), 1e-5);
    }
}

/* A problem has one answer for the life of the process, so every question here has a different
 * size. */
TEST(tail_falls_back_to_a_supported_epilogue)
{
    pl_sim_lt *lt = &pl_sim_lt_now, was = *lt;
    check_product(17, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS);

    lt->refused = CUBLASLT_EPILOGUE_RELU;
    check_product(18, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_BIAS);

    lt->refused = CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS;
    check_product(19, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_DEFAULT);

    *lt = was;
    lt->unaligned = CUBLASLT_EPILOGUE_RELU;
    check_product(20, 1);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_BIAS);

    check_product(20, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS);
    *lt = was;
}

TEST(tail_is_placed_where_it_is_faster)
{
    pl_sim_lt *lt = &pl_sim_lt_now, was = *lt;
    pl_sim_autotune(true);
    lt->timed = 0;
    lt->tail_ms = 0.25f;
    check_product(21, 0);

    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS);
    CHECK_INT(lt->last_algo, lt->algos - 1);
    CHECK_INT(lt->timed, 2 * lt->algos);

    lt->tail_ms = 0.75f; /* more than a pass behind it */
    check_product(22, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_BIAS);
    CHECK_INT(lt->last_algo, lt->algos - 1);

    int timed = lt->timed;
    check_product(21, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS);

    check_product(22, 0);
    CHECK_INT(lt->last_epilogue, CUBLASLT_EPILOGUE_BIAS);
    CHECK_INT(lt->timed, timed);

    pl_sim_autotune(false);
    check_product(23, 0);
    CHECK_INT(lt->last_algo, 0);
    CHECK_INT(lt->timed, timed);
    *lt = was;
}

/* A product of n x n x n through the kernel that a GPU would use; the fake library does not compute
 * one of this size. */
static void run_large(int64_t n)
{
    pl_type in_type[2] = {PL_TYPE(PL_BF16, n, n), PL_TYPE(PL_BF16, n, n)};
    pl_type out_type[1] = {PL_TYPE(PL_BF16, n, n)};
    pl_matmul_attr attr = {false, true};
    static _Alignas(64) char bytes[64];
    const void *in[2] = {bytes, bytes};
    void *out[1] = {bytes}, *prep = NULL;
    size_t work = 0;
    const pl_kernel *k = pl_cuda_kernels_of("matmul");
    pl_call c = {.in_type = in_type,
                 .out_type = out_type,
                 .in = in,
                 .out = out,
                 .attr = &attr,
                 .n_in = 2,
                 .n_out = 1};
    while (k && !k->accepts(&c)) k++;
    CHECK(k != NULL);
    CHECK_OK(k->prepare(&c, &prep, &work));
    c.prep = prep;
    CHECK_OK(k->run(&c));
    k->release(prep);
}

TEST(products_that_take_long_are_timed_once)
{
    pl_sim_lt *lt = &pl_sim_lt_now, was = *lt;
    lt->timed = 0;
    run_large(1260);
    CHECK_INT(lt->timed, lt->algos);
    CHECK_INT(lt->last_algo, lt->algos - 1); /* the last one is the fastest */

    run_large(1260); /* the choice is kept */
    CHECK_INT(lt->timed, lt->algos);
    CHECK_INT(lt->last_algo, lt->algos - 1);

    run_large(1250); /* under the limit: the expected one */
    CHECK_INT(lt->timed, lt->algos);
    CHECK_INT(lt->last_algo, 0);

    lt->no_time = true; /* the expected one */
    run_large(1270);
    CHECK_INT(lt->timed, lt->algos);
    CHECK_INT(lt->last_algo, 0);
    *lt = was;
}
