/* test_cuda_conv.c - convolutions as products over columns, in the simulator, against the
 * definition.
 *
 * Shapes are large enough that columns are processed in parts, the last one shorter; a few hundred
 * elements of each result, corners among them, are computed by the definition. */
#include "base/dtype.h"
#include "base/sys.h"
#include "cublasLt.h"
#include "cuda/conv/conv.h"
#include "ops/net/tail.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>

typedef struct shapes {
    const char *what;
    int64_t n, ic, oc, in[3], kernel[3], stride[3], dilation[3], lo[3], hi[3];
    bool bias;
    int kinds; /* bits: y, dx, dw are taken */
} shapes;

static const shapes list[] = {
    {"parts",
     2,
     64,
     16,
     {1, 63, 65},
     {1, 3, 3},
     {1, 1, 1},
     {1, 1, 1},
     {0, 1, 0},
     {0, 1, 2},
     true,
     7},
    {"stride",
     2,
     33,
     40,
     {1, 66, 80},
     {1, 4, 4},
     {1, 2, 2},
     {1, 1, 2},
     {0, 1, 3},
     {0, 2, 1},
     false,
     5},
    {"phases",
     2,
     48,
     40,
     {1, 47, 50},
     {1, 4, 4},
     {1, 2, 2},
     {1, 1, 1},
     {0, 1, 1},
     {0, 1, 1},
     false,
     7},
    {"three",
     1,
     64,
     48,
     {1, 40, 62},
     {1, 5, 3},
     {1, 3, 1},
     {1, 1, 1},
     {0, 2, 0},
     {0, 0, 1},
     false,
     7},
    {"dilation",
     2,
     80,
     34,
     {1, 32, 41},
     {1, 2, 3},
     {1, 1, 1},
     {1, 2, 1},
     {0, 1, 1},
     {0, 1, 0},
     true,
     7},
    {"one tap",
     2,
     80,
     176,
     {1, 32, 40},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     true,
     7},
    {"volume",
     1,
     32,
     24,
     {6, 20, 24},
     {3, 3, 3},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     false,
     7},
};

static pl_conv_shape shape_of(const shapes *s, pl_conv_kind kind)
{
    pl_conv_shape c = {.n = s->n,
                       .ic = s->ic,
                       .oc = s->oc,
                       .groups = 1,
                       .kind = (int32_t)kind,
                       .dtype = PL_F32,
                       .spatial = 3,
                       .bias = s->bias && kind == PL_CONV_Y};
    for (int d = 0; d < 3; d++) {
        c.in[d] = s->in[d], c.kernel[d] = s->kernel[d], c.stride[d] = s->stride[d];
        c.dilation[d] = s->dilation[d], c.pad_lo[d] = s->lo[d], c.pad_hi[d] = s->hi[d];
        c.out[d] = (s->in[d] + s->lo[d] + s->hi[d] - (s->kernel[d] - 1) * s->dilation[d] - 1) /
                       s->stride[d] +
                   1;
    }
    return c;
}

static uint32_t state;
static bool exact_in_tf32; /* numbers of 8 bits, whose products are exact in f32 */
static float draw(void)
{
    state = state * 1664525u + 1013904223u;
    float v = (float)(int32_t)state * 0x1p-31f;
    return exact_in_tf32 ? rintf(v * 256) / 256 : v;
}

/* What tap k of output pixel p reads, flat; -1 in the padding. */
static int64_t source(const pl_conv_shape *c, int64_t p, int64_t k)
{
    int64_t at = 0, pp[3] = {p / c->out[2] / c->out[1], p / c->out[2] % c->out[1], p % c->out[2]};
    int64_t kk[3] = {k / c->kernel[2] / c->kernel[1], k / c->kernel[2] % c->kernel[1],
                     k % c->kernel[2]};
    for (int d = 0; d < 3; d++) {
        int64_t q = pp[d] * c->stride[d] + kk[d] * c->dilation[d] - c->pad_lo[d];
        if (q < 0 || q >= c->in[d]) return -1;
        at = at * c->in[d] + q;
    }
    return at;
}

typedef struct data {
    pl_conv_shape c;
    float *x, *w, *y, *bias, *add; /* of dx: y is dy; of dw too */
} data;

static double y_at(const data *d, int64_t e)
{
    const pl_conv_shape *c = &d->c;
    int64_t o = e % c->oc, plane = pl_conv_pixels(c->out), p = e / c->oc,
            taps = pl_conv_pixels(c->kernel);
    double sum = c->bias ? (double)d->bias[o] : 0;
    for (int64_t t = 0; t < taps; t++) {
        int64_t q = source(c, p % plane, t);
        for (int64_t i = 0; q >= 0 && i < c->ic; i++)
            sum += (double)d->x[(p / plane * pl_conv_pixels(c->in) + q) * c->ic + i] *
                   (double)d->w[(o * taps + t) * c->ic + i];
    }
    return sum;
}

static double dx_at(const data *d, int64_t e)
{
    const pl_conv_shape *c = &d->c;
    int64_t i = e % c->ic, inside = pl_conv_pixels(c->in), q = e / c->ic % inside,
            n = e / c->ic / inside;
    int64_t plane = pl_conv_pixels(c->out), taps = pl_conv_pixels(c->kernel);
    double sum = 0;
    for (int64_t p = 0; p < plane; p++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t o = 0; source(c, p, t) == q && o < c->oc; o++)
                sum += (double)d->y[(n * plane + p) * c->oc + o] *
                       (double)d->w[(o * taps + t) * c->ic + i];
    return sum;
}

static double dw_at(const data *d, int64_t e)
{
    const pl_conv_shape *c = &d->c;
    int64_t taps = pl_conv_pixels(c->kernel), i = e % c->ic, t = e / c->ic % taps,
            o = e / c->ic / taps;
    int64_t plane = pl_conv_pixels(c->out);
    double sum = 0;
    for (int64_t m = 0; m < c->n * plane; m++) {
        int64_t q = source(c, m % plane, t);
        if (q < 0) continue;
        sum += (double)d->x[(m / plane * pl_conv_pixels(c->in) + q) * c->ic + i] *
               (double)d->y[m * c->oc + o];
    }
    return sum;
}

static void free_data(data *d)
{
    free(d->x), free(d->w), free(d->y), free(d->bias), free(d->add);
}

static float *drawn(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);
    for (int64_t i = 0; p && i < n; i++) p[i] = draw();
    return p;
}

/* How many elements the operands have, and the result. */
static int64_t draw_data(data *d)
{
    const pl_conv_shape *c = &d->c;
    int64_t nx = c->n * pl_conv_pixels(c->in) * c->ic,
            nw = c->oc * pl_conv_pixels(c->kernel) * c->ic;
    int64_t ny = c->n * pl_conv_pixels(c->out) * c->oc, n_out = c->kind == PL_CONV_Y    ? ny
                                                                : c->kind == PL_CONV_DX ? nx
                                                                                        : nw;
    d->x = drawn(nx), d->w = drawn(nw), d->y = drawn(ny), d->bias = drawn(c->oc);
    if (c->add) d->add = drawn(n_out);
    return n_out;
}

/* 240 elements of the result, by the definition. */
static void check_result(const shapes *s, const data *d, const float *out, int64_t n_out)
{
    static double (*const at[3])(const data *, int64_t) = {y_at, dx_at, dw_at};
    const pl_conv_shape *c = &d->c;
    for (int64_t k = 0; k < 240; k++) {
        int64_t e = k == 0   ? 0
                    : k == 1 ? n_out - 1
                             : (int64_t)((double)(draw() + 1) * 0.5 * (double)(n_out - 1));
        double right = at[c->kind](d, e) + (c->add ? (double)d->add[e] : 0);
        double terms = c->kind == PL_CONV_DW ? (double)(c->n * pl_conv_pixels(c->out))
                                             : (double)(pl_conv_pixels(c->kernel) * c->ic);
        if (c->act == PL_ACT_RELU && right < 0) right = 0;
        if (!(fabs(right - (double)out[e]) <= 1e-6 * sqrt(terms) + 1e-5 * fabs(right)))
            CHECK_MSG(false, "%s %d: element %lld is %g, not %g", s->what, c->kind, (long long)e,
                      (double)out[e], right);
    }
}

static void check_kind(const shapes *s, pl_conv_kind kind)
{
    data d = {.c = shape_of(s, kind)};
    const pl_conv_shape *c = &d.c;
    bool takes = pl_conv_product_takes(c), want = s->kinds >> kind & 1;
    CHECK_MSG(takes == want, "%s %d: %s", s->what, kind, takes ? "taken" : "not taken");
    if (!takes || !want) return;
    void *prep = NULL;
    size_t work_bytes = 0;
    CHECK_OK(pl_conv_product_prepare(c, &prep, &work_bytes));
    int64_t n_out = draw_data(&d);
    char *work = malloc(work_bytes + 64);
    float *out = drawn(n_out);
    const float *a = kind == PL_CONV_DX ? d.y : d.x, *b = kind == PL_CONV_DW ? d.y : d.w;
    CHECK_OK(pl_conv_product_run(prep, a, b, c->bias ? d.bias : NULL, out, work));
    check_result(s, &d, out, n_out);
    free_data(&d), free(out), free(work);
    pl_conv_product_release(prep);
}

TEST(cuda_conv_products_match_the_definition)
{
    /* One of the three products of every second shape; all of them in a long run. */
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t kind = 0; kind < 3; kind++)
            if (pl_test_long() || (i % 2 == 0 && kind == i % 3))
                check_kind(&list[i], (pl_conv_kind)kind);
}

/* bf16 with channels that are not multiples of 8. */
static void check_short(const shapes *s, pl_conv_kind kind)
{
    data d = {.c = shape_of(s, kind)};
    pl_conv_shape *c = &d.c;
    c->dtype = PL_BF16;
    int64_t nx = c->n * pl_conv_pixels(c->in) * c->ic,
            nw = c->oc * pl_conv_pixels(c->kernel) * c->ic;
    int64_t ny = c->n * pl_conv_pixels(c->out) * c->oc, size[3] = {nx, nw, ny},
            n_out = kind == PL_CONV_Y ? ny : nx;
    CHECK(pl_conv_product_takes(c));
    void *prep = NULL;
    size_t work_bytes = 0;
    CHECK_OK(pl_conv_product_prepare(c, &prep, &work_bytes));
    float *wide[3];
    uint16_t *thin[3];
    for (int k = 0; k < 3; k++) {
        wide[k] = malloc((size_t)size[k] * 4), thin[k] = malloc((size_t)size[k] * 2);
        for (int64_t i = 0; i < size[k]; i++)
            wide[k][i] = pl_bf16_to_f32(thin[k][i] = pl_f32_to_bf16(draw()));
    }
    d.x = wide[0], d.w = wide[1], d.y = wide[2];
    uint16_t *out = malloc((size_t)n_out * 2);
    char *work = malloc(work_bytes + 64);
    CHECK_OK(pl_conv_product_run(prep, thin[kind == PL_CONV_DX ? 2 : 0], thin[1], NULL, out, work));
    for (int64_t k = 0; k < 200; k++) {
        int64_t e = k == 0   ? 0
                    : k == 1 ? n_out - 1
                             : (int64_t)((double)(draw() + 1) * 0.5 * (double)(n_out - 1));
        double right = kind == PL_CONV_Y ? y_at(&d, e) : dx_at(&d, e),
               got = (double)pl_bf16_to_f32(out[e]);
        if (!(fabs(right - got) <= 1e-3 + 0x1p-8 * fabs(right)))
            CHECK_MSG(false, "%s %d: element %lld is %g, not %g", s->what, kind, (long long)e, got,
                      right);
    }
    for (int k = 0; k < 3; k++) free(wide[k]), free(thin[k]);
    free(out), free(work);
    pl_conv_product_release(prep);
}

TEST(cuda_conv_products_of_short_parts_match_the_definition)
{
    static const shapes odd = {"odd channels", 3,         66,        34,
                               {1, 36, 41},    {1, 4, 4}, {1, 2, 2}, {1, 1, 1},
                               {0, 1, 1},      {0, 1, 1}, false,     3};
    check_short(&odd, PL_CONV_Y);
    check_short(&odd, PL_CONV_DX);
    pl_conv_shape c = shape_of(&odd, PL_CONV_DW);
    c.dtype = PL_BF16;

    CHECK(!pl_conv_product_takes(&c));
}

TEST(cuda_conv_products_refuse_what_they_cannot_do)
{
    pl_conv_shape c = shape_of(&list[0], PL_CONV_Y);
    CHECK(pl_conv_product_takes(&c));

    c.dtype = PL_BF16;
    CHECK(!pl_conv_product_takes(&c));

    c.dtype = PL_F32;
    c.groups = 2;
    CHECK(!pl_conv_product_takes(&c));

    c.groups = 1;
    c.n = 0;
    CHECK(!pl_conv_product_takes(&c));
}

/* ---- on TF32 units -------------------------------------------------------------------------- */
static const shapes split_list[] = {
    {"split",
     2,
     8,
     36,
     {1, 11, 12},
     {1, 3, 3},
     {1, 1, 1},
     {1, 1, 1},
     {0, 1, 0},
     {0, 1, 2},
     true,
     7},
    {"split phases",
     2,
     12,
     16,
     {1, 11, 10},
     {1, 4, 4},
     {1, 2, 2},
     {1, 1, 1},
     {0, 1, 1},
     {0, 1, 1},
     false,
     7},
    {"split stride",
     1,
     16,
     4,
     {1, 12, 13},
     {1, 3, 4},
     {1, 2, 2},
     {1, 1, 2},
     {0, 1, 3},
     {0, 2, 1},
     false,
     5},
    {"split dilation",
     1,
     20,
     12,
     {1, 9, 8},
     {1, 2, 3},
     {1, 1, 1},
     {1, 2, 1},
     {0, 1, 1},
     {0, 1, 0},
     true,
     7},
    {"split volume",
     1,
     4,
     8,
     {3, 5, 6},
     {3, 2, 3},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     {1, 0, 1},
     false,
     7},
    {"split one tap",
     2,
     24,
     8,
     {1, 6, 5},
     {1, 1, 1},
     {1, 1, 1},
     {1, 1, 1},
     {0, 0, 0},
     {0, 0, 0},
     true,
     7},
};

static void check_split(const shapes *s, pl_conv_kind kind, bool tail)
{
    data d = {.c = shape_of(s, kind)};
    pl_conv_shape *c = &d.c;
    c->add = tail;
    c->act = tail ? PL_ACT_RELU : PL_ACT_NONE;
    void *prep = NULL;
    size_t work_bytes = 0;
    CHECK_OK(pl_conv_split_prepare(c, &prep, &work_bytes));
    int64_t n_out = draw_data(&d);
    char *work = malloc(work_bytes + 256);
    float *out = drawn(n_out);
    const float *a = kind == PL_CONV_DX ? d.y : d.x, *b = kind == PL_CONV_DW ? d.y : d.w;
    CHECK_OK(pl_conv_split_run(prep, a, b, c->bias ? d.bias : NULL, d.add, out, work));
    check_result(s, &d, out, n_out);
    free_data(&d), free(out), free(work);
    pl_sys_free(prep);
}

TEST(cuda_conv_split_matches_the_definition)
{
    for (size_t i = 0; i < sizeof split_list / sizeof *split_list; i++)
        for (int kind = 0; kind < 3; kind++)
            if (split_list[i].kinds >> kind & 1)
                check_split(&split_list[i], (pl_conv_kind)kind, kind != PL_CONV_DW && i < 2);
}

/* Operands that TF32 holds give the same sums; of others, the bits beyond TF32 are gone. */
TEST(cuda_conv_split_rounds_to_tf32_where_the_precision_allows)
{
    pl_sim_split(true);
    pl_sim_tf32(true);
    exact_in_tf32 = true;
    for (size_t i = 0; i < sizeof split_list / sizeof *split_list; i++) {
        pl_conv_kind kind = (pl_conv_kind)(i % 3);
        pl_conv_shape c = shape_of(&split_list[i], kind);
        if (!(split_list[i].kinds >> kind & 1)) continue;
        CHECK(pl_conv_split_can(&c) && !pl_conv_split_takes(&c));
        check_split(&split_list[i], kind, kind != PL_CONV_DW && i < 2);
    }
    exact_in_tf32 = false;
    pl_conv_shape c = shape_of(&split_list[5], PL_CONV_Y);
    static _Alignas(16) float x[2 * 6 * 5 * 24], w[8 * 24], bias[8], y[2 * 6 * 5 * 8];
    static char work[4096];
    void *prep = NULL;
    size_t work_bytes = 0;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = 1 + 0x1p-12f;
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) w[i] = 1;
    CHECK_OK(pl_conv_split_prepare(&c, &prep, &work_bytes));
    CHECK(work_bytes <= sizeof work);
    CHECK_OK(pl_conv_split_run(prep, x, w, bias, NULL, y, work));
    CHECK(y[0] == 24);
    pl_sys_free(prep);
    pl_sim_tf32(false);
    CHECK(!pl_conv_split_can(&c)); /* with f32's accuracy, its choice is not by time */
    pl_sim_split(false);
}

TEST(cuda_conv_split_refuses_what_it_cannot_do)
{
    pl_conv_shape c = shape_of(&list[0], PL_CONV_Y);
    c.oc = 64;
    CHECK(!pl_conv_split_takes(&c));

    pl_sim_split(true);
    CHECK(pl_conv_split_takes(&c));

    c.groups = 2;
    CHECK(!pl_conv_split_takes(&c));

    c.groups = 1;
    c.ic = 66;
    CHECK(!pl_conv_split_takes(&c));

    c.ic = 64;
    c.n = 0;
    CHECK(!pl_conv_split_takes(&c));

    pl_sim_split(false);
    c = shape_of(&split_list[2], PL_CONV_DX); /* a stride and a dilation: no phases */
    void *prep = NULL;
    size_t work_bytes = 0;
    CHECK_INT(pl_conv_split_prepare(&c, &prep, &work_bytes), PL_ERR_UNSUPPORTED);
}
