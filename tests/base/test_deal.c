/* test_deal.c - tests dealt to several processes: sums, crashes, complete output, tests that run
 * alone.
 *
 * The samples are registered only where PL_TEST_SAMPLES is set, for a run of this program inside
 * itself. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void touch(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", getenv("PL_TEST_SAMPLES"), name);
    FILE *f = fopen(path, "w");
    if (f) fclose(f);
}

static bool there(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", getenv("PL_TEST_SAMPLES"), name);
    return access(path, F_OK) == 0;
}

/* Waits until the other test of a pair runs too: true only when both run at once. */
static bool meets(const char *me, const char *other)
{
    touch(me);
    for (int i = 0; i < 1000 && !there(other); i++) usleep(5000);
    return there(other);
}

static void sample_meet_a(void)
{
    printf("a begins\n");
    fflush(stdout);
    CHECK(meets("a", "b"));
    if (system("echo a goes on") != 0) pl_test_fail(__FILE__, __LINE__, "echo");
    printf("a ends\n");
}

static void sample_meet_b(void)
{
    printf("b begins\n");
    fflush(stdout);
    CHECK(meets("b", "a"));
    printf("b ends\n");
}

static void sample_wrong(void)
{
    CHECK_INT(1, 2);
}

/* A child that outlives its parent keeps everything that it inherited open. */
static void sample_killed(void)
{
    printf("last words\n");
    fflush(stdout);
    if (fork() == 0) {
        signal(SIGTERM, SIG_DFL);
        sleep(20);
        _exit(0);
    }
    raise(SIGKILL);
}

static void sample_leaves(void)
{
    _exit(3);
}

static void sample_skips(void)
{
    SKIP("as it should");
}

static void leave(void)
{
    printf("told at the end\n");
    fflush(stdout);
    _exit(66);
}

/* Like a sanitizer. */
static void sample_tells_late(void)
{
    CHECK(atexit(leave) == 0);
}

/* Beside another test it would find that test's mark. */
static void sample_alone(void)
{
    touch("alone");
    usleep(500000);
    CHECK(!there("late"));
}

static void sample_alone_not(void)
{
    touch("late");
    for (int i = 0; i < 200 && !there("alone"); i++) usleep(1000);
    char path[256];
    snprintf(path, sizeof path, "%s/late", getenv("PL_TEST_SAMPLES"));
    CHECK(!there("alone") && remove(path) == 0);
}

__attribute__((constructor)) static void samples(void)
{
    static pl_test_case all[] = {{"dealt_alone", "a", sample_alone, NULL, true},
                                 {"dealt_killed", "b", sample_killed, NULL, false},
                                 {"dealt_alone_not", "z", sample_alone_not, NULL, false},
                                 {"late_dealt", "b", sample_tells_late, NULL, false},
                                 {"dealt_leaves", "b", sample_leaves, NULL, false},
                                 {"dealt_meet_a", "b", sample_meet_a, NULL, false},
                                 {"dealt_meet_b", "b", sample_meet_b, NULL, false},
                                 {"dealt_skips", "b", sample_skips, NULL, false},
                                 {"dealt_wrong", "b", sample_wrong, NULL, false}};
    for (size_t i = 0; getenv("PL_TEST_SAMPLES") && i < sizeof all / sizeof *all; i++)
        pl_test_register(&all[i]);
}

static cli_result run_samples(const char *options)
{
    static char self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n > 0) self[n] = 0;
    return cli_run("PL_TEST_SAMPLES=%s %s %s", pl_test_dir(), self, options);
}

TEST(deal_continues_after_tests_that_die)
{
    cli_result r = run_samples("-j 2 -k dealt_");
    CHECK_MSG(r.code == 1 && strstr(r.out, "\n4 passed, 3 failed, 1 skipped\n"), "%d: %s", r.code,
              r.out);
    CHECK_MSG(strstr(r.out, "last words\ndealt_killed: ended by signal 9"), "%s", r.out);
    CHECK_MSG(strstr(r.out, "FAIL dealt_killed (") && r.seconds < 15, "%g s: %s", r.seconds, r.out);
    CHECK_MSG(
        strstr(r.out, "dealt_leaves: ended the test process with code 3\nFAIL dealt_leaves ("),
        "%s", r.out);
    CHECK_MSG(strstr(r.out, "1 = 1, wanted 2 = 2\nFAIL dealt_wrong ("), "%s", r.out);
}

/* Two tests at once, with the output of each in one piece; one test that runs alone. */
TEST(deal_runs_tests_in_parallel_except_marked_ones)
{
    cli_result r = run_samples("-j 2 -k dealt_meet");
    CHECK_MSG(r.code == 0 && strstr(r.out, "2 passed, 0 failed\n"), "%d: %s", r.code, r.out);
    CHECK_MSG(strstr(r.out, "a begins\na goes on\na ends\n") && strstr(r.out, "b begins\nb ends\n"),
              "%s", r.out);
    r = run_samples("-j 3 -k dealt_alone");
    CHECK_MSG(r.code == 0 && strstr(r.out, "2 passed, 0 failed\n"), "%d: %s", r.code, r.out);
}

TEST(deal_reports_failures_at_the_end_of_a_process)
{
    cli_result r = run_samples("-j 2 -k late_dealt");
    CHECK_MSG(r.code == 1 && strstr(r.out, "told at the end\nFAIL the end of a test process") &&
                  strstr(r.out, "1 passed, 1 failed\n"),
              "%d: %s", r.code, r.out);
}

/* Progress of a run, and at its end the slowest tests, slowest first. */
TEST(deal_lists_the_slowest_tests)
{
    cli_result r = run_samples("-j 2 -v --times -k dealt_alone");
    CHECK_MSG(r.code == 0 && strstr(r.out, "; 1 of 2)\n") && strstr(r.out, "; 2 of 2)\n"), "%d: %s",
              r.code, r.out);

    const char *rows = strstr(r.out, "; 2 of 2)\n") + strlen("; 2 of 2)\n"),
               *second = strchr(rows, '\n');
    CHECK_MSG(second && strtod(rows, NULL) > strtod(second, NULL) && strtod(second, NULL) > 0, "%s",
              r.out);
    CHECK_MSG(strstr(rows, " dealt_alone\n") && strstr(rows, " dealt_alone_not\n"), "%s", r.out);
}
