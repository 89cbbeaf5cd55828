/* test_fault_host.c - limits of the machine, the container and the process; names and numbers from
 * outside. */
#include "dist/control.h"
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#define IN "cd %s && "

TEST(fault_a_small_stack_is_raised_or_refused)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "ulimit -S -s 64 && $P train " FAULT_NET "train.steps=1", d), 0, "");
    CHECK_RUN(cli_run(IN "ulimit -s 64 && $P train " FAULT_NET "train.steps=1", d), 3,
              "the limit of the stack is 64 KiB (ulimit -s)");
}

/* oneDNN crashes when it has no memory for a kernel: such limits are refused before. */
TEST(fault_limits_without_room_for_kernels_are_refused)
{
    WANT_BIN();
    static const char *const limits[] = {"-v 60000", "-v 75000", "-d 10000", "-d 25000"};
    for (int i = 0; i < 4; i++)
        CHECK_RUN(cli_run(IN "ulimit %s && $P train cloud/tiny train.steps=1 threads=1 --quiet",
                          pl_test_dir(), limits[i]),
                  3, "raise it");
}

/* Ranges for pictures are reserved, not used: the message names the key that makes them smaller. */
TEST(fault_a_limit_of_address_space_below_the_largest_picture_is_refused)
{
    WANT_FAULTS(); /* a sanitizer takes more address space */
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "$P generate classify/tiny side=16 --raw --out set --samples 8 "
                         "--eval-samples 8 --quiet",
                      d),
              0, "");
    for (int off = 0; off < 2; off++) {
#define PICTURES                                                                                   \
 "ulimit -v 280000 && $P train classify/tiny side=16 data.path=set batch=4 train.steps=1 "         \
 "threads=1 data.workers=1 data.sandbox=%s --quiet "
        const char *sandbox = off ? "off" : "auto";
        CHECK_RUN(cli_run(IN PICTURES, d, sandbox), 3, "(ulimit -v)");
        CHECK_RUN(cli_run(IN PICTURES "data.max_pixels=1000000", d, sandbox), 0, "");
    }
}

/* Without --memory the budget is what there is. */
TEST(fault_a_run_without_a_budget_is_planned_for_the_memory_that_is_there)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "$P train " CLI_SMALL "train.steps=1 threads=1", d), 0,
              "fits the budget of ");
    CHECK_RUN(cli_run(IN "ulimit -v 2000000 && PLIMSOLL_CGROUP=$PWD/none $P train " CLI_SMALL
                         "batch=4000000 train.steps=1 threads=1 --quiet",
                      d),
              3, "the limit of address space (ulimit -v)");
    CHECK_RUN(cli_run(IN "mkdir -p fs/box && echo 0::/box > self && echo 1000000000000 > "
                         "fs/box/memory.max && echo 300000000 > fs/box/memory.high && "
                         "PLIMSOLL_CGROUP=$PWD $P train " CLI_SMALL
                         "batch=4000000 train.steps=1 threads=1 --quiet",
                      d),
              3, "the free memory of the container");
    /* pages that count for another container do not raise the budget above the limit */
    CHECK_RUN(
        cli_run(IN "echo 104857600 > fs/box/memory.max && PLIMSOLL_CGROUP=$PWD $P train " CLI_SMALL
                   "train.steps=1 threads=1",
                d),
        0, "fits the budget of 100.0 MiB, the free memory of the container");
    /* where the tests run in a container, its limit would be told instead */
    CHECK_RUN(cli_run(IN "PLIMSOLL_CGROUP=$PWD/none $P train " CLI_SMALL
                         "batch=4000000 'model.channels=[2000, 2, 2]' train.steps=1 threads=1 "
                         "--memory 900TB --quiet",
                      d),
              3, "the memory of this machine, with swap");
}

TEST(fault_numbers_that_are_none_are_refused)
{
    WANT_BIN();
    static const char *const ranks[] = {"2abc", "99999999999", "0", "-1", "", "65537"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        CHECK_RUN(cli_run("$P train " CLI_SMALL "--ranks '%s'", ranks[i]), 2, "--ranks ");
    CHECK_RUN(cli_run("$P train " FAULT_NET "train.steps=1 threads=$(($(nproc) + 1)) | cat"), 0,
              "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 threads=$(($(nproc) + 1))"), 0,
              "wait for each other");
}

static int open_hubs(void)
{
    pl_hub *h;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){256, 256});
    if (pl_hub_new(65536, false, &h) != PL_ERR_PEER || !strstr(pl_error_text(), "ulimit -n"))
        return 1;
    if (pl_hub_new(150, false, &h) != PL_OK) return 2; /* fewer seats than twice the ranks */
    bool over = pl_hub_tend(h, 0);
    pl_hub_free(h);
    return over ? 3 : 0;
}

TEST(fault_more_ranks_than_open_files_are_refused)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) _exit(open_hubs());
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* Thousands of ranks are refused before the first one takes memory. */
TEST(fault_more_ranks_than_memory_are_refused)
{
    WANT_BIN();
    CHECK_RUN(cli_run(IN "mkdir -p fs/box && echo 0::/box > self && echo 20000000 > "
                         "fs/box/memory.max && PLIMSOLL_CGROUP=$PWD $P train " FAULT_NET
                         "train.steps=1 --ranks 3",
                      pl_test_dir()),
              3, "start at most 2");
}

/* Another user answers in place of rank 0 of torchrun: the follower does not believe it. */
TEST(fault_a_follower_of_torchrun_believes_only_its_own_user)
{
    WANT_BIN();
    if (getuid() != 0) SKIP("needs root, to be another user");
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "plimsoll-fault%d-1-", (int)getpid());
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (setuid(65534) != 0 || bind(fd, (struct sockaddr *)&at, len) != 0 ||
            listen(fd, 1) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        int peer = accept(fd, NULL, NULL);
        _exit(send(peer, "", 1, MSG_NOSIGNAL) == 1 ? 0 : 2);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    cli_result r = cli_run("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_PORT=1 "
                           "TORCHELASTIC_RUN_ID=fault%d $P train " CLI_SMALL,
                           (int)getpid());
    waitpid(pid, NULL, 0);
    close(ready[0]), close(ready[1]);
    CHECK_MSG(r.code == 8 && strstr(r.err, "another user"), "exit code %d: %s", r.code, r.err);
}

TEST(fault_generate_does_not_overwrite)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "mkdir set && echo mine > set/x && $P generate " CLI_SMALL
                         "--samples 2 --eval-samples 2 --out set",
                      d),
              2, "not an empty folder");
    CHECK_RUN(cli_run(IN "$P generate " CLI_SMALL
                         "--samples 2 --eval-samples 2 --out set --force --quiet && cat set/x",
                      d),
              0, "");
}

TEST(fault_a_misnamed_checkpoint_is_not_whole)
{
    WANT_BIN();
    CHECK_RUN(cli_run(IN "$P train " FAULT_NET "train.steps=2 --out run && mv "
                         "run/checkpoints/step-00000002 run/checkpoints/step-00000009",
                      pl_test_dir()),
              0, "");
    cli_result r = cli_run("$P inspect %s/run", pl_test_dir());
    CHECK_MSG(r.code == 6 && strstr(r.out, "misnamed: holds step 2"), "%d: %s", r.code, r.out);
}

/* Gives a manifest another format, with a checksum that matches. */
static bool set_format(const char *path, char format)
{
    char text[4096], sum[24];
    snprintf(text, sizeof text, "%s", cli_read(path));
    char *digit = strstr(text, "\"plimsoll_checkpoint\":1"), *check = strstr(text, ",\"check\"");
    if (!digit || !check) return false;
    digit[strlen("\"plimsoll_checkpoint\":")] = format;
    *check = 0;
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)XXH64(text, strlen(text), 0));
    snprintf(check, sizeof text - (size_t)(check - text), ",\"check\":\"%s\"}\n", sum);
    return cli_write(path, text);
}

/* An older program does not take a newer checkpoint for a damaged one: going on from the one before
 * would remove it. */
TEST(fault_a_checkpoint_of_a_newer_version_is_left_alone)
{
    WANT_BIN();
    const char *d = pl_test_dir(), *newest = "run/checkpoints/step-00000004/manifest.json";
#define FOUR "$P train " FAULT_NET "train.steps=4 checkpoint.every=2 --out run"
    CHECK_RUN(cli_run(IN FOUR " && rm run/finished.json", d), 0, "");
    CHECK(set_format(pl_test_path(newest), '2'));
    CHECK_RUN(cli_run(IN FOUR, d), 6, "newer version");
    CHECK(strstr(cli_read(pl_test_path(newest)), "\"plimsoll_checkpoint\":2"));

    /* with the format changed back and the old checksum it is damaged */
    CHECK_INT(cli_run(IN "sed -i 's/checkpoint\":2/checkpoint\":1/' %s", d, newest).code, 0);
    CHECK_RUN(cli_run(IN FOUR, d), 0, "is damaged and skipped");
}

/* A name may hold any byte: the terminal does not obey it, and the output stays JSON. */
TEST(fault_names_of_files_do_not_reach_the_terminal_as_commands)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_INT(cli_run(IN "mkdir set && echo no > \"set/$(printf 'a\\033[2Jb\\377').png\"", d).code,
              0);
    cli_result r = cli_run(IN "$P inspect data set", d);
    CHECK_MSG(r.code == 5 && strstr(r.err, "a\\x1b[2Jb") && !strchr(r.err, 27), "%d: %s", r.code,
              r.err);
    r = cli_run(IN "$P inspect data set --json", d);
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK_MSG(r.code == 5 && j, "%d: %s%s", r.code, r.out, r.err);
    json_decref(j);
}

/* Accounts of services have a home that must not exist, such as /nonexistent. */
TEST(fault_a_home_that_does_not_exist_is_not_made)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN
                      "HOME=$PWD/home env -u PLIMSOLL_CACHE -u XDG_CACHE_HOME $P train " FAULT_NET
                      "train.steps=1",
                      d),
              0, "");
    CHECK(access(pl_test_path("home"), F_OK) != 0);
    CHECK_RUN(cli_run(IN "mkdir home && HOME=$PWD/home env -u PLIMSOLL_CACHE -u XDG_CACHE_HOME $P "
                         "train " FAULT_NET "train.steps=1",
                      d),
              0, "");
    CHECK(access(pl_test_path("home/.cache/plimsoll"), F_OK) == 0);
}

/* A folder that others can write into could hold planted kernels and times. */
TEST(fault_a_cache_that_others_can_write_is_not_used)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "mkdir -m 777 c && PLIMSOLL_CACHE=c $P train " CLI_SMALL
                         "train.steps=1 threads=1",
                      d),
              0, "other users can write into it");
    cli_result r = cli_run(
        IN "chmod 700 c && PLIMSOLL_CACHE=c $P train " CLI_SMALL "train.steps=1 threads=1", d);
    CHECK_MSG(r.code == 0 && !strstr(r.err, "other users"), "%s", r.err);
    r = cli_run(IN "umask 0 && PLIMSOLL_CACHE=new $P plan " CLI_SMALL
                   "threads=1 --measure && stat -c %%a new",
                d);
    CHECK_MSG(strstr(r.out, "\n700\n"), "%s%s", r.out, r.err);
}

/* A file of terabytes that takes no disk: refused by its first bytes, or read as far as it is a
 * log. */
TEST(fault_sparse_files_of_terabytes_end_soon)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && truncate -s 4T big.onnx && timeout 30 $P inspect big.onnx",
                           pl_test_dir());
    if (strstr(r.err, "truncate")) SKIP("the file system has no files of terabytes");
    CHECK_MSG(r.code == 6 && strstr(r.err, "byte 0: a field without a number"), "%d: %s", r.code,
              r.err);
    r = cli_run("cd %s && $P train " FAULT_NET
                "train.steps=1 --out run >log 2>&1 && truncate -s 4T "
                "run/log.jsonl && timeout 30 $P report run && $P inspect run",
                pl_test_dir());
    CHECK_MSG(r.code == 6 && strstr(r.err, "wrote run/report.html"), "%d: %s", r.code, r.err);
}

/* Terabytes of zeros behind a file whose checksum would have to be read to its end. */
TEST(fault_sparse_files_are_not_read_for_their_checksums)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && $P train " FAULT_NET
                           "train.steps=1 log.tensorboard=true --out run >log 2>&1 && $P export "
                           "run --as onnx --out a.onnx && truncate -s 4T a.onnx",
                           pl_test_dir());
    if (strstr(r.err, "truncate")) SKIP("the file system has no files of terabytes");
    CHECK_MSG(r.code == 0, "%d: %s", r.code, r.err);
    CHECK_RUN(cli_run("cd %s && timeout 30 $P inspect a.onnx", pl_test_dir()), 6,
              "a.onnx is damaged: it has 4398046511104 bytes, but only");
    CHECK_RUN(
        cli_run("cd %s && truncate -s 4T run/events.* && timeout 30 $P inspect run", pl_test_dir()),
        6, "are on the disk");
}

/* `ulimit -t` would kill without a word: the run stops in time, and saves. */
TEST(fault_a_limit_of_cpu_time_leaves_time_to_save)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && ulimit -t 2 && exec $P train " FAULT_NET
                           "train.steps=100000000 checkpoint.every=0 --out run",
                           pl_test_dir());
    CHECK_MSG(r.code == 75, "exit code %d: %s", r.code, r.err);
}

/* Opening and reading is interrupted once (a network file system, a signal): nothing happens. */
TEST(fault_an_interrupted_read_is_done_again)
{
    WANT_FAULTS();
    CHECK_RUN(fault_free("train " FAULT_NET "train.steps=1 --out run"), 0, "");
    setenv("FAULT_ERRNO", "4", 1);
    fault f = {"read", "/run/", 0, "fail"};
    long n = fault_count(&f, "inspect run");
    CHECK_MSG(n > 10, "%ld reads", n);
    for (f.k = 1; f.k <= n; f.k += pl_test_long() ? 1 : 7) {
        cli_result r = fault_run(&f, "inspect run");
        CHECK_MSG(r.code == 0, "read %ld: exit code %d: %s%s", f.k, r.code, r.out, r.err);
    }
    unsetenv("FAULT_ERRNO");
}

/* A file system that cannot sync folders is used without. */
TEST(fault_folders_that_cannot_be_synced_are_used)
{
    WANT_FAULTS();
    setenv("FAULT_ERRNO", "22", 1);
    fault f = {"folder", "run", 1, "always"};
    cli_result r = fault_run(&f, "train " FAULT_NET "train.steps=2 --out run");
    unsetenv("FAULT_ERRNO");
    CHECK_MSG(r.code == 0 && atol(cli_read(pl_test_path("n"))) > 3, "%d: %s", r.code, r.err);
}

/* The log cannot grow: the message names it and says why. */
TEST(fault_a_log_that_cannot_be_written_is_named)
{
    WANT_FAULTS();
    fault f = {"write", "run/log.jsonl", 3, "always"};
    cli_result r = fault_run(&f, "train " FAULT_NET "train.steps=9 --out run");
    CHECK_MSG(r.code == 1 && strstr(r.err, "run/log.jsonl: cannot write JSON: No space left"),
              "%d: %s", r.code, r.err);
}
