/* test_updates.c - several updates on one batch: the same bits as training on the batch
 * repeatedly, what counts steps and what counts updates, and how often data is read. */
#include "base/err.h"
#include "base/sys.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 8, STEPS = 5 };

/* ---- a recipe of two programs, whose samples may come by hand as often as a batch is trained on
 * -------------- */
static const pl_config_entry schema[] = {
    {"hand", PL_CONFIG_INT, "1", 1, 16, NULL, "Every batch comes so often."},
    {"each", PL_CONFIG_BOOL, "false", 0, 0, NULL, "The schedule moves with each update."},
    {0},
};
static const char *const sections[] = {"optim_d", NULL};
static _Atomic int reads; /* batches that were read */

static pl_val net(pl_builder *b, pl_nn *m, const char *name, pl_val x)
{
    x = pl_silu(m->g, pl_nn_linear(m, x, pl_nn_name(m, "%s.0", name), 12, (pl_nn_lin){0}));
    x = pl_mul(m->g, x, pl_draw_keep(b, m, "keep", pl_val_type(m->g, x), 0.25));
    return pl_nn_linear(m, x, pl_nn_name(m, "%s.1", name), 6, (pl_nn_lin){0});
}

static void minimise(pl_builder *b, pl_nn *m, const char *name, const char *optim)
{
    int64_t n = pl_builder_batch(b);
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4)),
           y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    pl_val loss = pl_loss_mse(m->g, net(b, m, name, x), y);
    bool each = pl_config_bool(pl_builder_config(b), "each");
    pl_builder_minimise_with(b, m, loss, &(pl_group){pl_nn_name(m, "%s.*", name), optim, 1, each});
}

static pl_status build(pl_builder *b)
{
    minimise(b, pl_builder_program(b, "first", (pl_when){0}), "first", "optim_d");
    minimise(b, pl_builder_train(b), "second", NULL);
    return PL_OK;
}

static pl_status read_batch(void *data, pl_subset subset, const int64_t *sample, int n,
                            pl_batch *batch)
{
    int64_t again = pl_config_int(data, "hand"), of[BATCH];
    for (int i = 0; i < n; i++) of[i] = sample[i] / BATCH / again * BATCH + sample[i] % BATCH;
    atomic_fetch_add(&reads, 1);
    return small_run_noise(NULL, subset, of, n, batch);
}

static pl_status open_data(const pl_config *c, void **data)
{
    *data = (void *)(uintptr_t)c;
    return PL_OK;
}

static void close_data(void *data)
{
    (void)data;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "updates-test",
                                 .about = "two small networks",
                                 .schema = schema,
                                 .build = build,
                                 .data_open = open_data,
                                 .data_close = close_data,
                                 .data_read = read_batch,
                                 .optims = sections};

/* The bytes of all slots after this many steps, in one list; *lr: the rate of the last step. */
static pl_status train(const char *const *keys, int n, int steps, char *to, size_t cap,
                       size_t *used, double *lr)
{
    pl_run *run = NULL;
    pl_step_info info;
    pl_status rc = small_run_open(&recipe, keys, n, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = pl_run_step(run, &info);
    *used = 0;
    for (int i = 0; rc == PL_OK && i < pl_store_count(pl_run_store(run)); i++) {
        size_t bytes = pl_type_bytes(&pl_store_slot(pl_run_store(run), i)->type);
        if (*used + bytes > cap)
            rc = PL_ERR_MEMORY;
        else
            memcpy(to + *used, pl_session_slot(pl_run_session(run), i), bytes);
        *used += bytes;
    }
    if (rc == PL_OK) {
        *lr = info.lr;
        if (info.step != steps) rc = PL_ERR_PLAN;
    }
    pl_run_free(run);
    return rc;
}

TEST(updates_repeat_the_same_batch)
{
    static const char *const ways[][2] = {{"accumulate=1", "data.workers=0"},
                                          {"accumulate=1", "data.workers=2"},
                                          {"accumulate=2", "data.workers=0"}};
    static char a[1 << 16], b[1 << 16];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int n = 2; n <= 3; n++) {
            char updates[64], hand[64];
            size_t na, nb;
            double lr;
            snprintf(updates, sizeof updates, "train.updates_per_batch=%d", n);
            snprintf(hand, sizeof hand, "hand=%d", n);
            const char *by_key[] = {"batch=8", ways[i][0], ways[i][1], updates};
            const char *by_hand[] = {"batch=8", ways[i][0], ways[i][1], hand};
            CHECK_OK(train(by_key, 4, STEPS, a, sizeof a, &na, &lr));
            CHECK_OK(train(by_hand, 4, STEPS * n, b, sizeof b, &nb, &lr));
            CHECK_MSG(na == nb && memcmp(a, b, na) == 0, "%s %s: other bits", ways[i][0],
                      ways[i][1]);
            CHECK_OK(train(by_hand, 4, STEPS * n - 1, b, sizeof b, &nb, &lr));
            CHECK(memcmp(a, b, na) != 0);
        }
}

/* Workers fill a buffer once per batch, however many programs train on the batch and how often. */
TEST(updates_read_a_batch_once)
{
    static const char *const keys[] = {"batch=8", "data.workers=1", "data.prefetch=1",
                                       "train.updates_per_batch=4"};
    static char state[1 << 16];
    size_t used;
    double lr;
    atomic_store(&reads, 0);
    CHECK_OK(train(keys, 4, 6, state, sizeof state, &used, &lr));
    int n = atomic_load(&reads);
    CHECK_MSG(n >= 6 && n <= 6 + 2, "%d batches were read for 6 steps", n);
}

/* A schedule of 8 steps ends after 8 steps. It advances once per step, or with every update if the
 * recipe asks for that. */
TEST(updates_of_one_batch_advance_schedules_as_the_recipe_asks)
{
    const char *keys[] = {"batch=8",
                          "train.steps=8",
                          "schedule.name=linear",
                          "schedule.end_factor=0",
                          "optim.lr=1",
                          "train.updates_per_batch=2",
                          "each=false"};
    static char state[1 << 16];
    size_t used;
    double lr;
    for (int steps = 1; steps <= 8; steps++) {
        keys[6] = "each=false";
        CHECK_OK(train(keys, 7, steps, state, sizeof state, &used, &lr));
        CHECK_MSG(fabs(lr - (1 - (steps - 1) / 8.0)) < 1e-6, "step %d: rate %g", steps, lr);
        keys[6] = "each=true";
        CHECK_OK(train(keys, 7, steps, state, sizeof state, &used, &lr));
        CHECK_MSG(fabs(lr - (1 - (2 * steps - 1) / 16.0)) < 1e-6, "step %d: rate %g of each update",
                  steps, lr);
    }
}

/* Killed at any time, also between two updates of a batch, a run resumes to the same bits. */
TEST(updates_resume_to_the_same_bits_after_a_kill)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
#define RUN                                                                                        \
 "fluxflow/tiny train.updates_per_batch=3 gan.base=2 lpips.on=false data.samples=64 eval.batches=1 --quiet "

    cli_result r = cli_run("$P train " RUN "train.steps=6 --out %s/a", d);
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_RUN(cli_run("$P train " RUN "train.steps=2 --out %s/b", d), 0, "");
    for (int i = 1; i <= 2; i++)
        cli_run("timeout -s KILL %.3f $P train " RUN "train.steps=6 checkpoint.every=1 --out %s/b",
                r.seconds * 0.3 * i, d);
    CHECK_RUN(cli_run("$P train " RUN "train.steps=6 --out %s/b", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    CHECK(cli_same("a/checkpoints/step-00000006/state.safetensors",
                   "b/checkpoints/step-00000006/state.safetensors"));
    CHECK_MSG(!cli_bad_log("b", 6), "%s", cli_bad_log("b", 6));

    r = cli_run("$P train " RUN "train.steps=7 train.updates_per_batch=2 --out %s/b", d);
    CHECK_MSG(r.code == 2 && strstr(r.err, "train.updates_per_batch"), "%d %s", r.code, r.err);
#undef RUN
}

/* The predicted step includes all updates of the batch. */
TEST(updates_multiply_the_predicted_step_time)
{
    static const char *const keys[][2] = {{"train.updates_per_batch=1", "batch=2"},
                                          {"train.updates_per_batch=3", "batch=2"}};
    double ms[2];
    for (int i = 0; i < 2; i++) {
        pl_run *run;
        CHECK_OK(pl_run_open("cloud/tiny", keys[i], 2, &run));
        CHECK_OK(pl_run_build(run));
        ms[i] = pl_run_predicted_ms(run);
        pl_run_free(run);
    }
    CHECK_MSG(fabs(ms[1] - 3 * ms[0]) < 1e-9 * ms[1], "%g and %g ms", ms[0], ms[1]);
}
