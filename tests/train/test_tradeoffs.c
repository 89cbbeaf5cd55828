/* test_tradeoffs.c - trade-offs: settings of a recipe that need less memory and more time, where
 * the configuration leaves the choice to the planner. */
#include "plimsoll_train.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A decoder of large tensors beside small networks: decoding twice needs much less memory. */
#define LARGE                                                                                      \
 "model.layers=0", "lpips.on=false", "spade.on=false", "gan.base=2", "gan.depth=1",                \
     "model.scales=1", "device=t4"
enum { N_LARGE = 7 };

/* Plans for a budget (0: none). `minimum`: also searches for the minimum, which takes most of
 * the time. The chosen setting, or NULL, points into the recipe. */
static pl_status plan_only(const char *decode, uint64_t budget, bool minimum, pl_run_memory *m,
                           const char **taken, double *ms)
{
    char memory[64] = "memory=null";
    const char *keys[N_LARGE + 4] = {LARGE, "image=128", "batch=8", decode, memory};
    pl_run *run = NULL;
    if (budget) snprintf(memory, sizeof memory, "memory=%llu", (unsigned long long)budget);
    pl_status rc = pl_run_open("fluxflow/tiny", keys, N_LARGE + 4, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && minimum) rc = pl_run_find_minimum(run);
    if (rc == PL_OK) {
        const pl_tradeoff *t = pl_run_tradeoff_at(run, 0, NULL);
        *m = pl_run_memory_get(run);
        *taken = t ? t->setting : NULL;
        *ms = pl_run_predicted_ms(run);
    }
    pl_run_free(run);
    return rc;
}

static pl_status plan(const char *decode, uint64_t budget, pl_run_memory *m, const char **taken,
                      double *ms)
{
    return plan_only(decode, budget, true, m, taken, ms);
}

TEST(tradeoffs_are_chosen_by_the_plan_from_the_budget)
{
    pl_run_memory once, twice, m;
    const char *taken;
    double once_ms, twice_ms, ms;
    CHECK_OK(plan("gan.decode=once", 0, &once, &taken, &once_ms));
    CHECK(!taken);
    CHECK_OK(plan("gan.decode=twice", 0, &twice, &taken, &twice_ms));
    CHECK(!taken && once_ms < twice_ms);
    CHECK_MSG(twice.minimum + (16 << 20) < once.minimum, "%llu and %llu bytes",
              (unsigned long long)twice.minimum, (unsigned long long)once.minimum);
    /* without a budget the fastest setting, and the minimum is the smaller minimum of both */
    CHECK_OK(plan("gan.decode=auto", 0, &m, &taken, &ms));
    CHECK(!taken && ms == once_ms && m.arena == once.arena && m.minimum == twice.minimum);

    /* between the two minimums, and exactly at the smaller one */
    uint64_t between = (once.minimum + twice.minimum) / 2;
    CHECK_OK(plan_only("gan.decode=auto", between, false, &m, &taken, &ms));
    CHECK(m.fits && taken && strcmp(taken, "gan.decode=twice") == 0);
    CHECK_OK(plan_only("gan.decode=auto", twice.minimum, false, &m, &taken, &ms));
    CHECK(m.fits && taken);
    CHECK_OK(plan("gan.decode=auto", twice.minimum - 1000000, &m, &taken, &ms));
    CHECK(!m.fits && m.minimum == twice.minimum);
    CHECK_OK(plan_only("gan.decode=once", between, false, &m, &taken, &ms));
    CHECK(!m.fits);
}

/* ---- what is built -------------------------------------------------------------------------- */
static int slow_builds; /* with the trade-off */

static pl_status count_builds(pl_builder *b)
{
    pl_nn *m = pl_builder_train(b);
    int64_t n = pl_builder_batch(b);
    slow_builds += strcmp(pl_config_text(pl_builder_config(b), "way"), "slow") == 0;
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 4)),
           y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 6));
    pl_builder_minimise(b, pl_loss_mse(m->g, pl_nn_linear(m, x, "net", 6, (pl_nn_lin){0}), y));
    return PL_OK;
}

/* The trade-off is built only if the plan without it recomputes or does not fit, and to find the
 * minimum. */
TEST(tradeoffs_are_built_only_where_the_first_plan_recomputes_or_does_not_fit)
{
    static const pl_config_entry schema[] = {
        {"way", PL_CONFIG_CHOICE, "auto", 0, 0, "auto|fast|slow", "Which way."}, {0}};
    static const pl_tradeoff smaller[] = {{"way=slow", "goes slowly", "going fast"},
                                          {NULL, NULL, NULL}};
    static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                     .name = "trades-test",
                                     .about = "a layer",
                                     .schema = schema,
                                     .build = count_builds,
                                     .data_read = small_run_noise,
                                     .smaller = smaller};
    static const char *const budgets[] = {"memory=null", "memory=1GiB", "memory=1MB"};
    for (int i = 0; i < 3; i++) {
        pl_run *run = NULL;
        slow_builds = 0;
        CHECK_OK(small_run_open(&recipe, (const char *const[]){"batch=8", budgets[i]}, 2, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_MSG((slow_builds > 0) == (i == 2), "%s: %d builds", budgets[i], slow_builds);
        pl_run_free(run);
    }
}

/* If both settings fit, but only with recomputation, the faster plan is taken. */
TEST(tradeoffs_are_chosen_by_predicted_time)
{
    if (!pl_test_long()) SKIP("long");
    pl_run_memory once, m;
    const char *taken;
    double ms[3];
    CHECK_OK(plan("gan.decode=once", 0, &once, &taken, &ms[0]));
    static const char *const decode[] = {"gan.decode=once", "gan.decode=twice", "gan.decode=auto"};
    /* where decoding twice is faster; where it is not, though it would be without recompute;
     * where neither holds */
    static const uint64_t tenths[] = {0, 1, 3};
    for (int at = 0; at < 3; at++) {
        uint64_t budget = once.minimum + tenths[at] * (once.total - once.minimum) / 10;
        for (int i = 0; i < 3; i++) {
            CHECK_OK(plan_only(decode[i], budget, false, &m, &taken, &ms[i]));
            CHECK(m.fits);
        }
        CHECK_MSG(ms[2] == (ms[1] < ms[0] ? ms[1] : ms[0]), "%g ms, once %g, twice %g", ms[2],
                  ms[0], ms[1]);
        CHECK((taken != NULL) == (ms[1] < ms[0]));
        CHECK((taken != NULL) == (at == 0));
    }
}

#define PLAN                                                                                                    \
 "$P plan fluxflow/tiny image=128 batch=8 model.layers=0 lpips.on=false spade.on=false gan.base=2 gan.depth=1 " \
 "model.scales=1 --device t4 "
TEST(tradeoffs_are_printed_by_plan)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    cli_result r = cli_run(PLAN "--memory 600MB");
    CHECK_MSG(r.code == 0 &&
                  strstr(r.out,
                         "decodes twice (gan.decode=twice): decoding once does not fit the budget"),
              "%s", r.out);
    r = cli_run(PLAN "--memory 600MB --json");
    CHECK_MSG(strstr(r.out, "\"trades\":[\"gan.decode=twice\"]"), "%s", r.out);
    r = cli_run(PLAN "--sweep 600MB,2GB");
    const char *row = strstr(r.out, "600MB"), *next = strstr(r.out, "2GB");
    CHECK_MSG(row && next && strstr(row, "decodes twice") && !strstr(next, "decodes"), "%s", r.out);
}

TEST(tradeoffs_are_taken_by_every_command)
{
    WANT_BIN();
    if (!pl_test_long()) SKIP("long");
    cli_result r = cli_run(PLAN "--largest-batch --memory 600MB");
    CHECK_MSG(strstr(r.out, ", decodes twice"), "%s", r.out);
    /* a setting that the planner may choose is not offered as an edit, a fixed one is */
    r = cli_run(PLAN "--memory 500MB");
    const char *edits = strstr(r.out, "These changes fit");
    CHECK_MSG(r.code == 3 && edits && !strstr(edits, "gan.decode"), "%s", r.out);
    r = cli_run(PLAN "--memory 600MB gan.decode=once");
    CHECK_MSG(r.code == 3 && strstr(r.out, "gan.decode=twice"), "%s", r.out);
}
#undef PLAN

/* A run resumes with the other setting: nothing is refused, and the bits are those of a run with
 * one setting. */
TEST(tradeoffs_may_change_when_a_run_resumes)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    const char *d = pl_test_dir();
#define TRAIN "$P train fluxflow/tiny data.samples=64 eval.batches=1 --quiet "
    CHECK_RUN(cli_run(TRAIN "train.steps=4 --out %s/a", d), 0, "");
    CHECK_RUN(cli_run(TRAIN "gan.decode=twice train.steps=2 --out %s/b", d), 0, "");
    CHECK_RUN(cli_run(TRAIN "gan.decode=once train.steps=3 --out %s/b", d), 0, "");
    CHECK_RUN(cli_run(TRAIN "train.steps=4 --out %s/b", d), 0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
#undef TRAIN
}

/* A process with the printed minimum as its budget trains, with the trade-off that the plan takes.
 * */
TEST(tradeoffs_printed_minimum_is_enough)
{
    WANT_BIN();
    if (!pl_test_long()) SKIP("long");
    if (!pl_test_allocs_counted()) SKIP("a sanitizer allocates memory too");
#define CONFIG                                                                                          \
 "fluxflow/tiny image=128 batch=2 model.layers=0 lpips.on=false spade.on=false gan.base=2 gan.depth=1 " \
 "model.scales=1 data.samples=8 eval.batches=1 data.eval_samples=2 "

    cli_result r = cli_run("$P plan " CONFIG "--json");
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK(r.code == 0 && least);
    r = cli_run("$P train " CONFIG "train.steps=1 --json --memory %lld",
                least ? atoll(least + 16) : 0);

    CHECK_MSG(r.code == 0 && strstr(r.out, "\"trades\":[\"gan.decode=twice\"]"), "%d %s", r.code,
              r.err);
#undef CONFIG
}

/* The same weights with the minimum as budget, where the plan decodes twice. */
TEST(tradeoffs_do_not_change_the_weights)
{
    WANT_BIN();
    if (!pl_test_long()) SKIP("long");
    if (!pl_test_allocs_counted()) SKIP("a sanitizer allocates memory too");
    const char *d = pl_test_dir();
#define CONFIG                                                                                          \
 "fluxflow/tiny image=128 batch=2 model.layers=0 lpips.on=false spade.on=false gan.base=2 gan.depth=1 " \
 "model.scales=1 data.samples=8 eval.batches=1 data.eval_samples=2 "

    cli_result r = cli_run("$P plan " CONFIG "--json");
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK(r.code == 0 && least);
    long long budget = least ? atoll(least + strlen("\"minimum_bytes\":")) : 0;
    CHECK_RUN(cli_run("$P train " CONFIG "gan.decode=once train.steps=3 --quiet --out %s/a", d), 0,
              "");
    CHECK_RUN(cli_run("$P train " CONFIG "train.steps=2 --quiet --out %s/b", d), 0, "");
    r = cli_run("$P train " CONFIG "train.steps=3 --memory %lld --out %s/b --json", budget, d);

    CHECK_MSG(r.code == 0 && strstr(r.out, "\"trades\":[\"gan.decode=twice\"]"), "%d %s", r.code,
              r.err);
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
#undef CONFIG
}
