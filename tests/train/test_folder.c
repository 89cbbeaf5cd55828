/* test_folder.c - the folder of a run: files that a failed attempt leaves, which checkpoint is
 * the best, every row once. */
#include "tests/dist/ranks_cli.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

#define RUN "cd %s && $P train cloud/tiny "

static cli_result in_dir(const char *command)
{
    return cli_run("cd %s && %s", pl_test_dir(), command);
}

/* Files of the run that a failed attempt must not touch. */
#define SUMS                                                                                       \
 "md5sum a/config.yaml a/log.jsonl a/plan.json a/eval.csv a/model.safetensors a/model_ema.safetensors "

TEST(folder_is_unchanged_after_a_refusal)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    static const struct {
        const char *keys;
        int code;
    } rows[] = {{"ema.decay=0", 6},
                {"ema.decay=0.5 data.samples=7", 2},
                {"ema.decay=0.5 --memory 1MB", 3},
                {"ema.decay=0.5 optim.name=sgd optim.momentum=0.9", 2}};
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run(RUN "train.steps=3 ema.decay=0.5 --out a --quiet && cp -r a b && " SUMS
                          "> sums",
                      d),
              0, "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_result r = cli_run(RUN "train.steps=6 %s --out a --quiet", d, rows[i].keys);
        CHECK_MSG(r.code == rows[i].code, "%s: exit code %d: %s", rows[i].keys, r.code, r.err);
        r = in_dir("md5sum -c sums --quiet && ls a/*.tmp*");
        CHECK_MSG(r.out[0] == 0, "%s: %s", rows[i].keys, r.out);
    }
    /* Once there is a newer checkpoint these files are outdated, and are removed. */
    CHECK_RUN(
        cli_run(
            "cd %s && timeout -s KILL 60 $P train cloud/tiny train.steps=6 checkpoint.every=1 ema.decay=0.5 "
            "sample.every=0 checkpoint.best=none --out b --quiet",
            d),
        2, "the evaluation has no");

    CHECK(in_dir("ls b/model.safetensors").code != 0 &&
          in_dir("ls b/model_ema.safetensors").code != 0);
}

/* The evaluation at the end counts; an evaluation by another metric or mode does not. */
/* Folders that a command created, parents too, are removed when it fails before it writes; a folder
 * that existed stays, without the lock. */
TEST(folder_is_not_left_by_a_run_that_never_began)
{
    WANT_BIN();
    static const char *const fails[] = {
        "$P train cloud/tiny --quiet init_from=cut.pth --out new/a/b",
        "$P train cloud/tiny --quiet --memory 5MB --out new/a/b",
        "$P train cloud/tiny --quiet init_from=cut.pth --out new/a/b/",
        "$P eval fluxflow/tiny --model cut.pth --out new/a/b",
        "$P predict cloud/tiny --model cut.pth --input . --out new/a/b",
    };
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        cli_result r =
            cli_run("cd %s && rm -rf new && printf PK > cut.pth && %s", pl_test_dir(), fails[i]);
        CHECK_MSG(r.code == 6 || r.code == 3, "%s: %d %s", fails[i], r.code, r.err);
        CHECK_MSG(cli_run("cd %s && test -e new", pl_test_dir()).code != 0, "%s", fails[i]);
    }
    cli_result r =
        cli_run("cd %s && mkdir -p old && $P train cloud/tiny --quiet init_from=cut.pth "
                "--out old/x; test -d old && ! test -e old/x && "
                "{ $P train cloud/tiny --quiet init_from=cut.pth --out old; ls -A old; }",
                pl_test_dir());
    CHECK_MSG(r.code == 0 && !r.out[0], "%d %s", r.code, r.out);
    /* a file of the user stays, and so does its folder */
    r = cli_run("cd %s && touch old/note && ! $P train cloud/tiny --quiet init_from=cut.pth "
                "--out old && test -e old/note",
                pl_test_dir());
    CHECK_INT(r.code, 0);
}

TEST(folder_best_link_follows_the_metric_and_its_mode)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(RUN "train.steps=3 checkpoint.best=loss --out a --quiet && readlink a/best > link",
                d),
        0, "");
    CHECK_MSG(strstr(in_dir("cat link").out, "step-00000003"), "%s", in_dir("cat link").out);
    CHECK_RUN(
        cli_run(
            RUN
            "train.steps=3 eval.every=1 checkpoint.every=1 checkpoint.best=within_100m --out b --quiet",
            d),
        0, "");
    CHECK_RUN(
        cli_run(
            RUN
            "train.steps=4 eval.every=1 checkpoint.every=1 checkpoint.best=mean_km --out b --quiet",
            d),
        0, "");

    CHECK_MSG(strstr(in_dir("readlink b/best").out, "step-00000004"), "%s",
              in_dir("readlink b/best").out);
}

/* A run that was extended has the rows of a run that was as long from the start. */
TEST(folder_has_every_evaluation_once)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(RUN "train.steps=3 --out a --quiet", d), 0, "");
    CHECK_RUN(cli_run(RUN "train.steps=6 eval.every=3 --out a --quiet", d), 0, "");
    CHECK_MSG(strcmp(in_dir("cut -d, -f1 a/eval.csv | tr '\\n' ' '").out, "step 0 3 6 ") == 0, "%s",
              in_dir("cat a/eval.csv").out);
    CHECK_RUN(cli_run(RUN "train.steps=3 --out b --quiet", d), 0, "");
    CHECK_RUN(cli_run(RUN "train.steps=6 --out b --quiet", d), 0, "");
    CHECK_MSG(strcmp(in_dir("cut -d, -f1 b/eval.csv | tr '\\n' ' '").out, "step 0 6 ") == 0, "%s",
              in_dir("cat b/eval.csv").out);
}

/* A run that ends after it saved the best checkpoint and before it wrote the pictures writes them
 * when it resumes. */
TEST(folder_has_the_pictures_of_the_best_step_after_a_resume)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    static const char train[] =
        "$P train fluxflow/flow-tiny eval.every=4 sample.every=4 checkpoint.best=loss train.steps=8 --out a --quiet";
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && mkdir -p a/samples/00000008-made.png && %s", d, train), 1,
              "cannot write");
    CHECK_RUN(cli_run("cd %s && rmdir a/samples/00000008-made.png && %s", d, train), 0, "");
    CHECK_MSG(strstr(in_dir("readlink a/best").out, "step-00000008"),
              "the last step is not the best: nothing is shown");
    CHECK_INT(in_dir("ls a/samples/00000004-made.png a/samples/00000008-made.png").code, 0);
}

TEST(folder_is_cleared_of_leftovers)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(
            "cd %s && mkdir -p a/phases/pretrain t && touch a/plan.json.tmp-1 a/model_ema.safetensors.tmp-1-0 "
            "a/phases/pretrain/model.safetensors.tmp-1-0 && $P train cloud/phases train.steps=1 --out a --quiet && "
            "find a -name '*.tmp*' > left",
            d),
        0, "");
    CHECK_MSG(in_dir("cat left").out[0] == 0, "%s", in_dir("cat left").out);
    CHECK_RUN(
        cli_run(
            "cd %s && TMPDIR=$PWD/t $P train cloud/phases train.steps=1 ema.decay=0.9 --quiet && find t -type f > left",
            d),
        0, "");

    CHECK_MSG(in_dir("cat left").out[0] == 0, "%s", in_dir("cat left").out);
}

/* The key ranks has the effect of the option --ranks. */
TEST(folder_run_starts_the_ranks_of_its_key)
{
    WANT_RANKS();
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run(
            "cd %s && $P train wandistill/tiny batch=4 ranks=2 train.steps=1 threads=1 --out a --quiet",
            d),
        0, "");
    CHECK_INT(in_dir("ls a/model.safetensors").code, 0);
    CHECK_RUN(cli_run("$P bench wandistill/tiny batch=4 ranks=2"), 2, "one process");
}
