/* test_ranks_suspend.c - suspended processes of a run with ranks: Ctrl-Z, SIGSTOP to a launcher,
 * torchrun that ends before its processes do. */
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <string.h>

/* Shell functions: process $1 of torchrun as `torchrun --no-python` starts it; the processes of the
 * run; waits until the first step is done; kills processes that do not end within 15 s; waits until
 * all processes are gone. */
static const char lib[] =
    "cd $D || exit 99\n"
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
    "run=\"train wandistill/tiny batch=6 data.workers=0 eval.every=0 threads=1 --quiet "
    "train.steps=1000000 --fresh --out $D/x\"\n"
    "one() { RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=$$ "
    "TORCHELASTIC_RUN_ID=none exec $P $run $keys; }\n"
    "family() { ps -eo pid=,stat=,args= | grep -F -- \"--out $D/x\" | grep -v -e grep -e ' Z' | "
    "awk '{print $1}'; }\n"
    "begun() { for i in $(seq 400); do sleep 0.05; grep -qs event...step x/log.jsonl && return; "
    "done; }\n"
    "late() { (sleep 15; kill -9 \"$@\") & w=$!; }\n"
    "gone() { for i in $(seq 150); do [ -n \"$(family)\" ] || return 0; sleep 0.1; done; "
    "echo left; kill -9 $(family); }\n";

#define SH(shell, script) cli_run(shell " -c '. $D/lib.sh; " script "' 2>&1")
#define WANT_LIB()                                                                                 \
 do {                                                                                              \
  WANT_RANKS();                                                                                    \
  CHECK(cli_write(pl_test_path("lib.sh"), lib));                                                   \
 } while (0)

/* Ctrl-Z reaches the launcher alone. A run that is suspended for longer than rank_timeout goes on
 * with `fg`. A shell with job control starts it, since the kernel ignores SIGTSTP elsewhere. */
TEST(ranks_suspended_by_the_terminal_go_on_after_the_limit)
{
    WANT_LIB();
    cli_result r = SH(
        "bash", "set -m; $P $run rank_timeout=2s --ranks 2 & a=$!; begun; kill -TSTP $a; "
                "sleep 0.3; echo state $(ps -o stat= -p $a | cut -c1); sleep 2.7; "
                "n=$(wc -l <x/log.jsonl); sleep 0.2; [ $n = $(wc -l <x/log.jsonl) ] && echo rests; "
                "kill -CONT $a; sleep 0.3; [ $n != $(wc -l <x/log.jsonl) ] && echo goes on; "
                "kill -TERM $a; wait $a; echo $?; gone");
    CHECK_MSG(strstr(r.out, "state T\n") && strstr(r.out, "rests\n") &&
                  strstr(r.out, "goes on\n") && strstr(r.out, "\n75\n"),
              "%s", r.out);
}

/* torchrun is killed while its processes, mpirun and the ranks are suspended. */
TEST(ranks_suspended_under_torchrun_save_and_end_when_it_is_killed)
{
    WANT_LIB();
    cli_result r = SH("sh", "( (one 0) & (one 1) & wait ) & t=$!; begun; kill -STOP $(family); "
                            "sleep 0.2; kill -9 $t; gone; ls x/checkpoints/step-*/manifest.json");
    CHECK_MSG(r.code == 0 && !strstr(r.out, "left"), "%s", r.out);
}

/* Rank 0 of torchrun is suspended: the ranks end after rank_timeout, and it reports their exit
 * code. Another rank of torchrun is suspended: it hears of the end of the run. */
TEST(ranks_suspended_processes_of_torchrun_report_the_exit_code)
{
    if (!pl_test_long()) SKIP("long");
    WANT_LIB();
    cli_result r = SH("sh", "keys=rank_timeout=1s; (one 0) & a=$!; (one 1) & b=$!; begun; "
                            "kill -STOP $a; late $a $b; wait $a; echo $?; wait $b; echo $?; "
                            "kill $w; gone");
    CHECK_MSG(strstr(r.out, "\n8\n8\n"), "%s", r.out);
    r = SH("sh", "rm -rf x; (one 0) & a=$!; (one 1) & b=$!; begun; kill -STOP $b; kill -TERM $a; "
                 "late $a $b; wait $a; echo $?; wait $b; echo $?; kill $w; gone");
    CHECK_MSG(strcmp(r.out, "75\n75\n") == 0, "%s", r.out);
}

/* A stop continues suspended processes: the run saves, and all end. */
TEST(ranks_suspended_before_a_stop_save_with_the_others)
{
    WANT_LIB();
    cli_result r = SH("sh", "$P $run --ranks 2 & a=$!; begun; m=$(pgrep -P $a \"mpirun|prterun\"); "
                            "kill -STOP $m $(pgrep -P $m | head -n 1); kill -TERM $a; "
                            "late $a; wait $a; echo $?; kill $w; gone; ls x/checkpoints/");
    CHECK_MSG(strncmp(r.out, "75\nstep-", 8) == 0, "%s", r.out);
}
