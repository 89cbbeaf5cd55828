/* test_fault_ranks.c - a run with two ranks in which one process is killed, or cannot send, at its
 * k-th message: of MPI, or of the control channel. All processes end, and the same command gives
 * the bits of an undisturbed run. `make check-all` tries every k. */
#include "tests/dist/ranks_cli.h"
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RANKED                                                                                     \
 "train regress/tiny batch=4 'model.widths=[2]' data.samples=16 data.eval_samples=4 "              \
 "eval.batches=1 threads=1 log.tensorboard=false train.steps=3 checkpoint.every=1 "                \
 "rank_timeout=20s --quiet --ranks 2 --out "

/* Sets which process has the fault; -2: none is named. */
static void set_rank(int rank)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    if (rank < -1)
        unsetenv("FAULT_RANK");
    else
        setenv("FAULT_RANK", text, 1);
}

/* Whether a process of the run is left, after at most 10 s. */
static bool stays(void)
{
    return cli_run("for i in $(seq 100); do ps -eo stat=,args= | grep -v '^Z' | grep -v grep | "
                   "grep -q 'out %s/run' || exit 1; sleep 0.1; done",
                   pl_test_dir())
               .code == 0;
}

/* One fault in one process; rank -1: the process that was started. */
static bool survives(const fault *f, int rank)
{
    char args[1024];
    snprintf(args, sizeof args, RANKED "%s/run", pl_test_dir());
    cli_run("rm -rf %s/run", pl_test_dir());
    set_rank(rank);
    int first = fault_run(f, args).code;
    set_rank(-2);
    bool left = stays();
    cli_result r = fault_free(args);
    bool same = cli_same("whole/model.safetensors", "run/model.safetensors");
    if (!left && r.code == 0 && same && (first == 0 || first == 8 || first == 137)) return true;
    pl_test_fail(__FILE__, __LINE__,
                 "%s %ld of rank %d, %s: exit code %d, then %d, %s bits, %s: %s", f->kind, f->k,
                 rank, f->what, first, r.code, same ? "the same" : "other",
                 left ? "processes stay" : "no process stays", r.err);
    return false;
}

TEST(fault_ranks_survive_a_fault_at_any_message)
{
    WANT_FAULTS();
    WANT_RANKS();
    static const struct {
        const char *kind, *what;
        int rank;
    } rows[] = {{"message", "kill", 1}, {"message", "kill", 0}, {"message", "fail", 1},
                {"send", "kill", 0},    {"send", "kill", -1},   {"send", "always", 1}};
    char args[1024];
    CHECK_RUN(fault_free(RANKED "whole"), 0, "");
    for (size_t i = 0; i < (pl_test_long() ? sizeof rows / sizeof *rows : 1); i++) {
        fault f = {rows[i].kind, "", 0, rows[i].what};
        snprintf(args, sizeof args, RANKED "%s/run", pl_test_dir());
        cli_run("rm -rf %s/run", pl_test_dir());
        set_rank(rows[i].rank);
        long n = fault_count(&f, args);
        set_rank(-2);
        CHECK_MSG(n > 4, "%ld calls of kind %s by rank %d", n, rows[i].kind, rows[i].rank);
        for (f.k = pl_test_long() ? 1 : 1 + n / 2; f.k <= n; f.k += pl_test_long() ? 1 : n)
            if (!survives(&f, rows[i].rank)) return;
    }
}

/* Rank 1 has no memory to read its program for the comparison with rank 0: it says so, and does not
 * blame its program or its configuration. */
TEST(fault_a_rank_without_memory_does_not_blame_its_configuration)
{
    WANT_FAULTS();
    WANT_RANKS();
    struct stat st;
    char bytes[32];
    CHECK(stat(cli_bin(), &st) == 0);
    snprintf(bytes, sizeof bytes, "%lld", (long long)st.st_size + 1);
    setenv("FAULT_BYTES", bytes, 1);
    set_rank(1);
    cli_result r = fault_run(&(fault){"alloc", "", 1, "fail"}, RANKED "run");
    set_rank(-2);
    unsetenv("FAULT_BYTES");
    CHECK_MSG(r.code == 1 || r.code == 8, "exit code %d: %s", r.code, r.err);
    CHECK_MSG(strstr(r.err, "memory") && !strstr(r.err, "has another"), "%s", r.err);
}

/* What fails on one rank alone before training ends all ranks: they do not wait for each other. */
TEST(fault_ranks_do_not_wait_for_one_that_cannot_begin)
{
    WANT_FAULTS();
    WANT_RANKS();
    CHECK_RUN(
        cli_run("cd %s && timeout 60 $P " RANKED "run \"on_end=echo 'not closed\"", pl_test_dir()),
        2, "a quote is not closed");
    if (!pl_test_long()) return;
    setenv("FAULT_RANK", "0", 1); /* its first message finds the ranks of the machine */
    cli_result r = cli_run("cd %s && FAULT_KIND=message FAULT_AT=1 FAULT_DO=fail LD_PRELOAD=%s "
                           "timeout 60 $P " RANKED "run",
                           pl_test_dir(), fault_library());
    set_rank(-2);
    CHECK_MSG(r.code == 8 && strstr(r.err, "MPI_Comm_split_type"), "%d: %s", r.code, r.err);
}
