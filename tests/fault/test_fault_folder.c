/* test_fault_folder.c - a run writes only into the folder that it locked. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* In a folder that others can write, a link of another user does not lead the log to another file;
 * a link of the user's own does. */
TEST(fault_a_link_of_another_user_is_not_written_through)
{
    WANT_BIN();
    static const char *const names[] = {"log.jsonl", "metrics.csv", "eval.csv"};
    if (geteuid() != 0) SKIP("only root can make the link of another user");
    for (int own = 0; own < 2; own++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            cli_result r =
                cli_run("cd %s && rm -rf run other && mkdir run && echo whole > other && ln -s "
                        "$PWD/other run/%s && chown -h %d run/%s; $P train " FAULT_NET
                        "train.steps=1 eval.every=1 --out run; c=$?; grep -qx whole other || "
                        "echo changed; exit $c",
                        pl_test_dir(), names[i], own ? 0 : 65534, names[i]);
            CHECK_MSG(r.code == !own && !strstr(r.out, "changed") == !own, "%s: %d: %s%s", names[i],
                      r.code, r.out, r.err);
        }
}
