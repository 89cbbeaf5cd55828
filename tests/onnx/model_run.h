/* model_run.h - an opened model on its way through build, compilation and a session. */
#ifndef PL_TESTS_MODEL_RUN_H
#define PL_TESTS_MODEL_RUN_H

#include "onnx/onnx.h"

typedef struct model_run {
    pl_onnx *model;
    pl_store *store;
    pl_nn *nn;
    pl_program *program;
    pl_session *session;
} model_run;

/* Takes an opened model, and makes an empty graph for it: r->nn->g. */
model_run model_run_new(pl_onnx *model, bool training);
/* Compiles the graph, opens a session and reads the weights of the file. built: what building the
 * graph returned; anything but PL_OK frees the graph and is returned. */
pl_status model_run_start(model_run *r, pl_status built);
void model_run_free(model_run *r);

#endif
