/* test_dnn_conv.c - convolutions of the oneDNN wrapper against plain loops in double: one to
 * three dimensions, forward and both gradients, inside the requested workspace. */
#include "tests/cpu/dnn_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- convolution ------------------------------------------------------------------------ */

/* Every kind of one convolution; returns the worst relative error, or a number > 1 and a message.
 */
static double try_conv(const conv *c, pl_dnn_conv_kind kind)
{
    geometry g =
        dnn_geometry(c->n_spatial, c->in, c->out, c->kernel, c->stride, c->dilation, c->pad_lo);
    int64_t nx = c->n * g.in_elems * c->ic, ny = c->n * g.out_elems * c->oc;
    int64_t nw = c->oc * g.taps * (c->ic / c->groups);
    int64_t n_res = kind == PL_DNN_CONV_FWD ? ny : kind == PL_DNN_CONV_BWD_DATA ? nx : nw;
    int64_t terms = kind == PL_DNN_CONV_FWD        ? nw / c->oc
                    : kind == PL_DNN_CONV_BWD_DATA ? nw / c->ic
                                                   : ny / c->oc;
    float *x = dnn_noise(nx, 1), *w = dnn_noise(nw, 2), *dy = dnn_noise(ny, 3),
          *b = dnn_noise(c->oc, 4);
    double *want = calloc((size_t)n_res, sizeof *want), err = 10;
    pl_dnn *d = NULL;
    size_t work = 0;
    guarded_block out = guarded_new((size_t)n_res * 4);
    const void *in[3][3] = {{x, w, b}, {dy, w, NULL}, {x, dy, NULL}};
    if (!want) abort();
    pl_status s = pl_dnn_conv_prepare(kind, c, &d, &work);
    /* Grouped 3-D gradients may be refused (they would allocate in a run); nothing else may. */
    if (s == PL_ERR_UNSUPPORTED && kind != PL_DNN_CONV_FWD && c->n_spatial == 3 && c->groups > 1)
        err = 0;
    if (s == PL_OK && dnn_run(d, work, in[kind], &out, 1)) {
        dnn_naive_conv(kind, c, x, w, c->bias ? b : NULL, dy, want);
        err = dnn_worst((const float *)out.data, want, n_res, terms);
    }
    if (!(err < 1e-5))
        printf("  kind %d, n %d, %d->%d/%d, kernel %d: %s: error %g\n", (int)kind, (int)c->n,
               (int)c->ic, (int)c->oc, (int)c->groups, (int)c->kernel[0],
               d ? pl_dnn_impl(d) : pl_error_text(), err);
    if (getenv("PL_TEST_IMPL"))
        printf("  kind %d, n %d, %d->%d/%d, kernel %d: %s work %zu error %g\n", (int)kind,
               (int)c->n, (int)c->ic, (int)c->oc, (int)c->groups, (int)c->kernel[0],
               d ? pl_dnn_impl(d) : "none", work, err);
    pl_dnn_free(d);
    guarded_free(&out);
    free(x), free(w), free(dy), free(b), free(want);
    return err;
}

static bool try_kinds(const conv *c)
{
    conv with_bias = *c;
    with_bias.bias = true;
    return try_conv(c, PL_DNN_CONV_FWD) < 1e-5 && try_conv(&with_bias, PL_DNN_CONV_FWD) < 1e-5 &&
           try_conv(c, PL_DNN_CONV_BWD_DATA) < 1e-5 && try_conv(c, PL_DNN_CONV_BWD_WEIGHTS) < 1e-5;
}

TEST(dnn_conv_2d_matches_loops)
{
    /*   n   h   w  ic  oc  g  k  s  d lo hi */
    const conv list[] = {
        dnn_conv2(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0),
        dnn_conv2(2, 7, 9, 5, 7, 1, 3, 1, 1, 1, 1),
        dnn_conv2(1, 8, 8, 16, 32, 1, 3, 2, 1, 1, 1),
        dnn_conv2(3, 9, 5, 17, 33, 1, 3, 1, 2, 2, 2),
        dnn_conv2(1, 10, 11, 8, 24, 1, 4, 2, 1, 1, 1),
        dnn_conv2(2, 12, 12, 32, 16, 1, 1, 1, 1, 0, 0),
        dnn_conv2(2, 12, 12, 32, 16, 1, 1, 2, 1, 0, 0),
        dnn_conv2(1, 13, 13, 16, 16, 1, 5, 1, 2, 4, 4),
        dnn_conv2(1, 6, 6, 16, 48, 1, 2, 1, 1, 0, 1),
        dnn_conv2(1, 7, 7, 24, 8, 1, 3, 2, 1, 0, 1),
        dnn_conv2(1, 16, 16, 19, 37, 1, 8, 2, 1, 3, 3),
        dnn_conv2(2, 11, 11, 64, 64, 1, 3, 3, 1, 1, 1),
        dnn_conv2(2, 9, 9, 16, 16, 16, 3, 1, 1, 1, 1),
        dnn_conv2(1, 9, 9, 21, 21, 21, 5, 2, 1, 2, 2),
        dnn_conv2(1, 9, 9, 16, 32, 16, 3, 1, 1, 1, 1),
        dnn_conv2(2, 9, 9, 32, 64, 4, 3, 1, 1, 1, 1),
        dnn_conv2(1, 9, 9, 12, 18, 3, 3, 2, 1, 1, 0),
        dnn_conv2(1, 9, 9, 8, 8, 8, 7, 1, 1, 3, 3),
        dnn_conv2(1, 9, 9, 8, 8, 8, 3, 1, 2, 2, 2),
        dnn_conv2(2, 5, 5, 32, 16, 1, 16, 2, 1, 7, 7),
        dnn_conv2(2, 32, 31, 32, 16, 1, 16, 2, 1, 7, 7),
        dnn_conv2(1, 24, 33, 16, 32, 1, 15, 2, 1, 6, 7),
        dnn_conv2(1, 1, 40, 16, 16, 1, 1, 1, 1, 0, 0),
        dnn_conv2(1, 4, 4, 16, 16, 1, 3, 1, 1, 3, 2),
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) CHECK(try_kinds(&list[i]));
}

TEST(dnn_conv_with_few_channels_matches_loops)
{
    const conv list[] = {
        dnn_conv2(2, 12, 15, 1, 64, 1, 3, 1, 1, 1, 1),
        dnn_conv2(1, 12, 15, 64, 1, 1, 3, 1, 1, 1, 1),
        dnn_conv2(2, 12, 15, 3, 32, 1, 4, 2, 1, 1, 1),
        dnn_conv2(2, 12, 15, 32, 3, 1, 4, 2, 1, 1, 1),
        dnn_conv2(2, 9, 9, 24, 4, 1, 5, 1, 2, 3, 4),
        dnn_conv2(1, 9, 8, 4, 24, 1, 5, 1, 2, 3, 4),
        dnn_conv2(3, 9, 7, 3, 17, 1, 7, 3, 1, 3, 2),
        dnn_conv2(1, 5, 5, 16, 8, 1, 2, 1, 1, 1, 0),
        dnn_conv2(2, 50, 90, 67, 3, 1, 1, 1, 1, 0, 0),
        dnn_conv2(2, 50, 90, 4, 33, 1, 1, 1, 1, 0, 0),
        dnn_conv2(1, 20, 20, 1, 1, 1, 3, 1, 1, 1, 1),
        dnn_conv2(2, 6, 6, 8, 16, 1, 3, 2, 2, 2, 2),
        dnn_conv2(1, 3, 3, 2, 16, 1, 3, 4, 1, 0, 0),
        dnn_conv2(2, 9, 9, 40, 2, 1, 3, 1, 3, 0, 0),
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) CHECK(try_kinds(&list[i]));
}

/* Kernels of 1 with a stride, channels that are not whole vectors: bytes after the workspace do
 * not change. */
TEST(dnn_conv_stays_in_its_workspace)
{
    enum { BEHIND = 8192 };
    static const int64_t channels[][2] = {{13, 3}, {24, 40}, {16, 17}, {33, 16}};
    for (int i = 0; i < 12; i++) {
        pl_dnn_conv_desc c = {.dtype = PL_F32,
                              .n_spatial = 1,
                              .n = 3,
                              .ic = channels[i / 3][0],
                              .oc = channels[i / 3][1],
                              .groups = 1,
                              .in = {148},
                              .out = {74},
                              .kernel = {1},
                              .stride = {2},
                              .dilation = {1}};
        size_t bytes[3] = {(size_t)(3 * 148 * c.ic) * 4, (size_t)(c.ic * c.oc) * 4,
                           (size_t)(3 * 74 * c.oc) * 4},
               work_bytes;
        int which[3][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}}; /* x w > y, dy w > dx, x dy > dw */
        const int *m = which[i % 3];
        char *t[3];
        for (int k = 0; k < 3; k++) t[k] = calloc(1, (bytes[k] + 63) / 64 * 64);
        pl_dnn *d;
        CHECK_OK(pl_dnn_conv_prepare((pl_dnn_conv_kind)(i % 3), &c, &d, &work_bytes));
        unsigned char *work = aligned_alloc(64, (work_bytes + 63) / 64 * 64 + BEHIND);
        memset(work, 0x5a, work_bytes + BEHIND);
        CHECK_OK(
            pl_dnn_run(d, (const void *const[]){t[m[0]], t[m[1]]}, (void *const[]){t[m[2]]}, work));
        size_t past = 0;
        for (size_t at = 0; at < BEHIND; at++)
            if (work[work_bytes + at] != 0x5a) past = at + 1;
        CHECK_MSG(!past, "kind %d, %lld to %lld channels (%s): %zu bytes past its %zu", i % 3,
                  (long long)c.ic, (long long)c.oc, pl_dnn_impl(d), past, work_bytes);
        pl_dnn_free(d);
        free(work);
        for (int k = 0; k < 3; k++) free(t[k]);
    }
}

static const conv convs_1d_3d[] = {
    {.n_spatial = 1,
     .n = 2,
     .ic = 16,
     .oc = 24,
     .groups = 1,
     .in = {20},
     .out = {20},
     .kernel = {3},
     .stride = {1},
     .dilation = {1},
     .pad_lo = {2},
     .pad_hi = {0}},
    {.n_spatial = 1,
     .n = 1,
     .ic = 3,
     .oc = 20,
     .groups = 1,
     .in = {21},
     .out = {10},
     .kernel = {4},
     .stride = {2},
     .dilation = {1},
     .pad_lo = {1},
     .pad_hi = {0}},
    {.n_spatial = 3,
     .n = 2,
     .ic = 16,
     .oc = 48,
     .groups = 1,
     .in = {3, 8, 8},
     .out = {3, 4, 4},
     .kernel = {1, 2, 2},
     .stride = {1, 2, 2},
     .dilation = {1, 1, 1}},
    {.n_spatial = 3,
     .n = 1,
     .ic = 4,
     .oc = 16,
     .groups = 1,
     .in = {2, 5, 6},
     .out = {2, 5, 6},
     .kernel = {1, 1, 1},
     .stride = {1, 1, 1},
     .dilation = {1, 1, 1}},
    {.n_spatial = 3,
     .n = 1,
     .ic = 8,
     .oc = 8,
     .groups = 2,
     .in = {4, 5, 6},
     .out = {4, 5, 3},
     .kernel = {3, 3, 2},
     .stride = {1, 1, 2},
     .dilation = {1, 1, 1},
     .pad_lo = {1, 2, 0},
     .pad_hi = {1, 0, 0}},
    {.n_spatial = 3,
     .n = 2,
     .ic = 16,
     .oc = 2,
     .groups = 1,
     .in = {4, 5, 6},
     .out = {4, 5, 6},
     .kernel = {3, 3, 3},
     .stride = {1, 1, 1},
     .dilation = {1, 1, 1},
     .pad_lo = {1, 1, 1},
     .pad_hi = {1, 1, 1}},
    {.n_spatial = 3,
     .n = 2,
     .ic = 2,
     .oc = 16,
     .groups = 1,
     .in = {4, 5, 6},
     .out = {2, 3, 3},
     .kernel = {3, 3, 3},
     .stride = {2, 2, 2},
     .dilation = {1, 1, 1},
     .pad_lo = {1, 1, 1},
     .pad_hi = {1, 1, 1}},
};

TEST(dnn_conv_1d_and_3d_match_loops)
{
    for (size_t i = 0; i < sizeof convs_1d_3d / sizeof *convs_1d_3d; i++)
        CHECK(try_kinds(&convs_1d_3d[i]));
}
