/* test_fault_folder.c - a run writes only into the folder that it locked. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

#define TRAIN "train " FAULT_NET "train.steps=4 checkpoint.every=1 "

/* While a run writes its second row, its folder is removed and another run takes the name. */
TEST(fault_a_run_whose_folder_was_taken_stops_and_touches_nothing)
{
    WANT_FAULTS();
    setenv("FAULT_RUN",
           "rm -rf run && $P " TRAIN "seed=2 --out run && find run -type f | xargs md5sum > sums",
           1);

    cli_result r = fault_run(&(fault){"write", "run/metrics.csv", 4, "run"}, TRAIN "--out run");
    unsetenv("FAULT_RUN");

    CHECK_MSG(r.code == 6 && strstr(r.err, "removed, moved or replaced"), "exit code %d: %s",
              r.code, r.err);
    r = cli_run("cd %s && md5sum -c --quiet sums && find run -type f | wc -l && wc -l < sums",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
    char *end;
    long files = strtol(r.out, &end, 10);
    CHECK_INT(files, strtol(end, NULL, 10));
}

/* The folder is gone, and nobody has made another: the run does not make it again. */
TEST(fault_a_run_whose_folder_was_removed_does_not_make_it_again)
{
    WANT_FAULTS();
    setenv("FAULT_RUN", "rm -rf run", 1);
    cli_result r = fault_run(&(fault){"write", "run/metrics.csv", 4, "run"}, TRAIN "--out run");
    unsetenv("FAULT_RUN");
    CHECK_MSG(r.code == 6, "exit code %d: %s", r.code, r.err);
    CHECK_INT(cli_run("ls %s/run", pl_test_dir()).code, 2);
}
