/* plimsoll_recipe.h - what a recipe is: a model, its loss, its data, its presets.
 *
 * The built-in recipes and a user's own network (a folder made by `plimsoll new`, compiled to a
 * .so) use only this interface. A .so exports one function:
 *
 *     const pl_recipe *pl_recipe_entry(void);
 *
 * The engine reads the configuration (its keys and those of the recipe), calls build to get the
 * programs, plans them, opens the data, and trains. In every step it chooses the samples (a pure
 * function of seed and epoch), the recipe writes them into the inputs, the engine runs the training
 * program and reads the named outputs.
 */
#ifndef PLIMSOLL_RECIPE_H
#define PLIMSOLL_RECIPE_H

#include "plimsoll.h"
#include "plimsoll_config.h"
#include "plimsoll_image.h"
#include "plimsoll_nn.h"
#include "plimsoll_predict.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_RECIPE_ABI 10

/* ---- building --------------------------------------------------------------------------- */
typedef struct pl_builder pl_builder;

PL_API const pl_config *pl_builder_config(const pl_builder *b);
PL_API pl_store *pl_builder_store(pl_builder *b);
PL_API void *pl_builder_own(const pl_builder *b); /* pl_recipe.own */
/* Returns the training program as a layer context (plimsoll_nn.h); inputs have the micro-batch as
 * their first dimension. The builder owns, finishes and frees the context. */
PL_API pl_nn *pl_builder_train(pl_builder *b);
/* Says that the network can be built for n samples only, the batch of a file: micro-batches of n
 * need no proof that splitting a batch changes no result. Call it before another size fails. */
PL_API void pl_builder_fixed_batch(pl_builder *b, int64_t n);
/* Returns the evaluation program, over the same weights; without this call the recipe has none. The
 * scalar outputs are averaged over the evaluation batches and reported under their names. */
PL_API pl_nn *pl_builder_eval(pl_builder *b);
PL_API int64_t
pl_builder_batch(const pl_builder *b); /* samples per run of a program: the micro-batch */
/* Returns the sampling program: no gradients, the same weights. `plimsoll train` writes its
 * pictures every sample.every steps. Returns NULL unless that key is set. Its inputs, if any, are
 * inputs of the evaluation program and get the first samples of the evaluation set. Its random
 * numbers (pl_draw_*) are the same every time; it must not change state. */
PL_API pl_nn *pl_builder_sample(pl_builder *b);
/* Adds a picture of the sampling program for each sample: [batch,H,W,C] or [batch,C,H,W] (if both
 * are possible, the first), C 3 or 1; low is black, high is white. sample.count pictures are put
 * side by side. */
PL_API void pl_builder_picture(pl_builder *b, const char *name, pl_val v, float low, float high);
/* Adds an array of the sampling program, of any type, samples first: sample.count rows go into a
 * safetensors file beside the pictures, under this name. */
PL_API void pl_builder_array(pl_builder *b, const char *name, pl_val v);

/* Stores the frozen weights whose names match the pattern (pl_nn_match, lives until the build ends)
 * in this form. For a key of the recipe such as teacher.dtype; the key frozen.dtype overrides
 * it. */
PL_API void pl_builder_quantize(pl_builder *b, const char *pattern, pl_quant form);

/* Finishes the training program: adds gradients of loss for every trainable slot, clipping,
 * optimizer, schedule, EMA and counters, according to the keys `optim.*`, `schedule.*`, `clip.*`,
 * `ema.*`, and the outputs loss, lr and grad_norm.
 *
 * A loss that is not finite stops the run. An output named "nonfinite" that is above 0 stops the
 * run, too, for models whose loss hides a divergence (nan_to_num). */
PL_API void pl_builder_minimise(pl_builder *b, pl_val loss);

/* Cross-entropy of a classifier: logits [batch, K] against `label`, the input `name`, i32 or i64
 * [batch] (pl_loss_cross_entropy_with). It enables data.mixup and data.cutmix: when one of them is
 * set, the training program has two more inputs, NAME.mixed (i32 or i64: label of the second
 * picture) and NAME.share (f32: weight of the first), which the engine fills (docs/DATA.md). */
PL_API pl_val pl_builder_label_loss(pl_builder *b, pl_nn *m, pl_val logits, const char *name,
                                    pl_val label, pl_cross_entropy o);

/* ---- steps of several programs ------------------------------------------------------------- */
/* A step may run further programs: a discriminator beside a generator, a penalty every 16 steps,
 * the same model at several resolutions. Each program has its own graph over the same store and its
 * own update, so it reads the state as the programs before it wrote it. All programs are planned,
 * and the arena is as large as the largest program needs. All programs read the same samples: an
 * input is filled for every program that has it, in the shape that the program declares. Values
 * pass from one program to the next through slots of the store. The host decides which programs
 * run, from the number of steps done. */
typedef struct pl_when {
    int64_t every;       /* k > 0: steps 0, k, 2k, ... of the run; 0: all */
    int64_t but_every;   /* k > 0: all other steps */
    int64_t from, until; /* steps [from, until); until 0: no end */
    bool after;          /* runs after the training program; otherwise before it */
} pl_when;
/* Adds a program to the step; programs run in the order of these calls. The builder owns the
 * context. Outputs are reported as "name.output". */
PL_API pl_nn *pl_builder_program(pl_builder *b, const char *name, pl_when when);

/* What a program trains: slots by pattern (pl_nn_match; NULL: all), with the optimizer, schedule,
 * clipping and averages of one section of the configuration: "optim" (NULL), or one that
 * pl_recipe.optims names. Two sections never train the same slot. updates: updates of the section
 * per batch, when several programs use it: its schedule advances once per step; 0 means 1. With
 * train.updates_per_batch schedules advance once per batch, unless each_update is set.
 * Several groups of one program: one call each, each with its own section; gradients are taken at
 * the weights before the step; scalars of further groups are "SECTION.lr" (docs/STEPS.md). */
typedef struct pl_group {
    const char *slots, *optim;
    int64_t updates;
    bool each_update;
} pl_group;
/* Like pl_builder_minimise, for the training program or a program of pl_builder_program. */
PL_API void pl_builder_minimise_with(pl_builder *b, pl_nn *m, pl_val loss, const pl_group *group);
/* Returns the number of updates that a section has done, an i64 scalar, 0 in the first step: the
 * count for schedules in the graph. All micro-batches of a step read the same number. */
PL_API pl_val pl_builder_step(pl_builder *b, pl_nn *m, const char *optim);
/* Returns how many updates a step does on its batch: key train.updates_per_batch. */
PL_API int64_t pl_builder_updates(const pl_builder *b);

/* ---- what belongs to the weights ---------------------------------------------------------------
 * The metadata of a model file and of every checkpoint describe the weights: the names of the
 * classes, the values of black and white of each image input, and facts that the recipe adds. */

/* Names of the classes: class i has label i (pl_image_feed.label). */
typedef struct pl_classes pl_classes;
PL_API int pl_classes_count(const pl_classes *c); /* NULL: 0 */
PL_API const char *pl_classes_name(const pl_classes *c, int i);
PL_API int pl_classes_find(const pl_classes *c, const char *name); /* -1: there is none */
PL_API void pl_classes_free(pl_classes *c);
/* Sets *out to the class names of the images at path (docs/DATA.md): class folders, sorted by name,
 * or the labels of metadata.jsonl; if labels are numbers, "0", "1", ... PL_ERR_DATA: there are no
 * labels. */
PL_API pl_status pl_data_classes(const char *path, pl_classes **out) PL_MUST_USE;
/* Sets *out to the class names in the metadata of a model file; NULL when the file has none. */
PL_API pl_status pl_model_classes(const char *file, pl_classes **out) PL_MUST_USE;
/* Sets *out to the class names of the run that is being built, for the size of its last layer: the
 * names in the model that the run starts from (a checkpoint, or init_from unless
 * data.classes=data), else the names in data.path. *out is NULL when neither is known; it belongs
 * to the run. */
PL_API pl_status pl_builder_classes(pl_builder *b, const pl_classes **out) PL_MUST_USE;
/* Gives evaluations and predictions without a model file the class names that the recipe's own file
 * holds, a JSON array; other runs ignore them. `from` names the file in messages. Call this before
 * pl_builder_classes. */
PL_API pl_status pl_builder_own_classes(pl_builder *b, const char *json,
                                        const char *from) PL_MUST_USE;
/* Sets the number of classes of the network; data with more classes stop the run. Used when
 * pl_image_feed.classes or .mask_classes is NULL. */
PL_API void pl_builder_outputs(pl_builder *b, int64_t classes);
/* Returns whether the samples of the run are images (data.source, data.path). */
PL_API bool pl_builder_pictures(const pl_builder *b);
/* Adds a fact about the weights, which their file stores as "plimsoll.KEY", e.g. key "normalise",
 * text "mean 0.485 0.456 0.406 std 0.229 0.224 0.225". Evaluating or resuming with a file that has
 * another text fails. At most PL_MAX_FACTS keys; texts are copied. */
#define PL_MAX_FACTS 16
PL_API void pl_builder_fact(pl_builder *b, const char *key, const char *text);

/* Random numbers of the training program, by name. In training they come from the engine's
 * counter-based generator; in a replay (`plimsoll replay`) each is an input of that name, read from
 * the dump, so that both programs use the same random numbers. keep: a dropout multiplier, 0 with
 * probability p, else 1/(1-p). */
PL_API pl_val pl_draw_uniform(pl_builder *b, pl_nn *m, const char *name, pl_type type);
PL_API pl_val pl_draw_normal(pl_builder *b, pl_nn *m, const char *name, pl_type type);
PL_API pl_val pl_draw_keep(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p);
PL_API pl_val pl_draw_permutation(pl_builder *b, pl_nn *m, const char *name, int64_t n);
/* Draws `count` different numbers below n, in random order: integers [count]. */
PL_API pl_val pl_draw_choice(pl_builder *b, pl_nn *m, const char *name, int64_t n, int64_t count);
/* Draws whole numbers in [0, high), of an integer type. */
PL_API pl_val pl_draw_integers(pl_builder *b, pl_nn *m, const char *name, pl_type type,
                               int64_t high);
/* Draws true with probability p, of type bool. */
PL_API pl_val pl_draw_chance(pl_builder *b, pl_nn *m, const char *name, pl_type type, double p);

/* ---- data ------------------------------------------------------------------------------- */
typedef enum pl_subset { PL_SUBSET_TRAIN, PL_SUBSET_EVAL } pl_subset;

/* A batch being filled: memory of a program's inputs. */
typedef struct pl_batch pl_batch;
/* Returns the memory of input `name` for the whole batch, row-major. NULL if the program has no
 * such input; then it need not be written. */
PL_API void *pl_batch_input(pl_batch *batch, const char *name, pl_type *type);
/* The same for numbers of one type. If the program declares the input with another type, data_read
 * fails with PL_ERR_CONFIG, and the message names both types. */
PL_API float *pl_batch_f32(pl_batch *batch, const char *name);
PL_API int32_t *pl_batch_i32(pl_batch *batch, const char *name);
PL_API int64_t *pl_batch_i64(pl_batch *batch, const char *name);
PL_API uint8_t *pl_batch_u8(pl_batch *batch, const char *name);
/* Returns how many times sample i of the batch has been used before; 0 in an evaluation. Random
 * changes of a sample (augmentation) depend on the sample number and on this count. */
PL_API int64_t pl_batch_pass(const pl_batch *batch, int i);

/* Numbers for generated samples, each a pure function of its arguments. pl_sample_seed: `world` is
 * any constant of the recipe; training and evaluation samples have different seeds. Number k of a
 * seed: uniform in [0,1), or nearly normal (from four uniform ones) with mean 0 and variance 1.
 * Seeds of evaluation samples do not depend on `world`: several inputs of a sample use different k
 * of one seed. */
PL_API uint64_t pl_sample_seed(uint64_t world, pl_subset subset, int64_t sample);
PL_API double pl_sample_uniform(uint64_t seed, uint64_t k);
PL_API double pl_sample_normal(uint64_t seed, uint64_t k);
/* Fills x with n standard normal numbers of a seed, by Box-Muller: the noise of samplers. The same
 * seed gives the same bits on every machine, and the first numbers of a longer call. */
PL_API void pl_sample_noise(uint64_t seed, int64_t n, float *x);

/* Inputs that come from images (data.source folder or tar). The image gets the size of the input:
 * [batch, C, H, W] or [batch, H, W, C], C 3 (RGB) or 1 (grey), f32 or u8. Several image inputs get
 * the same crop, each in its own size; their aspect ratios must agree. */
typedef struct pl_image_input {
    const char *name;
    float low, high; /* f32: values of black and of white, e.g. -1 and 1 */
} pl_image_input;
/* A crop in the size of the first image input, 3 bytes per pixel; key: for random numbers. */
typedef struct pl_picture {
    const uint8_t *rgb;
    int w, h;
    pl_image_key key;
    pl_subset subset;
} pl_picture;
typedef struct pl_image_feed {
    const pl_image_input *images; /* ends with {NULL} */
    const char *label;            /* input [batch], i32, i64 or f32: number of the class; NULL */
    /* Integer key with the number of classes of the network; data with more classes stop the run.
     * NULL: the network has the classes of pl_builder_classes. */
    const char *classes;
    /* Input whose row encode computes from the caption; a pure function, called on any thread. Both
     * NULL: none. row has row_type, the type of the input without the batch. */
    const char *text;
    pl_status (*encode)(const pl_config *c, const char *caption, void *row,
                        const pl_type *row_type);
    /* Configuration keys of height and width, for data.buckets: build is called once for every
     * bucket, with its size in these keys. One key for both: square buckets only. NULL: none. A
     * width of 0 means the height. */
    const char *height, *width;
    /* Inputs that make computes from the picture (or from the sample number), ends with NULL; NULL:
     * none. They may include inputs of `images`, which are written first. Each worker thread has a
     * state. make is a pure function of the picture; it writes row `row` of the inputs. */
    const char *const *made;
    uint64_t (*make_bytes)(const pl_config *c, int w, int h); /* size of a state */
    pl_status (*make_open)(const pl_config *c, int w, int h, void **state);
    void (*make_close)(void *state);
    pl_status (*make)(void *state, const pl_picture *p, pl_batch *batch, int row);
    /* Inputs of `made` that bypass data.pool while the boolean key unpooled_if is true, ends with
     * NULL: they belong to the newest sample, not to the sample from the pool. NULL: none. */
    const char *const *unpooled;
    const char *unpooled_if;
    /* Optional, for `generate --raw`: draws one sample of the recipe as a picture (3 bytes per
     * pixel; NULL when there are no `images`) and a line of text, which may stay empty. */
    pl_status (*draw)(const pl_config *c, pl_subset subset, int64_t sample, int w, int h,
                      uint8_t *rgb, char *caption, size_t cap);
    bool lanczos; /* data.resize: auto means Lanczos instead of triangle */
    /* Input [batch, H, W], i32, of the size of the first image: the class of each pixel, from the
     * PNG masks in masks/ beside images/ (docs/DATA.md); ignored pixels are 255. NULL: none.
     * mask_classes: integer key with the number of classes; NULL: pl_builder_outputs. */
    const char *mask, *mask_classes;
    /* prefix of upscaled copies in a folder: "ups_" for ups_x.webp beside x.jpg; NULL: none */
    const char *upscaled;
    /* The output of encode is a placeholder without meaning; real captions need data.embeddings. */
    bool random_text;
} pl_image_feed;

/* A frozen part before the model, whose outputs are computed once (`plimsoll cache`) and stored on
 * disk. build creates it as a separate program: its inputs are read like those of the training
 * program, its outputs have the names of inputs of the training program that reads the cache. */
typedef struct pl_encoder {
    pl_status (*build)(pl_builder *b, pl_nn *m);
    /* Further keys that change its outputs, as a pattern: "side,vae.*". NULL: only the keys whose
     * row says so (pl_config_entry.cache). */
    const char *keys;
} pl_encoder;
/* Returns whether the data come from a cache: then the outputs of the encoder are inputs. */
PL_API bool pl_builder_cached(const pl_builder *b);

/* ---- published weights -------------------------------------------------------------------------
 * Weights of other programs have other names, and lie in one file or in many. A recipe names the
 * configuration key with their path, and the translation of names. The engine reads them after
 * `init_from`, converts their floating-point type, and stops with a list when tensors are missing
 * or unknown. `plimsoll export` uses the same translation in the other direction. Shapes that
 * differ in dimensions of 1 only are equal: [C] and [C,1,1]. */

/* One rule. In both patterns * stands for one part of a name between dots and ** at the end for the
 * remaining parts; the k-th * of one is the k-th * of the other. The first rule whose `ours`
 * matches the name of a slot is used. */
typedef struct pl_rename {
    const char *theirs, *ours;
} pl_rename;

/* The published tensor of a slot. Numbers are in the layout of files; zero everywhere: the
 * published tensor has the slot's values and no others. */
#define PL_TENSOR_NAME 512
typedef struct pl_published {
    char name[PL_TENSOR_NAME]; /* without the prefix; "": no tensor, the slot keeps its value */
    /* rows > 0: the published tensor has `rows` rows (its first dimension), and the slot is the
     * rows from `row` on. Several slots may share a tensor (q, k and v joined); together they cover
     * it. */
    int64_t rows, row;
    /* published value = our value + add, in the first add_count elements of the slot */
    double add;
    int64_t add_count;
} pl_published;
/* Tensors whose published shape has other dimensions of 1 than the slot's in files. shape: "*"
 * stands for the dimensions that are not 1, each "1" for one of 1: "*" turns [8,1,1] into [8],
 * "1,1,*" into [1,1,8]; "*,1" turns [6,4] into [6,4,1]. */
typedef struct pl_tensor_shape {
    const char *names, *shape; /* names: pattern (pl_nn_match) of published names */
} pl_tensor_shape;

typedef struct pl_naming {
    const char *name;       /* name of the convention, for messages: "diffusers" */
    const char *prefix;     /* prefix of every published name; NULL: none */
    const pl_rename *rules; /* ends with {NULL}; NULL, and no map: the names of slots */
    const char *ignored;    /* pattern (pl_nn_match) of tensors that may be left over; NULL: none */
    /* Optional, for names that depend on the configuration: writes the published tensor of the slot
     * `ours`, whose type in files is `type`; *to is zero before. false: the rules decide. */
    bool (*map)(const pl_config *c, const char *ours, const pl_type *type, pl_published *to);
    /* Optional: published tensor i that is not a slot and follows from the configuration (a table
     * of frequencies): writes its name without the prefix and its type, and, unless data is NULL,
     * its elements in row-major order. Returns false after the last one. Reading ignores these
     * tensors, export writes them. */
    bool (*constant)(const pl_config *c, int i, char name[PL_TENSOR_NAME], pl_type *type,
                     void *data);
    /* Optional, ends with NULL: patterns (pl_nn_match) of published names, in the order in which
     * export writes the tensors; within a pattern, and without any, the order of the slots. */
    const char *const *order;
    /* Optional, ends with NULL: parts of names at the same place in a name, "conv1,norm1,conv2":
     * the order of these within a module. */
    const char *const *siblings;
    /* Optional, ends with {NULL}: shapes that export writes, the first that matches. */
    const pl_tensor_shape *shapes;
    const char *step; /* entry of PyTorch files with the number of steps done: "global_step" */
} pl_naming;
typedef struct pl_weights {
    /* a text key: a file, a folder, or an index.json; null: none are read. "init_from": the slots
     * come from the model that the run starts from. Slots of a row that are frozen and that nothing
     * fills stop a run on real data (key allow_random_frozen). */
    const char *key;
    const char *slots; /* pattern of the slots to fill; all of them must be filled */
    /* ends with {NULL}; the convention that matches most tensors is used; slot names come last */
    const pl_naming *naming;
} pl_weights;

/* How a run may start from a model file (init_from) of another configuration, with other names or
 * another last layer. Without it, every slot must be in the file, with its shape. */
typedef struct pl_start {
    const char *fresh;   /* slots that keep initial values where their shape differs; NULL: none */
    const char *missing; /* slots that may be missing in the file; NULL: none */
    const pl_naming *naming; /* as pl_weights.naming; NULL: slot names only */
} pl_start;

/* ---- exports: `plimsoll export --as NAME` -------------------------------------------------------
 * A form in which other programs read the weights. One file: --out is its path. Several: --out is a
 * folder. The ending of a file's name selects the format: .safetensors, or PyTorch's zip (.pt,
 * .pth, .ckpt, .bin). */
typedef struct pl_export_entry {
    const char *key, *json; /* {"epoch", "0"}; the word step stands for the number of steps done */
} pl_export_entry;
typedef struct pl_export_file {
    const char *name; /* "flow.safetensors" */
    /* pattern of the slots to write, frozen ones too if it names them; NULL: all that the run
     * trains, and the buffers that it updates */
    const char *slots;
    const pl_naming *naming; /* one; NULL: slot names */
    const char *under;       /* PyTorch: entry that holds the tensors, "state_dict"; NULL: none */
    const pl_export_entry *entries; /* PyTorch: further entries, ends with {NULL}; NULL: none */
    bool optional;                  /* true: slots that the model file does not have are left out */
    /* Optional: the file is text instead, such as a JSON file of sizes. Writes it like snprintf. */
    int (*text)(const pl_config *c, char *to, size_t cap);
} pl_export_file;
typedef struct pl_export {
    const char *name;            /* "authors" */
    const char *about;           /* one line: the program that reads it */
    const pl_export_file *files; /* ends with {NULL} */
    /* Optional, in place of files: writes --out itself from the model file `weights`; sets *tensors
     * to the number of tensors that it took from there. own: pl_recipe.own. */
    pl_status (*write)(void *own, const char *weights, const char *out, int *tensors);
} pl_export;

/* ---- configurations of other programs: `plimsoll convert` ----------------------------------
 * Paths of keys are dotted; items of a list of mappings are numbered: "steps.0.name". */
typedef struct pl_foreign_key {
    /* pattern (pl_nn_match) of the other program's keys; the first row that matches is used */
    const char *theirs;
    const char *ours;   /* key of Plimsoll; NULL: none is needed, and `why` has the reason */
    const char *values; /* values, "theirs=ours|...": "AdamW=adamw|Lion=lion"; NULL: unchanged */
    const char *why;
    double factor; /* multiplies numbers; 0: none */
} pl_foreign_key;
typedef struct pl_foreign_doc pl_foreign_doc;
typedef struct pl_foreign {
    const char *about;          /* name of the configuration: "LGT's config.json" */
    const char *const *marks;   /* ends with NULL: patterns of keys by which a file is recognised */
    const char *preset;         /* preset that the result extends: "lgt/full" */
    const pl_foreign_key *keys; /* ends with {NULL} */
    /* Optional: sets keys of Plimsoll that depend on several of their keys. Called before the
     * rows. */
    void (*make)(pl_foreign_doc *d);
} pl_foreign;
/* For `make`. Return the text or number of their key; NULL or fallback if the key is absent, null
 * or of another kind. */
PL_API const char *pl_foreign_text(pl_foreign_doc *d, const char *theirs);
PL_API double pl_foreign_number(pl_foreign_doc *d, const char *theirs, double fallback);
/* Returns a whole number of at most 1e9; fallback if the key has another value. */
PL_API int64_t pl_foreign_whole(pl_foreign_doc *d, const char *theirs, int64_t fallback);
/* Writes the n numbers of a list; returns false if the value is not a list of n numbers. */
PL_API bool pl_foreign_numbers(pl_foreign_doc *d, const char *theirs, int n, double *out);
PL_API bool pl_foreign_true(pl_foreign_doc *d, const char *theirs);
PL_API int pl_foreign_count(pl_foreign_doc *d, const char *theirs); /* items of a list; 0: none */
/* Sets the key `ours` to a YAML value that is computed from their keys `from` (a pattern). Does
 * nothing when the file has none of these keys. */
PL_API void pl_foreign_set(pl_foreign_doc *d, const char *from, const char *ours, const char *fmt,
                           ...) PL_PRINTF(4, 5);
/* Records the reason why their keys need no key of Plimsoll. */
PL_API void pl_foreign_skip(pl_foreign_doc *d, const char *theirs, const char *why);

/* ---- the recipe ------------------------------------------------------------------------- */
typedef struct pl_preset {
    const char *name;  /* "tiny": the preset cloud/tiny */
    const char *about; /* one line */
    const char *yaml;
} pl_preset;

/* How replay reads meta.json of a PyTorch peer: the names of its workloads, and the configuration
 * keys of its fields. */
typedef struct pl_peer_key {
    const char *peer, *key;
} pl_peer_key;
typedef struct pl_peer {
    const char *const *workloads; /* NULL-terminated */
    const char *preset;           /* preset to which the fields are applied: constant schedules */
    const pl_peer_key *keys;      /* ends with {NULL, NULL} */
    /* Prefix of the module in the peer's files that has the recipe's state: "model." */
    const char *prefix;
    /* Copies one tensor of the dump whose layout differs, or returns false. NULL when no layout
     * differs except channels first, [N,C,s..] instead of [N,s..,C]: those inputs are named in
     * channels_first, or recognised by their sizes where these are unambiguous. */
    bool (*convert)(const char *name, const pl_type *from, const void *src, const pl_type *to,
                    void *dst);
    const char *channels_first; /* pattern (pl_nn_match) of input names; NULL: none */
} pl_peer;

/* A trade-off: a setting that needs less memory and more time and changes no bit. `done` and
 * `instead` are words for messages: "decodes twice", "decoding once". */
typedef struct pl_tradeoff {
    const char *setting; /* "gan.decode=twice" */
    const char *done, *instead;
} pl_tradeoff;

/* A file that `plimsoll new --from RECIPE` writes, "presets/tiny.yaml". */
typedef struct pl_source_file {
    const char *name, *text;
} pl_source_file;

typedef struct pl_recipe pl_recipe;
struct pl_recipe {
    int abi; /* PL_RECIPE_ABI */
    const char *name;
    const char *about;             /* one line */
    const pl_config_entry *schema; /* keys of the recipe */
    const pl_preset *presets;      /* ends with {NULL}; the first is the default */
    pl_status (*build)(pl_builder *b);

    /* Data. All are optional except data_read. Without data_open, data is the configuration
     * (const pl_config *). Without data_size, the size is in the keys data.samples and
     * data.eval_samples of the recipe. Size 0, or no such keys: endless. */
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
    /* Optional: the main evaluation metric; NULL: the first output. */
    const char *metric;
    /* Optional, ends with NULL: further optimizer sections. "optim_d" adds the keys optim_d.lr,
     * ..., optim_d.schedule.name, ..., optim_d.clip.norm and optim_d.ema.decay, with the engine's
     * defaults. */
    const char *const *optims;
    /* Optional: the inputs that come from images. It names every input of the program. */
    const pl_image_feed *images;
    /* Optional: the frozen encoder whose outputs data.cache stores. */
    const pl_encoder *encoder;
    /* Optional, ends with {NULL}: files with weights of frozen parts. */
    const pl_weights *weights;
    /* Optional: frozen slots that are random by design (a fixed projection), as a pattern
     * (pl_nn_match). Other frozen slots without weights stop a run on real data. */
    const char *random;
    /* Optional: bytes that data_open allocates, for the plan. */
    uint64_t (*data_bytes)(const pl_config *c);
    /* Optional, for `generate --raw`: writes one sample of the recipe into the folder dir in the
     * file format of the authors, where that is not a picture (pl_image_feed.draw). */
    pl_status (*data_write)(const pl_config *c, pl_subset subset, int64_t sample, const char *dir);
    /* The same where samples share files: writes count[subset] samples. data: from data_open. Calls
     * done after each. */
    pl_status (*data_write_set)(const pl_config *c, void *data, const char *dir,
                                const int64_t count[2],
                                void (*done)(void *ctx, pl_subset subset, int64_t sample),
                                void *ctx);
    /* Optional, ends with {NULL}: trade-offs, settings that give the same training, bit for bit,
     * with less memory and more time. If their keys are auto and the budget needs it, the planner
     * enables the first k of them; build treats auto as the fastest setting. If a key has another
     * value, a plan that does not fit suggests the setting. */
    const pl_tradeoff *smaller;
    /* Optional: predictions with a trained model. */
    const pl_predict *predict;
    /* Optional: which slots may be missing in the file of init_from. */
    const pl_start *start;
    /* Optional, ends with {NULL}: the recipe's source files, for `plimsoll new --from`. */
    const pl_source_file *sources;
    /* Optional, ends with {NULL}: forms of `plimsoll export` beside the slots under their names. */
    const pl_export *exports;
    /* Optional, ends with NULL: the two or three terms (pl_step_info.term) that the progress line
     * shows beside the loss, the most important first. "disc.d|disc_r1.d": the first of them that
     * the step has, for programs that run in alternate steps. A term that the step does not have is
     * not shown. */
    const char *const *shown;
    /* Optional, ends with {NULL}: configurations of other programs that `plimsoll convert` reads.
     */
    const pl_foreign *foreign;
    /* Optional: called once when a run is opened, with its configuration and a copy of this struct
     * that belongs to the run: for recipes whose images, metric or predictions depend on the
     * configuration. It may set own->own, which lives as long as the run: a network's file. */
    pl_status (*adapt)(const pl_config *c, pl_recipe *own);
    void *own;
    void (*own_free)(void *own);
    /* Optional: initial values from the recipe's own file, read when a run starts, before
     * init_from; a run that resumes does not read them. Writes the value of a slot, row-major, in
     * the type and layout of the slot (pl_slot.type). *known false: the file has no such value, the
     * slot keeps its initial value. */
    pl_status (*value)(void *own, const pl_slot *slot, void *to, bool *known);
};

typedef const pl_recipe *(*pl_recipe_entry_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
