/* test_cli_levels.c - runs whose tensors live below the device, through the program: the same
 * weights, figures of the plan, lanes of the timeline, and refusals of host memory. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

/* State of 22 MB in layers of 1 MB. "apart" has memory of its own, as a GPU has. */
#define NET                                                                                        \
 "regress/tiny batch=4 'model.widths=[512,512,512,512,512,512,512,512]' data.samples=16 "          \
 "data.eval_samples=4 eval.batches=1 threads=1 log.tensorboard=false train.steps=3 "
#define WIDE  "segment/tiny device=h200 model.width=128 --host-memory 4GB --memory "
#define APART NET "device=apart --memory 16MB "

TEST(cli_levels_host_memory_does_not_change_weights)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && $P train " NET "device=apart --quiet --out a && $P train " APART
                      "--host-memory 300MB --quiet --out b && cmp a/model.safetensors "
                      "b/model.safetensors",
                      d),
              0, "");
    /* with two micro-batches the accumulators move, too */
    CHECK_RUN(cli_run("cd %s && $P train " NET "accumulate=2 device=apart --quiet --out c && $P "
                      "train " NET "accumulate=2 device=apart --memory 22MB --host-memory 300MB "
                      "--quiet --out e && cmp c/model.safetensors e/model.safetensors",
                      d),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P train " APART "--quiet --out f", d), 3, "does not fit 16.0 MB");
}

TEST(cli_levels_plan_shows_levels_and_lanes)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r = cli_run("cd %s && $P plan " APART "--host-memory 300MB --json", d);
    CHECK_INT(r.code, 0);
    static const char *const members[] = {
        "\"host_bytes\":", "\"host_budget_bytes\":300000000",
        "\"host_overhead_bytes\":", "\"moved_bytes_per_step\":", "\"wait_ms\":"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        CHECK_MSG(strstr(r.out, members[i]), "no %s", members[i]);
    CHECK_RUN(cli_run("cd %s && $P plan " APART "--host-memory 300MB --timeline t.svg && grep -q "
                      "'>to host<' t.svg && grep -q '>from host<' t.svg && grep -q "
                      "'class=\"move\"' t.svg",
                      d),
              0, "");
}

/* What the host holds counts in the column of the keep-all plan. */
TEST(cli_levels_keep_all_column_has_all_weights)
{
    WANT_BIN();
    CHECK_RUN(cli_run("cd %s && all() { awk '$1 == \"process\" {print $2, $3}'; } && "
                      "a=$($P plan " NET "device=apart --memory 900MB | all) && "
                      "b=$($P plan " APART "--host-memory 300MB | all) && echo \"$a, $b\" >&2 && "
                      "[ \"$a\" = \"$b\" ]",
                      pl_test_dir()),
              0, " MB, ");
}

/* plan.json of a run has the levels, and its report a lane for each channel that is used. */
TEST(cli_levels_report_has_a_lane_for_each_channel)
{
    WANT_BIN();
    CHECK_RUN(cli_run("cd %s && $P train " APART "--host-memory 300MB --quiet --out r && grep -q "
                      "'\"moved_bytes_per_step\":[1-9]' r/plan.json && $P report r --out r.md "
                      "&& grep -q '^| to host | .* | `#' r.md && grep -q '^| from host | .* | `#' "
                      "r.md && ! grep -q '^| to disk' r.md && $P report r --out r.html && grep -q "
                      "'\"lanes\":.*,0,\\[\\[[0-9].*,1,\\[\\[[0-9]' r.html",
                      pl_test_dir()),
              0, "");
    /* bench has plan's names for levels */
    CHECK_RUN(cli_run("cd %s && $P bench " APART "host_memory=300MB --json --steps 1 --warmup 1 "
                      "| grep -q '\"host_bytes\":[1-9].*\"moved_bytes_per_step\":[1-9].*"
                      "\"wait_ms\":'",
                      pl_test_dir()),
              0, "");
}

/* Layers of 67 MB whose moves take longer than their kernels: a step takes little longer than one
 * direction of the link. */
TEST(cli_levels_moves_keep_the_link_busy)
{
    WANT_BIN();
    static const struct {
        const char *memory;
        double most;
    } cases[] = {{"1.5GB", 1.35}, {"1.7GB", 1.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_result r = cli_run("cd %s && $P plan regress/tiny batch=256 "
                               "'model.widths=[4096,4096,4096,4096,4096,4096,4096,4096]' "
                               "device=h200 --memory %s --host-memory 20GB --json",
                               pl_test_dir(), cases[i].memory);
        CHECK_INT(r.code, 0);
        const char *ms = strstr(r.out, "\"predicted_step_ms\":");
        const char *moved = strstr(r.out, "\"moved_bytes_per_step\":");
        CHECK(ms && moved);
        if (!ms || !moved) return;
        double link_ms = strtod(strchr(moved, ':') + 1, NULL) / 2 / 49e6;
        double ratio = strtod(strchr(ms, ':') + 1, NULL) / link_ms;
        CHECK_MSG(ratio < cases[i].most, "%s: %.2f times the link", cases[i].memory, ratio);
    }
}

/* Returns the predicted time of a step; 0: the plan failed. */
static double planned_ms(const char *config, int64_t memory, const char *host)
{
    cli_result r = cli_run("cd %s && $P plan %s device=h200 --memory %lld %s --json", pl_test_dir(),
                           config, (long long)memory, host);
    const char *ms = strstr(r.out, "\"predicted_step_ms\":");
    return r.code == 0 && ms ? strtod(strchr(ms, ':') + 1, NULL) : 0;
}

/* Where plans recompute, host memory helps or changes nothing: a part of what does not fit is
 * recomputed, the rest moves. */
TEST(cli_levels_moves_and_recompute_are_mixed)
{
    WANT_BIN();
    static const struct {
        int64_t memory;
        double most; /* time with host memory, compared with recompute alone */
    } cases[] = {{3120000000, 1}, {4290000000, 0.97}, {6500000000, 0.9905}, {8000000000, 0.998}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double alone = planned_ms("cloud/full", cases[i].memory, "");
        double mixed = planned_ms("cloud/full", cases[i].memory, "--host-memory 64GB");
        CHECK_MSG(mixed > 0 && mixed <= alone * (cases[i].most + 1e-9),
                  "%lld: %g ms, %g ms without moves", (long long)cases[i].memory, mixed, alone);
    }
}

/* Moving weights would be slower than recompute: they stay, and activations move. */
TEST(cli_levels_state_moves_only_where_that_is_faster)
{
    WANT_BIN();
    const char *net = "classify/card8 network=resnet50 batch=64 model.classes=1000 card=null";
    double alone = planned_ms(net, 1658884934, "");
    double mixed = planned_ms(net, 1658884934, "--host-memory 64GB");
    CHECK_MSG(mixed > 0 && mixed < alone, "%g ms, %g ms without moves", mixed, alone);
}

/* Half of the state of four layers lives in host memory. */
#define SMALL                                                                                      \
 "regress/tiny batch=4 'model.widths=[512,512,512,512]' data.samples=16 data.eval_samples=4 "      \
 "eval.batches=1 threads=1 log.tensorboard=false device=apart "
#define LOW "--memory 8MB --host-memory 300MB "

/* Phases with other rates and batches, and a run that is killed and resumed. */
TEST(cli_levels_phases_and_kills_do_not_change_weights)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run("cd %s && printf 'extends: regress/tiny\\nphases:\\n  - {name: one, until: "
                "{steps: 2}}\\n  - {name: two, until: {steps: 3}, set: {batch: 8, optim.lr: "
                "5e-4}}\\n' > p.yaml && set -- p.yaml 'model.widths=[512,512,512,512]' "
                "data.samples=16 data.eval_samples=4 threads=1 device=apart && $P "
                "train \"$@\" --quiet --out a && $P train \"$@\" --quiet " LOW
                "--out b && cmp a/model.safetensors b/model.safetensors && $P plan \"$@\" " LOW
                "--json | grep -q '\"moved_bytes_per_step\":[1-9]'",
                d),
        0, "");
    CHECK_RUN(cli_run("cd %s && $P train " SMALL
                      "train.steps=12 --quiet --out c && ($P train " SMALL
                      "train.steps=12 checkpoint.every=3 " LOW "--quiet --out k & p=$!; for i in "
                      "$(seq 400); do ls k/checkpoints/step-* > /dev/null 2>&1 && break; sleep "
                      "0.02; done; kill -9 $p; wait $p; true) && $P train " SMALL
                      "train.steps=12 checkpoint.every=3 " LOW
                      "--quiet --out k && cmp c/model.safetensors k/model.safetensors",
                      d),
              0, "");
}

/* The device has 5 MB, the host 12 MB for tensors: the rest of 22 MB of state is in a file, and
 * passes through the host. */
TEST(cli_levels_disk_below_the_host_does_not_change_weights)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r = cli_run("cd %s && $P plan " APART "--host-memory 300MB --disk 1GB:. --json", d);
    const char *own = strstr(r.out, "\"host_overhead_bytes\":");
    CHECK(own);
    if (!own) return;
    long host = strtol(strchr(own, ':') + 1, NULL, 10) + 12600000;
    CHECK_RUN(
        cli_run("cd %s && $P train " NET "device=apart --quiet --out a && set -- " NET
                "device=apart --memory 5MB --host-memory %ld --disk 1GB:. && $P train "
                "\"$@\" --quiet --out b && cmp a/model.safetensors b/model.safetensors && $P "
                "plan \"$@\" --json --timeline t.svg | grep -q "
                "'\"disk_bytes\":[1-9]' && grep -q '>to disk<' t.svg && grep -q '>from host<' "
                "t.svg && grep -q '>from disk<' t.svg",
                d, host),
        0, "");
    CHECK_RUN(cli_run("cd %s && $P plan " APART "--disk 1GB:.", d), 2,
              "tensors of device apart reach a disk through host memory: set host_memory");
}

/* Weights, gradients and moments live in host memory, where the update runs: the weights of "apart"
 * have the same bits, because its kernels are the host's. A killed run resumes with the same. */
TEST(cli_levels_updates_on_the_host_do_not_change_weights)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && $P train " SMALL "train.steps=4 --quiet --out a && $P train " SMALL
                      "train.steps=4 --memory 4MB --host-memory 300MB updates=host --quiet --out b "
                      "&& cmp a/model.safetensors b/model.safetensors && $P train " SMALL
                      "train.steps=4 clip.norm=0.1 accumulate=2 --quiet --out c && $P train " SMALL
                      "train.steps=4 clip.norm=0.1 accumulate=2 " LOW
                      "updates=host --quiet --out e && cmp c/model.safetensors e/model.safetensors",
                      d),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P train " SMALL "train.steps=2 " LOW
                      "updates=host --quiet --out k "
                      "&& grep -q '\"host_updates\":true' k/checkpoints/*/manifest.json && $P "
                      "train " SMALL "train.steps=4 " LOW "--quiet --out k && cmp "
                      "a/model.safetensors k/model.safetensors",
                      d),
              0, "");
}

/* updates: auto: a slow link and many cores update on the host; a quick link brings the state. */
TEST(cli_levels_updates_run_where_they_are_predicted_faster)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    static const char *const net =
        "regress/tiny batch=4 'model.widths=[4096,4096,4096,4096,4096]' device=rtx4090 --memory "
        "900MB --json --host-memory";
    CHECK_RUN(
        cli_run(
            "cd %s && $P plan %s 8GB threads=16 host_link=pcie3x8 | grep -q '\"updates\":\"host\"'",
            d, net),
        0, "");
    CHECK_RUN(
        cli_run(
            "cd %s && $P plan %s 8GB threads=1 host_link=pcie5x16 | grep -q '\"updates\":\"device\"'",
            d, net),
        0, "");
    CHECK_RUN(cli_run("cd %s && $P plan %s 8GB threads=1 host_link=pcie5x16 updates=host | grep -q "
                      "'\"updates\":\"host\"'",
                      d, net),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P plan %s 2GB updates=host", d, net), 3,
              "updates on the host need");
    CHECK_RUN(cli_run("cd %s && $P plan regress/tiny updates=host", d), 2,
              "the device computes in host memory already");
}

/* The minimum that a refusal tells trains, and 1 % less is refused. */
TEST(cli_levels_told_minimum_trains)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("cd %s && $P plan " NET "device=apart --memory 2MB --host-memory 300MB --json", d);
    CHECK_INT(r.code, 3);
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK(least);
    if (!least) return;
    long bytes = strtol(strchr(least, ':') + 1, NULL, 10);
    CHECK_RUN(cli_run("cd %s && $P train " NET "device=apart --memory %ld --host-memory 300MB "
                      "--quiet --out m",
                      d, bytes),
              0, "");
    CHECK_RUN(cli_run("cd %s && $P plan " NET "device=apart --memory %ld --host-memory 300MB", d,
                      bytes - bytes / 100),
              3, "does not fit");
}

/* A GPU that is planned for: the minimum that a refusal tells fits, and so do larger budgets, with
 * convolutions whose weights pass through host memory on their way to a file. */
TEST(cli_levels_budgets_above_the_told_minimum_fit)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    cli_result r = cli_run("cd %s && $P plan " WIDE "610000000 --json", d);
    CHECK_INT(r.code, 3);
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK(least);
    if (!least) return;
    long bytes = strtol(strchr(least, ':') + 1, NULL, 10);
    static const long more[] = {0, 38000000, 23000000};
    for (size_t i = 0; i < (pl_test_long() ? 3 : 2); i++) {
        r = cli_run("cd %s && $P plan " WIDE "%ld", d, bytes + more[i]);
        CHECK_MSG(r.code == 0, "%ld bytes are refused, although the minimum is %ld",
                  bytes + more[i], bytes);
    }
}

TEST(cli_levels_host_memory_that_is_not_there_is_refused)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && mkdir -p fs/box && echo 0::/box > self && echo 100000000 > "
                      "fs/box/memory.max && echo 60000000 > fs/box/memory.current && "
                      "PLIMSOLL_CGROUP=$PWD $P train " APART "--host-memory 300MB --quiet",
                      d),
              3, "the free memory of the container");
    CHECK_RUN(cli_run("cd %s && $P train " NET "--memory 44MB --host-memory 300MB --quiet", d), 2,
              "the level below it is a disk");
}

/* The CPU with a file, and a recipe with trade-offs: the told minimum fits, whichever level of the
 * trade-offs it is of, and so do larger budgets. */
TEST(cli_levels_told_minimum_with_tradeoffs_fits)
{
    WANT_BIN();
    if (!pl_test_long()) return;
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("cd %s && $P plan fluxflow/tiny threads=1 --memory 60MB --disk 2GB:. --json", d);
    CHECK_INT(r.code, 3);
    const char *least = strstr(r.out, "\"minimum_bytes\":");
    CHECK(least);
    if (!least) return;
    long bytes = strtol(strchr(least, ':') + 1, NULL, 10);
    for (int k = 0; k < 5; k++)
        CHECK_RUN(cli_run("cd %s && $P plan fluxflow/tiny threads=1 --memory %ld --disk 2GB:.", d,
                          bytes + bytes / 50 * k),
                  0, "");
}
