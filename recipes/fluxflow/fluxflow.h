/* fluxflow.h - what the files of the fluxflow recipe share. Shapes in comments are (B,H,W,C). */
#ifndef FLUXFLOW_H
#define FLUXFLOW_H

#include "plimsoll_recipe.h"

/* ---- networks, model.c ------------------------------------------------------------------ */
typedef struct flux_sizes {
    int64_t batch, image, dim, rgb[2], disc_base, vgg[5];
    int scales, layers, heads, disc_depth;
    bool lpips_buffers; /* the scale of VGG's input is two slots instead of constants */
} flux_sizes;

/* Tokens (B,T+1,D) of an image; mu and logvar (B,h,w,D). */
pl_val flux_compressor(pl_nn *m, const flux_sizes *c, pl_val image, pl_val eps, pl_val *mu,
                       pl_val *logvar);
pl_val flux_expander(pl_nn *m, const flux_sizes *c, pl_val packed);
/* One logit a sample (B). */
pl_val flux_discriminator(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition);
pl_val flux_lpips(pl_nn *m, const flux_sizes *c, pl_val x, pl_val target);
/* Mean of the image tokens, (B,D). */
pl_val flux_token_mean(pl_nn *m, const flux_sizes *c, pl_val packed);

/* ---- losses.c --------------------------------------------------------------------------- */
/* Frequency-split L1 plus mse_weight times MSE. */
pl_val flux_reconstruction(pl_graph *g, pl_val x, pl_val target, double mse_weight);
/* As pl_loss_kl, each element not below free_bits. */
pl_val flux_kl(pl_graph *g, pl_val mu, pl_val logvar, double free_bits);
/* top*(1 - cos(pi*min(step/warmup, 1)))/2 */
pl_val flux_kl_weight(pl_graph *g, pl_val step, double top, double warmup);
/* Weights (n) that bring n terms (n) to one size: the mean of all over the mean of each, over the last
 * 100 steps. signed_means: as the authors have it, a term of negative mean gets a negative weight. */
pl_val flux_rolling_weights(pl_nn *m, pl_val raw, int64_t n, bool signed_means);

/* ---- data, images.c --------------------------------------------------------------------- */
pl_status flux_data_open(const pl_config *c, void **data);
void flux_data_close(void *data);
int64_t flux_data_size(void *data, pl_subset subset);
pl_status flux_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch);

extern const pl_preset flux_presets[];

#endif
