/* choose.c - which build trains: the number of micro-batches and trade-offs, the sharded state, and
 * the place of updates.
 *
 * Idea: make builds one after the other, fit each to the budget (run_memory.c), and keep the build
 * with the fastest predicted step. The order of preference limits the search:
 *
 *     sharding       one more kind of state each time, only while nothing fits (shard: auto)
 *     micro-batches  each divisor of the batch (accumulate: auto); without a budget, one
 *     trade-offs     each level, until one keeps everything
 *     updates        on the device; on the host, where kernels wait for state that lives there
 *
 * Invariant: at most two builds exist at once, the best so far and the build being tried; a build
 * that does not fit is freed before the next is made, because its memory counts against the host
 * budget. Cost: one compile and one fit per build; a level whose keep-all plan is already slower
 * than the best is not fitted.
 *
 * Ranks make every decision from numbers that they have agreed on, so that all choose the same.
 */
#include "base/sys.h"
#include "plimsoll_levels.h"
#include "rt/device.h"
#include "train/run/run.h"

#include <math.h>
#include <string.h>

/* ---- trade-offs --------------------------------------------------------------------------- */
/* Sets whether the run's build fits, and its predicted step: the smallest over ranks. */
static pl_status look_at_plan(pl_run *r, bool *fits, double *ms)
{
    uint64_t fit = pl_run_memory_get(r).fits, ns = (uint64_t)(pl_run_predicted_ms(r) * 1e6);
    PL_TRY(pl__ranks_least(r, &fit));
    PL_TRY(pl__ranks_least(r, &ns));
    *fits = fit;
    *ms = (double)ns / 1e6;
    return PL_OK;
}

static bool keeps_all(const pl_step_build *b)
{
    for (int i = 0; i < b->n_programs; i++)
        if (pl_program_plan(b->programs[i])->recompute_ratio > 0) return false;
    return true;
}

/* Builds a level, and fits it if it may be faster than best_ms: an unfitted build recomputes
 * nothing, and no plan of that level is faster. *better: it fits and is faster. */
static pl_status try_level(pl_run *r, int64_t accumulate, int level, double best_ms, bool *better)
{
    double ms;
    PL_TRY(pl__build_level(r, accumulate, level));
    PL_TRY(look_at_plan(r, better, &ms));
    *better = false;
    if (ms >= best_ms) return PL_OK;
    PL_TRY(pl__run_fit(r));
    PL_TRY(look_at_plan(r, better, &ms));
    *better = *better && ms < best_ms;
    return PL_OK;
}

/* Lowers *least to the smallest budget of the run's build, which does not fit. Levels of trade-offs
 * may have other slots below the device, so budgets are compared, not arenas. */
static pl_status note_budget(pl_run *r, uint64_t *least)
{
    uint64_t bytes;
    if (!r->build->levels) return PL_OK;
    PL_TRY(pl__run_minimum(r, &bytes));
    r->build->minimum = bytes;
    PL_TRY(pl__ranks_least(r, &bytes));
    if (!*least || bytes < *least) *least = bytes;
    return PL_OK;
}

/* Replaces r->build, of level 0, by the build of the level with the fastest plan that fits; by the
 * last level where none fits. */
static pl_status choose_level(pl_run *r, int64_t accumulate)
{
    bool fits, better;
    double ms, without_ms = 0;
    uint64_t least = 0;
    for (int level = 1; level <= pl__tradeoffs(r); level++) {
        PL_TRY(look_at_plan(r, &fits, &ms));
        if (fits && keeps_all(r->build)) break;
        if (fits && r->build->level == 0) without_ms = ms;
        if (!fits) PL_TRY(note_budget(r, &least));
        pl_step_build *best = r->build;
        r->build = NULL;
        if (!fits) {
            pl__build_free(best);
            best = NULL;
        }
        pl_status rc = try_level(r, accumulate, level, best ? ms : HUGE_VAL, &better);
        if (best && rc == PL_OK && !better) {
            pl_step_build *tried = r->build;
            r->build = best;
            best = tried;
        }
        pl__build_free(best);
        PL_TRY(rc);
        pl_sys_trim();
    }
    r->build->without_ms = without_ms;
    r->build->other_budget = least;
    return PL_OK;
}

/* ---- micro-batches ------------------------------------------------------------------------ */
/* Frees the build and its slots: a build that does not accumulate has no accumulators. */
static pl_status drop_build(pl_run *r)
{
    pl__build_free(r->build);
    r->build = NULL;
    r->usage.built = 0;
    if (pl_store_count(r->store) == 0) return PL_OK;
    pl_store_free(r->store);
    r->store = pl_store_new();
    return r->store ? PL_OK : PL_ERR_MEMORY;
}

/* ---- updates on the host ------------------------------------------------------------------ */
/* Why updates cannot run on the host; NULL: they can. */
static const char *why_not_host(pl_run *r)
{
    const pl_device *dev;
    bool planned = pl_device_profile(pl_config_text(r->config, "device")) != NULL;
    if (pl_device_find(pl__ranks_device(r), &dev) != PL_OK) return NULL; /* compiling says why */
    if (!dev->own_memory && !planned) return "the device computes in host memory already";
    if (pl_config_is_null(r->config, "host_memory"))
        return "host_memory is not given; it must have room for weights, gradients and optimizer "
               "state";
    if (pl_config_is_null(r->config, "memory") && !planned)
        return "memory is not given, so everything lives on the GPU";
    if (pl__ranks(r) > 1) return "several ranks exchange gradients on their devices";
    return pl__goal_trains(r->purpose.goal) ? NULL : "the run does not train";
}

/* Whether the build updates on the device, and kernels wait for state that lives below it for at
 * least a twentieth of the step; or the build does not fit. */
static bool waits_for_state(const pl_run *r)
{
    enum { SMALL = 20 };
    pl_run_levels l = pl_run_levels_get(r);
    bool waits = l.host_state_bytes && l.wait_ms * SMALL > pl_run_predicted_ms(r);
    return !r->build->host_updates && (waits || !pl_run_memory_get(r).fits);
}

/* Makes the run's build with the update on the host, over a separate store: slots of gradients are
 * added. *better: it fits and its predicted step is shorter; or least, the smallest budget of
 * another build that does not fit, is larger than its own. */
static pl_status try_host(pl_run *r, int64_t accumulate, double best_ms, uint64_t least,
                          bool *better)
{
    bool fits;
    double ms;
    *better = false;
    r->store = pl_store_new();
    if (!r->store) return PL_ERR_MEMORY;
    PL_TRY(pl__build_level(r, accumulate, 0));
    PL_TRY(look_at_plan(r, &fits, &ms));
    if (ms >= best_ms) return PL_OK;
    pl_status rc = pl__run_fit(r);
    if (rc == PL_ERR_UNSUPPORTED || rc == PL_ERR_FIT) return PL_OK;
    PL_TRY(rc);
    PL_TRY(choose_level(r, accumulate));
    PL_TRY(look_at_plan(r, &fits, &ms));
    *better = fits && ms < best_ms;
    if (fits || !least) return PL_OK;
    PL_TRY(pl_run_find_minimum(r));
    *better = pl_run_memory_get(r).minimum < least;
    return PL_OK;
}

/* updates: auto: replaces the run's build by one that updates on the host, where that is faster. */
static pl_status choose_place(pl_run *r, int64_t accumulate)
{
    pl_step_build *build = r->build;
    pl_store *store = r->store;
    double ms;
    uint64_t least = 0;
    bool fits, better;
    bool choose = strcmp(pl_config_text(r->config, "updates"), "auto") == 0 && !why_not_host(r) &&
                  !r->files.resume && waits_for_state(r);
    if (!choose) return PL_OK;
    PL_TRY(look_at_plan(r, &fits, &ms));
    if (!fits) PL_TRY(pl_run_find_minimum(r));
    if (!fits) least = pl_run_memory_get(r).minimum;
    r->build = NULL;
    r->host_updates = true;
    pl_status rc = try_host(r, accumulate, fits ? ms : HUGE_VAL, least, &better);
    r->host_updates = false;
    if (rc != PL_OK || !better) {
        pl__build_free(r->build);
        pl_store_free(r->store);
        r->build = build;
        r->store = store;
        return rc;
    }
    pl__build_free(build);
    pl_store_free(store);
    return PL_OK;
}

/* Sets where the builds that are made from here on update, as far as the configuration or the
 * checkpoint that is resumed says it. */
static pl_status ask_place(pl_run *r)
{
    const char *asked = pl_config_text(r->config, "updates"), *why = NULL;
    bool host = strcmp(asked, "host") == 0;
    r->host_updates = host || (r->files.resume_host && strcmp(asked, "auto") == 0);
    if (r->host_updates) why = why_not_host(r);
    PL_FAIL_IF(host && why, PL_ERR_CONFIG, "updates: host: %s; updates: auto chooses", why);
    if (why) r->host_updates = false;
    return PL_OK;
}

/* ---- a number of micro-batches ------------------------------------------------------------ */
/* Plans r->build, of level 0, and replaces it by a better one: trade-offs, updates on the host. */
static pl_status fit_split(pl_run *r, int64_t accumulate)
{
    PL_TRY(pl__run_fit(r));
    PL_TRY(choose_level(r, accumulate));
    return choose_place(r, accumulate);
}

static pl_status build_split(pl_run *r, int64_t accumulate)
{
    PL_TRY(drop_build(r));
    PL_TRY(pl__build_level(r, accumulate, 0));
    return fit_split(r, accumulate);
}

/* Builds with a given number of micro-batches. A batch is split only where that changes no result,
 * or where the user allows it. */
static pl_status build_asked(pl_run *r, int64_t accumulate)
{
    const char *why = NULL;
    if (accumulate > 1 && !pl_config_bool(r->config, "accumulate_coupled"))
        PL_TRY(pl__run_couples(r, accumulate, NULL, &why));
    PL_FAIL_IF(why, PL_ERR_CONFIG,
               "accumulate: %lld would train differently from one batch of %lld, because its "
               "samples are coupled (%s); set accumulate: 1, or accumulate_coupled: true to split "
               "the batch anyway",
               (long long)accumulate, (long long)pl_config_int(r->config, "batch"), why);
    return build_split(r, accumulate);
}

/* Builds with n micro-batches, and fits the build if it may be faster than best_ms: no plan of it
 * is faster than its keep-all plan. *ms: predicted step of the keep-all plan, or, where *better, of
 * the plan that fits. */
static pl_status try_split(pl_run *r, int64_t n, double best_ms, bool *better, double *ms)
{
    bool fits;
    PL_TRY(drop_build(r));
    PL_TRY(pl__build_level(r, n, 0));
    PL_TRY(look_at_plan(r, &fits, ms));
    *better = false;
    if (*ms >= best_ms) return PL_OK;
    PL_TRY(fit_split(r, n));
    double fitted;
    PL_TRY(look_at_plan(r, &fits, &fitted));
    *better = fits && fitted < best_ms;
    if (*better) *ms = fitted;
    return PL_OK;
}

/* Where no number of micro-batches fits: builds with the number that needs the smallest budget,
 * which the refusal names. One batch may need less than several micro-batches: they have
 * accumulators. */
static pl_status build_smallest(pl_run *r)
{
    int64_t batch = pl_config_int(r->config, "batch"), best = 0;
    uint64_t least = UINT64_MAX;
    bool below = r->build->levels != NULL; /* then minimums are found by fitting */
    for (int64_t n = 1; n * pl__ranks(r) <= batch; n++) {
        if (batch % (n * pl__ranks(r))) continue;
        PL_TRY(drop_build(r));
        PL_TRY(pl__build_level(r, n, 0));
        if (below) PL_TRY(fit_split(r, n));
        PL_TRY(pl_run_find_minimum(r));
        uint64_t bytes = pl_run_memory_get(r).minimum;
        PL_TRY(pl__ranks_least(r, &bytes));
        if (bytes < least) least = bytes, best = n;
    }
    return build_split(r, best);
}

/* accumulate: auto: builds with the number of micro-batches that fits and is fastest. All divisors
 * of the batch are compared, not only those up to the first that needs no recompute: a larger
 * number can be faster, and a larger budget must not be slower than a smaller one, which finds it.
 * The search ends at a number whose keep-all plan is much slower than the best. */
static pl_status build_auto(pl_run *r)
{
    static const double much = 1.1;
    int64_t batch = pl_config_int(r->config, "batch"), best = 0;
    double best_ms = HUGE_VAL;
    for (int64_t n = 1; n * pl__ranks(r) <= batch; n++) {
        if (batch % (n * pl__ranks(r))) continue;
        if (n > 1 && r->build->accumulate == 1) { /* the first that splits the batch */
            PL_TRY(pl__run_couples(r, n, NULL, &r->build->coupled));
            if (r->build->coupled) return PL_OK;
        }
        bool better;
        double ms;
        PL_TRY(try_split(r, n, best_ms, &better, &ms));
        if (better) {
            best = n;
            best_ms = ms;
        }
        bool unlimited = pl_config_is_null(r->config, "memory") && better && keeps_all(r->build);
        if (unlimited || ms > much * best_ms) break;
    }
    if (best == 0) return r->usage.quick ? PL_OK : build_smallest(r);
    return best == r->build->accumulate ? PL_OK : build_split(r, best);
}

/* accumulate: auto of a resumed run: uses the number of the checkpoint, so that results have the
 * same bits, independent of the known kernel times. *fits: false when the budget has become too
 * small. */
static pl_status build_as_before(pl_run *r, bool *fits)
{
    if (pl_config_int(r->config, "batch") % r->files.resume_accumulate) return PL_OK;
    PL_TRY(build_split(r, r->files.resume_accumulate));
    *fits = pl_run_memory_get(r).fits;
    return PL_OK;
}

/* Evaluation programs have as many samples as training programs; where that does not divide the
 * batch, all of it. */
static pl_status build_evaluation(pl_run *r, int64_t asked)
{
    int64_t n = asked ? asked : r->purpose.accumulate ? r->purpose.accumulate : 1;
    return build_split(r, pl_config_int(r->config, "batch") % n ? 1 : n);
}

/* Predictions of samples do not depend on each other: a budget that is too small for the batch gets
 * a part of it at a time. */
static pl_status build_prediction(pl_run *r)
{
    int64_t batch = pl_config_int(r->config, "batch");
    for (int64_t n = 1; n <= batch; n++) {
        if (batch % n) continue;
        PL_TRY(build_split(r, n));
        if (pl_run_memory_get(r).fits) break;
    }
    return PL_OK;
}

/* ---- all of it ---------------------------------------------------------------------------- */
static pl_status build_training(pl_run *r, int64_t asked)
{
    bool fits = false;
    if (!asked && r->files.resume_accumulate) PL_TRY(build_as_before(r, &fits));
    while (!fits) {
        PL_TRY(asked ? build_asked(r, asked) : build_auto(r));
        fits = !pl__ranks_share_more(r);
    }
    return PL_OK;
}

pl_status pl__choose_build(pl_run *r)
{
    int64_t asked;
    PL_TRY(pl__accumulate_asked(r->config, &asked));
    PL_TRY(ask_place(r));
    if (r->purpose.goal == PL_GOAL_ENCODE) asked = 1;
    PL_TRY(r->purpose.goal == PL_GOAL_EVALUATE  ? build_evaluation(r, asked)
           : r->purpose.goal == PL_GOAL_PREDICT ? build_prediction(r)
                                                : build_training(r, asked));
    r->build->fitted = pl_run_memory_get(r).fits;
    bool known = r->build->fitted || r->build->minimum || r->usage.quick;
    return known ? PL_OK : pl_run_find_minimum(r);
}

/* ---- the minimum -------------------------------------------------------------------------- */
/* Finds the smallest arena of another level than the build's. */
static pl_status find_other_minimum(pl_run *r, int level)
{
    uint64_t bytes = 0;
    pl_step_build *own = r->build;
    r->build = NULL;
    pl_status rc = pl__build_level(r, own->accumulate, level);
    if (rc == PL_OK) rc = pl__run_minimum(r, &bytes);
    pl__build_free(r->build);
    r->build = own;
    if (rc == PL_OK && (!own->other_minimum || bytes < own->other_minimum))
        own->other_minimum = bytes;
    return rc;
}

pl_status pl_run_find_minimum(pl_run *r)
{
    uint64_t bytes;
    PL_FAIL_IF(!r->build, PL_ERR_ARG, "the run is not built");
    PL_TRY(pl__run_minimum(r, &bytes));
    r->build->minimum = bytes;
    /* with memory below the device, choose_level has noted what the other levels need */
    bool below = r->build->levels != NULL;
    for (int level = 0; !below && !r->build->other_minimum && level <= pl__tradeoffs(r); level++)
        if (level != r->build->level) PL_TRY(find_other_minimum(r, level));
    pl_sys_trim();
    return PL_OK;
}
