/* env.h - which launcher started this process, its rank and the number of ranks. */
#ifndef PL_DIST_ENV_H
#define PL_DIST_ENV_H

#include "base/err.h"

typedef struct pl_rank_env {
    const char
        *launcher; /* "mpirun", "pmi", "srun", "torchrun"; NULL: none, this process is alone */
    int rank, size;
    int local_rank, local_size; /* among the ranks of this machine; size 0: unknown */
    const char *master;         /* torchrun: host and port that rank 0 can be reached at */
    int port;
} pl_rank_env;

/* Reads OMPI_*, PMI_*, SLURM_* and RANK, WORLD_SIZE, MASTER_*, in this order. PL_ERR_ARG when they
 * are inconsistent. */
pl_status pl_rank_env_read(pl_rank_env *out) PL_MUST_USE;

#endif
