/* test_ranks_fail.c - ranks as processes that are killed, suspended, stopped by a signal, or
 * cannot write. */
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN                                                                                        \
 "wandistill/tiny batch=12 data.workers=0 eval.every=0 threads=1 shard=optimizer checkpoint.interval=0 --quiet "

/* Shell functions: a run as a job, its ranks by number, and how long until nothing of it is left.
 *   launch own|mpi N OUT KEYS...    begun OUT    settled OUT    rank OUT K    gone OUT
 *   losses OUT
 * settled: two heartbeats after the first step, and 20 steps, which take longer on a busy machine,
 * as heartbeats do: every rank has reported which exchange it is in. */
static const char lib[] =
    "cd $D || exit 99\n"
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1\n"
    "export OMPI_MCA_hwloc_base_binding_policy=none HWLOC_HIDE_ERRORS=2 "
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none "
    "OMPI_MCA_mpi_yield_when_idle=1\n"
    "launch() { kind=$1 n=$2 out=$3; shift 3\n"
    "  case \"$*\" in *--fresh*) rm -rf $out;; esac\n"
    "  if [ $kind = own ]; then $P train " RUN
    "--out $D/$out --ranks $n \"$@\" & else mpirun -n $n $P train " RUN
    "--out $D/$out \"$@\" & fi; job=$!; }\n"
    "family() { ps -eo pid=,stat=,args= | awk -v d=\"--out $D/$1 \" 'index($0, d) && $2 !~ /Z/ && !/awk/ {print $1}'; }\n"
    "begun() { while kill -0 $job 2>/dev/null; do grep -q '\"event\":\"step\"' $1/log.jsonl 2>/dev/null && return; sleep 0.05; done; }\n"
    "steps() { grep -c '\"event\":\"step\"' $1/log.jsonl; }\n"
    "settled() { begun $1; n=$(steps $1); sleep 0.6; while kill -0 $job 2>/dev/null && [ $(steps $1) -lt $((n + 20)) ]; do sleep 0.1; done; }\n"
    "rank() { for p in $(family $1); do tr '\\0' '\\n' </proc/$p/environ 2>/dev/null | grep -qx OMPI_COMM_WORLD_RANK=$2 && echo $p; done; }\n"
    "now() { date +%s%N; }\n"
    "gone() { t0=$(now); while [ -n \"$(family $1)\" ] && [ $(($(now) - t0)) -lt 15000000000 ]; do sleep 0.02; done\n"
    "  echo took $((($(now) - t0) / 1000000)); for p in $(family $1); do kill -9 $p; done; wait $job; code=$?; }\n"
    "losses() { sed -n 's/.*\"event\":\"step\",\"step\":\\([0-9]*\\).*\"loss\":\\([^,}]*\\).*/\\1 \\2/p' $1/log.jsonl; }\n";

#define SH(...) cli_run(". $D/lib.sh; " __VA_ARGS__)

static bool put_lib(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/lib.sh", pl_test_dir());
    return cli_write(path, lib);
}

#define WANT_LIB()                                                                                 \
 do {                                                                                              \
  WANT_RANKS();                                                                                    \
  CHECK(put_lib());                                                                                \
 } while (0)

static int took(cli_result r)
{
    const char *t = strstr(r.out, "took ");
    return t ? atoi(t + 5) : -1;
}

/* The last line that the program itself printed; "" if there is none. */
static const char *last_line(cli_result r)
{
    const char *last = "";
    for (const char *at = r.err; (at = strstr(at, "plimsoll: ")); at++) last = at;
    return last;
}

/* Whether the line names the exchange. */
static bool names_exchange(const char *line)
{
    static const char *const names[] = {
        "agreement (exchange ", "order of rank 0 (exchange ", "gathering ",
        "all_gather weights ",  "all_reduce gradients ",      "reduce_scatter gradients "};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(line, names[i])) return strstr(line, "(exchange ") != NULL;
    return false;
}

/* ---- nothing fails ---------------------------------------------------------------------- */
/* Processes can miss each other when a world starts and ends: many worlds, one after the other. */
TEST(ranks_do_not_fail_in_many_quick_runs)
{
    if (!pl_test_long()) SKIP("long");
    WANT_LIB();
    int turns = pl_test_long() ? 25 : 1;
    for (int i = 0; i < turns; i++) {
        cli_result r = SH(
            "for k in 'mpi 3' 'own 3' 'mpi 4' 'own 2' 'own 4'; do launch $k x train.steps=1 --fresh; wait $job || "
            "{ c=$?; echo $k; exit $c; }; done");
        CHECK_MSG(r.code == 0, "turn %d: %s: exit %d: %s", i, r.out, r.code, r.err);
    }
}

/* Six ranks and four busy loops on the available cores, with a short limit: a slow rank is not
 * dead. */
TEST(ranks_do_not_fail_when_they_are_slow)
{
    WANT_LIB();
    if (!pl_test_long()) SKIP("long");
    cli_result r = SH(
        "for i in 1 2 3 4; do (while :; do :; done) & hot=\"$hot $!\"; done; launch own 6 x train.steps=60 "
        "checkpoint.every=5 rank_timeout=3s; wait $job; c=$?; kill $hot; exit $c");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);
}

/* All processes are suspended for longer than the limit and continue. */
TEST(ranks_do_not_fail_when_all_were_stopped)
{
    WANT_LIB();
    if (!pl_test_long()) SKIP("long");
    cli_result r = SH(
        "launch own 3 x train.steps=1000000 rank_timeout=2s; begun x; f=$(family x); kill -STOP $f; sleep 4; "
        "kill -CONT $f; sleep 2; kill -TERM $job; wait $job");
    CHECK_MSG(r.code == 75, "exit %d: %s", r.code, r.err);
}

/* on_end and on_error run once, on rank 0: at the end, and when another rank is killed, whoever
 * started the ranks. */
TEST(ranks_fail_with_a_hook_on_rank_0)
{
    WANT_LIB();

    CHECK(cli_write(pl_test_path("hook"),
                    "echo told $PL_STATUS $PL_STEP ${PL_MESSAGE:+why} >> told\n"));
    cli_result r = SH("launch own 3 x train.steps=2 on_end='sh hook'; wait $job; cat told");
    CHECK_MSG(r.code == 0 && strcmp(r.out, "told 0 2 why\n") == 0, "%d %s%s", r.code, r.out, r.err);

    static const char *const kind[] = {"own", "mpi"};
    for (int i = 0; i < 2; i++) {
        r = SH("rm -f told; launch %s 3 y%d train.steps=1000000 on_error='sh hook' on_end=false; "
               "begun y%d; kill -9 $(rank y%d 2); gone y%d; for i in 1 2 3 4 5 6 7 8 9; do "
               "[ -s told ] || sleep 0.3; done; cat told",
               kind[i], i, i, i, i);
        CHECK_MSG(strstr(r.out, "told 8 ") && !strstr(strstr(r.out, "told 8 ") + 1, "told"),
                  "%s: %s%s", kind[i], r.out, r.err);
    }
}

/* ---- killed ----------------------------------------------------------------------------- */
TEST(ranks_fail_when_one_is_killed)
{
    static const struct {
        const char *kind, *victim, *code, *says;
    } k[] = {
        {"own", "2", "8", "plimsoll: [rank 2 host "},
        {"own", "0", "8", "plimsoll: [rank 0 host "},
        {"mpi", "1", "137", "plimsoll: [rank 1 host "},
    };
    WANT_LIB();
    for (int i = 0; i < 3; i++) {
        cli_result r = SH(
            "launch %s 3 x%d train.steps=1000000 checkpoint.every=5; settled x%d; v=$(rank x%d %s); kill -9 $v; "
            "gone x%d; echo victim $v.; exit $code",
            k[i].kind, i, i, i, k[i].victim, i);
        const char *line = last_line(r), *victim = strstr(r.out, "victim ");
        char process[64];
        /* mpirun returns the code of the rank whose end it sees first: the killed one, or one that
         * has noticed */
        bool noticed = strcmp(k[i].kind, "mpi") == 0 && r.code == 8;
        CHECK_MSG(r.code == atoi(k[i].code) || noticed, "%d: exit %d: %s", i, r.code, r.err);
        CHECK_MSG(took(r) >= 0 && took(r) < 10000, "%d: %s", i, r.out);
        snprintf(process, sizeof process, "(process %d;", victim ? atoi(victim + 7) : 0);
        CHECK_MSG(strncmp(line, k[i].says, strlen(k[i].says)) == 0 && strstr(line, "is gone") &&
                      strstr(line, process),
                  "%d: wants %s %s: %s", i, k[i].says, process, r.err);
        const char *others = strstr(line, "the others were in ");
        CHECK_MSG(strstr(line, " at step ") && others && names_exchange(line) &&
                      names_exchange(others),
                  "%s", line);
        if (strcmp(k[i].kind, "own") == 0)
            CHECK_MSG(strchr(line, '\n') && !strchr(line, '\n')[1], "something follows: %s", r.err);
        CHECK(strstr(line, "resumes from the last complete checkpoint"));
    }
}

/* One rank has an error: all end with its exit code, and the error is printed once, last, with rank
 * and host. */
TEST(ranks_fail_when_one_has_an_error)
{
    static const char *const kinds[] = {"own", "mpi"};
    WANT_LIB();
    if (cli_run("command -v prlimit").code != 0) SKIP("no prlimit here");
    for (int i = 0; i < 2; i++) { /* rank 0 cannot write its log any more */
        cli_result r = SH(
            "launch %s 3 x train.steps=1000000 checkpoint.every=0 --fresh; begun x; prlimit --fsize=1000 --pid $(rank x 0); gone x; exit $code",
            kinds[i]);
        const char *line = last_line(r);
        CHECK_MSG(r.code == 1 && took(r) < 10000, "%s: exit %d: %s: %s", kinds[i], r.code, r.out,
                  r.err);
        CHECK_MSG(strncmp(line, "plimsoll: [rank 0 host ", 23) == 0 &&
                      strstr(line, "cannot write") && strstr(r.err, "plimsoll:") == line,
                  "%s: %s", kinds[i], r.err);
    }
}

/* The process that started the ranks, or mpirun, is killed: no process of the run is left. */
TEST(ranks_fail_when_their_launcher_is_killed)
{
    WANT_LIB();
    cli_result r =
        SH("launch own 3 x train.steps=1000000; begun x; kill -9 $job; gone x; exit $code");

    CHECK_MSG(r.code == 137 && took(r) < 10000, "exit %d: %s: %s", r.code, r.out, r.err);
    /* mpirun of Open MPI 5 may end before it has passed the ranks' last lines on */
    bool lost = !strstr(r.err, "[rank ") && cli_run("mpirun --version | grep ' 5[.]'").code == 0;
    CHECK_MSG(lost || (strstr(r.err, "[rank 0 host ") &&
                       strstr(r.err, "the process that started the ranks is gone") &&
                       names_exchange(r.err)),
              "%s", r.err);

    r = SH(
        "launch own 3 x train.steps=1000000 --fresh; begun x; kill -9 $(pgrep -P $job 'mpirun|prterun'); gone x; exit $code");
    CHECK_MSG(r.code == 8 && took(r) < 10000, "exit %d: %s: %s", r.code, r.out, r.err);
    CHECK_MSG(strstr(last_line(r), "mpirun ended with code 137") || strstr(last_line(r), "is gone"),
              "%s", r.err);
}

/* Suspended ranks cannot end by themselves: the kernel ends them with mpirun, and mpirun with the
 * process that was started. Their shared memory is removed by the next launch. */
TEST(ranks_fail_with_the_process_that_started_them)
{
    WANT_LIB();
    for (int k = 0; k < 2; k++) {
        cli_result r = SH(
            "launch own 2 x train.steps=100000 --fresh; begun x; for k in 0 1; do kill -STOP $(rank x $k); done; "
            "kill -9 %s; gone x; echo left $(ls -d /dev/shm/plimsoll-*-$job 2>/dev/null | wc -l)",
            k ? "$(pgrep -P $job 'mpirun|prterun')" : "$job");
        CHECK_MSG(took(r) >= 0 && took(r) < 5000, "%s killed: %s%s", k ? "mpirun" : "the launcher",
                  r.out, r.err);
    }
    cli_result r =
        SH("launch own 2 y train.steps=1 --fresh; wait $job; code=$?; "
           "for d in /dev/shm/plimsoll-*; do [ -e /proc/${d##*-} ] || echo $d; done; exit $code");
    CHECK_MSG(r.code == 0 && !strstr(r.out, "/dev/shm/plimsoll-0"), "%s%s", r.out, r.err);
}

/* A few of the kills of tools/ranks/kill: a resumed run has the bits of an undisturbed run. */
TEST(ranks_fail_and_resume_to_the_same_bits)
{
    WANT_LIB();
    int kills = pl_test_long() ? 20 : 1;
    CHECK_INT(SH("launch own 3 calm train.steps=20 checkpoint.every=5; wait $job").code, 0);

    for (int i = 0; i < kills; i++) {
        /* During a save: a folder that is being written has such a name. */
        cli_result r = SH(
            "launch own 3 x train.steps=20 checkpoint.every=5 --fresh; while kill -0 $job; do ls x/checkpoints/.tmp-* "
            "&& break; done >/dev/null 2>&1; kill -9 $(rank x %d); wait $job; [ $? -eq 8 ] || exit 98; "
            "launch own 3 x train.steps=20 checkpoint.every=5; wait $job || exit 97; cmp x/model.safetensors calm/model.safetensors || "
            "exit 96; losses x >a; losses calm >b; cmp a b",
            i % 3);
        CHECK_MSG(r.code == 0, "%d: exit %d: %s%s", i, r.code, r.out, r.err);
    }
}

/* ---- stopped ---------------------------------------------------------------------------- */
TEST(ranks_fail_when_one_is_stopped)
{
    WANT_LIB();
    cli_result r = SH(
        "launch own 3 x train.steps=1000000 rank_timeout=2s; begun x; kill -STOP $(rank x 1); gone x; exit $code");
    const char *line = last_line(r);

    CHECK_MSG(r.code == 8, "exit %d: %s%s", r.code, r.out, r.err);
    CHECK_MSG(strncmp(line, "plimsoll: [rank 1 host ", 23) == 0 &&
                  strstr(line, "has sent nothing for 2."),
              "%s", r.err);
    CHECK_MSG(took(r) >= 1700 && took(r) < 6000, "%s", r.out);
    CHECK_MSG(strstr(line, "the others were in") &&
                  names_exchange(strstr(line, "the others were in")),
              "%s", line);
}

/* mpirun started by hand: rank 0 has the hub, and the other ranks report its death. */
TEST(ranks_fail_when_the_hub_is_stopped)
{
    WANT_LIB();
    cli_result r = SH(
        "launch mpi 2 x train.steps=1000000 rank_timeout=2s; begun x; kill -STOP $(rank x 0); gone x; exit $code");

    CHECK_MSG(r.code == 8 && took(r) >= 1700 && took(r) < 8000, "exit %d: %s: %s", r.code, r.out,
              r.err);

    const char *line = last_line(r);
    CHECK_MSG(strncmp(line, "plimsoll: [rank 1 host ", 23) == 0 && strstr(line, "rank 0 host ") &&
                  strstr(line, "has sent nothing within") && names_exchange(line),
              "%s", r.err);
}

/* ---- told to end ------------------------------------------------------------------------ */
/* A signal to any rank: all ranks stop at the same step, save, exit with 75; the resumed run has
 * the same bits. */
TEST(ranks_do_not_fail_when_one_gets_a_signal)
{
    if (!pl_test_long()) SKIP("long");
    static const struct {
        const char *kind, *whom;
    } k[] = {
        {"own", "$(rank x 0)"}, {"own", "$(rank x 2)"}, {"own", "$job"}, {"mpi", "$(rank x 1)"}};
    WANT_LIB();

    for (int i = 0; i < 4; i++) {
        cli_result r = SH(
            "launch %s 3 x train.steps=1000000 checkpoint.every=0 --fresh; begun x; kill -TERM %s; gone x; exit $code",
            k[i].kind, k[i].whom);
        CHECK_MSG(r.code == 75 && took(r) < 10000, "%d: exit %d: %s: %s", i, r.code, r.out, r.err);
        r = SH(
            "s=$(losses x | tail -1 | cut -d' ' -f1); ls x/checkpoints/step-$(printf %%08d $s)/part-0000[012]-of-00003.safetensors");
        CHECK_MSG(r.code == 0, "%d: not saved at the last step: %s", i, r.err);
    }
    cli_result r = SH(
        "s=$(losses x | tail -1 | cut -d' ' -f1); launch own 3 x train.steps=$((s + 10)); wait $job || exit 98; launch own 3 calm "
        "train.steps=$((s + 10)); wait $job || exit 97; cmp x/model.safetensors calm/model.safetensors");

    CHECK_MSG(r.code == 0, "exit %d: %s%s", r.code, r.out, r.err);
}

/* SIGUSR1 and SIGUSR2 to the process that started the ranks save and print, and training goes on.
 * The same signal to stop reaches a rank twice, from outside and from the process that started it,
 * while the rank waits for a slow one: it counts once. */
TEST(ranks_do_not_fail_when_all_get_a_signal)
{
    WANT_LIB();
    cli_result r = SH(
        "launch own 3 x train.steps=1000000 checkpoint.every=0; begun x; kill -USR2 $job; kill -USR1 $job; "
        "for i in $(seq 400); do kill -0 $job && ! ls x/checkpoints/step-* || break; sleep 0.05; done >/dev/null 2>&1; ls x/checkpoints/step-* || { kill -9 $job; exit 9; }; v=$(rank x 1); kill -STOP $v; kill -TERM $(rank x 0) $(rank x 2); sleep 0.2; "
        "kill -TERM $job; sleep 0.5; kill -CONT $v; gone x; ls x/checkpoints; exit $code");
    CHECK_MSG(r.code == 75 && strstr(r.out, "step-"), "exit %d: %s: %s", r.code, r.out, r.err);
}

/* The program that reads the output of the ranks ends: mpirun would crash at its next write. */
TEST(ranks_do_not_fail_when_the_reader_of_their_output_leaves)
{
    WANT_RANKS();
    cli_result r = cli_run(
        "cd $D || exit 99; { $P train regress/tiny batch=4 'model.widths=[2]' data.samples=16 "
        "data.eval_samples=4 threads=1 train.steps=1000000 checkpoint.every=0 --json --ranks 2 --out "
        "run; echo $? >code; } | head -3; cat code; ls run/checkpoints");
    CHECK_MSG(strstr(r.out, "\n75\n") && strstr(r.out, "step-"), "%s%s", r.out, r.err);
}

/* However early the signal comes, it is not a failure. Ranks that do not train yet end at once:
 * they do not plan, train a step and save first. */
TEST(ranks_do_not_fail_when_a_signal_comes_at_the_start)
{
    WANT_LIB();
    for (int i = pl_test_long() ? 0 : 2; i < 4; i++) {
        cli_result r = SH(
            "launch own 3 x train.steps=1000000 --fresh; sleep 0.%d; kill -%s $job; gone x; ls x/checkpoints; exit $code",
            2 * i, i == 3 ? "XCPU" : "TERM");
        CHECK_MSG((r.code == 75 || r.code == 143 || r.code == 152) && took(r) < 10000,
                  "after 0.%d s: exit %d: %s: %s", 2 * i, r.code, r.out, r.err);
        bool saved = strstr(r.out, "step-") != NULL;
        CHECK_MSG(saved == (r.code == 75), "after 0.%d s: exit %d: %s: %s", 2 * i, r.code, r.out,
                  r.err);
    }
    /* Rank 0 is suspended while it starts, so that no rank can begin to train. */
    cli_result r = SH(
        "launch own 3 x train.steps=1000000 --fresh; while kill -0 $job && [ -z \"$(rank x 0)\" ]; do sleep 0.02; done; kill -STOP $(rank x 0); "
        "kill -TERM $job; gone x; ls x/checkpoints; exit $code");
    CHECK_MSG(r.code == 143 && took(r) < 10000 && !strstr(r.out, "step-"), "exit %d: %s: %s",
              r.code, r.out, r.err);
    CHECK_MSG(strstr(last_line(r), "before training began"), "%s", r.err);
}

/* ---- checkpoints ------------------------------------------------------------------------ */
/* A rank that cannot write its part: the checkpoint is not made, the previous one stays, and a
 * message says so. */
TEST(ranks_fail_when_a_part_cannot_be_written)
{
    if (!pl_test_long()) SKIP("long");
    WANT_LIB();
    if (cli_run("command -v prlimit").code != 0) SKIP("no prlimit here");
    cli_result r = SH(
        "launch own 3 x train.steps=1000000 checkpoint.every=10 checkpoint.keep=1000; begun x; prlimit --fsize=1000 --pid $(rank x 1); sleep 1; "
        "n=$(losses x | wc -l); sleep 1; m=$(losses x | wc -l); kill -9 $(rank x 2); gone x; ls x/checkpoints; [ $m -gt $n ]");

    CHECK_MSG(r.code == 0, "training does not go on: %s%s", r.out, r.err);
    CHECK_MSG(strstr(r.err, "warning: ") && strstr(r.err, "rank 1: "), "%s", r.err);
    r = SH(
        "for d in x/checkpoints/step-*; do [ -d $d ] || continue; [ -s $d/manifest.json ] && [ $(ls $d/part-* | wc -l) -eq 3 ] || exit 9; done");
    CHECK_MSG(r.code == 0, "a checkpoint without its parts: %s", r.out);

    r = SH(
        "s=$(ls -d x/checkpoints/step-* | tail -1); s=$(($(echo ${s##*step-} | sed 's/^0*//') + 5)); launch own 3 x train.steps=$s checkpoint.every=10 "
        "checkpoint.keep=1000; wait $job || exit 98; launch own 3 calm train.steps=$s checkpoint.every=10 checkpoint.keep=1000; wait $job || exit 97; "
        "cmp x/model.safetensors calm/model.safetensors");
    CHECK_MSG(r.code == 0, "exit %d: %s%s", r.code, r.out, r.err);
}

/* A part of the newest checkpoint is cut, changed, of another step or missing: the checkpoint
 * before is resumed. */
TEST(ranks_fail_over_to_the_checkpoint_whose_parts_are_whole)
{
    if (!pl_test_long()) SKIP("long");
    static const char *const harm[] = {
        "truncate -s -8 $N/part-00001-of-00002.safetensors",
        "cp $B/part-00001-of-00002.safetensors $N/",
        "rm $N/part-00000-of-00002.safetensors",
        "printf X | dd of=$N/part-00001-of-00002.safetensors bs=1 seek=$(($(stat -c %s $N/part-00001-of-00002.safetensors) - 9)) conv=notrunc",
        "cp $N/part-00000-of-00002.safetensors $N/part-00001-of-00002.safetensors",
        "rm $N/manifest.json",
        ": >$N/part-00000-of-00002.safetensors",
    };
    WANT_LIB();

    CHECK_INT(SH("launch own 2 whole train.steps=8 checkpoint.every=4; wait $job").code, 0);
    CHECK_INT(SH("launch own 2 calm train.steps=10 checkpoint.every=4; wait $job").code, 0);
    for (size_t i = pl_test_long() ? 0 : 3; i < sizeof harm / sizeof *harm; i++) {
        char script[512];
        snprintf(script, sizeof script, "%s/harm.sh", pl_test_dir());
        CHECK(cli_write(script, harm[i]));
        cli_result r = SH(
            "rm -rf x; cp -r whole x; N=x/checkpoints/step-00000008; B=x/checkpoints/step-00000004; . ./harm.sh 2>/dev/null || exit 95; $P train " RUN
            "--out $D/x --ranks 2 train.steps=10 checkpoint.every=4 || exit 98; cmp x/model.safetensors calm/model.safetensors");
        CHECK_MSG(r.code == 0, "%s: exit %d: %s%s", harm[i], r.code, r.out, r.err);
        CHECK_MSG(strstr(r.err, "step-00000008") || strstr(r.err, "manifest"), "%s is not told: %s",
                  harm[i], r.err);
    }
}
