/* test_levels_sweep.c - budgets of the device and of the levels below it, from the smallest to
 * keep-all: the process stays within each, and every loss has the same bits. */
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, TEXT = 2048 };

#define RUN "accumulate=1 threads=1 log.tensorboard=false eval.batches=1 train.steps=2 "

static const char *const recipes[] = {
    "regress/tiny batch=4 'model.widths=[512,512,512,512,512,512]' data.samples=16 "
    "data.eval_samples=4 " RUN,
    /* long */
    "cloud/tiny batch=8 height=96 width=128 " RUN, "wandistill/tiny " RUN, "lgt/tiny " RUN,
    "fluxflow/tiny " RUN, "stablesr/tiny " RUN};
static int n_recipes(void)
{
    return pl_test_long() ? (int)(sizeof recipes / sizeof *recipes) : 1;
}

static int points(void)
{
    return pl_test_long() ? 10 : 2;
}

/* Writes the losses of a run's steps, with all digits, to text. */
static void losses_of(const char *out, char text[TEXT])
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < STEPS; i++) {
        json_t *e = cli_event(out, "step", i);
        if (!e) return;
        at += (size_t)snprintf(text + at, TEXT - at, "%.17g ",
                               json_real_value(json_object_get(e, "loss")));
        json_t *terms = json_object_get(e, "terms"), *v;
        const char *name;
        json_object_foreach(terms, name, v) if (at < TEXT - 64) at +=
            (size_t)snprintf(text + at, TEXT - at, "%.17g ", json_number_value(v));
        json_decref(e);
    }
}

static int64_t of_event(const char *out, const char *event, const char *name)
{
    json_t *e = cli_event(out, event, 0);
    int64_t v = e ? cli_member(e, name) : -1;
    json_decref(e);
    return v;
}

/* Checks the figures of a run within a budget; *moved counts runs in which tensors move. */
static void check_run(const char *what, const char *out, int64_t budget, int *moved)
{
    int64_t peak = of_event(out, "end", "peak_used_bytes");
    CHECK_MSG(peak > 0 && peak <= budget, "%s: peak %lld", what, (long long)peak);
    int64_t host = of_event(out, "plan", "host_bytes");
    int64_t own = of_event(out, "plan", "host_overhead_bytes");
    int64_t most = of_event(out, "plan", "host_budget_bytes");
    CHECK_MSG(!most || host + own <= most, "%s: %lld + %lld bytes of the host", what,
              (long long)host, (long long)own);
    CHECK(of_event(out, "plan", "disk_bytes") <= of_event(out, "plan", "disk_budget_bytes"));
    json_t *plan = cli_event(out, "plan", 0);
    *moved += json_number_value(json_object_get(plan, "moved_bytes_per_step")) > 0;
    json_decref(plan);
}

static void check_point(const char *recipe, const char *below, int64_t budget, const char *want,
                        int *moved)
{
    char text[TEXT], what[512];
    snprintf(what, sizeof what, "%s %s at %lld", recipe, below, (long long)budget);
    cli_result r = cli_run("$P train %s %s --json --memory %lld", recipe, below, (long long)budget);
    CHECK_MSG(r.code == 0, "%s: %s", what, r.err);
    losses_of(r.out, text);
    CHECK_MSG(strcmp(text, want) == 0, "%s: losses %s, wanted %s", what, text, want);
    check_run(what, r.out, budget, moved);
}

/* Budgets of a device from the smallest that is told to keep-all, with the options `below`. */
static void sweep(const char *recipe, const char *device, const char *below)
{
    char want[TEXT], config[512];
    snprintf(config, sizeof config, "%s device=%s", recipe, device);
    cli_result r = cli_run("$P train %s --json", config);
    CHECK_MSG(r.code == 0, "%s: %s", config, r.err);
    losses_of(r.out, want);
    CHECK(want[0]);
    int64_t most = of_event(r.out, "plan", "total_bytes");
    r = cli_run("$P train %s %s --quiet --memory 100kB", config, below);
    int64_t least = cli_told_minimum(r.err);
    if (strstr(r.err, "the update cannot run on the host")) return; /* programs share gradients */
    CHECK_MSG(r.code == 3 && least > 0, "%s %s: %s", config, below, r.err);
    if (least > most) most = least; /* nothing needs to move */
    int moved = 0;
    for (int i = 0; i < points(); i++)
        check_point(config, below, least + (most - least) / points() * i, want, &moved);
    CHECK_MSG(moved || least == most, "%s %s: nothing moved", config, below);
}

TEST(levels_sweep_of_memory_above_a_disk)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory differs from process to process");
    for (int i = 0; i < n_recipes(); i++) {
        char disk[512];
        snprintf(disk, sizeof disk, "--disk 2GB:%s", pl_test_dir());
        sweep(recipes[i], "cpu", disk);
    }
}

/* Budgets of the host from little more than the process needs to room for everything, above a
 * disk. */
static void sweep_drawn_hosts(const char *recipe, uint64_t seed)
{
    enum { DRAWS = 3, LEAST_MB = 120, MOST_MB = 500 };
    for (int i = 0; i < DRAWS; i++) {
        char below[512];
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        snprintf(below, sizeof below, "--host-memory %dMB --disk 2GB:%s",
                 LEAST_MB + (int)((seed >> 33) % (MOST_MB - LEAST_MB)), pl_test_dir());
        sweep(recipe, "apart", below);
    }
}

/* "apart" is a device with its own memory. The host has room for everything, or a part of it is on
 * disk. */
TEST(levels_sweep_of_device_and_host_memory)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory differs from process to process");
    for (int i = 0; i < n_recipes(); i++) {
        char disk[512];
        sweep(recipes[i], "apart", "--host-memory 600MB updates=host");
        if (!pl_test_long()) continue;
        sweep(recipes[i], "apart", "--host-memory 600MB");
        snprintf(disk, sizeof disk, "--host-memory 300MB --disk 2GB:%s", pl_test_dir());
        sweep(recipes[i], "apart", disk);
        sweep_drawn_hosts(recipes[i], (uint64_t)i + 27);
    }
}
