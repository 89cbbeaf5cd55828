/* plimsoll_train.h - a run: configuration, recipe, programs, memory, steps.
 *
 *     pl_run *run;
 *     PL_TRY(pl_run_open("cloud/tiny", overrides, n, &run));   configuration and recipe
 *     PL_TRY(pl_run_build(run));                               programs, planned
 *     pl_run_memory m = pl_run_memory_get(run);                what it will take
 *     PL_TRY(pl_run_start(run));                               memory, initial values, data
 *     while (...) PL_TRY(pl_run_step(run, &info));
 *
 * The library prints nothing; the command line is written on this header.
 */
#ifndef PLIMSOLL_TRAIN_H
#define PLIMSOLL_TRAIN_H

#include "plimsoll_recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- built-in recipes ------------------------------------------------------------------- */
PL_API int pl_recipe_count(void);
PL_API const pl_recipe *pl_recipe_at(int i);
PL_API const pl_recipe *pl_recipe_find(const char *name); /* NULL if none */

/* ---- opening ---------------------------------------------------------------------------- */
typedef struct pl_run pl_run;

/* config: a preset ("cloud/tiny"), a recipe ("cloud": its first preset), a compiled recipe
 * ("./my-net.so", "./my-net.so/preset") or a YAML file whose key `recipe` names one of these.
 * overrides: "key=value". */
PL_API pl_status pl_run_open(const char *config, const char *const *overrides, int n,
                             pl_run **out) PL_MUST_USE;
PL_API void pl_run_free(pl_run *r);
PL_API const pl_config *pl_run_config(const pl_run *r);
PL_API const pl_recipe *pl_run_recipe(const pl_run *r);
PL_API pl_store *pl_run_store(const pl_run *r);

/* ---- phases (docs/PHASES.md) ------------------------------------------------------------ */
/* Key `phases`: a run is several, one after the other, each with settings of its own. A pl_run is
 * one of them: open the configuration, enter the phase, build, start. Without phases there is
 * nothing to enter. */
typedef struct pl_phase {
    const char *name;   /* "loo-2": the third repetition of loo */
    int64_t steps;      /* at most; 0: key train.steps */
    double epochs;      /* passes over the data; 0: not bounded so */
    const char *metric; /* it ends when this evaluation output is beyond bound; NULL */
    double bound;
    bool above;      /* beyond: greater */
    bool ends_run;   /* when stop.patience ends it, no other phase follows */
    int start;       /* number of the phase whose weights it begins with; -1: none */
    bool all_state;  /* takes over moments, averages, counters too */
    bool best;       /* leaves the weights of its best evaluation */
    int fold, folds; /* folds 0: it is not repeated */
} pl_phase;
PL_API int pl_run_phase_count(const pl_run *r); /* 0: the configuration has none */
PL_API const pl_phase *pl_run_phase_at(const pl_run *r, int i);
/* Number of the phase of that name, or written as a number; -1 if there is none. */
PL_API int pl_run_phase_find(const pl_run *r, const char *name);
/* The run is its i-th phase, whose settings hold from now on; before pl_run_build. `before`: steps
 * of the phases that came before it. */
PL_API pl_status pl_run_enter(pl_run *r, int i, int64_t before) PL_MUST_USE;
PL_API int pl_run_phase(const pl_run *r);            /* -1: none was entered */
PL_API int64_t pl_run_steps_before(const pl_run *r); /* of the phases before */
/* Weights that the phase leaves, and, where a later one asks for it, its other state: into the
 * folder dir, which is made. best: the model file to leave instead of the weights it has now; NULL.
 */
PL_API pl_status pl_run_hand_on(pl_run *r, const char *dir, const char *best) PL_MUST_USE;
/* pl_run_start is to take over what pl_run_hand_on left in dir. Call it before. */
PL_API pl_status pl_run_take_over(pl_run *r, const char *dir) PL_MUST_USE;
/* Tensors that were taken over, out of those of the model; after pl_run_start. */
PL_API void pl_run_taken(const pl_run *r, int *taken, int *of);
/* The started run's last step, counted as pl_run_steps_done does, if nothing ends it earlier. */
PL_API int64_t pl_run_last_step(const pl_run *r);

/* ---- planning --------------------------------------------------------------------------- */
/* Applied to the programs that pl_run_build compiles; call it before. */
PL_API void pl_run_set_compile(pl_run *r, const pl_compile_opts *o);
/* Builds and compiles. With key `memory`, what does not fit is computed again; when nothing is
 * found that fits, this succeeds and pl_run_memory_get says so. */
PL_API pl_status pl_run_build(pl_run *r) PL_MUST_USE;
/* Looks for the smallest budget; pl_run_memory_get tells it from then on. pl_run_build does it by
 * itself when the budget given is too small. */
PL_API pl_status pl_run_find_minimum(pl_run *r) PL_MUST_USE;
PL_API const pl_program *pl_run_train_program(const pl_run *r);
PL_API const pl_program *pl_run_apply_program(const pl_run *r); /* NULL unless accumulating */
PL_API const pl_program *pl_run_eval_program(const pl_run *r);  /* NULL if the recipe has none */

/* The programs of a step, in their order; i in [0, count). The training program's name is "train".
 */
typedef struct pl_run_step_program {
    const char *name;
    const pl_program *run, *apply; /* apply: NULL unless accumulating */
    double share;                  /* how often it runs in a step, in the mean */
} pl_run_step_program;
PL_API int pl_run_step_program_count(const pl_run *r);
PL_API pl_run_step_program pl_run_step_program_at(const pl_run *r, int i);
/* Indices of those that a step has (steps are counted from 0), in the order in which they run; one
 * that runs several times stands there as often. Fills at most cap of them and returns how many
 * there are. */
PL_API int pl_run_step_programs_of(const pl_run *r, int64_t step, int *out, int cap);

/* The sizes of data.buckets, each with programs of its own; those that the functions above and
 * below tell of are the widest one's. 0 without buckets. */
typedef struct pl_run_bucket {
    int height, width;
    uint64_t arena_bytes; /* of its widest training program */
    double step_ms;       /* predicted */
} pl_run_bucket;
PL_API int pl_run_bucket_count(const pl_run *r);
PL_API pl_run_bucket pl_run_bucket_at(const pl_run *r, int i);

/* Bytes of the whole process, as --memory counts them. */
typedef struct pl_run_memory {
    uint64_t arena, state; /* mapped by pl_run_start, to the byte */
    uint64_t overhead;     /* program, libraries, tables, stacks: measured now, with a margin */
    uint64_t total;        /* arena + state + overhead */
    uint64_t budget;       /* key `memory`, or all that a planned card has; 0 = none given */
    /* key `memory` as it is given, which may be more than a planned card has; 0 = none given */
    uint64_t asked;
    uint64_t minimum; /* smallest budget known to work; see pl_run_find_minimum */
    bool fits;        /* total <= budget, or no budget */
} pl_run_memory;
PL_API pl_run_memory pl_run_memory_get(const pl_run *r);
/* What the process holds now, and the most that was seen: the resident set, or on a card the device
 * memory that the driver says it holds. */
PL_API uint64_t pl_run_used_bytes(pl_run *r);
PL_API uint64_t pl_run_peak_used_bytes(pl_run *r);
/* How a step's batch is split: effective = micro * accumulate * ranks, key `batch`, whatever the
 * plan. */
typedef struct pl_run_split {
    int64_t micro, accumulate, effective;
    const char *coupled; /* why accumulate: auto does not split it; NULL */
    int64_t ranks;       /* effective = micro * accumulate * ranks */
} pl_run_split;
PL_API pl_run_split pl_run_split_get(const pl_run *r);
/* What the plan has taken of pl_recipe.smaller where the configuration leaves it to the plan
 * (auto): entry i, NULL when there are no more. *without_ms: the predicted step without it; 0: it
 * does not fit then. */
PL_API const pl_tradeoff *pl_run_tradeoff_at(const pl_run *r, int i, double *without_ms);
/* Of a whole step: every micro-batch and the update. */
PL_API double pl_run_predicted_ms(const pl_run *r);
PL_API int64_t pl_run_parameters(const pl_run *r, bool trainable_only);

/* ---- running ---------------------------------------------------------------------------- */
/* Maps the memory, sets initial values (`seed`, then `init_from` if given), opens the data.
 * PL_ERR_FIT when the budget is too small. */
PL_API pl_status pl_run_start(pl_run *r) PL_MUST_USE;
PL_API pl_session *pl_run_session(pl_run *r);

#define PL_MAX_METRICS 32
typedef struct pl_step_info {
    int64_t step;               /* 1 at the first; goes on over phases */
    double epoch;               /* passes over the data, as a fraction; 0 if the data are endless */
    double loss, lr, grad_norm; /* NaN where the program has no such output */
    double loss_scale;          /* fp16: what the loss was multiplied with; NaN otherwise */
    bool skipped;               /* fp16: the gradients overflowed, nothing was updated */
    double step_ms, data_ms;
    double device_ms; /* that a card worked, by its own clock; 0 on the CPU */
    /* Every scalar output of the programs that ran, means of the micro-batches; those of further
     * programs as "program.output". Names are the run's. Of several updates
     * (train.updates_per_batch) the last. */
    int n_terms;
    const char *term_name[PL_MAX_METRICS];
    double term[PL_MAX_METRICS];
} pl_step_info;
/* Reads a batch and trains on it, micro-batch by micro-batch. A batch with a non-finite number is
 * PL_ERR_DATA (unless data.allow_nonfinite), a non-finite loss or gradient norm PL_ERR_NUMERIC; in
 * fp16 such a step is skipped, and PL_ERR_NUMERIC only when the loss scale is at its floor. */
PL_API pl_status pl_run_step(pl_run *r, pl_step_info *info) PL_MUST_USE;

/* Before or after pl_run_start: when a step ends with PL_ERR_NUMERIC, its message names the first
 * value that was not finite; a step that leaves such a number in the weights fails at once. Slow.
 */
PL_API void pl_run_trace_nan(pl_run *r, bool on);

/* Trains for about so many seconds and adds what each kernel took to this device's table of times,
 * which later plans predict with. The run has been started, and is of no use afterwards. */
PL_API pl_status pl_run_measure(pl_run *r, double seconds, int *steps, int *units) PL_MUST_USE;
/* Times common kernels in common sizes on the CPU and adds them to its table; some seconds.
 * progress may be NULL; it hears of done out of total. */
typedef void (*pl_calibrate_fn)(void *ctx, int done, int total);
PL_API pl_status pl_calibrate(pl_calibrate_fn progress, void *ctx, int *units) PL_MUST_USE;

/* Writes the recipe's own samples as a data set on disk, DIR/train/INPUT.npy and
 * DIR/eval/INPUT.npy, which the key data.path reads. After pl_run_build; a run that generates does
 * not train. samples 0: as many as the recipe has. progress may be NULL. */
typedef void (*pl_progress_fn)(void *ctx, pl_subset subset, int64_t done, int64_t total);
PL_API pl_status pl_run_generate(pl_run *r, const char *dir, int64_t samples, int64_t eval_samples,
                                 pl_progress_fn progress, void *ctx) PL_MUST_USE;

/* ---- a cache of what the recipe's frozen encoder gives (docs/DATA.md) -----------------------
 * Between opening and building: the run's only program is then the encoder, and data.cache the
 * folder that is written. */
PL_API pl_status pl_run_encode_only(pl_run *r) PL_MUST_USE;
/* Whether the cache that is there already is what this configuration gives; if not, why. Before
 * building, if wanted. */
PL_API pl_status pl_run_cache_fresh(pl_run *r, bool *fresh, char *why, size_t cap) PL_MUST_USE;
/* Runs the encoder over all samples and writes what it gives. After pl_run_start. progress may be
 * NULL. */
typedef struct pl_cache_info {
    int64_t samples, eval_samples;
    uint64_t bytes;
    int files;
} pl_cache_info;
PL_API pl_status pl_run_cache(pl_run *r, pl_progress_fn progress, void *ctx,
                              pl_cache_info *info) PL_MUST_USE;

/* The same as pictures in folders (DIR/train/000000.png, with .txt), or prompts and their
 * embeddings (DIR/prompts.txt, DIR/embeddings.npy), for recipes that have pl_image_feed.draw, or in
 * files of the recipe's own (pl_recipe.data_write). */
PL_API pl_status pl_run_generate_raw(pl_run *r, const char *dir, int64_t samples,
                                     int64_t eval_samples, pl_progress_fn progress,
                                     void *ctx) PL_MUST_USE;

/* Means of the evaluation program's outputs over the first eval.batches batches, or over the whole
 * set where it is smaller; a last batch that is not full counts by its samples. */
typedef struct pl_eval_info {
    int n, batches;
    int64_t samples;
    const char *name[PL_MAX_METRICS]; /* borrowed until the run is freed */
    double value[PL_MAX_METRICS];
} pl_eval_info;
/* n is 0 where there is nothing to evaluate on: no such program, or no samples for it in the set on
 * disk. */
PL_API pl_status pl_run_eval(pl_run *r, pl_eval_info *info) PL_MUST_USE;
/* Evaluations tell how many of their samples are done. NULL: they do not. */
PL_API void pl_run_set_progress(pl_run *r, pl_progress_fn progress, void *ctx);
/* Between opening and building: the run has nothing but its evaluation and sampling programs, and
 * of the state the weights that these read; `init_from` names them, and may hold others. It takes
 * no steps. parts: into how many a batch comes, as it did in training, so that scores are the same;
 * 0: as the key `accumulate` says, else 1. */
PL_API pl_status pl_run_eval_only(pl_run *r, int64_t parts) PL_MUST_USE;
/* Keys stop.*: has the run stopped getting better? Call it after every evaluation. What it knows is
 * a slot of the store, so that a run that goes on from a checkpoint decides as one that was not
 * stopped. */
typedef struct pl_verdict {
    bool better;  /* than every evaluation before: the model to keep */
    bool stop;    /* stop.patience evaluations were not */
    bool reached; /* the phase's metric is beyond its bound */
    double best;
} pl_verdict;
PL_API pl_verdict pl_run_judge(pl_run *r, const pl_eval_info *info);
/* Keys sample.*: runs the recipe's sampling program, if it has one, and shows each of its pictures:
 * sample.count of them in one, as bytes. Pixels (rows of width * channels, the top one first) are
 * the run's until the next call. */
typedef struct pl_sheet {
    const char *name;
    int width, height, channels; /* 1 grey, 3 RGB */
    const uint8_t *pixels;
} pl_sheet;
PL_API pl_status pl_run_sample(pl_run *r, pl_status (*each)(void *ctx, const pl_sheet *g),
                               void *ctx) PL_MUST_USE;
/* The arrays that the program names (pl_builder_array), as pl_run_sample left them, into one
 * safetensors file: a row a sample, sample.count of them. The file appears whole. */
PL_API bool pl_run_sample_arrays(const pl_run *r); /* whether there are any */
PL_API pl_status pl_run_sample_save(pl_run *r, const char *path) PL_MUST_USE;
PL_API const pl_program *pl_run_sample_program(const pl_run *r); /* NULL if there is none */
/* Feeds an evaluation metric to the plateau schedule; true when the learning rate was lowered. */
PL_API bool pl_run_plateau(pl_run *r, double metric);

/* Images that data.on_bad=skip or quarantine replaced so far, and their names; NULL past the end.
 * Between steps only. */
PL_API int64_t pl_run_bad_files(const pl_run *r);
PL_API const char *pl_run_bad_file(const pl_run *r, int64_t k, char *buf, size_t cap);

/* ---- sets of images, for `inspect data` ------------------------------------------------- */
typedef struct pl_data_file {
    const char *path;            /* "shard.tar: member" in a tar */
    const char *format, *colour; /* "JPEG", "RGB" */
    const char *label;           /* class; NULL */
    const char *problem;         /* why it cannot be read; NULL */
    int width, height, bits;
    uint64_t bytes;
    bool eval;
} pl_data_file;
typedef struct pl_data_summary {
    int64_t files, bad, eval, ignored; /* ignored: images of formats that are not read */
    int classes, shards;
    uint64_t bytes;
} pl_data_summary;
typedef struct pl_data_scan_opts {
    void (*each)(void *ctx, const pl_data_file *f);           /* in order; may be NULL */
    void (*progress)(void *ctx, int64_t done, int64_t total); /* may be NULL */
    void *ctx;
    int64_t max_pixels; /* 0: the default of data.max_pixels */
} pl_data_scan_opts;
/* Decodes every image of a folder or of tar shards. Bad files are no failure of the scan. */
PL_API pl_status pl_data_scan(const char *path, const pl_data_scan_opts *o,
                              pl_data_summary *sum) PL_MUST_USE;
/* File formats that need a library, and why one cannot be read here (NULL: it can). Returns how
 * many. */
typedef struct pl_data_format {
    const char *name, *why_not;
} pl_data_format;
PL_API int pl_data_formats(pl_data_format *out, int cap);

/* ---- model files (safetensors, PyTorch's names and layouts) ----------------------------- */
PL_API pl_status pl_run_save_model(pl_run *r, const char *path) PL_MUST_USE;
/* The same with the averaged copy of every weight that has one (ema.decay, and that of the recipe's
 * other sections). */
PL_API bool pl_run_has_averages(const pl_run *r); /* after pl_run_build */
PL_API pl_status pl_run_save_averages(pl_run *r, const char *path) PL_MUST_USE;
/* Every parameter and buffer must be there with the right shape; others in the file are ignored
 * only when `partial`. */
PL_API pl_status pl_run_load_model(pl_run *r, const char *path, bool partial) PL_MUST_USE;

/* ---- replay: does this engine agree with a PyTorch program? --------------------------------
 * dir is what bench/peers/bench.py --dump wrote. */
typedef struct pl_replay_opts {
    const char *config; /* NULL: chosen by the dump's workload name */
    const char *const *overrides;
    int n_overrides;
    double loss_tol, grad_tol, final_tol; /* relative; 0: 1e-5, 1e-4, 1e-4 */
    const pl_compile_opts *compile;       /* NULL: defaults */
} pl_replay_opts;

typedef struct pl_replay_report {
    char workload[64], recipe[64];
    int steps, losses, gradients, tensors; /* how many were compared */
    int noise; /* of tensors: moved by rounding noise alone, see train/run/replay.c */
    double worst_loss, worst_grad, worst_final;
    char worst_loss_name[128], worst_grad_name[128], worst_final_name[128];
    bool agree;
} pl_replay_report;
PL_API pl_status pl_replay(const char *dir, const pl_replay_opts *o,
                           pl_replay_report *report) PL_MUST_USE;

/* ---- files of tensors, for `inspect` ---------------------------------------------------- */
typedef struct pl_tensor_info {
    const char *name;
    const char *dtype; /* as the file says it: "F32" */
    int rank;
    const int64_t *dim;
    uint64_t bytes;
} pl_tensor_info;
/* Calls each for every tensor of a safetensors file, then each_meta for its metadata. */
PL_API pl_status pl_model_file_list(
    const char *path, void (*each)(void *ctx, const pl_tensor_info *t),
    void (*each_meta)(void *ctx, const char *key, const char *value), void *ctx) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
