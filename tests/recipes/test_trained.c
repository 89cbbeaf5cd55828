/* test_trained.c - the recipes for people without C, trained from the command line on files, reach
 * what the same network reaches in PyTorch on the same files (tools/oracle/train_oracle.py). Long.
 * The orders of samples and all random draws differ, so the scores are compared with a margin. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct trained {
    const char *make;  /* shell command that makes the files */
    const char *train; /* arguments of plimsoll train */
    const char *oracle, *metric;
    double margin; /* allowed loss against PyTorch: absolute, or relative if `smaller` */
    bool smaller;  /* smaller is better */
    int seeds;     /* 0: one */
} trained;

/* Trains with a seed, evaluates, and adds the score. */
static void add_ours(const trained *t, int seed, double *score)
{
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && $P train %s seed=%d --out run%d --quiet", d, t->train, seed, seed),
              0, "");
    cli_result r = cli_run("cd %s && $P eval run%d eval.batches=10000 --json", d, seed);
    json_t *j = json_loads(r.out, 0, NULL);
    *score += json_number_value(json_object_get(json_object_get(j, "metrics"), t->metric));
    json_decref(j);
}

static void add_theirs(const trained *t, const char *python, const char *here, int seed,
                       double *score)
{
    cli_result r = cli_run("cd %s && %s %s/tools/oracle/train_oracle.py %s %d", pl_test_dir(),
                           python, here, t->oracle, seed);
    CHECK_MSG(r.code == 0 && strtod(r.out, NULL) > 0, "%s%s", r.out, r.err);
    *score += strtod(r.out, NULL);
}

static void compare(const trained *t)
{
    const char *d = pl_test_dir();
    char here[4096];
    WANT_BIN();
    WANT_PYTHON(python, "torchvision");
    CHECK(realpath(".", here));
    CHECK_RUN(cli_run("cd %s && %s", d, t->make), 0, "");
    double ours = 0, theirs = 0, seeds = t->seeds ? t->seeds : 1;
    for (int seed = 1; seed <= seeds; seed++) {
        add_ours(t, seed, &ours);
        add_theirs(t, python, here, seed, &theirs);
    }
    ours /= seeds;
    theirs /= seeds;
    printf("    %s: %g, PyTorch %g\n", t->metric, ours, theirs);
    if (t->smaller)
        CHECK_MSG(ours <= theirs * (1 + t->margin), "%s is %g, PyTorch's %g", t->metric, ours,
                  theirs);
    else
        CHECK_MSG(ours >= theirs - t->margin, "%s is %g, PyTorch's %g", t->metric, ours, theirs);
}

TEST(trained_classify_is_as_accurate_as_pytorch)
{
    if (!pl_test_long()) SKIP("long");
    compare(&(trained){.make = "$P generate classify/tiny --raw --out set --samples 600 "
                               "--eval-samples 180 --quiet",
                       .train = "classify/tiny data.path=set",
                       .oracle = "classify set 300",
                       .metric = "accuracy",
                       .margin = 0.08}); /* our own seeds differ by 0.06 */
}

TEST(trained_segment_is_as_accurate_as_pytorch)
{
    if (!pl_test_long()) SKIP("long");
    compare(&(trained){.make = "$P generate segment/tiny --raw --out set --samples 120 "
                               "--eval-samples 40 --quiet",
                       .train = "segment/tiny data.path=set",
                       .oracle = "segment set 200",
                       .metric = "iou",
                       .margin = 0.05});
}

TEST(trained_text_has_the_loss_of_pytorch)
{
    if (!pl_test_long()) SKIP("long");
    compare(&(trained){.make = "for i in $(seq 3000); do a=$((i * 7919 % 97)); "
                               "echo \"$a times $((i % 9)) is $((a * (i % 9))).\"; done > book.txt",
                       .train = "text/tiny data.text=book.txt",
                       .oracle = "text book.txt 600",
                       .metric = "loss",
                       .margin = 0.05,
                       .smaller = true,
                       .seeds = 3}); /* single seeds differ by 9 %, in PyTorch by 4 % */
}

TEST(trained_regress_has_the_error_of_pytorch)
{
    if (!pl_test_long()) SKIP("long");
    compare(&(trained){
        .make = "awk 'BEGIN { print \"a,b,kind,price\"; for (i = 0; i < 3000; i++) { "
                "a = (i * 37) % 101; b = (i * 53) % 89; k = i % 4; "
                "print a \",\" b \",k\" k \",\" a * b / 10 + 200 * k } }' > t.csv",
        .train = "regress/tiny data.table=t.csv 'data.targets=[price]' data.eval_share=0.1",
        .oracle = "table t.csv 400",
        .metric = "mae",
        .margin = 0.3,
        .smaller = true});
}
