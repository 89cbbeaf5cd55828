/* plimsoll_ranks.h - several processes that train one network: ranks, and what they share.
 *
 * A world is a number of processes, ranks, that run the same program on other samples. MPI starts
 * them and moves their bytes (docs/RANKS.md). What is here is for whoever writes a program around
 * runs; recipes need none of it.
 *
 *     pl_world *world;
 *     pl_world_open(&world);              the world that mpirun, srun or torchrun made; NULL: alone
 *     pl_run_open(...);                   with ranks=N
 *     pl_run_join(run, world);            before pl_run_build
 */
#ifndef PLIMSOLL_RANKS_H
#define PLIMSOLL_RANKS_H

#include "plimsoll_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What of a run's state every rank has only its part of (key `shard`); each includes those above.
 */
typedef enum pl_shard {
    PL_SHARD_NONE,
    PL_SHARD_OPTIMIZER, /* moments and averages */
    PL_SHARD_GRADIENTS, /* sums over micro-batches */
    PL_SHARD_WEIGHTS    /* parameters, frozen ones too */
} pl_shard;

typedef struct pl_world pl_world;

/* Called first by a program that ranks run: starts `ranks` of it on this machine by mpirun when
 * that many are asked for and no launcher has started this one, or for torchrun, which makes no
 * world of its own. *code is then what the process is to exit with; -1: it is a rank, or alone, and
 * goes on. argv: of main. */
PL_API pl_status pl_ranks_start(int ranks, char **argv, int *code) PL_MUST_USE;
/* The same, whatever started this process. */
PL_API pl_status pl_ranks_launch(int ranks, char **argv, int *code) PL_MUST_USE;

/* Joins the world of the launcher that started this process; *out is NULL when there is none, or
 * when the world has one rank. Once in a process. */
PL_API pl_status pl_world_open(pl_world **out) PL_MUST_USE;
/* Every rank calls it, when all its runs are freed, with the code that it exits with; NULL is fine.
 */
PL_API void pl_world_close(pl_world *w, int code);
/* This rank has failed: all ranks end, the text is what is said last, and the process exits with
 * the code (others with the same: they failed with it). Returns only where there is no control
 * channel. */
PL_API void pl_world_fail(pl_world *w, int code, const char *text);
/* A rank that is not heard of for so long ends the world; 10 s. Every rank sets it. */
PL_API void pl_world_set_limit(pl_world *w, double seconds);
/* What this rank does now, for whoever waits for it; static text. */
PL_API void pl_world_doing(pl_world *w, const char *phase, int64_t step);
PL_API int pl_world_rank(const pl_world *w); /* 0 of NULL */
PL_API int pl_world_size(const pl_world *w); /* 1 of NULL */
/* Ranks on this rank's machine, and which of them it is. */
PL_API int pl_world_local_size(const pl_world *w);
PL_API int pl_world_local_rank(const pl_world *w);
typedef struct pl_rank_info {
    const char *host; /* the world's */
    int pid, threads;
    uint64_t memory_bytes; /* of its machine */
} pl_rank_info;
PL_API void pl_world_info(const pl_world *w, int rank, pl_rank_info *out);
/* How many ranks a launcher has started, before joining; 1 without one. */
PL_API pl_status pl_world_launched(int *size) PL_MUST_USE;
/* `bytes` of every rank, in the order of ranks, into all. Every rank calls it. */
PL_API pl_status pl_world_share(pl_world *w, const void *own, size_t bytes, void *all) PL_MUST_USE;
PL_API struct pl_comm *pl_world_comm(pl_world *w);

/* The run is this rank's part of a run of the whole world. Before pl_run_build; the world outlives
 * it. */
PL_API pl_status pl_run_join(pl_run *r, pl_world *w) PL_MUST_USE;
PL_API pl_world *pl_run_world(const pl_run *r);
/* Bytes that this rank sent to others since the run was joined. */
typedef struct pl_run_traffic {
    uint64_t all_reduce, reduce_scatter, all_gather, broadcast, control;
} pl_run_traffic;
PL_API pl_run_traffic pl_run_traffic_get(const pl_run *r);
/* Saving is rank 0's; the others serve it meanwhile, until it calls pl_run_served. *well is what it
 * says then. */
PL_API pl_status pl_run_serve(pl_run *r, bool *well) PL_MUST_USE;
PL_API pl_status pl_run_served(pl_run *r, bool well) PL_MUST_USE;
/* Rank 0's data in place of all others'. */
PL_API pl_status pl_world_tell(pl_world *w, void *data, size_t bytes) PL_MUST_USE;
/* What a step is expected to exchange: bytes that a rank sends, the time that takes, and how much
 * of it nothing is computed meanwhile. After pl_run_build. */
typedef struct pl_run_links {
    double bytes, ms, wait_ms;
    pl_shard shard; /* what the plan shares: shard: auto chooses */
} pl_run_links;
PL_API pl_run_links pl_run_links_get(const pl_run *r);
PL_API const char *pl_shard_name(pl_shard s);
/* Between steps, by every rank: bits that any rank has set come back set on all of them. */
PL_API pl_status pl_run_agree(pl_run *r, uint64_t *bits) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
