/* test_phases.c - runs of several phases: settings of each, what is handed on, what ends one,
 * resuming. */
#include "plimsoll_checkpoint.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The network of CLI_SMALL as a file. */
static const char small[] =
    "recipe: cloud\nextends: cloud/tiny\nbatch: 2\nframes: 1\nheight: 8\nwidth: 8\n"
    "model: {channels: [2, 2, 2], dense: [4, 4], film_hidden: 4}\n"
    "eval: {batches: 1}\ndata: {samples: 32, eval_samples: 8}\n"
    "model.dropout_conv: 0.3\n";

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", pl_test_dir(), name);
    return path[at];
}

/* Writes c.yaml: the small network and these phases. */
static bool write_config(const char *phases)
{
    char text[8192];
    snprintf(text, sizeof text, "%sphases:\n%s", small, phases);
    return cli_write(in_dir("c.yaml"), text);
}

#define TWO                                                                                        \
 "  - {name: pre, until: {steps: 6}}\n"                                                            \
 "  - name: main\n    until.steps: 5\n    set: {batch: 4, optim: {lr: 0.01}}\n"

/* The k-th event of that name in text; NULL if there is none. The caller lets it go. */
static json_t *event_of(const char *text, const char *name, int k)
{
    for (const char *p = text; *p;) {
        const char *end = strchr(p, '\n');
        json_t *j = end ? json_loadb(p, (size_t)(end - p), 0, NULL) : NULL;
        const char *is = json_string_value(json_object_get(j, "event"));
        if (is && strcmp(is, name) == 0 && k-- == 0) return j;
        json_decref(j);
        if (!end) break;
        p = end + 1;
    }
    return NULL;
}

static int64_t number_of(json_t *j, const char *key)
{
    return json_integer_value(json_object_get(j, key));
}

/* ---- each phase is a run of its own ------------------------------------------------------ */
/* A phase has the bits of a plain run with its settings that begins with the weights it was handed.
 */
TEST(phases_are_runs_of_their_own)
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
    json_t *j = event_of(cli_read(in_dir("a/log.jsonl")), "step", 6);
    CHECK(number_of(j, "step") == 7 &&
          strcmp(json_string_value(json_object_get(j, "phase")), "main") == 0);
    CHECK(json_number_value(json_object_get(j, "epoch")) == 4.0 / 32);
    json_decref(j);
    j = event_of(cli_read(in_dir("a/log.jsonl")), "phase", 1);
    CHECK(number_of(j, "step") == 6 && number_of(j, "last_step") == 11 &&
          number_of(j, "taken") == 49);
    json_decref(j);
    CHECK(strstr(cli_read(in_dir("a/metrics.csv")), ",main\n"));
    CHECK(strncmp(cli_read(in_dir("a/phases/main/eval.csv")), "step,", 5) == 0);
    CHECK(strstr(cli_read(in_dir("a/phases/main/eval.csv")), "\n11,"));
    CHECK(strstr(cli_read(in_dir("a/phases/main/eval.csv")), "\n6,")); /* before its first step */
    /* Without a folder the weights pass through a temporary one, of which nothing stays. */
    CHECK_RUN(cli_run("mkdir -p %s/tmp && TMPDIR=%s/tmp $P train %s/c.yaml", d, d, d), 0,
              "49 of 49 tensors start from phase pre");
    CHECK(cli_run("test -z \"$(ls -A %s/tmp)\"", d).code == 0);
    CHECK_RUN(cli_run("$P report %s/a", d), 0, "");
}

/* start: NAME and fresh, a map instead of a list, all of the state. */
TEST(phases_begin_where_they_are_told)
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
    /* Adam's count of steps goes on in the fourth, whose moments are those of the first. */
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

/* A recipe whose second layer is there when its key says so, trained by an optimiser of its own. */
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
    int slot = pl_store_find(r->store, name);
    return slot < 0 ? -1 : *(const float *)pl_session_slot(r->session, slot);
}

/* A phase may have other parts: what both have is handed on, the rest begins anew; shapes must
 * agree. */
TEST(phases_hand_on_by_name)
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
                          strstr(pl_error_text(), "the model wants"),
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
        /* What a recipe's further optimisers add to the configuration is compared, too. */
        pl_checkpoint c = {0};
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
TEST(phases_end_by_rule)
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
    json_t *b = event_of(cli_read(in_dir("a/log.jsonl")), "phase", 1);
    json_t *c = event_of(cli_read(in_dir("a/log.jsonl")), "phase", 2);
    json_t *end = event_of(cli_read(in_dir("a/log.jsonl")), "end", 0);
    CHECK(number_of(b, "step") == 3 && number_of(b, "last_step") == 23);
    /* The first evaluation of b is its best, two more bring nothing: steps 5, 7 and 9. */
    CHECK_MSG(number_of(c, "step") == 9, "b ended at step %lld", (long long)number_of(c, "step"));
    /* Half of 32 samples in batches of 2. What b waited for is no concern of c, though it takes b's
     * state. */
    CHECK(number_of(c, "last_step") == 17 && number_of(end, "steps") == 17);
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

static pl_status endless_build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    pl_type t = PL_TYPE(PL_F32, pl_builder_batch(b), 2);
    pl_val x = pl_nn_linear(m, pl_input(m->g, "x", t), "fc", 2, (pl_nn_lin){0});
    pl_builder_minimise(b, pl_loss_mse(m->g, x, pl_input(m->g, "y", t)));
    return PL_OK;
}

/* Rules that data or recipe cannot have are told before the first step. */
TEST(phases_impossible_rules)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "endless",
                                     .schema = schema,
                                     .build = endless_build,
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

/* The evaluation of phase p, of those after steps, that was best; from the log of run a. */
static int best_of(const char *phase, bool max, int n)
{
    const char *log = cli_read(in_dir("a/log.jsonl"));
    int best = -1, seen = 0;
    double least = 0;
    for (int k = 0; seen <= n; k++) {
        json_t *j = event_of(log, "eval", k);
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

/* result: best leaves the weights of the checkpoint that was the best of its phase. */
TEST(phases_leave_their_best)
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

/* The averages are of the phase whose model is the run's; --fresh removes those of the run before.
 */
TEST(phases_leave_their_averages)
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

/* A checkpoint of a phase knows nothing of the best one of the phase before. */
TEST(phases_best_is_their_own)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];
    /* The mean of the targets is the same in every evaluation: the first of a phase stays its best.
     */
    CHECK(write_config(
        "  - {name: a, until.steps: 4, set: {eval.every: 2, checkpoint.best: mean_km}}\n"
        "  - {name: b, until.steps: 40, set: {eval.every: 40, checkpoint.best: mean_km}}\n"));
    snprintf(command, sizeof command, "exec $P train %s/c.yaml train.log_every=1 --out %s/a", d, d);
    CHECK_RUN(cli_run_signal(command, "phase=b step=5/", SIGTERM), 75, "stopped at step");
    CHECK(cli_run("test ! -e %s/a/best", d).code == 0);
    CHECK_RUN(
        cli_run("$P train %s/c.yaml --quiet --out %s/a && readlink %s/a/best | grep -q 00000044", d,
                d, d),
        0, "");
}

/* ---- the command line ------------------------------------------------------------------- */
TEST(phases_overrides)
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
        CHECK(cli_write(in_dir("again.yaml"), r.out));
        CHECK_MSG(
            cli_run("$P plan %s/again.yaml --print-config | cmp - %s/again.yaml", d, d).code == 0,
            "%s: prints otherwise when it is read again", rows[i].keys);
    }
    cli_result r = cli_run("$P plan %s/c.yaml batch=8 --phase main --json", d);
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(number_of(j, "effective_batch") == 8);
    json_decref(j);
}

TEST(phases_bad_ones_are_told)
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
        {"  - {name: a/b}\n", "is no name of a phase"},
        {"  - {name: fresh}\n", "is no name of a phase"},
        {"  - {name: a, start: b}\n  - {name: b}\n", "there is no earlier phase \"b\""},
        {"  - {name: a, until: {reach: loss}}\n", "wants NAME < X or NAME > X"},
        {"  - {name: a, until: {reach: \"loss < x\"}}\n", "wants NAME < X or NAME > X"},
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
    CHECK_RUN(cli_run("$P plan %s/c.yaml phases.pre.result=best", d), 2, "wants checkpoint.best");
}

/* ---- planned before the first step ------------------------------------------------------- */
TEST(phases_are_planned_first)
{
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
        json_t *e = event_of(r.out, "plan", i), *row = json_array_get(rows, (size_t)i);
        CHECK(number_of(e, "arena_bytes") == number_of(row, "arena_bytes"));
        CHECK(number_of(e, "state_bytes") == number_of(row, "state_bytes"));
        json_decref(e);
    }
    json_t *end = event_of(r.out, "end", 0);
    CHECK_INT(number_of(end, "steps"), 5);
    json_decref(end);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* whose memory would count */
    int64_t least = number_of(json_array_get(rows, 1), "minimum_bytes");
    int64_t fits_a = number_of(json_array_get(rows, 0), "total_bytes");
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
    /* The smallest budget that was named does for all of them, one after the other. */
    r = cli_run("$P train %s/c.yaml --json --memory %lld", d, (long long)least);
    end = event_of(r.out, "end", 0);
    CHECK_MSG(r.code == 0 && number_of(end, "steps") == 5 &&
                  number_of(end, "peak_used_bytes") <= least,
              "%lld bytes: %d, at most %lld; %s", (long long)least, r.code,
              (long long)number_of(end, "peak_used_bytes"), r.err);
    json_decref(end);
#else
    json_decref(plan);
#endif
}

/* ---- stopping and going on --------------------------------------------------------------- */
#define THREE                                                                                                 \
 "  - {name: pre, until: {steps: 5}, set: {eval.every: 2}}\n"                                                 \
 "  - {name: main, until: {steps: 9, patience: 1}, state: all, result: best, set: {batch: 4, optim.lr: 0.3, " \
 "eval.every: 2, checkpoint.best: mae_km, stop.metric: mae_km}}\n"                                            \
 "  - {name: last, until: {steps: 4}, set: {ema.decay: 0.9}}\n"

/* Kills the run at any instant, borders of phases among them, until it is done. */
TEST(phases_survive_kill)
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
    json_t *end = event_of(cli_read(in_dir("a/log.jsonl")), "end", 0);
    int64_t steps = number_of(end, "steps");
    json_decref(end);
    CHECK_MSG(steps > 11 && steps < 18, "%lld steps: the second phase did not end early",
              (long long)steps);
    uint64_t noise = (uint64_t)time(NULL);
    int kills = 0;
    double seconds = whole.seconds; /* by now: other tests come and go */
    for (int run = 0; run < (pl_test_long() ? 60 : 5); run++) {
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

/* A signal in each phase: saved, exit code 75, gone on with to the same bits. */
TEST(phases_stop_and_go_on)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    char command[1024];
    /* long enough to be stopped on the way */
    CHECK(write_config(
        "  - {name: pre, until: {steps: 20}}\n"
        "  - name: main\n    until.steps: 40\n    set: {batch: 4, optim: {lr: 0.01}}\n"));
    CHECK_RUN(cli_run("$P train %s/c.yaml --quiet --out %s/a", d, d), 0, "");
    snprintf(command, sizeof command, "exec $P train %s/c.yaml train.log_every=1 --out %s/b", d, d);
    CHECK_RUN(cli_run_signal(command, "step=3/", SIGTERM), 75, "stopped at step");
    CHECK(strstr(cli_run("$P inspect %s/b", d).out, ", phase pre, "));
    CHECK_RUN(cli_run_signal(command, "phase=main step=", SIGTERM), 75, "resuming from");
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/b", d, d), 0, "phase main");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    CHECK(cli_same("a/phases/pre/model.safetensors", "b/phases/pre/model.safetensors"));
    const char *bad = cli_bad_log("b", 60);
    CHECK_MSG(!bad, "%s", bad);
    CHECK_RUN(cli_run("$P train %s/c.yaml --out %s/b", d, d), 0, "is finished: 60 steps");
    CHECK_RUN(cli_run("$P train %s/c.yaml --fresh --quiet --out %s/b && test ! -e %s/b/phases/old",
                      d, d, d),
              0, "");
}

/* What is over stays; what is going on and what comes may change. */
TEST(phases_change_on_the_way)
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

/* ---- folds ------------------------------------------------------------------------------- */
enum { FOLDED = 11 };
static struct {
    int train[FOLDED], eval[FOLDED], other; /* how often each sample was read; of another set */
} reads;

static pl_status folded_read(void *data, pl_subset subset, const int64_t *sample, int n,
                             pl_batch *batch)
{
    /* Only the evaluation program has the input "which". */
    bool eval = pl_batch_input(batch, "which", NULL) != NULL;
    for (int i = 0; i < n; i++) (eval ? reads.eval : reads.train)[sample[i]]++;
    reads.other += subset != PL_SUBSET_TRAIN;
    float *which = pl_batch_input(batch, "which", NULL);
    for (int i = 0; which && i < n; i++) which[i] = (float)sample[i];
    return small_run_noise(data, subset, sample, n, batch);
}

static int64_t folded_size(void *data, pl_subset subset)
{
    (void)data;
    return subset == PL_SUBSET_TRAIN ? FOLDED : 5;
}

static pl_status folded_build(pl_builder *b)
{
    PL_TRY(endless_build(b));
    pl_nn *e = pl_builder_eval(b);
    pl_type t = PL_TYPE(PL_F32, pl_builder_batch(b), 2);
    pl_val x = pl_nn_linear(e, pl_input(e->g, "x", t), "fc", 2, (pl_nn_lin){0});
    pl_output(e->g, "loss", pl_loss_mse(e->g, x, pl_input(e->g, "y", t)));
    pl_output(e->g, "which",
              pl_mean(e->g, pl_input(e->g, "which", PL_TYPE(PL_F32, pl_builder_batch(b))),
                      PL_AXIS(0), false));
    return PL_OK;
}

/* Every sample is left out of training in one fold, and evaluated in that one alone. */
TEST(phases_folds_part_the_data)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "folded",
                                     .schema = schema,
                                     .build = folded_build,
                                     .data_size = folded_size,
                                     .data_read = folded_read};
    const char *keys[] = {"phases=[{name: loo, folds: 4, until: {steps: 16}}]", "batch=3"};
    int left_out[FOLDED] = {0};
    for (int fold = 0; fold < 4; fold++) {
        pl_run *r = NULL;
        pl_step_info info;
        pl_eval_info e;
        CHECK_OK(small_run_open(&recipe, keys, 2, &r));
        CHECK_INT(pl_run_phase_count(r), 4);
        CHECK_OK(pl_run_enter(r, fold, 0));
        CHECK_OK(pl_run_build(r));
        memset(&reads, 0, sizeof reads);
        CHECK_OK(pl_run_start(r));
        for (int i = 0; i < 16; i++) CHECK_OK(pl_run_step(r, &info));
        CHECK_OK(pl_run_eval(r, &e));
        int n = 0;
        double sum = 0;
        for (int i = 0; i < FOLDED; i++) {
            CHECK_MSG((reads.train[i] > 0) != (reads.eval[i] > 0),
                      "fold %d: sample %d: %d and %d reads", fold, i, reads.train[i],
                      reads.eval[i]);
            left_out[i] += reads.eval[i] > 0;
            n += reads.eval[i] > 0;
            sum += reads.eval[i] > 0 ? i : 0;
        }
        CHECK(reads.other == 0 && e.samples == n && n == (fold < 3 ? 3 : 2));
        CHECK_NEAR(e.value[1], sum / n, 1e-5);
        CHECK_NEAR(info.epoch, 48.0 / (FOLDED - n), 1e-9);
        pl_run_free(r);
    }
    for (int i = 0; i < FOLDED; i++) CHECK_INT(left_out[i], 1);
    static const struct {
        const char *keys[2], *want;
    } bad[] = {{{"data.folds=1", "seed=0"}, "at least 2 parts"},
               {{"data.folds=4", "data.fold=4"}, "which are 0 to 3"},
               {{"data.folds=12", "seed=0"}, "some would be empty"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_run *r = NULL;
        CHECK_OK(small_run_open(&recipe, bad[i].keys, 2, &r));
        CHECK_OK(pl_run_build(r));
        CHECK_INT(pl_run_start(r), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), bad[i].want), "%s", pl_error_text());
        pl_run_free(r);
    }
}

static pl_status pictures_build(pl_builder *b)
{
    int64_t n = pl_builder_batch(b);
    pl_nn *m[2] = {pl_builder_train(b), pl_builder_eval(b)};
    for (int i = 0; i < 2; i++) {
        pl_graph *g = m[i]->g;
        pl_val x = pl_reshape(g, pl_input(g, "x", PL_TYPE(PL_F32, n, 8, 8, 3)), PL_DIMS(n, 192));
        pl_val label = pl_input(g, "label", PL_TYPE(PL_F32, n));
        pl_val y = pl_squeeze(g, pl_nn_linear(m[i], x, "fc", 1, (pl_nn_lin){0}), 1);
        pl_val loss = pl_loss_mse(g, y, label);
        pl_output(g, "label", pl_mean(g, label, PL_AXIS(0), false));
        pl_val middle = pl_full_like(g, label, 1);
        pl_output(g, "middle",
                  pl_mean(g, pl_cast(g, pl_eq(g, label, middle), PL_F32), PL_AXIS(0), false));
        if (i)
            pl_output(g, "loss", loss);
        else
            pl_builder_minimise(b, loss);
    }
    return PL_OK;
}

/* Twelve pictures in three classes: three parts are the three classes. */
TEST(phases_folds_part_pictures)
{
    static const pl_config_entry schema[] = {{0}};
    static const pl_image_input inputs[] = {{"x", 0, 1}, {NULL, 0, 0}};
    static const pl_image_feed feed = {.images = inputs, .label = "label"};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "pictures",
                                     .schema = schema,
                                     .build = pictures_build,
                                     .images = &feed};
    char path[600];
    snprintf(path, sizeof path, "data.path=%s/set", pl_test_dir());
    if (!image_folder(path + 10, 12, 3, 16, 16, 0)) SKIP("libturbojpeg is not here");
    for (int balance = 0; balance < 2; balance++) {
        const char *keys[] = {
            path,          "batch=2",        "data.folds=3",
            "data.fold=1", "data.workers=0", balance ? "data.balance=true" : "data.balance=false"};
        pl_run *r = NULL;
        pl_step_info info;
        pl_eval_info e;
        CHECK_OK(small_run_open(&recipe, keys, 6, &r));
        CHECK_OK(pl_run_build(r));
        CHECK_OK(pl_run_start(r));
        for (int i = 0; i < 12; i++) {
            CHECK_OK(pl_run_step(r, &info));
            for (int k = 0; k < info.n_terms; k++)
                if (strcmp(info.term_name[k], "middle") == 0) CHECK(info.term[k] == 0);
        }
        CHECK_OK(pl_run_eval(r, &e));
        CHECK(e.samples == 4);
        for (int k = 0; k < e.n; k++)
            if (strcmp(e.name[k], "label") == 0) CHECK_NEAR(e.value[k], 1, 1e-6);
        pl_run_free(r);
    }
}

/* Arrays on disk are parted as the recipe's own samples are. */
TEST(phases_folds_part_arrays)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("$P generate " CLI_SMALL "--out %s/set", d), 0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL
                      "data.folds=3 data.fold=1 train.steps=8 --quiet --out %s/a",
                      d),
              0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL
                      "data.folds=3 data.fold=1 train.steps=8 --quiet data.path=%s/set --out "
                      "%s/b",
                      d, d),
              0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=8 --quiet --out %s/c", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors") &&
          cli_same("a/eval.csv", "b/eval.csv"));
    CHECK(!cli_same("a/model.safetensors", "c/model.safetensors"));
}
