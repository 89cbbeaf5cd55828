/* test_accumulate.c - a batch in micro-batches: the same losses, or a refusal that names the op. */
#include "base/err.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plimsoll_checkpoint.h"
#include "rt/process_budget.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 20, SAMPLES = 96 };

/* ---- a recipe: images to four numbers, group norm, optionally batch norm or dropout ----- */
static const pl_config_entry schema[] = {
    {"norm", PL_CONFIG_CHOICE, "group", 0, 0, "group|batch", "Kind of normalisation."},
    {"dropout", PL_CONFIG_FLOAT, "0", 0, 0.9, NULL, "Of the features."},
    {"width", PL_CONFIG_INT, "8", 1, 4096, NULL, "Channels."},
    {"depth", PL_CONFIG_INT, "1", 1, 64, NULL, "Convolutions after the first."},
    {0},
};

static void network(pl_builder *b, pl_nn *m, pl_val *loss)
{
    const pl_config *c = pl_builder_config(b);
    int64_t n = pl_builder_batch(b), width = pl_config_int(c, "width");
    pl_nn_conv conv = {.kernel = 3, .pad = 1};
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, n, 8, 8, 3));
    pl_val y = pl_input(m->g, "y", PL_TYPE(PL_F32, n, 4));
    x = pl_nn_conv2d(m, x, "conv1", width, conv);
    x = strcmp(pl_config_text(c, "norm"), "batch") == 0
            ? pl_nn_batch_norm(m, x, "norm1", (pl_nn_norm){0})
            : pl_nn_group_norm(m, x, "norm1", 2, (pl_nn_norm){0});
    for (int64_t i = 0; i < pl_config_int(c, "depth"); i++)
        x = pl_nn_conv2d(m, pl_silu(m->g, x), pl_nn_name(m, "more%d", (int)i), width, conv);
    x = pl_nn_global_average(m->g, pl_silu(m->g, x));
    x = pl_nn_dropout(m, x, pl_config_float(c, "dropout"));
    *loss = pl_loss_mse(m->g, pl_nn_linear(m, x, "out", 4, (pl_nn_lin){0}), y);
}

static pl_status recipe_build(pl_builder *b)
{
    pl_val loss;
    network(b, pl_builder_train(b), &loss);
    pl_builder_minimise(b, loss);
    network(b, pl_builder_eval(b), &loss);
    pl_output(pl_builder_eval(b)->g, "loss", loss);
    return PL_OK;
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data, (void)subset;
    return SAMPLES;
}

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "accumulate-test",
                                 .about = "a small network",
                                 .schema = schema,
                                 .build = recipe_build,
                                 .data_size = data_size,
                                 .data_read = small_run_noise};

static pl_status open_run(const char *const *overrides, int n, pl_run **out)
{
    const char *keys[9] = {"batch=32"};
    for (int i = 0; i < n; i++) keys[1 + i] = overrides[i];
    return small_run_open(&recipe, keys, 1 + n, out);
}

typedef struct trace {
    double loss[STEPS], eval, lr, epoch;
    int64_t step, micro, parts;
    uint64_t arena;
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
        t->loss[i] = info.loss;
    }
    PL_TRY(pl_run_eval(run, &e));
    pl_run_split split = pl_run_split_get(run);
    PL_FAIL_IF(split.effective != pl_config_int(pl_run_config(run), "batch"), PL_ERR_PLAN,
               "the effective batch is not the batch");
    t->eval = e.value[0];
    t->lr = info.lr;
    t->epoch = info.epoch;
    t->step = info.step;
    t->micro = split.micro;
    t->parts = split.accumulate;
    t->arena = mapped.arena;
    return PL_OK;
}

static pl_status trace_of(const char *const *overrides, int n, trace *t)
{
    pl_run *run = NULL;
    int threads = pl_threads();
    pl_threads_set(1); /* the network is too small for more */
    pl_status rc = open_run(overrides, n, &run);
    memset(t, 0, sizeof *t);
    if (rc == PL_OK) rc = follow(run, t);
    pl_run_free(run);
    pl_threads_set(threads);
    return rc;
}

static pl_status with(const char *a, const char *b, trace *t)
{
    const char *overrides[2] = {a, b};
    return trace_of(overrides, b ? 2 : 1, t);
}

/* ---- tests ------------------------------------------------------------------------------ */
TEST(accumulate_micro_batches_give_the_losses_of_the_whole_batch)
{
    static const char *const how[] = {"accumulate=2", "accumulate=4", "accumulate=8"};
    trace whole, parts;
    const char *common = "schedule.warmup_steps=10";

    CHECK_OK(with("accumulate=1", common, &whole));
    CHECK_INT(whole.micro, 32);
    CHECK(whole.loss[STEPS - 1] < whole.loss[0]);
    for (int k = 0; k < 3; k++) {
        CHECK_OK(with(how[k], common, &parts));
        CHECK_INT(parts.micro, 32 / parts.parts);
        CHECK_INT(parts.step, STEPS);
        CHECK(parts.lr == whole.lr && parts.epoch == whole.epoch);
        CHECK_MSG(parts.arena < whole.arena, "%s: %llu bytes, %llu before", how[k],
                  (unsigned long long)parts.arena, (unsigned long long)whole.arena);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(parts.loss[i], whole.loss[i], 1e-6 * fabs(whole.loss[i]));
        CHECK_NEAR(parts.eval, whole.eval, 1e-6 * fabs(whole.eval));
    }
}

/* Clipping and averages see the gradient of the whole batch. */
TEST(accumulate_clips_the_gradient_of_the_whole_batch)
{
    trace whole, parts;
    CHECK_OK(with("accumulate=1", "clip.norm=0.05", &whole));
    CHECK_OK(with("accumulate=8", "clip.norm=0.05", &parts));
    for (int i = 0; i < STEPS; i++)
        CHECK_NEAR(parts.loss[i], whole.loss[i], 1e-6 * fabs(whole.loss[i]));
}

/* The counter of the random stream advances with every micro-batch. */
TEST(accumulate_draws_new_numbers_for_every_micro_batch)
{
    pl_run *run = NULL;
    pl_step_info info;
    const char *overrides[] = {"accumulate=4", "dropout=0.5"};
    CHECK_OK(open_run(overrides, 2, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    int64_t *key = pl_session_slot(pl_run_session(run), pl_store_find(pl_run_store(run), "rng"));
    int64_t before[2] = {key[0], key[1]};
    CHECK_OK(pl_run_step(run, &info));
    int64_t moved = key[1] - before[1];
    pl_run_free(run);
    CHECK_MSG(moved == 4, "the draws' counter moved by %lld in 4 micro-batches", (long long)moved);
}

/* Losses of some steps and every slot after these steps. */
typedef struct record {
    double loss[6];
    char *state;
    size_t n;
} record;

static pl_status record_of(const pl_compile_opts *how, bool least, record *r)
{
    const char *overrides[] = {"accumulate=4", "dropout=0.4", "clip.norm=1", "depth=3"};
    pl_run *run = NULL;
    pl_step_info info;
    pl_status rc = open_run(overrides, 4, &run);
    if (rc == PL_OK) pl_run_set_compile(run, how);
    if (rc == PL_OK) rc = pl_run_build(run);
    uint64_t budget = 0;
    if (rc == PL_OK && least) rc = pl_program_minimum(pl__train(run), 0, &budget);
    if (rc == PL_OK && least) rc = pl_program_set_budget(pl__train(run), budget);
    if (rc == PL_OK && least && pl_program_plan(pl_run_train_program(run))->recompute_ratio == 0)
        rc = PL_ERR_PLAN;
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; i < 6 && rc == PL_OK; i++) {
        rc = pl_run_step(run, &info);
        r->loss[i] = info.loss;
    }
    r->n = 0;
    r->state = NULL;
    for (int i = 0; rc == PL_OK && i < pl_store_count(pl_run_store(run)); i++) {
        size_t bytes = pl_type_bytes(&pl_store_slot(pl_run_store(run), i)->type);
        r->state = realloc(r->state, r->n + bytes + 1);
        memcpy(r->state + r->n, pl_session_slot(pl_run_session(run), i), bytes);
        r->n += bytes;
    }
    pl_run_free(run);
    return rc;
}

/* Several micro-batches with dropout and clipping: the same bits in a second run, in poisoned
 * memory, without small types, without fusion, and with the minimum of memory. */
TEST(accumulate_gives_the_same_bits_under_every_plan)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    record want, got;

    CHECK_OK(record_of(&o, false, &want));
    CHECK(want.loss[0] != want.loss[1]);
    for (int way = 0; way < 5; way++) {
        o = (pl_compile_opts)PL_COMPILE_INIT;
        o.poison = way == 1;
        o.no_small = way == 2;
        o.no_fuse = way == 3;
        CHECK_OK(record_of(&o, way == 4, &got));
        CHECK_MSG(!memcmp(want.loss, got.loss, sizeof want.loss), "way %d: other losses", way);
        CHECK_MSG(want.n == got.n && !memcmp(want.state, got.state, want.n), "way %d: other state",
                  way);
        free(got.state);
    }
    free(want.state);
}

/* A step of several micro-batches allocates nothing. */
TEST(accumulate_steps_allocate_nothing)
{
    if (!pl_test_allocs_counted()) SKIP("a sanitizer has the allocator");
    const char *overrides[] = {"accumulate=4", "dropout=0.4", "clip.norm=1"};
    pl_run *run = NULL;
    pl_step_info info;
    CHECK_OK(open_run(overrides, 3, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_step(run, &info));
    uint64_t before = pl_test_allocs(), ours = pl_sys_counts_get().allocs;
    for (int i = 0; i < 5; i++) CHECK_OK(pl_run_step(run, &info));
    CHECK_INT(pl_test_allocs() - before, 0);
    CHECK_INT(pl_sys_counts_get().allocs - ours, 0);
    pl_run_free(run);
}

TEST(accumulate_refuses_a_network_that_couples_samples)
{
    trace t;
    CHECK_INT(with("accumulate=4", "norm=batch", &t), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "norm1: moments") &&
                  strstr(pl_error_text(), "accumulate_coupled"),
              "%s", pl_error_text());
    const char *said[] = {"accumulate=4", "norm=batch", "accumulate_coupled=true"};
    CHECK_OK(trace_of(said, 3, &t));
    CHECK_INT(t.parts, 4);
    CHECK_INT(with("accumulate=5", NULL, &t), PL_ERR_CONFIG);
    CHECK_INT(with("accumulate=some", NULL, &t), PL_ERR_CONFIG);
    CHECK_INT(with("accumulate=0", NULL, &t), PL_ERR_CONFIG);
}

/* ---- accumulate: auto ------------------------------------------------------------------- */
typedef struct outcome {
    pl_run_memory m;
    pl_run_split split;
    double ms, recompute;
} outcome;

static const char *planned_device = "device=cpu";

static pl_status plan_with(const char *accumulate, const char *checkpointing, const char *norm,
                           uint64_t budget, outcome *o)
{
    char memory[64];
    snprintf(memory, sizeof memory, "memory=%llu", (unsigned long long)budget);
    const char *overrides[] = {
        "batch=1024", "width=16", "depth=8",      checkpointing,
        accumulate,   norm,       planned_device, budget ? memory : "seed=0"};
    pl_run *run = NULL;
    pl_status rc = open_run(overrides, 8, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) {
        o->m = pl_run_memory_get(run);
        o->split = pl_run_split_get(run);
        o->split.coupled = o->split.coupled ? "coupled" : NULL; /* the text is freed with the run */
        o->ms = pl_run_predicted_ms(run);
        o->recompute = pl_program_plan(pl_run_train_program(run))->recompute_ratio;
    }
    pl_run_free(run);
    return rc;
}

static pl_status plan_auto(const char *norm, uint64_t budget, outcome *o)
{
    return plan_with("accumulate=auto", "checkpointing=off", norm, budget, o);
}

TEST(accumulate_auto_splits_the_batch_until_it_fits)
{
    WANT_PLAIN();
    outcome all, o;

    CHECK_OK(plan_auto("norm=group", 0, &all));
    CHECK_INT(all.split.accumulate, 1);
    for (int k = 2; k <= 8; k *= 2) {
        uint64_t budget = all.m.total - all.m.arena + all.m.arena / (uint64_t)k * 11 / 10;
        CHECK_OK(plan_auto("norm=group", budget, &o));
        CHECK(o.m.fits && o.m.total <= budget);
        CHECK_INT(o.split.effective, 1024);
        CHECK(o.split.accumulate > 1);
    }
    CHECK_OK(plan_auto("norm=batch", all.m.total - all.m.arena / 2, &o));

    CHECK(!o.m.fits && o.split.coupled);
    CHECK_INT(o.split.accumulate, 1);
}

/* Over budgets from large to small: a smaller budget is not faster, and at each budget no other
 * number of micro-batches is faster than the one that is chosen. */
static void check_budgets(const char *checkpointing, int budgets)
{
    static const char *const splits[] = {"accumulate=1", "accumulate=2", "accumulate=4",
                                         "accumulate=8", "accumulate=16"};
    outcome all, o, one;
    double before = 0;
    CHECK_OK(plan_auto("norm=group", 0, &all));
    for (int k = 0; k < budgets; k++) {
        uint64_t part = all.m.arena * (uint64_t)(budgets - k) / (uint64_t)budgets;
        uint64_t budget = all.m.total - all.m.arena + part * 21 / 20;
        CHECK_OK(plan_with("accumulate=auto", checkpointing, "norm=group", budget, &o));
        if (!o.m.fits) break;
        CHECK_MSG(o.ms >= before * (1 - 1e-9), "budget %d: %.6f ms, a larger one had %.6f ms", k,
                  o.ms, before);
        before = o.ms;
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            CHECK_OK(plan_with(splits[i], checkpointing, "norm=group", budget, &one));
            CHECK_MSG(!one.m.fits || o.ms <= one.ms * (1 + 1e-9),
                      "budget %d: %.6f ms with %lld micro-batches, %.6f ms with %s", k, o.ms,
                      (long long)o.split.accumulate, one.ms, splits[i]);
        }
    }
}

TEST(accumulate_auto_is_the_fastest_split_for_every_budget)
{
    WANT_PLAIN();
    check_budgets("checkpointing=off", 3);
    if (!pl_test_long()) return;
    planned_device = "device=rtx3090"; /* its overhead is a constant, that of a process is not */
    check_budgets("checkpointing=auto", 24);
    planned_device = "device=cpu";
}

/* accumulate=auto compares smaller micro-batches with recomputation and takes the faster plan
 * within the budget. */
TEST(accumulate_auto_is_not_slower_than_recomputing)
{
    WANT_PLAIN();
    outcome all, again, o;
    CHECK_OK(plan_auto("norm=group", 0, &all));
    uint64_t budget = all.m.total - all.m.arena / 3;
    CHECK_OK(plan_with("accumulate=1", "checkpointing=auto", "norm=group", budget, &again));
    CHECK_MSG(again.m.fits && again.recompute > 0, "minimum %llu for %llu of %llu",
              (unsigned long long)again.m.minimum, (unsigned long long)budget,
              (unsigned long long)all.m.total);
    CHECK_OK(plan_with("accumulate=auto", "checkpointing=auto", "norm=group", budget, &o));
    CHECK(o.m.fits && o.ms <= again.ms);
    if (o.split.accumulate == 1) CHECK(o.m.state == all.m.state);
}

TEST(accumulate_works_on_the_command_line)
{
    if (!cli_bin()) SKIP("no program to run");
    cli_result r = cli_run("$P plan cloud/tiny batch=4 accumulate=2");
    CHECK_INT(r.code, 2);
    CHECK_MSG(strstr(r.err, "norm.0: moments") && strstr(r.err, "sort"), "%s", r.err);
    r = cli_run("$P plan cloud/tiny batch=8 accumulate=2 accumulate_coupled=true --json");
    CHECK_MSG(r.code == 0 &&
                  strstr(r.out, "\"micro_batch\":4,\"accumulate\":2,\"effective_batch\":8"),
              "%s%s", r.out, r.err);
    r = cli_run("$P train " CLI_SMALL
                "batch=4 accumulate=2 accumulate_coupled=true train.steps=2 --json");
    CHECK_MSG(r.code == 0 && strstr(r.out, "\"step\":2"), "%s%s", r.out, r.err);
}

/* The batch that --largest-batch prints fits; a batch 5 % larger does not. */
TEST(accumulate_largest_batch_fits_and_a_larger_one_does_not)
{
    WANT_PLAIN();
    if (!cli_bin()) SKIP("no program to run");
    const char *common = "cloud/tiny frames=1 height=64 width=64 checkpointing=off";

    cli_result r = cli_run("$P plan %s --largest-batch --memory 400MB --json", common);
    CHECK_MSG(r.code == 0, "%s", r.err);
    const char *at = strstr(r.out, "\"largest_batch\":");
    CHECK(at);

    long long largest = strtoll(at + 16, NULL, 10);
    CHECK(largest > 8);
    CHECK_INT(cli_run("$P plan %s batch=%lld --memory 400MB", common, largest).code, 0);
    CHECK_INT(cli_run("$P plan %s batch=%lld --memory 400MB", common, largest * 21 / 20 + 1).code,
              3);
    CHECK_INT(cli_run("$P plan %s --largest-batch --memory 1MB", common).code, 3);
    CHECK_INT(cli_run("$P plan %s --largest-batch", common).code, 2);
}

/* Weights after `steps` steps, of a run that resumes from `dir` (NULL: a new run); saves there
 * at the end if asked. */
static pl_status go_on(const char *accumulate, const char *dir, int steps, const char *save,
                       float *weight, int64_t *split)
{
    const char *overrides[] = {"batch=16", "norm=group", accumulate};
    pl_run *run = NULL;
    pl_step_info info;
    static pl_checkpoint c;
    memset(&c, 0, sizeof c);
    pl_status rc = open_run(overrides, 3, &run);
    if (rc == PL_OK && dir) rc = pl_run_resume(run, dir);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl__stage_open(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; i < steps && rc == PL_OK; i++) rc = pl_run_step(run, &info);
    if (rc == PL_OK && save) rc = pl_checkpoint_save(run, save, &c);
    if (rc == PL_OK) {
        int slot = 0;
        while (pl_store_slot(pl_run_store(run), slot)->kind != PL_SLOT_PARAM) slot++;
        memcpy(weight, pl_session_slot(pl_run_session(run), slot), 4 * sizeof *weight);
        *split = pl_run_split_get(run).accumulate;
    }
    pl_run_free(run);
    return rc;
}

/* A resumed run keeps its micro-batches, even if accumulate=auto would choose others. */
TEST(accumulate_auto_keeps_the_split_of_a_resumed_run)
{
    char dir[512];
    float whole[4], parts[4];
    int64_t split = 0, k;
    snprintf(dir, sizeof dir, "%s/c", pl_test_dir());
    CHECK_OK(go_on("accumulate=auto", NULL, 1, NULL, whole, &k));
    CHECK_INT(k, 1);
    CHECK_OK(go_on("accumulate=4", NULL, 5, NULL, whole, &k));
    CHECK_OK(go_on("accumulate=4", NULL, 2, dir, parts, &k));
    CHECK_OK(go_on("accumulate=auto", dir, 3, NULL, parts, &split));
    CHECK_INT(split, 4);
    CHECK(memcmp(whole, parts, sizeof whole) == 0);
    CHECK_OK(go_on("accumulate=2", dir, 3, NULL, parts, &split));
    CHECK_INT(split, 2);
}
