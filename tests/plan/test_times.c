/* test_times.c - the table of measured times: file, damage, order of sources, interpolation. */
#include "base/cache_dir.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plan/cost/cost_table.h"
#include "plimsoll_ops.h"
#include "plimsoll_train.h"
#include "rt/calibrate.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <glob.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pl_time_sample sample(uint64_t unit, const char *kind, double flops, double bytes, double ns)
{
    pl_time_sample s = {.unit = unit, .cost = {.flops = flops, .bytes = bytes}, .ns = ns};
    snprintf(s.kind, sizeof s.kind, "%s", kind);
    return s;
}

static pl_time_table *empty_table(void)
{
    pl_time_table *t = NULL;
    return pl_time_table_load(NULL, "", &t) == PL_OK ? t : NULL;
}

TEST(times_tables_read_back_the_same)
{
    char path[256];

    snprintf(path, sizeof path, "%s/times.txt", pl_test_dir());
    pl_time_table *t = empty_table(), *back = NULL;
    uint64_t seed = 1;
    for (uint64_t i = 0; i < 1000; i++) {
        pl_time_sample s = sample(i * 0x9e3779b97f4a7c15u, i % 2 ? "map.tile.f32" : "conv.dnn.f32",
                                  1e6, 1e5, 100 + 50 * (pl_test_noise(&seed) + 1));
        if (!(i % 2))
            s.cost.work = PL_WORK_CONV, s.cost.m = 10, s.cost.n = 20, s.cost.k = 30 + (double)i;
        CHECK_OK(pl_time_table_put(t, &s));
    }
    CHECK_OK(pl_time_table_save(t, path, "me, 2 threads"));
    CHECK_OK(pl_time_table_load(path, "me, 2 threads", &back));
    CHECK_INT(pl_time_table_count(back), 1000);

    for (uint64_t i = 0; i < 1000; i++) {
        double a, b;
        const char *kind = i % 2 ? "map.tile.f32" : "conv.dnn.f32";
        CHECK(pl_time_table_find(t, i * 0x9e3779b97f4a7c15u, kind, &a) &&
              pl_time_table_find(back, i * 0x9e3779b97f4a7c15u, kind, &b) && a == b);
        CHECK(!pl_time_table_find(back, i * 0x9e3779b97f4a7c15u, "other", &b));
    }
    /* A second sample of a unit replaces the first. */
    pl_time_sample s = sample(0, "conv.dnn.f32", 1e6, 1e5, 7);
    double ns;
    CHECK_OK(pl_time_table_put(back, &s));
    CHECK(pl_time_table_find(back, 0, "conv.dnn.f32", &ns) && ns == 7);
    CHECK_INT(pl_time_table_count(back), 1000);
    pl_time_table_free(t);
    pl_time_table_free(back);
}

/* A table with one changed byte, a table that is cut off, and another machine's table are ignored.
 */
TEST(times_of_damaged_tables_are_ignored)
{
    char path[256], *text;
    size_t len;

    snprintf(path, sizeof path, "%s/times.txt", pl_test_dir());
    pl_time_table *t = empty_table();
    for (uint64_t i = 0; i < 3; i++) {
        pl_time_sample s = sample(i, "map.tile.f32", 10, 20, 30);
        CHECK_OK(pl_time_table_put(t, &s));
    }
    CHECK_OK(pl_time_table_save(t, path, "me"));
    pl_time_table_free(t);
    CHECK_OK(pl_sys_read_file(path, 1 << 20, &text, &len));
    for (size_t i = 0; i < 2 * len + 1; i++) {
        char *bad = malloc(len + 1);
        memcpy(bad, text, len + 1);
        if (i < len) bad[i] = (char)(bad[i] ^ 1);
        FILE *f = fopen(path, "w");
        CHECK(f && fwrite(bad, 1, i < len ? len : i - len, f) <= len && fclose(f) == 0);
        CHECK_OK(pl_time_table_load(path, "me", &t));
        CHECK_MSG((pl_time_table_count(t) == 3) == (i == 2 * len),
                  "change %zu is taken for a table", i);
        pl_time_table_free(t);
        free(bad);
    }
    CHECK_OK(pl_sys_write_file(path, text, len));
    CHECK_OK(pl_time_table_load(path, "m", &t));
    CHECK_INT(pl_time_table_count(t), 0);
    pl_time_table_free(t);
    CHECK_OK(pl_time_table_load(pl_test_dir(), "me", &t)); /* a folder */
    CHECK_INT(pl_time_table_count(t), 0);
    pl_time_table_free(t);
    pl_sys_free(text);
    pl_time_sample s = sample(1, "two words", 1, 1, 1), zero = sample(1, "map", 1, 1, 0);
    t = empty_table();

    CHECK_INT(pl_time_table_put(t, &s), PL_ERR_ARG);
    CHECK_INT(pl_time_table_put(t, &zero), PL_ERR_ARG);
    pl_time_table_free(t);
}

TEST(times_of_similar_units_grow_with_size)
{
    pl_time_table *t = empty_table();
    uint64_t seed = 3;
    double ns;

    CHECK(!pl_time_table_like(t, "map.tile.f32", &(pl_cost){.bytes = 1}, &ns));
    /* A start of 500 ns, then 10 bytes per ns; with noise of a third, so that neighbours may
     * decrease. */
    for (uint64_t i = 0; i < 300; i++) {
        double bytes = exp2(6 + 18 * (pl_test_noise(&seed) + 1) / 2),
               noise = 1 + pl_test_noise(&seed) / 3;
        pl_time_sample s = sample(i, "map.tile.f32", bytes / 8, bytes, (500 + bytes / 10) * noise);
        CHECK_OK(pl_time_table_put(t, &s));
    }
    double before = 0;
    for (double bytes = 1; bytes < 1e9; bytes *= 1.07) {
        pl_cost c = {.flops = bytes / 8, .bytes = bytes};
        CHECK(pl_time_table_like(t, "map.tile.f32", &c, &ns));
        CHECK_MSG(ns >= before, "%g bytes take %g ns, fewer took %g", bytes, ns, before);
        if (bytes > 1e4 && bytes < 1e7)
            CHECK_MSG(fabs(ns / (500 + bytes / 10) - 1) < 0.2, "%g bytes: %g ns", bytes, ns);
        pl_cost more = c;
        double other;
        more.flops *= 2;
        CHECK(pl_time_table_like(t, "map.tile.f32", &more, &other) && other >= ns);
        before = ns;
    }
    CHECK(!pl_time_table_like(t, "map.tile.f64", &(pl_cost){.bytes = 1}, &ns));

    /* Almost no work costs the start: half of the smallest measured time. */
    double least, nothing;
    CHECK(pl_time_table_like(t, "map.tile.f32", &(pl_cost){.flops = 8, .bytes = 64}, &least));
    CHECK(pl_time_table_like(t, "map.tile.f32", &(pl_cost){.bytes = 0}, &nothing));
    CHECK_MSG(nothing > 0.4 * least && nothing < 0.7 * least, "%g and %g ns", nothing, least);
    pl_time_table_free(t);
}

/* Arithmetic that costs as much as many bytes is recognised: samples of both kinds lie on one line.
 */
TEST(times_weigh_arithmetic_against_bytes)
{
    pl_time_table *t = empty_table();
    uint64_t seed = 5;
    double ns;

    for (uint64_t i = 0; i < 200; i++) {
        double bytes = exp2(10 + 7 * (pl_test_noise(&seed) + 1)),
               flops = bytes * exp2(3 * pl_test_noise(&seed));
        pl_time_sample s = sample(i, "map.tile.f32", flops, bytes, flops + bytes / 32);
        CHECK_OK(pl_time_table_put(t, &s));
    }
    for (double share = 0.125; share <= 8; share *= 2) {
        pl_cost c = {.flops = 1e6 * share, .bytes = 1e6};
        CHECK(pl_time_table_like(t, "map.tile.f32", &c, &ns));
        CHECK_MSG(fabs(ns / (c.flops + c.bytes / 32) - 1) < 0.15, "%g flops a byte: %g ns", share,
                  ns);
    }
    pl_time_table_free(t);
}

/* If the rate depends on the shape, the rate between two shapes is between their rates. */
TEST(times_of_products_follow_their_shape)
{
    pl_time_table *t = empty_table();
    uint64_t unit = 0;

    for (double m = 64; m <= 4096; m *= 4)
        for (double n = 64; n <= 4096; n *= 4)
            for (double k = 64; k <= 4096; k *= 4) {
                double rate = 10 * fmin(k, 1024) / 1024; /* flops per ns */
                pl_time_sample s = sample(unit++, "matmul.dnn.f32", 2 * m * n * k, m * n * 4,
                                          2 * m * n * k / rate);
                s.cost.work = PL_WORK_PRODUCT, s.cost.m = m, s.cost.n = n, s.cost.k = k;
                CHECK_OK(pl_time_table_put(t, &s));
            }
    for (double k = 64; k <= 4096; k *= 2) {
        double m = 300, n = 500, ns, low = 10 * fmin(k / 2, 1024) / 1024,
               high = 10 * fmin(2 * k, 1024) / 1024;
        pl_cost c = {2 * m * n * k, 1, PL_WORK_PRODUCT, m, n, k};
        CHECK(pl_time_table_like(t, "matmul.dnn.f32", &c, &ns));
        double rate = c.flops / ns;
        CHECK_MSG(rate > low * 0.99 && rate < high * 1.01, "k %g: rate %g, not in %g to %g", k,
                  rate, low, high);
    }
    pl_time_table_free(t);
}

/* ---- programs --------------------------------------------------------------------------- */
static pl_status open_small(const char *threads, pl_run **out)
{
    char text[32];
    snprintf(text, sizeof text, "threads=%s", threads);
    pl_status rc = pl_run_open(
        "cloud/tiny",
        (const char *const[]){text, "batch=2", "frames=1", "data.samples=8", "data.eval_samples=2"},
        5, out);
    return rc == PL_OK ? pl_run_build(*out) : rc;
}

static const double *shares(const pl_run *run)
{
    return pl_program_plan(pl_run_train_program(run))->time_share;
}

/* The only table of the folder, changed: every time multiplied by factor, every unit renamed. */
static bool change_table(double factor, uint64_t other_unit)
{
    char pattern[256], *text = NULL, owner[512];
    glob_t found;
    size_t len;
    snprintf(pattern, sizeof pattern, "%s/cache/times-*.txt", pl_test_dir());
    if (glob(pattern, 0, NULL, &found) != 0 || found.gl_pathc != 1) return false;
    bool ok = pl_sys_read_file(found.gl_pathv[0], 1 << 24, &text, &len) == PL_OK &&
              sscanf(text, "%*[^\n]\nowner %511[^\n]", owner) == 1;
    pl_time_table *t = empty_table();
    for (const char *line = strchr(strchr(text, '\n') + 1, '\n') + 1;
         ok && strncmp(line, "end", 3) != 0; line = strchr(line, '\n') + 1) {
        pl_time_sample s = {0};
        unsigned long long unit;
        int work;
        ok = sscanf(line, "%llx %47s %lf %lf %d %lf %lf %lf %lf", &unit, s.kind, &s.cost.flops,
                    &s.cost.bytes, &work, &s.cost.m, &s.cost.n, &s.cost.k, &s.ns) == 9;
        s.unit = unit ^ other_unit;
        s.cost.work = (pl_work)work;
        s.ns *= factor;
        ok = ok && pl_time_table_put(t, &s) == PL_OK;
    }
    ok = ok && pl_time_table_save(t, found.gl_pathv[0], owner) == PL_OK;
    pl_time_table_free(t);
    pl_sys_free(text);
    globfree(&found);
    return ok;
}

static void restore_cache(char *before)
{
    if (before)
        setenv("PLIMSOLL_CACHE", before, 1);
    else
        unsetenv("PLIMSOLL_CACHE");
    free(before);
}

static void check_sources(void)
{
    pl_run *run = NULL;
    int steps, units;
    double waited;
    CHECK_OK(open_small("1", &run));
    CHECK_NEAR(shares(run)[PL_TIME_ESTIMATED], 1, 1e-9);
    double estimated = pl_run_predicted_ms(run);
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_measure(run, 0.05, &steps, &units, &waited));
    CHECK(steps >= 5 && units > 10);
    pl_run_free(run);

    CHECK_OK(open_small("1", &run)); /* from now on, and twice the same */
    double measured = pl_run_predicted_ms(run);
    CHECK_MSG(shares(run)[PL_TIME_MEASURED] > 0.95 && shares(run)[PL_TIME_CALIBRATED] == 0,
              "%g is measured", shares(run)[PL_TIME_MEASURED]);
    CHECK(measured != estimated);
    pl_run_free(run);
    CHECK_OK(open_small("1", &run));
    CHECK(pl_run_predicted_ms(run) == measured);
    pl_run_free(run);

    CHECK(change_table(3, 0)); /* the predicted time is the sum of the entries */
    CHECK_OK(open_small("1", &run));
    const double *of = shares(run);
    double copies = of[PL_TIME_ESTIMATED] * pl_run_predicted_ms(run);
    CHECK_NEAR(pl_run_predicted_ms(run) - copies, 3 * (measured - copies), 1e-9 * measured);
    pl_run_free(run);

    CHECK(change_table(1, 1)); /* unmeasured units of measured kinds */
    CHECK_OK(open_small("1", &run));
    CHECK_MSG(shares(run)[PL_TIME_CALIBRATED] > 0.95 && shares(run)[PL_TIME_MEASURED] == 0,
              "%g is calibrated", shares(run)[PL_TIME_CALIBRATED]);
    double ratio = pl_run_predicted_ms(run) / (3 * measured);
    CHECK_MSG(ratio > 0.3 && ratio < 3, "by kinds %g of the measured time", ratio);
    pl_run_free(run);

    CHECK_OK(open_small("2", &run)); /* other threads, another table */
    CHECK_NEAR(shares(run)[PL_TIME_ESTIMATED], 1, 1e-9);
    pl_run_free(run);
}

static uint64_t never_waited(void)
{
    return 0;
}

/* Every sample, or every fourth one, waits longer than it takes. */
static uint64_t waits_always(void)
{
    static uint64_t ns;
    return ns += 1000000000000u;
}

static uint64_t waits_sometimes(void)
{
    static uint64_t ns, calls;
    return ns += calls++ % 4 == 1 ? 1000000000000u : 0;
}

/* Times measured while other programs held the cores are reported and not kept. */
static void check_busy(void)
{
    pl_run *run = NULL;
    char *text = NULL;
    double waited;
    pl_measure_set_waited(waits_always);
    CHECK_OK(open_small("1", &run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_check_times(run, 0.02, 1, &waited, &text));
    CHECK_MSG(text && waited > PL_TIMES_BUSY, "%g", waited);
    pl_text_free(text);
    pl_run_free(run);
    CHECK_OK(open_small("1", &run));
    CHECK_NEAR(shares(run)[PL_TIME_ESTIMATED], 1, 1e-9);
    CHECK_OK(pl_run_start(run));
    pl_measure_set_waited(waits_sometimes); /* the quiet samples count */
    CHECK_OK(pl_run_check_times(run, 0.02, 1, &waited, &text));
    CHECK_MSG(text && waited <= PL_TIMES_BUSY, "%g", waited);
    pl_text_free(text);
    pl_run_free(run);
    CHECK_OK(open_small("1", &run));
    CHECK(shares(run)[PL_TIME_MEASURED] > 0.95);
    pl_run_free(run);
}

/* A plan that is a hundred times off is noticed, and the next plan is not. */
static void check_noticed(void)
{
    pl_run *run = NULL;
    char *text = NULL;
    double waited;
    CHECK_OK(open_small("1", &run));
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_check_times(run, 0.02, 1e9, &waited, &text));
    CHECK(!text);
    pl_run_free(run);
    CHECK_OK(open_small("1", &run)); /* nothing was far off: nothing is stored */
    CHECK_NEAR(shares(run)[PL_TIME_ESTIMATED], 1, 1e-9);
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_check_times(run, 0.02, 1, &waited, &text));
    CHECK(text && strstr(text, " ms, predicted "));
    pl_text_free(text);
    pl_run_free(run);

    CHECK(change_table(100, 0));
    CHECK_OK(open_small("1", &run));
    double before = pl_run_predicted_ms(run);
    CHECK(shares(run)[PL_TIME_MEASURED] > 0.95);
    CHECK_OK(pl_run_start(run));
    CHECK_OK(pl_run_check_times(run, 0.02, 10, &waited, &text));
    CHECK(text && strstr(text, " ms, predicted ") && strstr(text, "("));
    pl_text_free(text);
    pl_run_free(run);
    CHECK_OK(open_small("1", &run));
    CHECK_MSG(pl_run_predicted_ms(run) < before / 5, "%g ms, before %g", pl_run_predicted_ms(run),
              before);
    pl_run_free(run);
}

TEST(times_far_from_their_prediction_are_noticed_and_replaced)
{
    char path[256], *before = getenv("PLIMSOLL_CACHE") ? strdup(getenv("PLIMSOLL_CACHE")) : NULL;
    snprintf(path, sizeof path, "%s/cache", pl_test_dir());
    setenv("PLIMSOLL_CACHE", path, 1);
    int threads = pl_threads_count();
    pl_measure_set_waited(never_waited);
    check_noticed();
    pl_measure_set_waited(NULL);
    pl_threads_set(threads);
    restore_cache(before);
}

TEST(times_of_a_busy_machine_are_not_kept)
{
    char path[256], *before = getenv("PLIMSOLL_CACHE") ? strdup(getenv("PLIMSOLL_CACHE")) : NULL;
    snprintf(path, sizeof path, "%s/cache", pl_test_dir());
    setenv("PLIMSOLL_CACHE", path, 1);
    int threads = pl_threads_count();
    check_busy();
    pl_measure_set_waited(NULL);
    pl_threads_set(threads);
    restore_cache(before);
}

/* Spins on one core together with another process, until the thread has waited or 5 s have gone. */
TEST(times_waiting_for_a_core_is_counted)
{
    cpu_set_t old, one;
    if (access("/proc/thread-self/schedstat", R_OK) != 0) SKIP("the system does not count it");
    CHECK(sched_getaffinity(0, sizeof old, &old) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &old)) CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    uint64_t begin = pl_sys_now_ns(), waited = pl_sys_waited_ns(), end = begin + 5000000000u;
    pid_t other = fork();
    while (other == 0 && pl_sys_now_ns() < end) {
    } /* until it is killed */
    if (other == 0) _exit(0);
    while (pl_sys_now_ns() < end && pl_sys_waited_ns() - waited < 1000000) {
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    CHECK(sched_setaffinity(0, sizeof old, &old) == 0);
    CHECK(pl_sys_waited_ns() - waited >= 1000000);
}

TEST(times_are_measured_then_calibrated_then_estimated)
{
    char path[256], *before = getenv("PLIMSOLL_CACHE") ? strdup(getenv("PLIMSOLL_CACHE")) : NULL;
    snprintf(path, sizeof path, "%s/cache", pl_test_dir());
    setenv("PLIMSOLL_CACHE", path, 1);
    int threads = pl_threads_count();
    check_sources();
    pl_threads_set(threads);
    restore_cache(before);
}

TEST(times_of_groups_count_outside_bytes_only)
{
    /* A chain of elementwise ops is one entry: its cost counts only the bytes read and written
     * outside, however long it is. */
    for (int length = 2; length <= 20; length += 18) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1 << 16));
        for (int i = 0; i < length; i++) x = pl_scale(g, x, 1.5 + i);
        pl_output(g, "y", x);
        pl_program *p = NULL;
        CHECK_OK(pl_compile(g, NULL, &p));
        CHECK_INT(p->base_units->n, 1);
        CHECK_NEAR(p->cost[0].bytes, 2 * 4 * (1 << 16), 1);
        pl_program_free(p);
        pl_store_free(store);
    }
}

TEST(times_of_groups_count_the_lines_that_slices_touch)
{
    /* 64 of 512 channels; then 4 channels, a quarter of a line of 64 bytes. */
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1024, 512));
    pl_output(g, "y", pl_scale(g, pl_slice(g, x, 1, 64, 128, 1), 2));
    pl_val z = pl_input(g, "z", PL_TYPE(PL_F32, 1024, 512));
    pl_output(g, "w", pl_scale(g, pl_slice(g, z, 1, 8, 12, 1), 3));
    pl_program *p = NULL;
    CHECK_OK(pl_compile(g, NULL, &p));
    double part = 4.0 * 1024 * 64, few = 4.0 * 1024 * 4, sum = 0;
    for (uint32_t i = 0; i < p->base_units->n; i++) sum += p->cost[i].bytes;
    CHECK_NEAR(sum, part + part + 64.0 * 1024 + few, 1);
    pl_program_free(p);
    pl_store_free(store);
}

TEST(times_cache_folder_follows_the_environment)
{
    char out[256], *before = getenv("PLIMSOLL_CACHE") ? strdup(getenv("PLIMSOLL_CACHE")) : NULL;
    setenv("PLIMSOLL_CACHE", "/a/b", 1);
    bool named = pl_cache_path("f.txt", out, sizeof out) && strcmp(out, "/a/b/f.txt") == 0;
    bool fits = !pl_cache_path("f.txt", out, 8);
    setenv("PLIMSOLL_CACHE", "", 1);
    bool none = !pl_cache_path("f.txt", out, sizeof out);
    restore_cache(before);
    CHECK(named && fits && none);
}

TEST(times_measured_on_the_command_line_are_used_by_plan)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    cli_result r =
        cli_run("export PLIMSOLL_CACHE=%s/c PL_THREADS=1; $P plan " CLI_SMALL "--measure --json",
                pl_test_dir());

    CHECK_MSG(r.code == 0 && strstr(r.out, "\"cost_source\":\"measured\"") &&
                  strstr(r.err, "measured"),
              "%s%s", r.out, r.err);
    r = cli_run("export PLIMSOLL_CACHE=%s/c PL_THREADS=1; $P plan " CLI_SMALL, pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "% measured"), "%s", r.out);

    r = cli_run("PLIMSOLL_CACHE= $P plan " CLI_SMALL);
    CHECK_MSG(r.code == 0 && strstr(r.out, "100 % estimated"), "%s", r.out);
    r = cli_run("PLIMSOLL_CACHE= $P plan " CLI_SMALL "--measure");
    CHECK_MSG(r.code == 1 && strstr(r.err, "PLIMSOLL_CACHE"), "%s", r.err);

    r = cli_run("$P plan " CLI_SMALL "--measure --device t4");
    CHECK_MSG(r.code == 4 && strstr(r.err, "profile"), "%s", r.err);
}

TEST(times_calibration_names_common_kinds)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!pl_test_long()) SKIP("takes ten seconds: PL_TEST_LONG=1");
    cli_result r = cli_run("PLIMSOLL_CACHE=%s/c $P devices --calibrate && cat %s/c/times-*",
                           pl_test_dir(), pl_test_dir());
    static const char *const kinds[] = {" conv.dnn.f32 ", " conv_dw.dnn.f32 ", " matmul.",
                                        " map.tile.f32 ", " reduce.tile.f32 ", " row.tile.f32 ",
                                        " attention."};
    CHECK_MSG(r.code == 0, "%s", r.err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        CHECK_MSG(strstr(r.out, kinds[i]), "no time of kind%s", kinds[i]);
}

/* Times of single launches are reduced until their sum is the time of the whole run; a small launch
 * keeps a quarter of its time. */
TEST(times_of_launches_add_up_to_the_whole)
{
    const double ns[] = {5000, 6000, 5000, 900000, 40000}, total = 956000;
    CHECK(pl_measure_excess(ns, 5, 0) == 0 && pl_measure_excess(ns, 5, 2 * total) < 1);
    for (double less = 1000; less <= 8000; less += 1000) {
        double whole = 0;
        for (int i = 0; i < 5; i++) whole += ns[i] - less > ns[i] / 4 ? ns[i] - less : ns[i] / 4;
        CHECK_NEAR(pl_measure_excess(ns, 5, whole) / less, 1, 1e-6);
    }
    CHECK(pl_measure_excess(ns, 0, 100) == 0);
}
