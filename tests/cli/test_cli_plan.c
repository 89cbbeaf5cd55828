/* test_cli_plan.c - the figures of `plimsoll plan` against separate plans. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Large enough that a few pages of the process do not change what is recomputed. */
#define NET "cloud/tiny batch=8 frames=2 height=384 width=384 "

static json_t *planned(const char *args, int code)
{
    cli_result r = cli_run("$P plan %s --json", args);
    json_t *j = r.code == code ? json_loads(r.out, 0, NULL) : NULL;
    if (strstr(r.err, "planning"))
        pl_test_fail(__FILE__, __LINE__, "plan %s, without a terminal: %s", args, r.err);
    if (!j) pl_test_fail(__FILE__, __LINE__, "plan %s: exit %d, %s", args, r.code, r.err);
    return j;
}

static double number(const json_t *j, const char *name)
{
    return json_number_value(json_object_get(j, name));
}

static double sum_of(const json_t *parts)
{
    const char *key;
    json_t *value;
    double sum = 0;
    json_object_foreach((json_t *)(uintptr_t)parts, key, value) sum += json_number_value(value);
    return sum;
}

/* Arena of a row of the table of optimisations; -1: there is no row of that name. */
static double arena_of(const json_t *j, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(j, "means"), i,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) ==
                                0) return number(row, "arena_bytes");
    return -1;
}

/* NET's arguments with a budget that leaves the arena this share of the keep-all arena, or of
 * the minimum. */
static const char *with_budget(const char *more, double share, bool of_minimum)
{
    static char line[256];
    json_t *j = planned(NET, 0);
    double fixed = number(j, "overhead_bytes") + number(j, "state_bytes");
    double arena = of_minimum ? number(j, "minimum_bytes") - fixed : number(j, "arena_bytes");
    snprintf(line, sizeof line, NET "%s--memory %.0f", more, fixed + share * arena);
    json_decref(j);
    return line;
}

TEST(cli_plan_parts_add_up)
{
    if (!cli_bin()) return;
    WANT_PLAIN();
    json_t *kept = planned(NET, 0), *less = planned(with_budget("", 0.7, false), 0);
    CHECK(number(kept, "keep_all_bytes") == number(kept, "arena_bytes"));
    CHECK(sum_of(json_object_get(kept, "components")) ==
          sum_of(json_object_get(kept, "keep_all_components")));
    CHECK(number(less, "arena_bytes") < number(kept, "arena_bytes"));
    CHECK(sum_of(json_object_get(less, "components")) ==
          number(less, "live_bound_bytes") + number(less, "state_bytes"));
    /* the other plan is shown beside it, with the figures it has when it runs */
    CHECK(sum_of(json_object_get(less, "keep_all_components")) ==
          sum_of(json_object_get(kept, "components")));
    CHECK(number(less, "keep_all_step_ms") == number(kept, "predicted_step_ms"));
    CHECK(number(less, "keep_all_step_ms") < number(less, "predicted_step_ms"));
    json_decref(kept);
    json_decref(less);
    cli_result r = cli_run("$P plan %s", with_budget("", 0.7, false));

    CHECK(strstr(r.out, "keep-all") && strstr(r.out, "recompute "));
    CHECK(strstr(r.out, "Fullest positions around the peak"));
}

/* A step of two programs, one of which recomputes: the share is over both. */
TEST(cli_plan_recomputed_share_is_of_the_whole_step)
{
    if (!cli_bin()) return;
    if (!pl_test_long()) SKIP("long");
    json_t *j = planned("fluxflow/tiny batch=32 device=h200 memory=700000000 gan.decode=once", 0);
    double step = number(j, "predicted_step_ms"), kept = number(j, "keep_all_step_ms");
    CHECK_MSG(step > kept, "%g ms, %g with everything kept", step, kept);
    CHECK_NEAR(number(j, "recompute_ratio") / ((step - kept) / step), 1, 0.02);
    json_decref(j);
}

/* Index of the program that sets the arena, among the programs of a page. */
static json_t *page_program(json_t *data)
{
    return json_array_get(json_object_get(data, "programs"), (size_t)number(data, "largest"));
}

/* The highest end of a buffer on a page of --timeline, and the number of buffers. */
static double page_top(const char *path, size_t *buffers)
{
    const char *page = cli_read(path), *from = strstr(page, "id=\"plan\">");
    json_t *data = from ? json_loads(from + strlen("id=\"plan\">"), JSON_DISABLE_EOF_CHECK, NULL)
                        : NULL,
           *row;
    double top = 0;
    size_t i;
    json_t *all = json_object_get(page_program(data), "buffers");
    *buffers = json_array_size(all);
    json_array_foreach(all, i, row) top = fmax(top, json_number_value(json_array_get(row, 2)) +
                                                        json_number_value(json_array_get(row, 3)));
    json_decref(data);
    return top;
}

/* One program of the step sets the arena, under a budget another program than in the keep-all
 * plan: every picture and figure shows the right program. */
TEST(cli_plan_shows_the_program_that_takes_most)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) return;
#ifdef __SANITIZE_THREAD__
    if (!pl_test_long()) SKIP("long under the thread sanitizer");
#endif
    static const char net[] =
        "fluxflow/tiny batch=8 image=32 gan.base=32 gan.decode=twice model.scales=1 model.layers=1 "
        "lpips.on=false spade.on=false device=h200";
    char line[512], text[96];
    json_t *kept = planned(net, 0);
    double fixed = number(kept, "state_bytes") + number(kept, "overhead_bytes"),
           least = number(kept, "minimum_bytes") - fixed;
    CHECK(strcmp(json_string_value(json_object_get(kept, "program")), "train") == 0);

    snprintf(line, sizeof line, "%s memory=%.0f --timeline %s/t.html --snapshot %s/s.pickle", net,
             fixed + least + 0.2 * (number(kept, "arena_bytes") - least), pl_test_dir(),
             pl_test_dir());
    json_t *less = planned(line, 0);
    const char *name = json_string_value(json_object_get(less, "program"));
    CHECK_MSG(strcmp(name, "disc_r1") == 0, "%s takes most", name);
    CHECK(arena_of(less, "recompute") == number(less, "arena_bytes"));
    CHECK(arena_of(less, "offsets") == number(kept, "arena_bytes"));
    CHECK(arena_of(less, "views") == number(kept, "no_reuse_bytes"));
    CHECK(number(less, "keep_all_bytes") == number(kept, "arena_bytes"));
    CHECK(sum_of(json_object_get(less, "keep_all_components")) ==
          sum_of(json_object_get(kept, "components")));
    CHECK(sum_of(json_object_get(less, "components")) ==
          number(less, "live_bound_bytes") + number(less, "state_bytes"));

    size_t buffers;
    snprintf(text, sizeof text, "%s/t.html", pl_test_dir());
    CHECK(page_top(text, &buffers) == number(less, "arena_bytes"));
    CHECK(strstr(cli_read(text), ", the disc_r1 program\""));

    snprintf(text, sizeof text, "%zu\n", buffers);
    CHECK(strcmp(cli_run("grep -ao free_completed %s/s.pickle | wc -l", pl_test_dir()).out, text) ==
          0);

    snprintf(line, sizeof line, "%s memory=%.0f", net, number(less, "budget_bytes"));
    /* A pause makes the planning last longer than a second, after which the busy line is drawn. */
    const bool terminal = cli_has_terminals(); /* a bare chroot has none */
    cli_result r = cli_run("TERM=xterm %s '$P plan %s --timeline %s/t.svg & p=$!; "
                           "sleep 0.2; kill -STOP $p; sleep 1; kill -CONT $p; wait $p' /dev/null",
                           terminal ? "script -qec" : "sh -c", line, pl_test_dir());
    CHECK_MSG(strstr(r.out, "The disc_r1 program needs the most memory; this is its plan.") &&
                  strstr(r.out, "shows the train program"),
              "%s", r.out);

    snprintf(text, sizeof text, "%s/t.svg", pl_test_dir());
    CHECK(strstr(cli_read(text), " in disc_r1 at position "));
    for (int i = 0; i < 4; i++) {
        static const char *const programs[] = {
            ">disc: ", ">disc_r1: ", ">train: ", ">evaluation: "};
        CHECK_MSG(strstr(cli_read(text), programs[i]), "no %s", programs[i]);
    }
    snprintf(line, sizeof line, ": %s</text>",
             json_string_value(json_object_get(less, "peak_node")));
    CHECK_MSG(strstr(cli_read(text), line), "not in the picture: peak at%s", line);

    /* the busy line is removed before the table is printed */
    const char *busy = strstr(r.out, "planning fluxflow/tiny, "),
               *gone = strstr(r.out, "\r\033[K\033[1mfluxflow/tiny");
    CHECK_MSG(!terminal || (busy && gone && busy < gone && !strstr(gone, "planning fluxflow")),
              "%s", r.out);
    json_decref(kept);
    json_decref(less);
}

/* Every row's figure equals planning with and without that optimisation. */
TEST(cli_plan_each_saving_equals_a_plan_without_it)
{
    if (!cli_bin()) return;
    WANT_PLAIN();
    json_t *one = planned(with_budget("--explain ", 0.7, false), 0), *kept = planned(NET, 0);
    CHECK(arena_of(one, "recompute") == number(one, "arena_bytes"));
    CHECK(arena_of(one, "offsets") == number(kept, "arena_bytes"));
    CHECK(arena_of(one, "order") == number(kept, "live_bound_bytes"));
    CHECK(arena_of(one, "views") == number(kept, "no_reuse_bytes"));

    static const char *const down[] = {"micro_batches", "fusion",   "views",
                                       "sharing",       "in_place", "order"};
    for (int i = 0; i < 5; i++)
        CHECK_MSG(arena_of(one, down[i]) >= arena_of(one, down[i + 1]), "%s", down[i + 1]);
    CHECK(arena_of(one, "whole_batch") < 0); /* it is not split */

    json_t *split = planned("cloud/tiny batch=8 accumulate=4 accumulate_coupled=true --explain", 0);
    CHECK(arena_of(split, "whole_batch") > 2 * arena_of(split, "micro_batches"));
    json_decref(one);
    json_decref(kept);
    json_decref(split);
}

/* An edit, appended to the refused command, fits with the bytes and time that were printed. */
static void check_edit(const char *args, const json_t *edit)
{
    char line[512];
    snprintf(line, sizeof line, "%s %s", args, json_string_value(json_object_get(edit, "edit")));
    json_t *j = planned(line, 0);
    CHECK_MSG(json_is_true(json_object_get(j, "fits")), "%s", line);
    double told = number(edit, "total_bytes"), is = number(j, "total_bytes");
    /* another process: a few pages more or fewer */
    CHECK_MSG(told - is < 6e6 && is - told < 6e6, "%s: %.0f told, %.0f planned", line, told, is);
    double ratio = number(edit, "predicted_step_ms") / number(j, "predicted_step_ms");
    CHECK_MSG(ratio > 0.97 && ratio < 1.15, "%s: time told is %.3f of the plan's", line, ratio);
    if (json_is_true(json_object_get(edit, "exact"))) CHECK(number(j, "effective_batch") == 8);
    json_decref(j);
}

/* `edits` are the changes that the refused plan of `line` offers. */
static void check_edits(const char *line, const json_t *edits, size_t least)
{
    json_t *edit;
    size_t k;
    if (json_array_size(edits) < least)
        pl_test_fail(__FILE__, __LINE__, "%s: %zu edits", line, json_array_size(edits));
    if (!json_is_true(json_object_get(json_array_get(edits, 0), "exact")))
        pl_test_fail(__FILE__, __LINE__, "%s: none changes nothing", line);
    json_array_foreach(edits, k, edit) check_edit(line, edit);
}

/* The largest batch that fits is offered. It was planned in a process that had made other plans
 * before, which costs less than one sample: with two more samples the batch does not fit. */
static void check_largest_batch(const char *line, const json_t *edits)
{
    const char *budget = strstr(line, "--memory ");
    json_t *edit;
    size_t k;
    int64_t batch = 0;
    json_array_foreach(edits, k, edit)(void)
        sscanf(json_string_value(json_object_get(edit, "edit")), "batch=%" SCNd64, &batch);
    CHECK_MSG(batch > 1 && budget, "%s: no batch is offered", line);
    /* --sweep plans for a budget and searches no edits */
    json_t *rows = json_loads(cli_run("$P plan " NET "batch=%" PRId64 " --sweep %s --json",
                                      batch + 2, budget + strlen("--memory "))
                                  .out,
                              0, NULL);
    CHECK(json_is_false(json_object_get(json_array_get(rows, 0), "fits")));
    json_decref(rows);
}

TEST(cli_plan_offers_edits_that_fit)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) return;
    WANT_PLAIN();
    const char *line = with_budget("", 0.6, true);
    json_t *j = planned(line, 3);
    check_edits(line, json_object_get(j, "edits"), 3);
    check_largest_batch(line, json_object_get(j, "edits"));
    json_decref(j);
    if (pl_test_long()) {
        line = with_budget("checkpointing=off ", 0.7, false);
        j = planned(line, 3);
        check_edits(line, json_object_get(j, "edits"), 3);
        json_decref(j);
    }
    cli_result r = cli_run("$P plan " CLI_SMALL "--memory 1MiB");

    CHECK(r.code == 3 && strstr(r.out, "--memory ") && strstr(r.err, "smallest budget"));
}

TEST(cli_plan_compares_with_segments)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) return;
    WANT_PLAIN();
    json_t *j = json_loads(cli_run("$P plan " NET "--compare --json").out, 0, NULL);
    CHECK(json_array_size(j) == 4);
    const json_t *all = json_array_get(j, 0), *segments = json_array_get(j, 1);
    const json_t *ours = json_array_get(j, 2), *least = json_array_get(j, 3);
    CHECK(number(segments, "arena_bytes") < number(all, "arena_bytes"));
    CHECK(number(ours, "arena_bytes") <= number(segments, "arena_bytes") + 4e6);
    CHECK(number(ours, "predicted_step_ms") <= number(segments, "predicted_step_ms"));
    CHECK(number(least, "arena_bytes") <= number(ours, "arena_bytes"));
    json_decref(j);
    CHECK(strstr(cli_run("$P plan " NET "--compare").out, "marked blocks recomputed"));
}

/* The page has every buffer and every position of the plan, and loads nothing from the network. */
TEST(cli_plan_page_holds_every_buffer_and_no_links)
{
    if (!cli_bin()) return;
    char path[512];
    snprintf(path, sizeof path, "%s/t.html", pl_test_dir());
    json_t *plan = json_loads(cli_run("$P plan " NET "--json --timeline %s", path).out, 0, NULL);
    const char *page = cli_read(path), *from = strstr(page, "id=\"plan\">");
    CHECK(plan && from && !strstr(page, "src=\"http") && !strstr(page, "@import") &&
          !strstr(page, "fetch("));

    from += strlen("id=\"plan\">");
    json_t *data = json_loads(from, JSON_DISABLE_EOF_CHECK, NULL);
    CHECK(data);

    json_t *positions = json_object_get(page_program(data), "steps");
    CHECK(json_array_size(positions) == (size_t)number(plan, "steps"));
    double most = 0;
    size_t i, buffers;
    json_t *row;
    json_array_foreach(positions, i, row) most =
        fmax(most, json_number_value(json_array_get(row, 0)));
    CHECK(most == number(plan, "live_bound_bytes"));
    CHECK(page_top(path, &buffers) == number(plan, "arena_bytes"));
    json_decref(plan);
    json_decref(data);
}

/* Each budget in a separate process: more memory is never slower. */
TEST(cli_plan_more_memory_is_not_slower)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) return;
    WANT_PLAIN();
    const char *net = pl_test_long() ? "cloud/full" : NET;
    char line[256];
    snprintf(line, sizeof line, "%s", net);
    json_t *j = planned(line, 0);
    double least = number(j, "minimum_bytes"), most = number(j, "total_bytes"), before = HUGE_VAL;
    int n = pl_test_long() ? 20 : 6;
    json_decref(j);
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "%s --memory %.0f", net, least + (most - least) * i / (n - 1));
        j = planned(line, 0);
        double ms = number(j, "predicted_step_ms");
        json_decref(j);
        CHECK_MSG(ms <= before, "%s: %.3f ms, less memory takes %.3f ms", line, ms, before);
        before = ms;
    }
}

/* A slow or busy machine makes the same plan: with a clock that runs a thousand times as fast,
 * nothing changes. */
static const char fast_source[] =
    "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n"
    "int clock_gettime(clockid_t c, struct timespec *t)\n"
    "{ if (syscall(SYS_clock_gettime, c, t)) return -1;\n"
    "  long long ns = (t->tv_sec % 1000000 * 1000000000LL + t->tv_nsec) * 1000;\n"
    "  t->tv_sec = ns / 1000000000; t->tv_nsec = ns % 1000000000; return 0; }\n";

TEST(cli_plan_does_not_depend_on_the_clock)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    WANT_PLAIN();
    char path[512], fast[1024];
    const char *d = pl_test_dir(), *cc = getenv("CC");

    snprintf(path, sizeof path, "%s/fast.c", d);
    CHECK(cli_write(path, fast_source));
    cli_result r = cli_run("%s -O1 -fPIC -shared -o %s/fast.so %s", cc ? cc : "cc", d, path);
    CHECK_MSG(r.code == 0, "%s", r.err);

    static const char *const ways[] = {"once", "twice"};
    for (int i = 0; i < 2; i++) {
#define PLAN "$P plan fluxflow/tiny gan.decode=%s threads=1 --json"
        json_t *calm = json_loads(cli_run(PLAN, ways[i]).out, 0, NULL);
        snprintf(fast, sizeof fast, "LD_PRELOAD=%s/fast.so " PLAN, d, ways[i]);
        json_t *hasty = json_loads(cli_run("%s", fast).out, 0, NULL);
#undef PLAN
        CHECK(calm && hasty);
        CHECK_MSG(number(hasty, "plan_ms") > 50 * number(calm, "plan_ms"), "the clock is not fast");
        CHECK_INT(number(hasty, "arena_bytes"), number(calm, "arena_bytes"));
        json_decref(calm);
        json_decref(hasty);
    }
}

/* The smaller of two processes' figures: they differ by a few pages. */
static double told_bytes(const char *args)
{
    json_t *a = planned(args, 0), *b = planned(args, 0);
    double least = number(a, "total_bytes") < number(b, "total_bytes") ? number(a, "total_bytes")
                                                                       : number(b, "total_bytes");
    json_decref(a), json_decref(b);
    return least;
}

/* The additional plans of --explain change no figure of this plan. */
TEST(cli_plan_with_explain_is_the_same_plan)
{
    if (!pl_test_long()) SKIP("long");
    WANT_PLAIN();
    if (!cli_bin()) SKIP("PL_BIN is not built");
    double plain = told_bytes("cloud/tiny"), explained = told_bytes("cloud/tiny --explain");
    CHECK_MSG(explained < plain + 450 * 1024, "%.0f bytes, explained %.0f", plain, explained);
}

/* Earlier plans of a search do not count against later ones: the largest batch that is printed
 * is close to the largest batch that a fresh process can plan. */
TEST(cli_plan_largest_batch_is_near_the_largest)
{
    WANT_PLAIN();
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    json_t *one = planned("cloud/demo batch=8", 0);
    char args[96];
    double budget = number(one, "total_bytes") + 0x1p20 * 12;

    snprintf(args, sizeof args, "cloud/demo --largest-batch --memory %.0f", budget);
    json_t *told = planned(args, 0);
    int batch = (int)number(told, "effective_batch"), beyond = batch + batch * 2 / 5;
    snprintf(args, sizeof args, "cloud/demo batch=%d --memory %.0f", batch, budget);
    json_t *fits = planned(args, 0);
    cli_result r = cli_run("$P plan cloud/demo batch=%d --memory %.0f", beyond, budget);

    CHECK_MSG(json_is_true(json_object_get(fits, "fits")) && r.code == 3,
              "batch %d is told, %d has room", batch, beyond);
    json_decref(one), json_decref(told), json_decref(fits);
}

/* 20,000 nodes take seconds. */
TEST(plan_of_a_large_network_searches_the_minimum_on_request_only)
{
    if (!pl_test_long()) SKIP("long: set PL_TEST_LONG");
    WANT_BIN();

    cli_result r = cli_run("$P plan lgt/tiny ode.steps=20 --json");
    CHECK_MSG(r.code == 0 && strstr(r.out, "\"minimum_bytes\":null"), "%d %s", r.code, r.err);

    r = cli_run("$P plan lgt/tiny ode.steps=20 --json --memory 1GB");
    CHECK_MSG(r.code == 0 && !strstr(r.out, "\"minimum_bytes\":null"), "%d %s", r.code, r.err);

    r = cli_run("$P plan lgt/tiny --json");
    CHECK_MSG(r.code == 0 && !strstr(r.out, "\"minimum_bytes\":null"), "%d %s", r.code, r.err);
}
