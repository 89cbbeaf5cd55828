/* test_quantized.c - frozen weights in fewer bits: tables, slots, the pass that reads them. */
#include "base/dtype.h"
#include "base/number/quantized.h"
#include "ir/graph.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

static const pl_quant forms[] = {PL_QUANT_FP8, PL_QUANT_INT8, PL_QUANT_NF4};

/* ---- tables ------------------------------------------------------------------------------- */
TEST(quantized_tables_are_sorted_from_minus_one_to_one)
{
    for (int k = 0; k < 3; k++) {
        const pl_quant_table *t = pl_quantized(forms[k]);
        bool zero = false;

        for (int i = 1; i < t->codes; i++) CHECK(t->value[i - 1] < t->value[i]);
        for (int i = 0; i < t->codes; i++) zero |= t->value[i] == 0;
        CHECK(zero && t->value[0] == -1 && t->value[t->codes - 1] == 1);
    }
    /* 1.875 * 2^7 is the largest but one of e4m3, 2^-9 the smallest above 0 */
    CHECK(pl_quantized(PL_QUANT_FP8)->value[251] == 416.0f / 448);
    CHECK(pl_quantized(PL_QUANT_FP8)->value[127] == 0x1p-9f / 448);
}

static void draw(float *x, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++) x[i] = (float)(pl_test_noise(&seed) * pow(2, i % 7 - 3));
}

TEST(quantized_numbers_are_the_nearest_of_their_block)
{
    enum { N = 150 };
    float x[N], y[N], scales[3];
    uint8_t codes[3 * PL_QUANT_BLOCK];
    draw(x, N, 5);
    for (int k = 0; k < 3; k++) {
        const pl_quant_table *t = pl_quantized(forms[k]);

        pl_quantize(forms[k], x, N, codes, scales);
        pl_dequantize_blocks(forms[k], codes, scales, N, y);

        for (int i = 0; i < N; i++) {
            int first = i / PL_QUANT_BLOCK * PL_QUANT_BLOCK;
            float most = 0, best = INFINITY;
            for (int j = first; j < first + PL_QUANT_BLOCK && j < N; j++)
                most = fmaxf(most, fabsf(x[j]));
            for (int c = 0; c < t->codes; c++) best = fminf(best, fabsf(t->value[c] * most - x[i]));
            CHECK_MSG(fabsf(y[i] - x[i]) <= best * 1.0001f + 1e-7f * most, "%s %d",
                      pl_quant_name(forms[k]), i);
        }
    }
}

TEST(quantizing_a_second_time_changes_no_byte)
{
    enum { N = 500, BLOCKS = 8 };
    float x[N], y[N], scales[BLOCKS], again[BLOCKS];
    uint8_t codes[BLOCKS * PL_QUANT_BLOCK] = {0}, more[BLOCKS * PL_QUANT_BLOCK] = {0};
    draw(x, N, 8);
    for (int k = 0; k < 3; k++) {
        pl_quantize(forms[k], x, N, codes, scales);
        pl_dequantize_blocks(forms[k], codes, scales, N, y);
        pl_quantize(forms[k], y, N, more, again);

        CHECK(memcmp(codes, more, (size_t)pl_quant_code_bytes(forms[k], N)) == 0);
        CHECK(memcmp(scales, again, sizeof scales) == 0);
    }
}

TEST(quantized_blocks_keep_zeros_and_show_what_is_not_finite)
{
    float x[128] = {0}, y[128], scales[2];
    uint8_t codes[128];
    x[70] = INFINITY;
    for (int k = 0; k < 3; k++) {
        x[71] = k ? NAN : 1;

        pl_quantize(forms[k], x, 128, codes, scales);
        pl_dequantize_blocks(forms[k], codes, scales, 128, y);

        for (int i = 0; i < 128; i++) CHECK(i < 64 ? y[i] == 0 : isnan(y[i]));
    }
}

/* ---- slots and programs ------------------------------------------------------------------- */
enum { ROWS = 70, COLUMNS = 61 };

/* A program that outputs the weight as f32 and as bf16. */
static pl_program *compile(pl_store *store, pl_quant form, int *slot)
{
    *slot = pl_store_add(store, &(pl_slot){.name = "w",
                                           .type = PL_TYPE(PL_F32, ROWS, COLUMNS),
                                           .init = {PL_INIT_NORMAL, 0, 1, 0, 0, NULL}});
    pl_store_set_quant(store, *slot, form);
    pl_graph *g = pl_graph_new(store);
    pl_val w = pl_state(g, *slot);
    pl_output(g, "f32", pl_mul(g, w, pl_fill(g, PL_TYPE(PL_F32, ROWS, COLUMNS), 1)));
    pl_output(g, "bf16", pl_cast(g, w, PL_BF16));
    pl_program *p = NULL;
    return pl_compile(g, &(pl_compile_opts)PL_COMPILE_INIT, &p) == PL_OK ? p : NULL;
}

TEST(quantized_slots_are_read_alike_by_programs_and_by_files)
{
    enum { N = ROWS * COLUMNS };
    static float x[N], y[N];
    draw(x, N, 3);
    for (int k = 0; k < 3; k++) {
        pl_store *store = pl_store_new();
        pl_session *s = NULL;
        int slot;
        pl_program *p = compile(store, forms[k], &slot);
        CHECK(p);
        CHECK_OK(pl_session_new(store, 1, &p, &s));
        uint64_t bytes = (uint64_t)pl_quant_bytes(forms[k], N);
        CHECK_INT(pl_session_state_bytes(s), (bytes + 63) / 64 * 64);
        CHECK(!pl_session_slot(s, slot));

        CHECK_OK(pl_session_write_slot(s, slot, 0, x, 128 * sizeof *x));
        CHECK_OK(
            pl_session_write_slot(s, slot, 128 * sizeof *x, x + 128, sizeof x - 128 * sizeof *x));
        CHECK_OK(pl_session_read_slot(s, slot, 0, y, 100 * sizeof *y));
        CHECK_OK(
            pl_session_read_slot(s, slot, 100 * sizeof *y, y + 100, sizeof y - 100 * sizeof *y));
        CHECK_OK(pl_session_run(s, p));
        const float *out = pl_session_output(s, p, "f32", NULL);
        const uint16_t *half = pl_session_output(s, p, "bf16", NULL);

        CHECK(memcmp(out, y, sizeof y) == 0);
        double error = 0, sum = 0;
        for (int i = 0; i < N; i++) {
            CHECK_INT(half[i], pl_f32_to_bf16(y[i]));
            error += pow((double)(x[i] - y[i]), 2);
            sum += pow((double)x[i], 2);
        }
        static const double most[] = {0.05, 0.02, 0.2}; /* fp8, int8, nf4 */
        CHECK_MSG(sqrt(error / sum) < most[k], "%s: %g", pl_quant_name(forms[k]),
                  sqrt(error / sum));
        CHECK(sqrt(error / sum) > most[k] / 50);
        CHECK_INT(pl_session_write_slot(s, slot, 4, x, 256), PL_ERR_ARG);
        CHECK(strstr(pl_error_text(), "blocks of 64 elements"));
        pl_session_free(s);
        pl_program_free(p);
        pl_store_free(store);
    }
}

TEST(quantized_slots_begin_with_the_numbers_of_plain_slots)
{
    enum { N = ROWS * COLUMNS };
    static float plain[N], y[N], want[N];
    float scales[(N + 63) / 64];
    static uint8_t codes[N + 64];
    for (int k = -1; k < 3; k++) {
        pl_store *store = pl_store_new();
        pl_session *s = NULL;
        int slot;
        pl_program *p = compile(store, k < 0 ? PL_QUANT_NONE : forms[k], &slot);
        CHECK(p);
        CHECK_OK(pl_session_new(store, 1, &p, &s));

        CHECK_OK(pl_session_init(s, 77));
        CHECK_OK(pl_session_read_slot(s, slot, 0, k < 0 ? plain : y, sizeof y));

        if (k >= 0) {
            pl_quantize(forms[k], plain, N, codes, scales);
            pl_dequantize_blocks(forms[k], codes, scales, N, want);
            CHECK(memcmp(y, want, sizeof y) == 0);
        }
        pl_session_free(s);
        pl_program_free(p);
        pl_store_free(store);
    }
}

TEST(quantized_slots_cannot_be_assigned)
{
    pl_store *store = pl_store_new();
    int slot = pl_store_add(store, &(pl_slot){.name = "w", .type = PL_TYPE(PL_F32, 8, 8)});
    pl_store_set_quant(store, slot, PL_QUANT_INT8);
    pl_graph *g = pl_graph_new(store);
    pl_program *p = NULL;

    pl_assign(g, slot, pl_fill(g, PL_TYPE(PL_F32, 8, 8), 2));

    CHECK(pl_compile(g, &(pl_compile_opts)PL_COMPILE_INIT, &p) != PL_OK);
    CHECK(strstr(pl_error_text(), "no program can assign it"));
    pl_store_free(store);
}
