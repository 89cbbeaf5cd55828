/* test_fault_signals.c - signals at chosen points of a run, and the table of signals. */
#include "tests/fault/fault_lab.h"
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN "train " FAULT_NET "eval.every=1 checkpoint.every=2 "

/* Before the main function begins, no signal that asks for something kills. */
TEST(fault_a_request_in_the_first_instant_does_not_kill)
{
    WANT_FAULTS();
    static const int number[] = {SIGUSR1, SIGUSR2, SIGPIPE};
    for (int i = 0; i < 2; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number[i]);
        setenv("FAULT_SIGNAL", text, 1);
        cli_result r =
            fault_run(&(fault){"any", "run", 0, "kill"}, TRAIN "train.steps=1 --out run");
        unsetenv("FAULT_SIGNAL");
        CHECK_MSG(r.code == 0, "signal %d: exit code %d: %s", number[i], r.code, r.err);
    }
}

/* Started by a program that blocks SIGTERM and ignores SIGCHLD, which its children inherit: the run
 * stops all the same, and knows the exit code of a hook. */
TEST(fault_signals_that_were_blocked_or_ignored_work)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    if (cli_run("env --block-signal=TERM --ignore-signal=CHLD true").code != 0)
        SKIP("this env cannot block signals");
    cli_result r = cli_run("cd %s && timeout --preserve-status -k 9 0.2 env --block-signal=TERM $P "
                           "train " FAULT_NET "train.steps=100000000 checkpoint.every=0 --out run",
                           d);
    CHECK_MSG(r.code == 75 || r.code == 143, "exit code %d: %s", r.code, r.err);
    CHECK_RUN(cli_run("cd %s && env --ignore-signal=CHLD $P train " FAULT_NET
                      "train.steps=1 on_end=false --out hook",
                      d),
              0, "on_end failed with exit code 1");
}

/* A signal to stop at each phase of a run: a save where there is something to save, and the bits of
 * an undisturbed run after the same command. */
TEST(fault_a_signal_in_any_phase_loses_nothing)
{
    WANT_FAULTS();
    static const struct {
        const char *kind, *name;
        long k;
        int code;
    } phases[] = {
        {"open", "run/lock", 1, 143},           /* nothing is planned */
        {"open", "run/plan.json", 1, 143},      /* planned, not started */
        {"open", "run/metrics.csv", 1, 143},    /* started, no step done */
        {"write", "run/metrics.csv", 2, 75},    /* in a step */
        {"write", "run/eval.csv", 2, 75},       /* in an evaluation */
        {"sync", "checkpoints/.tmp", 2, 75},    /* in a save */
        {"rename", "run/model.safeten", 1, 75}, /* in the results */
    };
    CHECK_RUN(fault_free(TRAIN "train.steps=3 --out whole"), 0, "");

    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        setenv("FAULT_RUN", "kill -TERM $PPID", 1);
        cli_result r = fault_run(&(fault){phases[i].kind, phases[i].name, phases[i].k, "run"},
                                 TRAIN "train.steps=3 --fresh --out run");
        unsetenv("FAULT_RUN");
        CHECK_MSG(r.code == phases[i].code, "%s: exit code %d: %s", phases[i].name, r.code, r.err);
        CHECK_RUN(fault_free(TRAIN "train.steps=3 --out run"), 0, "");
        CHECK_MSG(cli_same("whole/model.safetensors", "run/model.safetensors"), "%s",
                  phases[i].name);
        CHECK_MSG(!cli_bad_log("run", 3), "%s: %s", phases[i].name, cli_bad_log("run", 3));
    }
}

/* Phases are planned in a program of their own, which a signal to the first one ends too. The
 * program has its variable in the environment once it runs. */
TEST(fault_a_signal_while_phases_are_planned_leaves_no_process)
{
    WANT_BIN();
    static const struct {
        const char *signal;
        int code;
    } rows[] = {{"TERM", 143}, {"KILL", 137}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cli_result r =
            cli_run("cd %s && { $P train cloud/phases threads=1 --quiet --out %s & p=$!; n=; "
                    "children=/proc/$p/task/$p/children; while [ -e /proc/$p/exe ]; do n=; "
                    "if [ -e $children ]; then read n x <$children; else n=$(pgrep -P $p); fi; "
                    "grep -qs PLIMSOLL_PLANS_PHASE /proc/${n:-none}/environ && break; done; "
                    "kill -STOP $n; kill -%s $p; wait $p; c=$?; for i in $(seq 300); do "
                    "[ -e /proc/$n/exe ] || break; sleep 0.01; done; [ -n \"$n\" ] && "
                    "[ ! -e /proc/$n/exe ] || exit 9; exit $c; }",
                    pl_test_dir(), rows[i].signal, rows[i].signal);
        CHECK_MSG(r.code == rows[i].code, "%s: exit code %d: %s", rows[i].signal, r.code, r.err);
        if (rows[i].code == 143)
            CHECK_MSG(strstr(r.err, "planning of the phases was stopped"), "%s", r.err);
    }
}

/* The program that reads the events ends: the run stops, and saves. */
TEST(fault_a_reader_that_leaves_stops_the_run_with_a_save)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && { $P " TRAIN "train.steps=1000000 --json --out run; echo $? > "
                           "code; } | head -3; cat code; ls run/checkpoints",
                           pl_test_dir());
    CHECK_MSG(strstr(r.out, "\n75\n") && strstr(r.out, "step-"), "%s%s", r.out, r.err);
}

/* docs/RELIABILITY.md has the table of signals.def. */
TEST(docs_signals_are_those_of_the_program)
{
    static const char *const rows[][2] = {
#define SIGNAL(number, handler, what) {#number, what},
#include "cli/train/signals.def"
#undef SIGNAL
    };
    const char *text = cli_read("docs/RELIABILITY.md");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char row[256];
        snprintf(row, sizeof row, "| %s | %s |", rows[i][0], rows[i][1]);
        CHECK_MSG(strstr(text, row), "docs/RELIABILITY.md lacks: %s", row);
    }
}

/* The step waits in a write to a full pipe. */
TEST(fault_a_signal_stops_a_run_whose_output_nobody_reads)
{
    WANT_BIN();
    cli_result r = cli_run(
        "cd %s && mkfifo p && { sleep 60 <p & s=$!; $P train regress/tiny batch=4 'model.widths=[2]' "
        "data.samples=16 data.eval_samples=4 threads=1 log.tensorboard=false train.steps=100000 "
        "checkpoint.every=0 --json --out run >p & j=$!; n=-1; for i in $(seq 100); do m=$(wc -c "
        "<run/log.jsonl 2>/dev/null); [ \"${m:-0}\" -gt 60000 ] && [ \"$m\" = \"$n\" ] && break; "
        "n=$m; sleep 0.3; done; kill -TERM $j; wait $j; c=$?; kill $s; exit $c; }",
        pl_test_dir());
    CHECK_MSG(r.code == 75, "exit code %d: %s", r.code, r.err);
}

TEST(fault_a_pipe_as_a_log_file_is_refused)
{
    WANT_BIN();
    static const char *const names[] = {"log.jsonl", "metrics.csv", "eval.csv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cli_result r =
            cli_run("cd %s && rm -rf run && mkdir run && mkfifo run/%s && $P train " FAULT_NET
                    "train.steps=1 --out run",
                    pl_test_dir(), names[i]);
        CHECK_MSG(r.code == 1 && strstr(r.err, names[i]), "%s: exit code %d: %s", names[i], r.code,
                  r.err);
    }
}
