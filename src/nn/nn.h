/* nn.h - what the files of nn/ share: the private half of the context. */
#ifndef PL_NN_NN_H
#define PL_NN_NN_H

#include "base/arena.h"
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_ranks.h"

#define PL_NN_PATH  480
#define PL_NN_DEPTH 32

/* What the graph has made of a slot so far. */
typedef struct pl_nn_entry {
    pl_val now;    /* the value a read sees; none: not read yet */
    bool changed;  /* to be assigned */
    pl_val part;   /* of a slot that ranks share: what this rank has of it */
    bool averaged; /* bn_average: sum collects statistics, the slot changes once at the end */
    pl_val sum;
    int calls;
    double momentum;
} pl_nn_entry;

/* The ranks that run the graph, and what they share out among themselves. */
typedef struct pl_nn_ranks {
    int ranks, rank;
    pl_shard shard;
    bool sync_norm;        /* BatchNorm's statistics are of all ranks' samples */
    bool always;           /* gradients are exchanged even where one rank is the whole world */
    bool blind_norm;       /* BatchNorm uses its running statistics: to look for other couplings */
    uint64_t bucket_bytes; /* gradients are reduced in runs of about so many */
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
    pl_val key;               /* none: not read */
    bool key_given;           /* by pl__nn_set_key: it is not advanced */
    bool finished;
    pl_status status;
    bool first; /* the graph had no error of its own when status was recorded */
    char error[PL_NN_PATH + 320];
};

/* Draws take this key, i64[2], instead of the store's, which then does not move on. */
void pl__nn_set_key(pl_nn *m, pl_val key);

/* A slot under the current path. layout may be NULL (as is). -1 on error. */
int pl__nn_slot(pl_nn *m, const char *name, pl_type type, pl_slot_kind kind, pl_init init,
                const pl_file_layout *layout);
/* A slot whose name is whole. -1 on error. */
int pl__nn_slot_named(pl_nn *m, const pl_slot *slot);
/* The table entry of a slot; NULL when out of memory. */
pl_nn_entry *pl__nn_entry(pl_nn *m, int slot);
/* A parameter with all that can be said of it. */
pl_val pl__nn_param(pl_nn *m, const char *name, pl_type type, pl_init init,
                    const pl_file_layout *layout);
/* Files have shape file_dim for the same elements in the same order. */
pl_file_layout pl__nn_file_shape(int rank, const int64_t *dim);
/* Collects a statistic of a slot: update with momentum now, or averaged at the end. */
void pl__nn_statistic(pl_nn *m, int slot, pl_val value, double momentum);
/* ---- ranks.c ---- */
void pl__nn_set_ranks(pl_nn *m, const pl_nn_ranks *r);
/* The context's ranks, or NULL for one. */
const pl_nn_ranks *pl__nn_ranks(const pl_nn *m);
/* Sum over ranks of values that differ between them; x itself with one rank. */
pl_val pl__nn_over_ranks(pl_nn *m, pl_val x, const char *name);
/* Makes a slot one that ranks share. */
void pl__nn_share(const pl_nn_ranks *r, pl_slot *slot);
/* Whether a parameter of this type lies on all ranks in parts. */
bool pl__nn_shares(const pl_nn *m, const pl_type *t);
/* All of a shared slot, from this rank's part; and this rank's part of all of it. */
pl_val pl__nn_gathered(pl_nn *m, const pl_slot *slot, pl_val part);
pl_val pl__nn_part(pl_nn *m, int slot, pl_val whole);
/* This rank's part of a slot as it stands. */
pl_val pl__nn_read_part(pl_nn *m, int slot);
void pl__nn_update_part(pl_nn *m, int slot, pl_val part);
/* New parts of slots that every rank has whole: gathered from all ranks, in buckets. */
void pl__nn_update_gathered(pl_nn *m, int n, const int *slots, const pl_val *parts);
/* Replaces each rank's gradients by the sums over ranks, in buckets, in the order in which they are
 * made: whole, or (parts) this rank's part of each. */
void pl__nn_reduce(pl_nn *m, pl_grads *grads, bool parts);
/* Running statistics that differ between ranks become their means. */
void pl__nn_settle_buffers(pl_nn *m);

int64_t pl__nn_dim(pl_nn *m, pl_val v, int axis); /* negative from the end; 0 if there is none */

#endif
