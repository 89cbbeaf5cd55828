/* test_real.c - the experiments on real data (bench/real) in small, on generated pictures: the
 * commands of bench/real/run work, and training improves the score. lgt is not here: its
 * styles are pictures by name. */
#include "plimsoll_table.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Scores of the first and the last evaluation of a run below the test's folder. */
static bool scores(const char *run, const char *metric, double *first, double *last)
{
    char path[600];
    pl_table *t = NULL;
    snprintf(path, sizeof path, "%s/runs/%s/eval.csv", pl_test_dir(), run);
    if (pl_table_open(path, &t) != PL_OK) return false;
    int column = pl_table_find(t, metric);
    int64_t rows = pl_table_rows(t);
    bool ok = column >= 0 && rows > 1 && pl_table_number(t, 0, column, first) &&
              pl_table_number(t, rows - 1, column, last);
    pl_table_close(t);
    return ok;
}

/* A few steps of the autoencoder's experiment on pictures of the recipe itself. */
TEST(real_fluxflow_reconstructs_better_after_training)
{
    double before = 0, after = 0;
    WANT_BIN();
    CHECK_RUN(cli_run("$P train bench/real/fluxflow.yaml image=16 train.steps=40 eval.every=0 "
                      "eval.batches=4 schedule.warmup_steps=5 --out %s/runs/fluxflow --quiet",
                      pl_test_dir()),
              0, "");
    CHECK_MSG(scores("fluxflow", "psnr_db", &before, &after), "%s", pl_error_text());
    CHECK_MSG(after > before + 1.5, "PSNR of %g dB before, %g dB after 40 steps", before, after);
}

/* Runs bench/real/run on pictures that are there already; factor: the score changes by at least so
 * much, upwards if above 1. */
static void experiment(const char *name, const char *keys, const char *metric, double factor)
{
    const char *d = pl_test_dir();
    double before = 0, after = 0;
    WANT_BIN();
    if (cli_run("test -x \"$(dirname $P)/pl_pictures\" -a -x \"$(dirname $P)/pl_skies\"").code)
        SKIP("no pl_pictures and pl_skies here: make benches");
    CHECK_RUN(
        cli_run("$P generate fluxflow/tiny image=96 --raw --out %s/set --samples 6 "
                "--eval-samples 6 --quiet && for s in train eval; do for k in photo drawing; do "
                "mkdir -p %s/pictures/$s/$k && cp %s/set/$s/*.png %s/pictures/$s/$k; done; done; "
                "touch %s/pictures/done",
                d, d, d, d, d),
        0, "");
    CHECK_RUN(cli_run("PL_BIN=$P bench/real/run %s %s %s", name, d, keys), 0, "");
    CHECK_MSG(scores(name, metric, &before, &after), "%s", pl_error_text());
    CHECK_MSG(factor > 1 ? after > before * factor : after < before * factor,
              "%s of %g before, %g after", metric, before, after);
}

TEST(real_cloud_runs_on_pictures)
{
    if (!pl_test_long()) SKIP("long");
    experiment("cloud", "train.steps=300 eval.every=0", "mae_km", 0.7);
}

TEST(real_fluxflow_runs_on_pictures)
{
    if (!pl_test_long()) SKIP("long");
    experiment("fluxflow", "train.steps=200 eval.every=0", "psnr_db", 1.2);
}

TEST(real_stablesr_runs_on_pictures)
{
    if (!pl_test_long()) SKIP("long");
    experiment("stablesr", "train.steps=100 eval.every=0", "loss", 0.6);
}
