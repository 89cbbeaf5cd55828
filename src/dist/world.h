/* world.h - the ranks of a run; see plimsoll_ranks.h. */
#ifndef PL_DIST_WORLD_H
#define PL_DIST_WORLD_H

#include "dist/control.h"
#include "dist/env.h"
#include "dist/mpi_plugin.h"
#include "plimsoll_ranks.h"

#include <stdatomic.h>

enum { PL_HOST_BYTES = 64 };

/* What every rank knows about each rank. */
typedef struct pl_member {
    char host[PL_HOST_BYTES];
    int32_t pid, threads;
    uint64_t memory_bytes; /* of the machine, or of its container */
    uint64_t memory_id;    /* of that container; 0: no limit */
} pl_member;

struct pl_world {
    pl_comm comm;
    const pl_mpi_plugin_info *mpi;
    pl_rank_env env;
    int local_rank, local_size;
    pl_member *member;         /* size of them */
    pl_hub *hub;               /* when it is this process's */
    pl_line *line;             /* NULL: none (tests) */
    const char *_Atomic phase; /* "saving", "evaluating", ...; static text */
    _Atomic int64_t step;
};

/* Ranks that share the memory limit of this rank's container, itself included. */
int pl_world_in_container(const pl_world *w);

/* async.c: a thread for the communicator's exchanges. */
pl_status pl_async_open(pl_comm *c) PL_MUST_USE;
void pl_async_close(pl_comm *c);
/* Loads the plug-in, or PL_ERR_PEER that says what is missing. */
pl_status pl_mpi_load(const pl_mpi_plugin_info **out) PL_MUST_USE;

#endif
