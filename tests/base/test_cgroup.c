/* test_cgroup.c - limits of containers, in folders laid out like the kernel's. */
#include "base/sys.h"
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs shell commands in the test's folder, which make the files; reads the limits. */
static pl_cgroup limits_of(const char *commands)
{
    char self[600], root[600];
    pl_cgroup c;
    cli_run("cd %s && rm -rf fs self && mkdir fs && { %s; }", pl_test_dir(), commands);
    snprintf(self, sizeof self, "%s/self", pl_test_dir());
    snprintf(root, sizeof root, "%s/fs", pl_test_dir());
    pl_cgroup_read(self, root, &c);
    return c;
}

TEST(cgroup_version_2_takes_the_smallest_limit_up_the_tree)
{
    pl_cgroup c =
        limits_of("echo 0::/a/b/c > self; mkdir -p fs/a/b/c; echo max > fs/a/b/c/memory.max; "
                  "echo 4000000000 > fs/a/b/memory.max; echo 9000000000 > fs/a/memory.max; "
                  "echo '150000 100000' > fs/a/cpu.max; echo 'max 100000' > fs/a/b/cpu.max");

    CHECK(c.memory_bytes == 4000000000u && c.version == 2);
    CHECK_NEAR(c.cpus, 1.5, 1e-12);
    CHECK_MSG(strstr(c.memory_path, "/fs/a/b") && !strstr(c.memory_path, "/c"), "%s",
              c.memory_path);

    /* A container sees its own group as the root. */
    c = limits_of(
        "echo 0::/ > self; echo 512000000 > fs/memory.max; echo '50000 100000' > fs/cpu.max");
    CHECK(c.memory_bytes == 512000000u && c.cpus == 0.5);

    c = limits_of("echo 0::/host/only > self; echo 512000000 > fs/memory.max");
    CHECK_INT(c.memory_bytes, 512000000);
}

TEST(cgroup_version_1_and_the_mixture_are_read)
{
    pl_cgroup c = limits_of(
        "printf '5:cpu,cpuacct:/d/x\\n4:memory:/d/x\\n1:name=systemd:/\\n' > self; "
        "mkdir -p fs/memory/d/x fs/cpu,cpuacct/d/x; echo 3000000000 > fs/memory/d/x/memory.limit_in_bytes; "
        "echo 9223372036854771712 > fs/memory/memory.limit_in_bytes; "
        "echo 300000 > fs/cpu,cpuacct/d/x/cpu.cfs_quota_us; echo 100000 > fs/cpu,cpuacct/d/x/cpu.cfs_period_us; "
        "echo -1 > fs/cpu,cpuacct/cpu.cfs_quota_us; echo 100000 > fs/cpu,cpuacct/cpu.cfs_period_us");

    CHECK(c.memory_bytes == 3000000000u && c.version == 1);
    CHECK_NEAR(c.cpus, 3, 1e-12);

    /* memory of version 1, CPU quota of version 2 */
    c = limits_of("printf '4:memory:/m\\n0::/u\\n' > self; mkdir -p fs/memory/m fs/unified/u; "
                  "echo 700000000 > fs/memory/m/memory.limit_in_bytes; "
                  "echo '200000 100000' > fs/unified/u/cpu.max");
    CHECK(c.memory_bytes == 700000000u && c.cpus == 2);
}

TEST(cgroup_without_limits_or_files_sets_no_limit)
{
    pl_cgroup c = limits_of("true");
    CHECK(!c.memory_bytes && c.cpus == 0 && !c.memory_path[0]);

    c = limits_of("printf '0::/\\nrubbish\\n7:\\n9:memory\\n' > self; echo max > fs/memory.max; "
                  "echo 'max 100000' > fs/cpu.max");
    CHECK(!c.memory_bytes && c.cpus == 0);

    c = limits_of("echo 4:memory:/ > self; mkdir fs/memory; "
                  "echo 9223372036854771712 > fs/memory/memory.limit_in_bytes");
    CHECK(!c.memory_bytes);

    /* a path longer than any buffer: the root's limit */
    c = limits_of("printf 0:: > self; printf '/abcdefgh%.0s' $(seq 90) >> self; "
                  "echo 1000000 > fs/memory.max");
    CHECK_INT(c.memory_bytes, 1000000);
}

TEST(cgroup_limits_threads_budgets_and_reported_memory)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    WANT_PLAIN();
    cli_result r =
        cli_run("cd %s && mkdir -p fs/box && echo 0::/box > self && "
                "echo 200000000 > fs/box/memory.max && echo 90000000 > fs/box/memory.current && "
                "echo 'inactive_file 30000000' > fs/box/memory.stat && "
                "echo '100000 100000' > fs/box/cpu.max && env -u PL_THREADS -u "
                "OMP_NUM_THREADS PLIMSOLL_CGROUP=$PWD $P devices --json",
                pl_test_dir());

    CHECK_MSG(r.code == 0 && strstr(r.out, " 1 threads") && strstr(r.out, "container: 1 of ") &&
                  strstr(r.out, "\"total_bytes\":200000000,\"free_bytes\":140000000"),
              "%s%s", r.out, r.err);
#define BOX "cd %s && PLIMSOLL_CGROUP=$PWD $P "

    r = cli_run(BOX "train cloud/tiny train.steps=1 --memory 300MB", pl_test_dir());
    CHECK_MSG(r.code == 3 && strstr(r.err, "container") && !strstr(r.err, "loss"), "%d %s", r.code,
              r.err);

    r = cli_run(BOX "train cloud/tiny train.steps=1 --memory 150MB --quiet", pl_test_dir());
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);

    /* without a budget, a plan above the limit is refused; `plan` is not, because it may be for
     * another machine */
    r = cli_run(BOX "plan cloud/tiny --memory 300MB", pl_test_dir());
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = cli_run("cd %s && echo 20000000 > fs/box/memory.max && " BOX
                "train cloud/tiny train.steps=1",
                pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 3 && strstr(r.err, "the free memory of the container"), "%d %s", r.code,
              r.err);

    /* the memory that a run shows, and warns about, is the container's */
    r = cli_run(
        "cd %s && echo 200000000 > fs/box/memory.max && echo 228000000 > fs/box/memory.current && " BOX
        "train cloud/tiny train.steps=1 --memory 180MB",
        pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.err, " (99 %)"), "%d %s", r.code, r.err);
}

/* Ranks of one container share its limit: what one may use, two may not. */
TEST(cgroup_limits_the_budgets_of_all_ranks_together)
{
    WANT_BIN();
    WANT_PLAIN();
    WANT_RANKS();
    cli_run("cd %s && mkdir -p fs/box && echo 0::/box > self && "
            "echo 200000000 > fs/box/memory.max && echo 9000000 > fs/box/memory.current",
            pl_test_dir());

    cli_result r = cli_run(
        BOX "train " CLI_SMALL
            "batch=4 accumulate_coupled=true train.steps=1 --memory 150MB --ranks 2 --quiet",
        pl_test_dir());
    CHECK_MSG(r.code == 3 &&
                  strstr(r.err, "memory=150.0 MB for each of 2 ranks, 300.0 MB together, "
                                "is more than this container may use: its limit is 200.0 MB"),
              "%d %s", r.code, r.err);

    r = cli_run(BOX "train " CLI_SMALL
                    "batch=4 accumulate_coupled=true train.steps=1 --memory 90MB --ranks 2 --quiet",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
}
