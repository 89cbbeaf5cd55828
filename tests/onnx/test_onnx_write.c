/* test_onnx_write.c - an ONNX file with other weights computes with them, in evaluation mode. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "onnx/onnx.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"

#include <stdio.h>
#include <string.h>

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

TEST(onnx_a_written_model_computes_with_the_given_weights)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    const char *model = "tests/data/onnx/small-old/model.onnx";
    const char *weights = pl_test_path("w.safetensors"), *written = pl_test_path("new.onnx");
    pl_type t = PL_TYPE(PL_F32, CLASSES);
    float bias[CLASSES], before[BATCH * CLASSES], after[BATCH * CLASSES];
    pl_onnx *o;
    pl_st_writer *w;
    int replaced;
    CHECK_OK(outputs(model, before));
    CHECK_OK(pl_onnx_open(model, &o));
    pl_ox_host old;
    CHECK_OK(pl_ox_init_read(o, pl_ox_map_get(o->inits, "fc.bias"), &o->mem, &old));
    for (int i = 0; i < CLASSES; i++) bias[i] = (float)old.d[i] + (float)i;
    CHECK_OK(pl_st_writer_new(weights, &w));
    CHECK_OK(pl_st_writer_add(w, "fc.bias", &t));
    CHECK_OK(pl_st_writer_begin(w));
    CHECK_OK(pl_st_writer_write(w, 0, bias, sizeof bias));
    CHECK_OK(pl_st_writer_finish(w));
    pl_st_writer_free(w);

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
