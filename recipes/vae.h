/* vae.h - the autoencoder of Stable Diffusion, for the recipes that work on its latents. Shapes in
 * comments are (B,H,W,C). Slots are named vae.*. */
#ifndef RECIPES_VAE_H
#define RECIPES_VAE_H

#include "plimsoll_recipe.h"

enum { VAE_MAX_LEVELS = 6, VAE_MAX_BLOCKS = 8 };
#define VAE_SCALE 0.18215 /* of latents, as the U-Net of Stable Diffusion was trained */

/* Channels of the finest level, factors of the levels, residual blocks of a level of the encoder;
 * a level of the decoder has one more. */
typedef struct vae_sizes {
    int64_t width, mult[VAE_MAX_LEVELS];
    int levels, blocks;
    int fusion_blocks; /* of a fusion layer, see vae_decode_fused */
} vae_sizes;

/* Rows of a schema: the keys that vae_sizes_of reads. */
/* clang-format off */
#define VAE_KEYS                                                                                      \
    {"vae.width", PL_CONFIG_INT, "128", .min = 32, .max = 65536, .cache = PL_CACHE_VALUE,             \
     .doc = "Autoencoder: channels of the finest level."},                                            \
    {"vae.mult", PL_CONFIG_INTS, "[1, 2, 4, 4]", .min = 1, .max = 64, .cache = PL_CACHE_VALUE,        \
     .doc = "Autoencoder: channels of its levels as multiples, 1 to 6 numbers; each level but the "   \
            "first halves the picture."},                                                             \
    {"vae.blocks", PL_CONFIG_INT, "2", .min = 1, .max = VAE_MAX_BLOCKS, .cache = PL_CACHE_VALUE,      \
     .doc = "Autoencoder: residual blocks per level of the encoder; the decoder has one more."}
/* clang-format on */
/* Reads the sizes from the keys of VAE_KEYS; a contradiction becomes the context's error, and the
 * result is false. */
bool vae_sizes_of(const pl_config *c, pl_nn *m, vae_sizes *v);
/* Pixels per position of a latent, F in the comments below: 8 for Stable Diffusion. */
int64_t vae_factor(const pl_config *c);

/* Image (B,F*L,F*L,3) in [-1,1] to the moments of its latent (B,L,L,8): means, then logs of
 * variances. */
pl_val vae_moments(pl_nn *m, const vae_sizes *c, pl_val image);
/* Returns a latent (B,L,L,4) in the U-Net's scale, from moments and noise. */
pl_val vae_sample(pl_nn *m, pl_val moments, pl_val noise);
/* Latent in the U-Net's scale to an image. */
pl_val vae_decode(pl_nn *m, const vae_sizes *c, pl_val z);
/* StableSR's second stage: at the two middle levels the decoder adds `weight` times the output of a
 * fusion layer, which reads the decoder's features and the encoder's features of `image`, the
 * picture to restore. Slots vae.decoder.fusion_layer_1.* and fusion_layer_2.*, besides those of
 * vae_decode. */
pl_val vae_decode_fused(pl_nn *m, const vae_sizes *c, pl_val z, pl_val image, double weight);
/* Names of the published files: for a pl_weights of slots vae.*. Ends with {NULL}. */
extern const pl_naming vae_namings[];

#endif
