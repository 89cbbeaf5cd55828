/* test_guard.c - the guard (keys guard.*): a step far from what is usual is not applied, the run
 * goes on, returns to a checkpoint or ends, and a resumed run does the same. */
#include "base/err.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_train.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4, BAD_STEP = 15, STEPS = 30 };

/* ---- a recipe whose samples of one step are far too large, or not numbers ----------------- */
static const pl_config_entry schema[] = {
    {"bad", PL_CONFIG_FLOAT, "1", 0, 1e30, NULL, "Factor of the bad samples; 0: NaN."},
    {0},
};

static pl_status read_samples(void *data, pl_subset subset, const int64_t *sample, int n,
                              pl_batch *batch)
{
    pl_type t;
    double factor = pl_config_float(data, "bad");
    PL_TRY(small_run_noise(data, subset, sample, n, batch));
    float *y = pl_batch_input(batch, "y", &t);
    for (int i = 0; i < n; i++) {
        if (sample[i] / BATCH != BAD_STEP - 1) continue;
        for (int64_t k = 0; k < t.dim[1]; k++)
            y[i * t.dim[1] + k] *= (float)(factor > 0 ? factor : (double)NAN);
    }
    return PL_OK;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "guard-test",
                                 .about = "one linear layer",
                                 .schema = schema,
                                 .build = small_run_linear,
                                 .data_read = read_samples};

/* Endless data come in the order of their numbers. */
static pl_status open_run(const char *const *more, int n, pl_run **out)
{
    const char *keys[16] = {"batch=4", "guard.spike=5", "guard.warmup=5",
                            "data.allow_nonfinite=true", "optim.lr=0.01"};
    for (int i = 0; i < n; i++) keys[5 + i] = more[i];
    PL_TRY(small_run_open(&recipe, keys, 5 + n, out));
    return pl__stage_open(*out);
}

typedef struct path {
    double loss[STEPS];
    bool spiked[STEPS];
} path;

static pl_status start(const char *const *more, int n, pl_run **run)
{
    PL_TRY(open_run(more, n, run));
    PL_TRY(pl_run_build(*run));
    return pl_run_start(*run);
}

static pl_status follow(pl_run *run, int from, int to, path *p)
{
    pl_step_info info;
    for (int i = from; i < to; i++) {
        PL_TRY(pl_run_step(run, &info));
        p->loss[i] = info.loss;
        p->spiked[i] = info.spiked;
    }
    return PL_OK;
}

static pl_status whole(const char *const *more, int n, path *p)
{
    pl_run *run = NULL;
    memset(p, 0, sizeof *p);
    pl_status rc = start(more, n, &run);
    if (rc == PL_OK) rc = follow(run, 0, STEPS, p);
    pl_run_free(run);
    return rc;
}

static int spikes(const path *p)
{
    int n = 0;
    for (int i = 0; i < STEPS; i++) n += p->spiked[i];
    return n;
}

static pl_status save(pl_run *run, const char *dir)
{
    static pl_checkpoint c; /* too large for the stack */
    memset(&c, 0, sizeof c);
    return pl_checkpoint_save(run, dir, &c);
}

static pl_status resume(const char *const *more, int n, const char *dir, pl_run **run)
{
    PL_TRY(open_run(more, n, run));
    PL_TRY(pl_run_resume(*run, dir));
    PL_TRY(pl_run_build(*run));
    return pl_run_start(*run);
}

/* ---- tests ------------------------------------------------------------------------------ */
TEST(guard_leaves_out_the_step_that_spikes_and_no_other)
{
    static const char *const none[] = {"bad=1"}, *const large[] = {"bad=1000"},
                             *const nan[] = {"bad=0"},
                             *const micro[] = {"bad=1000", "accumulate=2"};
    path usual, far, not_number, micros;

    CHECK_OK(whole(none, 1, &usual));
    CHECK_OK(whole(large, 1, &far));
    CHECK_OK(whole(nan, 1, &not_number));
    CHECK_OK(whole(micro, 2, &micros));

    CHECK_INT(spikes(&usual), 0);
    CHECK(spikes(&far) == 1 && far.spiked[BAD_STEP - 1]);
    CHECK(spikes(&not_number) == 1 && not_number.spiked[BAD_STEP - 1]);
    CHECK(spikes(&micros) == 1 && micros.spiked[BAD_STEP - 1]);
    for (int i = 0; i < STEPS; i++)
        if (i != BAD_STEP - 1) CHECK(far.loss[i] == not_number.loss[i]);
    CHECK(far.loss[BAD_STEP] != usual.loss[BAD_STEP]);
}

TEST(guard_ends_the_run_when_asked_or_when_nothing_is_applied_any_more)
{
    static const char *const stop[] = {"bad=1000", "guard.action=stop"}, *const tight[] = {
                                                                             "guard.spike=1e-6",
                                                                             "guard.limit=3"};
    path p;

    CHECK_INT(whole(stop, 2, &p), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "step 15 was not applied") &&
                  strstr(pl_error_text(), "guard.action is stop"),
              "%s", pl_error_text());
    CHECK_INT(whole(tight, 2, &p), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "step 9 was not applied") &&
                  strstr(pl_error_text(), "step 4 in a row"),
              "%s", pl_error_text());
}

TEST(guard_decides_the_same_after_a_resume)
{
    static const char *const large[] = {"bad=1000"};
    char dir[600];
    pl_run *run = NULL, *second = NULL;
    path want, got;
    memset(&got, 0, sizeof got);
    snprintf(dir, sizeof dir, "%s/step", pl_test_dir());
    CHECK_OK(whole(large, 1, &want));

    CHECK_OK(start(large, 1, &run));
    CHECK_OK(follow(run, 0, 12, &got));
    CHECK_OK(save(run, dir));
    CHECK_OK(resume(large, 1, dir, &second));
    CHECK_OK(follow(second, 12, STEPS, &got));

    CHECK(memcmp(&want, &got, sizeof got) == 0);
    pl_run_free(run);
    pl_run_free(second);
}

/* The weights after a rollback are the checkpoint's, the data go on. */
TEST(guard_rollback_returns_to_the_weights_and_leaves_the_batches_out)
{
    static const char *const large[] = {"bad=1000", "guard.action=rollback"}, *const start_at[] = {
                                                                                  "bad=1"};
    char dir[600];
    pl_run *run = NULL, *other = NULL;
    path p, q;
    snprintf(dir, sizeof dir, "%s/step", pl_test_dir());

    CHECK_OK(start(large, 2, &run));
    CHECK_OK(follow(run, 0, 10, &p));
    CHECK_OK(save(run, dir));
    CHECK_OK(follow(run, 10, BAD_STEP, &p));
    CHECK(p.spiked[BAD_STEP - 1]);
    CHECK_OK(pl_run_rollback(run, dir));
    CHECK_INT(pl_run_steps_done(run), BAD_STEP);
    CHECK_OK(follow(run, BAD_STEP, STEPS, &p));

    CHECK_OK(resume(start_at, 1, dir, &other));
    pl_step_info info;
    CHECK_OK(pl_run_step(other, &info));
    CHECK(info.loss == p.loss[10]);
    CHECK(p.loss[BAD_STEP] != p.loss[10]);
    CHECK_OK(whole(large, 1, &q));
    CHECK(q.loss[BAD_STEP] != p.loss[BAD_STEP]);
    pl_run_free(run);
    pl_run_free(other);
}

/* A rollback does not forget how many steps in a row were not applied, or a run without any usual
 * step would roll back for ever. */
TEST(guard_rollback_keeps_the_count_of_steps_in_a_row)
{
    static const char *const tight[] = {"guard.spike=1e-6", "guard.limit=3"};
    char dir[600];
    pl_run *run = NULL;
    path p;
    snprintf(dir, sizeof dir, "%s/step", pl_test_dir());
    CHECK_OK(start(tight, 2, &run));
    CHECK_OK(follow(run, 0, 5, &p));
    CHECK_OK(save(run, dir));

    for (int i = 5; i < 8; i++) {
        CHECK_OK(follow(run, i, i + 1, &p));
        CHECK(p.spiked[i]);
        CHECK_OK(pl_run_rollback(run, dir));
    }

    CHECK_INT(follow(run, 8, 9, &p), PL_ERR_NUMERIC);
    CHECK_MSG(strstr(pl_error_text(), "step 4 in a row"), "%s", pl_error_text());
    pl_run_free(run);
}
