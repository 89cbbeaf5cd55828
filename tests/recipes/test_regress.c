/* test_regress.c - the regress recipe: its size, that it learns, the same losses under a budget,
 * and training from a user's .npy files through the command line. */
#include "io/npy.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

TEST(regress_has_the_expected_parameters)
{
    static const struct {
        const char *preset, *keys[3];
        int64_t parameters;
    } known[] = {
        {"regress/tiny", {"seed=0"}, (4 + 1) * 32 + (32 + 1) * 32 + 32 + 1},
        {"regress/tiny",
         {"inputs=7", "targets=3", "model.widths=[5]"},
         (7 + 1) * 5 + (5 + 1) * 3}, /* weights and biases */
        {"regress/tiny", {"inputs=7", "targets=3", "model.widths=[]"}, (7 + 1) * 3},
        {"regress/small", {"seed=0"}, 5 * 256 + 2 * 257 * 256 + 257 + 3 * 2 * 256},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        pl_run *run;
        int n = 1;
        while (n < 3 && known[i].keys[n]) n++;
        CHECK_OK(pl_run_open(known[i].preset, known[i].keys, n, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_INT(pl_run_parameters(run, true), known[i].parameters);
        pl_run_free(run);
    }
}

/* Mean loss of the last 20 steps divided by the mean loss of the first 20; -1 on failure. */
static double fall_of(const char *const *keys, int n)
{
    enum { STEPS = 200, WINDOW = 20 };
    double loss[STEPS], first = 0, last = 0;
    if (small_run_losses("regress/tiny", keys, n, loss, STEPS) != PL_OK) return -1;
    for (int i = 0; i < WINDOW; i++) first += loss[i], last += loss[STEPS - 1 - i];
    return last / first;
}

TEST(regress_loss_falls)
{
    double fall = fall_of(NULL, 0);
    CHECK_MSG(fall > 0 && fall < 0.2, "the loss falls by a factor of %g", fall);
}

TEST(regress_loss_falls_for_every_loss_and_activation)
{
    static const char *const keys[][3] = {
        {"loss=l1", "model.activation=relu", "model.layer_norm=true"},
        {"loss=smooth_l1", "loss_beta=0.5", "model.activation=tanh"},
        {"loss=mse", "model.activation=silu", "model.dropout=0.02"},
        {"targets=3", "inputs=2", "model.widths=[24]"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double fall = fall_of(keys[i], 3);
        CHECK_MSG(fall > 0 && fall < 0.5, "%s %s %s: the loss falls by a factor of %g", keys[i][0],
                  keys[i][1], keys[i][2], fall);
    }
}

/* Two thirds of the keep-all arena: the plan recomputes, and no loss changes a bit. */
TEST(regress_budget_changes_no_loss)
{
    enum { STEPS = 3 };
    static const char *const keys[] = {"batch=4096", "model.dropout=0.1", "model.layer_norm=true",
                                       "model.widths=[32, 32, 32, 32, 32, 32]"};
    double loss[2][STEPS];
    uint64_t arena[2];
    pl_compile_opts o = PL_COMPILE_INIT;

    for (int k = 0; k < 2; k++) {
        pl_run *run;
        CHECK_OK(pl_run_open("regress/tiny", keys, 4, &run));
        if (k) o.arena_budget = arena[0] / 3 * 2, pl_run_set_compile(run, &o);
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        const pl_plan_info *plan = pl_program_plan(pl_run_train_program(run));
        arena[k] = plan->arena_bytes;
        CHECK((plan->recompute_ratio > 0) == (k == 1));
        for (int i = 0; i < STEPS; i++) {
            pl_step_info info;
            CHECK_OK(pl_run_step(run, &info));
            loss[k][i] = info.loss;
        }
        pl_run_free(run);
    }
    CHECK(arena[1] <= o.arena_budget);
    CHECK_MSG(memcmp(loss[0], loss[1], sizeof loss[0]) == 0, "losses change from %.9g to %.9g",
              loss[0][STEPS - 1], loss[1][STEPS - 1]);
}

/* ---- arrays ------------------------------------------------------------------------------- */
#define IN   "cd %s && "
#define KEYS "train.steps=20 eval.every=0 --quiet "

/* The evaluation's loss is the metric of the same formula, and the other metric differs. */
TEST(regress_metrics_are_the_losses_of_their_names)
{
    static const char *const losses[] = {"l1", "mse"}, *const metrics[] = {"mae", "mse"};
    WANT_BIN();
    for (int i = 0; i < 2; i++) {
        cli_result r = cli_run(IN "$P train regress/tiny train.steps=5 loss=%s --out %s --quiet && "
                                  "$P eval %s --json",
                               pl_test_dir(), losses[i], losses[i], losses[i]);
        json_t *j = json_loads(r.out, 0, NULL), *m = json_object_get(j, "metrics");
        double loss = json_number_value(json_object_get(m, "loss"));
        double same = json_number_value(json_object_get(m, metrics[i]));
        double other = json_number_value(json_object_get(m, metrics[1 - i]));
        json_decref(j);
        CHECK_MSG(r.code == 0 && loss > 0, "%s%s", r.out, r.err);
        CHECK_NEAR(same, loss, 1e-6);
        CHECK_MSG(fabs(other - loss) > 1e-3, "mae and mse are both %g", loss);
    }
}

/* Training on the generated samples as files gives the same losses as on the generated samples,
 * with sizes from the files. A run on files is evaluated, and its predictions are written. */
TEST(regress_trains_on_arrays_as_on_generated_samples)
{
    static char made[8192], read[8192];
    const char *d = pl_test_dir();
    WANT_BIN();

    CHECK_RUN(cli_run(IN "$P generate regress/tiny inputs=3 targets=2 --out set --quiet && "
                         "$P train regress/tiny inputs=3 targets=2 --out made " KEYS "&& "
                         "$P train regress/tiny data.path=set --out read " KEYS,
                      d),
              0, "");
    cli_losses("made", made, sizeof made);
    cli_losses("read", read, sizeof read);
    CHECK_MSG(made[0] && strcmp(made, read) == 0, "generated: %s\nread: %s", made, read);

    cli_result r = cli_run(IN "$P eval read --out got sample.count=5 --json", d);
    json_t *j = json_loads(r.out, 0, NULL), *m = json_object_get(j, "metrics");
    double mse = json_number_value(json_object_get(m, "mse"));
    CHECK_MSG(r.code == 0 && mse > 0, "%s%s", r.out, r.err);
    CHECK(json_number_value(json_object_get(m, "mae")) > 0);
    CHECK_NEAR(json_number_value(json_object_get(m, "rmse")), sqrt(mse), 1e-9);
    json_decref(j);
    r = cli_run(IN "$P inspect got/samples.safetensors", d);
    CHECK_MSG(r.code == 0 && strstr(r.out, "prediction") && strstr(r.out, "[5,2]"), "%s%s", r.out,
              r.err);
}

/* Writes N rows to the file of the set `name` that `file` names; dtype f32, f64 or i64. */
static void write_array(const char *name, const char *file, pl_type type)
{
    enum { N = 64 * 3 };
    char path[600];
    float f32[N];
    double f64[N];
    int64_t i64[N];
    for (int i = 0; i < N; i++) f64[i] = sin(i), f32[i] = (float)f64[i], i64[i] = i;
    snprintf(path, sizeof path, "%s/%s/%s", pl_test_dir(), name, file);
    const void *rows = type.dtype == PL_F32   ? (void *)f32
                       : type.dtype == PL_F64 ? (void *)f64
                                              : i64;
    CHECK_OK(pl_npy_write(path, &type, rows));
}

static void write_set(const char *name, pl_type input, pl_type target)
{
    CHECK_RUN(cli_run(IN "mkdir -p %s/train %s/eval", pl_test_dir(), name, name), 0, "");
    write_array(name, "train/input.npy", input);
    write_array(name, "eval/input.npy", input);
    write_array(name, "train/target.npy", target);
    write_array(name, "eval/target.npy", target);
}

/* A target of shape [N] equals a target of shape [N, 1]; f64 is rounded to f32. */
TEST(regress_reads_flat_and_f64_arrays)
{
    static char plain[8192], other[8192];
    WANT_BIN();
    write_set("plain", PL_TYPE(PL_F32, 64, 3), PL_TYPE(PL_F32, 64, 1));
    write_set("other", PL_TYPE(PL_F64, 64, 3), PL_TYPE(PL_F64, 64));

    CHECK_RUN(cli_run(IN "$P train regress/tiny data.path=plain --out a " KEYS "&& "
                         "$P train regress/tiny data.path=other --out b " KEYS,
                      pl_test_dir()),
              0, "");

    cli_losses("a", plain, sizeof plain);
    cli_losses("b", other, sizeof other);
    CHECK_MSG(plain[0] && strcmp(plain, other) == 0, "f32: %s\nf64: %s", plain, other);
}

TEST(regress_bad_arrays_are_refused)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    write_set("set", PL_TYPE(PL_F32, 64, 3), PL_TYPE(PL_F32, 64));

    CHECK_RUN(cli_run(IN "$P train regress/tiny data.path=set inputs=4 " KEYS, d), 2,
              "inputs is 4, but set/train/input.npy has 3 numbers per row");
    CHECK_RUN(cli_run(IN "$P plan regress/tiny data.path=gone", d), 2,
              "no file gone/train/input.npy");

    write_set("deep", PL_TYPE(PL_F32, 16, 3, 4), PL_TYPE(PL_F32, 16));
    CHECK_RUN(cli_run(IN "$P train regress/tiny batch=4 data.path=deep " KEYS, d), 5,
              "deep/train/input.npy: regress reads .npy arrays of shape [N] or [N, K]");

    write_set("whole", PL_TYPE(PL_I64, 64, 3), PL_TYPE(PL_F32, 64));
    CHECK_RUN(cli_run(IN "$P train regress/tiny data.path=whole " KEYS, d), 5,
              "needs samples of f32");
}
