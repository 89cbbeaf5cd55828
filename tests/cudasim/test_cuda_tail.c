/* test_cuda_tail.c - what a library's kernel has left over of a product's tail (cuda/tail.cu), in the simulator.
 * With convolutions it is tested as the ops are (test_cuda_ops.c); here are the parts that only products have:
 * the value before the function, and slopes. */
#include "base/dtype.h"
#include "cuda/work.h"
#include "test.h"

#include <math.h>

static double wanted(int act, double v)
{
    switch (act) {
    case PL_ACT_RELU: return v > 0 ? v : 0;
    case PL_ACT_GELU_TANH: return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
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

TEST(tail_behind_a_product)
{
    static const pl_dtype types[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    for (int d = 0; d < 4; d++)
        for (int slope = 0; slope < 2; slope++)
            for (int off = 0; off < 2; off++) {
                check_follow(types[d], PL_ACT_GELU_TANH, slope, 32, off);
                check_follow(types[d], PL_ACT_RELU, slope, 7, off);
            }
}
