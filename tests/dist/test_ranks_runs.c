/* test_ranks_runs.c - whole runs of MPI ranks against one process: losses, budgets, phases,
 * files, and ranks that differ. Skipped without mpirun. */
#include "io/safetensors.h"
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN  "cd $D || exit 99; "
#define ALL "data.workers=0 eval.every=0 threads=1 "

enum { STEPS = 50 };

static const char *const shards[] = {"none", "optimizer", "gradients", "weights"};

/* Runs it and reads its losses; false, with a message, unless it succeeds with `steps` losses. */
static bool losses_of(const char *config, int ranks, const char *shard, int steps, double *loss)
{
    cli_result r = cli_run(IN "$P train %s train.steps=%d shard=%s %s%d --json", config, steps,
                           shard, ranks > 1 ? "--ranks " : "ranks=", ranks);
    int n = ranks_losses(r.out, loss, STEPS);
    if (r.code != 0 || n != steps)
        pl_test_fail(__FILE__, __LINE__, "%s, %d ranks, %s: exit %d, %d steps: %s", config, ranks,
                     shard, r.code, n, r.err);
    return r.code == 0 && n == steps;
}

static double furthest(const double *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs(a[i] - b[i]) / fabs(a[i]));
    return most;
}

static void check_world(const char *config, int steps, const double *one, int ranks,
                        const char *shard)
{
    double a[STEPS], b[STEPS];
    if (!losses_of(config, ranks, shard, steps, a) || !losses_of(config, ranks, shard, steps, b))
        return;
    CHECK_MSG(furthest(one, a, steps) <= 1e-6, "%s, %d ranks, %s: %g", config, ranks, shard,
              furthest(one, a, steps));
    CHECK_MSG(memcmp(a, b, (size_t)steps * sizeof *a) == 0, "%s, %d ranks, %s: two runs differ",
              config, ranks, shard);
}

/* A network without BatchNorm, at its preset's own rate, and one with synchronised BatchNorm;
 * twice each. */
TEST(ranks_runs_have_the_losses_of_one_rank)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const configs[] = {
        "wandistill/tiny batch=8 " ALL,
        "cloud/tiny batch=32 sync_batch_norm=true loss.mining_fraction=0 optim.lr=1e-5 optim.eps=1e-4 " ALL,
    };
    double one[STEPS];
    WANT_RANKS();
    int steps = pl_test_long() ? STEPS : 5;
    for (int c = 0; c < 2; c++) {
        if (!losses_of(configs[c], 1, "none", steps, one)) return;
        for (int ranks = 2; ranks <= 4; ranks += 2)
            for (int s = 0; s < 4; s++)
                if (pl_test_long() || (s == 3 && ranks == 2))
                    check_world(configs[c], steps, one, ranks, shards[s]);
    }
}

/* Exchanges that overlap with kernels give the same bits as exchanges that do not. */
TEST(ranks_runs_overlap_without_changing_a_bit)
{
    double beside[STEPS], in_place[STEPS];
    WANT_RANKS();
    CHECK(
        losses_of("wandistill/tiny batch=8 gradient_bucket=16KiB " ALL, 2, "gradients", 5, beside));

    setenv("PLIMSOLL_OVERLAP", "0", 1);
    CHECK(losses_of("wandistill/tiny batch=8 gradient_bucket=16KiB " ALL, 2, "gradients", 5,
                    in_place));

    unsetenv("PLIMSOLL_OVERLAP");
    CHECK(memcmp(beside, in_place, 5 * sizeof *beside) == 0);
}

/* ---- memory ----------------------------------------------------------------------------- */
/* --memory is the budget of each rank; planned and allocated bytes are equal. */
static void check_peaks(const char *config, const char *shard, int ranks, double budget)
{
    cli_result r = cli_run(
        IN "$P train %s shard=%s train.steps=4 --ranks %d --memory %.0f --out m-%s --fresh --json",
        config, shard, ranks, budget, shard);
    CHECK_MSG(r.code == 0, "%s: exit %d: %s", shard, r.code, r.err);
    if (r.code != 0) return;
    const char *step = strstr(r.out, "\"event\":\"step\""),
               *list = strstr(r.out, "\"rank_peak_bytes\":[");
    CHECK_MSG(step && list, "%s", r.out);
    CHECK_INT((uint64_t)ranks_number(r.out, "arena_bytes"),
              (uint64_t)ranks_number(step, "arena_bytes"));
    list += strlen("\"rank_peak_bytes\":[");
    for (int i = 0; i < ranks; i++, list += strcspn(list, ",]") + 1) {
        double peak = atof(list);
        CHECK_MSG(peak > 0x1p20 && peak <= budget, "%s: rank %d had %.0f bytes of %.0f", shard, i,
                  peak, budget);
    }
}

TEST(ranks_runs_keep_every_rank_to_its_budget)
{
    WANT_RANKS();
    for (int s = 0; s < 4; s++) {
        if (s < 3 && !pl_test_long()) continue;
        cli_result r =
            cli_run("$P plan wandistill/tiny batch=16 " ALL "ranks=2 shard=%s --json", shards[s]);
        double least = ranks_number(r.out, "minimum_bytes");
        CHECK_MSG(least > 0, "%s", r.err);
        /* MPI makes a rank's process larger than the process that plans. */
        check_peaks("wandistill/tiny batch=16 " ALL, shards[s], 2, least + 0x1p20 * 48);
    }
}

/* Largest difference of two tensors; for whole numbers 0 or infinity. */
static double apart(const pl_st_tensor *t, const void *a, const void *b, size_t bytes)
{
    const float *x = a, *y = b;
    double most = 0;
    if (memcmp(a, b, bytes) == 0 || t->type.dtype != PL_F32)
        return memcmp(a, b, bytes) ? HUGE_VAL : 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        most = fmax(most, fabs((double)x[i] - (double)y[i]));
    return most;
}

/* All tensors with this prefix (there are many) equal those of another file, up to this
 * difference. */
static void check_tensors(const char *a, const char *b, const char *prefix, double most)
{
    static float x[1 << 20], y[1 << 20];
    char path[4096];
    pl_st_reader *f = NULL, *g = NULL;
    int seen = 0;
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), a);
    CHECK_OK(pl_st_open(path, &f));
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), b);
    CHECK_OK(pl_st_open(path, &g));
    CHECK_INT(pl_st_count(f), pl_st_count(g));
    for (int i = 0; i < pl_st_count(f); i++) {
        const pl_st_tensor *t = pl_st_at(f, i), *u = pl_st_find(g, t->name);
        size_t bytes = (size_t)(t->end - t->begin);
        if (strncmp(t->name, prefix, strlen(prefix)) != 0) continue;
        CHECK_MSG(u && u->end - u->begin == bytes && bytes <= sizeof x, "%s", t->name);
        CHECK_OK(pl_st_read_range(f, t, 0, bytes, x));
        CHECK_OK(pl_st_read_range(g, u, 0, bytes, y));
        CHECK_MSG(apart(t, x, y, bytes) <= most, "%s: %g apart", t->name, apart(t, x, y, bytes));
        seen++;
    }
    CHECK(seen > 20);
    pl_st_close(f);
    pl_st_close(g);
}

/* A model that is larger than a rank's memory is written to its file: it passes through rank 0. */
TEST(ranks_runs_write_models_larger_than_a_ranks_budget)
{
    if (!pl_test_long()) SKIP("long");
    static const char config[] =
        "wandistill/tiny batch=4 teacher.dim=384 teacher.ffn=1536 teacher.layers=12 " ALL;
    WANT_RANKS();
    cli_result r = cli_run("$P plan %s ranks=4 shard=weights --json", config);
    double budget = ranks_number(r.out, "total_bytes") + 0x1p20 * 10;
    check_peaks(config, "weights", 4, budget);
    r = cli_run(IN "stat -c %%s m-weights/model.safetensors");

    CHECK_MSG(atof(r.out) > 1.2 * budget, "a model of %s bytes, a budget of %.0f", r.out, budget);
    CHECK_INT(cli_run(IN "$P train %s train.steps=1 --out whole --quiet", config).code, 0);
    check_tensors("whole/model.safetensors", "m-weights/model.safetensors", "teacher.", 0);
}

/* Sharded averages pass through rank 0 as well: they equal one rank's, except for rounding. */
TEST(ranks_runs_write_the_averages_of_one_rank)
{
    if (!pl_test_long()) SKIP("long");
    static const char config[] =
        "wandistill/tiny batch=4 ema.decay=0.5 train.steps=3 optim.name=sgd optim.lr=0.01 " ALL;
    WANT_RANKS();

    CHECK_RUN(cli_run(IN "$P train %s --out one --quiet", config), 0, "");
    CHECK(!cli_same("one/model.safetensors", "one/model_ema.safetensors"));

    for (int s = 1; s < 4; s += 2) {
        CHECK_RUN(cli_run(IN "$P train %s shard=%s --ranks 2 --out %s --quiet", config, shards[s],
                          shards[s]),
                  0, "");
        char file[64];
        snprintf(file, sizeof file, "%s/model_ema.safetensors", shards[s]);
        check_tensors("one/model_ema.safetensors", file, "", 1e-6);
    }
}

/* ---- phases ----------------------------------------------------------------------------- */
static const char phases[] =
    "recipe: wandistill\n"
    "extends: wandistill/tiny\n"
    "batch: 4\n"
    "threads: 1\n"
    "data: {workers: 0}\n"
    "checkpoint: {every: 2, keep: 100}\n"
    "phases:\n"
    "  - {name: a, until: {steps: 5}, set: {eval.every: 2}}\n"
    "  - {name: b, until: {steps: 6}, state: all, set: {optim.lr: 1e-3, eval.every: 0}}\n"
    "  - {name: c, start: a, folds: 2, until: {steps: 3}, set: {eval.every: 0}}\n";

static int steps_of(const char *run, double *loss)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/log.jsonl", pl_test_dir(), run);
    return ranks_losses(cli_read(path), loss, STEPS);
}

/* Every sharding through all phases, also with optimizer state passed on; then resumed from the
 * middle of the second phase with another number of ranks, and with the same number, which gives
 * the same bits. */
TEST(ranks_runs_go_through_phases)
{
    if (!pl_test_long()) SKIP("long");
    static char path[4096];
    static double one[STEPS], many[STEPS];
    enum { ALL_STEPS = 5 + 6 + 2 * 3 };
    WANT_RANKS();

    snprintf(path, sizeof path, "%s/p.yaml", pl_test_dir());
    CHECK(cli_write(path, phases));
    CHECK_RUN(cli_run(IN "$P train p.yaml --out one --quiet"), 0, "");
    CHECK_INT(steps_of("one", one), ALL_STEPS);

    for (int s = pl_test_long() ? 0 : 3; s < 4; s++) {
        CHECK_RUN(
            cli_run(IN "$P train p.yaml shard=%s --ranks 2 --out %s --quiet", shards[s], shards[s]),
            0, "");
        CHECK_INT(steps_of(shards[s], many), ALL_STEPS);
        CHECK_MSG(furthest(one, many, ALL_STEPS) <= 1e-6, "%s: %g", shards[s],
                  furthest(one, many, ALL_STEPS));
    }
    /* Step 9 of the run, 4 of phase b. */
    CHECK_INT(
        cli_run(
            IN
            "cp -r weights cut && rm -r cut/model.safetensors cut/phases/b cut/phases/c-* && "
            "cd cut/checkpoints && ls | awk '$0 > \"step-00000009\"' | xargs rm -r && cp -r ../../cut ../../alone")
            .code,
        0);
    CHECK_INT(cli_run(IN "ls cut/checkpoints/step-00000009/manifest.json").code, 0);
    CHECK_RUN(cli_run(IN "$P train p.yaml shard=weights --ranks 2 --out cut --quiet"), 0, "");
    CHECK(cli_same("weights/model.safetensors", "cut/model.safetensors"));
    CHECK(cli_same("weights/phases/c-1/model.safetensors", "cut/phases/c-1/model.safetensors"));
    CHECK_RUN(cli_run(IN "$P train p.yaml --out alone --quiet"), 0, "");
    CHECK_INT(steps_of("alone", many), ALL_STEPS);
    CHECK_MSG(furthest(one, many, ALL_STEPS) <= 1e-6, "from two ranks to one: %g",
              furthest(one, many, ALL_STEPS));
}

/* ---- ranks that are not alike ----------------------------------------------------------- */
#define MPI "mpirun --oversubscribe --allow-run-as-root -n 1 "
#define RUN "train wandistill/tiny batch=4 train.steps=3 --quiet " ALL

/* Rank 1 is started with other settings: the run stops before its first step and names the
 * difference. */
static void check_named(const char *second, const char *what)
{
    cli_result r = cli_run(IN MPI "$P " RUN ": -n 1 %s", second);
    CHECK_MSG(r.code == 2 && strstr(r.err, "rank 1 on ") && strstr(r.err, what), "%s: exit %d: %s",
              what, r.code, r.err);
}

TEST(ranks_runs_name_a_rank_that_differs)
{
    WANT_RANKS();

    if (cli_run(MPI "true : -n 1 true").code != 0)
        SKIP("mpirun cannot start two programs"); /* Open MPI 5.0.7 of Debian 13 crashes */
    check_named("$P " RUN "optim.lr=1e-4", "has a different configuration from rank 0");
    CHECK_INT(
        cli_run(
            IN
            "mkdir -p other && cp $P other/plimsoll && cp $(dirname $P)/libplimsoll_mpi.so other && "
            "printf x >> other/plimsoll")
            .code,
        0);

    check_named("other/plimsoll " RUN, "has a different program from rank 0");
    /* The same configuration text, with a path whose file has another content on rank 1. */
    CHECK_INT(
        cli_run(
            IN
            "mkdir here && cd here && $P generate wandistill/tiny --out set --samples 8 --quiet && cd .. && "
            "cp -r here there && printf aaaa | dd of=there/set/train/text.npy bs=1 seek=128 conv=notrunc")
            .code,
        0);

    cli_result r =
        cli_run(IN MPI "-wdir here $P " RUN
                       "data.path=set allow_random_frozen=true : -n 1 -wdir there $P " RUN
                       "data.path=set allow_random_frozen=true");
    CHECK_MSG(r.code == 2 && strstr(r.err, "rank 1 on ") &&
                  strstr(r.err, "has a different data set from rank 0"),
              "exit %d: %s", r.code, r.err);

    r = cli_run(IN MPI "-wdir here $P " RUN
                       "data.path=set allow_random_frozen=true : -n 1 -wdir here $P " RUN
                       "data.path=set allow_random_frozen=true");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);
}
