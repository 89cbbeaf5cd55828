/* test_cuda_words.c - generated kernels that compute with two 16-bit floats at a time: where
 * they do, and that rounding once gives the bits of rounding f32's result, as on the CPU and for
 * single elements. */
#include "base/arena.h"
#include "base/dtype.h"
#include "pass/fuse/fuse.h"
#include "plimsoll_ops.h"
#include "tests/cuda/cuda_group_lab.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

/* ---- rounding once ---------------------------------------------------------------------- */

static double value(uint16_t h, bool half)
{
    /* what would come next */
    if (half && (h & 0x7fff) == 0x7c00) return h >> 15 ? -65536.0 : 65536.0;
    if (!half && (h & 0x7fff) == 0x7f80) return h >> 15 ? -0x1p128 : 0x1p128;
    return half ? (double)pl_f16_to_f32(h) : (double)pl_bf16_to_f32(h);
}

/* Whether h is the nearest of its kind to exact; between two equally near numbers, the even one. */
static bool nearest(double exact, uint16_t h, bool half)
{
    uint16_t most = half ? 0x7c00 : 0x7f80, size = h & 0x7fff;
    double off = fabs(value(h, half) - exact);
    if (signbit(exact) != (h >> 15) && exact != 0) return false;
    for (int step = -1; step <= 1; step += 2) {
        if ((step < 0 && size == 0) || (step > 0 && size == most)) continue;
        double other = fabs(value((uint16_t)(h + step), half) - exact);
        if (other < off || (other == off && h & 1)) return false;
    }
    return true;
}

static uint16_t narrow(float f, bool half)
{
    return half ? pl_f32_to_f16(f) : pl_f32_to_bf16(f);
}

typedef struct tally {
    int sums, differences, products; /* that f32's result, rounded, misses */
} tally;

/* All pairs of exponents, with some mantissas and signs of each. Exact results fit a double,
 * except for sums of very different numbers, which are then not ties. */
static tally count_missed(bool half)
{
    tally t = {0};
    int exps = half ? 31 : 255, digits = half ? 10 : 7, each = half ? 512 : 12;
    uint32_t seed = 1;
    for (int pair = 0; pair < exps * exps; pair++)
        for (int k = 0; k < each; k++) {
            uint16_t h[2];
            for (int i = 0; i < 2; i++) {
                seed = seed * 1664525u + 1013904223u;
                uint32_t e = (uint32_t)(i ? pair / exps : pair % exps),
                         m = seed >> 16 & ((1u << digits) - 1u);
                if (seed >> 30 == 0) m &= 1u << (seed >> 27 & 7u); /* few digits: ties */
                h[i] = (uint16_t)((seed >> 9 & 1u) << 15 | e << digits | m);
            }
            float a = (float)value(h[0], half), b = (float)value(h[1], half);
            t.sums += !nearest((double)a + (double)b, narrow(a + b, half), half);
            t.differences += !nearest((double)a - (double)b, narrow(a - b, half), half);
            t.products += !nearest((double)a * (double)b, narrow(a * b, half), half);
        }
    return t;
}

TEST(cuda_words_round_once)
{
    tally half = count_missed(true), brain = count_missed(false);
    CHECK_INT(half.sums, 0);
    CHECK_INT(half.differences, 0);
    CHECK_INT(half.products, 0);
    CHECK_INT(brain.sums, 0);
    CHECK_INT(brain.differences, 0);
    CHECK_INT(brain.products, 0);
}

/* ---- the text --------------------------------------------------------------------------- */

/* A layer norm's gradient: two parts of dx are rounded, added and rounded again. */
static void norm_back(pl_graph *g, pl_dtype d, int64_t rows, int64_t n)
{
    pl_val x = pl_input(g, "x", PL_TYPE(d, rows, n)), dy = pl_input(g, "dy", PL_TYPE(d, rows, n)),
           mean, var, dx[2];
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, n));
    pl_moments(g, x, PL_AXIS(-1), true, &mean, &var);
    pl_val z =
        pl_mul(g, pl_sub(g, pl_cast(g, x, PL_F32), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    pl_val loss = pl_sum(g, pl_mul(g, pl_mul(g, z, w), pl_cast(g, dy, PL_F32)), PL_AXES_ALL, false);
    pl_grad(g, loss, (const pl_val[]){x, w}, 2, dx);
    pl_output(g, "dx", dx[0]);
    pl_output(g, "dw", dx[1]);
}

/* Products and differences of rounded values, among them a row's sum. */
static void chain(pl_graph *g, pl_dtype d, int64_t rows, int64_t n)
{
    pl_val x = pl_input(g, "x", PL_TYPE(d, rows, n)), y = pl_input(g, "y", PL_TYPE(d, rows, n));
    pl_val p = pl_softmax(g, pl_add(g, x, y), -1), q = pl_mul(g, p, pl_sub(g, x, y));
    pl_val r = pl_sub(g, q, pl_mul(g, p, q));
    pl_output(g, "r", pl_mul(g, r, pl_sum(g, r, PL_AXIS(-1), true)));
}

static const struct {
    void (*make)(pl_graph *g, pl_dtype d, int64_t rows, int64_t n);
    pl_dtype dtype;
    int64_t rows, n;
    const char *has, *has_not; /* in the text of its first kernel */
} want[] = {
    {norm_back, PL_F16, 300, 768, "p_add_hh(g", NULL},
    {norm_back, PL_BF16, 300, 128, "p_add_bb(g", NULL},
    {norm_back, PL_F32, 300, 128, NULL, "BOTH"},
    {norm_back, PL_F16, 200, 1024, "p_add_hh(g", NULL},
    {norm_back, PL_F16, 40, 77, NULL, "BOTH"}, /* one element at a time */
    {chain, PL_F16, 50, 64, "p_mul_hh(g", NULL},
    {chain, PL_BF16, 50, 64, "p_sub_bb(g", NULL},
};
enum { N_WANT = sizeof want / sizeof *want };

TEST(cuda_words_are_used_in_rows)
{
    if (!pl_test_long()) SKIP("long");
    group_job job[N_WANT];
    text_shop *shop = text_shop_new();

    for (int i = 0; i < N_WANT; i++) {
        job[i] = (group_job){.store = pl_store_new(),
                             .name = want[i].has ? want[i].has : want[i].has_not};
        job[i].g = pl_graph_new(job[i].store);
        want[i].make(job[i].g, want[i].dtype, want[i].rows, want[i].n);
        CHECK(group_job_make(&job[i], shop));
    }
    bool built = text_shop_build(shop);
    for (int i = 0; i < N_WANT; i++) {
        const char *text = NULL;
        for (uint32_t k = 0; k < job[i].units[0]->n && !text; k++)
            if (job[i].units[0]->unit[k].kind == PL_UNIT_GROUP)
                text = job[i].code[0][k].kernel[0].text;
        CHECK(text != NULL);
        const char *body = strstr(text, "extern \"C\"");
        if (want[i].has)
            CHECK_MSG(strstr(body, want[i].has) != NULL, "%s is not there", want[i].has);
        if (want[i].has_not)
            CHECK_MSG(strstr(body, want[i].has_not) == NULL, "%s is there", want[i].has_not);
        if (nvrtc_here() && want[i].has) CHECK(nvrtc_accepts_by_turns(text));
        if (built) CHECK(group_job_check(&job[i], shop));
    }
    for (int i = 0; i < N_WANT; i++) group_job_free(&job[i]);
    text_shop_free(shop);
}
