/* run_memory.c - the budget of a run, what its process or device holds, and reports of memory.
 *
 * This file collects the figures that rt/process_budget.h needs: the budget from the configuration
 * or from a planned device, bytes in use from the system or the device, margins.
 * rt/process_budget.h says how these figures become plans.
 */
#include "base/asked.h"
#include "base/cache_dir.h"
#include "base/sys.h"
#include "base/threads.h"
#include "base/trust/sandbox.h"
#include "plan/cost/cost_card.h"
#include "rt/device.h"
#include "rt/host_limit.h"
#include "rt/levels/levels.h"
#include "rt/levels/process_levels.h"
#include "rt/process_budget.h"
#include "train/data/prefetch.h"

#include <string.h>

/* ---- figures ---------------------------------------------------------------------------- */
/* Returns the GPU that the run is planned for and that is not installed; NULL: the run's device is
 * installed. */
static const pl_card *planned_card(const pl_run *r)
{
    const char *device = pl_config_text(r->config, "device");
    return pl_device_profile(device) ? pl_card_find(device) : NULL;
}

/* The key `memory`; 0: not given. */
static uint64_t asked_budget(const pl_run *r)
{
    return pl_config_is_null(r->config, "memory") ? 0
                                                  : (uint64_t)pl_config_size(r->config, "memory");
}

/* Whether the memory that is free on the host is the budget. */
static bool is_limited(const pl_run *r)
{
    return r->usage.free_limit && !asked_budget(r);
}

/* Returns the budget: at most the memory of a device that is planned for, or, where none is given,
 * what is free on the host. 0: no limit. */
static uint64_t budget_of(const pl_run *r)
{
    uint64_t asked = asked_budget(r);
    const pl_card *card = planned_card(r);
    if (card) return !asked || asked > card->memory_bytes ? card->memory_bytes : asked;
    return is_limited(r) ? r->usage.free_limit : asked;
}

const char *pl_cache_warning(void)
{
    return pl_cache_refused();
}

const char *pl_decoder_warning(void)
{
    return pl_sandbox_warning();
}

void pl_run_limit_host(pl_run *r, int sharers)
{
    pl_host_limit h;
    r->usage.sharers = sharers;
    if (strcmp(pl_config_text(r->config, "device"), "cpu") != 0) return;
    pl_host_limit_read(sharers, &h);
    r->usage.free_limit = h.free_bytes;
    r->usage.most_limit = h.most_bytes;
    r->usage.free_why = h.free_why;
    r->usage.most_why = h.most_why;
}

const pl_device *pl__run_own_memory(const pl_run *r)
{
    const pl_device *dev = pl__train(r) ? pl_program_device(pl__train(r)) : NULL;
    return dev && dev->own_memory ? dev : NULL;
}

/* Returns the device memory that first runs take besides what is mapped: a CUDA graph grows with
 * its nodes. */
static uint64_t device_margin(const pl_device *dev, pl_program *const *programs, int n)
{
    uint64_t margin = dev->margin_bytes;
    for (int i = 0; i < n; i++)
        margin += (uint64_t)pl_program_plan(programs[i])->nodes * dev->node_bytes;
    return margin;
}

/* Room for stacks of threads, allocator slack and pages that first steps touch. */
static uint64_t host_margin(void)
{
    return ((uint64_t)12 << 20) + ((uint64_t)192 << 10) * (uint64_t)pl_threads_count();
}

static uint64_t used_bytes(const pl_run *r)
{
    if (planned_card(r)) return planned_card(r)->overhead_bytes;
    const pl_device *card = pl__run_own_memory(r);
    return card ? card->used_bytes() : pl_sys_rss_bytes();
}

/* Returns the host memory for data, pictures, files and moves, which pl_run_start will take; the
 * budget of a device does not count it. */
static uint64_t reading_bytes(const pl_run *r)
{
    if (planned_card(r)) return 0;
    const uint64_t disk[PL_N_LEVELS] = {[PL_LEVEL_DISK] = 1};
    bool moves = !pl_config_is_null(r->config, "disk") && !pl__run_own_memory(r);
    return pl_prefetch_bytes(r) + (moves ? pl_levels_overhead(&pl_device_cpu, disk) : 0) +
           (pl__run_own_memory(r) ? 0 : pl__sample_bytes(r) + pl__stage_slots_bytes(r));
}

/* ---- the run as rt/process_budget.h sees it --------------------------------------------- */
static uint64_t ask_used(void *run)
{
    return used_bytes(run);
}

static pl_status ask_ranks(void *run, uint64_t *value)
{
    return pl__ranks_least(run, value);
}

static uint64_t ask_later(void *run)
{
    const pl_run *r = run;
    return r->session ? 0 : reading_bytes(r);
}

static pl_process_budget describe(pl_run *r)
{
    const pl_step_build *build = r->build;
    const pl_device *card = pl__run_own_memory(r);
    bool planned = planned_card(r) != NULL;
    pl_process_budget b = {.bytes = budget_of(r),
                           .on_host = !card && !planned,
                           .later_bytes = ask_later(r),
                           .used = ask_used,
                           .smallest = ask_ranks,
                           .ctx = r,
                           .stop = r->stop,
                           .used_then = r->usage.built,
                           .plan_peak = r->usage.plan_peak};
    b.programs = pl__run_device_programs(r, &b.n);
    if (pl__train(r)) b.state_bytes = pl_program_plan(pl__train(r))->state_bytes;
    if (build) b.known_minimum = build->minimum;
    if (build && build->other_minimum &&
        (!b.known_minimum || build->other_minimum < b.known_minimum))
        b.known_minimum = build->other_minimum;
    if (planned) return b; /* the profile's overhead includes its margin */
    b.margin = card ? device_margin(card, b.programs, b.n) : host_margin();
    /* What the host takes between planning and the start comes out of the margin, so that a plan
     * that fits is not refused for a page. */
    b.small_margin = build && build->fitted && !card ? b.margin / 2 : b.margin / 3 * 2;
    return b;
}

static double ask_weight(void *run, const pl_program *p)
{
    double sum = 0;
    for (int i = 0; i < pl_run_step_program_count(run); i++) {
        pl_run_step_program t = pl_run_step_program_at(run, i);
        if (t.run == p) sum += t.share * (double)((pl_run *)run)->build->accumulate;
        if (t.apply == p) sum += t.share;
    }
    return sum;
}

/* Plans with memory below the device, where the configuration allows it. */
static pl_status plan_within(pl_run *r, pl_process_budget *b)
{
    pl_process_levels levels = {0};
    bool any;
    PL_TRY(pl__run_read_levels(r, &levels, &any));
    if (!any || !b->bytes) return pl_process_plan(b);
    if (!r->build->levels) r->build->levels = pl_sys_alloc(sizeof levels);
    if (!r->build->levels) return PL_ERR_MEMORY;
    pl_process_levels_release(r->build->levels);
    levels.weight = ask_weight;
    levels.later = ask_later;
    *r->build->levels = levels;
    return pl_process_plan_levels(b, r->build->levels);
}

pl_status pl__run_fit(pl_run *r)
{
    PL_FAIL_IF(pl_asked(r->stop), PL_ERR_STOPPED, "stopped before it was planned");
    pl_process_budget b = describe(r);
    pl_status rc = plan_within(r, &b);
    r->usage.plan_peak = b.plan_peak;
    /* the keep-all plan is no answer where the host has no room for the slots of its updates */
    bool homeless = !r->build->levels || !r->build->levels->homes.bytes[PL_LEVEL_HOST];
    if (rc != PL_ERR_FIT || (r->build->host_updates && homeless)) return rc;
    r->build->unfit = pl_arena_strdup(&r->arena, pl_error_text());
    return r->build->unfit ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__run_minimum(pl_run *r, uint64_t *bytes)
{
    pl_process_budget b = describe(r);
    pl_status rc = pl_process_minimum(&b, bytes);
    r->usage.plan_peak = b.plan_peak;
    return rc;
}

uint64_t pl__run_stage_bytes(const pl_run *r)
{
    pl_process_budget b = {0};
    b.programs = pl__run_programs(r, &b.n);
    return pl_process_stage_bytes(&b);
}

/* ---- reports ---------------------------------------------------------------------------- */
void pl__run_note_used(pl_run *r)
{
    r->usage.built = pl__train(r) ? used_bytes(r) : 0;
}

pl_run_memory pl_run_memory_get(const pl_run *r)
{
    pl_process_budget b = describe((pl_run *)(uintptr_t)r); /* describe only reads it */
    pl_process_memory m = pl_process_memory_get(&b, r->session);
    uint64_t other = r->build ? r->build->other_budget : 0;
    if (other && other < m.minimum) m.minimum = other;
    return (pl_run_memory){.arena = m.arena,
                           .state = m.state,
                           .overhead = m.overhead,
                           .total = m.total,
                           .budget = b.bytes,
                           .asked = asked_budget(r),
                           .limit = planned_card(r) || !is_limited(r) ? NULL : r->usage.free_why,
                           .minimum = m.minimum,
                           .minimum_found = r->build && r->build->minimum,
                           .fits = m.fits};
}

/* A device driver takes milliseconds to answer, and nothing is allocated between steps: it is asked
 * at most every 200 ms. */
uint64_t pl_run_used_bytes(pl_run *r)
{
    enum { OFTEN = 200000000 }; /* ns */
    uint64_t now = pl_sys_now_ns();
    if (pl__run_own_memory(r) && r->usage.asked_ns && now - r->usage.asked_ns < OFTEN)
        return r->usage.used;
    r->usage.used = used_bytes(r);
    r->usage.asked_ns = now;
    if (r->usage.used > r->usage.most) r->usage.most = r->usage.used;
    return r->usage.used;
}

uint64_t pl_run_peak_used_bytes(pl_run *r)
{
    r->usage.asked_ns = 0;
    pl_run_used_bytes(r);
    return pl__run_own_memory(r) ? r->usage.most : pl_sys_peak_rss_bytes();
}
