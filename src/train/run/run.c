/* run.c - starting a built run, and the figures of its build; see plimsoll_train.h.
 *
 * run_open.c opens a run, build/build.c builds it, this file starts it, run_steps.c runs its steps.
 * Everything that takes memory happens in build and start: a step reads a batch directly into the
 * program's inputs and runs the program. The order of samples is a pure function of seed and
 * position, so the position of a run is one number, the steps done.
 */
#include "base/str.h"
#include "base/sys.h"
#include "dist/world.h"
#include "io/safetensors.h"
#include "io/st_set.h"
#include "rt/device.h"
#include "rt/process_budget.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"
#include "train/files/checkpoint.h"

#include <stdio.h>

/* ---- planning --------------------------------------------------------------------------- */
void pl_run_set_compile(pl_run *r, const pl_compile_opts *o)
{
    r->compile = *o;
}

pl_status pl_run_eval_only(pl_run *r, int64_t accumulate)
{
    PL_FAIL_IF(pl__train(r), PL_ERR_ARG, "the run is built already");
    r->purpose.goal = PL_GOAL_EVALUATE;
    r->purpose.accumulate = accumulate;
    return PL_OK;
}

const pl_program *pl_run_train_program(const pl_run *r)
{
    return pl__train(r);
}

const pl_program *pl_run_eval_program(const pl_run *r)
{
    return pl__eval(r);
}

pl_run_split pl_run_split_get(const pl_run *r)
{
    const pl_step_build *b = r->build;
    return (pl_run_split){.micro = b ? b->micro : 0,
                          .accumulate = b ? b->accumulate : 0,
                          .effective = pl__run_batch(r),
                          .coupled = b ? b->coupled : NULL,
                          .ranks = pl__ranks(r)};
}

double pl_run_predicted_ms(const pl_run *r)
{
    return r->build ? pl__variant_ms(r, r->build->now) : 0;
}

int64_t pl_run_parameters(const pl_run *r, bool trainable_only)
{
    return pl_nn_count(r->store, NULL, trainable_only);
}

/* ---- starting --------------------------------------------------------------------------- */
static pl_status seed_random_key(pl_run *r)
{
    int slot = pl_store_find(r->store, "rng");
    int64_t seed = pl_config_int(r->config, "seed");
    return slot < 0 ? PL_OK : pl_session_write_slot(r->session, slot, 0, &seed, sizeof seed);
}

/* PL_ERR_FIT when the container that the process runs in allows less than the budget or the plan,
 * of all ranks in it together: the kernel would end a process in the middle of a step. */
static pl_status check_container(const pl_run *r, const pl_run_memory *m)
{
    const pl_cgroup *c = pl_cgroup_own();
    if (!c->memory_bytes || pl__run_own_memory(r)) return PL_OK;
    const uint64_t n = (uint64_t)pl_world_in_container(r->ranks.world);
    const uint64_t each = m->asked > c->memory_bytes / n ? m->asked : m->total;
    if (each <= c->memory_bytes / n) return PL_OK;
    char limit[32], used[32], one[32], all[32], most[32], ranks[80] = "";
    pl_str_bytes(c->memory_bytes, limit, sizeof limit);
    pl_str_bytes(pl_cgroup_memory_used(), used, sizeof used);
    pl_str_bytes(each, one, sizeof one);
    pl_str_bytes(c->memory_bytes / n, most, sizeof most);
    if (n > 1)
        snprintf(ranks, sizeof ranks, " for each of %llu ranks, %s together,",
                 (unsigned long long)n, pl_str_bytes(each * n, all, sizeof all));
    PL_FAIL_IF(each == m->asked, PL_ERR_FIT,
               "memory=%s%s is more than this container may use: its limit is %s, of which %s are "
               "in use (%s); set memory below %s, or raise the limit",
               one, ranks, limit, used, c->memory_path, most);
    PL_FAIL(PL_ERR_FIT,
            "%s needs %s%s but this container may use %s, of which %s are in use (%s); a memory "
            "below %s plans within it",
            r->purpose.goal == PL_GOAL_EVALUATE ? "evaluation" : "training", one,
            n > 1 ? ranks : ",", limit, used, c->memory_path, most);
}

/* PL_ERR_FIT when the budget is too small. */
static pl_status check_fits(const pl_run *r)
{
    pl_run_memory m = pl_run_memory_get(r);
    PL_TRY(check_container(r, &m));
    PL_TRY(pl__run_check_host(r));
    char a[32], b[32];
    PL_FAIL_IF(r->usage.most_limit && m.total > r->usage.most_limit, PL_ERR_FIT,
               "training needs %s; %s: %s", pl_str_bytes(m.total, a, sizeof a), r->usage.most_why,
               pl_str_bytes(r->usage.most_limit, b, sizeof b));
    if (!m.fits) {
        pl_str_bytes(m.total, a, sizeof a);
        pl_str_bytes(m.budget, b, sizeof b);
        PL_FAIL(PL_ERR_FIT,
                "%s needs %s, the budget is %s: the smallest budget is %llu bytes; or lower "
                "batch (now %lld)%s%s%s%s%s",
                r->purpose.goal == PL_GOAL_EVALUATE  ? "evaluation"
                : r->purpose.goal == PL_GOAL_PREDICT ? "prediction"
                                                     : "training",
                a, b, (unsigned long long)m.minimum, (long long)pl_config_int(r->config, "batch"),
                r->build->unfit ? " (" : "", r->build->unfit ? r->build->unfit : "",
                r->build->unfit ? ")" : "",
                r->build->coupled
                    ? "; accumulate: auto cannot split the batch, because its samples are "
                      "coupled: "
                    : "",
                r->build->coupled ? r->build->coupled : "");
    }
    return PL_OK;
}

/* On a device with its own memory a session loads kernels, which may take more than the margin.
 * Loaded kernels stay, so the second plan, made after one failure, counts them. */
static pl_status open_session(pl_run *r, int n, pl_program *const *programs)
{
    const pl_device *device = pl__run_own_memory(r);
    r->usage.built = 0;
    for (int attempt = 0;; attempt++) {
        PL_TRY(check_fits(r));
        pl_run_memory m = pl_run_memory_get(r);
        for (int i = 0; i < n; i++) pl_budget_trim(pl_program_budget(programs[i]));
        pl__run_trim();
        if (device) PL_TRY(device->room(m.arena + m.state + pl__run_stage_bytes(r)));
        PL_TRY(pl_session_new(r->store, n, programs, &r->session));
        uint64_t used = device ? device->used_bytes() : 0;
        if (!m.budget || used <= m.budget) return PL_OK;
        pl_session_free(r->session);
        r->session = NULL;
        PL_FAIL_IF(attempt, PL_ERR_FIT,
                   "the GPU's driver says that this process holds %llu bytes, the budget is %llu",
                   (unsigned long long)used, (unsigned long long)m.budget);
        PL_TRY(pl__run_fit(r));
    }
}

/* Sets whether the checkpoint leaves frozen weights out. They are then loaded as at the first
 * start. */
static pl_status resume_lacks(pl_run *r, bool *lacks)
{
    char path[PL_PATH_BYTES];
    pl_st_reader *f;
    PL_TRY(pl__path(path, r->files.resume, "model.safetensors"));
    PL_TRY(pl_st_open(path, &f));
    *lacks = pl__frozen_left_out(f);
    pl_status rc = pl__meta_check(r, f, path);
    pl_st_close(f);
    return rc;
}

/* A model file that says otherwise than the run about the meaning of its weights is refused. */
static pl_status check_meta(pl_run *r, const char *from)
{
    pl_st_set *set;
    PL_TRY(pl_st_set_open(from, &set));
    pl_status rc = PL_OK;
    bool lacks = false;
    for (int i = 0; i < pl_st_set_files(set) && rc == PL_OK; i++) {
        lacks |= pl__frozen_left_out(pl_st_set_file(set, i));
        rc = pl__meta_check(r, pl_st_set_file(set, i), pl_st_set_path(set, i));
    }
    pl_st_set_close(set);
    PL_TRY(rc);
    PL_FAIL_IF(
        lacks, PL_ERR_FILE,
        "%s leaves frozen weights out, as checkpoints do: take the model.safetensors that a run writes at its end, or "
        "train with checkpoint.frozen=true",
        from);
    return PL_OK;
}

static pl_status load_weights(pl_run *r)
{
    bool encodes = r->purpose.goal == PL_GOAL_ENCODE;
    const char *key = encodes ? "data.cache_model" : "init_from";
    const char *from = pl_config_is_null(r->config, key) ? NULL : pl_config_text(r->config, key);
    bool whole =
        from && (r->purpose.goal == PL_GOAL_EVALUATE || r->purpose.goal == PL_GOAL_PREDICT);
    pl_status rc = whole ? check_meta(r, from) : PL_OK;
    if (rc == PL_OK && from) rc = pl__weights_start(r, key, from);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_FILE, "%s: %s", key, pl_error_text());
    PL_TRY(rc);
    if (whole) return pl__weights_load(r);
    if (r->purpose.goal != PL_GOAL_REPLAY) PL_TRY(pl__weights_load(r));
    return from ? pl__frozen_check(r, from) : PL_OK;
}

static pl_status start(pl_run *r)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    PL_TRY(pl__averages_check(r));
    PL_TRY(pl__random_frozen_check(r, false));
    PL_TRY(open_session(r, n, programs));
    PL_TRY(pl_session_init(r->session, (uint64_t)pl_config_int(r->config, "seed")));
    PL_TRY(seed_random_key(r));
    PL_TRY(pl__stage_slots(r));
    PL_TRY(pl__sample_start(r));
    bool begins = !r->files.resume;
    if (r->files.resume) PL_TRY(resume_lacks(r, &begins));
    if (begins) PL_TRY(pl__values_read(r));
    if (begins) PL_TRY(load_weights(r));
    if (r->purpose.goal == PL_GOAL_ENCODE) PL_TRY(pl__cache_check_reader(r));
    if (!r->files.resume && r->phases.take_from) PL_TRY(pl__phase_take(r));
    if (r->purpose.goal == PL_GOAL_REPLAY || r->purpose.goal == PL_GOAL_PREDICT) return PL_OK;
    return r->purpose.no_data ? PL_OK : pl_prefetch_open(r);
}

void pl_run_will_start(pl_run *r)
{
    r->purpose.starts = true;
}

/* The device of the configuration is not here, and only a plan for its card was made. */
static pl_status fail_absent(const pl_run *r)
{
    const pl_device *device;
    pl_status rc = pl_device_find(r->absent, &device);
    PL_FAIL(PL_ERR_DEVICE, "%s; the plan is for a %s; device=cpu trains on the CPU",
            rc == PL_OK ? "the GPU appeared after planning" : pl_error_text(),
            pl_config_text(r->config, "card"));
}

pl_status pl_run_start(pl_run *r)
{
    PL_FAIL_IF(!r->build, PL_ERR_ARG, "the run is not built");
    if (r->absent) return fail_absent(r);
    pl__run_end_planning(r);
    PL_TRY(start(r));
    PL_TRY(pl__phase_check_data(r));
    PL_TRY(pl__ranks_check(r));
    if (r->files.resume) PL_TRY(pl__checkpoint_load(r, r->files.resume));
    PL_TRY(pl__run_check_resident(r));
    return pl__random_frozen_check(r, true);
}

int64_t pl__run_samples(pl_run *r)
{
    return pl_source_size(r, PL_SUBSET_TRAIN);
}
