/* test_conv_blocks.c - convolutions over blocks of pixels (cuda/conv/conv_blocks.c), in the
 * simulator, against the definition. The convolution of the blocks, cuDNN's on a GPU, is computed
 * here by the definition too, so that shapes, padding and copies are what is tested. */
#include "base/dtype.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The file under test for this file alone. */
#define pl_conv_blocks_can     sim_blocks_can
#define pl_conv_blocks_prepare sim_blocks_prepare
#define pl_conv_blocks_release sim_blocks_release
#define pl_conv_blocks_run     sim_blocks_run
#define pl_conv_plan_get       sim_plan_get
#define pl_conv_plan_put       sim_plan_put
#define pl_conv_bind           sim_bind
#define pl_conv_bound_free     sim_bound_free
#define pl_conv_execute        sim_execute
#define pl_conv_follow         sim_follow
#define pl_cuda_tf32           sim_tf32
#include "cuda/conv/conv_blocks.c"

bool pl_cuda_tf32(void)
{
    return true;
}

/* ---- the convolution by its definition ------------------------------------------------------ */
/* Returns the pixel of x that tap k of pixel p reads; -1: padding. */
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

/* Adds every product of the convolution to the operand that `kind` computes. */
static void convolve(const pl_conv_shape *c, float *x, float *w, float *y)
{
    int64_t in = pl_conv_pixels(c->in), out = pl_conv_pixels(c->out),
            taps = pl_conv_pixels(c->kernel);
    for (int64_t p = 0; p < c->n * out; p++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t q = source(c, p % out, k);
            for (int64_t e = 0; q >= 0 && e < c->oc * c->ic; e++) {
                int64_t o = e / c->ic, i = e % c->ic;
                float *a = &x[(p / out * in + q) * c->ic + i], *b = &w[(o * taps + k) * c->ic + i],
                      *to = &y[p * c->oc + o];
                if (c->kind == PL_CONV_Y)
                    *to += *a * *b;
                else if (c->kind == PL_CONV_DX)
                    *a += *to * *b;
                else
                    *b += *to * *a;
            }
        }
}

static int64_t elems_of(const pl_conv_shape *c, pl_conv_kind what)
{
    return what == PL_CONV_Y    ? c->n * pl_conv_pixels(c->out) * c->oc
           : what == PL_CONV_DX ? c->n * pl_conv_pixels(c->in) * c->ic
                                : c->oc * pl_conv_pixels(c->kernel) * c->ic;
}

/* ---- in place of cuDNN ---------------------------------------------------------------------- */
static struct {
    pl_conv_plan plan;
    pl_conv_operands at;
    bool odd; /* a problem that cuDNN would refuse, or a tail that was not asked for */
} sim;

pl_status pl_conv_plan_get(const pl_conv_shape *c, pl_conv_plan **out)
{
    sim.odd = memcmp(c->pad_lo, c->pad_hi, sizeof c->pad_lo) != 0 ||
              pl_conv_pixels(c->stride) != 1 || c->ic % 4 != 0;
    for (int d = 0; d < 3; d++)
        sim.odd |= c->in[d] < 1 ||
                   c->out[d] != c->in[d] + 2 * c->pad_lo[d] - (c->kernel[d] - 1) * c->dilation[d];
    sim.plan = (pl_conv_plan){.problem = *c, .plan = &sim, .level = PL_CONV_BARE, .refs = 1};
    *out = &sim.plan;
    return PL_OK;
}
void pl_conv_plan_put(pl_conv_plan *p)
{
    if (p) p->refs--;
}
pl_status pl_conv_bind(const pl_conv_plan *p, const pl_conv_operands *x, void **bound)
{
    (void)p;
    sim.at = *x;
    *bound = &sim.at;
    return PL_OK;
}
void pl_conv_bound_free(void *bound)
{
    (void)bound;
}
pl_status pl_conv_execute(const pl_conv_plan *p, void *bound)
{
    const pl_conv_operands *x = bound;
    const pl_conv_shape *c = &p->problem;
    float *to = (float *)(uintptr_t)(c->kind == PL_CONV_Y    ? x->y
                                     : c->kind == PL_CONV_DX ? x->x
                                                             : x->w);
    memset(to, 0, (size_t)elems_of(c, (pl_conv_kind)c->kind) * 4);
    convolve(c, (float *)(uintptr_t)x->x, (float *)(uintptr_t)x->w, (float *)(uintptr_t)x->y);
    return PL_OK;
}
pl_status pl_conv_follow(const pl_conv_shape *c, pl_conv_level level, const void *bias,
                         const void *add, void *out)
{
    (void)c, (void)add, (void)out;
    sim.odd |= level != PL_CONV_BARE || bias;
    return PL_OK;
}

/* ---- cases ---------------------------------------------------------------------------------- */
typedef struct shapes {
    const char *what;
    int64_t n, ic, oc, in[3], kernel[3], stride[3], lo[3], hi[3];
} shapes;

static const shapes list[] = {
    {"stem", 2, 3, 5, {1, 13, 14}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {0, 3, 3}},
    {"even", 1, 8, 4, {1, 12, 16}, {1, 4, 4}, {1, 2, 2}, {0, 1, 1}, {0, 1, 1}},
    {"wide", 1, 4, 3, {1, 16, 10}, {1, 16, 6}, {1, 2, 2}, {0, 7, 2}, {0, 7, 2}},
    {"one side", 2, 4, 3, {1, 9, 8}, {1, 3, 3}, {1, 2, 2}, {0, 0, 0}, {0, 1, 1}},
    {"three", 1, 5, 3, {1, 17, 11}, {1, 5, 4}, {1, 3, 3}, {0, 2, 1}, {0, 1, 2}},
    {"one axis", 2, 4, 3, {1, 8, 11}, {1, 3, 4}, {1, 1, 2}, {0, 1, 1}, {0, 1, 2}},
    {"unread end", 1, 4, 2, {1, 11, 12}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {0, 0, 0}},
    {"volume", 1, 4, 3, {6, 7, 8}, {4, 3, 3}, {2, 2, 1}, {1, 1, 1}, {1, 1, 1}},
};

static pl_conv_shape shape_of(const shapes *s, int kind)
{
    pl_conv_shape c = {.n = s->n,
                       .ic = s->ic,
                       .oc = s->oc,
                       .groups = 1,
                       .kind = kind,
                       .dtype = PL_F32,
                       .spatial = 3};
    for (int d = 0; d < 3; d++) {
        c.in[d] = s->in[d], c.kernel[d] = s->kernel[d], c.stride[d] = s->stride[d];
        c.dilation[d] = 1, c.pad_lo[d] = s->lo[d], c.pad_hi[d] = s->hi[d];
        c.out[d] = (s->in[d] + s->lo[d] + s->hi[d] - s->kernel[d]) / s->stride[d] + 1;
    }
    return c;
}

static float *drawn(int64_t n, uint64_t *seed)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);
    for (int64_t i = 0; p && i < n; i++) p[i] = (float)pl_test_noise(seed);
    return p;
}

static void check_case(const shapes *s, int kind)
{
    pl_conv_shape c = shape_of(s, kind);
    uint64_t seed = 11 + (uint64_t)kind;
    size_t work_bytes = 0, bytes = (size_t)elems_of(&c, (pl_conv_kind)kind) * 4;
    void *prep = NULL;
    CHECK_MSG(pl_conv_blocks_can(&c), "%s %d", s->what, kind);
    CHECK_OK(pl_conv_blocks_prepare(&c, &prep, &work_bytes));
    float *x = drawn(elems_of(&c, PL_CONV_DX), &seed), *w = drawn(elems_of(&c, PL_CONV_DW), &seed),
          *y = drawn(elems_of(&c, PL_CONV_Y), &seed), *got = malloc(bytes);
    float *to = kind == PL_CONV_Y ? y : kind == PL_CONV_DX ? x : w;
    char *work = malloc(work_bytes + 64);
    memset(work, 0xff, work_bytes + 64);
    memset(got, 0xff, bytes);

    CHECK_OK(pl_conv_blocks_run(prep, kind == PL_CONV_DX ? y : x, kind == PL_CONV_DW ? y : w, NULL,
                                NULL, got, work));

    memset(to, 0, bytes);
    convolve(&c, x, w, y);
    for (size_t i = 0; i < bytes / 4; i++)
        if (!(fabsf(got[i] - to[i]) <= 1e-5f + 1e-5f * fabsf(to[i]))) {
            CHECK_MSG(false, "%s %d: element %zu is %g, not %g", s->what, kind, i, (double)got[i],
                      (double)to[i]);
            break;
        }
    pl_conv_blocks_release(prep);
    CHECK_INT(sim.plan.refs, 0);
    CHECK(!sim.odd);
    free(x), free(w), free(y), free(got), free(work);
}

TEST(cuda_conv_blocks_match_the_definition)
{
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int kind = 0; kind < 3; kind++) check_case(&list[i], kind);
}

TEST(cuda_conv_blocks_refuse_what_they_cannot_do)
{
    static const shapes s = {"", 1, 4, 4, {1, 9, 9}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {0, 1, 1}};
    pl_conv_shape c = shape_of(&s, PL_CONV_Y);
    CHECK(pl_conv_blocks_can(&c));

    pl_conv_shape plain = c, dilated = c, grouped = c, wide = c, sparse = c;
    plain.stride[1] = plain.stride[2] = 1;
    dilated.dilation[2] = 2;
    grouped.groups = 2;
    wide.dtype = PL_F64;
    sparse.stride[1] = sparse.stride[2] = 4;

    CHECK(!pl_conv_blocks_can(&plain));
    CHECK(!pl_conv_blocks_can(&dilated));
    CHECK(!pl_conv_blocks_can(&grouped));
    CHECK(!pl_conv_blocks_can(&wide));
    CHECK(!pl_conv_blocks_can(&sparse));
}
