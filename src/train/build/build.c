/* build.c - the path from a configuration to steps, in the order in which it is walked.
 *
 *     config.yaml            run/run_open.c     recipe, preset, file and overrides: r->config
 *       | recipe             here               trade-offs and image size: the variant's config
 *       v
 *     graph                  builder.c          the recipe's build function writes layers
 *       | gradient           builder.c          pl_builder_minimise: pass/grad.c, then the update
 *       v
 *     passes                 rt/program.c       pl_compile: pass/pass.c simplifies and fuses,
 *     units                                     kernels are chosen,
 *     plan                                      plan/core orders and places, and checks the plan,
 *     program                                   calls with their pointers resolved
 *       | budget             run_memory.c       plans again where keep-all does not fit
 *       | choice             choose.c           micro-batches, trade-offs, sharding
 *       v
 *     session                run/run.c          memory is mapped, weights and data are loaded
 *     run, run, run          run/run_steps.c    a step allocates nothing
 *
 * pl_run_build, at the end, is the whole of it up to the session. Everything that a build makes is
 * in its pl_step_build (build.h); the slots of its state are in the run's store, which builds
 * share.
 */
#include "train/build/build.h"

#include "base/sys.h"
#include "rt/device.h"
#include "rt/host_limit.h"
#include "train/data/cache.h"
#include "train/data/mix_batch.h"

#include <pthread.h>
#include <stdio.h>

/* ---- config -> graph -> gradient -> program ----------------------------------------------- */
/* The programs of one size. */
static pl_status build_variant(pl_run *r, pl_step_build *b, pl_variant *v)
{
    const pl_config *config = v->config ? v->config : b->traded ? b->traded : r->config;
    pl_builder graphs = {.run = r,
                         .config = config,
                         .store = r->store,
                         .goal = r->purpose.goal,
                         .draws_are_inputs = r->purpose.goal == PL_GOAL_REPLAY,
                         .f64 = r->purpose.f64,
                         .batch = b->micro,
                         .accumulate = b->accumulate,
                         .split = b->accumulate > 1 || b->host_updates};
    PL_TRY(pl__ranks_prepare(r, b->accumulate, &graphs));
    PL_TRY(pl__builder_run(&graphs, r->recipe)); /* recipe -> graph -> gradient */
    pl_status rc = pl__random_frozen_foresee(r, &graphs);
    if (rc != PL_OK) {
        pl__builder_release(&graphs);
        return rc;
    }
    return pl__step_programs_compile(r, b, v, &graphs); /* passes -> units -> plan -> program */
}

/* The next variant of a build with buckets. */
static pl_status build_bucket(pl_run *r, pl_step_build *b, int height, int width)
{
    int slots = pl_store_count(r->store), k = b->n_variants++;
    pl_variant *v = &b->variants[k];
    const pl_config *config = b->traded ? b->traded : r->config;
    v->height = height;
    v->width = width;
    pl_status rc = pl__bucket_config(r, config, height, width, &v->config);
    if (rc == PL_OK) rc = build_variant(r, b, v);
    if (rc == PL_OK) rc = pl__bucket_check(r, b, k, slots);
    return rc == PL_OK ? rc : pl__fail_prefix(rc, "data.buckets: %dx%d", height, width);
}

/* Plans are shown of the variant with the largest one. */
static pl_variant *largest_variant(const pl_step_build *b)
{
    pl_variant *largest = b->variants;
    for (pl_variant *v = b->variants + 1; v < b->variants + b->n_variants; v++)
        if (pl_program_plan(v->train)->arena_bytes > pl_program_plan(largest->train)->arena_bytes)
            largest = v;
    return largest;
}

static pl_status build_variants(pl_run *r, pl_step_build *b)
{
    pl_bucket_list sizes;
    PL_TRY(pl__cache_check_config(r));
    PL_TRY(pl__buckets_list(r, &sizes));
    b->variants = pl_sys_alloc((size_t)(sizes.n ? sizes.n : 1) * sizeof *b->variants);
    if (!b->variants) return PL_ERR_MEMORY;
    if (sizes.n == 0) {
        b->n_variants = 1;
        PL_TRY(build_variant(r, b, b->variants));
    }
    for (int i = 0; i < sizes.n; i++) PL_TRY(build_bucket(r, b, sizes.height[i], sizes.width[i]));
    b->now = largest_variant(b);
    return pl__build_list_programs(b);
}

pl_status pl__build_new(pl_run *r, int64_t accumulate, int level, pl_step_build **out)
{
    pl_step_build *b = pl_sys_alloc(sizeof *b);
    if (!b) return PL_ERR_MEMORY;
    b->level = level;
    b->accumulate = accumulate;
    b->host_updates = r->host_updates;
    b->micro = pl_config_int(r->config, "batch") / (accumulate * pl__ranks(r));
    pl_status rc = pl__tradeoff_config(r, level, &b->traded);
    if (rc == PL_OK) rc = build_variants(r, b);
    if (rc == PL_OK)
        *out = b;
    else
        pl__build_free(b);
    return rc;
}

pl_status pl__build_level(pl_run *r, int64_t accumulate, int level)
{
    pl_optim unused;
    int slots = pl_store_count(r->store);
    pl__run_note_before(r);
    PL_TRY(pl__build_new(r, accumulate, level, &r->build));
    if (level && pl_store_count(r->store) != slots) {
        pl__build_free(r->build);
        r->build = NULL;
        PL_FAIL(PL_ERR_CONFIG, "trade-off %s adds state (%s), so training would differ",
                r->recipe->smaller[level - 1].setting, pl_store_slot(r->store, slots)->name);
    }
    PL_TRY(pl__optim_from_config(r->config, "optim", &unused, &r->steps.plateau));
    pl__run_trim();
    pl__run_note_libraries(r);
    /* The device's memory counts against the budget with all kernels compiled. */
    const pl_device *device = pl__run_own_memory(r);
    return device && device->ready ? device->ready() : PL_OK;
}

/* ---- the whole path ----------------------------------------------------------------------- */
/* A device that is opened on a separate thread. */
typedef struct opening {
    char name[64];
    const pl_device *device; /* NULL: it cannot be opened */
    pthread_t thread;
    bool running;
} opening;

/* A failure is not reported here: compiling meets it again. */
static void *open_device(void *ctx)
{
    opening *o = ctx;
    if (pl_device_find(o->name, &o->device) != PL_OK) o->device = NULL;
    return NULL;
}

/* Not among ranks: they open their devices in one order. */
static void open_beside(const pl_run *r, opening *o)
{
    snprintf(o->name, sizeof o->name, "%s", pl_config_text(r->config, "device"));
    o->running = pl_device_is_plugged(o->name) && pl__ranks(r) == 1 &&
                 pthread_create(&o->thread, NULL, open_device, o) == 0;
}

/* Waits for the device. After a failure rc of the build, also for its kernels: if the process ended
 * while they are compiled, the exit handlers of the device's libraries would free what its threads
 * use. Returns rc with its message. */
static pl_status end_opening(opening *o, pl_status rc)
{
    char text[1024];
    if (o->running) pthread_join(o->thread, NULL);
    if (rc == PL_OK || !o->device || !o->device->ready) return rc;
    snprintf(text, sizeof text, "%s", pl_error_text());
    pl_status ignored = o->device->ready();
    (void)ignored;
    return pl__fail(rc, __FILE__, __LINE__, "%s", text);
}

/* Loading a device's libraries takes as long as building graphs, so both happen at once. */
pl_status pl_run_build(pl_run *r)
{
    opening o = {.device = NULL};
    PL_TRY(pl_host_limit_check());
    PL_TRY(pl__ranks_configure(r));
    open_beside(r, &o);
    pl_status rc = pl__choose_build(r);
    if (rc == PL_OK && r->purpose.goal == PL_GOAL_TRAIN) rc = pl__mix_check(r);
    pl__run_note_used(r); /* memory that the process takes later is not this run's */
    return end_opening(&o, rc);
}
