/* test_onnx_write.c - an ONNX file with other weights computes with them, in evaluation mode. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "onnx/onnx.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"
#include "tests/onnx/proto_write.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 4, CLASSES = 4 };

/* The output of the model for one fixed picture per sample. */
static pl_status outputs(const char *path, float *to)
{
    pl_onnx *o;
    PL_TRY(pl_onnx_open(path, &o));
    model_run r = model_run_new(o, false);
    pl_type t;
    pl_onnx_value out = {.name = "out"};
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, 1, &out);
    pl_output(r.nn->g, "out", out.value);
    rc = model_run_start(&r, rc);
    float *in = rc == PL_OK ? pl_session_input(r.session, r.program, "in0", &t) : NULL;
    uint64_t state = 1;
    for (int64_t i = 0; in && i < pl_type_elems(&t); i++) in[i] = (float)pl_test_noise(&state);
    if (in) rc = pl_session_run(r.session, r.program);
    const float *y = in && rc == PL_OK ? pl_session_output(r.session, r.program, "out", &t) : NULL;
    if (y) memcpy(to, y, sizeof(float) * BATCH * CLASSES);
    model_run_free(&r);
    return rc;
}

/* Writes a file of weights with one tensor of the model; `more` times its index is added to each
 * element. */
static pl_status write_one(pl_onnx *o, const char *name, float more, const char *path)
{
    const pl_ox_init *init = pl_ox_map_get(o->inits, name);
    pl_st_writer *w = NULL;
    pl_ox_host old;
    PL_TRY(pl_ox_init_read(o, init, &o->mem, &old));
    float *x = pl_arena_new(&o->mem, float, old.n);
    for (int64_t i = 0; i < old.n; i++) x[i] = (float)old.d[i] + more * (float)i;
    PL_TRY(pl_st_writer_new(path, &w));
    pl_status rc = pl_st_writer_add(w, name, &init->about.type);
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    if (rc == PL_OK) rc = pl_st_writer_write(w, 0, x, (size_t)old.n * sizeof *x);
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

TEST(onnx_a_written_model_computes_with_the_given_weights)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    const char *model = "tests/data/onnx/small-old/model.onnx";
    const char *weights = pl_test_path("w.safetensors"), *written = pl_test_path("new.onnx");
    float before[BATCH * CLASSES], after[BATCH * CLASSES];
    pl_onnx *o;
    int replaced;
    CHECK_OK(outputs(model, before));
    CHECK_OK(pl_onnx_open(model, &o));
    CHECK_OK(write_one(o, "fc.bias", 1, weights));

    CHECK_OK(pl_onnx_write(o, weights, written, &replaced));
    pl_onnx_free(o);

    CHECK_INT(replaced, 1);
    CHECK_OK(outputs(written, after));
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK_NEAR(after[i], before[i] + (float)(i % CLASSES), 1e-6);
    CHECK_OK(pl_onnx_open(written, &o)); /* the nodes that trained evaluate */
    for (size_t i = 0; i < o->proto->graph->n_node; i++) {
        const pl_ox_node *n = o->proto->graph->node[i];
        if (strcmp(n->op_type, "BatchNormalization") == 0) CHECK_INT(n->n_output, 1);
        for (size_t k = 0; k < n->n_attribute; k++)
            CHECK(strcmp(n->attribute[k]->name, "training_mode") != 0);
    }
    pl_onnx_free(o);
}

/* Elements of a large model go into a second file. A model whose elements lie in such a file
 * becomes one file again, with those that the weights do not have. */
TEST(onnx_large_models_are_written_in_two_files_and_read_again)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    const char *weights = pl_test_path("w.safetensors"), *two = pl_test_path("two.onnx");
    const char *one = pl_test_path("one.onnx");
    float before[BATCH * CLASSES], after[BATCH * CLASSES];
    pl_onnx *o;
    int replaced;
    CHECK_OK(pl_onnx_open("tests/data/onnx/small-old/model.onnx", &o));
    CHECK_OK(write_one(o, "fc.bias", 1, weights));
    CHECK_OK(outputs("tests/data/onnx/small-old/model.onnx", before));

    CHECK_OK(pl_ox_write(o, weights, two, 0, &replaced));
    pl_onnx_free(o);

    CHECK_INT(replaced, 1);
    CHECK_OK(outputs(two, after));
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK_NEAR(after[i], before[i] + (float)(i % CLASSES), 1e-6);
    CHECK_OK(pl_onnx_open(two, &o));
    const pl_ox_init *bias = pl_ox_map_get(o->inits, "fc.bias");
    CHECK_INT(bias->tensor->data_location, 1);
    CHECK_OK(write_one(o, "fc.weight", 0, weights));
    CHECK_OK(pl_onnx_write(o, weights, one, &replaced));
    pl_onnx_free(o);
    CHECK(unlink(pl_test_path("two.onnx.data")) == 0);
    CHECK_OK(outputs(one, after));
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK_NEAR(after[i], before[i] + (float)(i % CLASSES), 1e-6);
}

/* Some tools append nodes that earlier nodes read. The written file has them in the same order, and
 * the Dropout, which is the first, evaluates. */
TEST(onnx_nodes_in_another_order_are_built_and_written)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    static const float ratio = 0.5f, w[3] = {1, 2, 3};
    static const char *const name[] = {"ratio", "w"};
    const char *in[] = {"z", "ratio", "on"}, *written = pl_test_path("written.onnx");
    const char *weights = pl_test_path("w.safetensors");
    pl_str g = PL_STR_INIT, drop = PL_STR_INIT, mul = PL_STR_INIT, on = PL_STR_INIT;
    for (int i = 0; i < 3; i++) put_text(&drop, 1, in[i]);
    put_text(&drop, 2, "y");
    put_text(&drop, 4, "Dropout");
    put_message(&g, 1, &drop);
    put_text(&mul, 1, "x");
    put_text(&mul, 1, "w");
    put_text(&mul, 2, "z");
    put_text(&mul, 4, "Mul");
    put_message(&g, 1, &mul);
    for (int i = 0; i < 2; i++) {
        pl_str t = PL_STR_INIT;
        if (i) put_number(&t, 1, 3);
        put_number(&t, 2, PL_OX_FLOAT);
        put_text(&t, 8, name[i]);
        put_bytes(&t, 9, i ? w : &ratio, i ? sizeof w : sizeof ratio);
        put_message(&g, 5, &t);
    }
    put_number(&on, 2, PL_OX_BOOL);
    put_text(&on, 8, "on");
    put_bytes(&on, 9, &(uint8_t){1}, 1);
    put_message(&g, 5, &on);
    put_floats(&g, 11, "x", 1, &(int64_t){3});
    put_floats(&g, 12, "y", 1, &(int64_t){3});
    pl_str m = model_of(&g);
    pl_onnx *o;
    CHECK_OK(pl_ox_open_memory(m.text, m.len, ".", &o));
    CHECK_OK(write_one(o, "w", 1, weights));
    CHECK_OK(pl_onnx_write(o, weights, written, NULL));
    pl_onnx_free(o);
    pl_str_release(&m);
    CHECK_OK(pl_onnx_open(written, &o));
    CHECK(strcmp(o->in_file[0]->op_type, "Dropout") == 0);
    CHECK_INT(o->in_file[0]->n_input, 2); /* without the input that switches training on */
    CHECK_INT(o->in_file[1]->n_input, 2);
    model_run r = model_run_new(o, false);
    pl_onnx_value out = {.name = "y"};
    pl_type type;
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, 1, &out);
    if (rc == PL_OK) pl_output(r.nn->g, "y", out.value);
    CHECK_OK(model_run_start(&r, rc));
    float *x = pl_session_input(r.session, r.program, "x", &type);
    for (int i = 0; i < 3; i++) x[i] = 2;
    CHECK_OK(pl_session_run(r.session, r.program));
    CHECK_OK(pl_session_wait(r.session));
    const float *y = pl_session_output(r.session, r.program, "y", &type);
    for (int i = 0; i < 3; i++) CHECK_NEAR(y[i], 2 * (w[i] + (float)i), 1e-6);
    model_run_free(&r);
}
