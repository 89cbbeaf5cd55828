/* run_memory.c - the budget of a run, the memory of its process or device, and reports of memory.
 *
 * This file collects the figures that rt/process_budget.h needs: the budget from the configuration
 * or from a planned device, bytes held, margins. rt/process_budget.h says how these figures become
 * plans.
 *
 * On the CPU the figures are the same at any time, so that plan, train and report print the same
 * numbers in every run:
 *
 *     before      what the process holds before its first build, in steps of 2 MiB
 *     code        pages of program and libraries that training touches: a constant. pl__run_trim
 *                 gives back what compiling and planning touched
 *     programs    graphs, plans and our kernels: counted
 *     libraries   kernels that libraries compile. Their memory is not known: it is measured once,
 *                 after the first build and before any search, in steps of 1 MiB, and kept for
 *                 the next process (library_bytes.c); other builds of the run have as much per
 *                 kernel
 *
 * The sum is at least what the program took until it began to plan, in steps of 1 MiB: the loader
 * touches libraries that training does not need.
 *
 * Two processes of the same configuration differ by far less than a step. Before the first step,
 * pl__run_check_resident compares the plan with the memory of the process.
 */
#include "base/asked.h"
#include "base/cache_dir.h"
#include "base/str.h"
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
#include <xxhash.h>

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
    uint64_t asked = r->usage.other_budget ? r->usage.other_budget : asked_budget(r);
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

/* Returns the device memory that first runs take besides the mapped memory: a CUDA graph grows with
 * its nodes. */
static uint64_t device_margin(const pl_device *dev, pl_program *const *programs, int n)
{
    uint64_t margin = dev->margin_bytes;
    for (int i = 0; i < n; i++)
        margin += (uint64_t)pl_program_plan(programs[i])->nodes * dev->node_bytes;
    return margin;
}

static const uint64_t mib = (uint64_t)1 << 20;

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* Room for stacks of threads, allocator slack and pages that first steps touch. */
static uint64_t host_margin(void)
{
    return 2 * mib + ((uint64_t)192 << 10) * (uint64_t)pl_threads_count();
}

/* ---- bytes held on the CPU ---------------------------------------------------------------- */
static pl_program_held programs_held(const pl_step_build *b)
{
    pl_program_held sum = {0};
    for (int i = 0; b && i < b->n_programs; i++) {
        pl_program_held h = pl_program_held_get(b->programs[i]);
        sum.bytes += h.bytes;
        sum.library_kernels += h.library_kernels;
    }
    return sum;
}

void pl__run_trim(void)
{
    pl_sys_trim();
    pl_sys_drop_code();
}

/* Returns the memory that the program uses when it begins to plan. Of a program that has done other
 * work before, what loading it took: its past says nothing about its next process. */
static uint64_t start_peak(void)
{
    uint64_t loaded = pl_sys_start_peak_bytes(), now = pl_sys_peak_rss_bytes();
    return now - loaded < 8 * mib ? now : loaded;
}

void pl__run_note_before(pl_run *r)
{
    if (!r->usage.start_peak) r->usage.start_peak = start_peak();
    pl__run_trim();
    if (!r->usage.before) r->usage.before = round_up(pl_sys_anon_bytes(), 2 * mib);
    if (!r->usage.kernels) r->usage.start = pl_sys_anon_bytes();
}

void pl__run_note_libraries(pl_run *r)
{
    pl_program_held h = programs_held(r->build);
    if (r->usage.kernels) return;
    uint64_t grown = pl_sys_anon_bytes(), known = r->usage.start + h.bytes;
    uint64_t build[] = {h.bytes, h.library_kernels, (uint64_t)pl_threads_count()};
    uint64_t key = XXH64(build, sizeof build, 0);
    r->usage.libraries = grown > known ? pl__library_bytes(key, grown - known) : 0;
    r->usage.kernels = h.library_kernels + 1;
}

static uint64_t host_held(const pl_run *r)
{
    const uint64_t code = 6 * mib + pl_device_cpu.code_bytes();
    pl_program_held h = programs_held(r->build);
    uint64_t libraries =
        r->usage.kernels ? r->usage.libraries * (h.library_kernels + 1) / r->usage.kernels : 0;
    return r->usage.before + code + h.bytes + libraries;
}

static uint64_t used_bytes(const pl_run *r)
{
    if (planned_card(r)) return planned_card(r)->overhead_bytes;
    const pl_device *card = pl__run_own_memory(r);
    return card ? card->used_bytes() : pl_sys_rss_bytes();
}

/* Returns the host memory that moves between the arena and a disk take; 0 where nothing moves. */
static uint64_t moving_bytes(const pl_run *r)
{
    const uint64_t disk[PL_N_LEVELS] = {[PL_LEVEL_DISK] = 1};
    bool moves = r->build && r->build->levels && !pl__run_own_memory(r);
    return moves ? pl_levels_overhead(&pl_device_cpu, disk) : 0;
}

/* Returns the host memory for data, pictures, files and moves, which pl_run_start will take; the
 * budget of a device does not count it. */
static uint64_t reading_bytes(const pl_run *r)
{
    if (planned_card(r)) return 0;
    return pl_prefetch_bytes(r) + moving_bytes(r) +
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
    return r->session && pl__run_own_memory(r) ? 0 : reading_bytes(r);
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
                           .quick = r->usage.quick,
                           .used_then = r->usage.built,
                           .plan_peak = r->usage.plan_peak};
    if (b.on_host) {
        b.held_bytes = host_held(r);
        b.start_small = r->usage.start_peak;
        b.start_bytes = round_up(b.start_small + mib / 2, mib);
    }
    b.programs = pl__run_device_programs(r, &b.n);
    if (pl__train(r)) b.state_bytes = pl_program_plan(pl__train(r))->state_bytes;
    if (build) b.known_minimum = build->minimum;
    if (build && build->other_minimum &&
        (!b.known_minimum || build->other_minimum < b.known_minimum))
        b.known_minimum = build->other_minimum;
    if (planned) return b; /* the profile's overhead includes its margin */
    b.margin = card ? device_margin(card, b.programs, b.n) : host_margin();
    b.small_margin = card ? b.margin / 3 * 2 : b.margin;
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

/* Plans with memory below the device, where the configuration allows it. On the host moving takes
 * memory, too, so that keep-all plans come first. */
static pl_status plan_within(pl_run *r, pl_process_budget *b)
{
    pl_process_levels levels = {0};
    bool any;
    PL_TRY(pl__run_read_levels(r, &levels, &any));
    uint64_t keep = b->on_host && any && pl_process_keep_all(b) <= b->bytes;
    PL_TRY(b->smallest(b->ctx, &keep));
    if (!any || !b->bytes || keep) return pl_process_plan(b);
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
    pl_process_pause(&b); /* the minimum may be asked for */
    r->usage.plan_peak = b.plan_peak;
    /* the keep-all plan does not fit where the host has no room for the slots of its updates */
    bool homeless = !r->build->levels || !r->build->levels->homes.bytes[PL_LEVEL_HOST];
    if (rc != PL_ERR_FIT || (r->build->host_updates && homeless)) return rc;
    r->build->unfit = pl_arena_strdup(&r->arena, pl_error_text());
    return r->build->unfit ? PL_OK : PL_ERR_MEMORY;
}

void pl__run_end_planning(pl_run *r)
{
    pl_process_budget b = describe(r);
    pl_process_trim(&b);
}

void pl_run_plan_quickly(pl_run *r)
{
    r->usage.quick = true;
}

pl_status pl_run_plan_within(pl_run *r, uint64_t budget)
{
    PL_FAIL_IF(!r->build || r->session, PL_ERR_ARG, "the run is not built, or has started");
    r->usage.other_budget = budget;
    return pl__run_fit(r);
}

pl_status pl__run_minimum(pl_run *r, uint64_t *bytes)
{
    pl_process_budget b = describe(r);
    pl_status rc = pl_process_minimum(&b, bytes);
    pl_process_pause(&b); /* another budget may follow, see pl_run_plan_within */
    r->usage.plan_peak = b.plan_peak;
    if (rc != PL_OK || !b.on_host || !r->build->levels) return rc;
    /* the keep-all plans move nothing */
    b.later_bytes -= moving_bytes(r);
    b.state_bytes = pl_state_bytes(r->store, NULL);
    if (pl_process_keep_all(&b) < *bytes) *bytes = pl_process_keep_all(&b);
    return PL_OK;
}

uint64_t pl__run_stage_bytes(const pl_run *r)
{
    pl_process_budget b = {0};
    b.programs = pl__run_programs(r, &b.n);
    return pl_process_stage_bytes(&b);
}

/* ---- the start ---------------------------------------------------------------------------- */
pl_status pl__run_check_resident(const pl_run *r)
{
    pl_run_memory m = pl_run_memory_get(r);
    if (!m.budget || pl__run_own_memory(r) || planned_card(r)) return PL_OK;
    char now[32], budget[32], most[32], enough[32];
    uint64_t held = pl_sys_rss_bytes() + m.arena; /* no page of the arena is touched yet */
    PL_FAIL_IF(
        held > m.budget, PL_ERR_FIT,
        "this process holds %s before its first step and the arena takes %s, the budget is "
        "%s: it would be exceeded. memory=%llu is enough",
        pl_str_bytes(held - m.arena, now, sizeof now), pl_str_bytes(m.arena, enough, sizeof enough),
        pl_str_bytes(m.budget, budget, sizeof budget), (unsigned long long)(held + host_margin()));
    PL_FAIL_IF(r->usage.plan_peak > m.budget, PL_ERR_FIT,
               "planning took %s, the budget is %s: memory=%llu is enough",
               pl_str_bytes(r->usage.plan_peak, most, sizeof most),
               pl_str_bytes(m.budget, budget, sizeof budget),
               (unsigned long long)r->usage.plan_peak);
    return PL_OK;
}

/* Asking takes some microseconds, so it is asked in the first steps and then every 16 steps. */
void pl__run_after_step(const pl_run *r)
{
    enum { FIRST = 4, OFTEN = 16 };
    int64_t step = r->steps.done;
    uint64_t budget = asked_budget(r);
    if ((step > FIRST && step % OFTEN) || !budget || pl__run_own_memory(r)) return;
    if (pl_sys_rss_bytes() + mib > budget) pl_sys_drop_code();
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
