/* run_fit.c - a run under its budget: what that leaves to the arena, plans for it, and what is told
 * of memory.
 *
 * On the host everything that the process has counts, the planner too. While it searches, neither
 * arena nor state is mapped, so it may take what they will; how much it took is looked at
 * (plan_peak), and no budget below that is told as the smallest or said to fit. What stays after
 * it, the longer graph of a plan that computes again, is measured on that plan and comes out of the
 * arena's room.
 */
#include "base/asked.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plan/cost/cost_card.h"
#include "rt/device.h"
#include "rt/refit.h"
#include "train/data/prefetch.h"

/* The card that the run is planned for and that is not here; NULL: the device is. */
static const pl_card *planned_card(const pl_run *r)
{
    const char *device = pl_config_text(r->config, "device");
    return pl_device_profile(device) ? pl_card_find(device) : NULL;
}

/* The key `memory`; 0 when it is not given. */
static uint64_t asked_of(const pl_run *r)
{
    return pl_config_is_null(r->config, "memory") ? 0
                                                  : (uint64_t)pl_config_size(r->config, "memory");
}

/* What may be taken: no more than a card has that is planned for. 0: as much as one likes. */
static uint64_t budget_of(const pl_run *r)
{
    uint64_t asked = asked_of(r);
    const pl_card *card = planned_card(r);
    return card && (!asked || asked > card->memory_bytes) ? card->memory_bytes : asked;
}

/* The device, when its memory is not the host's: the budget is then of that memory. */
const pl_device *pl__run_own_memory(const pl_run *r)
{
    const pl_device *dev = pl__train(r) ? pl_program_device(pl__train(r)) : NULL;
    return dev && dev->own_memory ? dev : NULL;
}

/* What the first runs of all programs take of a card beside what is mapped: a graph of launches
 * grows with its nodes. */
static uint64_t card_margin(const pl_run *r, const pl_device *card)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    uint64_t margin = card->margin_bytes;
    for (int i = 0; i < n; i++)
        margin += (uint64_t)pl_program_plan(programs[i])->nodes * card->node_bytes;
    return margin;
}

/* Room for stacks of the team, allocator slack and the pages a first step touches, or for what the
 * first run takes on a card. Two processes with the same configuration differ by some pages, so a
 * budget that one of them named must do for the next: a given budget may shrink the margin to two
 * thirds of it. What the host takes between planning and the start comes out of the rest, so that a
 * plan that was found to fit is not refused for a page: a half remains. */
static uint64_t margin_of(const pl_run *r, bool least)
{
    if (planned_card(r)) return 0;
    uint64_t margin = ((uint64_t)12 << 20) + ((uint64_t)192 << 10) * (uint64_t)pl_threads_count();
    const pl_device *card = pl__run_own_memory(r);
    if (card) margin = card_margin(r, card);
    if (!least) return margin;
    return r->build && r->build->fitted && !card ? margin / 2 : margin / 3 * 2;
}

static uint64_t used_bytes(const pl_run *r)
{
    if (planned_card(r)) return planned_card(r)->overhead_bytes;
    const pl_device *card = pl__run_own_memory(r);
    return card ? card->used_bytes() : pl_sys_rss_bytes();
}

void pl__run_note_used(pl_run *r)
{
    r->usage.built = pl__train(r) ? used_bytes(r) : 0;
}

/* The largest of the programs' arenas; least: of the smallest ones found. */
static uint64_t arena_of(const pl_run *r, bool least)
{
    uint64_t most = 0;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; i < n; i++) {
        const pl_plan_info *p = pl_program_plan(programs[i]);
        uint64_t arena = least && p->minimum_bytes ? p->minimum_bytes : p->arena_bytes;
        if (arena > most) most = arena;
    }
    return most;
}

static bool on_host(const pl_run *r)
{
    return !pl__run_own_memory(r) && !planned_card(r);
}

/* What the host takes for plans with the smallest arenas more than for those of now: a budget that
 * is told as the smallest must do for the process that is given it. */
static uint64_t replan_bytes(const pl_run *r)
{
    uint64_t bytes = 0;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    if (!on_host(r)) n = 0;
    for (int i = 0; i < n; i++) {
        const pl_plan_info *p = pl_program_plan(programs[i]);
        if (p->minimum_bytes && p->minimum_bytes < p->arena_bytes)
            bytes += pl_program_minimum_takes(programs[i]);
    }
    return bytes;
}

/* Plans that are as large as those of now, of programs whose arena is larger than this. */
static uint64_t plans_above(const pl_run *r, uint64_t arena)
{
    uint64_t bytes = 0;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    if (!on_host(r)) n = 0;
    for (int i = 0; i < n; i++)
        if (pl_program_plan(programs[i])->arena_bytes > arena)
            bytes += pl_program_held(programs[i]);
    return bytes;
}

static void note_peak(pl_run *r)
{
    uint64_t used = on_host(r) ? used_bytes(r) : 0;
    if (used > r->usage.plan_peak) r->usage.plan_peak = used;
}

/* The program, of those not yet asked, whose smallest arena is likely the largest: by its bound.
 * NULL: all were. */
static pl_program *next_asked(pl_program *const *programs, const uint64_t *bound, int n,
                              bool *asked)
{
    int at = -1;
    for (int i = 0; i < n; i++)
        if (!asked[i] && (at < 0 || bound[i] > bound[at])) at = i;
    if (at < 0) return NULL;
    asked[at] = true;
    return programs[at];
}

/* The program with the largest arena may have a plan with a larger one that takes less with its
 * graph. */
static pl_status trade_for_lean(const pl_run *r, pl_program *p, uint64_t *bytes)
{
    uint64_t arena, takes;
    PL_TRY(pl_program_find_lean(p, &arena, &takes));
    uint64_t total = arena + takes + replan_bytes(r) - pl_program_minimum_takes(p);
    if (total < *bytes) *bytes = total;
    return PL_OK;
}

/* The programs share one arena, so that none needs a smaller one than another does: what the first
 * ones need is small enough for the next. */
pl_status pl__run_least(pl_run *r, uint64_t *bytes)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n), *p, *largest = NULL;
    uint64_t bound[PL_MAX_PROGRAMS], arena = 0, least;
    bool asked[PL_MAX_PROGRAMS] = {false};
    for (int i = 0; i < n; i++) {
        pl_program_set_stop(programs[i], r->stop);
        PL_TRY(pl_program_least_bound(programs[i], &bound[i]));
    }
    while ((p = next_asked(programs, bound, n, asked))) {
        if (pl_program_plan(p)->arena_bytes <= arena) {
            pl_program_settle(p);
            continue;
        }
        PL_TRY(pl_program_find_minimum(p, arena, &least));
        note_peak(r);
        if (least > arena) largest = p;
        if (least > arena) arena = least;
    }
    *bytes = arena + replan_bytes(r);
    return on_host(r) && largest ? trade_for_lean(r, largest, bytes) : PL_OK;
}

/* Half of what the process may still take is for the lists that a search chooses from. */
static uint64_t search_room(const pl_run *r)
{
    uint64_t budget = budget_of(r), used = used_bytes(r);
    if (!on_host(r)) return 0;
    return budget > used + 1 ? (budget - used) / 2 : 1;
}

/* Plans for what the budget leaves to the arena. A budget for which no plan is found leaves the
 * last plans as they are: pl_run_memory_get tells that they do not fit. */
static pl_status fit_arena(pl_run *r, uint64_t arena)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; i < n; i++) {
        if (pl_program_plan(programs[i])->arena_bytes <= arena) continue;
        pl_program_set_stop(programs[i], r->stop);
        pl_program_set_search(programs[i], search_room(r));
        pl_status rc = pl_program_refit(programs[i], arena ? arena : 1);
        note_peak(r);
        PL_TRY(rc);
    }
    return PL_OK;
}

/* Bytes on the card that inputs pass through. */
uint64_t pl__run_stage_bytes(const pl_run *r)
{
    uint64_t most = 0;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; i < n; i++)
        if (pl_program_stage_bytes(programs[i]) > most) most = pl_program_stage_bytes(programs[i]);
    return most;
}

/* What plans for this arena will take of the host comes out of its room: that is foreseen, so that
 * one search does. The part of the margin that is_near lets a plan lack is not taken off. */
static pl_status foresee(pl_run *r, uint64_t *arena)
{
    uint64_t taken = 0, bytes;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    if (!on_host(r)) n = 0;
    for (int i = 0; i < n; i++) {
        if (pl_program_plan(programs[i])->arena_bytes <= *arena) continue;
        pl_program_set_stop(programs[i], r->stop);
        PL_TRY(pl_program_refit_takes(programs[i], *arena, &bytes));
        taken += bytes;
    }
    uint64_t spare = margin_of(r, false) / 16;
    taken -= taken < spare ? taken : spare;
    *arena -= taken < *arena ? taken : *arena;
    return PL_OK;
}

static pl_status fit_room(pl_run *r, uint64_t room)
{
    uint64_t arena = room;
    PL_TRY(foresee(r, &arena));
    pl_status rc = fit_arena(r, arena);
    return rc == PL_ERR_FIT && arena < room ? fit_arena(r, room) : rc;
}

/* Host memory for data, pictures and files, which pl_run_start will take; a card's budget does not
 * count it. */
static uint64_t reading_bytes(const pl_run *r)
{
    return pl_prefetch_bytes(r) +
           (pl__run_own_memory(r) ? 0 : pl__sample_bytes(r) + pl__stage_slots_bytes(r));
}

/* What is left for the arena when everything else is taken off; 0 when that is nothing. */
static uint64_t arena_room(const pl_run *r, uint64_t margin)
{
    uint64_t budget = budget_of(r);
    uint64_t taken = pl_program_plan(pl__train(r))->state_bytes + used_bytes(r) +
                     pl__run_stage_bytes(r) + reading_bytes(r) + margin;
    return budget > taken ? budget - taken : 0;
}

/* Lets go of what planning alone needs: it is no part of the process that trains. */
static void settle(pl_run *r)
{
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; i < n; i++) pl_program_settle(programs[i]);
    pl_sys_trim();
}

/* Room with the whole margin and with the least, and whether the plan fits: of all ranks the least,
 * so that they make the same plan. */
static pl_status look_at_room(pl_run *r, uint64_t room[3])
{
    room[0] = arena_room(r, margin_of(r, false));
    room[1] = arena_room(r, margin_of(r, true));
    room[2] = pl_run_memory_get(r).fits;
    for (int i = 0; i < 3; i++) PL_TRY(pl__ranks_least(r, &room[i]));
    return PL_OK;
}

/* Whether the plan as it is leaves the least margin and lacks less of the whole one than a search
 * for a smaller plan would take of the host. A process that is given the budget which another one
 * told may lack some pages of it. */
static bool is_near(const pl_run *r, const uint64_t room[3])
{
    uint64_t lacks = arena_of(r, false) - room[0];
    return room[2] && lacks <= margin_of(r, false) / 6 && lacks <= plans_above(r, room[0]);
}

/* Planning itself takes memory, so what is left is measured again after it. A plan is taken only
 * with the whole margin: the part of it that a budget may shrink is for what changes between this
 * look and the next one. Where no plan leaves the whole margin, a plan that leaves the least does.
 */
pl_status pl__run_fit(pl_run *r)
{
    PL_FAIL_IF(pl_asked(r->stop), PL_ERR_STOPPED, "stopped before it was planned");
    if (!budget_of(r)) return PL_OK;
    pl_status rc = PL_OK;
    for (int round = 0; round < 4; round++) {
        uint64_t room[3];
        PL_TRY(look_at_room(r, room));
        if (arena_of(r, false) <= room[0] || is_near(r, room)) break;
        rc = round ? fit_arena(r, room[0]) : fit_room(r, room[0]);
        bool tight = rc == PL_ERR_FIT;
        if (tight && !room[2])
            rc = fit_arena(r, room[1]);
        else if (tight)
            rc = PL_OK;
        settle(r);
        PL_TRY(look_at_room(r, room));
        if (rc != PL_OK || (tight && room[2])) break;
    }
    if (rc != PL_ERR_FIT) return rc;
    r->build->unfit = pl_arena_strdup(&r->arena, pl_error_text());
    return r->build->unfit ? PL_OK : PL_ERR_MEMORY;
}

/* ---- what is told ----------------------------------------------------------------------- */
pl_run_memory pl_run_memory_get(const pl_run *r)
{
    pl_run_memory m = {0};
    if (r->session) {
        m.arena = pl_session_arena_bytes(r->session);
        m.state = pl_session_state_bytes(r->session);
    } else if (pl__train(r)) {
        m.arena = arena_of(r, false);
        m.state = pl_program_plan(pl__train(r))->state_bytes;
    }
    uint64_t used = !r->session && r->usage.built ? r->usage.built : used_bytes(r),
             mapped = r->session ? m.arena + m.state : 0;
    uint64_t base = used > mapped ? used - mapped : 0, planned = m.arena + m.state;
    if (!r->session) base += pl__run_stage_bytes(r) + reading_bytes(r);
    m.overhead = base + margin_of(r, false);
    uint64_t least = pl__train(r) ? arena_of(r, true) + replan_bytes(r) : 0;
    if (least > m.arena) least = m.arena;
    const pl_step_build *b = r->build;
    if (b && b->minimum && b->minimum < least) least = b->minimum;
    if (b && b->other_minimum && b->other_minimum < least) least = b->other_minimum;
    m.minimum = m.state + m.overhead + least;
    if (m.minimum < r->usage.plan_peak) m.minimum = r->usage.plan_peak;
    m.budget = budget_of(r);
    m.asked = asked_of(r);
    if (m.budget && m.budget < planned + m.overhead &&
        m.budget >= planned + base + margin_of(r, true))
        m.overhead = m.budget - planned;
    m.total = planned + m.overhead;
    m.fits = m.budget == 0 || (m.total <= m.budget && r->usage.plan_peak <= m.budget);
    return m;
}

/* A driver takes its time to answer, and nothing is allocated between steps: it is asked now and
 * then. */
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
