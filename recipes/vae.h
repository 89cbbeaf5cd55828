/* vae.h - the autoencoder of Stable Diffusion, for the recipes that work on its latents. Shapes in
 * comments are (B,H,W,C). Slots are named vae.*. */
#ifndef RECIPES_VAE_H
#define RECIPES_VAE_H

#include "plimsoll_recipe.h"

enum { VAE_LEVELS = 4, VAE_FACTOR = 8 }; /* VAE_FACTOR: pixels per position of a latent */
#define VAE_SCALE 0.18215 /* of latents, as the U-Net of Stable Diffusion was trained */

typedef struct vae_sizes {
    int64_t width, mult[VAE_LEVELS]; /* channels of the finest level, and factors of the levels */
    int fusion_blocks;               /* of a fusion layer, see vae_decode_fused */
} vae_sizes;

/* Image (B,8L,8L,3) in [-1,1] to the moments of its latent (B,L,L,8): means, then logs of
 * variances. */
pl_val vae_moments(pl_nn *m, const vae_sizes *c, pl_val image);
/* Returns a latent (B,L,L,4) in the U-Net's scale, from moments and noise. */
pl_val vae_sample(pl_nn *m, pl_val moments, pl_val noise);
/* Latent in the U-Net's scale to an image. */
pl_val vae_decode(pl_nn *m, const vae_sizes *c, pl_val z);
/* StableSR's second stage: at the two middle levels the decoder adds `weight` times what a fusion
 * layer makes of its own features and those of the encoder for `image`, the picture to restore.
 * Slots vae.decoder.fusion_layer_1.* and fusion_layer_2.*, besides those of vae_decode. */
pl_val vae_decode_fused(pl_nn *m, const vae_sizes *c, pl_val z, pl_val image, double weight);
/* Names of the published files: for a pl_weights of slots vae.*. Ends with {NULL}. */
extern const pl_naming vae_namings[];

#endif
