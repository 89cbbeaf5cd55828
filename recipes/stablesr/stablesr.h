/* stablesr.h - shared by the files of the stablesr recipe. Shapes in comments are (B,H,W,C). */
#ifndef STABLESR_H
#define STABLESR_H

#include "plimsoll_recipe.h"
#include "recipes/vae.h"

enum { SR_MAX_LEVELS = 6, SR_MAX_BLOCKS = 4, SR_MAX_DEPTH = 16 };

typedef struct sr_config {
    bool edge_before;   /* the original edge processor */
    bool edge_enlarged; /* the maps of the original are enlarged to the size of a latent */
    bool half_blind; /* the new input convolution ignores its first four channels (seed_compat) */
    int64_t batch, image, latent;
    int64_t start; /* time at which restoring starts */
    int64_t before[5], before_down[5], stem, after[3], after_down[4];
    int64_t width, mult[SR_MAX_LEVELS], context[2], struct_width, struct_mult[SR_MAX_LEVELS];
    int64_t struct_out, spade_hidden;
    /* blocks: residual blocks per level; depth: transformer blocks of an attention; attention at
     * the levels from *_attn_from on that are below *_attn_levels; groups of every group norm of
     * U-Net and structure encoder */
    int levels, blocks, depth, attn_from, attn_levels, head_dim, groups;
    int struct_levels, struct_blocks, struct_attn_from, struct_attn_levels, struct_heads;
    vae_sizes vae;
    double fusion; /* weight of the autoencoder's fusion layers; 0: it has none, or none are used */
} sr_config;

/* stablesr.c: reads the configuration; a contradiction becomes the context's error. */
pl_status sr_config_of(pl_builder *b, pl_nn *m, sr_config *k);
/* Whether blocks of a level of the U-Net, or of the structure encoder, have attention. */
bool sr_attends(const sr_config *c, int level);
bool sr_struct_attends(const sr_config *c, int level);

/* ---- model.c ---------------------------------------------------------------------------- */
/* Edge map (B,I,I,3) to (B,L,L,4); the original alone gives (B,I/32,I/32,4). */
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
    pl_val gt, bad; /* the picture and its degraded form, where they are read; else PL_NO_VAL */
} sr_batch;
/* The latent z with the noise of its time. */
pl_val sr_noised(pl_nn *m, const sr_config *c, const sr_batch *b);
/* A latent and edge features (B,L,L,4), fused to the U-Net's input (B,L,L,8). */
pl_val sr_fused(pl_nn *m, pl_val x, pl_val edges);
/* The noise that the network finds in x_t. */
pl_val sr_predicted(pl_nn *m, const sr_config *c, const sr_batch *b, pl_val x_t);
/* Mean squared error of the predicted noise. */
pl_val sr_loss(pl_nn *m, const sr_config *c, const sr_batch *b);
/* Frozen by default: the U-Net except SPADE and the new input convolution, the autoencoder, the
 * text context. */
#define SR_FROZEN "unet.*,!*.spade.*,!unet.inp.*,vae.*,context"

/* ---- names.c ---------------------------------------------------------------------------- */
extern const pl_weights sr_weights[];
/* Weight of the autoencoder's fusion layers, by the keys vae.*; 0: the decoder has none. */
double sr_fusion_of(const pl_config *c);
extern const pl_start sr_start;
extern const pl_export sr_exports[];

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

extern const pl_predict sr_predict; /* predict.c */
/* sampler.c: share of the signal in a latent at time t: the product of 1 - beta from 0 to t. */
double sr_signal(int64_t t);
/* An image (B,I,I,3) decoded from a latent; `given`: the degraded picture, for fusion layers. */
pl_val sr_decoded(pl_nn *m, const sr_config *c, pl_val latent, pl_val given);
/* restore.c: restores b->lq in DDIM steps from the noise b->eps, all in the graph: an image. */
pl_val sr_restored(pl_nn *m, const sr_config *c, const sr_batch *b, int steps);

extern const pl_preset sr_presets[];

extern const pl_foreign sr_foreign[]; /* foreign.c */

/* peer.c */
extern const pl_peer sr_peer;

#endif
