/* small_run.c - see small_run.h. */
#include "tests/lib/small_run.h"

#include "base/err.h"
#include "base/sys.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

pl_status small_run_noise(void *data, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch)
{
    (void)data, (void)subset;
    static const char *const names[] = {"x", "y"};
    for (int k = 0; k < 2; k++) {
        pl_type t;
        float *to = pl_batch_input(batch, names[k], &t);
        int64_t row = pl_type_elems(&t) / t.dim[0];
        for (int i = 0; i < n; i++) {
            uint64_t state = (uint64_t)(sample[i] * 2 + k + 1) * 0x9e3779b97f4a7c15u;
            for (int64_t j = 0; j < row; j++) *to++ = (float)pl_test_noise(&state);
        }
    }
    return PL_OK;
}

pl_status small_run_linear(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    pl_type t = PL_TYPE(PL_F32, pl_builder_batch(b), 2);
    pl_val x = pl_nn_linear(m, pl_input(m->g, "x", t), "fc", 2, (pl_nn_lin){0});
    pl_builder_minimise(b, pl_loss_mse(m->g, x, pl_input(m->g, "y", t)));
    return PL_OK;
}

pl_status small_run_open(const pl_recipe *recipe, const char *const *keys, int n, pl_run **out)
{
    pl_run *r = pl_sys_alloc(sizeof *r);
    if (!r) return PL_ERR_MEMORY;
    *out = r;
    r->recipe = recipe;
    r->compile = (pl_compile_opts)PL_COMPILE_INIT;
    r->phases.now = -1;
    r->store = pl_store_new();
    const pl_config_entry *tables[3] = {pl_engine_schema, recipe->schema};
    if (recipe->optims) tables[2] = pl__optim_schema(&r->arena, recipe->optims);
    PL_TRY(pl_config_new(tables, recipe->optims ? 3 : 2, &r->config));
    for (int i = 0; i < n; i++) PL_TRY(pl_config_override(r->config, keys[i]));
    PL_TRY(pl_config_check(r->config));
    return pl__phases_read(r);
}

pl_status small_run_save(const char *config, const char *const *keys, int n, const char *path)
{
    pl_run *run;
    PL_TRY(pl_run_open(config, keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_save_model(run, path);
    pl_run_free(run);
    return rc;
}

pl_status small_run_losses(const char *config, const char *const *keys, int n, double *loss,
                           int steps)
{
    pl_run *run;
    pl_step_info info;
    PL_TRY(pl_run_open(config, keys, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < steps; i++) {
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    pl_run_free(run);
    return rc;
}
