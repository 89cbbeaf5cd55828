/* test_minimum.c - on the CPU the overhead does not depend on the moment: all commands tell the
 * same minimum, the same budget has the same plan, and more memory is never slower. */
#include "tests/lib/alloc_count.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/build/build.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long long member(const char *text, const char *name)
{
    json_t *j = json_loads(text, 0, NULL);
    long long v = j ? (long long)json_integer_value(json_object_get(j, name)) : -1;
    json_decref(j);
    return v;
}

static const char *const tiny[] = {
    "cloud/demo",
    /* long */
    "text/tiny", "cloud/tiny batch=8 height=96 width=128", "lgt/tiny batch=24",
    "stablesr/tiny batch=8", "wandistill/tiny batch=12", "classify/tiny batch=64",
    "segment/tiny batch=16", "fluxflow/tiny batch=3", "regress/tiny batch=4096"};

static int n_tiny(void)
{
    return pl_test_long() ? (int)(sizeof tiny / sizeof tiny[0]) : 1;
}

/* plan without a budget, the refusal of plan and the refusal of train tell the same minimum, to the
 * byte. That budget trains, and the process stays within it; 1 % less is refused. */
TEST(budget_minimum_is_one_number)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory differs from process to process");
    for (int i = 0; i < n_tiny(); i++) {
        cli_result r = cli_run("$P plan %s --json", tiny[i]);
        CHECK_MSG(r.code == 0, "%s: %s", tiny[i], r.err);
        long long least = member(r.out, "minimum_bytes");
        r = cli_run("$P plan %s --memory 2MiB", tiny[i]);
        CHECK_MSG(r.code == 3 && cli_told_minimum(r.err) == least, "%s: %lld, plan refuses: %s",
                  tiny[i], least, r.err);
        r = cli_run("$P train %s --quiet --memory 2MiB", tiny[i]);
        CHECK_MSG(r.code == 3 && cli_told_minimum(r.err) == least, "%s: %lld, train refuses: %s",
                  tiny[i], least, r.err);

        r = cli_run("$P train %s --json train.steps=2 eval.batches=1 --memory %lld", tiny[i],
                    least);
        const char *end = strstr(r.out, "\"peak_used_bytes\":");
        CHECK_MSG(r.code == 0 && end, "%s at %lld: %s", tiny[i], least, r.err);
        CHECK_MSG(end && atoll(end + 18) <= least, "%s: peak %lld of %lld", tiny[i],
                  end ? atoll(end + 18) : -1, least);
        r = cli_run("$P train %s --quiet --memory %lld", tiny[i], least * 99 / 100);
        CHECK_MSG(r.code == 3 && cli_told_minimum(r.err) == least, "%s at %lld: %d %s", tiny[i],
                  least * 99 / 100, r.code, r.err);
    }
}

static const char *const with_disk[] = {
    "wandistill/tiny accumulate=1 batch=2",
    /* long */
    "wandistill/tiny", "cloud/tiny", "stablesr/tiny", "lgt/tiny", "fluxflow/tiny",
    "regress/tiny batch=4 'model.widths=[512,512,512,512]' data.samples=16 data.eval_samples=4"};

/* The same where tensors may leave the memory: the budget that refusals tell trains, and 1 % less
 * is refused with the same number. */
TEST(budget_minimum_with_a_disk_trains)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory differs from process to process");
    int n = pl_test_long() ? (int)(sizeof with_disk / sizeof with_disk[0]) : 1;
    for (int i = 0; i < n; i++) {
        const char *c = with_disk[i], *d = pl_test_dir();
        cli_result r = cli_run("$P train %s --quiet --memory 2MiB --disk 2GB:%s", c, d);
        long long least = cli_told_minimum(r.err);
        CHECK_MSG(r.code == 3 && least > 0, "%s: %s", c, r.err);
        r = cli_run("$P train %s --json train.steps=2 eval.batches=1 --memory %lld --disk 2GB:%s",
                    c, least, d);
        const char *end = strstr(r.out, "\"peak_used_bytes\":");
        CHECK_MSG(r.code == 0 && end, "%s at %lld: %s", c, least, r.err);
        CHECK_MSG(end && atoll(end + 18) <= least, "%s: peak %lld of %lld", c,
                  end ? atoll(end + 18) : -1, least);
        /* allowing a disk costs nothing: what trains without it trains with it */
        r = cli_run("$P plan %s --json", c);
        long long keep = member(r.out, "total_bytes");
        CHECK_MSG(least <= keep + keep / 1000, "%s: %lld with a disk, %lld without", c, least,
                  keep);
        r = cli_run("$P train %s --quiet --memory %lld --disk 2GB:%s", c, least * 99 / 100, d);
        CHECK_MSG(r.code == 3 && cli_told_minimum(r.err) == least, "%s at %lld, told %lld: %d %s",
                  c, least * 99 / 100, least, r.code, r.err);
    }
}

/* Measurements on both sides of a step give the number that the first one gave; one that is far
 * from it replaces it; a damaged file is none. */
TEST(minimum_memory_of_library_kernels_is_the_same_in_every_process)
{
    const uint64_t mib = 1 << 20;
    char dir[600], path[700], old[600];
    const char *cache = getenv("PLIMSOLL_CACHE");
    snprintf(old, sizeof old, "%s", cache ? cache : "");
    snprintf(dir, sizeof dir, "%s/cache", pl_test_dir());
    snprintf(path, sizeof path, "%s/libraries.txt", dir);
    setenv("PLIMSOLL_CACHE", dir, 1);

    CHECK_INT(pl__library_bytes(7, 5 * mib - 1000), 5 * mib);
    CHECK_INT(pl__library_bytes(7, 5 * mib + 1000), 5 * mib);
    CHECK_INT(pl__library_bytes(7, 4 * mib - 1000), 5 * mib);
    CHECK_INT(pl__library_bytes(8, 5 * mib + 1000), 6 * mib);
    CHECK_INT(pl__library_bytes(7, 9 * mib + 1000), 10 * mib);
    CHECK_INT(pl__library_bytes(7, 9 * mib - 1000), 10 * mib);
    CHECK_INT(pl__library_bytes(7, 2 * mib), 2 * mib);

    CHECK(truncate(path, 20) == 0);
    CHECK_INT(pl__library_bytes(8, 5 * mib - 1000), 5 * mib);
    CHECK_INT(pl__library_bytes(8, 5 * mib + 1000), 5 * mib);
    if (cache)
        setenv("PLIMSOLL_CACHE", old, 1);
    else
        unsetenv("PLIMSOLL_CACHE");
}

/* A plan in the figures that must not differ. */
typedef struct figures {
    long long arena, overhead, minimum;
    double ms;
} figures;

static void plan_at(const char *config, long long budget, figures *f)
{
    cli_result r = cli_run("$P plan %s --json --memory %lld", config, budget);
    json_t *j = json_loads(r.out, 0, NULL);
    f->ms = (double)NAN;
    CHECK_MSG(r.code == 0 && j, "%s at %lld: %s", config, budget, r.err);
    *f = (figures){.arena = json_integer_value(json_object_get(j, "arena_bytes")),
                   .overhead = json_integer_value(json_object_get(j, "overhead_bytes")),
                   .minimum = json_integer_value(json_object_get(j, "minimum_bytes")),
                   .ms = json_real_value(json_object_get(j, "predicted_step_ms"))};
    json_decref(j);
}

/* From the minimum to keep-all: a larger budget has no slower step. The same budget has the same
 * plan every time. */
static void never_slower(const char *config, const double *at, int n)
{
    cli_result r = cli_run("$P plan %s --json", config);
    CHECK_MSG(r.code == 0, "%s: %s", config, r.err);
    long long least = member(r.out, "minimum_bytes"), most = member(r.out, "total_bytes");
    double before = HUGE_VAL;
    for (int i = 0; i < n; i++) {
        long long budget = least + (long long)((double)(most - least) * at[i]);
        figures f, again;
        plan_at(config, budget, &f);
        CHECK_MSG(f.ms <= before * (1 + 1e-9), "%s: %g ms at %lld of %lld..%lld, %g ms below",
                  config, f.ms, budget, least, most, before);
        before = f.ms;
        if (i) continue;
        plan_at(config, budget, &again);
        CHECK_MSG(memcmp(&f, &again, sizeof f) == 0, "%s at %lld: %lld %lld %g, then %lld %lld %g",
                  config, budget, f.arena, f.overhead, f.ms, again.arena, again.overhead, again.ms);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One batch needs less than several micro-batches where weights are most of the memory: those have
 * accumulators. */
TEST(minimum_of_a_refusal_is_the_smallest_of_all_micro_batches)
{
    WANT_BIN();
    const char *net = "regress/tiny 'model.widths=[512,512,512,512]' batch=8 --memory 6MB --json";
    cli_result all = cli_run("$P plan %s accumulate=auto", net);
    CHECK_INT(all.code, 3);
    long long named = member(all.out, "minimum_bytes"), least = INT64_MAX;
    for (int n = 1; n <= 8; n *= 2) {
        cli_result one = cli_run("$P plan %s accumulate=%d", net, n);
        long long bytes = member(one.out, "minimum_bytes");
        if (bytes < least) least = bytes;
    }
    CHECK_INT(named, least);
}

TEST(budget_with_more_memory_is_never_slower)
{
    WANT_BIN();
    if (!pl_test_allocs_counted()) SKIP("a sanitizer's own memory differs from process to process");
    /* a measured overhead made the second of two budgets slower */
    static const char *const known[] = {
        "cloud/tiny batch=6 height=96 width=120 frames=4 threads=1",
        "stablesr/tiny batch=24 threads=1", /* long */
    };
    static const double some[] = {0.05, 0.2, 0.21};
    double drawn[100];
    never_slower(known[0], some, 3);
    for (int k = 0; k < 2 && pl_test_long(); k++) {
        uint64_t rng = (uint64_t)k + 1;
        for (int i = 0; i < 100; i++) drawn[i] = (pl_test_noise(&rng) + 1) / 2;
        qsort(drawn, 100, sizeof *drawn, by_size);
        never_slower(known[k], drawn, 100);
    }
    for (int k = 0; k < n_tiny() && pl_test_long(); k++) {
        uint64_t rng = (uint64_t)k + 10;
        for (int i = 0; i < 45; i++) drawn[i] = (pl_test_noise(&rng) + 1) / 2;
        qsort(drawn, 45, sizeof *drawn, by_size);
        never_slower(tiny[k], drawn, 45);
    }
}
