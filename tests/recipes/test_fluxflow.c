/* test_fluxflow.c - the fluxflow recipe: its size, its step, what it learns, its PyTorch peer. */
#include "base/err.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plimsoll_train.h"
#include "rt/process_budget.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int programs_named(const pl_run *run, const char *name)
{
    int n = 0;
    for (int i = 0; i < pl_run_step_program_count(run); i++)
        n += strcmp(pl_run_step_program_at(run, i).name, name) == 0;
    return n;
}

/* Builds the recipe without planning, to count parameters. */
static pl_status probe(const char *preset, const char *const *more, int n, pl_run **run,
                       pl_builder *b)
{
    PL_TRY(pl_run_open(preset, more, n, run));
    *b = (pl_builder){.config = pl_run_config(*run),
                      .batch = 2,
                      .accumulate = 1,
                      .goal = PL_GOAL_PROBE,
                      .store = pl_run_store(*run)};
    return pl__builder_run(b, pl_run_recipe(*run));
}

TEST(fluxflow_has_the_parameters_of_its_peer)
{
    static const struct {
        const char *slots;
        int64_t n;
    } want[] = {{"compressor.*", 12580553},
                {"expander.*", 94073551},
                {"disc.*", 45105473},
                {"lpips.*", 14714688 + 1472}};
    static const char *const no_spade[] = {"spade.on=false"};
    for (int variant = 0; variant < 2; variant++) {
        pl_run *run;
        pl_builder b;
        CHECK_OK(probe("fluxflow/full", no_spade, variant, &run, &b));
        for (int i = 0; i < 4; i++)
            CHECK_INT(pl_nn_count(b.store, want[i].slots, false), want[i].n);
        CHECK_INT(pl_nn_count(b.store, "lpips.*", true), 0);
        CHECK_INT(pl_nn_count(b.store, "expander.blocks.*.spade.*", true) == 0, variant);
        CHECK_INT(b.n_step_programs, 3);
        pl__builder_release(&b);
        pl_run_free(run);
    }
}

/* The flow stage alone, and together with the autoencoder in one step. */
TEST(fluxflow_flow_has_the_parameters_of_its_peer)
{
    static const char *const both[] = {"vae.on=true", "gan.on=true"};
    for (int variant = 0; variant < 2; variant++) {
        pl_run *run;
        pl_builder b;
        CHECK_OK(probe("fluxflow/flow", both, variant ? 2 : 0, &run, &b));
        CHECK_INT(pl_nn_count(b.store, "flow_processor.*", true), 5373824);
        CHECK_INT(pl_nn_count(b.store, "compressor.*", false), 12580553);
        CHECK_INT(pl_nn_count(b.store, "compressor.*", true), variant ? 12580553 : 0);
        CHECK_INT(b.n_step_programs, variant ? 4 : 1);
        pl__builder_release(&b);
        pl_run_free(run);
    }
}

/* The arena has the size of the largest program, the penalty runs in its steps, and loss terms
 * have their names. */
TEST(fluxflow_step_runs_every_program_in_the_largest_arena)
{
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/tiny", NULL, 0, &run));
    CHECK_OK(pl_run_build(run));

    CHECK_INT(programs_named(run, "disc") + programs_named(run, "disc_r1"), 2);
    uint64_t most = 0;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        uint64_t bytes = pl_program_plan(pl_run_step_program_at(run, i).run)->arena_bytes;
        if (bytes > most) most = bytes;
    }
    CHECK_OK(pl_run_start(run));
    CHECK_INT(pl_run_memory_get(run).arena, most);

    for (int step = 0; step < 2; step++) {
        CHECK_OK(pl_run_step(run, &info));
        bool penalised = false, judged = false;
        for (int i = 0; i < info.n_terms; i++) {
            penalised |= strcmp(info.term_name[i], "disc_r1.r1") == 0 && info.term[i] > 0;
            judged |= strcmp(info.term_name[i], "disc.d") == 0;
        }
        CHECK(penalised == (step == 0) && judged == (step == 1));
    }
    pl_run_free(run);
}

/* The decay is divided by the rate, so the rate must not be 0, and the optimiser must decay weights
 * apart from the gradient. */
TEST(fluxflow_decay_over_the_rate_wants_a_rate_and_adamw_or_lion)
{
    static const struct {
        const char *key, *why;
    } cases[] = {{"optim.name=sgd", "needs adamw or lion"}, {"optim.lr=0", "must not be 0"}};
    for (int i = 0; i < 2; i++) {
        const char *keys[] = {"optim.decoupled_weight_decay=true", cases[i].key};
        pl_run *run;
        CHECK_OK(pl_run_open("fluxflow/tiny", keys, 2, &run));
        CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), cases[i].why), "%s: %s", cases[i].key, pl_error_text());
        pl_run_free(run);
    }
}

TEST(fluxflow_refuses_bad_settings_by_name)
{
    static const struct {
        const char *key, *why;
    } cases[] = {{"accumulate=2", "couple"},
                 {"image=18", "image: 18 must be a multiple of 4"},
                 {"model.dim=40", "model.dim: 40 must be a multiple of spade.groups, 32"},
                 {"model.dim=30", "model.dim: 30 must be a multiple of 4"},
                 {"model.heads=3", "multiple of model.heads, 3"},
                 {"model.rgb=[10, 8]", "model.rgb: 10 must be a multiple of 8"},
                 {"resolutions=[64]", "resolutions: 64 must be a side below the image's, 16"},
                 {"resolutions=[8]", "VGG halves 4 times: images of 8 x 8"},
                 {"gan.depth=6", "halves 6 times: images of 16 x 16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_run *run;
        CHECK_OK(pl_run_open("fluxflow/tiny", &cases[i].key, 1, &run));
        CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
        CHECK_MSG(strstr(pl_error_text(), cases[i].why), "%s: %s", cases[i].key, pl_error_text());
        pl_run_free(run);
    }
}

/* The flow's program runs after the autoencoder's program in the same memory: the outputs of the
 * first program survive. */
TEST(fluxflow_reports_the_rate_of_the_autoencoder)
{
    static const char *const keys[] = {"flow.on=true", "optim_flow.lr=1e-4", "gan.on=false",
                                       "lpips.on=false"};
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/tiny", keys, 4, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pl_run_step(run, &info));
        CHECK_MSG(fabs(info.lr - 1e-3) < 1e-8 && info.grad_norm > 1e-3 && info.grad_norm < 1e3,
                  "rate %g, norm %g", info.lr, info.grad_norm);
    }
    pl_run_free(run);
}

typedef enum amount { KEEP_ALL, LESS, LEAST } amount;

/* Losses of the first steps: with the keep-all plan, with three quarters of its arena, or with
 * the smallest arena that every program allows. */
static pl_status losses_of(const char *preset, const char *const *more, int n, amount room,
                           double *loss, int steps)
{
    pl_run *run;
    pl_step_info info;
    PL_TRY(pl_run_open(preset, more, n, &run));
    pl_status rc = pl_run_build(run);
    bool again = false; /* for one program at least; the peak of another may be its weights */
    for (int i = 0; rc == PL_OK && room != KEEP_ALL && i < run->build->now->n_step_programs; i++) {
        uint64_t bytes =
            pl_program_plan(run->build->now->step_programs[i].run)->arena_bytes * 3 / 4;
        if (room == LEAST)
            rc = pl_program_minimum(run->build->now->step_programs[i].run, 0, &bytes);
        if (rc == PL_OK) rc = pl_program_set_budget(run->build->now->step_programs[i].run, bytes);
        again |= rc == PL_OK &&
                 pl_program_plan(run->build->now->step_programs[i].run)->recompute_ratio > 0;
    }
    if (rc == PL_OK && room != KEEP_ALL && !again)
        rc = pl__fail(PL_ERR_PLAN, __FILE__, __LINE__, "nothing is recomputed");
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < steps; i++) {
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    pl_run_free(run);
    return rc;
}

TEST(fluxflow_in_least_memory_has_the_same_bits)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const large[] = {"image=64", "batch=1"}; /* the weights are not the peak */
    double all[3], least[3];
    CHECK_OK(losses_of("fluxflow/tiny", large, 2, KEEP_ALL, all, 3));
    CHECK_OK(losses_of("fluxflow/tiny", large, 2, LEAST, least, 3));
    CHECK(memcmp(all, least, sizeof all) == 0);
}

/* The discriminator sees the reconstruction itself instead of a second decode: the same numbers,
 * with less memory and time. */
TEST(fluxflow_decoding_once_gives_the_losses_of_twice_in_less_memory)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const ways[] = {"gan.decode=once", "gan.decode=twice"};
    double loss[2][4];
    uint64_t alive[2];
    for (int i = 0; i < 2; i++) {
        pl_run *run;
        CHECK_OK(losses_of("fluxflow/tiny", &ways[i], 1, KEEP_ALL, loss[i], 4));
        CHECK_OK(pl_run_open("fluxflow/tiny", &ways[i], 1, &run));
        CHECK_OK(pl_run_build(run));
        /* packing may cost a few bytes in a small arena */
        alive[i] = pl_program_plan(pl_run_train_program(run))->live_bound_bytes;
        pl_run_free(run);
    }

    CHECK(memcmp(loss[0], loss[1], sizeof loss[0]) == 0);
    CHECK_MSG(alive[0] < alive[1], "%llu and %llu bytes", (unsigned long long)alive[0],
              (unsigned long long)alive[1]);
}

TEST(fluxflow_flow_has_the_same_bits_in_less_memory)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const large[] = {"image=64", "batch=2", "flow.layers=4"};
    double all[3], least[3];
    CHECK_OK(losses_of("fluxflow/flow-tiny", large, 3, KEEP_ALL, all, 3));
    CHECK_OK(losses_of("fluxflow/flow-tiny", large, 3, LESS, least, 3));
    CHECK(memcmp(all, least, sizeof all) == 0);
}

/* The peak memory of a run of this many steps, with all programs of a step and an evaluation. */
static long long peak_of(const char *config, int steps)
{
    cli_result r =
        cli_run("$P train %s train.steps=%d data.samples=64 eval.batches=1 --json", config, steps);
    const char *at = r.code == 0 ? strstr(r.out, "\"peak_used_bytes\"") : NULL;
    return at ? atoll(at + strlen("\"peak_used_bytes\":")) : -1;
}

/* A run of 1,000 steps has the same peak as a run of 20. */
TEST(fluxflow_memory_does_not_grow_over_1000_steps)
{
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory grows");
    static const char *const configs[] = {
        "fluxflow/tiny model.scales=1 gan.depth=1 batch=1 'lpips.widths=[4, 4, 4, 4, 4]'",
        "fluxflow/flow-tiny"};
    for (int i = 0; i < 2; i++) {
        long long few = peak_of(configs[i], 20), many = peak_of(configs[i], 1000);
        printf("    %s: %lld bytes after 20 steps, %lld after 1000\n", configs[i], few, many);
        CHECK(few > 0 && many > 0 && llabs(many - few) <= 1 << 20);
    }
}

/* Loss of an evaluation before and after this many steps, on one thread. */
static pl_status learn(const char *preset, const char *const *more, int n, int steps, int use,
                       double *before, double *after)
{
    pl_run *run;
    pl_step_info info;
    pl_eval_info first, last;
    int threads = pl_threads();
    PL_TRY(pl_run_open(preset, more, n, &run));
    pl_threads_set(use);
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_eval(run, &first);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = pl_run_step(run, &info);
    if (rc == PL_OK) rc = pl_run_eval(run, &last);
    pl_threads_set(threads);
    if (rc == PL_OK) {
        *before = first.value[0];
        *after = last.value[0];
        printf("    %s: loss %.4f to %.4f in %d steps, %d threads\n", preset, *before, *after,
               steps, use);
    }
    pl_run_free(run);
    return rc;
}

/* What the README states, however many threads: between a network and its adversary rounding is
 * enough to end elsewhere. */
TEST(fluxflow_loss_falls)
{
    if (!pl_test_long()) SKIP("long");
    double before, after;
    for (int threads = 1; threads <= 2; threads++) {
        CHECK_OK(learn("fluxflow/tiny", NULL, 0, 200, threads, &before, &after));
        CHECK_MSG(after < before / 1.2, "%g to %g with %d threads", before, after, threads);
    }
}

TEST(fluxflow_flow_loss_falls)
{
    double before, after;
    CHECK_OK(learn("fluxflow/flow-tiny", NULL, 0, 200, 1, &before, &after));
    CHECK(after < before / 1.8);
}

/* ---- the flow stage --------------------------------------------------------------------- */
static pl_status flow_arena(const char *const *more, int n, uint64_t *bytes)
{
    pl_run *run;
    PL_TRY(pl_run_open("fluxflow/flow-tiny", more, n, &run));
    pl_status rc = pl_run_build(run);
    if (rc == PL_OK) *bytes = pl_program_plan(pl_run_train_program(run))->arena_bytes;
    pl_run_free(run);
    return rc;
}

/* No gradient flows through the compressor: however deep it is, its tensors are freed before the
 * flow's. With gradients, each of the twelve more blocks would keep some tensors. */
TEST(fluxflow_flow_keeps_nothing_of_the_compressor)
{
    static const char *const shallow[] = {"image=64", "flow.layers=6"}, *const deep[] = {
                                                                            "image=64",
                                                                            "flow.layers=6",
                                                                            "model.layers=13"};
    uint64_t few, many;
    CHECK_OK(flow_arena(shallow, 2, &few));
    CHECK_OK(flow_arena(deep, 3, &many));

    CHECK_MSG(many == few, "%llu bytes with 1 block of attention, %llu with 13",
              (unsigned long long)few, (unsigned long long)many);
}

/* One step changes no weight of the compressor and changes the weights of the flow. */
TEST(fluxflow_flow_does_not_train_the_compressor)
{
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/flow-tiny", NULL, 0, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    const pl_store *store = pl_run_store(run);
    for (int i = 0; i < pl_store_count(store); i++) {
        const pl_slot *s = pl_store_slot(store, i);
        if (s->kind == PL_SLOT_OPTIMIZER)
            CHECK_MSG(strstr(s->name, "flow_processor."), "%s", s->name);
    }
    int slot = pl_store_find(store, "compressor.stages.0.0.weight");
    int moved = pl_store_find(store, "flow_processor.transformer_blocks.1.p3.2.0.weight");
    float before[2][8], after[2][8];
    CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, before[0], sizeof before[0]));
    CHECK_OK(pl_session_read_slot(pl_run_session(run), moved, 0, before[1], sizeof before[1]));
    CHECK_OK(pl_run_step(run, &info));
    CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, after[0], sizeof after[0]));
    CHECK_OK(pl_session_read_slot(pl_run_session(run), moved, 0, after[1], sizeof after[1]));

    CHECK(memcmp(before[0], after[0], sizeof before[0]) == 0);
    CHECK(memcmp(before[1], after[1], sizeof before[1]) != 0);
    pl_run_free(run);
}

/* ---- PyTorch ---------------------------------------------------------------------------- */
/* Writes the PyTorch program's dump into the folder `to` of the test's folder. */
static pl_status dump(const char *python, const char *workload, int seed, const char *to,
                      const char *more)
{
    char command[2048];
    snprintf(command, sizeof command,
             "cd bench/peers && %s bench.py --workload %s --scale tiny --device cpu --seed %d "
             "--dump %s/%s %s > %s/peer.log 2>&1",
             python, workload, seed, pl_test_dir(), to, more, pl_test_dir());
    return system(command) == 0 ? PL_OK : PL_ERR_FILE;
}

static pl_status replay(const char *python, const char *workload, int seed, pl_replay_report *r)
{
    char dir[768];
    pl_replay_opts o = {0};
    PL_TRY(dump(python, workload, seed, "single", ""));
    snprintf(dir, sizeof dir, "%s/single/%s", pl_test_dir(), workload);
    return pl_replay(dir, &o, r);
}

static void check_agreement(const pl_replay_report *r)
{
    CHECK_MSG(r->agree, "losses %.1e (%s), gradients %.1e (%s), final %.1e (%s)", r->worst_loss,
              r->worst_loss_name, r->worst_grad, r->worst_grad_name, r->worst_final,
              r->worst_final_name);
}

TEST(fluxflow_flow_replays_the_peer)
{
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torch");
    for (int seed = 0; seed < 2; seed++) {
        pl_replay_report r;
        CHECK_OK(replay(python, "fluxflow-flow", seed, &r));
        check_agreement(&r);
        CHECK_INT(r.losses, 10);
        CHECK_INT(r.gradients, 134);
    }
}

/* Both programs in f64, from the same weights, on the same random draws: the remaining
 * difference in f32 (README.md) is rounding. The learning rate is exact in f32, because it is
 * f32 here. */
TEST(fluxflow_replays_the_peer_in_f64)
{
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torch");
    static const char small[] = "--set image=16 --set lr=0.0001220703125";
    static const char *const workloads[] = {"fluxflow-vae+gan+lpips", "fluxflow-flow"};
    for (int i = 0; i < 2; i++) {
        char dir[1024], more[1024];
        pl_replay_opts o = {.loss_tol = 1e-9, .grad_tol = 1e-9, .final_tol = 1e-9};
        pl_replay_report r;
        snprintf(more, sizeof more, "%s --double-of %s/single", small, pl_test_dir());
        CHECK_OK(dump(python, workloads[i], 2, "single", small));
        CHECK_OK(dump(python, workloads[i], 2, "double", more));
        snprintf(dir, sizeof dir, "%s/double/%s", pl_test_dir(), workloads[i]);
        CHECK_OK(pl_replay(dir, &o, &r));
        check_agreement(&r);
    }
}

TEST(fluxflow_replays_the_peer)
{
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torch");
    pl_replay_report r;
    CHECK_OK(replay(python, "fluxflow-vae+gan+lpips", 1, &r));
    check_agreement(&r);
    CHECK_INT(r.losses, 35);
    CHECK_INT(r.gradients, 98);
}
