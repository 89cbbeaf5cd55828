/* build.h - a build: the programs of a step, compiled for one choice of micro-batch, trade-offs and
 * sharding, and their known memory.
 *
 * build.c makes builds, choose.c compares them, run_memory.c plans them within the budget. All
 * builds of a run use the run's store, so swapping builds swaps one pointer. r->build trains.
 */
#ifndef PL_TRAIN_BUILD_H
#define PL_TRAIN_BUILD_H

#include "train/build/builder.h"

enum { PL_MAX_BUCKETS = 32, PL_MAX_PROGRAMS = PL_MAX_BUCKETS * (2 * PL_MAX_STEP_PROGRAMS + 1) + 1 };

/* A scalar that is reported of each step: an output of a program, or of its update. */
typedef struct pl_term {
    const char *name; /* reported as */
    int output;
    bool update; /* an output of pl_step_program.apply */
} pl_term;

/* A program of the step. */
typedef struct pl_step_program {
    const char *name; /* NULL: the training program */
    pl_when when;
    const char *section; /* of the configuration that trains; NULL: the program trains nothing */
    pl_program *run, *apply; /* apply: updates from accumulated gradients; NULL: run updates */
    pl_term *term;           /* scalars that are reported of each step */
    int n_terms;
} pl_step_program;

/* The programs for one size of data.buckets. A run without buckets has one variant, of no size. */
typedef struct pl_variant {
    int height, width; /* 0: no buckets */
    pl_config *config; /* the build's with that size; NULL: no buckets */
    pl_step_program step_programs[PL_MAX_STEP_PROGRAMS]; /* in the order in which they run */
    int n_step_programs;
    pl_program *train, *apply; /* of the step program that trains */
    pl_program *eval; /* NULL: no evaluation. PL_GOAL_EVALUATE: the same program as train */
} pl_variant;

typedef struct pl_step_build {
    int level;                 /* number of open trade-offs taken: the first `level` of them */
    pl_config *traded;         /* the run's configuration with them; NULL: level is 0 */
    int64_t micro, accumulate; /* batch = micro * accumulate * ranks */
    pl_variant *variants;      /* of every bucket */
    int n_variants;
    pl_variant *now;    /* the variant of the current step; once built, the variant with the largest
                      * plan */
    pl_program *sample; /* of the first bucket; NULL: no samples */
    pl_picture_out picture[PL_MAX_PICTURES];
    int n_pictures;
    bool host_updates;     /* apply programs run on the host, beside a device with its own memory */
    pl_program **programs; /* all of the above, each once; those on the host last */
    int n_programs, n_host;
    bool fitted;         /* the plans fit the budget */
    const char *unfit;   /* why no plan fits the budget; NULL */
    const char *coupled; /* why accumulate: auto does not split the batch; NULL */
    double without_ms;   /* predicted step of level 0, where trade-offs are taken; 0: not known */
    uint64_t minimum;    /* smallest budget; 0: not searched */
    uint64_t other_minimum;           /* the same of the other levels */
    uint64_t other_budget;            /* smallest budget of other builds that do not fit; 0: none */
    struct pl_process_levels *levels; /* what lives below the device; NULL: nothing */
} pl_step_build;

/* The goal of a build. Set before it is built. */
typedef struct pl_purpose {
    pl_goal goal;
    bool f64;           /* parameters are f64, as in a replay of a dump in f64 */
    bool no_data;       /* weights are loaded, samples are not read */
    bool starts;        /* see pl_run_will_start */
    int64_t accumulate; /* PL_GOAL_EVALUATE: micro-batches of the run whose model is evaluated; 0:
                         * unknown */
} pl_purpose;

/* ---- build.c ---- */
/* Makes a build over the run's store. The caller frees it. */
pl_status pl__build_new(pl_run *r, int64_t accumulate, int level, pl_step_build **out) PL_MUST_USE;
void pl__build_free(pl_step_build *b);
/* Makes a build that is not yet fitted to the budget, and makes it the run's. r->build must be NULL
 * before, and is NULL after a failure. */
pl_status pl__build_level(pl_run *r, int64_t accumulate, int level) PL_MUST_USE;

/* ---- choose.c ---- */
/* Makes and compares the builds that the configuration allows; r->build becomes the fastest that
 * fits the budget, or the smallest tried when none fits. */
pl_status pl__choose_build(pl_run *r) PL_MUST_USE;

/* ---- accumulate.c ---- */
/* Key `accumulate`: a number, or 0 for auto. */
pl_status pl__accumulate_asked(const pl_config *c, int64_t *accumulate) PL_MUST_USE;

/* ---- tradeoffs.c: settings of pl_recipe.smaller that save memory and cost time ---- */
/* Number of trade-offs that the configuration leaves open; level k takes the first k of them. */
int pl__tradeoffs(const pl_run *r);
/* Sets *out to the run's configuration with the trade-offs of a level; NULL for level 0. The caller
 * frees it, also on failure. */
pl_status pl__tradeoff_config(pl_run *r, int level, pl_config **out) PL_MUST_USE;
/* Whether a key is one of a recipe's trade-offs, which change no result. */
bool pl__tradeoff_key(const pl_recipe *recipe, const char *key);

/* ---- steps.c: the programs of a step ---- */
/* Compiles the builder's graphs into the variant. The graphs are moved in or freed. */
pl_status pl__step_programs_compile(pl_run *r, pl_step_build *b, pl_variant *v,
                                    pl_builder *graphs) PL_MUST_USE;
/* Fills b->programs from its variants; they stay its owners. */
pl_status pl__build_list_programs(pl_step_build *b) PL_MUST_USE;
/* Returns the programs of the run's build; *n: their number, 0 when the run is not built. */
pl_program *const *pl__run_programs(const pl_run *r, int *n);
/* The same for those that run on the device. */
pl_program *const *pl__run_device_programs(const pl_run *r, int *n);
/* Returns the name of input i of the programs of a step, every name once; NULL after the last. */
const char *pl__step_input(const pl_run *r, int i, pl_type *type);
bool pl__step_program_runs(const pl_step_program *t, int64_t step);
/* Returns how often a step trains on its batch. */
int64_t pl__run_updates(const pl_run *r);
/* Returns the program that runs after t of the current update of *step, which advances with it. */
const pl_step_program *pl__step_program_next(const pl_run *r, const pl_step_program *t,
                                             int64_t *step);
/* Adds the scalars of the last run of p, or of the run before it (ago = 1), to the step's means. p
 * is t->run or t->apply. */
void pl__step_program_terms(pl_run *r, const pl_step_program *t, const pl_program *p, int ago,
                            pl_step_info *info);
/* Returns the program that updates. */
pl_program *pl__step_program_updater(const pl_step_program *t);
/* Returns the predicted time of a mean step of a variant: every program counts once for each
 * run. */
double pl__variant_ms(const pl_run *r, const pl_variant *v);

/* ---- buckets.c: the sizes of data.buckets ---- */
typedef struct pl_bucket_list {
    int n, height[PL_MAX_BUCKETS], width[PL_MAX_BUCKETS]; /* n is 0: no buckets */
} pl_bucket_list;
pl_status pl__buckets_list(const pl_run *r, pl_bucket_list *out) PL_MUST_USE;
/* Makes a configuration with another size. The caller frees it, also on failure. */
pl_status pl__bucket_config(pl_run *r, const pl_config *from, int height, int width,
                            pl_config **out) PL_MUST_USE;
/* Compares variant k with the first: all must have the same programs and slots. slots: of the store
 * before k was built. */
pl_status pl__bucket_check(const pl_run *r, const pl_step_build *b, int k, int slots) PL_MUST_USE;
/* Makes variant k the current one. */
void pl__variant_select(pl_run *r, int k);
/* Returns the bucket whose shape is nearest to an image's shape. */
int pl__bucket_nearest(const pl_run *r, int width, int height);

/* ---- run_levels.c ---- */
/* Reads the keys of memory below the device into *l. *any: some may be used. */
pl_status pl__run_read_levels(const pl_run *r, struct pl_process_levels *l, bool *any) PL_MUST_USE;

/* PL_ERR_FIT when the machine or container does not have the host memory that the plan needs. */
pl_status pl__run_check_host(const pl_run *r) PL_MUST_USE;

/* ---- run_memory.c ---- */
/* Plans r->build within the budget. Where no plan is found the build does not change, and
 * pl_run_memory_get says so. */
pl_status pl__run_fit(pl_run *r) PL_MUST_USE;
/* Sets *bytes to the smallest budget of r->build. */
pl_status pl__run_minimum(pl_run *r, uint64_t *bytes) PL_MUST_USE;
/* Frees what searches for plans of the build know. */
void pl__run_end_planning(pl_run *r);
/* Returns the bytes on the device that inputs pass through. */
uint64_t pl__run_stage_bytes(const pl_run *r);
/* Measures the bytes of the process; until the run is started, reports of its memory use them. */
void pl__run_note_used(pl_run *r);
/* Measure the process before its first build, and after it. Later calls change nothing. */
void pl__run_note_before(pl_run *r);
void pl__run_note_libraries(pl_run *r);
/* library_bytes.c: returns the memory that a plan counts for the library kernels of a build, in
 * whole MiB, from the bytes that this process measured. key: of the build. Later processes with the
 * same cache get the same number. */
uint64_t pl__library_bytes(uint64_t key, uint64_t measured);
/* Returns free memory of compiling and planning to the system. */
void pl__run_trim(void);
/* Returns to the kernel the pages of code that steps, evaluations and checkpoints touched, if the
 * process is close to its budget. */
void pl__run_after_step(const pl_run *r);
/* PL_ERR_FIT when the first step of a started run would exceed the budget. */
pl_status pl__run_check_resident(const pl_run *r) PL_MUST_USE;
/* Returns the device if it has its own memory; otherwise NULL. */
const struct pl_device *pl__run_own_memory(const pl_run *r);

#endif
