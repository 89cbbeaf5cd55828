/* fluxflow.h - shared by the files of the fluxflow recipe. Shapes in comments are (B,H,W,C). */
#ifndef FLUXFLOW_H
#define FLUXFLOW_H

#include "plimsoll_recipe.h"

/* ---- networks, model.c ------------------------------------------------------------------ */
typedef struct flux_sizes {
    int64_t batch, height, width, dim, rgb[2], disc_base, vgg[5];
    int64_t ff_mult; /* a compressor block's hidden width over dim */
    int64_t max_hw;  /* the size token holds height and width of the token map over this */
    int scales, layers, heads, disc_depth;
    int64_t spade_hidden; /* width of SPADE's hidden layer */
    int spade_groups;     /* groups of SPADE's norm */
    struct {
        int64_t width, text; /* channels of a token; length of a text vector */
        int64_t context;     /* tokens, from the first on, that make the context */
        int heads, layers;
    } flow;
    bool lpips_buffers; /* the scale of VGG's input is two slots instead of constants */
    bool spade;         /* the decoder's blocks are modulated by the tokens */
    bool compat;        /* seed_compat: the authors' behaviour */
} flux_sizes;

/* Tokens (B,T+1,D) of an image; mu and logvar (B,h,w,D). */
pl_val flux_compressor(pl_nn *m, const flux_sizes *c, pl_val image, pl_val eps, pl_val *mu,
                       pl_val *logvar);
pl_val flux_expander(pl_nn *m, const flux_sizes *c, pl_val packed);
/* One logit per patch (B,h,w,1), without the projection of the condition (B), which the authors add
 * to each of them. */
pl_val flux_patch_logits(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition,
                         pl_val *projection);
/* One logit per sample (B): the mean of its patches, plus the projection. */
pl_val flux_discriminator(pl_nn *m, const flux_sizes *c, pl_val image, pl_val condition);
pl_val flux_lpips(pl_nn *m, const flux_sizes *c, pl_val x, pl_val target);
/* Adds the token that holds the image size to tokens (B,T,D), giving (B,T+1,D); removes it. */
pl_val flux_packed(pl_nn *m, const flux_sizes *c, pl_val tokens);
pl_val flux_image_tokens(pl_nn *m, pl_val packed);
/* Mean of the image tokens, (B,D). */
pl_val flux_token_mean(pl_nn *m, pl_val packed);
/* Adds two channels to a map (B,H,W,C): the coordinates x and y, from -1 to 1. */
pl_val flux_with_coordinates(pl_nn *m, const flux_sizes *c, pl_val x);

/* ---- flow.c ----------------------------------------------------------------------------- */
/* Velocity (B,T,D) of noisy tokens at times t (B, i64, below 1000), given a text (B,E). */
pl_val flux_flow(pl_nn *m, const flux_sizes *c, pl_val tokens, pl_val text, pl_val t);
/* Rotary positions: rotates tokens (B,T,D) by their angles, head by head. The Bezier curve of four
 * points at parameter x, channel by channel. */
pl_val flux_flow_rotate(pl_nn *m, const flux_sizes *c, pl_val x, pl_val angles);
pl_val flux_flow_curve(pl_nn *m, const flux_sizes *c, pl_val x, const pl_val p[4]);
/* Training times (B, i64) from uniform numbers in [0,1), f64. */
pl_val flux_flow_time(pl_graph *g, pl_val u);
/* The share of the signal at time t, the square of its factor; 1 before time 0. */
double flux_signal_share(int64_t t);
/* Adds the noise of time t to tokens x, and gives the velocity there. compat: time 0 gets the noise
 * of time 1. */
void flux_flow_noised(pl_graph *g, pl_val x, pl_val noise, pl_val t, bool compat, pl_val *noised,
                      pl_val *velocity);

/* Samples tokens from noise (B,T,D) in `steps` DDIM steps, from time 999 down. */
pl_val flux_flow_sample(pl_nn *m, const flux_sizes *c, pl_val noise, pl_val text, int steps);

/* ---- losses.c --------------------------------------------------------------------------- */
/* Frequency-split L1 plus mse_weight times MSE. */
pl_val flux_reconstruction(pl_graph *g, pl_val x, pl_val target, double mse_weight);
/* pl_loss_kl with each element at least free_bits. */
pl_val flux_kl(pl_graph *g, pl_val mu, pl_val logvar, double free_bits);
/* top*(1 - cos(pi*min(step/warmup, 1)))/2, f64 */
pl_val flux_kl_weight(pl_graph *g, pl_val step, double top, double warmup);
/* Weights (n) that scale n loss terms to equal size: the mean of all positive means divided by the
 * mean of each term, over the last 100 steps. A term whose mean is 0 has weight 1, and so has every
 * term when no mean is positive. signed_means: as in the original, a term with a negative mean gets
 * a negative weight. */
pl_val flux_rolling_weights(pl_nn *m, pl_val raw, int64_t n, bool signed_means);

/* ---- programs, steps.c ------------------------------------------------------------------ */
/* One program that is being built. */
typedef struct flux {
    pl_builder *b;
    const pl_config *c;
    pl_nn *m;
    flux_sizes s;
    /* resolutions of a step, each of which trains; which of them: 0 is the image's own */
    int passes, pass;
} flux;

enum { FLUX_PASSES = 4 };

/* Reads the configuration at the image's own size (pass 0) or at resolutions[pass - 1]. False: the
 * error is in the context. */
bool flux_of(pl_builder *b, pl_nn *m, int pass, flux *k);
/* Input of a pass: "real", "real_1", ... */
const char *flux_image_name(int pass);
/* The discriminator's update; penalise: with the gradient penalty. */
void flux_build_disc(flux *k, bool penalise);
/* The autoencoder's update. */
void flux_build_vae(flux *k);
/* The flow processor's update, on tokens of the frozen compressor. */
void flux_build_flow(flux *k);
/* Reconstruction error and, if the flow is trained, velocity error. */
void flux_build_eval(flux *k);
/* Images beside their reconstructions; if the flow is trained, images from text. */
void flux_build_sample(flux *k);

/* ---- predictions, predict.c and sampler.c ------------------------------------------------ */
extern const pl_predict flux_predict;
/* One step of a sampler, on the host. x and v: tokens at times[i] and their velocity; on return x
 * are the tokens at times[i + 1], or clean ones after the last. */
typedef struct flux_sampler {
    int64_t *times; /* falling; owned by the caller */
    int steps;
    bool dpm;    /* DPM-Solver++ of second order, the authors'; false: DDIM */
    float *last; /* dpm: clean tokens of the step before, as many numbers as x */
} flux_sampler;
/* Sets the times of a sampler: DDIM's as sample.every has them, DPM-Solver's as the authors. */
void flux_sampler_times(flux_sampler *s);
void flux_sampler_step(flux_sampler *s, int i, float *x, const float *v, int64_t n);

/* ---- data, images.c --------------------------------------------------------------------- */
pl_status flux_data_open(const pl_config *c, void **data);
void flux_data_close(void *data);
int64_t flux_data_size(void *data, pl_subset subset);
pl_status flux_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch);
/* Draws a sample as an image (3 bytes per pixel) and a caption. */
pl_status flux_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h,
                    uint8_t *rgb, char *caption, size_t cap);
/* A caption as a vector: the sum of one direction per word. */
pl_status flux_encode(const pl_config *c, const char *caption, void *row, const pl_type *type);

extern const pl_preset flux_presets[];
extern const pl_weights flux_weights[]; /* names.c */
extern const pl_start flux_start;
extern const pl_export flux_exports[];

extern const pl_foreign flux_foreign[]; /* foreign.c */

#endif
