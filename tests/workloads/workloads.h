/* workloads.h - the training systems of the PyTorch peers as model code on the public API.
 *
 * Each file reads like the peer of the same name: same modules, same names of parameters, same
 * order of operations. test_workloads.c runs them against numbers that PyTorch computed;
 * test_nn.c counts the parameters of the full sizes. Shapes in comments are (B,H,W,C).
 */
#ifndef PL_TESTS_WORKLOADS_H
#define PL_TESTS_WORKLOADS_H

#include "../../recipes/fluxflow/fluxflow.h"
#include "../../recipes/lgt/lgt.h"
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"

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
typedef struct wan_config {
    int64_t batch, latent, hidden, text_tokens, text_dim;
    int64_t teacher_dim, teacher_ffn, teacher_freq;
    int depth, heads, teacher_heads, teacher_layers;
    double lr;
} wan_config;
extern const wan_config wan_full, wan_small, wan_tiny;
pl_val wan_student(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text);
pl_val wan_teacher(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text);
void wan_step(pl_nn *m, const void *config);

/* ---- stablesr --------------------------------------------------------------------------- */
typedef struct sr_config {
    bool edge_before; /* the original edge processor */
    int64_t batch, image, latent;
    int accumulate;
    int64_t before[5], before_down[5], stem, after[3], after_down[4];
    int64_t width, mult[4], context[2], struct_width, struct_mult[4], struct_out, spade_hidden;
    int levels, struct_levels, attn_levels, head_dim, struct_heads;
    double lr;
} sr_config;
extern const sr_config sr_full, sr_tiny, sr_edge_before_full, sr_edge_before_tiny,
    sr_edge_after_tiny;
pl_val sr_edge(pl_nn *m, const sr_config *c, pl_val x);
/* Noise (B,L,L,4) predicted from the fused input (B,L,L,8); map i is 2^i times smaller. */
pl_val sr_unet(pl_nn *m, const sr_config *c, pl_val x, pl_val t, pl_val context,
               const pl_val *struct_map);
void sr_struct_encoder(pl_nn *m, const sr_config *c, pl_val z, pl_val t, pl_val *maps);
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
