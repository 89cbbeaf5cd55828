/* test_fault_levels.c - runs whose tensors lie in a file below the CPU's memory: the disk fails,
 * and the process is killed. */
#include "rt/levels/ring.h"
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Eight layers of 1 MB, whose weights and moments move to a file in the folder "moves". begin()
 * writes the budget into the file "budget". */
#define NET                                                                                        \
 "regress/tiny batch=4 'model.widths=[512,512,512,512,512,512,512,512]' data.samples=16 "          \
 "data.eval_samples=4 eval.batches=1 threads=1 log.tensorboard=false checkpoint.every=2 "          \
 "train.steps=6 "
#define TRAIN  "train " NET "--quiet "
#define BUDGET "--memory $(cat budget) "
#define SMALL  BUDGET "--disk 1GB:moves "

/* The faults of fault.c meet pread and pwrite, which a ring does not call. */
static void allow_rings(bool on)
{
    setenv("PLIMSOLL_IO_URING", on ? "1" : "0", 1);
}

/* Returns the smallest budget of the run, as the plan tells it for these options; 0: none. */
static int64_t minimum(const char *options)
{
    cli_result r = cli_run("cd %s && $P plan " NET "--json %s", pl_test_dir(), options);
    json_t *plan = json_loads(r.out, 0, NULL);
    int64_t bytes = cli_member(plan, "minimum_bytes");
    json_decref(plan);
    return bytes;
}

/* A run without a budget, and a budget between the minimum with the file and the minimum without
 * it. Both differ from system to system, because its libraries count. */
static void begin(void)
{
    char text[32];
    CHECK_RUN(cli_run("cd %s && rm -rf moves run whole && mkdir moves && $P " TRAIN "--out whole",
                      pl_test_dir()),
              0, "");
    int64_t with = minimum("--memory 1MB --disk 1GB:moves"), without = minimum("");
    CHECK_MSG(with > 0 && with + 8000000 < without, "minimum with the file %lld, without %lld",
              (long long)with, (long long)without);
    snprintf(text, sizeof text, "%lld", (long long)(with + (without - with) / 5 * 3));
    CHECK(cli_write(pl_test_path("budget"), text));
}

/* Nothing is left in the folder, and the same command ends with the weights of a run that nothing
 * disturbed. */
static void resume(void)
{
    CHECK_RUN(cli_run("cd %s && test -z \"$(ls -A moves)\" && $P " TRAIN SMALL
                      "--out run && test -z \"$(ls -A moves)\" && cmp run/model.safetensors "
                      "whole/model.safetensors",
                      pl_test_dir()),
              0, "");
}

TEST(fault_levels_disk_errors_end_the_run_with_a_message)
{
    WANT_FAULTS();
    allow_rings(false);
    begin();
    const fault calls[] = {{"read", "moves/", 0, "fail"}, {"write", "moves/", 0, "fail"}};
    static const char *const says[] = {"disk: reading ", "disk: writing "};
    for (int i = pl_test_long() ? 0 : 1; i < 2; i++) {
        long n = fault_count(&calls[i], TRAIN SMALL "--out counted");
        CHECK(n > 50);
        /* plans of two processes may move different tensors: one of the first calls */
        fault f = {calls[i].kind, calls[i].name, 20, "fail"};

        cli_result r = fault_run(&f, TRAIN SMALL "--out run");

        CHECK_RUN(r, 1, says[i]);
        CHECK_RUN(r, 1, "checkpoints are not touched");
        resume();
        CHECK_RUN(cli_run("cd %s && rm -rf run counted", pl_test_dir()), 0, "");
    }
}

/* ---- io_uring ----------------------------------------------------------------------------- */
/* Runs the training with a liburing that has this fault (tests/fake/uring.c). */
static cli_result run_with_ring(const char *what)
{
    return cli_run(
        "cd %s && rm -rf run ran && LD_LIBRARY_PATH=%s/uring FAKE_URING=%s FAKE_URING_COUNT=ran "
        "$P " TRAIN SMALL "--out run",
        pl_test_dir(), cli_fakes(), what);
}

/* Requests that ran. */
static int requests(void)
{
    return (int)strlen(cli_read(pl_test_path("ran")));
}

#define WANT_RINGS()                                                                               \
 do {                                                                                              \
  WANT_FAULTS();                                                                                   \
  allow_rings(true);                                                                               \
  if (strstr(pl_ring_missing() ? pl_ring_missing() : "", "this build")) SKIP(pl_ring_missing());   \
  begin();                                                                                         \
  cli_result plain = run_with_ring("nothing");                                                     \
  CHECK_MSG(plain.code == 0, "%s", plain.err);                                                     \
  if (requests() <= 1) SKIP("this file system has no O_DIRECT"); /* one looks for rings */         \
 } while (0)

static void check_same_bits(const char *what, cli_result r)
{
    CHECK_MSG(r.code == 0, "%s: %d %s", what, r.code, r.err);
    r = cli_run("cd %s && cmp run/model.safetensors whole/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s: other bits", what);
}

/* Where the system refuses rings, or cannot read through them, threads read and write the file. */
TEST(fault_levels_run_with_threads_where_rings_do_not_work)
{
    WANT_RINGS();
    static const char *const whats[] = {"refused", "old"};
    for (int i = 0; i < 2; i++) {
        check_same_bits(whats[i], run_with_ring(whats[i]));
        CHECK_MSG(requests() == 0, "%s: %d requests", whats[i], requests());
    }
}

/* Transfers that end early, and requests that must be repeated, change nothing. */
TEST(fault_levels_repeat_requests_of_a_ring)
{
    WANT_RINGS();
    static const char *const whats[] = {"short", "busy"};
    for (int i = 0; i < 2; i++) {
        check_same_bits(whats[i], run_with_ring(whats[i]));
        CHECK_MSG(requests() > 50, "%s: %d requests", whats[i], requests());
    }
}

/* A request that fails, and a ring that no longer works, end the run with a message. */
TEST(fault_levels_errors_of_a_ring_end_the_run_with_a_message)
{
    WANT_RINGS();
    static const char *const whats[][2] = {{"failed", "Input/output error"},
                                           {"gone", "Operation not permitted"},
                                           {"full", "Resource temporarily unavailable"}};
    for (int i = 0; i < (pl_test_long() ? 3 : 2); i++) { /* "full" waits 10 s */
        cli_result r = run_with_ring(whats[i][0]);
        CHECK_RUN(r, 1, "disk: ");
        CHECK_RUN(r, 1, whats[i][1]);
        CHECK_RUN(r, 1, "checkpoints are not touched");
        CHECK_MSG(requests() > 10, "%s: %d requests", whats[i][0], requests());
        resume();
    }
}

/* A device with its own memory: tensors pass through host memory on their way to the file. */
TEST(fault_levels_disk_errors_below_the_host_end_the_run)
{
    WANT_FAULTS();
    allow_rings(false);
    const char *d = pl_test_dir();
    cli_result r = cli_run("cd %s && mkdir -p moves && $P plan " NET "device=apart --memory 16MB "
                           "--host-memory 300MB --disk 1GB:moves --json",
                           d);
    json_t *plan = json_loads(r.out, 0, NULL);
    int64_t host = cli_member(plan, "host_overhead_bytes") + 12600000;
    json_decref(plan);
    char run[512];
    snprintf(run, sizeof run,
             TRAIN "device=apart --memory 5MB --host-memory %lld --disk 1GB:moves --out run",
             (long long)host);
    fault f = {"write", "moves/", 60, "fail"};
    r = fault_run(&f, run);
    CHECK_RUN(r, 1, "disk: writing ");
    CHECK_RUN(cli_run("cd %s && test -z \"$(ls -A moves)\" && $P %s && $P " TRAIN
                      "device=apart --out whole && cmp run/model.safetensors "
                      "whole/model.safetensors",
                      d, run),
              0, "");
}

/* Kills a run at the calls of a kind on paths with that name. */
static void kill_at(const char *kind, const char *name)
{
    const fault calls = {kind, name, 0, "kill"};
    long n = fault_count(&calls, TRAIN SMALL "--out run");
    CHECK_MSG(n > 5, "%ld calls of %s", n, kind);
    CHECK_RUN(cli_run("cd %s && rm -rf run", pl_test_dir()), 0, "");
    for (long k = 1; k <= n; k += pl_test_long() ? 7 : n / 2 + 1) {
        fault f = {kind, name, k, "kill"};
        fault_run(&f, TRAIN SMALL "--out run");
        resume();
        CHECK_RUN(cli_run("cd %s && rm -rf run", pl_test_dir()), 0, "");
    }
}

TEST(fault_levels_a_killed_run_leaves_no_file_and_resumes)
{
    WANT_FAULTS();
    allow_rings(true);
    begin();
    kill_at("any", "run/");
    allow_rings(false);
    kill_at("read", "moves/");
}

TEST(fault_levels_a_folder_that_takes_no_file_is_refused)
{
    WANT_FAULTS();
    begin();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && $P " TRAIN BUDGET "--disk 1GB:nowhere --out run", d), 1,
              "disk: no file can be made in nowhere: No such file or directory");
    CHECK_RUN(cli_run("cd %s && $P " TRAIN BUDGET "--disk 1MB:moves --out run", d), 3,
              "does not fit");
    CHECK_RUN(cli_run("cd %s && $P " TRAIN BUDGET "--disk moves --out run", d), 2,
              "is not a size and a folder");
}
