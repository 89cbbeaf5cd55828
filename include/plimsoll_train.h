/* plimsoll_train.h - a run: configuration, recipe, programs, memory, steps.
 *
 *     pl_run *run;
 *     PL_TRY(pl_run_open("cloud/tiny", overrides, n, &run));   configuration and recipe
 *     PL_TRY(pl_run_build(run));                               programs, compiled and planned
 *     pl_run_memory m = pl_run_memory_get(run);                the bytes that it will use
 *     PL_TRY(pl_run_start(run));                               maps memory, loads weights and data
 *     while (...) PL_TRY(pl_run_step(run, &info));
 *
 * The library prints nothing; the command line is written on this header.
 */
#ifndef PLIMSOLL_TRAIN_H
#define PLIMSOLL_TRAIN_H

#include "plimsoll_recipe.h"
#include "plimsoll_tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sizes in messages ------------------------------------------------------------------- */
/* Writes a size to buf and returns buf: "5.42 GB", in powers of 1000, if the user's budget is round
 * in these units (6GB); otherwise "5.05 GiB", in powers of 1024. */
PL_API const char *pl_bytes_text(uint64_t bytes, char *buf, size_t cap);
/* Selects the units of sizes in messages from a budget; pl_run_open calls it with the key `memory`.
 * A budget that is a round number in neither unit changes nothing. */
PL_API void pl_bytes_follow(uint64_t typed);
PL_API bool pl_bytes_decimal(void);

/* ---- built-in recipes ------------------------------------------------------------------- */
PL_API int pl_recipe_count(void);
PL_API const pl_recipe *pl_recipe_at(int i);
PL_API const pl_recipe *pl_recipe_find(const char *name); /* NULL if none */

/* ---- opening ---------------------------------------------------------------------------- */
typedef struct pl_run pl_run;

/* Reads and checks the configuration. config: a preset ("cloud/tiny"), a recipe ("cloud": its first
 * preset), a compiled recipe ("./my-net.so", "./my-net.so/preset") or a YAML file whose key
 * `recipe` names one of these. overrides: n texts "key=value". Free the run with pl_run_free. */
PL_API pl_status pl_run_open(const char *config, const char *const *overrides, int n,
                             pl_run **out) PL_MUST_USE;
PL_API void pl_run_free(pl_run *r);
PL_API const pl_config *pl_run_config(const pl_run *r);
PL_API const pl_recipe *pl_run_recipe(const pl_run *r);
PL_API pl_store *pl_run_store(const pl_run *r);

/* ---- configurations of other programs --------------------------------------------------- */
typedef struct pl_convert_info {
    const char *recipe;              /* recipe of the result */
    int converted, skipped, unknown; /* numbers of keys: set; not needed; unknown */
} pl_convert_info;
/* Converts a YAML or JSON file of another program (pl_recipe.foreign) to a configuration with
 * comments; the caller frees it with pl_text_free. recipe: NULL: recognised by the keys. */
PL_API pl_status pl_convert(const char *path, const char *recipe, pl_convert_info *info,
                            char **yaml) PL_MUST_USE;

/* ---- phases (docs/PHASES.md) ------------------------------------------------------------ */
/* Key `phases`: training in several phases, one after the other, each with its own settings. A
 * pl_run is one phase: open the configuration, enter the phase, build, start. Without the key, do
 * not enter a phase. */
typedef struct pl_phase {
    const char *name;   /* "loo-2": the third repetition of loo */
    int64_t steps;      /* largest number; 0: key train.steps */
    double epochs;      /* largest number of passes over the data; 0: no limit */
    const char *metric; /* the phase ends when this evaluation output passes bound; NULL: none */
    double bound;
    bool above;      /* true: ends above the bound; false: below */
    bool ends_run;   /* when stop.patience ends the phase, the run ends, too */
    int start;       /* number of the phase whose weights it starts with; -1: fresh weights */
    bool all_state;  /* also takes over moments, averages and counters */
    bool best;       /* its result is the weights of its best evaluation */
    int fold, folds; /* repetition; folds 0: the phase is not repeated */
} pl_phase;
PL_API int pl_run_phase_count(const pl_run *r); /* 0: the configuration has none */
PL_API const pl_phase *pl_run_phase_at(const pl_run *r, int i);
/* Returns the phase with that name or number; -1: none. */
PL_API int pl_run_phase_find(const pl_run *r, const char *name);
/* Turns the run into phase i: applies the settings of the phase. Call it before pl_run_build.
 * before: steps of all earlier phases. */
PL_API pl_status pl_run_enter(pl_run *r, int i, int64_t before) PL_MUST_USE;
PL_API int pl_run_phase(const pl_run *r);            /* -1: none was entered */
PL_API int64_t pl_run_steps_before(const pl_run *r); /* of the phases before */
/* Writes the phase's weights, and its other state if a later phase needs it, into the folder dir,
 * which is created. best: a model file to copy instead of the current weights; NULL: none. */
PL_API pl_status pl_run_hand_on(pl_run *r, const char *dir, const char *best) PL_MUST_USE;
/* Lets pl_run_start read what pl_run_hand_on wrote to dir. Call it before pl_run_start. */
PL_API pl_status pl_run_take_over(pl_run *r, const char *dir) PL_MUST_USE;
/* Sets, after pl_run_start, the number of tensors that were taken over and the number of tensors of
 * the model. */
PL_API void pl_run_taken(const pl_run *r, int *taken, int *of);
/* Returns the last step of a started run, counted like pl_run_steps_done; the run may end
 * earlier. */
PL_API int64_t pl_run_last_step(const pl_run *r);

/* ---- planning --------------------------------------------------------------------------- */
/* Sets the options that pl_run_build compiles with. Call it before pl_run_build. */
PL_API void pl_run_set_compile(pl_run *r, const pl_compile_opts *o);
/* Builds, compiles and plans the programs. With key `memory` the plan recomputes, splits the batch
 * or uses trade-offs to fit. If no plan fits, this succeeds, and pl_run_memory_get(r).fits is
 * false. */
PL_API pl_status pl_run_build(pl_run *r) PL_MUST_USE;
/* Searches for the smallest budget; pl_run_memory_get then returns it as `minimum`. pl_run_build
 * calls it when the given budget is too small. */
PL_API pl_status pl_run_find_minimum(pl_run *r) PL_MUST_USE;
PL_API const pl_program *pl_run_train_program(const pl_run *r);
PL_API const pl_program *pl_run_eval_program(const pl_run *r); /* NULL if the recipe has none */

/* The programs of a step, in the order in which they run; i in [0, count). The training program is
 * called "train". */
typedef struct pl_run_step_program {
    const char *name;
    const pl_program *run, *apply; /* apply: NULL unless accumulating */
    double share;                  /* mean number of runs per step */
} pl_run_step_program;
PL_API int pl_run_step_program_count(const pl_run *r);
PL_API pl_run_step_program pl_run_step_program_at(const pl_run *r, int i);
/* Lists the indices of the programs that a step runs (steps are counted from 0), in order; a
 * program that runs several times is listed as often. Writes at most cap of them and returns their
 * number. */
PL_API int pl_run_step_programs_of(const pl_run *r, int64_t step, int *out, int cap);

/* The image sizes of data.buckets; each has its own programs. The functions above and below report
 * the programs of the largest bucket. The count is 0 without buckets. */
typedef struct pl_run_bucket {
    int height, width;
    uint64_t arena_bytes; /* of its largest program of the step */
    double step_ms;       /* predicted */
} pl_run_bucket;
PL_API int pl_run_bucket_count(const pl_run *r);
PL_API pl_run_bucket pl_run_bucket_at(const pl_run *r, int i);

/* Returns the cache folder if it is not used because other users can write into it; NULL
 * otherwise. */
PL_API const char *pl_cache_warning(void);
/* Returns the reason why decoders run inside this process with data.sandbox: auto; NULL: decoders
 * run in a sandbox, or nothing needs decoding. */
PL_API const char *pl_decoder_warning(void);

/* Reads the limits of this process on the CPU. Without the key `memory` the budget is then the
 * memory that is free; with the key, pl_run_start fails (PL_ERR_FIT) when the plan needs more than
 * machine, container and process limits allow at all. sharers: processes of this run on the
 * machine. Call it before pl_run_build. */
PL_API void pl_run_limit_host(pl_run *r, int sharers);
/* Makes planning quick, for a caller who asks whether the run fits its budget and about how long
 * its step takes: one of the first plans that fit is taken, and the minimum is not searched for.
 * Call it before pl_run_build, or before pl_run_plan_within. */
PL_API void pl_run_plan_quickly(pl_run *r);
/* Plans the build of pl_run_build again, for another budget than the key `memory`. If no plan
 * fits, this succeeds, and pl_run_memory_get(r).fits is false. Before pl_run_start. */
PL_API pl_status pl_run_plan_within(pl_run *r, uint64_t budget) PL_MUST_USE;
/* Announces that pl_run_start follows pl_run_build. If the start would fail because frozen weights
 * are random and the data are real, the build then fails before it plans. Call it before
 * pl_run_build. */
PL_API void pl_run_will_start(pl_run *r);

/* Bytes of the whole process, as --memory counts them. */
typedef struct pl_run_memory {
    uint64_t arena, state; /* mapped by pl_run_start, exact to the byte */
    uint64_t overhead;     /* everything else, with a margin: counted on the CPU, else measured */
    uint64_t total;        /* arena + state + overhead */
    uint64_t budget; /* key `memory`, at most the memory of a planned-for GPU; 0: none given */
    uint64_t asked;  /* key `memory` as it is given; 0: none given */
    /* origin of a budget that was not given (pl_run_limit_host): "the free memory of this machine";
     * NULL: the budget was given, or there is none */
    const char *limit;
    uint64_t minimum; /* smallest budget known to work; see pl_run_find_minimum */
    /* true: `minimum` comes from a full search, as in `plimsoll plan`. */
    bool minimum_found;
    bool fits; /* total <= budget, or no budget */
} pl_run_memory;
PL_API pl_run_memory pl_run_memory_get(const pl_run *r);
/* Return the bytes that the process holds at this moment, and the most seen: the resident set, or
 * on a GPU the device memory that the driver reports. */
PL_API uint64_t pl_run_used_bytes(pl_run *r);
PL_API uint64_t pl_run_peak_used_bytes(pl_run *r);
/* How a step's batch is split. `effective` is key `batch` in every plan. */
typedef struct pl_run_split {
    int64_t micro, accumulate, effective;
    const char *coupled; /* why accumulate: auto does not split the batch; NULL: it may */
    int64_t ranks;       /* effective = micro * accumulate * ranks */
} pl_run_split;
PL_API pl_run_split pl_run_split_get(const pl_run *r);
/* Returns the i-th trade-off (pl_recipe.smaller) that the plan uses, of the trade-offs whose key is
 * auto; NULL: no more. *without_ms: predicted step time without trade-offs; 0: the plan would not
 * fit without them. */
PL_API const pl_tradeoff *pl_run_tradeoff_at(const pl_run *r, int i, double *without_ms);
/* Returns the predicted time of a whole step: all micro-batches and the update. */
PL_API double pl_run_predicted_ms(const pl_run *r);
PL_API int64_t pl_run_parameters(const pl_run *r, bool trainable_only);

/* ---- running ---------------------------------------------------------------------------- */
/* Maps the memory, sets initial values (`seed`, then `init_from` if given) and opens the data. The
 * run must be built. PL_ERR_FIT when the budget is too small. */
PL_API pl_status pl_run_start(pl_run *r) PL_MUST_USE;
PL_API pl_session *pl_run_session(pl_run *r);
/* Class names of a started run's labels; NULL: its data have none. */
PL_API const pl_classes *pl_run_classes(const pl_run *r);
/* After pl_run_start: returns a table of the weights that were read from files; NULL: no file was
 * read. */
PL_API const char *pl_run_start_note(const pl_run *r);
/* The rows of that table for one weight file, for programs. */
typedef struct pl_loaded_row {
    int n;
    const char *names; /* the first of them, ", " between; "": none */
} pl_loaded_row;
typedef struct pl_loaded {
    const char *key, *path;      /* configuration key, and its value */
    const char *naming, *prefix; /* convention of names, and the prefix before each name */
    int loaded, averages;
    pl_loaded_row missing, differs, left_over; /* differs: in shape */
} pl_loaded;
/* Returns the i-th weight file that pl_run_start read; NULL after the last one. */
PL_API const pl_loaded *pl_run_loaded(const pl_run *r, int i);
/* After pl_run_start: a warning, as a sentence; NULL: none. Frozen weights are random, because the
 * data are generated or allow_random_frozen is true (otherwise pl_run_start fails), or all images
 * of training have one class. */
PL_API const char *pl_run_start_warning(const pl_run *r);

#define PL_MAX_METRICS 32
#define PL_MAX_TERMS   128
typedef struct pl_step_info {
    int64_t step;               /* the first is 1; phases continue the count */
    double epoch;               /* passes over the data, with a fraction; 0: the data are endless */
    double loss, lr, grad_norm; /* NaN where the program has no such output */
    double loss_scale;          /* fp16: factor of the loss; NaN otherwise */
    bool skipped;               /* fp16: the gradients overflowed, no weight was updated */
    bool spiked;                /* guard.spike: the step was not applied */
    double step_ms, data_ms;
    double device_ms; /* time that a GPU worked, by its own clock; 0 on the CPU */
    /* Every scalar output of the programs that ran in this step and of their updates: means over
     * micro-batches. Outputs of programs other than the training program are named
     * "program.output". The run owns the names. Of several updates (train.updates_per_batch), the
     * last. */
    int n_terms;
    const char *term_name[PL_MAX_TERMS];
    double term[PL_MAX_TERMS];
} pl_step_info;
/* The names of all terms that a step can have, in the order of the programs; i in [0, count). The
 * run is built and owns the names. */
PL_API int pl_run_term_count(const pl_run *r);
PL_API const char *pl_run_term_name(const pl_run *r, int i);
/* Reads a batch and trains on it, micro-batch by micro-batch. PL_ERR_DATA: the batch has a number
 * that is not finite (unless data.allow_nonfinite). PL_ERR_NUMERIC: the loss or the gradient norm
 * is not finite; in fp16 such a step is skipped, and fails only when the loss scale is at its
 * floor; and the guard may end the run. */
PL_API pl_status pl_run_step(pl_run *r, pl_step_info *info) PL_MUST_USE;

/* Statistics of an input of the first micro-batch that this process trained on; whole numbers and
 * truth values too. */
#define PL_MAX_INPUT_STATS 16
typedef struct pl_input_stats {
    const char *name; /* the run owns it */
    pl_type type;
    double min, max, mean, std;
} pl_input_stats;
/* Sets *out to the statistics and returns the number of inputs, after the first step; 0: the recipe
 * generates its samples. */
PL_API int pl_run_first_batch(const pl_run *r, const pl_input_stats **out);

/* Makes the message of PL_ERR_NUMERIC name the first value that was not finite, and makes a step
 * fail that leaves such a number in the weights. Slow. Call it before or after pl_run_start. */
PL_API void pl_run_trace_nan(pl_run *r, bool on);

/* Trains for about so many seconds and adds the time of each kernel to this device's table, from
 * which later plans predict. *waited: the share of the time in which threads waited for a core that
 * other programs held; above PL_TIMES_BUSY the times are too long. The run must be started. Free it
 * afterwards: its weights have changed. */
PL_API pl_status pl_run_measure(pl_run *r, double seconds, int *steps, int *units,
                                double *waited) PL_MUST_USE;
/* Trains for about so many seconds and compares the time of each kernel with the time that the plan
 * predicted. *text lists the kernels for which they differ by more than `factor`, a line each, and
 * the table gets the times of all kernels, so that the next plan predicts from them; if *waited (as
 * above) is above PL_TIMES_BUSY, the table is unchanged. *text is NULL, and the table is unchanged,
 * when no kernel differs that much. Free *text with pl_text_free, and the run. */
PL_API pl_status pl_run_check_times(pl_run *r, double seconds, double factor, double *waited,
                                    char **text) PL_MUST_USE;
/* Times common kernels in common sizes on the CPU and adds them to its table; takes some seconds.
 * progress is called with the cases done, of total; it may be NULL. */
typedef void (*pl_calibrate_fn)(void *ctx, int done, int total);
PL_API pl_status pl_calibrate(pl_calibrate_fn progress, void *ctx, int *units) PL_MUST_USE;

/* Writes the recipe's own samples as a data set, DIR/train/INPUT.npy and DIR/eval/INPUT.npy, which
 * key data.path reads. The run must be built; do not train with it afterwards. samples 0: as many
 * as the recipe has. progress may be NULL. */
typedef void (*pl_progress_fn)(void *ctx, pl_subset subset, int64_t done, int64_t total);
PL_API pl_status pl_run_generate(pl_run *r, const char *dir, int64_t samples, int64_t eval_samples,
                                 pl_progress_fn progress, void *ctx) PL_MUST_USE;

/* ---- a cache of the outputs of the recipe's frozen encoder (docs/DATA.md) --------------------
 * Makes the encoder the run's only program; key data.cache names the folder to write. Call it
 * between opening and building. */
PL_API pl_status pl_run_encode_only(pl_run *r) PL_MUST_USE;
/* Sets *fresh: whether the existing cache is what this configuration would write; if not, why says
 * the reason. Call it before building. */
PL_API pl_status pl_run_cache_fresh(pl_run *r, bool *fresh, char *why, size_t cap) PL_MUST_USE;
/* Runs the encoder over all samples and writes its outputs. The run must be started. progress may
 * be NULL. */
typedef struct pl_cache_info {
    int64_t samples, eval_samples;
    uint64_t bytes;
    int files;
} pl_cache_info;
PL_API pl_status pl_run_cache(pl_run *r, pl_progress_fn progress, void *ctx,
                              pl_cache_info *info) PL_MUST_USE;

/* Like pl_run_generate, but writes pictures in folders (DIR/train/000000.png, with .txt) or prompts
 * and their embeddings (DIR/prompts.txt, DIR/embeddings.npy) for recipes with pl_image_feed.draw,
 * or the recipe's own files (pl_recipe.data_write). */
PL_API pl_status pl_run_generate_raw(pl_run *r, const char *dir, int64_t samples,
                                     int64_t eval_samples, pl_progress_fn progress,
                                     void *ctx) PL_MUST_USE;

/* Means of the evaluation program's outputs over the first eval.batches batches, or over the whole
 * set if that is smaller. Every sample counts equally, also in a last batch that is not full. */
typedef struct pl_eval_info {
    int n, batches;
    int64_t samples;
    const char *name[PL_MAX_METRICS]; /* borrowed until the run is freed */
    double value[PL_MAX_METRICS];
} pl_eval_info;
/* n is 0 when there is nothing to evaluate: no evaluation program, or no samples for it. */
PL_API pl_status pl_run_eval(pl_run *r, pl_eval_info *info) PL_MUST_USE;
/* Sets a function that evaluations call with the samples done; NULL: none. */
PL_API void pl_run_set_progress(pl_run *r, pl_progress_fn progress, void *ctx);
/* Limits the run to its evaluation and sampling programs and the weights that they read from the
 * model file `init_from`. The file may have further weights. The run takes no steps. accumulate:
 * micro-batches of a batch in training, so that scores are the same; 0: key `accumulate`, else 1.
 * Call it between opening and building. */
PL_API pl_status pl_run_eval_only(pl_run *r, int64_t accumulate) PL_MUST_USE;

/* ---- predictions ------------------------------------------------------------------------ */
/* Limits the run to the programs of the recipe's predictions (pl_recipe.predict) and the weights
 * that they read from the model file `init_from`. PL_ERR_CONFIG when the recipe has no predictions.
 * Call it between opening and building. If the budget is too small for key `batch`, the run
 * computes fewer samples at a time. */
PL_API pl_status pl_run_predict_only(pl_run *r) PL_MUST_USE;
typedef struct pl_predict_opts {
    const char *input, *out, *prompt; /* NULL: not given */
    /* Called with the number of samples done and the total (0: unknown); may be NULL. */
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
} pl_predict_opts;
typedef struct pl_predict_info {
    int64_t samples; /* done, as the recipe counts them */
    int64_t bad;     /* pictures that could not be read; they are among `samples` */
    char first_bad[256];
    char note[192]; /* what the recipe says about the results (pl_predict_note); "": nothing */
} pl_predict_info;
/* Reads the input and writes the results. The run is started. */
PL_API pl_status pl_run_predict(pl_run *r, const pl_predict_opts *o,
                                pl_predict_info *info) PL_MUST_USE;

/* Early stopping (keys stop.*): decides whether the run has stopped improving. Call it after every
 * evaluation. Its memory is a slot of the store, so a resumed run decides like a run that was never
 * interrupted. */
typedef struct pl_verdict {
    bool better;  /* than every evaluation before: keep this model */
    bool stop;    /* the last stop.patience evaluations were not better */
    bool reached; /* the phase's metric has passed its bound */
    double best;
} pl_verdict;
PL_API pl_verdict pl_run_judge(pl_run *r, const pl_eval_info *info);
/* Keys sample.*: runs the recipe's sampling program, if it has one, and calls `each` for each of
 * its pictures: a grid of sample.count samples, as bytes. The run owns the pixels (rows of width *
 * channels, the top row first) until the next call. */
typedef struct pl_sheet {
    const char *name;
    int width, height, channels; /* 1 grey, 3 RGB */
    const uint8_t *pixels;
} pl_sheet;
PL_API pl_status pl_run_sample(pl_run *r, pl_status (*each)(void *ctx, const pl_sheet *g),
                               void *ctx) PL_MUST_USE;
/* Writes the arrays of the last pl_run_sample (pl_builder_array) to one safetensors file: one row
 * per sample, sample.count rows. The file appears complete or not at all. */
PL_API bool pl_run_sample_arrays(const pl_run *r); /* whether there are any */
PL_API pl_status pl_run_sample_save(pl_run *r, const char *path) PL_MUST_USE;
PL_API const pl_program *pl_run_sample_program(const pl_run *r); /* NULL if there is none */
/* Feeds an evaluation metric to the plateau schedule; true when the learning rate was lowered.
 * Evaluations count from the first update at the full rate on: not during the warm-up. */
PL_API bool pl_run_plateau(pl_run *r, double metric);

/* Returns the number of files of the data set that are not read because their format is not
 * supported; buf gets their numbers by ending, "8 .heic, 2 .mp4". The run is started. */
PL_API int64_t pl_run_skipped_files(const pl_run *r, char *buf, size_t cap);
/* Images that data.on_bad=skip or quarantine has replaced, and their names; NULL past the end. Call
 * them between steps only. */
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
    int64_t files, bad, eval, ignored; /* ignored: files of unsupported formats */
    int classes, shards;
    uint64_t bytes;
    char skipped[256]; /* the ignored files by kind: "8 .heic, 2 .mp4" */
} pl_data_summary;
typedef struct pl_data_scan_opts {
    void (*each)(void *ctx, const pl_data_file *f);           /* in order; may be NULL */
    void (*progress)(void *ctx, int64_t done, int64_t total); /* may be NULL */
    void *ctx;
    int64_t max_pixels; /* 0: the default of data.max_pixels */
} pl_data_scan_opts;
/* Decodes every image of a folder or of tar shards. A bad file does not fail the scan. */
PL_API pl_status pl_data_scan(const char *path, const pl_data_scan_opts *o,
                              pl_data_summary *sum) PL_MUST_USE;
/* File formats that need a library, and why one cannot be read here (NULL: it can). Returns their
 * number. */
typedef struct pl_data_format {
    const char *name, *why_not;
} pl_data_format;
PL_API int pl_data_formats(pl_data_format *out, int cap);

/* ---- model files (safetensors, PyTorch's names and layouts) ----------------------------- */
PL_API pl_status pl_run_save_model(pl_run *r, const char *path) PL_MUST_USE;
/* Like pl_run_save_model, with the average in place of every weight that has one (ema.decay, also
 * of the recipe's other optimiser sections). */
PL_API bool pl_run_has_averages(const pl_run *r); /* after pl_run_build */
PL_API pl_status pl_run_save_averages(pl_run *r, const char *path) PL_MUST_USE;
/* Loads a model file. Every parameter and buffer must be in the file, with its shape. partial:
 * other tensors in the file are ignored; otherwise they are an error. */
PL_API pl_status pl_run_load_model(pl_run *r, const char *path, bool partial) PL_MUST_USE;

/* ---- export: `plimsoll export` ---------------------------------------------------------------
 * Writes weights of a built run, which need not be started, in one of the recipe's forms
 * (pl_recipe.exports), or in the form "plimsoll": all that the run trains, under the slots' names.
 * The weights come from files in any naming that init_from takes. */
typedef struct pl_export_opts {
    const char *form, *model, *out;
    const char
        *dtype;   /* "f32", "f16", "bf16", "f64": of floating-point tensors; NULL: the slots' */
    bool frozen;  /* form plimsoll: frozen networks too */
    int64_t step; /* number of steps done, for files that store it */
    const char *program; /* form onnx: the program to write; NULL: see pl_run_onnx_only */
} pl_export_opts;
typedef struct pl_export_info {
    int files, tensors;
    int unnamed;             /* weights that the form has no name for: they are left out */
    char first_unnamed[128]; /* one of them */
    int random;              /* tensors that are random, as the model file notes */
    char first_random[128];  /* one of them */
    uint64_t bytes;          /* of tensors */
    int draws;               /* form onnx: draws of random numbers that became inputs */
} pl_export_info;
/* Returns whether the recipe declares this form. Without a declaration, form onnx writes one of the
 * recipe's programs with its weights. */
PL_API bool pl_run_has_form(const pl_run *r, const char *form);
/* Limits a run that is not yet built to one program without gradients, for form onnx; samples are
 * not read. program: "predict" or another program of the recipe's predictions, "eval" or "sample";
 * NULL: predict where the recipe has predictions, else eval. Then build and start the run. */
PL_API pl_status pl_run_onnx_only(pl_run *r, const char *program) PL_MUST_USE;
PL_API pl_status pl_run_export(pl_run *r, const pl_export_opts *o,
                               pl_export_info *info) PL_MUST_USE;

/* ---- replay: comparison with a PyTorch program --------------------------------
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
    int noise; /* tensors that only rounding noise moved; see train/run/replay.c */
    /* Values beyond the tolerances that rounding explains: the same run from weights moved by one
     * unit in the last place, `nudged` times, differs as much. */
    int rounding, nudged;
    double worst_loss, worst_grad, worst_final;
    char worst_loss_name[128], worst_grad_name[128], worst_final_name[128];
    char rounding_name
        [256]; /* the value of `rounding` nearest to a disagreement, with its numbers */
    bool agree;
} pl_replay_report;
PL_API pl_status pl_replay(const char *dir, const pl_replay_opts *o,
                           pl_replay_report *report) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
