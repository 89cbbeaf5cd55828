/* train_int.h - what the files of train/ share. */
#ifndef PL_TRAIN_TRAIN_INT_H
#define PL_TRAIN_TRAIN_INT_H

#include "base/arena.h"
#include "ir/graph.h"
#include "nn/nn.h"
#include "plimsoll_optim.h"
#include "plimsoll_train.h"
#include "train/build/builder.h"
#include "train/data/run_data.h"
#include "train/data/sampling.h"
#include "train/files/run_files.h"
#include "train/ranks/run_ranks.h"
#include "train/run/phases.h"

/* The engine's own configuration keys. */
extern const pl_config_entry pl_engine_schema[];

enum { PL_MAX_BUCKETS = 32, PL_MAX_PROGRAMS = PL_MAX_BUCKETS * (2 * PL_MAX_STEP_PROGRAMS + 1) + 1 };

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

/* Where the steps of a run stand. */
typedef struct pl_run_steps {
    int64_t done;   /* steps taken, which is the run's position in its data */
    int64_t update; /* of the step being taken: which of the updates on its batch */
    bool ahead;     /* the next batch is already in the program's inputs */
    bool trace_nan; /* every kernel's results are checked; see pl_run_trace_nan */
    pl_plateau plateau;
} pl_run_steps;

/* Bytes that were measured. Zero: not measured. */
typedef struct pl_run_usage {
    uint64_t plan_peak;     /* host: the most that the process held while it planned */
    uint64_t own_minimum;   /* smallest arena of the build, with its plan's own host bytes */
    uint64_t other_minimum; /* the same of the trade-off levels that were not chosen */
    uint64_t built;         /* bytes of the process when the run was built and not yet started */
    uint64_t used, most;    /* last and largest answer of the device */
    uint64_t asked_ns;      /* time of the last answer */
} pl_run_usage;

/* A recipe that was compiled by the user. */
typedef struct pl_run_library {
    void *handle;     /* of dlopen; NULL: the recipe is built in */
    const char *path; /* NULL: the recipe is built in */
} pl_run_library;

/* Told of the samples that an evaluation has done. */
typedef struct pl_run_progress {
    pl_progress_fn call; /* NULL: nobody asks */
    void *ctx;
} pl_run_progress;

/* What a run is built for. Set before it is built. */
typedef struct pl_purpose {
    pl_goal goal;
    bool f64;           /* parameters are f64, as in a replay of a dump in f64 */
    int64_t accumulate; /* PL_GOAL_EVALUATE: that of the run whose model is evaluated; 0: unknown */
} pl_purpose;

struct pl_run {
    pl_arena arena; /* names and texts that live as long as the run */
    pl_config *config;
    const pl_recipe *recipe;
    pl_run_library library;
    pl_purpose purpose;
    pl_store *store;
    pl_compile_opts compile;
    pl_step_program step_programs[PL_MAX_STEP_PROGRAMS]; /* of a step, in their order */
    int n_step_programs;
    pl_program *train, *apply; /* of the step program that trains */
    pl_program *eval;
    int64_t micro, parts; /* batch = micro * parts * ranks */
    pl_program *sample;   /* with buckets: of the first; NULL */
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures;
    pl_variant *variants; /* of every bucket; NULL: the programs above are the only ones */
    int n_variants, now;  /* now: the variant that the programs above are of */
    const char *coupled;  /* why accumulate: auto does not split the batch; NULL */
    const char *unfit;    /* why no plan fits the budget; NULL */
    int level;            /* of pl_recipe.smaller the entries taken */
    pl_config *traded;    /* the configuration with them; NULL: as it is */
    double without_ms;    /* a step at level 0, where something was taken; 0: that does not fit */
    bool fitted;          /* the plans fit the budget as it was when they were made */
    pl_session *session;  /* NULL: the run is not started */
    uint8_t *grids;       /* samples.c: pixels of all pictures, then the arrays; NULL: no samples */
    pl_run_steps steps;
    pl_run_usage usage;
    pl_run_data data;
    pl_run_files files;
    pl_run_phases phases;
    pl_run_ranks ranks;
    pl_run_progress progress;
    const volatile int *stop; /* see pl_run_set_stop; NULL */
};

/* run_fit.c: what is told of the run's memory from now on, until it is started, is with what the
 * process has now. */
void pl__run_note_used(pl_run *r);
/* Device and mode of the configuration into the compiler's options. */
void pl__run_target(pl_run *r);

/* ---- samples.c ---- */
pl_status pl__sample_keep(pl_run *r, const pl_builder *b) PL_MUST_USE;
/* Host memory beside the program's; for planning, after build. */
uint64_t pl__sample_bytes(const pl_run *r);
/* Takes it; the programs are there. */
pl_status pl__sample_start(pl_run *r) PL_MUST_USE;

/* A const recipe as the untyped context of a callback that only reads it. */
static inline void *pl__unconst(const pl_recipe *r)
{
    return (void *)(uintptr_t)r;
}

#endif
