/* test_fluxflow.c - the fluxflow recipe: its size, its step, what it learns, its PyTorch peer. */
#include "base/err.h"
#include "base/pool.h"
#include "base/sys.h"
#include "plimsoll_train.h"
#include "rt/refit.h"
#include "test.h"
#include "train/train_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORACLE "/opt/oracle/bin/python3"

static int programs_named(const pl_run *run, const char *name)
{
    int n = 0;
    for (int i = 0; i < run->n_turns; i++)
        n += run->turn[i].name && strcmp(run->turn[i].name, name) == 0;
    return n;
}

/* Nothing is planned: the recipe is built to be counted. */
TEST(fluxflow_parameters)
{
    static const struct {
        const char *slots;
        int64_t n;
    } want[] = {{"compressor.*", 12580553},
                {"expander.*", 94073551},
                {"disc.*", 45105473},
                {"lpips.*", 14714688 + 1472}};
    pl_run *run;
    CHECK_OK(pl_run_open("fluxflow/full", NULL, 0, &run));
    pl_builder b = {.config = pl_run_config(run), .batch = 2, .parts = 1, .probe = true,
                    .store = pl_run_store(run)};
    CHECK_OK(pl__builder_run(&b, pl_run_recipe(run)));
    for (int i = 0; i < 4; i++)
        CHECK_INT(pl_nn_count(b.store, want[i].slots, false), want[i].n);
    CHECK_INT(pl_nn_count(b.store, "lpips.*", true), 0);
    CHECK_INT(b.n_turns, 3);
    pl__builder_release(&b);
    pl_run_free(run);
}

/* The arena is the largest program's; the penalty has its turn; terms have their names. */
TEST(fluxflow_step)
{
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("fluxflow/tiny", NULL, 0, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_INT(programs_named(run, "disc") + programs_named(run, "disc_r1"), 2);
    uint64_t most = 0;
    for (int i = 0; i < run->n_turns; i++) {
        uint64_t bytes = pl_program_plan(run->turn[i].run)->arena_bytes;
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

TEST(fluxflow_refuses)
{
    static const char *const split[] = {"accumulate=2"}, *const odd[] = {"image=18"};
    pl_run *run;
    CHECK_OK(pl_run_open("fluxflow/tiny", split, 1, &run));
    CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "couple"), "%s", pl_error_text());
    pl_run_free(run);
    CHECK_OK(pl_run_open("fluxflow/tiny", odd, 1, &run));
    CHECK_INT(pl_run_build(run), PL_ERR_CONFIG);
    CHECK_MSG(strstr(pl_error_text(), "multiple of 4"), "%s", pl_error_text());
    pl_run_free(run);
}

static pl_status losses_of(bool least, double *loss, int steps)
{
    static const char *const large[] = {"image=64", "batch=1"}; /* the weights are not the peak */
    pl_run *run;
    pl_step_info info;
    PL_TRY(pl_run_open("fluxflow/tiny", large, 2, &run));
    pl_status rc = pl_run_build(run);
    for (int i = 0; rc == PL_OK && least && i < run->n_turns; i++) {
        uint64_t bytes;
        rc = pl_program_find_minimum(run->turn[i].run, &bytes);
        if (rc == PL_OK) rc = pl_program_refit(run->turn[i].run, bytes);
    }
    if (rc == PL_OK && least && pl_program_plan(run->train)->recompute_ratio == 0) rc = PL_ERR_PLAN;
    if (rc == PL_OK) rc = pl_run_start(run);
    for (int i = 0; rc == PL_OK && i < steps; i++) {
        rc = pl_run_step(run, &info);
        loss[i] = info.loss;
    }
    pl_run_free(run);
    return rc;
}

TEST(fluxflow_in_least_memory)
{
    if (!pl_test_long()) SKIP("long");
    double all[3], least[3];
    CHECK_OK(losses_of(false, all, 3));
    CHECK_OK(losses_of(true, least, 3));
    CHECK(memcmp(all, least, sizeof all) == 0);
}

/* What the README states. */
TEST(fluxflow_learns)
{
    if (!pl_test_long()) SKIP("long");
    pl_run *run;
    pl_step_info info;
    pl_eval_info before, after;
    int threads = pl_threads();
    pl_pool_set_threads(1);
    CHECK_OK(pl_run_open("fluxflow/tiny", NULL, 0, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_eval(run, &before));
    for (int i = 0; i < 200; i++) CHECK_OK(pl_run_step(run, &info));
    CHECK_OK(pl_run_eval(run, &after));
    pl_run_free(run);
    pl_pool_set_threads(threads);
    printf("    reconstruction loss %.4f to %.4f\n", before.value[0], after.value[0]);
    CHECK(after.value[0] < before.value[0] / 1.25);
}

TEST(fluxflow_replays_the_peer)
{
    if (!pl_test_long()) SKIP("long");
    if (access(ORACLE, X_OK) != 0) SKIP("no PyTorch here");
    char command[1024], dir[768];
    snprintf(command, sizeof command,
             "cd bench/peers && " ORACLE " bench.py --workload fluxflow-vae+gan+lpips --scale tiny "
             "--device cpu --seed 1 --dump %s > %s/peer.log 2>&1", pl_test_dir(), pl_test_dir());
    CHECK_INT(system(command), 0);
    snprintf(dir, sizeof dir, "%s/fluxflow-vae+gan+lpips", pl_test_dir());
    pl_replay_opts o = {0};
    pl_replay_report r;
    CHECK_OK(pl_replay(dir, &o, &r));
    CHECK_MSG(r.agree, "losses %.1e (%s), gradients %.1e (%s), final %.1e (%s)", r.worst_loss,
              r.worst_loss_name, r.worst_grad, r.worst_grad_name, r.worst_final,
              r.worst_final_name);
    CHECK_INT(r.losses, 35);
    CHECK_INT(r.gradients, 98);
}
