/* test_ranks_launch.c - which launcher started a process: mpirun, srun, torchrun, none; messages
 * for each. */
#include "dist/env.h"
#include "tests/dist/ranks_cli.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN "wandistill/tiny batch=6 data.workers=0 eval.every=0 threads=1 --quiet "
#define IN                                                                                          \
 "cd $D || exit 99; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "              \
 "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none HWLOC_HIDE_ERRORS=2 " \
 "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "                                            \
 "PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1; "

/* ---- the environment -------------------------------------------------------------------- */
static const char *const all_names[] = {
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_TASKS_PER_NODE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
};

/* "NAME=VALUE NAME=VALUE"; every other of the names is not set. */
static void set_names(const char *text)
{
    char copy[512], *save = NULL;
    for (size_t i = 0; i < sizeof all_names / sizeof *all_names; i++) unsetenv(all_names[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        if (!equals) continue;
        *equals = 0;
        setenv(word, equals + 1, 1);
    }
}

TEST(ranks_launch_reads_what_launchers_set)
{
    static const struct {
        const char *set, *launcher; /* NULL: alone */
        int rank, size, local_rank, local_size;
    } k[] = {
        {"", NULL, 0, 1, 0, 1},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "mpirun", 3, 8, 1, 2},
        {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", "pmi", 2, 4, 0, 1},
        {"PMI_RANK=2 PMI_SIZE=4", "pmi", 2, 4, 0, 0},
        {"SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=4(x2)",
         "srun", 5, 6, 1, 4},
        {"SLURM_PROCID=0", NULL, 0, 1, 0, 1}, /* a batch script is not a rank */
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0", "srun", 0, 1, 0, 0},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500",
         "torchrun", 1, 2, 1, 2},
        {"RANK=1", NULL, 0, 1, 0, 1},
        {"WORLD_SIZE=2", NULL, 0, 1, 0, 1},
        {"RANK= WORLD_SIZE=", NULL, 0, 1, 0, 1},
        /* mpirun inside a Slurm job, or started for torchrun: mpirun's world counts */
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 RANK=7 WORLD_SIZE=9",
         "mpirun", 1, 3, 0, 0},
    };
    static const char *const bad[] = {
        "RANK=2 WORLD_SIZE=2",
        "RANK=-1 WORLD_SIZE=2",
        "RANK=x WORLD_SIZE=2",
        "RANK=0 WORLD_SIZE=0",
        "RANK=0 WORLD_SIZE=-4",
        "PMI_RANK=99999999999999999999 PMI_SIZE=4",
        "OMPI_COMM_WORLD_RANK=4 OMPI_COMM_WORLD_SIZE=4",
    };
    pl_rank_env e;

    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        set_names(k[i].set);
        CHECK_OK(pl_rank_env_read(&e));
        CHECK_MSG(!e.launcher == !k[i].launcher &&
                      (!e.launcher || strcmp(e.launcher, k[i].launcher) == 0),
                  "%s: %s", k[i].set, e.launcher ? e.launcher : "none");
        CHECK_MSG(e.rank == k[i].rank && e.size == k[i].size && e.local_rank == k[i].local_rank &&
                      e.local_size == k[i].local_size,
                  "%s: %d of %d, here %d of %d", k[i].set, e.rank, e.size, e.local_rank,
                  e.local_size);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_names(bad[i]);
        CHECK_MSG(pl_rank_env_read(&e) == PL_ERR_ARG, "%s is taken for rank %d of %d", bad[i],
                  e.rank, e.size);
    }
    set_names("");
}

/* ---- the same bits by any of them ------------------------------------------------------- */
static cli_result run_own(void)
{
    return cli_run(IN "$P train " RUN "train.steps=8 --ranks 3 --out own");
}

TEST(ranks_launch_by_mpirun_has_the_same_bits)
{
    WANT_RANKS();
    CHECK_INT(run_own().code, 0);

    cli_result r =
        cli_run(IN "mpirun -n 3 $P train " RUN
                   "train.steps=8 --out mpi && cmp own/model.safetensors mpi/model.safetensors");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);

    r = cli_run(IN "mpirun -n 3 $P train " RUN "train.steps=8 --ranks 2");
    CHECK_MSG(r.code == 2 && strstr(r.err, "--ranks 2, but mpirun started 3"), "exit %d: %s",
              r.code, r.err);
}

/* torchrun's variables by hand, as `torchrun --no-python` sets them. */
#define TORCH                                                                                          \
 "one() { RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ " \
 "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 exec $P train " RUN                            \
 "--out torch $keys; }; "

TEST(ranks_launched_by_torchruns_variables_have_the_same_bits)
{
    WANT_RANKS();

    CHECK_INT(run_own().code, 0);
    cli_result r = cli_run(
        IN TORCH
        "keys=train.steps=8; (one 2) & b=$!; (one 1) & a=$!; sleep 0.3; (one 0) || exit 97; wait $a || exit 98; "
        "wait $b || exit 99; cmp own/model.safetensors torch/model.safetensors");
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);

    /* An error is the exit code of all ranks, and is printed once. */
    r = cli_run(
        IN TORCH
        "keys='train.steps=8 batch=4 --fresh'; (one 0) & c=$!; (one 1) & a=$!; (one 2); echo $?; wait $a; echo $?; wait $c; echo $?");
    CHECK_MSG(strcmp(r.out, "2\n2\n2\n") == 0 && strstr(r.err, "4 cannot be shared") &&
                  strstr(r.err, "plimsoll:") == strrchr(r.err, '[') - 10,
              "%s: %s", r.out, r.err);
}

/* A signal to one of torchrun's processes, or to all at once as torchrun sends it: all end with 75.
 */
TEST(ranks_launch_by_torchrun_stops_on_a_signal_with_75)
{
    static const char *const whom[] = {"-TERM $a", "-PIPE $a", "-PIPE $c", "-TERM $a $b $c"};
    WANT_RANKS();
    for (int i = 0; i < 4; i++) {
        cli_result r = cli_run(
            IN TORCH
            "keys='train.steps=1000000 --fresh'; rm -rf torch; (one 0) & a=$!; (one 1) & b=$!; (one 2) & c=$!; while kill -0 $a; "
            "do sleep 0.05; grep -q event...step torch/log.jsonl 2>/dev/null && break; done; kill %s; wait $a; echo $?; wait $b; "
            "echo $?; wait $c; echo $?; ls torch/checkpoints/step-*/manifest.json >/dev/null",
            whom[i]);
        CHECK_MSG(strcmp(r.out, "75\n75\n75\n") == 0 && r.code == 0, "%s: %s: %s", whom[i], r.out,
                  r.err);
    }
}

/* Rank 0 of torchrun dies: the others do not wait forever. */
TEST(ranks_launch_by_torchrun_ends_when_rank_0_is_killed)
{
    WANT_RANKS();
    cli_result r = cli_run(
        IN TORCH
        "keys='train.steps=1000000 --fresh'; (one 0) & a=$!; (one 1) & b=$!; (one 2) & c=$!; while kill -0 $a; do sleep 0.05; "
        "grep -q event...step torch/log.jsonl 2>/dev/null && break; done; kill -9 $a; wait $b; echo $?; wait $c; echo $?; "
        "for i in $(seq 100); do ps -eo args | grep -v grep | grep -q 'out torch train.steps=1000000' || break; sleep 0.1; done; echo $((i < 100))");
    CHECK_MSG(strcmp(r.out, "8\n8\n1\n") == 0 && r.seconds < 40, "%s: %s", r.out, r.err);
}

TEST(ranks_launch_by_torchrun_has_the_same_bits)
{
    WANT_RANKS();
    if (!pl_test_long()) SKIP("long");

    cli_result r = cli_run("command -v torchrun || ls /opt/oracle/bin/torchrun");
    char torchrun[256];
    snprintf(torchrun, sizeof torchrun, "%.*s", (int)strcspn(r.out, "\n"), r.out);
    if (r.code != 0) SKIP("no torchrun on this machine");
    CHECK_INT(run_own().code, 0);

    r = cli_run(
        IN "%s --no-python --nproc_per_node 3 --master_port $((20000 + $$ %% 20000)) $P train " RUN
           "train.steps=8 --out torch && cmp own/model.safetensors torch/model.safetensors",
        torchrun);
    CHECK_MSG(r.code == 0, "exit %d: %s", r.code, r.err);

    /* torchrun's own exit code is 1; it prints the codes of its processes */
    r = cli_run(
        IN "%s --no-python --nproc_per_node 2 --master_port $((20000 + $$ %% 20000)) $P train " RUN
           "batch=3 train.steps=8",
        torchrun);
    CHECK_MSG(r.code != 0 && strstr(r.err, "3 cannot be shared equally by 2 ranks") &&
                  strstr(r.err, "exitcode: 2"),
              "%s", r.err);
}

/* torchrun's processes on several machines cannot connect: refused at once. */
TEST(ranks_launch_by_torchrun_on_several_machines_is_refused)
{
    WANT_RANKS();
    cli_result r = cli_run(
        IN
        "RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 $P train " RUN);
    CHECK_MSG(r.code == 8 && strstr(r.err, "2 of 4 ranks on this machine") &&
                  strstr(r.err, "mpirun"),
              "exit %d: %s", r.code, r.err);
}

/* ---- srun, PMI: a launcher that has told MPI nothing ------------------------------------ */
TEST(ranks_launch_without_pmix_is_refused_with_the_way_out)
{
    WANT_RANKS();
    cli_result r = cli_run(
        IN
        "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=2 SLURM_JOB_ID=7 SLURM_JOBID=7 SLURM_STEPID=0 SLURM_STEP_ID=0 "
        "SLURM_NODELIST=here $P train " RUN);

    CHECK_MSG(r.code == 8 && strstr(r.err, "but MPI cannot connect them: use srun --mpi=pmix"),
              "exit %d: %s", r.code, r.err);
    CHECK_MSG(r.seconds < 20, "%g s", r.seconds);

    r = cli_run(IN "PMI_RANK=0 PMI_SIZE=2 $P train " RUN);
    CHECK_MSG(r.code == 8 && strstr(r.err, "pmi started 2 ranks, MPI sees 1"), "exit %d: %s",
              r.code, r.err);
}

/* A launcher with one rank gives an ordinary run. */
TEST(ranks_launch_of_one_is_a_run_like_any_other)
{
    WANT_RANKS();
    cli_result r = cli_run(
        IN
        "$P train " RUN
        "train.steps=3 --out one && SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 $P train " RUN
        "train.steps=3 --out srun && cmp one/model.safetensors srun/model.safetensors && RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 "
        "LOCAL_WORLD_SIZE=1 $P train " RUN
        "train.steps=3 --out torch && cmp one/model.safetensors torch/model.safetensors");

    CHECK_MSG(r.code == 0, "exit %d: %s%s", r.code, r.out, r.err);
}

/* When mpirun fails after all ranks have ended, it is a warning: their work is done. */
TEST(ranks_launch_warns_when_mpirun_fails_after_the_ranks)
{
    WANT_RANKS();
    cli_result r = cli_run(
        IN
        "mkdir bin && printf '#!/bin/sh\\n%%s \"$@\" && exit 5\\n' $(command -v mpirun) >bin/mpirun && chmod +x bin/mpirun && "
        "PATH=$D/bin:$PATH $P train " RUN
        "train.steps=3 --ranks 3 --out x && ls x/model.safetensors");

    CHECK_MSG(r.code == 0 && strstr(r.err, "warning: mpirun ended with code 5"), "exit %d: %s%s",
              r.code, r.out, r.err);
}

TEST(ranks_launch_without_mpirun_says_what_to_install)
{
    WANT_RANKS();
    cli_result r = cli_run("cd $D && PATH=/nonexistent $P train " RUN "--ranks 2");
    CHECK_MSG(r.code == 8 && strstr(r.err, "mpirun is not found: install openmpi-bin"),
              "exit %d: %s", r.code, r.err);
}
