/* plimsoll_optim.h - from a loss to new weights: gradients, clipping, optimizers, learning-rate
 * schedules, averages, loss scaling. All of them are nodes of the graph, so the plan contains them.
 *
 *     pl_optim o = PL_OPTIM_INIT;                 AdamW, lr 1e-3, weight decay 0.01
 *     o.lr = (pl_lr){.lr = 1e-4, .kind = PL_LR_COSINE, .total = 10000, .warmup = 500};
 *     o.clip_norm = 1.0;
 *     pl_optim_report r;
 *     pl_optim_apply(m, loss, &o, &r);            r.lr, r.grad_norm are values to report
 *
 * One program does everything: an update runs as soon as its gradient exists. Gradient accumulation
 * uses two programs: `micro` = pl_optim_gradients + pl_optim_accumulate, run A times with loss/A;
 * `apply` = pl_optim_accumulated + pl_optim_update.
 *
 * Slots of a parameter P under an optimiser named "optim": optim.m.P, optim.v.P, optim.vmax.P
 * (Adam), optim.buf.P (SGD, RMSprop), optim.m.P (Lion), optim.sq.P, optim.mean.P (RMSprop),
 * optim.row.P, optim.col.P or optim.v.P (Adafactor); optim.step (i64, updates done); ema.P;
 * accum.P. A parameter that the context never read keeps its value and has no such slots, like a
 * PyTorch parameter without a gradient. Later reads in the same graph see the new value of a
 * parameter: a discriminator step and a generator step may share a graph or have separate graphs.
 */
#ifndef PLIMSOLL_OPTIM_H
#define PLIMSOLL_OPTIM_H

#include "plimsoll_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- learning-rate schedules ---------------------------------------------------------------
 * A schedule is a pure function of the number of updates done, n (0 at the first update). With
 * `every` it advances once per that many updates (an epoch): it uses n/every. Warm-up comes first
 * and the schedule starts after it, as torch's SequentialLR([LinearLR, S], [warmup]). */
typedef enum pl_lr_kind {
    PL_LR_CONSTANT,
    PL_LR_LINEAR,      /* lr*start_factor to lr*end_factor over total; then constant */
    PL_LR_COSINE,      /* lr to eta_min over total (CosineAnnealingLR), continued periodically */
    PL_LR_STEP,        /* times gamma every step_size */
    PL_LR_EXPONENTIAL, /* times gamma every step */
    PL_LR_ONE_CYCLE,   /* OneCycleLR, cosine: lr is the maximum */
    PL_LR_N_KINDS
} pl_lr_kind;

typedef struct pl_lr {
    pl_lr_kind kind;
    double lr;
    int64_t total, step_size, every; /* every 0 reads as 1 */
    double eta_min, gamma;
    double start_factor, end_factor;                /* linear; 0 and 0 read as 1 and 0 */
    double pct_start, div_factor, final_div_factor; /* one-cycle; 0 reads as .3, 25, 1e4 */
    int64_t warmup;                                 /* in the schedule's steps; 0: none */
    double warmup_start;                /* factor at step 0, rising linearly to 1 at `warmup` */
    bool plateau;                       /* multiplied by the plateau factor, see pl_plateau */
    double plateau_factor, plateau_min; /* 0: 0.1; lowest learning rate */
} pl_lr;

/* Returns the learning rate on the host; n: updates done; reductions: reductions by pl_plateau. */
PL_API double pl_lr_at(const pl_lr *s, int64_t n, int64_t reductions);
/* Adds the learning rate to the graph; step is an i64 scalar, the result an f32 scalar, computed in
 * f64. */
PL_API pl_val pl_lr_value(pl_nn *m, const pl_lr *s, pl_val step);

/* ReduceLROnPlateau. The host decides once per evaluation; the state is the counter slot
 * "lr.plateau", f64[4], all zero at first: {reductions, best, bad, 1 + cooldown left}. */
typedef struct pl_plateau {
    int64_t patience; /* 10 */
    int64_t cooldown;
    double threshold; /* 1e-4, relative unless absolute */
    bool absolute, maximize;
} pl_plateau;
#define PL_PLATEAU_INIT                                                                            \
 {                                                                                                 \
  .patience = 10, .threshold = 1e-4                                                                \
 }
PL_API int pl_plateau_slot(pl_store *s); /* made if absent */
/* Takes a metric; returns true when the learning rate is reduced. state: memory of the slot. */
PL_API bool pl_plateau_step(const pl_plateau *p, double state[4], double metric);

/* ---- optimisers ------------------------------------------------------------------------- */
typedef enum pl_optim_kind {
    PL_OPTIM_SGD,
    PL_OPTIM_ADAM,
    PL_OPTIM_ADAMW,
    PL_OPTIM_LION,
    PL_OPTIM_RMSPROP,
    PL_OPTIM_ADAFACTOR, /* second moments of matrices as sums of rows and columns */
    PL_OPTIM_N_KINDS
} pl_optim_kind;

/* How moments are stored. Fewer bits change the numbers of a training; weights are not affected. */
typedef enum pl_optim_state {
    PL_OPTIM_STATE_F32,
    PL_OPTIM_STATE_BF16, /* rounded at random */
    PL_OPTIM_STATE_8BIT, /* codes in blocks of 256 with a scale; moments of fewer than
                          * 4,096 elements stay f32 */
    PL_OPTIM_N_STATES
} pl_optim_state;

/* Leaves out steps whose gradient norm or loss is far from what is usual: guard.c of src/nn has the
 * rule. */
typedef struct pl_guard {
    double spike;           /* times what is usual; 0: no guard */
    int64_t window, warmup; /* applied steps: of the means, and before the guard judges */
    pl_val loss;            /* scalar: this rank's share of the mean loss of the batch */
} pl_guard;
/* End of the names of slots that count steps in a row which were not applied. */
#define PL_GUARD_ROW "row"

typedef struct pl_optim {
    size_t struct_size;
    pl_optim_kind kind;
    const char *name;   /* prefix of its slots: "optim" */
    const char *params; /* pattern (pl_nn_match) over trainable parameters; NULL: all */
    pl_lr lr;
    double beta1, beta2, eps;
    double weight_decay; /* on slots whose `decay` is set */
    bool amsgrad;
    double momentum, dampening; /* SGD, RMSprop */
    bool nesterov, centered;
    double alpha;        /* RMSprop */
    double clip_norm;    /* by global norm when > 0: min(1, clip/(norm + 1e-6)) */
    double ema;          /* decay of averaged copies "ema.P" when > 0 */
    pl_val loss_scale;   /* f32 scalar that multiplied the loss; PL_NO_VAL: none */
    bool skip_nonfinite; /* a step with a non-finite gradient norm changes nothing */
    pl_guard guard;
    pl_optim_state state;
} pl_optim;
#define PL_OPTIM_INIT                                                                              \
 {                                                                                                 \
  .struct_size = sizeof(pl_optim), .kind = PL_OPTIM_ADAMW, .name = "optim", .lr = {.lr = 1e-3},    \
  .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .alpha = 0.99                   \
 }
/* "sgd", "adam", "adamw", "lion", "rmsprop", "adafactor" */
PL_API bool pl_optim_parse(const char *name, pl_optim_kind *out);

/* Parameters with their gradients; arrays live as long as the context. */
typedef struct pl_grads {
    int n;
    int *slot;
    pl_val *param, *grad;
    bool reduced; /* already summed over ranks */
} pl_grads;

typedef struct pl_guard_report {
    pl_val row;        /* f32 scalar: steps in a row that were not applied; 0: this one is */
    pl_val norm, loss; /* f32 scalars: what was usual before this step */
} pl_guard_report;

typedef struct pl_optim_report {
    pl_val lr;             /* f32 scalar used in this step */
    pl_val grad_norm;      /* f32 scalar, before clipping; PL_NO_VAL unless clipped or skipped */
    pl_val step;           /* i64 scalar, 1 at the first update */
    pl_val finite;         /* bool scalar; PL_NO_VAL unless skip_nonfinite */
    pl_guard_report guard; /* PL_NO_VAL unless the guard is on */
} pl_optim_report;

/* Computes the gradients of loss (times loss_scale if o has one) with respect to the trainable
 * parameters read so far that match o->params. */
PL_API void pl_optim_gradients(pl_nn *m, pl_val loss, const pl_optim *o, pl_grads *out);
/* Updates the parameters, moments, averages and the step counter (through pl_nn_update, so that
 * pl_nn_finish assigns them). report may be NULL. */
PL_API void pl_optim_update(pl_nn *m, const pl_grads *grads, const pl_optim *o,
                            pl_optim_report *report);
/* pl_optim_gradients, then pl_optim_update. */
PL_API void pl_optim_apply(pl_nn *m, pl_val loss, const pl_optim *o, pl_optim_report *report);

/* Adds gradients into the accumulator slots. */
PL_API void pl_optim_accumulate(pl_nn *m, const pl_grads *grads);
/* In another graph over the same store: reads the accumulated gradients of all parameters that have
 * an accumulator and match, and sets the accumulators to zero. */
PL_API void pl_optim_accumulated(pl_nn *m, const pl_optim *o, pl_grads *out);

/* With micro-batches: adds the share of one to a slot; and, in the graph that updates, the sum. */
PL_API void pl_guard_add(pl_nn *m, const pl_optim *o, pl_val share);
PL_API pl_val pl_guard_sum(pl_nn *m, const pl_optim *o);

/* ---- dynamic loss scale (fp16) -------------------------------------------------------------
 * Slots "scale.value" (f32) and "scale.good" (i32). The scale doubles after `interval` finite
 * steps, halves after a step that is not finite, and is never below `floor`. Read it before the
 * loss; update it with report.finite. */
typedef struct pl_loss_scale {
    double initial, growth, backoff, floor;
    int interval;
} pl_loss_scale;
#define PL_LOSS_SCALE_INIT                                                                         \
 {                                                                                                 \
  .initial = 65536, .growth = 2, .backoff = 0.5, .floor = 1, .interval = 2000                      \
 }
PL_API pl_val pl_loss_scale_read(pl_nn *m, const pl_loss_scale *o);
PL_API void pl_loss_scale_update(pl_nn *m, const pl_loss_scale *o, pl_val finite);

#ifdef __cplusplus
}
#endif
#endif
