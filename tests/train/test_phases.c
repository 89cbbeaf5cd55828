/* test_phases.c - runs of several phases: settings of each phase, weights that pass between
 * phases, conditions that end a phase, resuming. */
#include "plimsoll_checkpoint.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/files/run_files.h"

#include <signal.h>
#include <string.h>
#include <time.h>

/* The network of CLI_SMALL as a file. */
static const char small[] =
    "recipe: cloud\nextends: cloud/tiny\nbatch: 2\nframes: 1\nheight: 8\nwidth: 8\n"
    "model: {channels: [2, 2, 2], dense: [4, 4], film_hidden: 4}\n"
    "eval: {batches: 1}\ndata: {samples: 32, eval_samples: 8}\n"
    "model.dropout_conv: 0.3\n";

/* Writes c.yaml: the small network and these phases. */
static bool write_config(const char *phases)
{
    static char text[8192];
    snprintf(text, sizeof text, "%sphases:\n%s", small, phases);
    return cli_write(pl_test_path("c.yaml"), text);
}

#define TWO                                                                                        \
 "  - {name: pre, until: {steps: 6}}\n"                                                            \
 "  - name: main\n    until.steps: 5\n    set: {batch: 4, optim: {lr: 0.01}}\n"

/* ---- each phase is a run of its own ------------------------------------------------------ */
/* A phase has the bits of a plain run with the same settings that starts from the same weights. */
TEST(phases_have_the_bits_of_separate_runs)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(TWO));
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/a", d, d), 0,
              "49 of 49 tensors start from phase pre");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases=null train.steps=6 --quiet --out %s/pre", d, d), 0,
              "");
    CHECK(cli_same("a/phases/pre/model.safetensors", "pre/model.safetensors"));
    CHECK_RUN(cli_run("$P train %s/c.yaml phases=null train.steps=5 batch=4 optim.lr=0.01 "
                      "init_from=%s/pre/model.safetensors --quiet --out %s/main",
                      d, d, d),
              0, "");
    CHECK(cli_same("a/phases/main/model.safetensors", "main/model.safetensors"));
    CHECK(cli_same("a/model.safetensors", "main/model.safetensors"));
    CHECK(!cli_same("a/phases/pre/model.safetensors", "a/model.safetensors"));
    const char *bad = cli_bad_log("a", 11);
    CHECK_MSG(!bad, "%s", bad);
    /* The first step of the second phase is the seventh of the run and the first of its schedule.
     */
    json_t *j = cli_event(cli_read(pl_test_path("a/log.jsonl")), "step", 6);
    CHECK(cli_member(j, "step") == 7 &&
          strcmp(json_string_value(json_object_get(j, "phase")), "main") == 0);
    CHECK(json_number_value(json_object_get(j, "epoch")) == 4.0 / 32);
    json_decref(j);
    j = cli_event(cli_read(pl_test_path("a/log.jsonl")), "phase", 1);
    CHECK(cli_member(j, "step") == 6 && cli_member(j, "last_step") == 11 &&
          cli_member(j, "taken") == 49);
    json_decref(j);
    CHECK(strstr(cli_read(pl_test_path("a/metrics.csv")), ",main,"));
    CHECK(strncmp(cli_read(pl_test_path("a/phases/main/eval.csv")), "step,", 5) == 0);
    CHECK(strstr(cli_read(pl_test_path("a/phases/main/eval.csv")), "\n11,"));
    CHECK(strstr(cli_read(pl_test_path("a/phases/main/eval.csv")),
                 "\n6,")); /* before its first step */
    /* Without a run folder the weights pass through a temporary folder, which is removed. */
    CHECK_RUN(cli_run("mkdir -p %s/tmp && TMPDIR=%s/tmp $P train %s/c.yaml", d, d, d), 0,
              "49 of 49 tensors start from phase pre");
    CHECK(cli_run("test -z \"$(ls -A %s/tmp)\"", d).code == 0);
    CHECK_RUN(cli_run("$P report %s/a", d), 0, "");
}

/* start: NAME and start: fresh, phases as a map, and state: all. */
TEST(phases_start_from_the_phase_they_name)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config("  one: {until.steps: 3}\n  two: {start: fresh, until.steps: 3}\n"
                       "  three: {start: one, until.steps: 2}\n"
                       "  four: {start: one, state: all, until.steps: 2, set: {seed: 0}}\n"));
    CHECK_RUN(
        cli_run("$P train %s/c.yaml --quiet checkpoint.keep=100 checkpoint.every=1 --out %s/a", d,
                d),
        0, "");
    CHECK(cli_same("a/phases/one/model.safetensors", "a/phases/two/model.safetensors"));
    CHECK(!cli_same("a/phases/three/model.safetensors", "a/phases/four/model.safetensors"));
    CHECK(cli_run(
              "test -e %s/a/phases/one/state.safetensors -a ! -e %s/a/phases/two/state.safetensors",
              d, d)
              .code == 0);
    /* Adam's step count continues in the fourth phase, whose moments are those of the first. */
    CHECK_RUN(
        cli_run(
            "$P train %s/c.yaml phases=null init_from=%s/a/phases/one/model.safetensors train.steps=2 "
            "--quiet --out %s/b",
            d, d, d),
        0, "");
    CHECK(cli_same("a/phases/three/model.safetensors", "b/model.safetensors"));
    const char *py =
        "import sys; from safetensors import safe_open as o; f = o(sys.argv[1], 'np'); "
        "print(int(f.get_tensor('optim.step')))";
    WANT_PYTHON(python, "safetensors");
    cli_result r = cli_run("%s -c \"%s\" %s/a/checkpoints/step-00000010/state.safetensors; "
                           "%s -c \"%s\" %s/a/checkpoints/step-00000008/state.safetensors",
                           python, py, d, python, py, d);
    CHECK_MSG(strcmp(r.out, "5\n2\n") == 0, "%s%s", r.out, r.err);
}

/* A recipe whose second layer exists when a key says so, trained by a separate optimizer. */
static pl_status parts_build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    pl_type t = PL_TYPE(PL_F32, pl_builder_batch(b), 2);
    const pl_config *c = pl_builder_config(b);
    pl_val x = pl_nn_linear(m, pl_input(m->g, "x", t), "one", 2, (pl_nn_lin){0});
    if (pl_config_bool(c, "two"))
        x = pl_nn_linear(m, x, "two", pl_config_int(c, "width"), (pl_nn_lin){0});
    pl_val y = pl_broadcast(m->g, pl_mean(m->g, pl_input(m->g, "y", t), PL_AXIS(1), true),
                            PL_DIMS(pl_builder_batch(b), pl_val_type(m->g, x).dim[1]));
    pl_builder_minimise(b, pl_loss_mse(m->g, x, y));
    return PL_OK;
}

static float first_weight(pl_run *r, const char *name)
{
    int slot = pl_store_find(pl_run_store(r), name);
    return slot < 0 ? -1 : *(const float *)pl_session_slot(pl_run_session(r), slot);
}

/* A phase may have other layers: tensors that both phases have are passed on, the others start
 * fresh, and shapes must agree. */
TEST(phases_pass_tensors_on_by_name)
{
    static const pl_config_entry schema[] = {
        {"two", PL_CONFIG_BOOL, "true", 0, 0, NULL, "The second layer."},
        {"width", PL_CONFIG_INT, "2", 1, 9, NULL, "Its width."},
        {0}};
    static const char *const optims[] = {"optim_d", NULL};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "parts",
                                     .schema = schema,
                                     .build = parts_build,
                                     .data_read = small_run_noise,
                                     .optims = optims};
    const char *keys[] = {
        "phases=[{set: {two: false}}, {}, {set: {width: 3}}, {set: {optim_d.lr: 3}}]", "batch=4"};
    char dir[512];
    float left = 0, fresh = 0;
    snprintf(dir, sizeof dir, "%s/left", pl_test_dir());
    for (int i = 0; i < 4; i++) {
        pl_run *r = NULL;
        pl_step_info info;
        int taken, of, refused;
        CHECK_OK(small_run_open(&recipe, keys, 2, &r));
        CHECK_OK(pl__stage_open(r));
        CHECK_OK(pl_run_enter(r, i, 3 * i));
        CHECK_INT(pl_run_phase_at(r, i)->start, i - 1);
        if (i) CHECK_OK(pl_run_take_over(r, dir));
        CHECK_OK(pl_run_build(r));
        pl_status rc = pl_run_start(r);
        if (i == 2) {
            CHECK_MSG(rc == PL_ERR_FILE && strstr(pl_error_text(), "two.weight") &&
                          strstr(pl_error_text(), "the model needs"),
                      "%s", pl_error_text());
            pl_run_free(r);
            continue;
        }
        CHECK_OK(rc);
        pl_run_taken(r, &taken, &of);
        CHECK_INT(taken, i == 1 ? 2 : i == 3 ? 4 : 0);
        CHECK_INT(of, i ? 4 : 0);
        if (i == 0) fresh = first_weight(r, "one.weight");
        if (i == 1) CHECK(first_weight(r, "one.weight") == left && left != fresh);
        for (int k = 0; k < 3; k++) CHECK_OK(pl_run_step(r, &info));
        CHECK_INT(info.step, 3 * i + 3);
        left = first_weight(r, "one.weight");
        CHECK_OK(pl_run_hand_on(r, dir, NULL));
        /* Keys that further optimizers of a recipe add to the configuration are compared, too. */
        static pl_checkpoint c;
        char save[600];
        snprintf(save, sizeof save, "%s-%d", dir, i);
        CHECK_OK(pl_checkpoint_save(r, save, &c));
        CHECK(c.step == 3 * i + 3 && c.phase_step == 3 && c.phase == i);
        CHECK_OK(pl_checkpoint_compare(r, save, NULL, NULL, &refused));
        CHECK_INT(refused, 0);
        pl_run_free(r);
    }
}

/* ---- what ends a phase ------------------------------------------------------------------ */
TEST(phases_end_by_steps_reach_patience_or_epochs)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(
        "  - {name: a, until: {steps: 20, reach: \"mae_km < 1000\"}, set: {eval.every: 3}}\n"
        "  - {name: b, until: {steps: 20, patience: 2}, set: {eval.every: 2, stop.metric: mae_km, "
        "stop.mode: max, stop.threshold: 1}}\n"
        "  - {name: c, until: {epochs: 0.5, reach: \"mae_km > 1000\", patience: 2}, state: all, set: "
        "{eval.every: 3, stop.metric: mae_km, stop.mode: max, stop.threshold: 1}}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/a", d, d), 0,
              "mae_km is below 1000: the phase ends at step 3 of 20");
    json_t *b = cli_event(cli_read(pl_test_path("a/log.jsonl")), "phase", 1);
    json_t *c = cli_event(cli_read(pl_test_path("a/log.jsonl")), "phase", 2);
    json_t *end = cli_event(cli_read(pl_test_path("a/log.jsonl")), "end", 0);
    CHECK(cli_member(b, "step") == 3 && cli_member(b, "last_step") == 23);
    /* The first evaluation of b is its best, and two more bring no improvement: steps 5, 7 and
     * 9. */
    CHECK_MSG(cli_member(c, "step") == 9, "b ended at step %lld", (long long)cli_member(c, "step"));
    /* Half of 32 samples in batches of 2. The patience of b does not affect c, though c takes
     * over b's state. */
    CHECK(cli_member(c, "last_step") == 17 && cli_member(end, "steps") == 17);
    json_decref(b);
    json_decref(c);
    json_decref(end);
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.b.on_stop=end --out %s/b", d, d), 0,
              "the run ends at step 9 of 23");
    CHECK(cli_run("test -e %s/b/model.safetensors -a ! -e %s/b/phases/c", d, d).code == 0);
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.b.on_stop=end --out %s/b", d, d), 0,
              "is finished");
    CHECK_RUN(cli_run("$P train %s/c.yaml 'phases.a.until.reach=mae_km > -1' train.steps=4", d), 0,
              "mae_km is above -1: the phase ends at step 3 of 4");
    CHECK_RUN(cli_run("$P train %s/c.yaml 'phases.a.until.reach=mae < 1' --quiet", d), 2,
              "until.reach: the evaluation has no metric \"mae\"");
}

/* Rules that the data or the recipe cannot fulfil are refused before the first step. */
TEST(phases_refuse_rules_that_data_or_recipe_cannot_have)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "endless",
                                     .schema = schema,
                                     .build = small_run_linear,
                                     .data_read = small_run_noise};
    static const struct {
        const char *phases, *want;
    } rows[] = {
        {"phases=[{until: {epochs: 1}}]", "its data never end"},
        {"phases=[{until: {reach: \"loss < 1\"}, set: {eval.every: 1}}]", "looks at evaluations"},
        {"phases=[{until: {steps: 1}}]", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_run *r = NULL;
        CHECK_OK(small_run_open(&recipe, &rows[i].phases, 1, &r));
        CHECK(pl_run_phase_count(r) == 1 && strcmp(pl_run_phase_at(r, 0)->name, "phase-0") == 0);
        CHECK_OK(pl_run_enter(r, 0, 7));
        CHECK_OK(pl_run_build(r));
        pl_status rc = pl_run_start(r);
        CHECK_MSG(rows[i].want ? rc == PL_ERR_CONFIG && strstr(pl_error_text(), rows[i].want)
                               : rc == PL_OK,
                  "%s", pl_error_text());
        pl_run_free(r);
    }
}

/* The best evaluation of phase p, among the evaluations after steps; from the log of run a. */
static int best_of(const char *phase, bool max, int n)
{
    const char *log = cli_read(pl_test_path("a/log.jsonl"));
    int best = -1, seen = 0;
    double least = 0;
    for (int k = 0; seen <= n; k++) {
        json_t *j = cli_event(log, "eval", k);
        double x = json_number_value(json_object_get(j, "mae_km")) * (max ? -1 : 1);
        const char *name = json_string_value(json_object_get(j, "phase"));
        if (j && strcmp(name, phase) == 0 && seen++ > 0 && (best < 0 || x < least)) {
            best = seen - 1;
            least = x;
        }
        json_decref(j);
        if (!j) break;
    }
    return best;
}

/* result: best saves the weights of the best checkpoint of the phase. */
TEST(phases_with_result_best_leave_their_best_weights)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(
        "  - {name: a, until.steps: 6, result: best, set: {eval.every: 2, checkpoint.best: mae_km}}\n"
        "  - {name: b, until.steps: 6, start: fresh, result: best, set: {eval.every: 2, "
        "checkpoint.best: mae_km, checkpoint.best_mode: max}}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet", d), 2, "result: best needs --out");
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet checkpoint.keep=99 checkpoint.every=1 --out %s/a",
                      d, d),
              0, "");
    char a[96], b[96];
    int low = best_of("a", false, 3), high = best_of("b", true, 3);
    CHECK_MSG(low != high && low > 0 && high > 0, "%d and %d: nothing is shown", low, high);
    snprintf(a, sizeof a, "a/checkpoints/step-%08d/model.safetensors", 2 * low);
    snprintf(b, sizeof b, "a/checkpoints/step-%08d/model.safetensors", 6 + 2 * high);
    CHECK_MSG(cli_same("a/phases/a/model.safetensors", a), "it is not %s", a);
    CHECK_MSG(cli_same("a/phases/b/model.safetensors", b), "it is not %s", b);
    CHECK(cli_same("a/model.safetensors", b));
}

/* The run's averages come from the same phase as the run's model; --fresh removes the averages
 * of the previous run. */
TEST(phases_leave_the_averages_of_the_phase_that_ends_the_run)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(
        "  - {name: a, until.steps: 3}\n  - {name: b, until.steps: 3, set: {ema.decay: 0.5}}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet --out %s/a", d, d), 0, "");
    CHECK(cli_run("ls %s/a/phases/a/model_ema.safetensors", d).code != 0);
    CHECK(cli_same("a/model_ema.safetensors", "a/phases/b/model_ema.safetensors"));
    CHECK(!cli_same("a/model_ema.safetensors", "a/model.safetensors"));
    CHECK_RUN(
        cli_run(
            "$P eval %s/a --quiet && $P eval %s/a --ema --quiet && $P eval %s/a --phase a --quiet",
            d, d, d),
        0, "");
    CHECK_RUN(cli_run("$P eval %s/a --phase c", d), 2, "there is no phase");
    CHECK(write_config(
        "  - {name: a, until.steps: 3, set: {ema.decay: 0.5}}\n  - {name: b, until.steps: 3}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet --fresh --out %s/a", d, d), 0, "");
    CHECK(cli_run("ls %s/a/phases/a/model_ema.safetensors", d).code == 0);
    CHECK(cli_run("ls %s/a/model_ema.safetensors", d).code != 0);
}

/* The best checkpoint of one phase does not count for the next phase. */
TEST(phases_do_not_share_their_best_checkpoint)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];
    /* The mean of the targets is the same in every evaluation: the first of a phase stays its best.
     * 2,000 steps take longer than a busy machine needs to deliver the signal. */
    CHECK(write_config(
        "  - {name: a, until.steps: 4, set: {eval.every: 2, checkpoint.best: mean_km}}\n"
        "  - {name: b, until.steps: 2000, set: {eval.every: 2000, checkpoint.best: mean_km}}\n"));
    snprintf(command, sizeof command, "exec $P train %s/c.yaml train.log_every=1 --out %s/a", d, d);
    CHECK_RUN(cli_run_signal(command, "phase=b step=5/", SIGTERM), 75, "stopped at step");
    CHECK(cli_run("test ! -e %s/a/best", d).code == 0);
    CHECK_RUN(
        cli_run("$P train %s/c.yaml --quiet --out %s/a && readlink %s/a/best | grep -q 00002004", d,
                d, d),
        0, "");
}

/* ---- the command line ------------------------------------------------------------------- */
TEST(phases_are_changed_by_overrides)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(TWO));
    static const struct {
        const char *keys, *want;
    } rows[] = {
        {"phases.pre.until.steps=9",
         "{name: pre, until: {steps: 9}}, {name: main, until.steps: 5, set: {batch: 4,"},
        {"phases.1.until.steps=9", "until.steps: 9, set: {batch: 4, optim: {lr: 0.01}}"},
        {"phases.main.set.optim.lr=1", "set: {batch: 4, optim: {lr: 1}}"},
        {"phases.main.set.optim.betas='[0, 1]'", "optim: {lr: 0.01, optim.betas"},
        {"'phases.*.set.seed=3'",
         "{name: pre, until: {steps: 6}, set.seed: 3}, {name: main, until.steps: 5, set: "
         "{batch: 4, optim: {lr: 0.01}, seed: 3}}"},
        {"batch=8", "{name: main, until.steps: 5, set: {optim: {lr: 0.01}}}"},
        {"optim.lr=8", "set: {batch: 4, optim: {}}"},
        {"train.steps=3", "[{name: pre, until: {}}, {name: main, set: {"},
        {"'phases.pre.set.optim.frozen=a.*, b.*'", "set.optim.frozen: \"a.*, b.*\"}"},
        {"batch=8 phases.main.set.batch=2", "set: {optim: {lr: 0.01}, batch: 2}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_result r = cli_run("$P plan %s/c.yaml %s --print-config", d, rows[i].keys);
        const char *want = i == 3 ? "optim: {lr: 0.01, betas: [0, 1]}" : rows[i].want;
        CHECK_MSG(r.code == 0 && strstr(r.out, want), "%s: wants %s\n%s%s", rows[i].keys, want,
                  r.out, r.err);
        CHECK(cli_write(pl_test_path("again.yaml"), r.out));
        CHECK_MSG(
            cli_run("$P plan %s/again.yaml --print-config | cmp - %s/again.yaml", d, d).code == 0,
            "%s: prints otherwise when it is read again", rows[i].keys);
    }
    cli_result r = cli_run("$P plan %s/c.yaml batch=8 --phase main --json", d);
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(cli_member(j, "effective_batch") == 8);
    json_decref(j);
}

TEST(phases_with_mistakes_are_refused_with_their_place)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    static const struct {
        const char *phases, *want;
    } rows[] = {
        {"  - {name: a, untl: 3}\n", "c.yaml:12:15: unknown key untl; did you mean until?"},
        {"  - {name: a, until: {step: 3}}\n", "until.step; did you mean until.steps?"},
        {"  - {name: a, set: {batsh: 3}}\n",
         "c.yaml:12:21: unknown key batsh; did you mean batch?"},
        {"  - {name: a, set: {batch: many}}\n", "c.yaml:12:28: batch: a whole number is expected"},
        {"  - {name: a, set: {recipe: lgt}}\n", "recipe is of the whole run"},
        {"  - {name: a, set: {phases: []}}\n", "phases is of the whole run"},
        {"  - {name: a, set: 3}\n", "a list or a mapping is expected"},
        {"  - {name: a, set: [3]}\n", "a mapping of keys is expected, this is a list"},
        {"  - {name: a}\n  - {name: a}\n", "there are two phases a"},
        {"  - {name: a/b}\n", "is not a name of a phase"},
        {"  - {name: fresh}\n", "is not a name of a phase"},
        {"  - {name: a, start: b}\n  - {name: b}\n", "there is no earlier phase \"b\""},
        {"  - {name: a, until: {reach: loss}}\n", "needs NAME < X or NAME > X"},
        {"  - {name: a, until: {reach: \"loss < x\"}}\n", "needs NAME < X or NAME > X"},
        {"  - {name: a, folds: 1}\n", "folds: 1 is out of range"},
        {"  - 3\n", "a phase is a mapping"},
        {"  []\n", "the list is empty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(write_config(rows[i].phases));
        cli_result r = cli_run("$P plan %s/c.yaml", d);
        CHECK_MSG(r.code == 2 && strstr(r.err, rows[i].want) && strstr(r.err, "phases: "),
                  "%s: wants %s\n%s", rows[i].phases, rows[i].want, r.err);
    }
    CHECK(write_config(TWO));
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases.mian.until.steps=3", d), 2,
              "it has 0 (pre), 1 (main)");
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases.main.set.bach=3", d), 2, "unknown key bach");
    CHECK_RUN(cli_run("$P plan %s/c.yaml --phase mian", d), 2, "there is no phase \"mian\"");
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases=null --phase pre", d), 2, "has no phases");
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases.pre.until.patience=3", d), 2, "eval.every is 0");
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases.pre.result=best", d), 2, "needs checkpoint.best");
}

/* ---- planned before the first step ------------------------------------------------------- */
TEST(phases_are_all_planned_before_the_first_step)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(
        "  - {name: a, until.steps: 2}\n"
        "  - {name: b, until.steps: 2, set: {batch: 8, height: 96, width: 96, "
        "model.channels: [16, 2, 2]}, start: fresh}\n  - {name: c, until.steps: 1, start: a}\n"));
    cli_result r = cli_run("$P plan %s/c.yaml --json", d);
    json_t *plan = json_loads(r.out, 0, NULL), *rows = json_object_get(plan, "phases");
    CHECK_MSG(r.code == 0 && json_array_size(rows) == 3, "%s", r.err);
    CHECK(strcmp(json_string_value(json_object_get(plan, "phase")), "b") == 0);
    r = cli_run("$P train %s/c.yaml --json", d);
    CHECK_MSG(r.code == 0, "%s", r.err);
    for (int i = 0; i < 3; i++) {
        json_t *e = cli_event(r.out, "plan", i), *row = json_array_get(rows, (size_t)i);
        CHECK(cli_member(e, "arena_bytes") == cli_member(row, "arena_bytes"));
        CHECK(cli_member(e, "state_bytes") == cli_member(row, "state_bytes"));
        json_decref(e);
    }
    json_t *end = cli_event(r.out, "end", 0);
    CHECK_INT(cli_member(end, "steps"), 5);
    json_decref(end);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* whose memory would count */
    int64_t least = cli_member(json_array_get(rows, 1), "minimum_bytes");
    int64_t fits_a = cli_member(json_array_get(rows, 0), "total_bytes");
    CHECK_MSG(least > fits_a + (2 << 20), "b needs %lld bytes, a takes %lld", (long long)least,
              (long long)fits_a);
    json_decref(plan);
    r = cli_run("$P plan %s/c.yaml --memory %lld", d, (long long)(fits_a + (1 << 20)));
    CHECK_MSG(r.code == 3 && strstr(r.err, "phase b does not fit") &&
                  !strstr(r.err, "phase a does") &&
                  strstr(r.err, "the smallest budget that fits all phases is"),
              "%d %s", r.code, r.err);
    r = cli_run("$P train %s/c.yaml --json --memory %lld --out %s/r", d,
                (long long)(fits_a + (1 << 20)), d);
    CHECK_MSG(r.code == 3 && !strstr(r.out, "\"step\""), "%d %s", r.code, r.out);
    /* The printed minimum suffices for all phases, one after the other. */
    r = cli_run("$P train %s/c.yaml --json --memory %lld", d, (long long)least);
    end = cli_event(r.out, "end", 0);
    CHECK_MSG(r.code == 0 && cli_member(end, "steps") == 5 &&
                  cli_member(end, "peak_used_bytes") <= least,
              "%lld bytes: %d, at most %lld; %s", (long long)least, r.code,
              (long long)cli_member(end, "peak_used_bytes"), r.err);
    json_decref(end);
#else
    json_decref(plan);
#endif
}

/* Overheads of the phases differ by some pages from run to run. */
TEST(phases_with_equal_plans_show_the_first)
{
    WANT_BIN();
    CHECK(write_config("  - {name: a, until.steps: 2}\n  - {name: b, until.steps: 2}\n"
                       "  - {name: c, until.steps: 2}\n"));

    for (int i = 0; i < 4; i++) {
        cli_result r = cli_run("$P plan %s/c.yaml --json", pl_test_dir());

        CHECK_MSG(strstr(r.out, "{\"phase\":\"a\""), "%d: %.40s", i, r.out);
    }
}

/* ---- stopping and going on --------------------------------------------------------------- */
#define THREE                                                                                                 \
 "  - {name: pre, until: {steps: 5}, set: {eval.every: 2}}\n"                                                 \
 "  - {name: main, until: {steps: 9, patience: 1}, state: all, result: best, set: {batch: 4, optim.lr: 0.3, " \
 "eval.every: 2, checkpoint.best: mae_km, stop.metric: mae_km}}\n"                                            \
 "  - {name: last, until: {steps: 4}, set: {ema.decay: 0.9}}\n"

/* Kills the run at any time, also between phases, until it is complete. */
TEST(phases_survive_a_kill_at_any_time)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    static const char *const files[] = {"model.safetensors",
                                        "phases/pre/model.safetensors",
                                        "phases/pre/state.safetensors",
                                        "phases/main/model.safetensors",
                                        "phases/main/eval.csv",
                                        "phases/last/model.safetensors"};
    CHECK(write_config(THREE));
    cli_result whole =
        cli_run("$P train %s/c.yaml checkpoint.every=1 threads=1 --quiet --out %s/a", d, d);
    CHECK_MSG(whole.code == 0, "%s", whole.err);
    json_t *end = cli_event(cli_read(pl_test_path("a/log.jsonl")), "end", 0);
    int64_t steps = cli_member(end, "steps");
    json_decref(end);
    CHECK_MSG(steps > 11 && steps < 18, "%lld steps: the second phase did not end early",
              (long long)steps);
    uint64_t noise = (uint64_t)time(NULL);
    int kills = 0;
    double seconds = whole.seconds; /* the present duration: other tests start and end meanwhile */
    for (int run = 0; run < (pl_test_long() ? 60 : 3); run++) {
        cli_run("rm -rf %s/k", d);
        for (int life = 0;; life++) {
            double limit = life < 6 ? seconds * (0.2 + 0.3 * (pl_test_noise(&noise) + 1)) : 60;
            cli_result r =
                cli_run("timeout -s KILL %.4f $P train %s/c.yaml checkpoint.every=1 threads=1 "
                        "--quiet --out %s/k",
                        limit, d, d);
            if (r.code == 0 && life == 0) seconds = r.seconds;
            if (r.code == 0) break;
            CHECK_MSG(r.code == 137 && !strstr(r.err, "plimsoll:"), "%d %s", r.code, r.err);
            kills++;
        }
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            char a[96], k[96];
            snprintf(a, sizeof a, "a/%s", files[i]);
            snprintf(k, sizeof k, "k/%s", files[i]);
            CHECK_MSG(cli_same(a, k), "seed %llu: %s is another", (unsigned long long)noise,
                      files[i]);
        }
        const char *bad = cli_bad_log("k", steps);
        CHECK_MSG(!bad, "%s", bad);
    }
    CHECK_MSG(kills >= 3, "%d kills: too few to show anything", kills);
}

/* A signal in each phase: saved, exit code 75, resumed to the same bits. */
TEST(phases_stop_on_a_signal_and_resume_to_the_same_bits)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];
    /* 300 and 600 steps take longer than a busy machine needs to deliver the signal */
    CHECK(write_config(
        "  - {name: pre, until: {steps: 300}}\n"
        "  - name: main\n    until.steps: 600\n    set: {batch: 4, optim: {lr: 0.01}}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet --out %s/a", d, d), 0, "");
    snprintf(command, sizeof command, "exec $P train %s/c.yaml train.log_every=1 --out %s/b", d, d);
    CHECK_RUN(cli_run_signal(command, "step=3/", SIGTERM), 75, "stopped at step");
    CHECK(strstr(cli_run("$P inspect %s/b", d).out, ", phase pre, "));
    CHECK_RUN(cli_run_signal(command, "phase=main step=", SIGTERM), 75, "resuming from");
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/b", d, d), 0, "phase main");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    CHECK(cli_same("a/phases/pre/model.safetensors", "b/phases/pre/model.safetensors"));
    const char *bad = cli_bad_log("b", 900);
    CHECK_MSG(!bad, "%s", bad);
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/b", d, d), 0, "is finished: 900 steps");
    CHECK_RUN(cli_run("$P train %s/c.yaml --fresh --quiet --out %s/b && test ! -e %s/b/phases/old",
                      d, d, d),
              0, "");
}

/* A finished phase may not change; the current phase and later ones may. */
TEST(phases_that_ended_cannot_change_and_others_can)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(write_config(TWO));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet --out %s/a", d, d), 0, "");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.pre.set.optim.lr=1 --out %s/a", d, d), 2,
              "phases from [{name: pre");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.main.set.batch=2 --out %s/a", d, d), 2,
              "batch from 4 to 2");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases=null --out %s/a", d, d), 2,
              "is in phase main (number 1), which this configuration does not have");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.main.until.steps=7 --out %s/a", d, d), 0,
              "phase main (2 of 2): steps 12 to 13");
    CHECK_RUN(cli_run("$P train %s/c.yaml phases.main.until.steps=7 --quiet --out %s/b", d, d), 0,
              "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    CHECK_RUN(cli_run("$P train %s/c.yaml phases=null train.steps=1 --quiet --out %s/p", d, d), 0,
              "");
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/p", d, d), 2, "is a run without phases");
}
