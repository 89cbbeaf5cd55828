/* train_int.h - what the files of train/ share. */
#ifndef PL_TRAIN_TRAIN_INT_H
#define PL_TRAIN_TRAIN_INT_H

#include "base/arena.h"
#include "ir/graph.h"
#include "nn/nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_train.h"

/* The engine's own configuration keys. */
extern const pl_config_entry pl_engine_schema[];

/* A graph and the layer context over it. */
typedef struct pl_draft {
    pl_graph *g;
    pl_nn *m;
} pl_draft;

/* A program of the step in the making. */
typedef struct pl_program_draft {
    const char *name; /* NULL: the training program */
    pl_when when;
    pl_draft run, apply; /* apply: parts > 1 */
    const char *section; /* of the optimiser, once minimised */
    bool minimised;
    pl_val loss;
    pl_grads grads;
} pl_program_draft;

enum {
    PL_MAX_STEP_PROGRAMS = 16,
    PL_MAX_BUCKETS = 32,
    PL_MAX_PROGRAMS = PL_MAX_BUCKETS * (2 * PL_MAX_STEP_PROGRAMS + 1) + 1,
    PL_MAX_PICTURES = 8
};

/* A picture of the sampling program. */
typedef struct pl_picture_out {
    const char *name;
    int64_t width, height;
    int channels;
    bool last; /* channels are the last dimension, else the second */
    float low, high;
} pl_picture_out;
#define PL_SAMPLE_KEY   "sample.key"    /* its input {seed, run} */
#define PL_SAMPLE_ARRAY "sample.array." /* before the names of its arrays */

struct pl_builder {
    const pl_config *config;
    pl_store *store;
    int64_t batch, parts; /* samples of a program; its runs a step */
    pl_program_draft step_programs[PL_MAX_STEP_PROGRAMS]; /* the first is the training program */
    int n_step_programs;
    const pl_nn_ranks *ranks; /* NULL: one */
    const pl_spread *spread;  /* of each step program; NULL: one rank */
    pl_draft eval, sample;    /* sample: once it is asked for */
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures, n_arrays;
    bool probe;  /* built to be looked at: no update, goals instead */
    bool replay; /* draws are inputs; gradients are outputs */
    bool f64;    /* parameters made by the layers are f64 */
    bool wants_eval;
    bool encode;     /* the recipe's encoder alone is built */
    bool forward;    /* what evaluates and samples alone is kept */
    pl_store *aside; /* forward: slots of the programs that are built and not kept; else NULL */
};

/* Runs the recipe's build and finishes all graphs. On failure nothing is left. */
pl_status pl__builder_run(pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;
void pl__builder_release(pl_builder *b);
/* cache_write.c: holds what training reads from a cache against what the encoder, which is built,
 * gives. */
pl_status pl__cache_check_reader(pl_run *r) PL_MUST_USE;

/* The optimiser settings of a section of a configuration; "optim" is the engine's own. */
pl_status pl__optim_from_config(const pl_config *c, const char *section, pl_optim *out,
                                pl_plateau *plateau) PL_MUST_USE;
/* Schema of a recipe's further optimiser sections, in the arena; NULL when out of memory. */
const pl_config_entry *pl__optim_schema(pl_arena *a, const char *const *sections);

/* ---- steps.c: the programs of a step ---- */
typedef struct pl_step_program {
    const char *name; /* NULL: the training program */
    pl_when when;
    pl_program *run, *apply; /* apply: updates from accumulated gradients; NULL unless parts > 1 */
    struct {
        const char *name; /* reported as */
        int output;
    } term[PL_MAX_METRICS];
    int n_terms;
} pl_step_program;

/* Compiles the builder's graphs into the run's programs; the graphs are moved in or freed. */
pl_status pl__step_programs_compile(pl_run *r, pl_builder *b) PL_MUST_USE;
void pl__step_programs_free(pl_run *r);
/* All programs of the run, evaluation included; returns how many. */
int pl__run_programs(const pl_run *r, pl_program *out[PL_MAX_PROGRAMS]);
/* The device, when its memory is not the host's; else NULL. */
const struct pl_device *pl__run_card(const pl_run *r);
bool pl__step_program_runs(const pl_step_program *t, int64_t step);
/* How often a step trains on its batch. */
int64_t pl__run_updates(const pl_run *r);
/* The one that runs after t of the current update of *step, which moves on with it. */
const pl_step_program *pl__step_program_next(const pl_run *r, const pl_step_program *t,
                                             int64_t *step);
/* Adds the scalars that a micro-batch of t left, its last or (ago = 1) the one before, to the
 * step's means. */
void pl__step_program_terms(pl_run *r, const pl_step_program *t, int ago, pl_step_info *info);
/* The program that updates. */
pl_program *pl__step_program_updater(const pl_step_program *t);
/* Of a step in the mean: every program counts as often as it runs. */
double pl__step_programs_ms(const pl_run *r, const pl_step_program *list, int n);

/* ---- buckets.c: the programs of a step in every size of data.buckets ---- */
typedef struct pl_variant {
    int height, width;
    pl_config *config; /* the run's with that size */
    pl_step_program step_programs[PL_MAX_STEP_PROGRAMS];
    int n_step_programs;
    pl_program *train, *apply, *eval;
} pl_variant;

/* Builds and compiles the programs, of every bucket if there are any; r->micro and r->parts are
 * set. */
pl_status pl__variants_build(pl_run *r) PL_MUST_USE;
void pl__variants_free(pl_run *r); /* not their programs */
/* Makes the programs of bucket k the run's own; nothing without buckets. */
void pl__variant_select(pl_run *r, int k);
/* Without buckets there is one variant, 0: the run's own. */
int pl__variant_count(const pl_run *r);
const pl_step_program *pl__variant_step_programs(const pl_run *r, int k);
pl_program *pl__variant_train(const pl_run *r, int k);
pl_program *pl__variant_eval(const pl_run *r, int k);
/* The bucket that an image of that size belongs to. */
int pl__bucket_nearest(const pl_run *r, int width, int height);
/* run_open.c: a configuration of the run's keys, and one with the values of `from`; the caller
 * frees it, on failure too. */
pl_status pl__run_config_new(pl_run *r, pl_config **out) PL_MUST_USE;
pl_status pl__run_config_copy(pl_run *r, const pl_config *from, pl_config **out) PL_MUST_USE;

/* The counter slot of keys stop.*, f64[3]: {evaluations seen, best, since the best}; made if
 * absent. */
int pl__stop_slot(pl_store *s);

/* Key `accumulate`: a number, or 0 for auto. */
pl_status pl__accumulate_asked(const pl_config *c, int64_t *parts) PL_MUST_USE;
/* Do samples couple, so that so many micro-batches are not the batch? *why is NULL when it is
 * proven that they do not, else a text in the run's arena that names the op. */
pl_status pl__run_couples(pl_run *r, int64_t parts, const char **why) PL_MUST_USE;
/* The recipe built to be looked at, without updates, over a store of its own. */
pl_status pl__probe(pl_run *r, int64_t batch, pl_builder *b) PL_MUST_USE;
void pl__probe_release(pl_builder *b);
/* accumulate: auto: builds for the number of micro-batches that fits and is fastest. */
pl_status pl__run_build_auto(pl_run *r) PL_MUST_USE;
/* Builds, compiles and fits for a given number of micro-batches; again if need be. */
pl_status pl__run_build_parts(pl_run *r, int64_t parts) PL_MUST_USE;
/* run_fit.c: plans what is built for its budget. Where no plan is found it stays as it is:
 * pl_run_memory_get tells so. */
pl_status pl__run_fit(pl_run *r) PL_MUST_USE;
/* The largest of the programs' smallest arenas, with what the host takes more for their plans. */
pl_status pl__run_least(pl_run *r, uint64_t *bytes) PL_MUST_USE;
/* Bytes on the card that inputs pass through. */
uint64_t pl__run_stage_bytes(const pl_run *r);

/* ---- tradeoffs.c: settings of pl_recipe.smaller that the plan may take ---- */
/* How many there are to take; with level k the first k of them are. */
int pl__tradeoffs(const pl_run *r);
/* Programs are built with that level's configuration from now on. */
pl_status pl__tradeoff_set(pl_run *r, int level) PL_MUST_USE;
const pl_config *pl__built_config(const pl_run *r);
/* Whether the key is of a setting that changes no bit. */
bool pl__tradeoff_key(const pl_recipe *recipe, const char *key);
/* What a build has made, beside the store's slots; the members of pl_run. Zeroes are none. */
typedef struct pl_built {
    pl_step_program step_programs[PL_MAX_STEP_PROGRAMS];
    int n_step_programs;
    pl_program *train, *apply, *eval, *sample;
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures;
    pl_variant *variants;
    int n_variants, now;
    const char *unfit;
    bool fitted;
    int level;
    pl_config *traded;
} pl_built;
/* The run's against those put aside. */
void pl__built_swap(pl_run *r, pl_built *b);
/* The run's are freed, those put aside are its own again. */
void pl__built_take_back(pl_run *r, pl_built *b);
/* Those put aside are freed. */
void pl__built_free(pl_run *r, pl_built *b);

/* ---- ranks.c ---- */
/* Keys of ranks, into r->ranks; the world has joined if it does. */
pl_status pl__ranks_configure(pl_run *r) PL_MUST_USE;
/* Where this rank computes: of a machine's cards the one of its number, again from the first when
 * there are more ranks than cards. */
const char *pl__ranks_device(pl_run *r);
/* shard: auto: whether the run is to be built again, sharing more. */
bool pl__ranks_share_more(pl_run *r);
/* Finds the axes of draws over samples; fails when samples of different ranks would couple, other
 * than through BatchNorm. Sets b's ranks and spread. */
pl_status pl__ranks_prepare(pl_run *r, int64_t parts, pl_builder *b) PL_MUST_USE;
/* Means over ranks of the step's scalars. *bad: how many values any rank found not finite. */
pl_status pl__ranks_terms(pl_run *r, pl_step_info *info, double *bad) PL_MUST_USE;
/* Fails, on all ranks alike, when one has another program, configuration, plan or data than rank 0.
 */
pl_status pl__ranks_check(pl_run *r) PL_MUST_USE;
/* n numbers, at most PL_MAX_METRICS, become their sums over ranks. */
pl_status pl__ranks_sum(pl_run *r, double *value, int n) PL_MUST_USE;
/* The least of all ranks' numbers. */
pl_status pl__ranks_least(pl_run *r, uint64_t *value) PL_MUST_USE;
/* Position in the endless stream of sample i of this rank's part of micro-batch `number`. */
int64_t pl__ranks_position(const pl_run *r, int64_t number, int64_t i);
/* ---- rank_files.c ---- */
struct pl_checkpoint;
struct pl_st_reader;
struct pl_st_tensor;
/* Rank 0, while the others serve: all of a slot that ranks share, to the sink, from its beginning
 * on. */
typedef pl_status (*pl_bytes_sink)(void *ctx, const char *data, size_t bytes);
pl_status pl__ranks_fetch(pl_run *r, int slot, pl_bytes_sink sink, void *ctx) PL_MUST_USE;
/* Of the state, what every rank has. */
bool pl__slot_in_state_file(const pl_slot *s);
/* Every rank's parts of shared state into dir; their files are added to c. */
pl_status pl__ranks_save_parts(pl_run *r, const char *dir, struct pl_checkpoint *c) PL_MUST_USE;
/* The state of a checkpoint of any number of ranks. */
pl_status pl__ranks_read_state(pl_run *r, const char *dir,
                               const struct pl_checkpoint *c) PL_MUST_USE;
/* The elements of a slot's value that lie here: from *first on, so many. */
int64_t pl__slot_range(const pl_slot *s, int64_t *first);
/* How many ranks the run is planned for, and the samples of a step of all of them. */
int64_t pl__ranks(const pl_run *r);
int64_t pl__run_batch(const pl_run *r);

struct pl_run {
    pl_arena arena; /* names */
    const pl_recipe *recipe;
    void *library;            /* dlopen handle of a compiled recipe */
    const char *library_path; /* where it lies; NULL */
    pl_config *config;
    pl_store *store;
    pl_compile_opts compile;
    pl_step_program step_programs[PL_MAX_STEP_PROGRAMS]; /* of a step, in their order */
    int n_step_programs;
    pl_program *train, *apply; /* of the step program that trains */
    pl_program *eval;
    int64_t micro, parts; /* batch = micro * parts * ranks */
    pl_world *world;      /* NULL: alone */
    pl_nn_ranks ranks;    /* as configured; ranks.ranks is at least 1 */
    pl_spread spread[PL_MAX_STEP_PROGRAMS];
    char card[16];                /* of ranks that have several cards among them */
    bool ranks_ready;             /* spread is known */
    const pl_nn_ranks *probed_as; /* of builds that are looked at; NULL */
    pl_program *sample;           /* with buckets: of the first; NULL */
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures;
    uint8_t *grids;       /* of all pictures, one after the other, and its arrays behind them */
    pl_variant *variants; /* of every bucket; NULL: the programs above are the only ones */
    int n_variants, now;  /* now: the variant that the programs above are of */
    const char *coupled;  /* why accumulate: auto does not split the batch; NULL */
    pl_session *session;
    pl_plateau plateau;
    const char *unfit; /* why no plan fits the budget; NULL */
    int level;         /* of pl_recipe.smaller the entries taken */
    pl_config *traded; /* the configuration with them; NULL: as it is */
    double without_ms; /* a step at level 0, where something was taken; 0: that does not fit */
    /* the most that the process was seen to have while it planned; 0: that is not the host's */
    uint64_t plan_peak;
    /* the smallest arena, with what the host takes for it; 0: not looked for */
    uint64_t own_least;
    /* the smallest arena of other levels, with what the host takes for it; 0: not known */
    uint64_t other_least;
    /* bytes that the process had when the run was built and not started yet; 0: it is asked */
    uint64_t built_used;
    bool fitted;                /* the plans fit the budget as it was when they were made */
    void *data;                 /* what the recipe's data_read gets, when data_open */
    struct pl_dataset *dataset; /* arrays of data.path, else NULL */
    struct pl_images *images;   /* images of data.path, else NULL */
    struct pl_texts *texts;     /* of data.prompts, else NULL */
    struct pl_prefetch *prefetch;
    bool data_open, replay, f64; /* f64: of a replay, as its dump is */
    bool encode;                 /* the only program is the recipe's encoder (cache.h) */
    bool encode_eval;            /* and training has an evaluation, whose samples it is for too */
    int64_t forward_parts;       /* of forward: see pl_run_eval_only */
    /* nothing trains: the evaluation program is the step's only one, and r->eval is the same
     * program */
    bool forward;
    bool trace_nan;                       /* steps are watched */
    bool ahead;                           /* the next batch is in the inputs already */
    uint64_t used, most_used, used_asked; /* bytes of the device, and when it was asked */
    int64_t steps_done;
    int64_t update; /* of the step that is being taken, the one of its batch's updates */
    char *stage;    /* PL_STAGE_BYTES that files pass through */
    /* room for one slot that files order otherwise, of a card or shared by ranks; else NULL */
    char *whole;
    const bool *frozen, *leaving; /* by slot; NULL: not looked at yet */
    bool *remade;                 /* by slot: was absent in a model file */
    int n_leaving;
    uint64_t leaving_sum;
    const char *resume;   /* checkpoint that pl_run_start goes on from, else NULL */
    int64_t resume_parts; /* micro-batches of a step that it was written with */
    /* by slot, of eval.ema: 1 + the slot that has changed places with it; 0: none has; NULL: not
     * used yet */
    int *swapped;
    const volatile int *stop; /* see pl_run_set_stop; NULL */
    pl_progress_fn progress;  /* of evaluations; NULL */
    void *progress_ctx;
    /* Phases of key `phases`: their own keys, and in their order with repetitions. */
    pl_config **phase_keys;
    int n_phase_keys;
    pl_phase *phases;
    int n_phases, phase;   /* phase: the one entered, -1 */
    int64_t steps_before;  /* of the phases before */
    const char *take_from; /* folder that the phase before left, or NULL */
    int taken, taken_of;   /* tensors of the model */
};

/* ---- averages.c ---- */
bool pl__is_average(const pl_slot *s);
/* The slot of a weight's average; -1: it has none, or none that an update has made. */
pl_status pl__average_of(pl_run *r, int weight, int *average) PL_MUST_USE;
/* eval.ema: is it possible? Weights and averages change places before an evaluation or a sample,
 * and after it, which ended with rc; returns that, or how changing back failed. */
pl_status pl__averages_check(const pl_run *r) PL_MUST_USE;
pl_status pl__averages_begin(pl_run *r) PL_MUST_USE;
pl_status pl__averages_end(pl_run *r, pl_status rc) PL_MUST_USE;

/* run_fit.c: what is told of the run's memory from now on, until it is started, is with what the
 * process has now. */
void pl__run_note_used(pl_run *r);
/* Device and mode of the configuration into the compiler's options. */
void pl__run_target(pl_run *r);

/* ---- samples.c ---- */
/* Finishes and checks the sampling program, if there is one. */
pl_status pl__sample_finish(pl_builder *b, const pl_recipe *recipe) PL_MUST_USE;
pl_status pl__sample_keep(pl_run *r, const pl_builder *b) PL_MUST_USE;
/* Host memory beside the program's; for planning, after build. */
uint64_t pl__sample_bytes(const pl_run *r);
/* Takes it; the programs are there. */
pl_status pl__sample_start(pl_run *r) PL_MUST_USE;

/* ---- phases.c ---- */
/* Reads key `phases` and checks all of it. */
pl_status pl__phases_read(pl_run *r) PL_MUST_USE;
void pl__phases_free(pl_run *r);
/* After an override: what it set holds in every phase, so phases that set it themselves do not any
 * more. */
pl_status pl__phases_yield(pl_config *c) PL_MUST_USE;
/* pl_run_start's part: what the phase before left. The session is there. */
pl_status pl__phase_take(pl_run *r) PL_MUST_USE;
/* Are its rules possible with its data? They are open. */
pl_status pl__phase_check_data(pl_run *r) PL_MUST_USE;
/* Is the evaluation beyond the bound of the phase? */
bool pl__phase_reached(const pl_run *r, const pl_eval_info *info);
/* Whether the first n items of two lists of phases are the same; the item that the run's phase is
 * of. */
bool pl__phases_same(const pl_config *a, const pl_config *b, int n);
int pl__phase_item(const pl_run *r);

/* A const recipe as the untyped context of a callback that only reads it. */
static inline void *pl__unconst(const pl_recipe *r)
{
    return (void *)(uintptr_t)r;
}

/* generate.c: the recipe's own data, opened once; how many samples there are, 0: endless. */
pl_status pl__recipe_data_open(pl_run *r) PL_MUST_USE;
int64_t pl__recipe_samples(const pl_run *r, pl_subset subset);

/* Sample number of position p of the endless stream of samples: each epoch is a permutation of
 * [0, size) that depends on seed and epoch only. */
int64_t pl__sample_at(uint64_t seed, int64_t size, int64_t p);
/* Buckets of so many samples, at least one of them not empty, in batches of `batch`. */
typedef struct pl_strata {
    const int64_t *size;
    int n;
    int64_t batch;
} pl_strata;
/* Batch `number` of the run: of which bucket, and which of that bucket's batches: it has the
 * samples at positions [index * batch, (index + 1) * batch) of the bucket's own stream. */
typedef struct pl_stratum {
    int bucket;
    int64_t index;
} pl_stratum;
pl_stratum pl__stratum_at(uint64_t seed, const pl_strata *s, int64_t number);

/* data.folds: the training samples [begin, end) out of `size` that data.fold leaves out and
 * evaluations read. False when there are no folds. */
typedef struct pl_fold {
    int64_t begin, end, size;
} pl_fold;
bool pl__folded(const pl_run *r); /* a cache is filled with all samples */
bool pl__fold_of(const pl_config *c, int64_t size, pl_fold *f);
/* PL_ERR_CONFIG when so many samples cannot be parted so. */
pl_status pl__fold_check(const pl_config *c, int64_t size) PL_MUST_USE;

/* The handle behind pl_batch_input: finds the memory of an input. */
struct pl_batch {
    void *(*find)(void *ctx, const char *name, pl_type *type);
    void *find_ctx;
    const int64_t *passes; /* of each sample; NULL: all 0 */
};

/* A tensor of a file into a slot's memory and back, through the slot's file layout. src and dst
 * have the slot's dtype. */
void pl__slot_from_file(const pl_slot *slot, const void *src, void *dst);
void pl__slot_to_file(const pl_slot *slot, const void *src, void *dst);
pl_type pl__slot_file_type(const pl_slot *slot);

/* ---- state in files: model_file.c ---- */
enum { PL_STAGE_BYTES = 1 << 18 };
/* The block that files pass through: taken when the run is opened. */
pl_status pl__stage_open(pl_run *r) PL_MUST_USE;
/* Once the session is there. */
pl_status pl__stage_slots(pl_run *r) PL_MUST_USE;
/* Bytes that it takes where slots lie in host memory; for planning. */
uint64_t pl__stage_slots_bytes(const pl_run *r);

typedef bool (*pl_slot_test)(const pl_slot *s);
bool pl__slot_in_model(const pl_slot *s);
/* The slots that pass the test; model: in PyTorch's layouts, else in ours; leave: without those of
 * r->leaving. bytes and hash (XXH64) are the file's. */
pl_status pl__slots_write(pl_run *r, const char *path, bool model, pl_slot_test test, bool leave,
                          uint64_t *bytes, uint64_t *hash) PL_MUST_USE;
/* partial: tensors that no slot wants are passed over. */
pl_status pl__slots_read(pl_run *r, const char *path, bool model, pl_slot_test test,
                         bool partial) PL_MUST_USE;
/* Those slots that the file has; *taken of *of. One with another shape is PL_ERR_FILE. */
pl_status pl__slots_take(pl_run *r, const char *path, bool model, pl_slot_test test, int *taken,
                         int *of) PL_MUST_USE;
bool pl__slot_in_state(const pl_slot *s);

/* A tensor of as many elements as the slot has; other floating types are converted. */
struct pl_st_reader;
struct pl_st_tensor;
pl_status pl__slot_read(pl_run *r, const struct pl_st_reader *f, const struct pl_st_tensor *t,
                        int slot, bool model) PL_MUST_USE;
/* weights.c: the files that the recipe's `weights` keys name, into the slots that are there. */
pl_status pl__weights_load(pl_run *r) PL_MUST_USE;

/* ---- frozen.c: weights that checkpoints leave out ---- */
struct pl_st_writer;
/* Before a checkpoint's model is written: into r->leaving what it leaves out; *any: there is
 * something. */
pl_status pl__frozen_leave(pl_run *r, bool *any) PL_MUST_USE;
/* Into its metadata, so that readers can tell. */
pl_status pl__frozen_tell(const pl_run *r, struct pl_st_writer *w) PL_MUST_USE;
bool pl__frozen_left_out(const struct pl_st_reader *f);
/* Whether a slot is not in a model file because it was left out: then it is as it was made. */
pl_status pl__frozen_absent(pl_run *r, const struct pl_st_reader *f, int slot,
                            bool *absent) PL_MUST_USE;
/* Holds what was found absent against what the file at path says; every rank calls it. */
pl_status pl__frozen_check(pl_run *r, const char *path) PL_MUST_USE;

/* Samples that generate writes: those asked for, else all that the recipe has. */
pl_status pl__generate_count(pl_run *r, pl_subset subset, int64_t asked, int64_t *out) PL_MUST_USE;

/* Samples of the training set; 0 when they never end. */
int64_t pl__run_samples(pl_run *r);
/* Reads state and position from the checkpoint; the session is there. */
pl_status pl__checkpoint_load(pl_run *r, const char *dir) PL_MUST_USE;

#endif
