/* env.c - see env.h. One row per launcher: the variables that it sets. */
#include "dist/env.h"

#include <stdlib.h>

typedef struct row {
    const char *launcher, *rank, *size, *local_rank, *local_size;
} row;

/* srun sets SLURM_STEP_NUM_TASKS only for the processes of a step; a batch script has its own
 * SLURM_PROCID and is not a rank. */
static const row rows[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

/* Returns a number from 0 on; -1 when the variable is not set or not a number. */
static int number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long v = text ? strtol(text, &end, 10) : -1;
    return text && end != text && v >= 0 && v < 1000000 ? (int)v : -1;
}

static bool set(const char *name)
{
    const char *text = getenv(name);
    return text && text[0];
}

pl_status pl_rank_env_read(pl_rank_env *out)
{
    *out = (pl_rank_env){.size = 1, .local_size = 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (!set(r->rank) || !set(r->size)) continue;
        int rank = number(r->rank), size = number(r->size), local = number(r->local_size);
        PL_FAIL_IF(rank < 0 || size < 1 || rank >= size, PL_ERR_ARG,
                   "%s=%s and %s=%s do not name a rank", r->rank, getenv(r->rank), r->size,
                   getenv(r->size));
        *out = (pl_rank_env){.launcher = r->launcher,
                             .rank = rank,
                             .size = size,
                             .local_rank = number(r->local_rank),
                             .local_size = local < 0 ? 0 : local,
                             .master = getenv("MASTER_ADDR"),
                             .port = number("MASTER_PORT")};
        if (out->local_rank < 0) out->local_rank = 0;
        return PL_OK;
    }
    return PL_OK;
}
