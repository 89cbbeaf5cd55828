/* test_small_state.c - weights and moments in fewer bits: packed blocks, random rounding,
 * Adafactor. */
#include "base/dtype.h"
#include "base/number/packed.h"
#include "cpu/vec/packed_blocks.h"
#include "plimsoll_optim.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

/* ---- tables ----------------------------------------------------------------------------- */
TEST(packed_tables_are_sorted_and_reach_from_zero_to_one)
{
    for (int positive = 0; positive < 2; positive++) {
        const pl_packed_table *t = pl_packed(positive);

        for (int i = 1; i < PL_PACKED_CODES; i++) CHECK(t->value[i - 1] < t->value[i]);
        CHECK(t->value[t->zero] == 0);
        CHECK(t->value[PL_PACKED_CODES - 1] == 1);
        CHECK(t->value[0] == (positive ? 0.0f : -0.99296875f));
    }
}

/* The nearest value by trying all of them. */
static int nearest_of_all(const pl_packed_table *t, float x)
{
    int best = 0;
    for (int i = 1; i < PL_PACKED_CODES; i++)
        if (fabsf(t->value[i] - x) < fabsf(t->value[best] - x)) best = i;
    return best;
}

TEST(packed_numbers_are_the_nearest_of_their_table)
{
    uint64_t seed = 5;
    for (int positive = 0; positive < 2; positive++) {
        const pl_packed_table *t = pl_packed(positive);
        float x[PL_PACKED_BLOCK], y[PL_PACKED_BLOCK], most = 0;
        uint8_t block[PL_PACKED_BYTES];
        int n = PL_PACKED_BLOCK - 3;
        for (int i = 0; i < n; i++) {
            x[i] = (float)(pl_test_noise(&seed) * pow(10, -6 * fabs(pl_test_noise(&seed))));
            if (t->positive) x[i] = fabsf(x[i]);
            most = fmaxf(most, fabsf(x[i]));
        }

        pl_packed_best()->pack(t, x, n, block);
        pl_packed_best()->unpack(t, block, n, y);

        for (int i = 0; i < n; i++) {
            int want = nearest_of_all(t, x[i] / most);
            if (t->positive && want == 0 && x[i] > 0) want = 1;
            CHECK(y[i] == t->value[want] * most);
        }
    }
}

TEST(packed_blocks_keep_zeros_and_pass_on_what_is_not_finite)
{
    const pl_packed_table *t = pl_packed(false);
    float zeros[256] = {0}, odd[256] = {1, INFINITY, 2}, y[256];
    uint8_t block[PL_PACKED_BYTES];

    pl_packed_best()->pack(t, zeros, 256, block);
    pl_packed_best()->unpack(t, block, 256, y);
    for (int i = 0; i < 256; i++) CHECK(y[i] == 0);

    pl_packed_best()->pack(t, odd, 256, block);
    pl_packed_best()->unpack(t, block, 256, y);
    for (int i = 0; i < 256; i++) CHECK(isnan(y[i]));
}

/* Rounding at random gives one of the two neighbours, and the exact number in the mean. */
TEST(random_rounding_to_bf16_is_right_in_the_mean)
{
    enum { N = 256, TIMES = 400 };
    float x[N];
    double sum[N] = {0};
    uint64_t seed = 9;
    for (int i = 0; i < N; i++) x[i] = (float)(pl_test_noise(&seed) * (i + 1));

    for (int k = 0; k < TIMES; k++) {
        uint32_t words[N];
        uint16_t out[N];
        for (int i = 0; i < N; i++) words[i] = (uint32_t)((pl_test_noise(&seed) + 1) * 2147483647);
        pl_packed_best()->round(x, words, k % 2 * 16, N, out);
        for (int i = 0; i < N; i++) {
            float r = pl_bf16_to_f32(out[i]);
            CHECK(fabsf(r - x[i]) < fabsf(x[i]) * 0x1p-7f);
            sum[i] += (double)r;
        }
    }

    double error = 0, nearest = 0;
    for (int i = 0; i < N; i++) {
        error += sum[i] / TIMES / (double)x[i] - 1;
        nearest += fabs(sum[i] / TIMES / (double)x[i] - 1);
    }
    CHECK(fabs(error / N) < 2e-5); /* a last bit of bf16 is 4e-3 to 8e-3 */
    CHECK(nearest / N < 2.5e-4);   /* rounding to nearest would leave 1e-3 */
}

/* ---- updates ---------------------------------------------------------------------------- */
/* torch.optim.Adafactor (2.11, f64), five steps; weights and gradients as in test_optim_ops.c. */
TEST(adafactor_matches_pytorch)
{
    static const struct {
        pl_type type;
        double lr, decay, want[6];
    } cases[] = {
        {{{2, 3}, 2, PL_F32},
         0.1,
         0,
         {-0.174483209955, 0.762211600478, 1.13659080609, 0.564352181383, -0.675476771638,
          -1.30906346902}},
        {{{2, 3}, 2, PL_F32},
         0.1,
         0.1,
         {-0.168687582655, 0.724276427916, 1.08293071246, 0.538822713247, -0.644033721612,
          -1.247996766}},
        {{{6}, 1, PL_F32},
         0.5,
         0.1,
         {-1.74207269838, 0.950089320793, 2.55844050803, 0.985940040782, -1.8250545598,
          -2.53001366472}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, true);
        pl_optim o = PL_OPTIM_INIT;
        o.kind = PL_OPTIM_ADAFACTOR;
        o.lr.lr = cases[c].lr;
        o.weight_decay = cases[c].decay;
        pl_val w = pl_nn_param(m, "w", cases[c].type.rank, cases[c].type.dim, (pl_nn_init){0});
        pl_val grad = pl_input(g, "grad", cases[c].type);
        int slot = pl_store_find(store, "w");
        pl_grads grads = {.n = 1, .slot = &slot, .param = &w, .grad = &grad};
        pl_optim_update(m, &grads, &o, NULL);
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);
        pl_program *p = NULL;
        pl_session *s = NULL;
        CHECK_OK(pl_compile(g, NULL, &p));
        CHECK_OK(pl_session_new(store, 1, &p, &s));
        CHECK_OK(pl_session_init(s, 1));
        float *now = pl_session_slot(s, slot);
        for (int i = 0; i < 6; i++) now[i] = (float)sin(0.9 * i + 0.1);

        for (int t = 0; t < 5; t++) {
            float *in = pl_session_input(s, p, "grad", NULL);
            for (int i = 0; i < 6; i++) in[i] = (float)sin(1.3 * i + 0.7 * t);
            CHECK_OK(pl_session_run(s, p));
        }

        for (int i = 0; i < 6; i++) CHECK(fabs((double)now[i] - cases[c].want[i]) < 2e-6);
        pl_session_free(s);
        pl_program_free(p);
        pl_store_free(store);
    }
}

/* Losses with fewer bits stay near those of f32, and two runs give the same bits. */
TEST(small_state_trains_like_f32_and_repeats_to_the_bit)
{
    enum { STEPS = 6 };
    static const char *const keys[][3] = {
        {"optim.state=f32", "weights=fp32", "seed=3"},
        {"optim.state=bf16", "weights=fp32", "seed=3"},
        {"optim.state=8bit", "weights=fp32", "seed=3"},
        {"optim.state=8bit", "weights=bf16", "seed=3"},
    };
    double want[STEPS], loss[STEPS], again[STEPS];
    CHECK_OK(small_run_losses("text/tiny", keys[0], 3, want, STEPS));

    for (int k = 1; k < 4; k++) {
        CHECK_OK(small_run_losses("text/tiny", keys[k], 3, loss, STEPS));
        CHECK_OK(small_run_losses("text/tiny", keys[k], 3, again, STEPS));

        CHECK(memcmp(loss, again, sizeof loss) == 0);
        CHECK(loss[STEPS - 1] != want[STEPS - 1]);
        CHECK_NEAR(loss[STEPS - 1], want[STEPS - 1], 0.01 * want[STEPS - 1]);
    }
}
