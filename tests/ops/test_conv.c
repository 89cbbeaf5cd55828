/* test_conv.c - convolution, pools, resizing and patches against numbers from PyTorch.
 *
 * Operands are waves, sin(f*i + 0.1) along the flat index in our layout; a result is compared
 * by its sum weighted with cos(0.23*i), which tells every element's place. The expected sums
 * were computed by PyTorch in f64. Each case runs in f64 by the reference kernels and in f32 by
 * the fastest ones.
 */
#include "base/dtype.h"
#include "ops/core/ops.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <string.h>

/* The name of the input with the weights of graph_eval_off, as a seed: the gradient of the
 * weighted sum. */
static void weigh(graph_eval *e, pl_val v)
{
    pl_type t = pl_val_type(e->g, v);
    for (int64_t i = 0; i < pl_type_elems(&t); i++)
        pl_elem_set(t.dtype, graph_eval_at(e, v), i, cos(0.23 * (double)i));
}

static pl_conv_opts opts_of(const int *s, const int *d, const int *lo, const int *hi, int groups)
{
    pl_conv_opts o = {.groups = groups};
    memcpy(o.stride, s, sizeof o.stride);
    memcpy(o.dilation, d, sizeof o.dilation);
    memcpy(o.pad_lo, lo, sizeof o.pad_lo);
    memcpy(o.pad_hi, hi, sizeof o.pad_hi);
    return o;
}

static const pl_dtype types[2] = {PL_F64, PL_F32};

/* ---- convolution ------------------------------------------------------------------------ */
typedef struct conv_case {
    int n;
    int64_t x[5], w[5];
    int stride[3], dilation[3], lo[3], hi[3], groups;
    bool bias;
    double y, dx, dw;
} conv_case;
static const conv_case convs[] = {
    {2,
     {2, 5, 6, 3},
     {4, 3, 3, 3},
     {1, 1},
     {1, 1},
     {1, 1},
     {1, 1},
     1,
     true,
     4.98267975805,
     -7.95005353902,
     12.5940732635},
    {2,
     {1, 9, 8, 4},
     {6, 3, 2, 2},
     {2, 1},
     {1, 2},
     {1, 0},
     {0, 1},
     2,
     true,
     2.22660342706,
     -10.9782616925,
     -2.20375877505},
    {2,
     {1, 7, 7, 8},
     {8, 5, 5, 1},
     {1, 1},
     {2, 2},
     {4, 4},
     {4, 4},
     8,
     false,
     0.495814507967,
     -0.0988541601836,
     22.4154145654},
    {1,
     {2, 11, 3},
     {5, 4, 3},
     {3},
     {1},
     {1},
     {2},
     1,
     true,
     1.55224199824,
     -1.48487332679,
     3.06369876716},
    {3,
     {1, 3, 4, 5, 2},
     {3, 1, 1, 1, 2},
     {1, 1, 1},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     1,
     true,
     62.0422113355,
     6.32786648075,
     92.6220482602},
    {3,
     {1, 2, 6, 4, 3},
     {8, 1, 2, 2, 3},
     {1, 2, 2},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     1,
     false,
     3.53313066848,
     5.82458984607,
     5.55691436379},
    {2,
     {1, 10, 9, 16},
     {33, 8, 8, 16},
     {2, 2},
     {1, 1},
     {3, 3},
     {3, 3},
     1,
     true,
     10.1910880221,
     -4.6337443849,
     2.80389415995},
    /* patches, with a rest beyond the last one */
    {2,
     {2, 13, 9, 3},
     {5, 4, 4, 3},
     {4, 4},
     {1, 1},
     {0, 0},
     {0, 0},
     1,
     true,
     1.34293018896,
     2.04993971704,
     -2.60746693305},
    {1,
     {2, 37, 2},
     {3, 16, 2},
     {16},
     {1},
     {0},
     {0},
     1,
     false,
     -3.95827435088,
     3.28634373377,
     8.43525782421},
    {3,
     {1, 4, 6, 9, 2},
     {4, 2, 2, 4, 2},
     {2, 2, 4},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     1,
     true,
     -41.1711094249,
     33.3155505861,
     0.541411450017},
};

static void check_conv(const conv_case *c, pl_dtype dt)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", pl_type_make(dt, c->n + 2, c->x));
    pl_val w = pl_input(g, "w", pl_type_make(dt, c->n + 2, c->w));
    pl_val b = c->bias ? pl_input(g, "b", PL_TYPE(dt, c->w[0])) : PL_NO_VAL;
    pl_conv_opts o = opts_of(c->stride, c->dilation, c->lo, c->hi, c->groups);
    pl_val y = pl_conv(g, x, w, b, &o), seed = pl_input(g, "seed", pl_val_type(g, y));
    pl_val from[2] = {x, w}, grad[2];
    pl_grad_seeded(g, &y, &seed, 1, from, 2, grad);
    CHECK_MSG(pl_graph_status(g) == PL_OK, "%s", pl_graph_error(g));
    graph_eval *e = graph_eval_new(g, dt == PL_F64);
    graph_eval_wave(e, x, 0.37);
    graph_eval_wave(e, w, 0.61);
    if (c->bias) graph_eval_wave(e, b, 0.9);
    weigh(e, seed);
    CHECK_OK(graph_eval_run(e));
    CHECK(graph_eval_off(e, y, c->y) < 1);
    CHECK(graph_eval_off(e, grad[0], c->dx) < 1);
    CHECK(graph_eval_off(e, grad[1], c->dw) < 1);
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(s);
}

TEST(conv_agrees_with_pytorch)
{
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++)
        for (int t = 0; t < 2; t++) check_conv(&convs[i], types[t]);
}

/* The library's filter gradient of patches needs memory that grows with the square of the image. */
TEST(conv_over_patches_is_a_product)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 64, 48, 3));
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, 8, 16, 16, 3)), from[2] = {x, w}, grad[2];
    pl_val y = pl_conv(g, x, w, PL_NO_VAL, &(pl_conv_opts){.stride = {16, 16}});
    pl_grad(g, pl_sum(g, pl_square(g, y), 0xf, false), from, 2, grad);
    char *text = NULL;
    CHECK_OK(pl_graph_print(g, &text));
    CHECK_MSG(strstr(text, "matmul") && !strstr(text, "conv"), "%s", text);
    pl_text_free(text);
    pl_graph_free(g);
    pl_store_free(s);
}

typedef struct transpose_case {
    int n;
    int64_t x[5], w[5];
    int stride[3], pad[3], out_pad[3], groups;
    int64_t shape[5];
    double y;
} transpose_case;
static const transpose_case transposes[] = {
    {2, {1, 3, 4, 2}, {2, 16, 16, 3}, {2, 2}, {7, 7}, {0, 0}, 1, {1, 6, 8, 3}, 3.79169563245},
    {2, {2, 3, 3, 4}, {4, 4, 4, 5}, {2, 2}, {1, 1}, {0, 0}, 1, {2, 6, 6, 5}, -0.492492901131},
    {2, {1, 4, 3, 4}, {4, 3, 3, 2}, {2, 3}, {1, 0}, {1, 2}, 2, {1, 8, 11, 4}, 0.429586636189},
    {1, {1, 5, 3}, {3, 4, 2}, {2}, {1}, {0}, 1, {1, 10, 2}, -3.62403429279},
};

static void check_transpose(const transpose_case *c, pl_dtype dt)
{
    static const int ones[3] = {1, 1, 1};
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", pl_type_make(dt, c->n + 2, c->x));
    pl_val w = pl_input(g, "w", pl_type_make(dt, c->n + 2, c->w));
    pl_val b = pl_input(g, "b", PL_TYPE(dt, c->w[c->n + 1] * c->groups));
    pl_conv_opts o = opts_of(c->stride, ones, c->pad, c->pad, c->groups);
    pl_val y = pl_conv_transpose(g, x, w, b, &o, c->out_pad);
    CHECK_MSG(pl_graph_status(g) == PL_OK, "%s", pl_graph_error(g));
    pl_type want = pl_type_make(dt, c->n + 2, c->shape), got = pl_val_type(g, y);
    CHECK(pl_type_equal(&want, &got));
    graph_eval *e = graph_eval_new(g, dt == PL_F64);
    graph_eval_wave(e, x, 0.37);
    graph_eval_wave(e, w, 0.61);
    graph_eval_wave(e, b, 0.9);
    CHECK_OK(graph_eval_run(e));
    CHECK(graph_eval_off(e, y, c->y) < 1);
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(s);
}

TEST(conv_transpose_agrees_with_pytorch)
{
    for (size_t i = 0; i < sizeof transposes / sizeof transposes[0]; i++)
        for (int t = 0; t < 2; t++) check_transpose(&transposes[i], types[t]);
}

/* A separate depthwise kernel for each sample equals B*C groups over a [1, H, W, B*C] picture. */
TEST(conv_per_sample_is_grouped_conv)
{
    enum { N = 3, H = 6, W = 5, C = 4, K = 3 };
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F64, N, H, W, C));
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F64, N, K, K, C));
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    pl_val y = pl_conv_per_sample(g, x, w, &o);

    o.groups = N * C;
    pl_val x1 = pl_reshape(g, pl_permute(g, x, (const int[]){1, 2, 0, 3}), PL_DIMS(1, H, W, N * C));
    pl_val w1 = pl_reshape(g, pl_permute(g, w, (const int[]){0, 3, 1, 2}), PL_DIMS(N * C, K, K, 1));
    pl_val y1 = pl_reshape(g, pl_conv(g, x1, w1, PL_NO_VAL, &o), PL_DIMS(H, W, N, C));
    pl_val d = pl_sub(g, y, pl_permute(g, y1, (const int[]){2, 0, 1, 3}));
    CHECK_MSG(pl_graph_status(g) == PL_OK, "%s", pl_graph_error(g));

    graph_eval *e = graph_eval_new(g, true);
    graph_eval_wave(e, x, 0.37);
    graph_eval_wave(e, w, 0.61);
    CHECK_OK(graph_eval_run(e));
    const double *at = graph_eval_at(e, d);
    for (int i = 0; i < N * H * W * C; i++) CHECK_NEAR(at[i], 0, 1e-12);
    CHECK(fabs(((const double *)graph_eval_at(e, y))[7]) > 1e-3);
    graph_eval_free(e);
    pl_graph_free(g);
    pl_store_free(s);
}

TEST(conv_errors_name_the_numbers)
{
    pl_store *s = pl_store_new();
    pl_graph *g = pl_graph_new(s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 8, 8, 3));
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, 16, 3, 3, 4));

    pl_scope_push(g, "stem");
    CHECK(!pl_val_ok(pl_conv(g, x, w, PL_NO_VAL, NULL)));
    CHECK_INT(pl_graph_status(g), PL_ERR_SHAPE);
    CHECK_MSG(strstr(pl_graph_error(g), "stem") && strstr(pl_graph_error(g), "f32[1,8,8,3]") &&
                  strstr(pl_graph_error(g), "f32[16,3,3,4]"),
              "%s", pl_graph_error(g));
    pl_graph_free(g);
    g = pl_graph_new(s);
    x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 2, 8, 4));
    w = pl_input(g, "w", PL_TYPE(PL_F32, 16, 3, 3, 4));

    CHECK(!pl_val_ok(pl_conv(g, x, w, PL_NO_VAL, NULL)));
    CHECK_MSG(strstr(pl_graph_error(g), "does not fit"), "%s", pl_graph_error(g));
    pl_graph_free(g);
    pl_store_free(s);
}

/* ---- one operand: resizing, pools, patches ---------------------------------------------- */
typedef struct unary {
    pl_store *s;
    pl_graph *g;
    pl_val x;
} unary;

static unary unary_new(pl_dtype dt, int rank, const int64_t *dim)
{
    unary u = {.s = pl_store_new()};
    u.g = pl_graph_new(u.s);
    u.x = pl_input(u.g, "x", pl_type_make(dt, rank, dim));
    return u;
}

/* Runs, compares, frees. */
static void unary_check(unary u, pl_dtype dt, pl_val y, double want, const char *what, int i)
{
    CHECK_MSG(pl_graph_status(u.g) == PL_OK, "%s", pl_graph_error(u.g));
    graph_eval *e = graph_eval_new(u.g, dt == PL_F64);
    graph_eval_wave(e, u.x, 0.37);
    CHECK_OK(graph_eval_run(e));
    CHECK_MSG(graph_eval_off(e, y, want) < 1, "%s %d: off by %g", what, i,
              graph_eval_off(e, y, want));
    graph_eval_free(e);
    pl_graph_free(u.g);
    pl_store_free(u.s);
}

typedef struct resize_case {
    int n;
    int64_t x[5], out[3];
    pl_resize_mode mode;
    bool align;
    double y;
} resize_case;
static const resize_case resizes[] = {
    {2, {1, 5, 7, 2}, {10, 14}, PL_RESIZE_NEAREST, false, -0.994853892829},
    {2, {1, 5, 7, 2}, {10, 14}, PL_RESIZE_LINEAR, false, -0.412280045098},
    {2, {1, 5, 7, 2}, {10, 14}, PL_RESIZE_LINEAR, true, 4.502131983},
    {2, {1, 5, 7, 2}, {10, 14}, PL_RESIZE_CUBIC, false, -1.0630933158},
    {2, {1, 5, 7, 2}, {10, 14}, PL_RESIZE_CUBIC, true, 5.76849455031},
    {2, {1, 9, 8, 3}, {4, 5}, PL_RESIZE_NEAREST, false, 1.91664622234},
    {2, {1, 9, 8, 3}, {4, 5}, PL_RESIZE_LINEAR, false, 0.190622189211},
    {2, {1, 9, 8, 3}, {4, 5}, PL_RESIZE_LINEAR, true, -0.709005299075},
    {2, {1, 9, 8, 3}, {4, 5}, PL_RESIZE_CUBIC, false, -0.175629352803},
    {2, {1, 9, 8, 3}, {4, 5}, PL_RESIZE_CUBIC, true, -0.291583838536},
    {2, {1, 3, 4, 2}, {7, 5}, PL_RESIZE_NEAREST, false, 5.02960266661},
    {2, {1, 3, 4, 2}, {7, 5}, PL_RESIZE_LINEAR, false, -1.10173100858},
    {2, {1, 3, 4, 2}, {7, 5}, PL_RESIZE_LINEAR, true, -1.5864189367},
    {2, {1, 3, 4, 2}, {7, 5}, PL_RESIZE_CUBIC, false, -2.27641582658},
    {2, {1, 3, 4, 2}, {7, 5}, PL_RESIZE_CUBIC, true, -2.29079615806},
    {2, {1, 6, 6, 1}, {6, 11}, PL_RESIZE_NEAREST, false, -20.8740291504},
    {2, {1, 6, 6, 1}, {6, 11}, PL_RESIZE_LINEAR, false, -19.6326865821},
    {2, {1, 6, 6, 1}, {6, 11}, PL_RESIZE_LINEAR, true, -19.376800997},
    {2, {1, 6, 6, 1}, {6, 11}, PL_RESIZE_CUBIC, false, -19.9986388224},
    {2, {1, 6, 6, 1}, {6, 11}, PL_RESIZE_CUBIC, true, -19.607373516},
    {2, {1, 1, 3, 2}, {4, 4}, PL_RESIZE_NEAREST, false, 2.0862098079},
    {2, {1, 1, 3, 2}, {4, 4}, PL_RESIZE_LINEAR, false, 2.5822480474},
    {2, {1, 1, 3, 2}, {4, 4}, PL_RESIZE_LINEAR, true, 2.6061047814},
    {2, {1, 1, 3, 2}, {4, 4}, PL_RESIZE_CUBIC, false, 2.59337101258},
    {2, {1, 1, 3, 2}, {4, 4}, PL_RESIZE_CUBIC, true, 2.66343366807},
    {2, {1, 13, 11, 2}, {5, 17}, PL_RESIZE_NEAREST, false, 31.2973328025},
    {2, {1, 13, 11, 2}, {5, 17}, PL_RESIZE_LINEAR, false, 19.4085584124},
    {2, {1, 13, 11, 2}, {5, 17}, PL_RESIZE_LINEAR, true, -10.1656099844},
    {2, {1, 13, 11, 2}, {5, 17}, PL_RESIZE_CUBIC, false, 16.6440258354},
    {2, {1, 13, 11, 2}, {5, 17}, PL_RESIZE_CUBIC, true, -10.6866689928},
    {1, {2, 7, 3}, {12}, PL_RESIZE_LINEAR, false, -14.1738466529},
    {3, {1, 2, 3, 4, 2}, {3, 5, 6}, PL_RESIZE_LINEAR, true, 5.92097085608},
};

TEST(resize_agrees_with_pytorch)
{
    for (size_t i = 0; i < sizeof resizes / sizeof resizes[0]; i++)
        for (int t = 0; t < 2; t++) {
            const resize_case *c = &resizes[i];
            unary u = unary_new(types[t], c->n + 2, c->x);
            pl_val y = pl_resize(u.g, u.x, c->out, c->mode, c->align);
            unary_check(u, types[t], y, c->y, "resize", (int)i);
        }
}

typedef struct pool_case {
    int64_t x[4];
    int kernel[3], stride[3], pad[3];
    double max, avg, avg_counted;
} pool_case;
static const pool_case pools[] = {
    {{2, 8, 6, 3}, {2, 2}, {2, 2}, {0, 0}, 2.26458610665, 2.63030835547, 2.63030835547},
    {{1, 7, 9, 5}, {3, 3}, {2, 2}, {1, 1}, -2.66856938403, 0.590971651601, 0.247139949573},
    {{1, 6, 5, 2}, {3, 2}, {1, 2}, {1, 0}, -2.24554130497, 0.231340316461, 0.224986277471},
};

TEST(pools_agree_with_pytorch)
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 6; k++) {
            const pool_case *c = &pools[i];
            pl_dtype dt = types[k % 2];
            pl_pool_opts o = {.count_pad = k >= 4};
            memcpy(o.kernel, c->kernel, sizeof o.kernel);
            memcpy(o.stride, c->stride, sizeof o.stride);
            memcpy(o.pad_lo, c->pad, sizeof o.pad_lo);
            memcpy(o.pad_hi, c->pad, sizeof o.pad_hi);
            unary u = unary_new(dt, 4, c->x);
            pl_val y = k < 2 ? pl_max_pool(u.g, u.x, &o) : pl_avg_pool(u.g, u.x, &o);
            unary_check(u, dt, y, k < 2 ? c->max : k < 4 ? c->avg : c->avg_counted, "pool", i);
        }
}

typedef struct adaptive_case {
    int64_t x[4], out[2];
    double y;
} adaptive_case;
static const adaptive_case adaptives[] = {
    {{2, 7, 5, 3}, {1, 1}, 0.087602329384},
    {{1, 7, 9, 2}, {3, 4}, 3.02689776023},
    {{1, 3, 4, 2}, {5, 6}, 2.51011948177},
};

TEST(adaptive_pool_agrees_with_pytorch)
{
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 2; t++) {
            unary u = unary_new(types[t], 4, adaptives[i].x);
            pl_val y = pl_adaptive_avg_pool(u.g, u.x, adaptives[i].out);
            unary_check(u, types[t], y, adaptives[i].y, "adaptive", i);
        }
}

typedef struct unfold_case {
    int64_t x[4];
    int kernel[2], stride[3], dilation[3], pad[3];
    double y;
} unfold_case;
static const unfold_case unfolds[] = {
    {{1, 5, 6, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 0.426113773364},
    {{2, 8, 8, 2}, {4, 4}, {4, 4}, {1, 1}, {0, 0}, 2.34567702043},
    {{1, 7, 6, 2}, {2, 3}, {2, 1}, {2, 1}, {1, 0}, -0.155205301771},
};

TEST(unfold_agrees_with_pytorch)
{
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 2; t++) {
            const unfold_case *c = &unfolds[i];
            pl_conv_opts o = opts_of(c->stride, c->dilation, c->pad, c->pad, 1);
            unary u = unary_new(types[t], 4, c->x);
            pl_val y = pl_unfold(u.g, u.x, &o, c->kernel);
            unary_check(u, types[t], y, c->y, "unfold", i);
        }
}
