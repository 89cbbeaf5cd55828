/* test_onnx_write.c - an ONNX file with other weights computes with them, in evaluation mode. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "onnx/onnx.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"

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
