/* test_steps.c - steps of several programs: which program runs when, what each trains, also with
 * micro-batches. */
#include "base/err.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plimsoll_train.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/build/build.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 20, SAMPLES = 50 };

/* ---- a recipe: a generator against a judge, with a penalty every fourth step ------------ */
static const pl_config_entry schema[] = {
    {"overlap", PL_CONFIG_BOOL, "false", 0, 0, NULL, "The judge's optimiser trains all slots."},
    {"outputs", PL_CONFIG_INT, "0", 0, 1000, NULL, "Further scalar outputs."},
    {"spectral", PL_CONFIG_BOOL, "false", 0, 0, NULL, "Power iterations in the judge."},
    {0},
};
static const char *const sections[] = {"optim_d", NULL};

static pl_val judge(pl_builder *b, pl_nn *m, pl_val x)
{
    bool spectral = pl_config_bool(pl_builder_config(b), "spectral");
    pl_nn_lin o = {.spectral = spectral ? PL_SPECTRAL_PLAIN : PL_SPECTRAL_NONE};
    x = pl_silu(m->g, pl_nn_linear(m, x, "disc.0", 16, o));
    return pl_squeeze(m->g, pl_nn_linear(m, x, "disc.1", 1, o), 1);
}

static pl_val generate(pl_nn *m, pl_val z)
{
    z = pl_silu(m->g, pl_nn_linear(m, z, "gen.0", 16, (pl_nn_lin){0}));
    return pl_nn_linear(m, z, "gen.1", 6, (pl_nn_lin){0});
}

static void judge_step(pl_builder *b, pl_nn *m, bool penalise)
{
    int64_t n = pl_builder_batch(b);
    pl_val real = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    pl_val fake = pl_stop_gradient(m->g, generate(m, pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4))));
    pl_val on_real = judge(b, m, real);
    pl_val loss = pl_loss_hinge_d(m->g, on_real, judge(b, m, fake));
    if (penalise) loss = pl_add(m->g, loss, pl_loss_r1(m->g, on_real, real));
    bool overlap = pl_config_bool(pl_builder_config(b), "overlap");
    pl_builder_minimise_with(b, m, loss,
                             &(pl_group){.slots = overlap ? NULL : "disc.*", .optim = "optim_d"});
}

static pl_val generator_loss(pl_builder *b, pl_nn *m)
{
    int64_t n = pl_builder_batch(b);
    pl_val y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    pl_val fake = generate(m, pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4)));
    return pl_add(m->g, pl_loss_mse(m->g, fake, y), pl_loss_hinge_g(m->g, judge(b, m, fake)));
}

static pl_status recipe_build(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b), *e = pl_builder_eval(b);
    judge_step(b, pl_builder_program(b, "judge", (pl_when){.but_every = 4}), false);
    judge_step(b, pl_builder_program(b, "penalty", (pl_when){.every = 4}), true);
    for (int i = 0; i < pl_config_int(pl_builder_config(b), "outputs"); i++)
        pl_output(m->g, pl_nn_name(m, "more.%d", i), pl_fill(m->g, PL_TYPE(PL_F32), i));
    pl_builder_minimise_with(b, m, generator_loss(b, m), &(pl_group){.slots = "gen.*"});
    pl_output(e->g, "loss", generator_loss(b, e));
    return PL_OK;
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data, (void)subset;
    return SAMPLES;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "steps-test",
                                 .about = "two small networks",
                                 .schema = schema,
                                 .build = recipe_build,
                                 .data_size = data_size,
                                 .data_read = small_run_noise,
                                 .optims = sections};

static pl_status open_run(const char *const *overrides, int n, pl_run **out)
{
    const char *keys[10] = {"batch=32", "optim_d.lr=2e-3"};
    for (int i = 0; i < n; i++) keys[2 + i] = overrides[i];
    return small_run_open(&recipe, keys, 2 + n, out);
}

static double term(const pl_step_info *info, const char *name)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], name) == 0) return info->term[i];
    return (double)NAN;
}

typedef struct trace {
    double loss[STEPS], judged[STEPS], eval;
    int64_t updates[2]; /* of optim and optim_d */
    int64_t samples;
} trace;

static pl_status follow(pl_run *run, trace *t)
{
    pl_step_info info;
    pl_eval_info e;
    PL_TRY(pl_run_build(run));
    pl_run_memory planned = pl_run_memory_get(run);
    PL_TRY(pl_run_start(run));
    pl_run_memory mapped = pl_run_memory_get(run);
    PL_FAIL_IF(planned.arena != mapped.arena || planned.state != mapped.state, PL_ERR_PLAN,
               "planned and mapped bytes differ");
    for (int i = 0; i < STEPS; i++) {
        PL_TRY(pl_run_step(run, &info));
        double with = term(&info, "penalty.loss"), without = term(&info, "judge.loss");
        PL_FAIL_IF(isnan(with) != (i % 4 != 0) || isnan(without) != (i % 4 == 0), PL_ERR_PLAN,
                   "step %d runs the wrong programs", i);
        t->loss[i] = info.loss;
        t->judged[i] = i % 4 ? without : with;
    }
    PL_TRY(pl_run_eval(run, &e));
    t->eval = e.value[0];
    t->samples = e.samples;
    static const char *const counters[] = {"optim.step", "optim_d.step"};
    for (int i = 0; i < 2; i++)
        memcpy(&t->updates[i],
               pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), counters[i])),
               8);
    return PL_OK;
}

static pl_status trace_of(const char *a, const char *b, trace *t)
{
    pl_run *run = NULL;
    const char *overrides[2] = {a, b};
    int threads = pl_threads();
    pl_threads_set(1); /* the networks are too small for more */
    memset(t, 0, sizeof *t);
    pl_status rc = open_run(overrides, b ? 2 : 1, &run);
    if (rc == PL_OK) rc = follow(run, t);
    pl_run_free(run);
    pl_threads_set(threads);
    return rc;
}

/* ---- tests ------------------------------------------------------------------------------ */
TEST(steps_of_two_programs_match_in_micro_batches)
{
    static const char *const how[] = {"accumulate=2", "accumulate=4", "accumulate=8"};
    trace whole, parts;

    CHECK_OK(trace_of("accumulate=1", "clip.norm=0.5", &whole));
    CHECK_INT(whole.updates[0], STEPS);
    CHECK_INT(whole.updates[1], STEPS);
    CHECK(whole.judged[STEPS - 1] < whole.judged[1] && whole.judged[1] != whole.judged[2]);

    for (int k = 0; k < 3; k++) {
        CHECK_OK(trace_of(how[k], "clip.norm=0.5", &parts));
        for (int i = 0; i < STEPS; i++) {
            CHECK_NEAR(parts.loss[i], whole.loss[i], 1e-6 * fabs(whole.loss[i]));
            CHECK_NEAR(parts.judged[i], whole.judged[i], 1e-6 * fabs(whole.judged[i]));
        }
        CHECK_INT(parts.updates[1], STEPS);
    }
}

/* A program changes only the slots of its own optimizer group. */
TEST(steps_programs_change_only_their_own_group)
{
    static const char *const of[] = {"optim_d.lr=0", "optim.lr=0"};
    static const char *const still[] = {"disc.0.weight", "gen.0.weight"};
    for (int k = 0; k < 2; k++) {
        pl_run *run = NULL;
        pl_step_info info;
        float before[64], after[64];
        CHECK_OK(open_run(&of[k], 1, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        for (int other = 0; other < 2; other++) {
            int slot = pl_store_find(pl_run_store(run), still[other ? 1 - k : k]);
            memcpy(before, pl_session_slot(pl_run_session(run), slot), sizeof before);
            for (int i = 0; i < 5; i++) CHECK_OK(pl_run_step(run, &info));
            memcpy(after, pl_session_slot(pl_run_session(run), slot), sizeof after);
            CHECK((memcmp(before, after, sizeof before) != 0) == (other == 1));
        }
        pl_run_free(run);
    }
}

/* `from` and `until` bound the steps of a program; a program that runs rarely costs its share of
 * the predicted time. */
TEST(steps_run_programs_when_they_are_due)
{
    static const struct {
        pl_when when;
        const char *runs;
    } of[] = {
        {{.every = 3}, "100100100"},
        {{.but_every = 3}, "011011011"},
        {{.from = 2, .until = 5}, "001110000"},
        {{.every = 2, .from = 3}, "000010101"},
        {{.until = 4, .but_every = 2}, "010100000"},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        pl_step_program t = {.when = of[i].when};
        for (int64_t step = 0; step < 9; step++)
            CHECK_MSG(pl__step_program_runs(&t, step) == (of[i].runs[step] == '1'),
                      "rule %zu, step %lld", i, (long long)step);
    }
    pl_run *run = NULL;
    CHECK_OK(open_run(NULL, 0, &run));
    CHECK_OK(pl_run_build(run));
    double want = 0;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        double share = strcmp(t.name, "judge") == 0     ? 0.75
                       : strcmp(t.name, "penalty") == 0 ? 0.25
                                                        : 1;
        want += share * pl_program_plan(t.run)->predicted_step_ms;
    }

    CHECK_NEAR(pl_run_predicted_ms(run), want, 1e-9 * want);
    pl_run_free(run);
}

/* The programs listed for a step are the programs that it runs; a repeated program is listed as
 * often. */
TEST(steps_list_the_programs_that_they_run)
{
    static const char *const twice[] = {"train.updates_per_batch=2"};
    for (int updates = 1; updates <= 2; updates++) {
        pl_run *run = NULL;
        CHECK_OK(open_run(twice, updates - 1, &run));
        CHECK_OK(pl_run_build(run));
        for (int64_t step = 0; step < 9; step++) {
            int turns[8], n = pl_run_step_programs_of(run, step, turns, 8);
            CHECK_INT(n, 2 * updates);
            for (int i = 0; i < n; i++) {
                const char *name = pl_run_step_program_at(run, turns[i]).name;
                const char *want = i % 2 ? "train" : step % 4 ? "judge" : "penalty";
                CHECK_MSG(strcmp(name, want) == 0, "step %d has %s, not %s", (int)step, name, want);
            }
            int one[2] = {-1, -1};
            CHECK_INT(pl_run_step_programs_of(run, step, one, 1), n);
            CHECK_INT(one[0], turns[0]);
            CHECK_INT(one[1], -1);
        }
        pl_run_free(run);
    }
}

/* Terms have the same names, listed before the first step, with and without micro-batches. */
TEST(steps_report_the_listed_terms_with_and_without_micro_batches)
{
    for (int k = 1; k <= 2; k++) {
        const char *overrides[] = {"clip.norm=1", "optim_d.clip.norm=1", "accumulate=2"};
        pl_run *run = NULL;
        pl_step_info info;
        CHECK_OK(open_run(overrides, k == 1 ? 2 : 3, &run));
        CHECK_INT(pl_run_term_count(run), 0);
        CHECK_OK(pl_run_build(run));
        CHECK_INT(pl_run_term_count(run), 9);
        CHECK_OK(pl_run_start(run));
        bool seen[9] = {false};
        for (int step = 0; step < 2; step++) {
            CHECK_OK(pl_run_step(run, &info));
            CHECK_INT(info.n_terms, 6);
            CHECK_NEAR(term(&info, "grad_norm"), info.grad_norm, 0);
            CHECK_NEAR(term(&info, step ? "judge.lr" : "penalty.lr"), 2e-3, 1e-9);
            CHECK(term(&info, step ? "judge.grad_norm" : "penalty.grad_norm") > 0);
            for (int i = 0; i < 9; i++) seen[i] |= !isnan(term(&info, pl_run_term_name(run, i)));
        }
        for (int i = 0; i < 9; i++) CHECK_MSG(seen[i], "%s", pl_run_term_name(run, i));
        pl_run_free(run);
    }
}

/* No term is dropped silently. */
TEST(steps_refuse_more_terms_than_can_be_reported)
{
    pl_run *run = NULL;
    const char *overrides[] = {"outputs=130"};
    CHECK_OK(open_run(overrides, 1, &run));
    CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "at most 128"), "%s", pl_error_text());
    pl_run_free(run);
}

TEST(steps_refuse_shared_weights_and_state_moved_by_micro_batches)
{
    trace t;
    CHECK_INT(trace_of("overlap=true", NULL, &t), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "trained by optim_d and by optim"), "%s", pl_error_text());
    CHECK_OK(trace_of("spectral=true", NULL, &t));
    CHECK_INT(trace_of("spectral=true", "accumulate=2", &t), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "with every micro-batch"), "%s", pl_error_text());
}

/* Every sample of the set counts once, for any batch, also if the set is smaller than a batch. */
TEST(steps_eval_counts_every_sample)
{
    static const char *const batch[] = {"batch=12", "batch=7", "batch=64"};
    for (int k = 0; k < 3; k++) {
        pl_run *one = NULL, *run = NULL;
        pl_eval_info want, got;
        const char *single[] = {"batch=1", "eval.batches=1000"};
        const char *many[] = {batch[k], "eval.batches=1000"};
        CHECK_OK(open_run(single, 2, &one));
        CHECK_OK(open_run(many, 2, &run));
        CHECK_OK(pl_run_build(one));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(one));
        CHECK_OK(pl_run_start(run));
        CHECK_OK(pl_run_eval(one, &want));
        CHECK_OK(pl_run_eval(run, &got));
        CHECK_INT(got.samples, SAMPLES);
        CHECK_NEAR(got.value[0], want.value[0], 1e-6 * fabs(want.value[0]));
        pl_run_free(one);
        pl_run_free(run);
    }
}

/* Training stops after stop.patience evaluations without improvement; the state is in the store. */
TEST(steps_stop_training_when_nothing_improves)
{
    static const double metric[] = {3, 2, 2.5, 1, 1, 0.999, 1.5, 1.2};
    static const bool better[] = {true, true, false, true, false, false, false, false};
    const char *overrides[] = {"stop.patience=4", "stop.threshold=0.01"};

    pl_run *run = NULL;
    CHECK_OK(open_run(overrides, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    for (int i = 0; i < 8; i++) {
        pl_eval_info e = {.n = 1, .name = {"loss"}, .value = {metric[i]}};
        pl_verdict v = pl_run_judge(run, &e);
        CHECK(v.better == better[i] && v.stop == (i == 7));
    }
    double *state = pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), "stop"));
    CHECK(state[1] == 1 && state[2] == 4);
    pl_run_free(run);
    /* With mode max more is better; a metric that is NaN is never better, not even as the first. */
    static const double score[] = {(double)NAN, 1, 2, (double)NAN, 1.5, 3};
    static const bool higher[] = {false, true, true, false, false, true};
    const char *most[] = {"stop.patience=9", "stop.mode=max"};
    CHECK_OK(open_run(most, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    for (int i = 0; i < 6; i++) {
        pl_eval_info e = {.n = 1, .name = {"loss"}, .value = {score[i]}};
        CHECK_MSG(pl_run_judge(run, &e).better == higher[i], "evaluation %d", i);
    }
    pl_run_free(run);
    CHECK_OK(open_run(NULL, 0, &run));
    CHECK_OK(pl_run_build(run));

    CHECK(pl_store_find(pl_run_store(run), "stop") < 0);
    pl_run_free(run);
}
