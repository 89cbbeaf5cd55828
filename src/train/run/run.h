/* run.h - the run: holds configuration, build, session, data, files, phases and ranks.
 *
 * A run goes through four states, and each pointer says whether its state is reached:
 *
 *     opened   config, recipe     run_open.c       keys are read and checked
 *     built    build              build/build.c    programs are compiled, planned and fitted
 *     started  session, data      run.c            memory is mapped, weights and data are loaded
 *     running  steps              run_steps.c      a step allocates nothing
 *
 * Each part is a struct with its own header, which is its contract; functions that work on one part
 * are declared beside it.
 */
#ifndef PL_TRAIN_RUN_H
#define PL_TRAIN_RUN_H

#include "train/build/build.h"
#include "train/data/run_data.h"
#include "train/data/sampling.h"
#include "train/files/run_files.h"
#include "train/ranks/run_ranks.h"
#include "train/run/phases.h"

/* The engine's own configuration keys. */
extern const pl_config_entry pl_engine_schema[];

/* Statistics of the first micro-batch (first_batch.c). */
typedef struct pl_first_batch {
    bool seen;
    int n;
    pl_input_stats input[PL_MAX_INPUT_STATS];
} pl_first_batch;

/* Progress of the steps of a run. */
typedef struct pl_run_steps {
    int64_t done;   /* steps taken, which is the run's position in its data */
    int64_t update; /* of the step being taken: which of the updates on its batch */
    bool ahead;     /* the next batch is already in the program's inputs */
    bool trace_nan; /* every kernel's results are checked; see pl_run_trace_nan */
    pl_plateau plateau;
    int64_t warmup; /* updates of section optim before its schedule reaches the full rate */
    pl_first_batch first;
} pl_run_steps;

/* Sets info->spiked. PL_ERR_NUMERIC when the guard ends the run. */
pl_status pl__guard_check(pl_run *r, pl_step_info *info);
/* The section of keys that trains the training program: "optim", or one of the recipe. */
const char *pl__train_section(const pl_run *r);

/* Bytes that were measured. Zero: not measured. */
typedef struct pl_run_usage {
    uint64_t plan_peak;  /* host: the most that the process held while it planned */
    uint64_t before;     /* host: what the process held before its first build, rounded up */
    uint64_t start;      /* the same, not rounded */
    uint64_t start_peak; /* host: the most that it held until then */
    uint64_t libraries;  /* host: memory of library kernels after the first build, rounded up */
    uint64_t kernels;    /* 1 + number of these kernels; 0: not measured */
    uint64_t built;      /* bytes of the process when the run was built and not yet started */
    uint64_t used, most; /* last and largest answer of the device */
    uint64_t asked_ns;   /* time of the last answer */
    /* see pl_run_limit_host; 0: no limit. free: budget where none is given; most: of any plan */
    uint64_t free_limit, most_limit;
    const char *free_why, *most_why;
    int sharers;           /* processes of this run that share the host; 0: this one */
    bool quick;            /* see pl_run_plan_quickly */
    uint64_t other_budget; /* see pl_run_plan_within; 0: key `memory` */
} pl_run_usage;

/* A recipe that was compiled by the user. */
typedef struct pl_run_library {
    void *handle;     /* of dlopen; NULL: the recipe is built in */
    const char *path; /* NULL: the recipe is built in */
} pl_run_library;

/* Callback for the samples that an evaluation has done. */
typedef struct pl_run_progress {
    pl_progress_fn call; /* NULL: no callback */
    void *ctx;
} pl_run_progress;

struct pl_run {
    pl_arena arena; /* names and texts that live as long as the run */
    pl_config *config;
    const pl_recipe *recipe;
    pl_run_library library;
    const char *absent; /* device that this machine does not have, replaced by key `card`; NULL */
    pl_purpose purpose;
    pl_store *store;
    pl_compile_opts compile;
    bool host_updates;    /* of builds that are made from here on */
    pl_step_build *build; /* NULL: the run is not built */
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

/* Returns the current variant's programs; NULL: the run is not built. */
static inline pl_program *pl__train(const pl_run *r)
{
    return r->build ? r->build->now->train : NULL;
}
static inline pl_program *pl__eval(const pl_run *r)
{
    return r->build ? r->build->now->eval : NULL;
}

/* ---- run_open.c ---- */
/* Makes a configuration with the run's keys; _copy: also with the values of `from`. The caller
 * frees it, also on failure. */
pl_status pl__run_config_new(pl_run *r, pl_config **out) PL_MUST_USE;
/* pl_convert of a file's text; name: for messages. */
pl_status pl__convert_text(const char *name, const char *text, size_t len, const char *recipe,
                           pl_convert_info *info, char **yaml) PL_MUST_USE;
pl_status pl__run_config_copy(pl_run *r, const pl_config *from, pl_config **out) PL_MUST_USE;
/* Copies the configuration's device and compile mode into r->compile. */
void pl__run_target(pl_run *r);

/* ---- stop.c ---- */
/* Returns the slot of keys stop.*, f64[3]: {evaluations seen, best, evaluations since the best};
 * created if absent. */
int pl__stop_slot(pl_store *s);

/* ---- first_batch.c ---- */
/* Measures the inputs of p, whose first micro-batch is read, unless that is done or the samples are
 * made up. */
void pl__first_batch(pl_run *r, const pl_program *p);

/* ---- samples.c ---- */
/* Copies the description of the pictures into the build. */
pl_status pl__sample_keep(pl_run *r, pl_step_build *b, const pl_builder *graphs) PL_MUST_USE;
/* Returns the host bytes of pictures, arrays and their writers, for planning. Requires a built
 * run. */
uint64_t pl__sample_bytes(const pl_run *r);
/* Allocates the memory of pictures and arrays. Requires a built run. */
pl_status pl__sample_start(pl_run *r) PL_MUST_USE;

/* ---- predict.c ---- */
/* Host bytes that a prediction takes, for planning. The run is built for predictions. */
uint64_t pl__prediction_bytes(const pl_run *r);

/* Returns a const recipe as the untyped context of a callback that only reads it. */
static inline void *pl__unconst(const pl_recipe *r)
{
    return (void *)(uintptr_t)r;
}

/* ---- convert.c ---- */
/* pl_config_hint_fn over pl_recipe.foreign: compares the last words of keys. */
bool pl__foreign_hint(void *recipe, const char *key, const char **ours, const char **note);

#endif
