/* plimsoll_ranks.h - several processes, called ranks, that train one network.
 *
 * A world is a set of ranks that run the same program on different samples. MPI starts the ranks
 * and transfers bytes between them (docs/RANKS.md). This header is for programs that embed runs;
 * recipes do not need it.
 *
 *     pl_world *world;
 *     pl_world_open(&world);              the world of mpirun, srun or torchrun; NULL: none
 *     pl_run_open(...);                   with ranks=N
 *     pl_run_join(run, world);            before pl_run_build
 */
#ifndef PLIMSOLL_RANKS_H
#define PLIMSOLL_RANKS_H

#include "plimsoll_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which state is sharded across ranks (key `shard`); each value includes those above. */
typedef enum pl_shard {
    PL_SHARD_NONE,
    PL_SHARD_OPTIMIZER, /* optimizer moments and averages */
    PL_SHARD_GRADIENTS, /* accumulated gradients */
    PL_SHARD_WEIGHTS    /* parameters, including frozen ones */
} pl_shard;

typedef struct pl_world pl_world;

/* Call it first. Starts `ranks` copies of this program on this machine with mpirun, when ranks > 1
 * and no launcher has started this process, or under torchrun, which does not start MPI; *code is
 * then the exit code of this process. *code -1: this process is a rank, or the only process, and
 * continues. argv: of main. */
PL_API pl_status pl_ranks_start(int ranks, char **argv, int *code) PL_MUST_USE;
/* The same, also when a launcher has started this process. */
PL_API pl_status pl_ranks_launch(int ranks, char **argv, int *code) PL_MUST_USE;

/* Joins the world of the launcher that started this process; *out is NULL without a launcher or
 * with one rank. Call it once per process. */
PL_API pl_status pl_world_open(pl_world **out) PL_MUST_USE;
/* Returns the reason why ranks on several machines cannot authenticate their messages (libsodium is
 * missing); NULL: they can. */
PL_API const char *pl_world_keys_missing(void);
/* Every rank calls it with its exit code, after it has freed its runs; w may be NULL. */
PL_API void pl_world_close(pl_world *w, int code);
/* Ends all ranks because this rank failed: all ranks exit with the code, and the text is the last
 * output. Returns only if there is no control channel. */
PL_API void pl_world_fail(pl_world *w, int code, const char *text);
/* Registers fn, which is called on another thread when any rank ends the run, before this process
 * exits with the code. w may be NULL. */
PL_API void pl_world_on_failure(pl_world *w, void (*fn)(void *ctx, int code, const char *text),
                                void *ctx);
/* Sets the time without a heartbeat after which a rank counts as dead (default 10 s). Every rank
 * must call it. */
PL_API void pl_world_set_limit(pl_world *w, double seconds);
/* Reports what this rank is doing, for messages of other ranks; phase is static text. */
PL_API void pl_world_doing(pl_world *w, const char *phase, int64_t step);
PL_API int pl_world_rank(const pl_world *w); /* 0 for NULL */
PL_API int pl_world_size(const pl_world *w); /* 1 for NULL */
/* Returns the number of ranks on this machine, and the number of this rank among them. */
PL_API int pl_world_local_size(const pl_world *w);
PL_API int pl_world_local_rank(const pl_world *w);
typedef struct pl_rank_info {
    const char *host; /* borrowed from the world */
    int pid, threads;
    uint64_t memory_bytes; /* of the machine */
} pl_rank_info;
PL_API void pl_world_info(const pl_world *w, int rank, pl_rank_info *out);
/* Sets the number of ranks that a launcher has started, before joining; 1 without a launcher. */
PL_API pl_status pl_world_launched(int *size) PL_MUST_USE;
/* Gathers `bytes` bytes of every rank into `all`, in the order of ranks. Every rank calls it. */
PL_API pl_status pl_world_share(pl_world *w, const void *own, size_t bytes, void *all) PL_MUST_USE;
PL_API struct pl_comm *pl_world_comm(pl_world *w);

/* Makes the run one rank of a run of the whole world. Call it before pl_run_build; the world must
 * outlive the run. */
PL_API pl_status pl_run_join(pl_run *r, pl_world *w) PL_MUST_USE;
/* Bytes that this rank has sent to others since pl_run_join. */
typedef struct pl_run_traffic {
    uint64_t all_reduce, reduce_scatter, all_gather, broadcast, control;
} pl_run_traffic;
PL_API pl_run_traffic pl_run_traffic_get(const pl_run *r);
/* Rank 0 saves; the others call pl_run_serve, which sends their shards until rank 0 calls
 * pl_run_served. *well: the value that rank 0 passed. */
PL_API pl_status pl_run_serve(pl_run *r, bool *well) PL_MUST_USE;
PL_API pl_status pl_run_served(pl_run *r, bool well) PL_MUST_USE;
/* Copies `data` of rank 0 to all ranks. */
PL_API pl_status pl_world_tell(pl_world *w, void *data, size_t bytes) PL_MUST_USE;
/* Predicted exchanges of a step: bytes that a rank sends, their time, and the part of that time
 * that no kernel overlaps. Valid after pl_run_build. */
typedef struct pl_run_links {
    double bytes, ms, wait_ms;
    pl_shard shard; /* the choice of the plan with shard: auto */
} pl_run_links;
PL_API pl_run_links pl_run_links_get(const pl_run *r);
PL_API const char *pl_shard_name(pl_shard s);
/* Every rank calls it between steps: on return *bits has, on all ranks, every bit that any rank has
 * set. */
PL_API pl_status pl_run_agree(pl_run *r, uint64_t *bits) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
