/* lgt.h - what the files of the lgt recipe share. Shapes in comments are (B,H,W,C). */
#ifndef LGT_H
#define LGT_H

#include "plimsoll_recipe.h"

enum { LGT_MAX_SCALES = 4 };

typedef struct lgt_config {
    int64_t batch, latent, base, cond, styles, samples, positions, projections;
    int encoder_blocks, decoder_blocks, ode_steps;
    bool adagn;     /* normalisation scaled by the condition instead of depthwise kernels from it */
    bool plus;      /* attention in the middle and gates on the skips */
    bool shrinking; /* dt from the current time instead of the first */
    int n_scales;   /* patch sizes of the style term; 0: one, of 3 */
    int64_t scale[LGT_MAX_SCALES];
    double scale_weight[LGT_MAX_SCALES];
    double w_style, w_content, w_velocity;
} lgt_config;

/* ---- model.c ---------------------------------------------------------------------------- */
/* Velocity (B,S,S,4) of x at time t (B). style (B) of integers; where uncond (1) or (B,1) holds, the
 * average style. first: true in the first step, which takes the average of the initial styles; PL_NO_VAL:
 * the average is what the slot holds. */
pl_val lgt_unet(pl_nn *m, const lgt_config *c, pl_val x, pl_val t, pl_val style, pl_val uncond,
                pl_val first);

/* ---- loss.c ----------------------------------------------------------------------------- */
/* One micro-batch and its draws. rows and directions: one of each a scale. */
typedef struct lgt_batch {
    pl_val src, style_ref, style; /* latents (B,S,S,4), whose style is wanted, wanted styles (B) */
    pl_val x0, t, uncond, positions, first;
    pl_val rows[LGT_MAX_SCALES], directions[LGT_MAX_SCALES];
} lgt_batch;
typedef struct lgt_terms {
    pl_val loss, swd, ssm, velocity;
} lgt_terms;
lgt_terms lgt_loss(pl_nn *m, const lgt_config *c, const lgt_batch *b);
/* Which patches a scale compares: count of them, or all when samples are no fewer. */
int64_t lgt_patches(const lgt_config *c, int scale);
int64_t lgt_patch_size(const lgt_config *c, int scale);
/* Weighted sum over the scales. */
pl_val lgt_style_distance(pl_graph *g, const lgt_config *c, pl_val x, pl_val y, const pl_val *rows,
                          const pl_val *directions);

/* ---- data, latents.c -------------------------------------------------------------------- */
pl_status lgt_data_open(const pl_config *c, void **data);
void lgt_data_close(void *data);
int64_t lgt_data_size(void *data, pl_subset subset);
pl_status lgt_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch);

extern const pl_preset lgt_presets[];

#endif
