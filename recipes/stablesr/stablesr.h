/* stablesr.h - shared by the files of the stablesr recipe. Shapes in comments are (B,H,W,C). */
#ifndef STABLESR_H
#define STABLESR_H

#include "plimsoll_recipe.h"
#include "recipes/vae.h"

typedef struct sr_config {
    bool edge_before; /* the original edge processor */
    bool half_blind;  /* the new input convolution ignores its first four channels (seed_compat) */
    int64_t batch, image, latent;
    int64_t before[5], before_down[5], stem, after[3], after_down[4];
    int64_t width, mult[4], context[2], struct_width, struct_mult[4], struct_out, spade_hidden;
    int levels, struct_levels, attn_levels, head_dim, struct_heads;
    vae_sizes vae;
} sr_config;

/* ---- model.c ---------------------------------------------------------------------------- */
/* Edge map (B,I,I,3) to (B,L,L,4); the original gives (B,I/32,I/32,4). */
pl_val sr_edge(pl_nn *m, const sr_config *c, pl_val x);
/* Noise (B,L,L,4) predicted from the fused input (B,L,L,8); map i is 2^i times smaller. */
pl_val sr_unet(pl_nn *m, const sr_config *c, pl_val x, pl_val t, pl_val context,
               const pl_val *struct_map);
void sr_struct_encoder(pl_nn *m, const sr_config *c, pl_val z, pl_val t, pl_val *maps);

/* ---- loss.c ----------------------------------------------------------------------------- */
/* One micro-batch: latents of the image and of its degraded form (B,L,L,4), noise of the same
 * shape, times (B) of integers, text context, edge map. */
typedef struct sr_batch {
    pl_val z, lq, eps, t, context, edge;
} sr_batch;
/* Mean squared error of the predicted noise. */
pl_val sr_loss(pl_nn *m, const sr_config *c, const sr_batch *b);
/* Frozen by default: the U-Net except SPADE and the new input convolution, the autoencoder, the
 * text context. */
#define SR_FROZEN "unet.*,!*.spade.*,!unet.inp.*,vae.*,context"

/* ---- names.c ---------------------------------------------------------------------------- */
extern const pl_weights sr_weights[];

/* ---- data ------------------------------------------------------------------------------- */
/* pairs.c: generated samples. */
pl_status sr_data_open(const pl_config *c, void **data);
void sr_data_close(void *data);
uint64_t sr_data_bytes(const pl_config *c);
pl_status sr_data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch);
pl_status sr_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h, uint8_t *rgb,
                  char *caption, size_t cap);
/* pictures.c: images, degraded by the keys degrade.*. */
pl_degrade sr_degrade_of(const pl_config *c);
uint64_t sr_make_bytes(const pl_config *c, int w, int h); /* bytes of one state */
pl_status sr_make_open(const pl_config *c, int w, int h, void **state);
void sr_make_close(void *state);
pl_status sr_make(void *state, const pl_picture *p, pl_batch *batch, int row);
extern const pl_image_feed sr_feed;

extern const pl_preset sr_presets[];

#endif
