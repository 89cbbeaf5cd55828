/* test_onnx_notes.c - what the package for Python notes in a file (kinds.c): rows of embeddings
 * without a gradient, tensors that belong into model files though no node reads them. And outputs
 * that nobody reads. */
#include "onnx/onnx.h"
#include "plimsoll_optim.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"
#include "tests/onnx/proto_write.h"

#include <string.h>

enum { ROWS = 3, WIDTH = 2, IDS = 4 };

static void put_tensor(pl_str *graph, const char *name, int32_t type, const void *data,
                       size_t bytes, int rank, const int64_t *dim)
{
    pl_str t = PL_STR_INIT;
    for (int i = 0; i < rank; i++) put_number(&t, 1, (uint64_t)dim[i]);
    put_number(&t, 2, (uint64_t)type);
    put_text(&t, 8, name);
    put_bytes(&t, 9, data, bytes);
    put_message(graph, 5, &t);
}

static void put_note(pl_str *model, const char *key, const char *value)
{
    pl_str p = PL_STR_INIT;
    put_text(&p, 1, key);
    put_text(&p, 2, value);
    put_message(model, 14, &p);
}

/* x.detach() as the package for Python writes it: Dropout(x, 0) with a seed of its own. */
static void put_detach(pl_str *graph, const char *x, const char *y, uint64_t seed)
{
    static const float ratio = 0;
    pl_str a = PL_STR_INIT, n = PL_STR_INIT;
    put_text(&a, 1, "seed");
    put_number(&a, 3, seed);
    put_number(&a, 20, 2); /* INT */
    put_text(&n, 1, x);
    put_text(&n, 1, "ratio");
    put_text(&n, 2, y);
    put_text(&n, 4, "Dropout");
    put_message(&n, 5, &a);
    put_message(graph, 1, &n);
    put_tensor(graph, "ratio", PL_OX_FLOAT, &ratio, sizeof ratio, 0, NULL);
}

/* y = Dropout(Gather(embed.weight, ids), 0) * x, y is [4, 2], every row is looked up; beside it a
 * mask. */
static pl_str lookup_model(uint64_t seed)
{
    static const float table[ROWS * WIDTH] = {1, 2, 3, 4, 5, 6};
    static const uint8_t mask[3] = {1, 0, 1};
    static const int64_t ids[IDS] = {0, 1, 2, 1}, n_ids = IDS, n_mask = 3;
    static const int64_t shape[2] = {ROWS, WIDTH}, out[2] = {IDS, WIDTH};
    pl_str g = PL_STR_INIT, gather = PL_STR_INIT, node = PL_STR_INIT;
    put_text(&gather, 1, "embed.weight");
    put_text(&gather, 1, "ids");
    put_text(&gather, 2, "rows");
    put_text(&gather, 4, "Gather");
    put_message(&g, 1, &gather);
    put_detach(&g, "rows", "same", seed);
    put_text(&node, 1, "same");
    put_text(&node, 1, "x");
    put_text(&node, 2, "y");
    put_text(&node, 4, "Mul");
    put_message(&g, 1, &node);
    put_tensor(&g, "embed.weight", PL_OX_FLOAT, table, sizeof table, 2, shape);
    put_tensor(&g, "ids", PL_OX_INT64, ids, sizeof ids, 1, &n_ids);
    put_tensor(&g, "mask", PL_OX_BOOL, mask, sizeof mask, 1, &n_mask);
    put_floats(&g, 11, "x", 2, out);
    put_floats(&g, 12, "y", 2, out);
    return model_of(&g);
}

/* Trains one step of SGD on the sum of squares of y for x = 1; table gets the weights after it. */
static pl_status step(const pl_str *model, float table[ROWS * WIDTH], bool *has_mask)
{
    pl_onnx *o;
    PL_TRY(pl_ox_open_memory(model->text, model->len, ".", &o));
    model_run r = model_run_new(o, true);
    pl_graph *g = r.nn->g;
    pl_onnx_value out = {.name = "y"};
    pl_type t;
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, 1, &out);
    if (rc == PL_OK) {
        pl_optim optim = PL_OPTIM_INIT;
        optim.kind = PL_OPTIM_SGD;
        optim.lr.lr = 0.5;
        optim.weight_decay = 0;
        pl_optim_apply(r.nn, pl_sum(g, pl_square(g, out.value), PL_AXES_ALL, false), &optim, NULL);
    }
    rc = model_run_start(&r, rc);
    float *x = rc == PL_OK ? pl_session_input(r.session, r.program, "x", &t) : NULL;
    for (int i = 0; x && i < IDS * WIDTH; i++) x[i] = 1;
    if (x) rc = pl_session_run(r.session, r.program);
    if (x && rc == PL_OK) rc = pl_session_wait(r.session);
    int slot = pl_store_find(r.store, "embed.weight");
    *has_mask = pl_store_find(r.store, "mask") >= 0;
    if (rc == PL_OK && slot >= 0)
        memcpy(table, pl_session_slot(r.session, slot), ROWS * WIDTH * sizeof *table);
    model_run_free(&r);
    return rc;
}

TEST(onnx_padding_rows_of_embeddings_get_no_gradient)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    float plain[ROWS * WIDTH], padded[ROWS * WIDTH];
    bool mask;
    pl_str m = lookup_model(1);
    CHECK_OK(step(&m, plain, &mask));
    put_note(&m, "plimsoll.padding", "other.weight=0;embed.weight=1");

    CHECK_OK(step(&m, padded, &mask));

    pl_str_release(&m);
    CHECK_NEAR(plain[2], 3 - 2 * 3.0, 1e-6); /* row 1 is looked up twice: 2 * 0.5 * 2 * 3 */
    CHECK_NEAR(padded[2], 3, 0);
    CHECK_NEAR(padded[3], 4, 0);
    for (int i = 0; i < ROWS * WIDTH; i++)
        if (i / WIDTH != 1) CHECK_NEAR(padded[i], plain[i], 0);
}

TEST(onnx_tensors_that_a_note_names_are_kept_in_model_files)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    float table[ROWS * WIDTH];
    bool mask;
    pl_str m = lookup_model(1);
    CHECK_OK(step(&m, table, &mask));
    CHECK(!mask);
    put_note(&m, "plimsoll.kept", "mask");

    CHECK_OK(step(&m, table, &mask));

    pl_str_release(&m);
    CHECK(mask);
}

TEST(onnx_a_detached_value_ends_the_gradient)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    float table[ROWS * WIDTH];
    bool mask;
    pl_str m = lookup_model(6579572);

    CHECK_OK(step(&m, table, &mask));

    pl_str_release(&m);
    for (int i = 0; i < ROWS * WIDTH; i++) CHECK_NEAR(table[i], (float)i + 1, 0);
}

/* The program that trains y = Dropout(w, ratio) * x; the node may name its mask, too. */
static char *dropout_program(float ratio, bool names_mask)
{
    static const float w[2] = {1, 2};
    const int64_t shape[2] = {1, 2};
    pl_str g = PL_STR_INIT, drop = PL_STR_INIT, node = PL_STR_INIT;
    put_text(&drop, 1, "w.weight");
    put_text(&drop, 1, "ratio");
    put_text(&drop, 1, "on");
    put_text(&drop, 2, "same");
    if (names_mask) put_text(&drop, 2, "mask");
    put_text(&drop, 4, "Dropout");
    put_message(&g, 1, &drop);
    put_text(&node, 1, "same");
    put_text(&node, 1, "x");
    put_text(&node, 2, "y");
    put_text(&node, 4, "Mul");
    put_message(&g, 1, &node);
    put_tensor(&g, "w.weight", PL_OX_FLOAT, w, sizeof w, 2, shape);
    put_tensor(&g, "ratio", PL_OX_FLOAT, &ratio, sizeof ratio, 0, NULL);
    put_tensor(&g, "on", PL_OX_BOOL, &(uint8_t){1}, 1, 0, NULL);
    put_floats(&g, 11, "x", 2, shape);
    put_floats(&g, 12, "y", 2, shape);
    pl_str m = model_of(&g);
    pl_onnx *o;
    char *text = NULL;
    if (pl_ox_open_memory(m.text, m.len, ".", &o) == PL_OK) {
        model_run r = model_run_new(o, true);
        pl_onnx_value out = {.name = "y"};
        pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, 1, &out);
        if (rc == PL_OK) pl_output(r.nn->g, "y", out.value);
        if (model_run_start(&r, rc) == PL_OK) rc = pl_program_print(r.program, &text);
        (void)rc;
        model_run_free(&r);
    }
    pl_str_release(&m);
    return text;
}

/* TorchScript lists the mask as an output of every Dropout, even with a ratio of 0. */
TEST(onnx_a_mask_of_dropout_that_nobody_reads_costs_nothing)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    char *none = dropout_program(0, true), *plain = dropout_program(0.5f, false);
    char *named = dropout_program(0.5f, true);
    CHECK(none && plain && named);
    CHECK_MSG(!strstr(none, "random"), "%s", none);
    CHECK(strstr(plain, "random"));
    CHECK_MSG(strcmp(plain, named) == 0, "%s\n%s", plain, named);
    pl_text_free(none);
    pl_text_free(plain);
    pl_text_free(named);
}

/* y = BatchNormalization(x), whose running statistics are f16 in the file and cast to f32. */
static pl_str half_statistics(void)
{
    static const float one[2] = {1, 1}, zero[2] = {0, 0};
    static const uint16_t mean[2] = {0, 0}, var[2] = {0x3c00, 0x3c00}; /* 1 */
    static const char *const names[2] = {"bn.running_mean", "bn.running_var"};
    const int64_t two = 2, shape[2] = {4, 2};
    pl_str g = PL_STR_INIT, norm = PL_STR_INIT;
    for (int i = 0; i < 2; i++) {
        pl_str to = PL_STR_INIT, cast = PL_STR_INIT;
        put_text(&to, 1, "to");
        put_number(&to, 3, PL_OX_FLOAT);
        put_number(&to, 20, 2); /* INT */
        put_text(&cast, 1, names[i]);
        put_text(&cast, 2, i ? "wide_var" : "wide_mean");
        put_text(&cast, 4, "Cast");
        put_message(&cast, 5, &to);
        put_message(&g, 1, &cast);
    }
    static const char *const in[5] = {"x", "bn.weight", "bn.bias", "wide_mean", "wide_var"};
    for (int i = 0; i < 5; i++) put_text(&norm, 1, in[i]);
    put_text(&norm, 2, "y");
    put_text(&norm, 4, "BatchNormalization");
    put_message(&g, 1, &norm);
    put_tensor(&g, "bn.weight", PL_OX_FLOAT, one, sizeof one, 1, &two);
    put_tensor(&g, "bn.bias", PL_OX_FLOAT, zero, sizeof zero, 1, &two);
    put_tensor(&g, names[0], PL_OX_FLOAT16, mean, sizeof mean, 1, &two);
    put_tensor(&g, names[1], PL_OX_FLOAT16, var, sizeof var, 1, &two);
    put_floats(&g, 11, "x", 2, shape);
    put_floats(&g, 12, "y", 2, shape);
    return model_of(&g);
}

TEST(onnx_running_statistics_in_f16_are_those_of_training)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    pl_str m = half_statistics();
    pl_onnx *o;
    pl_type t;
    CHECK_OK(pl_ox_open_memory(m.text, m.len, ".", &o));
    model_run r = model_run_new(o, true);
    pl_onnx_value out = {.name = "y"};
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, 1, &out);
    if (rc == PL_OK) pl_output(r.nn->g, "y", out.value);
    CHECK_OK(model_run_start(&r, rc));
    float *x = pl_session_input(r.session, r.program, "x", &t);
    for (int i = 0; i < 8; i++) x[i] = (float)(i / 2); /* 0 to 3 in both columns */
    CHECK_OK(pl_session_run(r.session, r.program));
    CHECK_OK(pl_session_wait(r.session));

    const float *y = pl_session_output(r.session, r.program, "y", &t);
    const float *mean = pl_session_slot(r.session, pl_store_find(r.store, "bn.running_mean"));
    const float *var = pl_session_slot(r.session, pl_store_find(r.store, "bn.running_var"));

    CHECK_NEAR(y[0], -1.5 / 1.118034, 1e-4); /* of the batch: mean 1.5, variance 1.25 */
    CHECK_NEAR(mean[0], 0.1 * 1.5, 1e-6);
    CHECK_NEAR(var[1], 0.9 + 0.1 * 5 / 3, 1e-6);
    model_run_free(&r);
    pl_str_release(&m);
}
