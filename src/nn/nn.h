/* nn.h - shared by the files of nn/: the private half of the context. */
#ifndef PL_NN_NN_H
#define PL_NN_NN_H

#include "base/arena.h"
#include "base/number/packed.h"
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_ranks.h"

#define PL_NN_PATH  480
#define PL_NN_DEPTH 32

/* What the graph has computed for a slot so far. */
typedef struct pl_nn_entry {
    pl_val now;    /* the value as the slot stores it; none: not read yet */
    pl_val seen;   /* of a weight that is stored in fewer bits: what a read returns */
    bool changed;  /* to be assigned */
    pl_val part;   /* of a sharded slot: this rank's part */
    bool averaged; /* bn_average: sum collects statistics, the slot changes once at the end */
    pl_val sum;
    int calls;
    double momentum;
} pl_nn_entry;

/* The ranks that run the graph, and what is sharded among them. */
typedef struct pl_nn_ranks {
    int ranks, rank;
    pl_shard shard;
    bool sync_norm;        /* BatchNorm uses the samples of all ranks */
    bool always;           /* exchange gradients even in a world of one rank */
    bool blind_norm;       /* BatchNorm uses its running statistics: to find other couplings */
    uint64_t bucket_bytes; /* gradients are reduced in buckets of about this size */
    int64_t part_align;    /* elements of a part are a multiple of it; 0: 16 */
} pl_nn_ranks;

struct pl_nn_state {
    pl_arena arena;       /* names, gradient lists */
    pl_nn_entry *entries; /* by slot */
    int n_entries;
    char path[PL_NN_PATH];
    size_t len;
    size_t marks[PL_NN_DEPTH];
    int depth;
    const pl_nn_ranks *ranks; /* borrowed; NULL: one */
    bool bf16_weights;        /* trainable f32 weights are stored as bf16 */
    pl_val key;               /* none: not read */
    bool key_given;           /* set by pl__nn_set_key: it is not advanced */
    bool finished;
    pl_status status;
    bool first; /* the graph had no error when status was recorded */
    char error[PL_NN_PATH + 320];
};

/* Makes draws use this key, i64[2], instead of the store's key, which is then not advanced. */
void pl__nn_set_key(pl_nn *m, pl_val key);

/* Adds a slot under the current path. layout may be NULL (unchanged). -1 on error. */
int pl__nn_slot(pl_nn *m, const char *name, pl_type type, pl_slot_kind kind, pl_init init,
                const pl_file_layout *layout);
/* Adds a slot by its full name. -1 on error. */
int pl__nn_slot_named(pl_nn *m, const pl_slot *slot);
/* Stores trainable f32 weights that are made from here on as bf16; model code sees f32. */
void pl__nn_store_bf16(pl_nn *m, bool on);
/* Returns the value of a slot as it is stored: in the form that an update op takes. */
pl_val pl__nn_stored(pl_nn *m, int slot);
/* Returns the table entry of a slot; NULL when out of memory. */
pl_nn_entry *pl__nn_entry(pl_nn *m, int slot);
/* Adds a parameter with all its properties. */
pl_val pl__nn_param(pl_nn *m, const char *name, pl_type type, pl_init init,
                    const pl_file_layout *layout);
/* Returns the layout of a slot that files store with another shape: the same elements in the same
 * order. */
pl_file_layout pl__nn_file_shape(int rank, const int64_t *dim);
/* Records a statistic of a slot: updates it with momentum, or averages at the end. */
void pl__nn_statistic(pl_nn *m, int slot, pl_val value, double momentum);
/* Sets mean and variance [C] of x [N, .., C] for BatchNorm: in training those of the batch, which
 * also update the running statistics in slots[0] and slots[1]; otherwise the running ones. Returns
 * whether they are the batch's. name: for messages. */
bool pl__nn_batch_moments(pl_nn *m, pl_val x, const char *name, const int slots[2], double momentum,
                          pl_val *mean, pl_val *var);
/* ---- ranks.c ---- */
void pl__nn_set_ranks(pl_nn *m, const pl_nn_ranks *r);
/* Returns the context's ranks, or NULL for one rank. */
const pl_nn_ranks *pl__nn_ranks(const pl_nn *m);
/* Returns the sum over ranks of values that differ between them; x itself with one rank. */
pl_val pl__nn_over_ranks(pl_nn *m, pl_val x, const char *name);
/* Makes a slot sharded. */
void pl__nn_share(const pl_nn_ranks *r, pl_slot *slot);
/* The same for a slot of packed numbers that accompanies a parameter of type `of`; parts must be
 * whole blocks (part_align). */
void pl__nn_share_packed(const pl_nn_ranks *r, const pl_type *of, pl_slot *slot);
/* Whether a parameter of this type is sharded across ranks. */
bool pl__nn_shares(const pl_nn *m, const pl_type *t);
/* Return the whole sharded slot, from this rank's part; and this rank's part of a whole value. */
pl_val pl__nn_gathered(pl_nn *m, const pl_slot *slot, pl_val part);
pl_val pl__nn_part(pl_nn *m, int slot, pl_val whole);
/* Returns this rank's current part of a slot. */
pl_val pl__nn_read_part(pl_nn *m, int slot);
void pl__nn_update_part(pl_nn *m, int slot, pl_val part);
/* Updates slots that every rank has whole: gathers their new parts from all ranks, in buckets. */
void pl__nn_update_gathered(pl_nn *m, int n, const int *slots, const pl_val *parts);
/* Replaces each rank's gradients by the sums over ranks, in buckets, in the order in which they are
 * computed: whole, or (parts) this rank's part of each. */
void pl__nn_reduce(pl_nn *m, pl_grads *grads, bool parts);

/* ---- optimizer.c ---- */
/* Like pl_optim_accumulate and pl_optim_accumulated for a step of one micro-batch whose update is a
 * separate program: accumulators are set, not added to, and are not cleared. */
void pl__optim_hand_over(pl_nn *m, const pl_grads *grads);
void pl__optim_handed_over(pl_nn *m, const pl_optim *o, pl_grads *out);
/* Replaces running statistics that differ between ranks by their means. */
void pl__nn_settle_buffers(pl_nn *m);

/* ---- guard.c ---- */
/* Returns whether the step is applied (bool scalar), and updates the usual values. norm: of the
 * whole gradient. finite: PL_NO_VAL, or false where the step is skipped for another reason. */
pl_val pl__guard(pl_nn *m, const pl_optim *o, pl_val norm, pl_val finite, pl_guard_report *r);

int64_t pl__nn_dim(pl_nn *m, pl_val v, int axis); /* negative from the end; 0 if there is none */

#endif
