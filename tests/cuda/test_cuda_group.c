/* test_cuda_group.c - generated kernels: accepted by NVRTC, the CPU's results within rounding,
 * and the same bits for every grouping of nodes. No GPU is needed: kernels run on the simulator. */
#include "base/sys.h"
#include "pass/pass.h"
#include "tests/cuda/cuda_group_lab.h"
#include "tests/lib/test.h"
#include "tests/workloads/workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces of networks ----------------------------------------------------------------- */
typedef void (*piece_fn)(pl_graph *g, pl_val x, pl_val y);

static pl_val like_row(pl_graph *g, pl_val x, const char *name)
{
    pl_type t = pl_val_type(g, x);
    return pl_input(g, name, PL_TYPE(t.dtype, t.dim[t.rank - 1]));
}

static void chain(pl_graph *g, pl_val x, pl_val y)
{
    pl_val a = pl_silu(g, pl_add(g, x, y));
    pl_output(g, "a", a);
    pl_output(g, "b", pl_leaky_relu(g, pl_sub(g, pl_mul(g, a, x), pl_scale(g, y, 0.3)), 0.1));
    pl_output(g, "c", pl_gt(g, a, y));
    pl_output(g, "d", pl_select(g, pl_le(g, x, y), pl_gelu(g, x), pl_tanh(g, y)));
    pl_output(g, "e", pl_gelu_slope(g, pl_scale(g, x, 4)));
}

static void bias_relu(pl_graph *g, pl_val x, pl_val y)
{
    pl_val b = like_row(g, x, "b"), s = like_row(g, x, "s");
    (void)y;
    pl_output(g, "y",
              pl_relu(g, pl_add(g, pl_mul(g, x, pl_rsqrt(g, pl_shift(g, pl_square(g, s), 1))), b)));
}

static pl_val f32(pl_graph *g, pl_val x)
{
    return pl_cast(g, x, PL_F32);
}

static void softmax(pl_graph *g, pl_val x, pl_val y)
{
    pl_output(g, "p", pl_softmax(g, pl_scale(g, x, 3), -1));
    pl_output(g, "l", pl_log_softmax(g, pl_add(g, x, y), -1));
}

static pl_val norm(pl_graph *g, pl_val x, uint32_t axes, pl_val *rstd)
{
    pl_val mean, var;
    pl_moments(g, x, axes, true, &mean, &var);
    *rstd = pl_rsqrt(g, pl_shift(g, var, 1e-5));
    return pl_mul(g, pl_sub(g, f32(g, x), mean), *rstd);
}

/* Forward and backward: norms along rows, together with sums of columns. */
static void layer_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, t.dim[t.rank - 1])), rstd;
    pl_val z = pl_mul(g, norm(g, x, PL_AXIS(-1), &rstd), w);
    pl_output(g, "z", z);
    pl_output(g, "rstd", rstd);
    pl_val loss = pl_sum(g, pl_mul(g, z, f32(g, y)), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

static void batch_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    uint32_t axes = 0;
    for (int i = 0; i + 1 < t.rank; i++) axes |= PL_AXIS(i);
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, t.dim[t.rank - 1])), rstd;
    pl_val z = pl_leaky_relu(g, pl_mul(g, norm(g, x, axes, &rstd), w), 0.1);
    pl_output(g, "z", pl_cast(g, z, t.dtype));
    pl_val loss = pl_sum(g, pl_mul(g, z, f32(g, y)), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

/* Groups of channels: reductions over outer and inner dims at once. */
static void group_norm(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    int64_t c = t.dim[t.rank - 1], n = t.dim[0], hw = pl_type_elems(&t) / (c * n);
    int64_t groups = c % 4 == 0 ? 4 : c % 3 == 0 ? 3 : 1;
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, c)), rstd;
    pl_val r = pl_reshape(g, x, PL_DIMS(n, hw, groups, c / groups));
    pl_val z = norm(g, r, PL_AXIS(1) | PL_AXIS(3), &rstd);
    z = pl_silu(g, pl_mul(g, pl_reshape(g, z, PL_DIMS(n, hw, c)), w));
    pl_output(g, "z", z);
    pl_val f = pl_reshape(g, f32(g, y), PL_DIMS(n, hw, c));
    pl_val loss = pl_sum(g, pl_mul(g, z, f), PL_AXES_ALL, false), d[2];
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, d);
    pl_output(g, "dx", d[0]);
    pl_output(g, "dw", d[1]);
}

/* Every kind of reduction, several masks, a store beside. */
static void sums(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val m = pl_mul(g, x, y);
    pl_output(g, "m", m);
    pl_output(g, "all", pl_sum(g, m, PL_AXES_ALL, false));
    pl_output(g, "col", pl_sum(g, m, PL_AXIS(0), false));
    pl_output(g, "colmax", pl_max_over(g, pl_add(g, x, y), PL_AXIS(0), false));
    pl_output(g, "row", pl_sum(g, x, PL_AXIS(-1), true));
    pl_output(g, "rowmin", pl_min_over(g, y, PL_AXIS(-1), false));
    if (t.rank > 2) pl_output(g, "mid", pl_sum(g, m, PL_AXIS(1), false));
    if (t.rank > 2) pl_output(g, "ends", pl_sum(g, x, PL_AXIS(0) | PL_AXIS(-1), false));
    pl_val mean, var;
    pl_moments(g, x, PL_AXES_ALL, false, &mean, &var);
    pl_output(g, "mean", mean);
    pl_output(g, "var", var);
}

/* Views, flips, steps, constants with a slope. */
static void readings(pl_graph *g, pl_val x, pl_val y)
{
    pl_type t = pl_val_type(g, x);
    pl_val f = pl_add(g, pl_flip(g, x, PL_AXIS(-1)), y);
    pl_output(g, "flip", f);
    pl_output(g, "step", pl_neg(g, pl_slice(g, x, t.rank - 1, 0, t.dim[t.rank - 1], 2)));
    pl_type u = t;
    u.dtype = PL_F32;
    pl_output(g, "ramp", pl_add(g, f32(g, x), pl_iota(g, u, t.rank - 1)));
    pl_output(g, "ramp0", pl_sum(g, pl_mul(g, f32(g, y), pl_iota(g, u, 0)), PL_AXIS(0), false));
    if (t.dim[0] > 2)
        pl_output(g, "part", pl_square(g, pl_slice(g, pl_mul(g, x, y), 0, 1, t.dim[0], 1)));
}

typedef struct piece {
    const char *name;
    piece_fn fn;
} piece;
static const piece pieces[] = {
    {"chain", chain},
    {"bias_relu", bias_relu},
    {"softmax", softmax},
    {"layer_norm", layer_norm},
    {"batch_norm", batch_norm},
    {"group_norm", group_norm},
    {"sums", sums},
    {"readings", readings},
};
enum { N_PIECES = sizeof pieces / sizeof *pieces };

static group_job piece_job(const piece *p, pl_type t)
{
    group_job j = {.store = pl_store_new(), .name = p->name};
    j.g = pl_graph_new(j.store);
    p->fn(j.g, pl_input(j.g, "x", t), pl_input(j.g, "y", t));
    return j;
}

static const int64_t shapes[][4] = {
    {6, 5, 40, 0}, {3, 7, 0, 0},    {2, 3, 5, 24},   {9, 130, 0, 0}, {70, 64, 0, 0},
    {4, 1, 1, 3},  {5, 1500, 0, 0}, {300, 33, 0, 0}, {1, 1, 1, 1},   {2, 40, 9, 6},
};

static pl_type shape_type(int i, pl_dtype d)
{
    int rank = 0;
    while (rank < 4 && shapes[i][rank]) rank++;
    return pl_type_make(d, rank, shapes[i]);
}

static void check_pieces(pl_dtype d)
{
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    group_job jobs[N_PIECES * N_SHAPES];
    int n = 0;
    for (int s = 0; s < N_SHAPES; s++) {
        if (!pl_test_long() && (d == PL_F32 ? s != 0 && s != 7 : s != (d == PL_F16 ? 2 : 9)))
            continue;
        for (int p = 0; p < N_PIECES; p++) jobs[n++] = piece_job(&pieces[p], shape_type(s, d));
    }
    group_jobs_check(jobs, n);
}

/* Together with a sum of everything, a sum over dims of size 1: as many results as elements. */
TEST(cuda_group_sums_over_dims_of_size_1)
{
    group_job jobs[2];
    for (int i = 0; i < 2; i++)
        jobs[i] = piece_job(&(piece){"sums", sums},
                            pl_type_make(i ? PL_BF16 : PL_F32, 4, (int64_t[]){4, 1, 1, 3}));
    group_jobs_check(jobs, 2);
}

TEST(cuda_group_pieces_match_the_cpu_in_f32)
{
    check_pieces(PL_F32);
}

TEST(cuda_group_pieces_match_the_cpu_in_f16)
{
    if (!pl_test_long()) SKIP("long");
    check_pieces(PL_F16);
}

TEST(cuda_group_pieces_match_the_cpu_in_bf16)
{
    if (!pl_test_long()) SKIP("long");
    check_pieces(PL_BF16);
}

/* ---- sizes and types off the beaten track ------------------------------------------------ */
static void integers(pl_graph *g, pl_dtype d)
{
    pl_val x = pl_cast(g, pl_scale(g, pl_input(g, "x", PL_TYPE(PL_F32, 7, 19)), 100), d);
    pl_val y = pl_cast(g, pl_scale(g, pl_input(g, "y", PL_TYPE(PL_F32, 7, 19)), 5), d);
    pl_output(g, "div", pl_div(g, x, y));
    pl_output(g, "mod", pl_mod(g, x, y));
    pl_output(g, "mul", pl_mul(g, pl_add(g, x, y), pl_sub(g, x, y)));
    pl_output(g, "max", pl_max_over(g, pl_max(g, x, y), PL_AXIS(0), false));
    pl_output(g, "min", pl_min_over(g, pl_neg(g, x), PL_AXIS(1), false));
    if (d != PL_U8) pl_output(g, "sum", pl_sum(g, x, PL_AXIS(0), false));
    if (d != PL_U8) pl_output(g, "all", pl_sum(g, y, PL_AXES_ALL, false));
    pl_output(g, "f", pl_cast(g, pl_abs(g, x), PL_F32));
    pl_output(g, "b", pl_cast(g, y, PL_BOOL));
    pl_output(g, "i", pl_cast(g, x, d == PL_I32 ? PL_I64 : PL_I32));
}

static void doubles(pl_graph *g)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F64, 9, 33)), mean, var;
    pl_output(g, "s", pl_softmax(g, x, -1));
    pl_moments(g, x, PL_AXIS(0), false, &mean, &var);
    pl_output(g, "m", mean);
    pl_output(g, "v", var);
    pl_output(g, "e", pl_cast(g, pl_exp(g, x), PL_F16));
}

static void long_rows(pl_graph *g, int64_t n)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, n)), mean, var;
    if (n <= 16384) pl_output(g, "s", pl_softmax(g, x, -1));
    pl_moments(g, x, PL_AXIS(1), true, &mean, &var);
    pl_output(g, "m", mean);
    pl_output(g, "v", var);
    pl_output(g, "sum", pl_sum(g, pl_square(g, x), PL_AXIS(1), false));
    pl_output(g, "max", pl_max_over(g, x, PL_AXES_ALL, false));
}

static void tall(pl_graph *g, int64_t a, int64_t n, int64_t c)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, a, n, c)), mean, var;
    pl_val m = pl_input(g, "m", PL_TYPE(PL_F32, a, 1, c));
    pl_moments(g, pl_sub(g, x, m), PL_AXIS(0) | PL_AXIS(1), false, &mean, &var);
    pl_output(g, "m", mean);
    pl_output(g, "v", var);
    pl_output(g, "ends", pl_sum(g, pl_mul(g, x, m), PL_AXIS(0) | PL_AXIS(2), false));
    pl_output(g, "middle", pl_sum(g, x, PL_AXIS(1), false));
    pl_output(g, "y", pl_mul(g, x, pl_exp(g, m)));
}

/* The gradient of a pool, spread over its windows and summed: along six dims, two of them 2. */
static void pooled(pl_graph *g, pl_dtype d, int64_t n, int64_t w, int64_t c)
{
    pl_type whole = PL_TYPE(d, n, 4, 2, w, 2, c), part = PL_TYPE(d, n, 4, 1, w, 1, c);
    pl_val x = pl_input(g, "x", whole), dy = pl_input(g, "dy", part);
    pl_val m = f32(g, pl_input(g, "m", PL_TYPE(d, n, 1, 1, 1, 1, c)));
    pl_val at = pl_cast(g, pl_abs(g, pl_scale(g, f32(g, dy), 4)), PL_U8);
    whole.dtype = PL_U8;
    pl_val k =
        pl_add(g, pl_iota(g, whole, 4), pl_add(g, pl_iota(g, whole, 2), pl_iota(g, whole, 2)));
    pl_val full = pl_mul(g, f32(g, dy), pl_full_like(g, f32(g, x), 1));
    pl_val hit = pl_eq(g, pl_add(g, at, pl_full_like(g, k, 0)), k);
    pl_val t = pl_select(g, hit, full, pl_full_like(g, full, 0));
    t = pl_add(g, pl_mul(g, t, m), f32(g, x));
    pl_output(g, "t", pl_cast(g, t, d));
    uint32_t axes = PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3) | PL_AXIS(4);
    pl_output(g, "sum", pl_sum(g, t, axes | PL_AXIS(0), false));
    pl_output(g, "each", pl_sum(g, pl_mul(g, t, f32(g, x)), axes, false));
}

/* The gradient of a pool with its indices stored; sums over an image and over all images. */
static void indexed(pl_graph *g, pl_dtype d, int64_t n, int64_t w, int64_t c)
{
    pl_type whole = PL_TYPE(PL_U8, n, 4, 2, w, 2, c);
    pl_val at = pl_input(g, "at", PL_TYPE(PL_U8, n, 4, 1, w, 1, c));
    pl_val dy = f32(g, pl_input(g, "dy", PL_TYPE(d, n, 4, 1, w, 1, c)));
    pl_val x = f32(g, pl_input(g, "x", PL_TYPE(d, n, 4, 2, w, 2, c)));
    pl_val k =
        pl_add(g, pl_iota(g, whole, 4), pl_add(g, pl_iota(g, whole, 2), pl_iota(g, whole, 2)));
    pl_val hit = pl_eq(g, at, k);
    pl_val t = pl_select(g, hit, pl_mul(g, dy, pl_full_like(g, x, 1)), pl_full_like(g, x, 0));
    t = pl_add(g, t, x);
    uint32_t axes = PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3) | PL_AXIS(4);
    pl_output(g, "all", pl_sum(g, t, axes | PL_AXIS(0), false));
    pl_output(g, "each", pl_sum(g, pl_mul(g, t, x), axes, false));
    pl_output(g, "same", pl_cast(g, pl_eq(g, at, pl_full_like(g, at, 1)), PL_U8));
}

/* The same with sums of products with it, alone or not: in a pair one element has the gradient. */
static void shared(pl_graph *g, pl_dtype d, int64_t n, int64_t w, int64_t c, bool alone)
{
    pl_val at = pl_input(g, "at", PL_TYPE(PL_U8, n, 4, 1, w, 1, c)),
           x = f32(g, pl_input(g, "x", PL_TYPE(d, n, 4, 2, w, 2, c)));
    pl_val dy = pl_input(g, "dy", PL_TYPE(PL_F32, n, 4, 1, w, 1, c)),
           m = pl_input(g, "m", PL_TYPE(PL_F32, c));
    pl_val k = pl_reshape(g, pl_iota(g, PL_TYPE(PL_U8, 4), 0), PL_DIMS(1, 1, 2, 1, 2, 1));
    pl_val zero = pl_full_like(g, x, 0), one = pl_full_like(g, x, 1), z = pl_mul(g, x, m);
    pl_val t = pl_select(g, pl_eq(g, at, k), pl_mul(g, dy, one), zero);
    pl_val s = pl_select(g, pl_gt(g, z, zero), t, pl_scale(g, t, 0.1));
    uint32_t axes = PL_AXIS(1) | PL_AXIS(2) | PL_AXIS(3) | PL_AXIS(4);
    pl_output(g, "all", pl_sum(g, pl_mul(g, s, x), axes | PL_AXIS(0), false));
    pl_output(g, "each", pl_sum(g, pl_neg(g, pl_mul(g, t, z)), axes, false));
    pl_output(g, "plain", pl_sum(g, alone ? t : pl_add(g, t, x), axes | PL_AXIS(0), false));
}

/* Two sums of one value, one of which keeps the images separate. */
static void twins(pl_graph *g, int64_t n, int64_t rows, int64_t c)
{
    pl_val x = pl_square(g, pl_input(g, "x", PL_TYPE(PL_F32, n, rows, c)));
    pl_output(g, "each", pl_sum(g, x, PL_AXIS(1), false));
    pl_output(g, "all", pl_sum(g, x, PL_AXIS(0) | PL_AXIS(1), false));
    pl_output(g, "most", pl_max_over(g, x, PL_AXIS(1), false));
    pl_val mean, var;
    pl_moments(g, x, PL_AXIS(0) | PL_AXIS(1), false, &mean, &var);
    pl_output(g, "mean", mean);
    pl_output(g, "var", var);
}

/* Norms along rows, together with sums of columns over all rows, over some rows, and over a flat
 * view. */
static void beside(pl_graph *g, pl_dtype d, int64_t a, int64_t n, int64_t c)
{
    pl_val x = pl_input(g, "x", PL_TYPE(d, a, n, c)), y = pl_input(g, "y", PL_TYPE(d, a, n, c)),
           rstd;
    layer_norm(g, x, y);
    pl_val z = pl_mul(g, norm(g, x, PL_AXIS(-1), &rstd), f32(g, y));
    pl_output(g, "each", pl_sum(g, z, PL_AXIS(1), false));
    pl_output(g, "most", pl_max_over(g, z, PL_AXIS(0) | PL_AXIS(1), false));
    pl_output(g, "flat", pl_sum(g, pl_reshape(g, z, PL_DIMS(a * n, c)), PL_AXIS(0), false));
    pl_output(g, "zy", pl_cast(g, z, d));
}

TEST(cuda_group_unusual_sizes_and_types_match_the_cpu)
{
    if (!pl_test_long()) SKIP("long");
    group_job jobs[40];
    int n = 0;

    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < 40; i++) {
        jobs[i].store = pl_store_new();
        jobs[i].g = pl_graph_new(jobs[i].store);
        jobs[i].name = "corner";
    }
    integers(jobs[n++].g, PL_I32);
    doubles(jobs[n++].g);
    long_rows(jobs[n++].g, 7001);
    tall(jobs[n++].g, 3, 1500, 12);
    pooled(jobs[n++].g, PL_F16, 2, 70, 16);
    indexed(jobs[n++].g, PL_F16, 2, 257, 8);
    shared(jobs[n++].g, PL_F16, 2, 257, 8, true);
    twins(jobs[n++].g, 2, 4100, 12);
    beside(jobs[n++].g, PL_F32, 3, 50, 132);
    beside(jobs[n++].g, PL_BF16, 2, 37, 1000);
    beside(jobs[n++].g, PL_F16, 3, 150, 96);
    if (pl_test_long()) {
        long_rows(jobs[n++].g, 65537);
        /* Folds of some hundred partial results, four columns per thread; of a thousand, column
         * by column. */
        twins(jobs[n++].g, 2, 40000, 32);
        twins(jobs[n++].g, 2, 360000, 3);
        pooled(jobs[n++].g, PL_F32, 3, 5, 12);
        pooled(jobs[n++].g, PL_BF16, 2, 300, 6);
        integers(jobs[n++].g, PL_I64);
        integers(jobs[n++].g, PL_U8);
        long_rows(jobs[n++].g, 16384);
        long_rows(jobs[n++].g, 20000);
        long_rows(jobs[n++].g, 140000);
        tall(jobs[n++].g, 2, 900, 5);
        tall(jobs[n++].g, 40, 3, 256);
        tall(jobs[n++].g, 3, 4099, 4);
        beside(jobs[n++].g, PL_BF16, 2, 700, 36);
        beside(jobs[n++].g, PL_F32, 1, 3000, 64);
        beside(jobs[n++].g, PL_F16, 3, 5, 120);
        beside(jobs[n++].g, PL_BF16, 2, 320, 256);
        beside(jobs[n++].g, PL_F16, 1, 71, 1024);
        beside(jobs[n++].g, PL_F32, 2, 300, 2048);
        beside(jobs[n++].g, PL_BF16, 1, 71, 4096);
        beside(jobs[n++].g, PL_F16, 2, 4230, 1152);
        beside(jobs[n++].g, PL_BF16, 1, 8500, 2048);
        indexed(jobs[n++].g, PL_F32, 3, 259, 4);
        shared(jobs[n++].g, PL_BF16, 3, 30, 12, true);
        shared(jobs[n++].g, PL_F32, 2, 70, 8, false);
    }
    for (int i = n; i < 40; i++) group_job_free(&jobs[i]);
    group_jobs_check(jobs, n);
}

/* A group reads each input once: sums over different dims share one pass, with a fold for each.
 * Columns of rows that are used: test_cuda_rows.c. */
static void two_sums(pl_graph *g, int64_t n, int64_t rows)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, n, rows, 12));
    pl_output(g, "each", pl_sum(g, pl_square(g, x), PL_AXIS(1), false));
    pl_output(g, "all", pl_sum(g, pl_exp(g, x), PL_AXIS(0) | PL_AXIS(1), false));
}

TEST(cuda_group_of_two_sums_reads_its_input_once)
{
    CHECK_INT(group_kernels(two_sums, 3, 4097), 2);
    CHECK_INT(group_kernels(two_sums, 3, 4095), 4);
}

/* Whether a pool's gradient is computed once per pair: only where sums multiply it. */
TEST(cuda_group_pool_gradient_is_computed_once_a_pair)
{
    for (int i = 0; i < 2; i++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        char *text;
        shared(g, PL_F32, 2, 256, 64, i == 0);
        CHECK_OK(pl_graph_status(g));
        CHECK_OK(pl_passes_run(&g, &(pl_pass_opts){.open = true}));
        group_text_alone(g, &text);
        CHECK_INT(text_count(text, "u += 2"), i == 0);
        free(text);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* Two sums of one value are added up once, even if they keep different dims. */
TEST(cuda_group_adds_up_two_sums_of_one_value_once)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    char *text;
    pl_val p = pl_softmax(g, pl_input(g, "x", PL_TYPE(PL_F16, 2, 4096, 1024)), -1);
    pl_output(g, "p", p);
    pl_output(g, "each", pl_sum(g, f32(g, p), PL_AXIS(1), false));
    pl_output(g, "all",
              pl_sum(g, f32(g, pl_reshape(g, p, PL_DIMS(8192, 1024))), PL_AXIS(0), false));
    group_text_alone(g, &text);
    CHECK_INT(text_count(text, "[STEPS][V];\n_Pragma"), 1);
    free(text);
    pl_graph_free(g);
    pl_store_free(store);
}

/* Kernels of a group may start before the previous kernel has ended: each waits before it reads. */
TEST(cuda_group_kernels_wait_before_they_read)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_fuse_opts o = PL_FUSE_OPTS_CUDA(NULL);
    pl_units *u = NULL;
    pl_arena a = PL_ARENA_INIT;
    int kernels = 0;

    twins(g, 2, 40000, 32);
    beside(g, PL_BF16, 2, 4096, 1000);
    long_rows(g, 65537);
    CHECK_OK(pl_graph_status(g));
    CHECK_OK(pl_fuse(g, &o, &u));
    for (uint32_t i = 0; i < u->n; i++) {
        pl_code code;
        if (u->unit[i].kind != PL_UNIT_GROUP) continue;
        CHECK_OK(pl_code_make(g, &u->unit[i], &a, &code));
        for (uint32_t k = 0; k < code.n_kernels; k++, kernels++) {
            const char *body = strstr(code.kernel[k].text, "(const GRID_CONST p_args a)\n{\n");
            CHECK(body && strncmp(body + strlen("(const GRID_CONST p_args a)\n{\n"),
                                  "p_begun();\np_after();\n", 22) == 0);
        }
    }

    CHECK(kernels > 6);
    pl_arena_release(&a);
    pl_units_free(u);
    pl_graph_free(g);
    pl_store_free(store);
}

/* A sum over nothing is 0, a mean of nothing is NaN; an empty result needs no kernel. */
TEST(cuda_group_of_empty_tensors_sums_to_0)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 0, 300));

    pl_output(g, "s", pl_sum(g, x, PL_AXIS(0), false));
    pl_output(g, "n", pl_neg(g, x));
    pl_units *u = NULL;
    pl_arena a = PL_ARENA_INIT;
    text_shop *shop = text_shop_new();
    CHECK_OK(pl_graph_status(g));
    CHECK_OK(pl_units_single(g, &u));
    pl_code code[8];
    for (uint32_t i = 0; i < u->n; i++) {
        CHECK_OK(pl_code_make(g, &u->unit[i], &a, &code[i]));
        text_shop_add(shop, &code[i]);
    }
    if (text_shop_build(shop))
        for (uint32_t i = 0; i < u->n; i++) {
            float out[300];
            for (int k = 0; k < 300; k++) out[k] = 5;
            bool empty = pl_type_elems(pl_type_of(g, u->unit[i].out[0])) == 0;
            CHECK_INT(code[i].n_kernels, empty ? 0 : 1);
            CHECK(text_shop_run(shop, &code[i], (const void *[]){out}, (void *[]){out}, NULL));
            for (int k = 0; k < 300 && !empty; k++) CHECK_NEAR(out[k], 0, 0);
        }
    text_shop_free(shop);
    pl_arena_release(&a);
    pl_units_free(u);
    pl_graph_free(g);
    pl_store_free(store);
}

/* ---- NVRTC ------------------------------------------------------------------------------ */
TEST(cuda_group_texts_are_compiled_by_nvrtc)
{
    if (!nvrtc_here()) SKIP("no libnvrtc");
    static const pl_dtype types[] = {PL_F32, PL_F16, PL_BF16};
    int count = 0;
    uint64_t begin = pl_sys_now_ns();

    for (int p = 0; p < N_PIECES; p++) {
        group_job j = piece_job(&pieces[p], shape_type(p % 3, types[p % 3]));
        text_shop *shop = text_shop_new();
        CHECK(group_job_make(&j, shop));
        for (uint32_t i = 0; i < j.units[0]->n; i++)
            for (uint32_t k = 0; k < j.code[0][i].n_kernels; k++) {
                size_t bytes = 0;
                const char *text = j.code[0][i].kernel[k].text;
                if (count % 2 && !pl_test_long() && !getenv("PL_TEST_COUNT")) {
                    count++;
                    continue;
                }
                CHECK_MSG(nvrtc_accepts(text, count % 4 == 2 ? 75 : 90, &bytes), "%s",
                          pieces[p].name);
                CHECK(bytes > 0);
                count++;
            }
        text_shop_free(shop);
        group_job_free(&j);
    }
    if (getenv("PL_TEST_COUNT"))
        printf("    %d kernels, %.0f ms each\n", count,
               (double)(pl_sys_now_ns() - begin) * 1e-6 / count);
}
