/* plimsoll_recipe.h - what a recipe is: a model, its loss, its data, its presets.
 *
 * The built-in recipes and a user's own network (a folder made by `plimsoll new`, compiled to a
 * .so) use this interface and nothing more. A .so exports one function:
 *
 *     const pl_recipe *pl_recipe_entry(void);
 *
 * The engine reads the configuration (its own keys and the recipe's), calls build once to get the
 * programs, plans them, opens the data, and runs: for every step it chooses the samples (a pure
 * function of seed and epoch), has the recipe write them into the inputs, runs the training
 * program and reads the named outputs.
 */
#ifndef PLIMSOLL_RECIPE_H
#define PLIMSOLL_RECIPE_H

#include "plimsoll.h"
#include "plimsoll_config.h"
#include "plimsoll_image.h"
#include "plimsoll_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_RECIPE_ABI 6

/* ---- building --------------------------------------------------------------------------- */
typedef struct pl_builder pl_builder;

PL_API const pl_config *pl_builder_config(const pl_builder *b);
PL_API pl_store *pl_builder_store(pl_builder *b);
/* The training program as a layer context (plimsoll_nn.h); inputs have the micro-batch as their
 * first dimension. The context is the builder's, who finishes and frees it. */
PL_API pl_nn *pl_builder_train(pl_builder *b);
/* The evaluation program, over the same weights; there is none unless this is called. Its scalar
 * outputs are averaged over the evaluation batches and reported under their names. */
PL_API pl_nn *pl_builder_eval(pl_builder *b);
PL_API int64_t pl_builder_batch(const pl_builder *b); /* samples a run: the micro-batch */
/* The sampling program, without gradients over the same weights, whose pictures `plimsoll train`
 * writes every sample.every steps; NULL unless that key asks for it. Its inputs are some of the
 * evaluation program's, with the first samples of that set in them, or there are none. Its draws
 * (pl_draw_*) are the same every time; it may not change any state. */
PL_API pl_nn *pl_builder_sample(pl_builder *b);
/* A picture of it for each sample: [batch,H,W,C] or [batch,C,H,W], C 3 or 1; low is black, high is
 * white. (where both could be meant, the first). sample.count of them are put side by side. */
PL_API void pl_builder_picture(pl_builder *b, const char *name, pl_val v, float low, float high);
/* An array of it, the samples first, of any type: sample.count rows go into a safetensors file
 * beside the pictures, under this name. */
PL_API void pl_builder_array(pl_builder *b, const char *name, pl_val v);

/* An output of the training program named "nonfinite" stops the run when it is above 0: for models
 * that hide a blow-up from their loss (nan_to_num). A loss that is not finite always does.
 *
 * Finishes the training program: gradients of loss for every trainable slot, clipping, optimiser,
 * schedule, EMA and counters as the keys `optim.*`, `schedule.*`, `clip.*`, `ema.*` say; makes
 * loss, lr and grad_norm outputs. */
PL_API void pl_builder_minimise(pl_builder *b, pl_val loss);

/* ---- steps of several programs ------------------------------------------------------------- */
/* A step may run further programs: a discriminator beside a generator, a penalty every 16 steps,
 * the same model at several resolutions. Each has its own graph over the same store and its own
 * update, so that it sees what the programs before it left; all are planned, and the arena is the
 * largest one's. They read the same samples: an input of a program is filled for every program
 * that has it, in the shape that it has there. Values pass from one to the next through slots of
 * the store.  Which programs run is decided on the host, from the number of steps done. */
typedef struct pl_when {
    int64_t every;       /* k > 0: steps 0, k, 2k, ... of the run; 0: all */
    int64_t but_every;   /* k > 0: all steps but those */
    int64_t from, until; /* steps [from, until); until 0: no end */
    bool after;          /* follows the training program; else it comes before */
} pl_when;
/* A further program of the step; they run in the order of these calls. The context is the
 * builder's. Its outputs are reported as "name.output". */
PL_API pl_nn *pl_builder_program(pl_builder *b, const char *name, pl_when when);

/* What a program trains: slots by pattern (pl_nn_match; NULL: all), with the optimiser, schedule,
 * clipping and averages of one section of the configuration: "optim" (NULL) is the engine's own,
 * others are named by pl_recipe.optims. Two sections never train the same slot. updates: of the
 * section for a batch, when several programs use it: its schedule then moves once a step; 0 reads
 * as 1. With several updates per batch (train.updates_per_batch) it stands still over those too,
 * unless each_update. */
typedef struct pl_group {
    const char *slots, *optim;
    int64_t updates;
    bool each_update;
} pl_group;
/* As pl_builder_minimise, for the training program or one of pl_builder_program. */
PL_API void pl_builder_minimise_with(pl_builder *b, pl_nn *m, pl_val loss, const pl_group *group);
/* Updates done by a section, an i64 scalar, 0 in the first step: what schedules in the graph count.
 * Micro-batches of one step see the same number. */
PL_API pl_val pl_builder_step(pl_builder *b, pl_nn *m, const char *optim);
/* How often a step trains on its batch: key train.updates_per_batch. */
PL_API int64_t pl_builder_updates(const pl_builder *b);

/* Random numbers of the training program, by name. In training they come from the engine's
 * counter-based generator; in a replay (`plimsoll replay`) each is an input of that name, read from
 * the dump, so that two engines can be compared draw for draw. keep: a dropout multiplier, 0 with
 * probability p, else 1/(1-p). */
PL_API pl_val pl_draw_uniform(pl_builder *b, pl_nn *m, const char *name, pl_type type);
PL_API pl_val pl_draw_normal(pl_builder *b, pl_nn *m, const char *name, pl_type type);
PL_API pl_val pl_draw_keep(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p);
PL_API pl_val pl_draw_permutation(pl_builder *b, pl_nn *m, const char *name, int64_t n);
/* count of the numbers below n, each at most once, in random order: integers (count). */
PL_API pl_val pl_draw_choice(pl_builder *b, pl_nn *m, const char *name, int64_t n, int64_t count);
/* Whole numbers in [0, high), of an integer type. */
PL_API pl_val pl_draw_integers(pl_builder *b, pl_nn *m, const char *name, pl_type type,
                               int64_t high);
/* true with probability p, of type bool. */
PL_API pl_val pl_draw_chance(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p);

/* ---- data ------------------------------------------------------------------------------- */
typedef enum pl_subset { PL_SUBSET_TRAIN, PL_SUBSET_EVAL } pl_subset;

/* A batch being filled: memory of a program's inputs. */
typedef struct pl_batch pl_batch;
/* Where to write input `name` of the batch; the whole batch, row-major. NULL if the program has no
 * such input (then nobody wants it). */
PL_API void *pl_batch_input(pl_batch *batch, const char *name, pl_type *type);
/* How often sample i of the batch has been trained on before: what a sample is joined with anew
 * every time is drawn from its number and this. 0 in an evaluation. */
PL_API int64_t pl_batch_pass(const pl_batch *batch, int i);

/* Numbers for generated samples, each a pure function of its arguments. A sample's seed: `world` is
 * any constant of the recipe's own; evaluation samples are of another world, so the two sets share
 * nothing. Number k of a seed: uniform in [0,1); near normal (four uniform ones), mean 0 and
 * variance 1. */
PL_API uint64_t pl_sample_seed(uint64_t world, pl_subset subset, int64_t sample);
PL_API double pl_sample_uniform(uint64_t seed, uint64_t k);
PL_API double pl_sample_normal(uint64_t seed, uint64_t k);

/* Inputs that a set of images feeds (data.source folder or tar). The size of an image is the
 * input's: [batch, C, H, W] or [batch, H, W, C], C 3 (RGB) or 1 (grey), f32 or u8. Several images
 * are views of the same part of one picture in their own sizes, which have one aspect. */
typedef struct pl_image_input {
    const char *name;
    float low, high; /* f32: values of black and of white, e.g. -1 and 1 */
} pl_image_input;
/* A view of the first image's size, 3 bytes a pixel, and what draws for it depend on. */
typedef struct pl_picture {
    const uint8_t *rgb;
    int w, h;
    pl_image_key key;
    pl_subset subset;
} pl_picture;
typedef struct pl_image_feed {
    const pl_image_input *images; /* ends with {NULL} */
    const char *label;            /* input [batch], i32, i64 or f32: number of the class; NULL */
    /* Input whose row is made of the caption by encode, a pure function (any thread); both NULL:
     * none. row has row_type, the input's type without the batch. */
    const char *text;
    pl_status (*encode)(const pl_config *c, const char *caption, void *row,
                        const pl_type *row_type);
    /* Configuration keys that are the images' height and width, for data.buckets: build is called
     * once for every bucket, with its size under these keys. One key for both: square buckets only.
     * NULL: none. A width of 0 is the height. */
    const char *height, *width;
    /* Inputs that are made of the picture (or of its sample alone), ends with NULL; NULL: none.
     * They may include those of `images`, which are written first. Each reading thread has a state.
     * make is a pure function of the picture; it writes row `row` of the batch's inputs. */
    const char *const *made;
    uint64_t (*make_bytes)(const pl_config *c, int w, int h); /* of a state */
    pl_status (*make_open)(const pl_config *c, int w, int h, void **state);
    void (*make_close)(void *state);
    pl_status (*make)(void *state, const pl_picture *p, pl_batch *batch, int row);
    /* Inputs of `made` that data.pool leaves alone while the boolean key unpooled_if is true, ends
     * with NULL: they are of the sample that has just come in, not of the one that the pool gives.
     * NULL: none. */
    const char *const *unpooled;
    const char *unpooled_if;
    /* Optional, for `generate --raw`: a sample of the recipe's own as people keep such data: a
     * picture (3 bytes a pixel; NULL when there are no `images`) and a line of text, which may stay
     * empty. */
    pl_status (*draw)(const pl_config *c, pl_subset subset, int64_t sample, int w, int h,
                      uint8_t *rgb, char *caption, size_t cap);
    bool lanczos; /* data.resize: auto is Lanczos, else a triangle */
    const char *
        upscaled; /* folders may have larger versions of pictures: "ups_" for ups_x.webp beside x.jpg; NULL: no */
} pl_image_feed;

/* A frozen part in front of the model whose outputs are computed once (`plimsoll cache`) and kept
 * on disk. build makes it as a program of its own: its inputs are read as the training program's
 * are, its outputs have the names of the training program's inputs when the data come from a cache.
 */
typedef struct pl_encoder {
    pl_status (*build)(pl_builder *b, pl_nn *m);
    /* Further keys that change its outputs, as a pattern: "side,vae.*". NULL: those whose row says
     * so (pl_config_entry.cache). */
    const char *keys;
} pl_encoder;
/* Whether the data come from a cache: the encoder's outputs are inputs. */
PL_API bool pl_builder_cached(const pl_builder *b);

/* ---- weights of others -------------------------------------------------------------------------
 * Frozen parts come with weights under other names than ours, in one file or many. A recipe names
 * the configuration key that says where they lie and how names translate; the engine reads them
 * after `init_from`, converts their floating type, and stops with a list when a tensor is missing
 * or not known. */

/* One rule: in both patterns * stands for one part of a name between dots, ** at the end for all
 * that is left, and the k-th of one is the k-th of the other. The first rule whose `ours` fits a
 * slot's name counts. */
typedef struct pl_rename {
    const char *theirs, *ours;
} pl_rename;
typedef struct pl_naming {
    const char *name;       /* of the convention, for messages: "diffusers" */
    const char *prefix;     /* before every name of theirs; NULL: none */
    const pl_rename *rules; /* ends with {NULL} */
    const char *ignored;    /* pattern (pl_nn_match) of tensors that may be left over; NULL: none */
} pl_naming;
typedef struct pl_weights {
    const char *key;   /* of text: a file, a folder, or an index.json; null: none are read */
    const char *slots; /* pattern of the slots that it fills, all of them */
    /* ends with {NULL}; the one that finds most is taken, our own names at last */
    const pl_naming *naming;
} pl_weights;

/* ---- the recipe ------------------------------------------------------------------------- */
typedef struct pl_preset {
    const char *name;  /* "tiny": the preset cloud/tiny */
    const char *about; /* one line */
    const char *yaml;
} pl_preset;

/* How replay reads a peer's meta.json: its workload names, and which field of its configuration is
 * which of our keys. */
typedef struct pl_peer_key {
    const char *peer, *key;
} pl_peer_key;
typedef struct pl_peer {
    const char *const *workloads; /* NULL-terminated */
    const char *preset;           /* what the peer's fields are applied to: constant schedules */
    const pl_peer_key *keys;      /* ends with {NULL, NULL} */
    /* Name in the peer's files of the module whose state the recipe's slots are: "model." */
    const char *prefix;
    /* Inputs whose layout differs from the peer's: copies one tensor of the dump into ours, or
     * returns false. NULL when there are none but those with channels in front of positions,
     * [N,C,s..] for our [N,s..,C]: these are named by channels_first, or known by their sizes where
     * both cannot be meant. */
    bool (*convert)(const char *name, const pl_type *from, const void *src, const pl_type *to,
                    void *dst);
    const char *channels_first; /* pattern (pl_nn_match) of input names; NULL: none */
} pl_peer;

/* Less memory for more time: a setting that changes no bit, and in words, of the sentence "decodes
 * twice, since decoding once does not fit", what is done with it and what is done without. */
typedef struct pl_tradeoff {
    const char *setting; /* "gan.decode=twice" */
    const char *done, *instead;
} pl_tradeoff;

typedef struct pl_recipe {
    int abi; /* PL_RECIPE_ABI */
    const char *name;
    const char *about;             /* one line */
    const pl_config_entry *schema; /* the recipe's own keys */
    const pl_preset *presets;      /* ends with {NULL}; the first is the default */
    pl_status (*build)(pl_builder *b);

    /* Data. All optional but read. Without open, data is the configuration (const pl_config *).
     * Without size, the keys data.samples and data.eval_samples of the recipe's schema say it. Size
     * 0, or no such keys: endless. */
    pl_status (*data_open)(const pl_config *c, void **data);
    void (*data_close)(void *data);
    int64_t (*data_size)(void *data, pl_subset subset);
    /* Writes samples sample[0..n) into the batch. Must be a pure function of its arguments: it may
     * run on any thread, any number of times. */
    pl_status (*data_read)(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch);
    const pl_peer *peer; /* NULL: no PyTorch peer */
    /* Optional: metrics that are functions of means (an RMSE from a mean square). Given the means
     * of the evaluation outputs, writes up to cap further names and values; returns how many. */
    int (*derive)(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap);
    /* Optional: the evaluation metric to sum a run up with; NULL: the first output. */
    const char *metric;
    /* Optional, ends with NULL: further optimiser sections. "optim_d" gives the keys optim_d.lr,
     * ..., optim_d.schedule.name, ..., optim_d.clip.norm and optim_d.ema.decay, with the engine's
     * defaults. */
    const char *const *optims;
    /* Optional: what a set of images feeds. Every input of the program is named in it. */
    const pl_image_feed *images;
    /* Optional: what data.cache keeps. */
    const pl_encoder *encoder;
    /* Optional, ends with {NULL}: files with weights of frozen parts. */
    const pl_weights *weights;
    /* Optional: memory that data_open takes, where it is worth a place in the plan. */
    uint64_t (*data_bytes)(const pl_config *c);
    /* Optional, for `generate --raw`: writes a sample of the recipe's own below dir, which exists,
     * in files as people keep such data, where these are no pictures (pl_image_feed.draw). */
    pl_status (*data_write)(const pl_config *c, pl_subset subset, int64_t sample, const char *dir);
    /* The same where samples share files: writes count[subset] of them (data: what data_open gave).
     * done is called after each. */
    pl_status (*data_write_set)(const pl_config *c, void *data, const char *dir,
                                const int64_t count[2],
                                void (*done)(void *ctx, pl_subset subset, int64_t sample),
                                void *ctx);
    /* Optional, ends with {NULL}: settings with which the same is trained, bit for bit, in less
     * memory and more time. The plan takes them, each with those before it, where the configuration
     * says auto for their keys and the budget asks for it; build reads auto as the fastest way.
     * Where their keys say something else, a plan that does not fit offers them. */
    const pl_tradeoff *smaller;
} pl_recipe;

typedef const pl_recipe *(*pl_recipe_entry_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
