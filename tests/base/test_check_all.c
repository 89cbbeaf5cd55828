/* test_check_all.c - parts of make test, make check-all and tools/gpu/sanitize: which programs
 * hang and which are only slow, whether a stage finds its compiler, how a checker's output is
 * read. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A program that gets `share` of a core, checked once a second: the second at which it counts as
 * hung, -1 for never. */
static int told_at(double share, int seconds)
{
    cli_watch w = {0};
    for (int t = 1; t <= seconds; t++)
        if (cli_hangs(&w, t, share * t, 300)) return t;
    return -1;
}

TEST(check_all_reports_hung_programs_and_not_slow_ones)
{
    CHECK_INT(told_at(0.05, 3000), -1); /* twenty programs on each core */
    CHECK_INT(told_at(0.05, 11000), 3001);
    CHECK_INT(told_at(1, 599), -1);
    CHECK_INT(told_at(0, 11000), 301);
    CHECK_INT(told_at(0.005, 11000), 301); /* polls now and then for an event */
    CHECK_INT(told_at(2, 11000), 301);

    cli_watch w = {0};
    for (int t = 1; t <= 900; t++)
        CHECK(!cli_hangs(&w, t, t < 250 ? t : 250 + 0.1 * (t - 250), 300));
    /* it did not sleep one whole interval */
    for (int t = 901; t <= 1200; t++) CHECK(!cli_hangs(&w, t, 315, 300));
    bool told = false;
    for (int t = 1201; t <= 1600; t++) told |= cli_hangs(&w, t, 315, 300);
    CHECK(told);
}

/* The time of a group includes the processes that it waited for, and no others. */
TEST(check_all_core_seconds_of_a_group_are_counted)
{
    int ready[2];

    CHECK_INT(pipe(ready), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        pid_t child = fork();
        while (clock() < CLOCKS_PER_SEC / 5) {
        }
        if (child == 0) _exit(0);
        waitpid(child, NULL, 0);
        _exit(write(ready[1], "", 1) == 1 && pause());
    }
    char c;
    CHECK_INT(read(ready[0], &c, 1), 1);

    enum { NO_GROUP = 1 << 30 }; /* above every process number */
    double used = cli_used(pid), other = cli_used(NO_GROUP);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    CHECK_MSG(used >= 0.35 && used < 5, "used %g s of a core", used);
    CHECK_MSG(other == 0, "another group used %g s", other);
}

/* Called directly or by make: the stage asks make, so both find the same tools. */
TEST(check_all_gpu_stage_asks_make_for_the_plugin)
{
    if (!pl_test_long()) SKIP("long");
    if (access("tools/check-all", X_OK) != 0 || access("Makefile", R_OK) != 0)
        SKIP("no sources here");
    char path[512];
    snprintf(path, sizeof path, "%s/make", pl_test_dir());
    CHECK(cli_write(
        path, "#!/bin/sh\ncase \"$*\" in *show*) exec make \"$@\" ;; esac\necho asked: \"$@\"\n"));
    CHECK_INT(chmod(path, 0755), 0);

    cli_result r = cli_run(
        "mkdir %s/include && touch %s/include/cublasLt.h %s/include/cudnn.h %s/include/nvrtc.h; "
        "unset PLUGIN MAKEFLAGS; NVCC=true CUDA_HOME=%s MAKE=%s tools/check-all --stage cards",
        pl_test_dir(), pl_test_dir(), pl_test_dir(), pl_test_dir(), pl_test_dir(), path);
    CHECK_MSG(r.code == 0 && strstr(r.out, "asked: DEV=1 CUDA_ARCHS=all "), "code %d: %s%s", r.code,
              r.out, r.err);

    r = cli_run("unset PLUGIN MAKEFLAGS; CUDA_HOME= MAKE=%s tools/check-all --stage cards", path);
    CHECK_MSG(r.code == 2 && strcmp(r.out, "no nvcc here\n") == 0, "code %d: %s%s", r.code, r.out,
              r.err);
}

/* The path of this program. */
static const char *self(void)
{
    static char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

/* The whole name, not names that only begin like it. */
TEST(check_all_runs_one_test_by_its_name)
{
    cli_result r = cli_run("%s -l -k =device_ops_match_the_cpu", self());
    CHECK_MSG(r.code == 0 && strcmp(r.out, "device_ops_match_the_cpu\n") == 0, "code %d: %s%s",
              r.code, r.out, r.err);
    r = cli_run("%s -l -k device_ops_match_the_cpu", self());
    CHECK_MSG(r.code == 0 && strstr(r.out, "device_ops_match_the_cpu\n") &&
                  strstr(r.out, "device_ops_match_the_cpu_beyond_32_bits\n"),
              "code %d: %s%s", r.code, r.out, r.err);
}

/* The shares of cases that the parts of a checker get are disjoint and complete. */
TEST(check_all_parts_share_every_case_once)
{
    if (!pl_test_long()) SKIP("long");
    int sum = 0, all = 0, checked = 0;

    for (int i = 0; i < 3; i++) {
        cli_result r =
            cli_run("PL_TEST_DEVICE=apart PL_DEVICE_CASES='%d 3' %s -k =device_ops_match_the_cpu",
                    i, self());
        const char *told = strstr(r.out, "checked ");
        CHECK_MSG(r.code == 0 && told &&
                      sscanf(told, "checked %d of %d cases", &checked, &all) == 2,
                  "code %d: %s%s", r.code, r.out, r.err);
        CHECK_MSG(abs(3 * checked - all) < 3, "share %d has %d of %d", i, checked, all);
        sum += checked;
    }
    CHECK_INT(sum, all);
    CHECK(all > 500);
}

/* A stand-in for the checker: the result of a share depends on its number. */
static const char CHECKER[] =
    "#!/bin/sh\n"
    "echo ========= COMPUTE-SANITIZER\n"
    "case \"$PL_DEVICE_CASES$PL_DEVICE_GROUPS\" in\n"
    "'0 5') echo '========= RACECHECK SUMMARY: 0 hazards displayed'; exit 0 ;;\n"
    "'1 5') echo '========= Error: Race reported between Write access at void cudnn::kernel+0x10'\n"
    "       echo '=========     and Read access at void cutlass::kernel+0x20 [512 hazards]'; exit 99 ;;\n"
    "'2 5') echo '========= Error: Race reported between Write access at void cudnn::kernel+0x10'\n"
    "       echo '=========     and Read access at pl_group+0x20 [512 hazards]'; exit 99 ;;\n"
    "'3 5') sleep 30 ;;\n"
    "'4 5') echo \"no case is this share's\"; exit 255 ;;\n"
    "esac\n"
    "exit 7\n";

TEST(check_all_sanitizer_reports_are_counted)
{
    if (access("tools/gpu/sanitize", X_OK) != 0) SKIP("no sources here");
    char path[512];

    snprintf(path, sizeof path, "%s/checker", pl_test_dir());
    CHECK(cli_write(path, CHECKER));
    CHECK_INT(chmod(path, 0755), 0);
    cli_result r = cli_run(
        "SANITIZER=%s PARTS=5 JOBS=5 LIMIT=5 WHAT=groups tools/gpu/sanitize nowhere racecheck",
        path);
    CHECK_MSG(
        r.code == 1 &&
            strstr(
                r.out,
                "groups, 5 of 5 parts 1 clean 1 library (groups1) 1 empty 1 errors (groups2) 1 unfinished "
                "(groups3)\n"),
        "code %d: %s%s", r.code, r.out, r.err);
    CHECK_MSG(
        strstr(r.out, "groups2: =========     and Read access at pl_group+0x20 [512 hazards]\n") &&
            strstr(r.out, "sanitize: 1 parts with errors, 1 not done in 5 s\n"),
        "%s", r.out);

    r = cli_run("SANITIZER=%s PARTS=5 WHAT=ops OPS='0 1' tools/gpu/sanitize nowhere racecheck",
                path);
    CHECK_MSG(r.code == 0 && strstr(r.out, "ops, 2 of 5 parts  1 clean 1 library (ops1)\n") &&
                  strstr(r.out, "sanitize: nothing found\n"),
              "code %d: %s%s", r.code, r.out, r.err);

    r = cli_run("SANITIZER=%s PARTS=6 WHAT=ops OPS=3 tools/gpu/sanitize nowhere memcheck", path);
    CHECK_MSG(r.code == 1 && strstr(r.out, "1 could not run"), "code %d: %s%s", r.code, r.out,
              r.err);
}

/* Every program in tools/ explains itself with --help and does nothing else. */
TEST(check_all_every_tool_has_help)
{
    if (access("tools/deps", X_OK) != 0) SKIP("no sources here");
    cli_result r =
        cli_run("n=0; for t in $(find tools -type f -perm -u+x); do n=$((n + 1)); "
                "case $(sed -n 1p $t) in *python3) command -v python3 >/dev/null || continue ;; "
                "*/bash) command -v bash >/dev/null || continue ;; esac; "
                "$t --help </dev/null | sed -n 1p | grep -qE \"^(usage: )?$(basename $t .py)\" || "
                "echo \"$t: no help\"; "
                "done; echo $n tools");
    int n = 0;

    CHECK_MSG(r.code == 0 && sscanf(r.out, "%d tools", &n) == 1 && n > 15, "code %d: %s%s", r.code,
              r.out, r.err);
}

/* Writes the PTX and sm_ targets that the build asks nvcc for, for two files: one with kernels on
 * tensor cores, which are launched from 8.0 on, and one without. */
static cli_result targets_of(const char *archs)
{
    return cli_run("env -u MAKEFLAGS -u MAKELEVEL make -j1 -n -B CUDA_HOME=/none NVCC=true %s "
                   "BUILD=build/none build/none/src/cuda/attention/attention_mma.cu.o "
                   "build/none/src/cuda/ops/sort.cu.o | "
                   "grep -oE 'arch=compute_[0-9]*,code=[a-z]*_[0-9]*' | tr '\\n' ' '",
                   archs);
}

TEST(check_all_gpus_that_the_build_does_not_name_run_ptx)
{
    if (access("Makefile", R_OK) != 0) SKIP("no sources here");
    cli_result r = targets_of("CUDA_ARCHS=90");
    CHECK_MSG(strcmp(r.out, "arch=compute_80,code=compute_80 arch=compute_80,code=sm_90 "
                            "arch=compute_80,code=compute_80 arch=compute_80,code=sm_90 ") == 0,
              "%s", r.out);

    r = targets_of("CUDA_ARCHS='75 90'");
    CHECK_MSG(strcmp(r.out, "arch=compute_80,code=compute_80 arch=compute_75,code=sm_75 "
                            "arch=compute_80,code=sm_90 arch=compute_75,code=compute_75 "
                            "arch=compute_75,code=sm_75 arch=compute_90,code=sm_90 ") == 0,
              "%s", r.out);
}
