/* workloads.h - the training systems of the PyTorch peers as model code on the public API.
 *
 * Each file reads like the peer of the same name: same modules, same names of parameters, same
 * order of operations. test_workloads.c runs them against numbers that PyTorch computed;
 * test_nn.c counts the parameters of the full sizes. Shapes in comments are (B,H,W,C).
 */
#ifndef PL_TESTS_WORKLOADS_H
#define PL_TESTS_WORKLOADS_H

#include "plimsoll_nn.h"
#include "plimsoll_optim.h"
#include "recipes/fluxflow/fluxflow.h"
#include "recipes/lgt/lgt.h"
#include "recipes/stablesr/stablesr.h"
#include "recipes/wandistill/wandistill.h"

/* Gradients of loss, made outputs "grad.<param>", then the update. */
void work_minimise(pl_nn *m, pl_val loss, const pl_optim *o);
/* The same from accumulated gradients. */
void work_apply(pl_nn *m, const pl_optim *o);
/* conv3x3, padding 1; and with stride 2 */
pl_nn_conv work_conv3(void);
pl_nn_conv work_conv3_down(void);
/* pl_nn_conv2d with kernel 1 */
pl_val work_conv1(pl_nn *m, pl_val x, const char *name, int64_t out);

/* ---- lgt -------------------------------------------------------------------------------- */
extern const lgt_config lgt_full, lgt_tiny;
void lgt_micro(pl_nn *m, const void *config);
void lgt_apply(pl_nn *m, const void *config);

/* ---- wandistill ------------------------------------------------------------------------- */
extern const wan_config wan_full, wan_small, wan_tiny;
void wan_step(pl_nn *m, const void *config);

/* ---- stablesr --------------------------------------------------------------------------- */
extern const sr_config sr_full, sr_tiny, sr_edge_before_full, sr_edge_before_tiny,
    sr_edge_after_tiny;
void sr_edge_step(pl_nn *m, const void *config);
void sr_step(pl_nn *m, const void *config);

/* ---- fluxflow --------------------------------------------------------------------------- */
typedef struct flux_config {
    bool lpips, gan;
    flux_sizes sizes;
    double lr, clip, ema, kl_beta, kl_warmup, r1_gamma, lambda_adv, lambda_lpips, mse_weight;
    int64_t first_step;
} flux_config;
extern const flux_config flux_full, flux_tiny_vae, flux_tiny_gan;
void flux_disc_r1(pl_nn *m, const void *config); /* discriminator step with the penalty */
void flux_disc(pl_nn *m, const void *config);    /* without */
void flux_generator(pl_nn *m, const void *config);

#endif
