/* run_ranks.h - a run as one of several ranks: which samples and draws are its own, what all ranks
 * must agree on, and state that is sharded across them.
 *
 * All functions work for a single rank too: sums and minima are then the rank's own numbers.
 */
#ifndef PL_TRAIN_RUN_RANKS_H
#define PL_TRAIN_RUN_RANKS_H

#include "train/build/builder.h"

typedef struct pl_run_ranks {
    pl_world *world; /* NULL: this process is alone. Borrowed */
    pl_nn_ranks nn;  /* from the configuration; nn.ranks is at least 1 once it is read */
    pl_spread spread[PL_MAX_STEP_PROGRAMS]; /* of each program: which axis of a draw is samples */
    bool spread_known;
    char device[16]; /* of a rank that shares a machine with several devices, e.g. "cuda:1" */
} pl_run_ranks;

/* ---- run_ranks.c ---- */
/* Returns the number of ranks that the run is planned for. */
int64_t pl__ranks(const pl_run *r);
/* Returns the samples of a step of all ranks. */
int64_t pl__run_batch(const pl_run *r);
/* Reads the configuration's keys of ranks into r->ranks.nn. A world, if there is one, must have
 * joined before. */
pl_status pl__ranks_configure(pl_run *r) PL_MUST_USE;
/* Returns the device of this rank: on a machine with several devices, the device of the rank's
 * local number, modulo their number. */
const char *pl__ranks_device(pl_run *r);
/* shard: auto, and the plan does not fit: shards one more kind of state and returns true; the run
 * must then be built again. */
bool pl__ranks_share_more(pl_run *r);
/* Sets b's ranks and spread. PL_ERR_CONFIG when an op other than BatchNorm couples samples of
 * different ranks. */
pl_status pl__ranks_prepare(pl_run *r, int64_t accumulate, pl_builder *b) PL_MUST_USE;
/* Fails, on all ranks alike, when a rank's program, configuration, plan or data differ from rank
 * 0's. */
pl_status pl__ranks_check(pl_run *r) PL_MUST_USE;
/* Replaces the step's scalars by their means over ranks. *bad becomes the sum of all ranks' counts
 * of values that are not finite. */
pl_status pl__ranks_terms(pl_run *r, pl_step_info *info, double *bad) PL_MUST_USE;
/* Replaces n numbers, at most PL_MAX_METRICS, by their sums over ranks. */
pl_status pl__ranks_sum(pl_run *r, double *value, int n) PL_MUST_USE;
/* Replaces the number by the smallest of all ranks. */
pl_status pl__ranks_least(pl_run *r, uint64_t *value) PL_MUST_USE;
/* Returns the position, in the endless stream of samples, of sample i of this rank's share of
 * micro-batch `number`. */
int64_t pl__ranks_position(const pl_run *r, int64_t number, int64_t i);

/* ---- rank_files.c: state that ranks share, in files ---- */
struct pl_checkpoint;
typedef pl_status (*pl_bytes_sink)(void *ctx, const char *data, size_t bytes);
/* Rank 0, while the others answer: passes the whole value of a sharded slot to the sink, from its
 * beginning on. */
pl_status pl__ranks_fetch(pl_run *r, int slot, pl_bytes_sink sink, void *ctx) PL_MUST_USE;
/* Whether every rank has the slot, so that it is in the common state file. */
bool pl__slot_in_state_file(const pl_slot *s);
/* Writes every rank's shards into dir and adds their files to c. */
pl_status pl__ranks_save_parts(pl_run *r, const char *dir, struct pl_checkpoint *c) PL_MUST_USE;
/* Reads the state of a checkpoint that any number of ranks wrote. */
pl_status pl__ranks_read_state(pl_run *r, const char *dir,
                               const struct pl_checkpoint *c) PL_MUST_USE;
/* Returns how many elements of a slot's value this rank holds; sets *first to the first of them. */
int64_t pl__slot_range(const pl_slot *s, int64_t *first);

#endif
