/* wandistill.h - shared by the files of the wandistill recipe. Shapes in comments are (B,H,W,C). */
#ifndef WANDISTILL_H
#define WANDISTILL_H

#include "plimsoll_recipe.h"

typedef struct wan_config {
    int64_t batch, latent, channels, hidden, text_tokens, text_dim;
    int64_t teacher_channels, teacher_dim, teacher_ffn, teacher_freq;
    int depth, heads, teacher_heads, teacher_layers;
    pl_dtype teacher_dtype; /* of its weights and activations; 0: f32 */
} wan_config;

/* Reads the configuration; a contradiction becomes the context's error. */
pl_status wan_config_of(pl_builder *b, pl_nn *m, wan_config *k);
/* latents (B,S,S,channels), t (B) of integers, text (B,L,text_dim) to (B,S,S,channels). */
pl_val wan_student(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text);
/* latents (B,F,H,W,teacher_channels) of the teacher's type to the same shape and type. */
pl_val wan_teacher(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text);
/* The teacher's output (B,S,S,teacher_channels) f32 for latents (B,S,S,channels), without a
 * gradient. zero_lift: the frozen projection to the teacher's channels is zero, so that the teacher
 * sees an empty latent. */
pl_val wan_target(pl_nn *m, const wan_config *c, pl_val latents, pl_val t, pl_val text,
                  bool zero_lift);

/* The original's loss: (B,S,S,C) against (B,S,S,D) as PyTorch broadcasts (B,C,S,S) and (B,D,1,S,S).
 * With one sample every channel is compared with all D; with D samples the student's samples are
 * compared with the teacher's channels; other batch sizes fail. */
pl_val wan_broadcast_loss(pl_nn *m, pl_val out, pl_val target);

/* project.c: initialises the student's slots from the teacher's weights. Both must exist. joined:
 * as the authors' program does. */
void wan_project(pl_nn *m, const wan_config *c, bool joined);

/* ---- the autoencoder of the teacher's latents, decoder.c ---------------------------------- */
enum { WAN_VAE_LEVELS = 8, WAN_VAE_BLOCKS = 8, WAN_VAE_FRAMES = 64 };
typedef struct wan_vae {
    int64_t width, channels, mult[WAN_VAE_LEVELS]; /* channels: of a latent */
    int levels, blocks;                            /* blocks: a level has one more */
    bool doubles[WAN_VAE_LEVELS];   /* [i]: enlarging to level i doubles the frames, too */
    const double *mean, *deviation; /* of the channels of a latent, borrowed from the keys */
} wan_vae;
/* Reads the keys vae.*; false: the context has the error. */
bool wan_vae_of(const pl_config *c, pl_nn *m, wan_vae *v);
/* Latents (B,F,H,W,channels) in the autoencoder's scale to frames (B,F',H',W',3) in [-1,1], where
 * H' is H x 2^(levels-1) and F' is 1 + 2^k (F-1) for k levels that double the frames. */
pl_val wan_decode(pl_nn *m, const wan_vae *c, pl_val z);
extern const pl_naming wan_vae_namings[];

/* ---- data, prompts.c -------------------------------------------------------------------- */
pl_status wan_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch);

pl_status wan_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h, uint8_t *rgb,
                   char *caption, size_t cap);

extern const pl_weights wan_weights[]; /* names.c */
extern const pl_start wan_start;
extern const pl_export wan_exports[];
extern const pl_predict wan_predict; /* predict.c */
extern const pl_preset wan_presets[];

extern const pl_foreign wan_foreign[]; /* foreign.c */

#endif
