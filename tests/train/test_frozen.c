/* test_frozen.c - frozen weights that checkpoints leave out: which they are, how they are
 * rebuilt, and that other weights are refused. */
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "tests/dist/ranks_cli.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

/* ---- which ------------------------------------------------------------------------------- */
static const pl_config_entry schema[] = {{0}};

/* A trained layer, a layer that is only read, and a layer that follows the trained layer. */
static pl_status build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    int64_t n = pl_builder_batch(b);
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4)),
           y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    m->frozen = true;
    pl_val h = pl_nn_linear(m, x, "teacher", 6, (pl_nn_lin){0});
    pl_val f = pl_nn_linear(m, x, "follower", 6, (pl_nn_lin){0});
    m->frozen = false;
    pl_val z = pl_nn_linear(m, x, "student", 6, (pl_nn_lin){0});
    int from = pl_store_find(pl_builder_store(b), "student.weight");
    int to = pl_store_find(pl_builder_store(b), "follower.weight");
    pl_assign(m->g, to, pl_scale(m->g, pl_nn_read(m, from), 0.5));
    pl_val loss = pl_add(m->g, pl_loss_mse(m->g, z, y), pl_loss_mse(m->g, z, pl_add(m->g, h, f)));
    pl_builder_minimise(b, loss);
    return PL_OK;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "frozen-test",
                                 .about = "three layers",
                                 .schema = schema,
                                 .build = build,
                                 .data_read = small_run_noise};

TEST(frozen_weights_are_weights_that_no_program_writes)
{
    static const char *const keys[] = {"batch=4", "optim.frozen=student.bias"};
    static const char *const names[] = {"teacher.weight", "teacher.bias",   "follower.weight",
                                        "follower.bias",  "student.weight", "student.bias"};
    static const bool want[] = {true, true, false, true, false, true};

    pl_run *run;
    bool any;
    CHECK_OK(small_run_open(&recipe, keys, 2, &run));
    CHECK_OK(pl__stage_open(run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl__frozen_leave(run, &any));
    CHECK(any);
    CHECK_INT(run->files.n_leaving, 4);

    for (int i = 0; i < 6; i++) {
        int slot = pl_store_find(pl_run_store(run), names[i]);
        CHECK_MSG(slot >= 0 && run->files.leaving[slot] == want[i], "%s", names[i]);
    }
    pl_run_free(run);
}

/* ---- runs --------------------------------------------------------------------------------- */
/* Number of tensors with this prefix in a model file below the test's folder; -1: it cannot be
 * read. */
static int tensors(const char *file, const char *prefix)
{
    char path[512];
    pl_st_reader *f;
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), file);
    if (pl_st_open(path, &f) != PL_OK) return -1;
    for (int i = 0; i < pl_st_count(f); i++)
        n += strncmp(pl_st_at(f, i)->name, prefix, strlen(prefix)) == 0;
    pl_st_close(f);
    return n;
}

#define FLUX "fluxflow/tiny gan.on=false data.samples=64 eval.batches=1 --quiet "
#define LAST "checkpoints/step-00000004/model.safetensors"

TEST(frozen_weights_are_left_out_and_rebuilt_on_resume)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P train " FLUX "train.steps=4 --out %s/a", d), 0, "");
    CHECK_RUN(cli_run("$P train " FLUX "train.steps=4 checkpoint.frozen=true --out %s/b", d), 0,
              "");
    int all = tensors("a/model.safetensors", "lpips.");
    CHECK(all > 10);
    CHECK_INT(tensors("a/" LAST, "lpips."), 0);
    CHECK_INT(tensors("b/" LAST, "lpips."), all);
    CHECK_INT(tensors("a/" LAST, "expander."), tensors("b/" LAST, "expander."));
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));

    cli_result r =
        cli_run("test $(stat -c %%s %s/a/" LAST ") -lt $(stat -c %%s %s/b/" LAST ")", d, d);
    CHECK_INT(r.code, 0);
    /* from a checkpoint with them to one without, and back */
    CHECK_RUN(cli_run("$P train " FLUX "train.steps=2 --out %s/c", d), 0, "");
    CHECK_RUN(cli_run("$P train " FLUX "train.steps=3 checkpoint.frozen=true --out %s/c", d), 0,
              "");
    cli_run("timeout -s KILL 0.3 $P train " FLUX "train.steps=4 checkpoint.every=1 --out %s/c", d);
    CHECK_RUN(cli_run("$P train " FLUX "train.steps=4 --out %s/c", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "c/model.safetensors") && cli_same("a/" LAST, "c/" LAST));
}

/* Frozen weights that came from a file must come from the same file on resume. */
TEST(frozen_weights_of_another_file_are_refused)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run("$P train " FLUX "train.steps=1 seed=1 --out %s/x", d), 0, "");
    CHECK_RUN(cli_run("$P train " FLUX "train.steps=1 seed=2 --out %s/y", d), 0, "");
#define GO "$P train " FLUX "train.steps=%d --out %s/c init_from=%s/%s/model.safetensors"
    CHECK_RUN(cli_run(GO, 2, d, d, "x"), 0, "");
    cli_result r = cli_run(GO, 3, d, d, "y");
    CHECK_MSG(r.code == 6 && strstr(r.err, "leaves out") && strstr(r.err, "lpips.") &&
                  strstr(r.err, "init_from") && strstr(r.err, "lpips.weights"),
              "%d %s", r.code, r.err);
    CHECK_RUN(cli_run(GO, 3, d, d, "x"), 0, "");
#undef GO
    /* A run that starts from a checkpoint's model: where the frozen weights come from the seed,
     * the seed must be the same. */
#define BEGIN                                                                                      \
 "$P train " FLUX "train.steps=1 seed=%d init_from=%s/x/checkpoints/step-00000001/model.safetensors"
    CHECK_RUN(cli_run(BEGIN, 1, d), 0, "");
    CHECK_RUN(cli_run(BEGIN, 3, d), 6, "leaves out");
#undef BEGIN
}

TEST(frozen_teacher_is_left_out_of_checkpoints)
{
    WANT_BIN();
    const char *d = pl_test_dir();
#define WAN "wandistill/tiny data.samples=32 eval.batches=1 --quiet "
    CHECK_RUN(cli_run("$P train " WAN "train.steps=4 --out %s/a", d), 0, "");
    CHECK(tensors("a/model.safetensors", "teacher.") > 0);
    CHECK_INT(tensors("a/" LAST, "teacher."), 0);
    CHECK_RUN(cli_run("$P train " WAN "train.steps=2 --out %s/b", d), 0, "");
    CHECK_RUN(cli_run("$P train " WAN "train.steps=4 --out %s/b", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
#undef WAN
}

/* Ranks with sharded frozen weights resume from a checkpoint that left them out, and write them. */
TEST(frozen_weights_sharded_across_ranks_are_written)
{
    WANT_BIN();
    WANT_RANKS();
    const char *d = pl_test_dir();
#define WAN    "wandistill/tiny batch=4 data.samples=32 eval.batches=1 --quiet "
#define SHARED "--ranks 2 shard=weights threads=1 "

    CHECK_RUN(cli_run("$P train " WAN "seed=5 train.steps=1 --out %s/y", d), 0, "");
    CHECK_RUN(
        cli_run("$P train " WAN "train.steps=2 init_from=%s/y/model.safetensors --out %s/a", d, d),
        0, "");
    CHECK_RUN(cli_run("$P train " WAN SHARED "train.steps=3 --out %s/a", d), 6, "leaves out");
    CHECK_RUN(cli_run("$P train " WAN SHARED
                      "train.steps=4 init_from=%s/y/model.safetensors --out %s/a",
                      d, d),
              0, "");
    CHECK(tensors("a/" LAST, "teacher.") > 0);
    CHECK_RUN(
        cli_run("$P train " WAN "train.steps=5 init_from=%s/y/model.safetensors --out %s/a", d, d),
        0, "");
#undef SHARED
#undef WAN
}

/* A phase starts with the weights of another phase, so all weights are written. */
TEST(frozen_weights_are_written_by_runs_with_phases)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P train fluxflow/pipeline-tiny data.samples=64 --quiet --out %s/p", d), 0,
              "");
    cli_result r = cli_run("ls -d %s/p/checkpoints/step-* | tail -1 | sed 's,^%s/,,'", d, d);
    char file[256];
    snprintf(file, sizeof file, "%.*s/model.safetensors", (int)strcspn(r.out, "\n"), r.out);
    CHECK_MSG(tensors(file, "compressor.") > 0, "%s", file);
}
