/* test_conv_mma.c - convolutions of patches on tensor cores (cuda/conv/conv_mma.cu), in the
 * simulator, against the definition: every element, in both 16-bit types. */
#include "base/dtype.h"
#include "base/sys.h"
#include "cuda/conv/conv.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *what;
    int64_t n, ic, oc, groups, in[2], kernel[2], stride[2], dilation[2], lo[2], hi[2];
    bool bias, dx;
} list[] = {
    {"groups of 56", 1, 112, 112, 2, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true},
    {"a stride", 1, 48, 80, 2, {11, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true, false},
    {"joined", 3, 32, 32, 8, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, false, true},
    {"two parts", 3, 48, 192, 2, {3, 4}, {1, 2}, {1, 1}, {1, 1}, {0, 1}, {0, 0}, true, true},
    {"many tiles", 10, 272, 272, 34, {2, 34}, {1, 3}, {1, 1}, {1, 1}, {0, 1}, {0, 1}, false, true},
    {"dilation", 1, 32, 48, 2, {13, 8}, {3, 2}, {1, 1}, {2, 3}, {3, 0}, {1, 3}, false, true},
    {"first layer", 1, 3, 40, 1, {13, 21}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 2}, true, false},
    {"small first layer",
     2,
     3,
     16,
     1,
     {12, 15},
     {3, 3},
     {2, 2},
     {1, 1},
     {0, 0},
     {1, 1},
     false,
     false},
    {"even windows", 1, 2, 72, 1, {10, 16}, {4, 4}, {1, 2}, {1, 1}, {1, 1}, {2, 1}, false, false},
};

static pl_conv_shape shape_of(size_t i, pl_conv_kind kind, pl_dtype dtype)
{
    pl_conv_shape c;
    memset(&c, 0, sizeof c);
    c.n = list[i].n, c.ic = list[i].ic, c.oc = list[i].oc, c.groups = list[i].groups;
    c.kind = (int32_t)kind, c.dtype = (int32_t)dtype, c.spatial = 2;
    c.bias = list[i].bias && kind == PL_CONV_Y;
    c.in[0] = c.out[0] = c.kernel[0] = c.stride[0] = c.dilation[0] = 1;
    for (int d = 0; d < 2; d++) {
        c.in[d + 1] = list[i].in[d], c.kernel[d + 1] = list[i].kernel[d];
        c.stride[d + 1] = list[i].stride[d], c.dilation[d + 1] = list[i].dilation[d];
        c.pad_lo[d + 1] = list[i].lo[d], c.pad_hi[d + 1] = list[i].hi[d];
        c.out[d + 1] = (list[i].in[d] + list[i].lo[d] + list[i].hi[d] -
                        (list[i].kernel[d] - 1) * list[i].dilation[d] - 1) /
                           list[i].stride[d] +
                       1;
    }
    return c;
}

/* Adds every product of the convolution to the operand that `kind` computes. */
static void convolve(const pl_conv_shape *c, double *x, double *w, double *y)
{
    int64_t taps = pl_conv_pixels(c->kernel), ig = c->ic / c->groups, og = c->oc / c->groups;
    for (int64_t p = 0; p < c->n * c->out[1] * c->out[2]; p++)
        for (int64_t t = 0; t < taps; t++) {
            int64_t n = p / c->out[2] / c->out[1], py = p / c->out[2] % c->out[1];
            int64_t qy = py * c->stride[1] + t / c->kernel[2] * c->dilation[1] - c->pad_lo[1];
            int64_t qx =
                p % c->out[2] * c->stride[2] + t % c->kernel[2] * c->dilation[2] - c->pad_lo[2];
            if (qy < 0 || qy >= c->in[1] || qx < 0 || qx >= c->in[2]) continue;
            for (int64_t e = 0; e < c->oc * ig; e++) {
                int64_t o = e / ig, i = o / og * ig + e % ig;
                double *a = &x[((n * c->in[1] + qy) * c->in[2] + qx) * c->ic + i];
                double *b = &w[(o * taps + t) * ig + e % ig], *to = &y[p * c->oc + o];
                if (c->kind == PL_CONV_Y)
                    *to += *a * *b;
                else if (c->kind == PL_CONV_DX)
                    *a += *to * *b;
                else
                    *b += *to * *a;
            }
        }
}

static void check(size_t at, pl_conv_kind kind, pl_dtype dtype)
{
    pl_conv_shape c = shape_of(at, kind, dtype);
    int64_t elems[4] = {c.n * pl_conv_pixels(c.in) * c.ic,
                        c.oc * pl_conv_pixels(c.kernel) * (c.ic / c.groups),
                        c.n * pl_conv_pixels(c.out) * c.oc, c.oc};
    int out = kind == PL_CONV_DX ? 0 : kind == PL_CONV_DW ? 1 : 2, wrong = 0;
    double *want[4];
    void *own[4];
    for (int k = 0; k < 4; k++) {
        want[k] = calloc((size_t)elems[k], sizeof **want);
        own[k] = aligned_alloc(64, ((size_t)elems[k] * 2 + 63) / 64 * 64);
        memset(own[k], 0xff, (size_t)elems[k] * 2);
        for (int64_t e = 0; k != out && e < elems[k]; e++) {
            pl_elem_set(dtype, own[k], e, sin((double)e * (1.7 + k) + (double)at) * 0.5);
            want[k][e] = pl_elem_get(dtype, own[k], e);
        }
    }
    for (int64_t e = 0; c.bias && e < elems[2]; e++) want[2][e] = want[3][e % c.oc];
    convolve(&c, want[0], want[1], want[2]);
    CHECK_MSG(pl_conv_mma_can(&c), "%s", list[at].what);
    void *work = malloc(pl_conv_mma_work(&c) + 1);
    const void *a = kind == PL_CONV_DX ? own[2] : own[0];
    const void *b = kind == PL_CONV_DW ? own[2] : own[1];
    CHECK_OK(pl_conv_mma(&c, a, b, c.bias ? own[3] : NULL, own[out], work));
    for (int64_t e = 0; e < elems[out]; e++) {
        double v = pl_elem_get(dtype, own[out], e), w = want[out][e];
        if (fabs(v - w) <= 0.01 * fabs(w) + 0.02) continue;
        if (wrong++ == 0)
            CHECK_MSG(false, "%s, kind %d, %s: element %lld is %g, wanted %g", list[at].what, kind,
                      pl_dtype_name(dtype), (long long)e, v, w);
    }
    CHECK_MSG(wrong == 0, "%s: %d wrong", list[at].what, wrong);
    free(work);
    for (int k = 0; k < 4; k++) {
        free(want[k]);
        free(own[k]);
    }
}

TEST(sim_convolutions_of_patches_match_the_definition)
{
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        pl_dtype dtype = i % 2 ? PL_F16 : PL_BF16;
        check(i, PL_CONV_Y, dtype);
        check(i, PL_CONV_DW, dtype);
        pl_conv_shape dx = shape_of(i, PL_CONV_DX, dtype);
        CHECK_MSG(pl_conv_mma_can(&dx) == list[i].dx, "%s", list[i].what);
        if (list[i].dx) check(i, PL_CONV_DX, dtype);
    }
}

TEST(sim_convolutions_of_patches_refuse_others)
{
    pl_conv_shape c = shape_of(0, PL_CONV_Y, PL_BF16), d = c;
    CHECK(pl_conv_mma_can(&c));
    d.dtype = PL_F32;
    CHECK(!pl_conv_mma_can(&d));
    d = c, d.groups = 1;
    CHECK(!pl_conv_mma_can(&d));
    d = c, d.in[0] = 2;
    CHECK(!pl_conv_mma_can(&d));
    d = c, d.ic = d.oc = 14;
    CHECK(!pl_conv_mma_can(&d));
}
