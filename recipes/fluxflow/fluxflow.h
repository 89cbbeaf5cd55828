/* fluxflow.h - what the files of the fluxflow recipe share. Shapes in comments are (B,H,W,C). */
#ifndef FLUXFLOW_H
#define FLUXFLOW_H

#include "plimsoll_recipe.h"

/* ---- networks, model.c ------------------------------------------------------------------ */
typedef struct flux_sizes {
    int64_t batch, height, width, dim, rgb[2], disc_base, vgg[5];
    int scales, layers, heads, disc_depth;
    struct {
        int64_t width, text; /* channels of a token in it; length of a text vector */
        int heads, layers;
    } flow;
    bool lpips_buffers; /* the scale of VGG's input is two slots instead of constants */
    bool spade;         /* the decoder's blocks are modulated by the tokens */
    bool compat;        /* the authors' behaviour where it was mended */
} flux_sizes;

/* Tokens (B,T+1,D) of an image; mu and logvar (B,h,w,D). */
pl_val flux_compressor(pl_nn *m, const flux_sizes *c, pl_val image, pl_val eps, pl_val *mu,
                       pl_val *logvar);
pl_val flux_expander(pl_nn *m, const flux_sizes *c, pl_val packed);
/* One logit a sample (B). */
pl_val flux_discriminator(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition);
pl_val flux_lpips(pl_nn *m, const flux_sizes *c, pl_val x, pl_val target);
/* Tokens of an image (B,T,D) with the one that holds the size, (B,T+1,D); and without it. */
pl_val flux_packed(pl_nn *m, const flux_sizes *c, pl_val tokens);
pl_val flux_image_tokens(pl_nn *m, pl_val packed);
/* Mean of the image tokens, (B,D). */
pl_val flux_token_mean(pl_nn *m, pl_val packed);
/* A map (B,H,W,C) with two more channels: x, then y, from -1 to 1. */
pl_val flux_with_coordinates(pl_nn *m, const flux_sizes *c, pl_val x);

/* ---- flow.c ----------------------------------------------------------------------------- */
/* Velocity (B,T,D) of tokens with noise, at times t (B, i64, below 1000), for a text (B,E). */
pl_val flux_flow(pl_nn *m, const flux_sizes *c, pl_val tokens, pl_val text, pl_val t);
/* Its tokens (B,T,D) turned by their places, head by head; the curve through four points at the
 * place x, channel by channel. */
pl_val flux_flow_program(pl_nn *m, const flux_sizes *c, pl_val x, pl_val angles);
pl_val flux_flow_curve(pl_nn *m, const flux_sizes *c, pl_val x, const pl_val p[4]);
/* Times (B, i64) as training draws them, from numbers in [0,1). */
pl_val flux_flow_time(pl_graph *g, pl_val u);
/* Tokens with as much noise as belongs to t, and the velocity there. */
void flux_flow_noised(pl_graph *g, pl_val x, pl_val noise, pl_val t, pl_val *noised,
                      pl_val *velocity);

/* Tokens that `steps` steps (DDIM, from time 999 down) make of noise (B,T,D). */
pl_val flux_flow_sample(pl_nn *m, const flux_sizes *c, pl_val noise, pl_val text, int steps);

/* ---- losses.c --------------------------------------------------------------------------- */
/* Frequency-split L1 plus mse_weight times MSE. */
pl_val flux_reconstruction(pl_graph *g, pl_val x, pl_val target, double mse_weight);
/* As pl_loss_kl, each element not below free_bits. */
pl_val flux_kl(pl_graph *g, pl_val mu, pl_val logvar, double free_bits);
/* top*(1 - cos(pi*min(step/warmup, 1)))/2, f64 */
pl_val flux_kl_weight(pl_graph *g, pl_val step, double top, double warmup);
/* Weights (n) that bring n terms (n) to one size: the mean of all over the mean of each, over the
 * last 100 steps. signed_means: as the authors have it, a term of negative mean gets a negative
 * weight. */
pl_val flux_rolling_weights(pl_nn *m, pl_val raw, int64_t n, bool signed_means);

/* ---- programs, steps.c ------------------------------------------------------------------ */
/* One program in the making. */
typedef struct flux {
    pl_builder *b;
    const pl_config *c;
    pl_nn *m;
    flux_sizes s;
    /* resolutions of a step, each of which trains; which of them: 0 is the image's own */
    int passes, pass;
} flux;

enum { FLUX_PASSES = 4 };

/* What the configuration says, at the image's own size (pass 0) or at that of resolutions[pass -
 * 1]. An error is the context's. */
bool flux_of(pl_builder *b, pl_nn *m, int pass, flux *k);
/* Input of a pass: "real", "real_1", ... */
const char *flux_image_name(int pass);
/* The discriminator's update; penalise: with the gradient penalty. */
void flux_build_disc(flux *k, bool penalise);
/* The autoencoder's update. */
void flux_build_vae(flux *k);
/* The flow processor's update, from tokens of a compressor that stays as it is. */
void flux_build_flow(flux *k);
/* Reconstruction and, where it is trained, the velocity's error. */
void flux_build_eval(flux *k);
/* Pictures beside what the autoencoder makes of them; where the flow is trained, pictures from
 * text. */
void flux_build_sample(flux *k);

/* ---- data, images.c --------------------------------------------------------------------- */
pl_status flux_data_open(const pl_config *c, void **data);
void flux_data_close(void *data);
int64_t flux_data_size(void *data, pl_subset subset);
pl_status flux_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch);
/* A sample as a picture (3 bytes a pixel) and a caption. */
pl_status flux_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h,
                    uint8_t *rgb, char *caption, size_t cap);
/* A caption as a vector: the sum of a direction for each of its words. */
pl_status flux_encode(const pl_config *c, const char *caption, void *row, const pl_type *type);

extern const pl_preset flux_presets[];
extern const pl_weights flux_weights[]; /* names.c */

#endif
