/* model_run.c - see model_run.h. */
#include "tests/onnx/model_run.h"

#include "plimsoll_unstable.h"

model_run model_run_new(pl_onnx *model, bool training)
{
    model_run r = {.model = model, .store = pl_store_new()};
    r.nn = pl_nn_new(pl_graph_new(r.store), training);
    return r;
}

pl_status model_run_start(model_run *r, pl_status built)
{
    pl_graph *g = r->nn->g;
    pl_status rc = built == PL_OK ? pl_nn_finish(r->nn) : built;
    if (rc != PL_OK) {
        pl_graph_free(g);
        return rc;
    }
    pl_compile_opts c = PL_COMPILE_INIT;
    PL_TRY(pl_compile(g, &c, &r->program));
    PL_TRY(pl_session_new(r->store, 1, &r->program, &r->session));
    for (int i = 0; i < pl_store_count(r->store); i++) {
        bool known;
        PL_TRY(pl_onnx_slot_read(r->model, pl_store_slot(r->store, i),
                                 pl_session_slot(r->session, i), &known));
    }
    return PL_OK;
}

void model_run_free(model_run *r)
{
    pl_session_free(r->session);
    pl_program_free(r->program);
    pl_nn_free(r->nn);
    pl_store_free(r->store);
    pl_onnx_free(r->model);
}
