/* test_train.c - runs through the API: the same numbers under every plan, files that read back. */
#include "base/sys.h"
#include "io/safetensors.h"
#include "plimsoll_train.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

/* Smaller than cloud/tiny, three frames so that BatchNorm's statistics are updated several
 * times. */
static const char *const small[] = {"batch=4",
                                    "height=16",
                                    "width=16",
                                    "model.channels=[4, 6, 8]",
                                    "model.dense=[12, 8]",
                                    "model.film_hidden=8",
                                    "eval.batches=2",
                                    "data.samples=40",
                                    "data.eval_samples=8",
                                    "clip.norm=5"};
enum { N_SMALL = sizeof small / sizeof *small };

/* Losses of a few steps and the metrics after them; extra: one additional override, or NULL. */
typedef struct trace {
    double loss[STEPS], metric[PL_MAX_METRICS];
    int metrics;
} trace;

static pl_status open_small(const char *extra, pl_run **run)
{
    const char *overrides[N_SMALL + 1];
    memcpy(overrides, small, sizeof small);
    overrides[N_SMALL] = extra;
    return pl_run_open("cloud/tiny", overrides, N_SMALL + (extra != NULL), run);
}

static pl_status follow(pl_run *run, trace *t)
{
    PL_TRY(pl_run_build(run));
    PL_TRY(pl_run_start(run));
    for (int i = 0; i < STEPS; i++) {
        pl_step_info info;
        PL_TRY(pl_run_step(run, &info));
        t->loss[i] = info.loss;
    }
    pl_eval_info e;
    PL_TRY(pl_run_eval(run, &e));
    t->metrics = e.n;
    memcpy(t->metric, e.value, sizeof e.value);
    return PL_OK;
}

static pl_status trace_of(const char *extra, const pl_compile_opts *o, trace *t)
{
    memset(t, 0, sizeof *t);
    pl_run *run;
    PL_TRY(open_small(extra, &run));
    if (o) pl_run_set_compile(run, o);
    pl_status rc = follow(run, t);
    pl_run_free(run);
    return rc;
}

static bool same_bits(const trace *a, const trace *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

TEST(train_with_the_same_seed_gives_the_same_bits)
{
    trace a, b, c;
    CHECK_OK(trace_of("seed=5", NULL, &a));
    CHECK_OK(trace_of("seed=5", NULL, &b));
    CHECK_OK(trace_of("seed=6", NULL, &c));
    CHECK(same_bits(&a, &b));
    CHECK(!same_bits(&a, &c));
    CHECK(a.metrics >= 3 && isfinite(a.loss[STEPS - 1]));
}

/* Memory reuse, fusion, and filling free bytes with NaN change no bit (M10, M11). */
TEST(train_plans_do_not_change_bits)
{
    trace plain, other;

    CHECK_OK(trace_of(NULL, NULL, &plain));
    pl_compile_opts poison = PL_COMPILE_INIT, no_reuse = PL_COMPILE_INIT, seeded = PL_COMPILE_INIT;
    pl_compile_opts no_fuse = PL_COMPILE_INIT;
    no_fuse.no_fuse = true;
    poison.poison = true;
    no_reuse.no_reuse = true;
    seeded.seed = 77;
    CHECK_OK(trace_of(NULL, &poison, &other));
    CHECK_MSG(same_bits(&plain, &other), "poisoned bytes were read: loss %.9g, was %.9g",
              other.loss[STEPS - 1], plain.loss[STEPS - 1]);
    CHECK_OK(trace_of(NULL, &no_reuse, &other));
    CHECK(same_bits(&plain, &other));
    CHECK_OK(trace_of(NULL, &seeded, &other));
    CHECK(same_bits(&plain, &other));
    CHECK_OK(trace_of(NULL, &no_fuse, &other));

    CHECK_MSG(same_bits(&plain, &other), "fusing changes bits: loss %.9g, alone %.9g",
              plain.loss[STEPS - 1], other.loss[STEPS - 1]);
}

/* Libraries may sum in an order that depends on the number of threads: losses are close, not equal.
 * */
TEST(train_losses_agree_for_any_number_of_threads)
{
    trace one, two;
    CHECK_OK(trace_of("threads=1", NULL, &one));
    CHECK_OK(trace_of("threads=2", NULL, &two));
    CHECK_NEAR(one.loss[0], two.loss[0], 1e-5 * fabs(one.loss[0]));
    CHECK_OK(trace_of("threads=2", NULL, &one));
    CHECK(same_bits(&one, &two));
}

TEST(train_presets_of_cloud_have_the_published_parameters)
{
    static const struct {
        const char *preset;
        int64_t parameters;
    } known[] = {{"cloud/full", 536846}, {"cloud/memory_optimized", 143886}};
    for (int i = 0; i < 2; i++) {
        pl_run *run;
        CHECK_OK(pl_run_open(known[i].preset, NULL, 0, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_INT(pl_run_parameters(run, false), known[i].parameters);
        CHECK_INT(pl_run_parameters(run, true), known[i].parameters);
        pl_run_free(run);
    }
}

TEST(train_replay_of_cloud_agrees_with_pytorch)
{
    pl_replay_opts o = {.config = NULL};
    pl_replay_report r;
    CHECK_OK(pl_replay("tests/data/peers/cloud", &o, &r));
    CHECK_MSG(r.worst_loss < 1e-5, "losses differ by %g: %s", r.worst_loss, r.worst_loss_name);
    CHECK_MSG(r.worst_grad < 1e-4, "gradients differ by %g: %s", r.worst_grad, r.worst_grad_name);
    CHECK_MSG(r.worst_final < 1e-4, "weights differ by %g: %s", r.worst_final, r.worst_final_name);
    CHECK(r.agree && r.steps == 5 && r.gradients == 34 && r.tensors == 49);
    /* Biases before a norm or a softmax, and the running means that follow them. */
    CHECK_MSG(r.noise <= 11, "%d tensors are excused as noise", r.noise);
}

/* A wrong weight decay shows in the weights. */
TEST(train_replay_notices_another_weight_decay)
{
    const char *wrong[] = {"optim.weight_decay=0.4", "threads=1"};
    pl_replay_opts o = {.overrides = wrong, .n_overrides = 2};
    pl_replay_report r;
    CHECK_OK(pl_replay("tests/data/peers/cloud", &o, &r));
    CHECK(!r.agree && r.worst_final > 1e-4);
}

/* BatchNorm over two samples: PyTorch's own f32 is 1e-5 to 2e-4 from its f64 here. */
TEST(train_replay_tells_rounding_from_differences)
{
    const char *dir = "tests/data/peers/cloud-rounding";
    const char *keys[] = {"threads=1", "optim.lr=0.0011"};
    pl_replay_opts o = {.overrides = keys, .n_overrides = 1};
    pl_replay_report r;

    CHECK_OK(pl_replay(dir, &o, &r));
    CHECK_MSG(r.agree, "loss %g, gradient %g, final %g, explained %d: %s", r.worst_loss,
              r.worst_grad, r.worst_final, r.rounding, r.rounding_name);
    CHECK_MSG(r.worst_loss <= 1e-5 || r.rounding > 0, "%g, %d", r.worst_loss, r.rounding);

    o.n_overrides = 2;
    CHECK_OK(pl_replay(dir, &o, &r));
    CHECK_MSG(!r.agree && r.nudged > 1, "%d runs, %s", r.nudged, r.rounding_name);
}

TEST(train_model_file_reads_back_the_same)
{
    char path[512], override[600];

    snprintf(path, sizeof path, "%s/model.safetensors", pl_test_dir());
    snprintf(override, sizeof override, "init_from=%s", path);
    trace t;
    pl_run *a, *b;
    CHECK_OK(open_small("seed=3", &a));
    CHECK_OK(follow(a, &t));
    CHECK_OK(pl_run_save_model(a, path));
    CHECK_OK(open_small(override, &b));
    CHECK_OK(pl_run_build(b));
    CHECK_OK(pl_run_start(b));
    pl_eval_info x, y;
    CHECK_OK(pl_run_eval(a, &x));
    CHECK_OK(pl_run_eval(b, &y));

    CHECK(x.n == y.n && memcmp(x.value, y.value, sizeof x.value) == 0);
    pl_run_free(a);
    pl_run_free(b);
}

/* All numbers of the f32 tensors of the run's model, or of its averages, in file layout; the
 * caller frees them. */
static pl_status numbers_of(pl_run *run, bool averaged, float **all, int64_t *n)
{
    char path[512];
    pl_st_reader *f;
    snprintf(path, sizeof path, "%s/numbers.safetensors", pl_test_dir());
    *all = NULL;
    *n = 0;
    PL_TRY(averaged ? pl_run_save_averages(run, path) : pl_run_save_model(run, path));
    PL_TRY(pl_st_open(path, &f));
    pl_status rc = PL_OK;
    for (int i = 0; i < pl_st_count(f) && rc == PL_OK; i++) {
        const pl_st_tensor *t = pl_st_at(f, i);
        size_t bytes = t->end - t->begin;
        if (t->type.dtype != PL_F32) continue;
        *all = realloc(*all, (size_t)*n * sizeof **all + bytes);
        rc = pl_st_read(f, t, *all + *n, bytes);
        *n += (int64_t)(bytes / sizeof **all);
    }
    pl_st_close(f);
    return rc;
}

/* The average of a weight starts at the weight and moves by its share with every update. Running
 * statistics, which are not averaged, equal those of the model, as all tensors do before the first
 * update. */
TEST(train_averages_follow_their_formula)
{
    const float decay = 0.75f;
    int64_t n, m, weights = 0, others = 0;
    float *want, *got, *now;

    pl_run *run;
    CHECK_OK(open_small("ema.decay=0.75", &run));
    CHECK_OK(pl_run_build(run));
    CHECK(pl_run_has_averages(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(numbers_of(run, false, &want, &n));
    CHECK_OK(numbers_of(run, true, &now, &m));
    CHECK(n == m && n > 1000 && memcmp(want, now, (size_t)n * sizeof *now) == 0);

    for (int step = 0; step < STEPS; step++) {
        pl_step_info info;
        free(now);
        CHECK_OK(pl_run_step(run, &info));
        CHECK_OK(numbers_of(run, false, &now, &m));
        for (int64_t i = 0; i < n; i++) want[i] = decay * want[i] + (1 - decay) * now[i];
    }
    CHECK_OK(numbers_of(run, true, &got, &m));
    CHECK_INT(m, n);

    for (int64_t i = 0; i < n; i++) {
        bool as_is = got[i] == now[i],
             averaged = fabsf(got[i] - want[i]) <= 1e-6f * (1 + fabsf(want[i]));
        CHECK_MSG(as_is || averaged, "number %lld is %g, wants %g or %g", (long long)i,
                  (double)got[i], (double)want[i], (double)now[i]);
        weights += averaged && !as_is;
        others += as_is && !averaged;
    }
    CHECK_MSG(weights > n / 2 && others > 0, "%lld averaged, %lld as they are, of %lld",
              (long long)weights, (long long)others, (long long)n);
    free(want), free(got), free(now);
    pl_run_free(run);
    CHECK_OK(open_small(NULL, &run));
    CHECK_OK(pl_run_build(run));
    CHECK(!pl_run_has_averages(run));
    pl_run_free(run);
}

/* Training on the written data set equals training on generated samples. */
TEST(train_on_a_written_data_set_equals_the_generator)
{
    char override[600];
    pl_run *run;
    CHECK_OK(open_small(NULL, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_generate(run, pl_test_dir(), 0, 0, NULL, NULL));
    pl_run_free(run);
    snprintf(override, sizeof override, "data.path=%s", pl_test_dir());
    trace a, b;
    CHECK_OK(trace_of(NULL, NULL, &a));
    CHECK_OK(trace_of(override, NULL, &b));
    CHECK(same_bits(&a, &b));
}

/* Every epoch visits every sample once, in another order. */
TEST(train_sampling_visits_every_sample_once_an_epoch)
{
    enum { N = 37 };
    int order[2][N];
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[N] = {false};
        for (int i = 0; i < N; i++) {
            int64_t s = pl__sample_at(9, N, epoch * N + i);
            CHECK(s >= 0 && s < N && !seen[s]);
            seen[s] = true;
            order[epoch][i] = (int)s;
        }
    }
    CHECK(memcmp(order[0], order[1], sizeof order[0]) != 0);
    CHECK_INT(pl__sample_at(9, 1, 5), 0);
}

/* Every allocation from opening to the first step fails once: each gives an error, never a crash
 * or a leak. Without PL_TEST_LONG only some of them, at growing distances. */
static pl_status open_to_step(void)
{
    pl_run *run = NULL;
    pl_status rc = open_small("frames=1", &run);
    if (rc != PL_OK) return rc;
    pl_step_info info;
    rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_step(run, &info);
    pl_run_free(run);
    return rc;
}

static pl_status open_to_eval(void)
{
    pl_run *run = NULL;
    pl_status rc = open_small("frames=1", &run);
    if (rc != PL_OK) return rc;
    pl_eval_info info;
    rc = pl_run_eval_only(run, 0);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_eval(run, &info);
    pl_run_free(run);
    return rc;
}

static void fail_each_allocation(pl_status (*all)(void))
{
    for (uint64_t n = 1;; n += pl_test_long() ? 1 : 1 + n / 8) {
        pl_sys_fail_nth(n);
        pl_status rc = all();
        bool hit = pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        if (!hit) {
            CHECK_OK(rc);
            CHECK(n > 50);
            return;
        }
        CHECK_MSG(rc == PL_ERR_MEMORY && pl_error_text()[0],
                  "allocation %llu failed, the run says %s: %s", (unsigned long long)n,
                  pl_status_name(rc), pl_error_text());
    }
}

TEST(train_reports_every_failing_allocation)
{
    fail_each_allocation(open_to_step);
    fail_each_allocation(open_to_eval);
}

/* The refusal of a budget names the minimum. */
TEST(train_refuses_a_budget_below_the_minimum)
{
    pl_run *run;
    CHECK_OK(open_small("memory=8MiB", &run));
    CHECK_OK(pl_run_build(run));
    CHECK(!pl_run_memory_get(run).fits);
    CHECK_INT(pl_run_start(run), PL_ERR_FIT);
    CHECK(strstr(pl_error_text(), "smallest budget"));
    pl_run_free(run);
}

/* The planner's own host memory counts against the budget: a run whose search took more is not
 * started, and a budget that is too small for a search has the keep-all plan or none. */
TEST(train_minimum_includes_the_memory_of_planning)
{
    const uint64_t MIB = 1 << 20;

    pl_run *run;
    CHECK_OK(open_small("memory=2GiB", &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_find_minimum(run));
    pl_run_memory m = pl_run_memory_get(run);
    CHECK(m.fits && m.minimum < 2048 * MIB);

    run->usage.plan_peak = 3072 * MIB;
    CHECK_INT(pl_run_start(run), PL_ERR_FIT);
    CHECK_MSG(strstr(pl_error_text(), "planning took"), "%s", pl_error_text());
    pl_run_free(run);
    /* Measures a search, which starts because the budget is too small, and because keep-all plans
     * take more than a search. */
    static const char *const large[] = {"memory=8MiB", "batch=8", "height=96", "width=128"};
    CHECK_OK(pl_run_open("cloud/tiny", large, 4, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_MSG(run->usage.plan_peak > 8 * MIB && run->usage.plan_peak <= pl_sys_peak_rss_bytes(),
              "%llu bytes", (unsigned long long)run->usage.plan_peak);
    pl_run_free(run);
}

TEST(train_plateau_threshold_is_read_from_its_key)
{
    static const char *const keys[] = {"schedule.plateau.threshold=0.25"};
    pl_run *run;
    CHECK_OK(pl_run_open("regress/tiny", keys, 1, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_NEAR(run->steps.plateau.threshold, 0.25, 0);
    pl_run_free(run);
}
