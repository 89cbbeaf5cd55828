/* nn.h - what the files of nn/ share: the private half of the context. */
#ifndef PL_NN_NN_H
#define PL_NN_NN_H

#include "base/arena.h"
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"

#define PL_NN_PATH  480
#define PL_NN_DEPTH 32

/* What the graph has made of a slot so far. */
typedef struct pl_nn_entry {
    pl_val now;    /* the value a read sees; none: not read yet */
    bool changed;  /* to be assigned */
    bool averaged; /* bn_average: sum collects statistics, the slot changes once at the end */
    pl_val sum;
    int calls;
    double momentum;
} pl_nn_entry;

struct pl_nn_state {
    pl_arena arena;       /* names, gradient lists */
    pl_nn_entry *entries; /* by slot */
    int n_entries;
    char path[PL_NN_PATH];
    size_t len;
    size_t marks[PL_NN_DEPTH];
    int depth;
    pl_val key; /* none: not read */
    bool key_given; /* by pl__nn_set_key: it is not advanced */
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
int64_t pl__nn_dim(pl_nn *m, pl_val v,
                   int axis); /* negative from the end; 0 if there is none */

#endif
