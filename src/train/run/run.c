/* run.c - a run from configuration to steps; see plimsoll_train.h.
 *
 * run_open.c makes a run of a name, this file builds and starts it, run_fit.c plans it within its
 * budget, run_steps.c takes its steps. Everything that takes memory happens in build and start; a
 * step reads a batch straight into the program's inputs and runs the program. The order of samples
 * is a pure function of seed and position, so the run's position is one number: the steps done.
 */
#include "base/asked.h"
#include "base/sys.h"
#include "base/threads.h"
#include "io/safetensors.h"
#include "plan/cost/cost_card.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "rt/refit.h"
#include "train/data/prefetch.h"
#include "train/files/checkpoint.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- planning --------------------------------------------------------------------------- */
void pl_run_set_compile(pl_run *r, const pl_compile_opts *o)
{
    r->compile = *o;
}

/* What an earlier build left, its slots too: one that does not accumulate has no accumulators. */
static pl_status drop_build(pl_run *r)
{
    pl__step_programs_free(r);
    r->usage.built = 0;
    r->unfit = NULL;
    r->fitted = false;
    r->usage.own_minimum = r->usage.other_minimum = 0;
    if (r->parts == 0) return PL_OK;
    pl_store_free(r->store);
    r->store = pl_store_new();
    return r->store ? PL_OK : PL_ERR_MEMORY;
}

/* Over the store as it is: levels share all slots. */
static pl_status build_level(pl_run *r, int level)
{
    pl_optim unused;
    int slots = pl_store_count(r->store);
    PL_TRY(pl__tradeoff_set(r, level));
    pl_status rc = pl__variants_build(r);
    if (rc == PL_OK && level && pl_store_count(r->store) != slots)
        rc = pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__,
                      "%s adds state of its own (%s): it does not train the same",
                      r->recipe->smaller[level - 1].setting, pl_store_slot(r->store, slots)->name);
    if (rc != PL_OK) pl__step_programs_free(r);
    PL_TRY(rc);
    PL_TRY(pl__optim_from_config(r->config, "optim", &unused, &r->steps.plateau));
    pl_sys_trim();
    /* Compiled kernels are part of what a card holds. */
    return pl__run_card(r) && pl__run_card(r)->ready ? pl__run_card(r)->ready() : PL_OK;
}

/* What ranks go by is the same on all of them. */
static pl_status look_at_plan(pl_run *r, bool *fits, double *ms)
{
    uint64_t fit = pl_run_memory_get(r).fits, ns = (uint64_t)(pl_run_predicted_ms(r) * 1e6);
    PL_TRY(pl__ranks_least(r, &fit));
    PL_TRY(pl__ranks_least(r, &ns));
    *fits = fit;
    *ms = (double)ns / 1e6;
    return PL_OK;
}

static bool keeps_all(const pl_run *r)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    for (int i = 0; i < n; i++)
        if (pl_program_plan(programs[i])->recompute_ratio > 0) return false;
    return true;
}

/* A further level: fitted only if it may be faster than best_ms even so. *better: it fits and is.
 */
static pl_status try_level(pl_run *r, int level, double best_ms, bool *better)
{
    double ms;
    PL_TRY(build_level(r, level));
    PL_TRY(look_at_plan(r, better, &ms)); /* nothing is computed again yet: no plan is faster */
    *better = false;
    if (ms >= best_ms) return PL_OK;
    PL_TRY(pl__run_fit(r));
    PL_TRY(look_at_plan(r, better, &ms));
    *better = *better && ms < best_ms;
    return PL_OK;
}

/* The level with the fastest plan that fits; the last one where none does. A level that keeps
 * everything ends the search. What no budget is to be fitted from is freed first: on the host it
 * would count. */
static pl_status choose_level(pl_run *r)
{
    bool fits, better;
    double ms;
    r->without_ms = 0;
    for (int level = 1; level <= pl__tradeoffs(r); level++) {
        PL_TRY(look_at_plan(r, &fits, &ms));
        if (fits && keeps_all(r)) return PL_OK;
        if (fits && r->level == 0) r->without_ms = ms;
        pl_built before = {0};
        pl__built_swap(r, &before);
        if (!fits) pl__built_free(r, &before);
        pl_status rc = try_level(r, level, fits ? ms : HUGE_VAL, &better);
        if (fits && rc == PL_OK && !better)
            pl__built_take_back(r, &before);
        else
            pl__built_free(r, &before);
        PL_TRY(rc);
        pl_sys_trim();
    }
    return PL_OK;
}

pl_status pl__run_build_parts(pl_run *r, int64_t parts)
{
    PL_TRY(drop_build(r));
    r->parts = parts;
    r->micro = pl_config_int(r->config, "batch") / (parts * pl__ranks(r));
    PL_TRY(build_level(r, 0));
    PL_TRY(pl__run_fit(r));
    return choose_level(r);
}

/* A batch is split only where that changes nothing, or where the user says so. */
static pl_status build_asked(pl_run *r, int64_t parts)
{
    const char *why = NULL;
    if (parts > 1 && !pl_config_bool(r->config, "accumulate_coupled"))
        PL_TRY(pl__run_couples(r, parts, NULL, &why));
    PL_FAIL_IF(why, PL_ERR_CONFIG,
               "accumulate: %lld would not train as batch: %lld does, its samples couple (%s); set "
               "accumulate: 1, or accumulate_coupled: true to split it all the same",
               (long long)parts, (long long)pl_config_int(r->config, "batch"), why);
    return pl__run_build_parts(r, parts);
}

/* accumulate: auto of a run that goes on: the split it had, so that it has the same bits, whatever
 * is known by now of the times that kernels take. *fits is false when the budget has become too
 * small. */
static pl_status build_as_before(pl_run *r, bool *fits)
{
    if (pl_config_int(r->config, "batch") % r->files.resume_accumulate) return PL_OK;
    PL_TRY(pl__run_build_parts(r, r->files.resume_accumulate));
    *fits = pl_run_memory_get(r).fits;
    return PL_OK;
}

/* Evaluation programs have as many samples as training's; a batch of another size comes whole. */
static pl_status build_evaluation(pl_run *r, int64_t asked)
{
    int64_t parts = asked ? asked : r->purpose.accumulate ? r->purpose.accumulate : 1;
    if (pl_config_int(r->config, "batch") % parts) parts = 1;
    PL_TRY(pl__run_build_parts(r, parts));
    r->fitted = pl_run_memory_get(r).fits;
    return r->fitted ? PL_OK : pl_run_find_minimum(r);
}

static pl_status build(pl_run *r)
{
    int64_t parts;
    PL_TRY(pl__accumulate_asked(r->config, &parts));
    if (r->purpose.goal == PL_GOAL_ENCODE) parts = 1;
    if (r->purpose.goal == PL_GOAL_EVALUATE) return build_evaluation(r, parts);
    bool fits = false;
    if (!parts && r->files.resume_accumulate) PL_TRY(build_as_before(r, &fits));
    while (!fits) {
        PL_TRY(parts ? build_asked(r, parts) : pl__run_build_auto(r));
        fits = !pl__ranks_share_more(r);
    }
    r->fitted = pl_run_memory_get(r).fits;
    return r->fitted ? PL_OK : pl_run_find_minimum(r);
}

typedef struct opening {
    char name[64];
    const pl_device *device; /* NULL: it cannot be opened */
} opening;

/* What fails here fails again, and is told, where the device is needed. */
static void *open_device(void *ctx)
{
    opening *o = ctx;
    if (pl_device_find(o->name, &o->device) != PL_OK) o->device = NULL;
    return NULL;
}

/* A process that ends for another reason must not end while its card is being opened: libraries'
 * own ends would take away what the threads use. The message of that other reason stays. */
static pl_status wait_for_device(const pl_device *device, pl_status rc)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", pl_error_text());
    pl_status ignored = device->ready();
    (void)ignored;
    return pl__fail(rc, __FILE__, __LINE__, "%s", text);
}

/* A card's libraries take as long to load as graphs take to build, so both are done at once. */
pl_status pl_run_build(pl_run *r)
{
    opening o = {.device = NULL};
    pthread_t opener;
    PL_TRY(pl__ranks_configure(r));
    snprintf(o.name, sizeof o.name, "%s", pl_config_text(r->config, "device"));
    bool beside = pl_device_is_plugged(o.name) && pl__ranks(r) == 1 &&
                  pthread_create(&opener, NULL, open_device, &o) == 0;
    pl_status rc = build(r);
    pl__run_note_used(r); /* further plans of the same process are none of this run's business */
    if (beside) pthread_join(opener, NULL);
    return rc != PL_OK && o.device && o.device->ready ? wait_for_device(o.device, rc) : rc;
}

/* The smallest arena of another level than the plan's. */
static pl_status find_other_minimum(pl_run *r, int level)
{
    uint64_t arena = 0;
    pl_built own = {0};
    pl__built_swap(r, &own);
    pl_status rc = build_level(r, level);
    if (rc == PL_OK) rc = pl__run_least(r, &arena);
    if (rc == PL_OK && (!r->usage.other_minimum || arena < r->usage.other_minimum))
        r->usage.other_minimum = arena;
    pl__built_take_back(r, &own);
    return rc;
}

pl_status pl_run_find_minimum(pl_run *r)
{
    uint64_t arena;
    PL_FAIL_IF(!r->train, PL_ERR_ARG, "the run is not built");
    PL_TRY(pl__run_least(r, &arena));
    r->usage.own_minimum = arena;
    for (int level = 0; !r->usage.other_minimum && level <= pl__tradeoffs(r); level++)
        if (level != r->level) PL_TRY(find_other_minimum(r, level));
    pl_sys_trim();
    return PL_OK;
}

pl_status pl_run_eval_only(pl_run *r, int64_t parts)
{
    PL_FAIL_IF(r->train, PL_ERR_ARG, "the run is built already");
    r->purpose.goal = PL_GOAL_EVALUATE;
    r->purpose.accumulate = parts;
    return PL_OK;
}

const pl_program *pl_run_train_program(const pl_run *r)
{
    return r->train;
}

const pl_program *pl_run_eval_program(const pl_run *r)
{
    return r->eval;
}

const pl_program *pl_run_apply_program(const pl_run *r)
{
    return r->apply;
}

pl_run_split pl_run_split_get(const pl_run *r)
{
    return (pl_run_split){r->micro, r->parts, r->micro * r->parts * pl__ranks(r), r->coupled,
                          pl__ranks(r)};
}

double pl_run_predicted_ms(const pl_run *r)
{
    return pl__step_programs_ms(r, r->step_programs, r->n_step_programs);
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

/* PL_ERR_FIT when the budget is too small. */
static pl_status check_fits(const pl_run *r)
{
    pl_run_memory m = pl_run_memory_get(r);
    char a[32], b[32];
    if (!m.fits) {
        snprintf(a, sizeof a, "%.2f MiB", (double)m.total / 0x1p20);
        snprintf(b, sizeof b, "%.2f MiB", (double)m.budget / 0x1p20);
        PL_FAIL(PL_ERR_FIT,
                "%s needs %s, the budget is %s: the smallest budget is %llu bytes; or lower "
                "batch (now %lld)%s%s%s%s%s",
                r->purpose.goal == PL_GOAL_EVALUATE ? "evaluation" : "training", a, b,
                (unsigned long long)m.minimum, (long long)pl_config_int(r->config, "batch"),
                r->unfit ? " (" : "", r->unfit ? r->unfit : "", r->unfit ? ")" : "",
                r->coupled ? "; accumulate: auto cannot split the batch, its samples couple: " : "",
                r->coupled ? r->coupled : "");
    }
    return PL_OK;
}

/* On a card making a session loads kernels, and may load more than the margin has room for. What is
 * loaded stays, so a second plan knows it. */
static pl_status open_session(pl_run *r, int n, pl_program *const *programs)
{
    const pl_device *card = pl__run_card(r);
    r->usage.built = 0;
    for (int attempt = 0;; attempt++) {
        PL_TRY(check_fits(r));
        pl_run_memory m = pl_run_memory_get(r);
        for (int i = 0; i < n; i++) pl_program_settle(programs[i]);
        if (card) PL_TRY(card->room(m.arena + m.state + pl__run_stage_bytes(r)));
        PL_TRY(pl_session_new(r->store, n, programs, &r->session));
        uint64_t used = card ? card->used_bytes() : 0;
        if (!m.budget || used <= m.budget) return PL_OK;
        pl_session_free(r->session);
        r->session = NULL;
        PL_FAIL_IF(attempt, PL_ERR_FIT,
                   "the card's driver says that this process holds %llu bytes, the budget is %llu",
                   (unsigned long long)used, (unsigned long long)m.budget);
        PL_TRY(pl__run_fit(r));
    }
}

/* Whether the checkpoint leaves weights out, which are then made as they were at the beginning. */
static pl_status resume_lacks(pl_run *r, bool *lacks)
{
    char path[PL_PATH_BYTES];
    pl_st_reader *f;
    PL_TRY(pl__path(path, r->files.resume, "model.safetensors"));
    PL_TRY(pl_st_open(path, &f));
    *lacks = pl__frozen_left_out(f);
    pl_st_close(f);
    return PL_OK;
}

/* A run that only evaluates has all its weights from one file. */
static pl_status load_evaluated(pl_run *r, const char *from)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(from, &f));
    bool lacks = pl__frozen_left_out(f);
    pl_st_close(f);
    PL_FAIL_IF(
        lacks, PL_ERR_FILE,
        "%s leaves frozen weights out, as checkpoints do: take the model.safetensors that a run writes at its end, or "
        "train with checkpoint.frozen=true",
        from);
    return pl_run_load_model(r, from, true);
}

static pl_status load_weights(pl_run *r)
{
    bool encodes = r->purpose.goal == PL_GOAL_ENCODE;
    const char *key = encodes ? "data.cache_model" : "init_from";
    const char *from = pl_config_is_null(r->config, key) ? NULL : pl_config_text(r->config, key);
    bool whole = from && r->purpose.goal == PL_GOAL_EVALUATE;
    pl_status rc = whole  ? load_evaluated(r, from)
                   : from ? pl_run_load_model(r, from, encodes)
                          : PL_OK;
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_FILE, "%s: %s", key, pl_error_text());
    PL_TRY(rc);
    if (whole) return PL_OK;
    if (r->purpose.goal != PL_GOAL_REPLAY) PL_TRY(pl__weights_load(r));
    return from ? pl__frozen_check(r, from) : PL_OK;
}

static pl_status start(pl_run *r)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    PL_TRY(pl__averages_check(r));
    PL_TRY(open_session(r, n, programs));
    PL_TRY(pl_session_init(r->session, (uint64_t)pl_config_int(r->config, "seed")));
    PL_TRY(seed_random_key(r));
    PL_TRY(pl__stage_slots(r));
    PL_TRY(pl__sample_start(r));
    bool begins = !r->files.resume;
    if (r->files.resume) PL_TRY(resume_lacks(r, &begins));
    if (begins) PL_TRY(load_weights(r));
    if (r->purpose.goal == PL_GOAL_ENCODE) PL_TRY(pl__cache_check_reader(r));
    if (!r->files.resume && r->phases.take_from) PL_TRY(pl__phase_take(r));
    if (r->purpose.goal == PL_GOAL_REPLAY) return PL_OK;
    return pl_prefetch_open(r);
}

pl_status pl_run_start(pl_run *r)
{
    PL_TRY(start(r));
    PL_TRY(pl__phase_check_data(r));
    PL_TRY(pl__ranks_check(r));
    return r->files.resume ? pl__checkpoint_load(r, r->files.resume) : PL_OK;
}

int64_t pl__run_samples(pl_run *r)
{
    return pl_prefetch_size(r, PL_SUBSET_TRAIN);
}
