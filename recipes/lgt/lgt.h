/* lgt.h - shared by the files of the lgt recipe. Shapes in comments are (B,H,W,C). */
#ifndef LGT_H
#define LGT_H

#include "plimsoll_recipe.h"

enum { LGT_MAX_SCALES = 4, LGT_MAX_WEIGHTS = 64 };

/* The style vector of an unconditional evaluation. */
typedef enum lgt_average {
    LGT_AVERAGE_INITIAL, /* mean of the initial style vectors, kept in a buffer */
    LGT_AVERAGE_CURRENT, /* mean of the current style vectors */
    LGT_AVERAGE_LEARNED  /* a learned vector, initially zero */
} lgt_average;

/* Size of a latent; in memory it is (rows, columns, channels). */
typedef struct lgt_shape {
    int64_t rows, columns, channels;
} lgt_shape;

typedef struct lgt_config {
    lgt_shape latent;
    int64_t batch, base, cond, time, styles, samples, positions, projections;
    int encoder_blocks, decoder_blocks, ode_steps;
    bool adagn;     /* normalisation scaled by the condition instead of depthwise kernels from it */
    bool plus;      /* attention in the middle and gates on the skips */
    bool by_sample; /* patches are compared sample by sample instead of over the batch */
    bool shrinking; /* dt from the current time instead of the first */
    bool kept;      /* the velocity term has the wanted style also where the label is dropped */
    int n_scales;   /* patch sizes of the style term; 0: one, of 3 */
    int64_t scale[LGT_MAX_SCALES];
    double scale_weight[LGT_MAX_SCALES];
    double w_style, w_content, w_velocity;
    lgt_average average;
    int n_style_weights; /* 0: all 1 */
    double style_weight[LGT_MAX_WEIGHTS];
} lgt_config;

/* ---- model.c ---------------------------------------------------------------------------- */
/* ids (B) of integers; where uncond (1) or (B,1) holds, the average style (PL_NO_VAL: nowhere).
 * first: true in the first step, which takes the average of the initial styles; PL_NO_VAL: the
 * average is what the slot holds. noise (B,cond): added to the styles; PL_NO_VAL: none. */
typedef struct lgt_style {
    pl_val ids, uncond, first, noise;
} lgt_style;
/* The encoder's maps, at full, half and quarter size: they depend on x alone. */
typedef struct lgt_features {
    pl_val fine, half, middle;
} lgt_features;
lgt_features lgt_encode(pl_nn *m, const lgt_config *c, pl_val x);
/* Velocity (B,H,W,C) of x at time t (B), from x or from its maps. */
pl_val lgt_decode(pl_nn *m, const lgt_config *c, const lgt_features *f, pl_val t,
                  const lgt_style *style);
pl_val lgt_unet(pl_nn *m, const lgt_config *c, pl_val x, pl_val t, const lgt_style *style);

/* ---- loss.c ----------------------------------------------------------------------------- */
/* One micro-batch and its random draws; rows and directions: one per scale. */
typedef struct lgt_batch {
    pl_val src, style_ref, style; /* latents (B,H,W,C), whose style is wanted, wanted styles (B) */
    pl_val x0, t, uncond, positions, first;
    /* on the styles, (ode_steps+1,B,cond): one for each evaluation; PL_NO_VAL: none */
    pl_val noise;
    pl_val rows[LGT_MAX_SCALES], directions[LGT_MAX_SCALES];
} lgt_batch;
typedef struct lgt_terms {
    pl_val loss, swd, ssm, velocity;
} lgt_terms;
/* End point of N Euler steps from x at times b->t. first: the velocity at x; PL_NO_VAL: compute it.
 */
pl_val lgt_integrate(pl_nn *m, const lgt_config *c, const lgt_batch *b, pl_val x, pl_val first);
lgt_terms lgt_loss(pl_nn *m, const lgt_config *c, const lgt_batch *b);
/* Number of patches that a scale compares; *of: number of patches in the batch or in a sample. */
int64_t lgt_patches(const lgt_config *c, int scale, int64_t *of);
int64_t lgt_patch_size(const lgt_config *c, int scale);
/* Weighted sum over the scales. */
pl_val lgt_style_distance(pl_graph *g, const lgt_config *c, pl_val x, pl_val y, const pl_val *rows,
                          const pl_val *directions);

/* ---- inference, infer.c ----------------------------------------------------------------- */
/* Evaluation and sampling: invert the source to noise, then generate in the wanted style. */
pl_status lgt_build_eval(pl_builder *b);
pl_status lgt_build_sample(pl_builder *b);
/* Reads the configuration; a contradiction becomes the context's error. */
pl_status lgt_config_of(pl_builder *b, pl_nn *m, lgt_config *k);
lgt_shape lgt_shape_of(const pl_config *c);
int64_t lgt_numbers(lgt_shape s);                            /* elements of a latent */
pl_type lgt_batch_type(const lgt_config *c, pl_dtype dtype); /* of a batch of latents */

/* ---- the authors' files: latent_file.c, files.c ----------------------------------------- */
/* Reads or writes a tensor [C,H,W] in a torch.save file; in memory it is (H,W,C). */
pl_status lgt_pt_read(const char *path, lgt_shape shape, float *out);
pl_status lgt_pt_write(const char *path, lgt_shape shape, const float *x);

typedef struct lgt_files lgt_files;
/* A latent, and a reference latent of its target style; both borrowed. */
typedef struct lgt_pair {
    const float *src, *ref;
    int64_t from, to;
} lgt_pair;
pl_status lgt_files_open(const pl_config *c, lgt_files **out);
void lgt_files_close(lgt_files *s);
uint64_t lgt_files_bytes(const pl_config *c);
int64_t lgt_files_size(const lgt_files *s, pl_subset subset);
lgt_pair lgt_files_pair(const lgt_files *s, pl_subset subset, int64_t sample, int64_t pass);

/* ---- data, latents.c -------------------------------------------------------------------- */
pl_status lgt_data_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir);
uint64_t lgt_data_bytes(const pl_config *c);
pl_status lgt_data_open(const pl_config *c, void **data);
void lgt_data_close(void *data);
int64_t lgt_data_size(void *data, pl_subset subset);
pl_status lgt_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch);

/* ---- predictions, predict.c -------------------------------------------------------------- */
extern const pl_predict lgt_predict;
extern const pl_weights lgt_weights[];

extern const pl_preset lgt_presets[];
extern const pl_start lgt_start; /* names.c */
extern const pl_export lgt_exports[];

extern const pl_foreign lgt_foreign[]; /* foreign.c */

#endif
