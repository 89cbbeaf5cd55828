/* replay.h - inside of a replay: opening its dump, and telling rounding from differences. */
#ifndef PL_TRAIN_REPLAY_H
#define PL_TRAIN_REPLAY_H

#include "io/safetensors.h"
#include "train/run/run.h"

#include <jansson.h>

/* The peer's gradients of step 1. */
typedef struct peer_gradients {
    double largest; /* norm */
    int n;
    const pl_step_program *program; /* the program whose outputs are valid */
} peer_gradients;

/* Every number that a replay compares, in the order of comparison (replay_rounding.c). */
typedef struct pl_rounding pl_rounding;

typedef struct pl_replaying {
    const char *dir;
    bool *noise; /* by slot: its gradient is rounding noise */
    int n_noise;
    uint8_t **noisy; /* by slot: which elements of its gradient are noise; NULL: none */
    json_t *meta;
    pl_run *run;
    const pl_peer *peer;
    pl_replay_report *report;
    double loss_tol, grad_tol, final_tol;
    double loss[PL_MAX_METRICS]; /* of the step, in the order of its terms, over micro-batches */
    bool known[PL_MAX_METRICS];  /* some program computes the term */
    peer_gradients gradients;
    pl_rounding *rounding;
    char *start; /* every slot before step 1, in the order of the store */
    int nudge;   /* 0: from the peer's weights; k: from weights that the k-th nudge has moved */
} pl_replaying;

/* Reads meta.json of the dump into p->meta. */
pl_status pl__replay_read_meta(pl_replaying *p) PL_MUST_USE;
/* Opens the run that the dump's configuration and `o` describe; sets p->run and p->peer. Texts of
 * overrides live in `a`, which must outlive the run. */
pl_status pl__replay_open_run(pl_replaying *p, const pl_replay_opts *o, pl_arena *a) PL_MUST_USE;
/* Opens DIR/name.safetensors. */
pl_status pl__replay_open_file(const pl_replaying *p, const char *name,
                               pl_st_reader **out) PL_MUST_USE;

pl_rounding *pl__rounding_new(void);
void pl__rounding_free(pl_rounding *r);
/* Moves each of n numbers to the next number above or below, as `nudge` and the index of the slot
 * draw. */
void pl__rounding_nudge(int nudge, int slot, float *x, int64_t n);
/* Records a compared value. The first run appends: `distance` is how far the peer is, `differs`
 * whether that is more than the tolerance. A nudged run measures how far its value of the same name
 * is from the first run's. */
pl_status pl__rounding_record(pl_replaying *p, const char *name, const pl_type *t,
                              const void *value, double distance, bool differs) PL_MUST_USE;
/* Starts a nudged run: recording begins with the first value again. */
void pl__rounding_rewind(pl_rounding *r);
/* Returns how many values differ; *explained: how many of them rounding explains. Writes the value
 * that is nearest to a disagreement, with its numbers, to `text`. */
int pl__rounding_judge(const pl_rounding *r, int *explained, char *text, size_t cap);

#endif
