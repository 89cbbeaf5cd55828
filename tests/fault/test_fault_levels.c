/* test_fault_levels.c - runs whose tensors lie in a file below the CPU's memory: the disk fails,
 * and the process is killed. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

/* Eight layers of 1 MB, whose weights and moments move to a file in the folder "moves". 44 MB is
 * less than the run takes without the file. */
#define NET                                                                                        \
 "regress/tiny batch=4 'model.widths=[512,512,512,512,512,512,512,512]' data.samples=16 "          \
 "data.eval_samples=4 eval.batches=1 threads=1 log.tensorboard=false checkpoint.every=2 "          \
 "train.steps=6 --quiet "
#define SMALL "--memory 44MB --disk 1GB:moves "

static void begin(void)
{
    CHECK_RUN(cli_run("cd %s && rm -rf moves run whole && mkdir moves && $P train " NET
                      "--out whole",
                      pl_test_dir()),
              0, "");
}

/* Nothing is left in the folder, and the same command ends with the weights of a run that nothing
 * disturbed. */
static void resume(void)
{
    CHECK_RUN(cli_run("cd %s && test -z \"$(ls -A moves)\" && $P train " NET SMALL
                      "--out run && test -z \"$(ls -A moves)\" && cmp run/model.safetensors "
                      "whole/model.safetensors",
                      pl_test_dir()),
              0, "");
}

TEST(fault_levels_disk_errors_end_the_run_with_a_message)
{
    WANT_FAULTS();
    begin();
    const fault calls[] = {{"read", "moves/", 0, "fail"}, {"write", "moves/", 0, "fail"}};
    static const char *const says[] = {"disk: reading ", "disk: writing "};
    for (int i = pl_test_long() ? 0 : 1; i < 2; i++) {
        long n = fault_count(&calls[i], "train " NET SMALL "--out counted");
        CHECK(n > 50);
        /* plans of two processes may move different tensors: one of the first calls */
        fault f = {calls[i].kind, calls[i].name, 20, "fail"};

        cli_result r = fault_run(&f, "train " NET SMALL "--out run");

        CHECK_RUN(r, 1, says[i]);
        CHECK_RUN(r, 1, "checkpoints are not touched");
        resume();
        CHECK_RUN(cli_run("cd %s && rm -rf run counted", pl_test_dir()), 0, "");
    }
}

TEST(fault_levels_a_killed_run_leaves_no_file_and_resumes)
{
    WANT_FAULTS();
    begin();
    const fault reads = {"read", "moves/", 0, "kill"};
    long n = fault_count(&reads, "train " NET SMALL "--out counted");
    for (long k = 1; k <= n; k += pl_test_long() ? 7 : n / 2 + 1) {
        fault f = {"read", "moves/", k, "kill"};
        fault_run(&f, "train " NET SMALL "--out run");
        resume();
        CHECK_RUN(cli_run("cd %s && rm -rf run", pl_test_dir()), 0, "");
    }
}

TEST(fault_levels_a_folder_that_takes_no_file_is_refused)
{
    WANT_FAULTS();
    begin();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run("cd %s && $P train " NET "--memory 44MB --disk 1GB:nowhere --out run", d), 1,
              "disk: no file can be made in nowhere: No such file or directory");
    CHECK_RUN(cli_run("cd %s && $P train " NET "--memory 44MB --disk 1MB:moves --out run", d), 3,
              "does not fit");
    CHECK_RUN(cli_run("cd %s && $P train " NET "--memory 44MB --disk moves --out run", d), 2,
              "is not a size and a folder");
}
