/* process_budget.c - see process_budget.h.
 *
 * Idea: measure, plan, measure again. On the host everything that the process holds counts, the
 * planner too. While the planner searches, neither arena nor state is mapped, so the search may use
 * the memory that they will take later; how much it uses is measured (plan_peak), and no budget
 * below that is reported as the minimum or said to fit. What stays after planning, the longer graph
 * of a plan that recomputes, is measured with that plan and reduces the arena's room.
 *
 * Invariant: where `fits` is reported, arena + state + overhead <= budget. Cost: at most four
 * rounds; one in the common case, since the host memory of plans is predicted.
 *
 * Example: the budget is 2 GiB on the CPU. The process holds 60 MB, state has 400 MB, data readers
 * will take 20 MB, the margin is 15 MB: 2147 - 60 - 400 - 20 - 15 = 1652 MB are left to the arena.
 * The keep-all plans of train and eval have 1900 MB and 700 MB, so only train is planned again. Its
 * longer graph is predicted to take 6 MB, so the search gets 1646 MB; it finds a plan of 1630 MB.
 * Measured again the process holds 66 MB: room is 1646 MB, 1630 MB fit.
 */
#include "rt/process_budget.h"

#include "base/arena.h"
#include "base/str.h"
#include "base/sys.h"
#include "rt/device.h"

/* ---- what programs need ----------------------------------------------------------------- */
/* Returns the largest of the programs' arenas; minimum: of the smallest arenas found. */
static uint64_t arena_of(const pl_process_budget *b, bool minimum)
{
    uint64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        const pl_plan_info *p = pl_program_plan(b->programs[i]);
        uint64_t arena = minimum && p->minimum_bytes ? p->minimum_bytes : p->arena_bytes;
        if (arena > most) most = arena;
    }
    return most;
}

static uint64_t minimum_takes(const pl_program *p)
{
    return pl_budget_figures_get(pl_program_budget(p)).minimum_host_bytes;
}

/* Returns the host memory of plans with the smallest arenas, beyond that of the plans that are set:
 * a budget that is reported as the minimum must suffice for the process that gets it. */
static uint64_t replan_bytes(const pl_process_budget *b)
{
    uint64_t bytes = 0;
    for (int i = 0; i < b->n && b->on_host; i++) {
        const pl_plan_info *p = pl_program_plan(b->programs[i]);
        if (p->minimum_bytes && p->minimum_bytes < p->arena_bytes)
            bytes += minimum_takes(b->programs[i]);
    }
    return bytes;
}

/* Returns the host memory of the plans that are set and whose arena is larger than this. */
static uint64_t plans_above(const pl_process_budget *b, uint64_t arena)
{
    uint64_t bytes = 0;
    for (int i = 0; i < b->n && b->on_host; i++)
        if (pl_program_plan(b->programs[i])->arena_bytes > arena)
            bytes += pl_budget_figures_get(pl_program_budget(b->programs[i])).host_bytes;
    return bytes;
}

uint64_t pl_process_stage_bytes(const pl_process_budget *b)
{
    uint64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        uint64_t bytes = pl_program_stage_bytes(b->programs[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void note_peak(pl_process_budget *b)
{
    uint64_t used = b->on_host ? b->used(b->ctx) : 0;
    if (used > b->plan_peak) b->plan_peak = used;
}

/* ---- the minimum ------------------------------------------------------------------------ */
/* Returns the program not yet asked whose smallest arena is probably the largest, by its bound. -1:
 * none. */
static int next_to_ask(const pl_process_budget *b, const uint64_t *bound, const bool *asked)
{
    int at = -1;
    for (int i = 0; i < b->n; i++)
        if (!asked[i] && (at < 0 || bound[i] > bound[at])) at = i;
    return at;
}

/* The program with the largest arena may have a plan with a larger arena that takes less together
 * with its graph. */
static pl_status try_lean(const pl_process_budget *b, const pl_program *p, uint64_t *bytes)
{
    uint64_t arena, takes;
    PL_TRY(pl_budget_lean(pl_program_budget(p), &arena, &takes));
    uint64_t total = arena + takes + replan_bytes(b) - minimum_takes(p);
    if (total < *bytes) *bytes = total;
    return PL_OK;
}

/* Programs share one arena, so a program does not need a smaller arena than another one does: the
 * need of the first programs is `enough` for the next. */
static pl_status find_minimum(pl_process_budget *b, uint64_t *bound, bool *asked, uint64_t *bytes)
{
    const pl_program *largest = NULL;
    uint64_t arena = 0, minimum;
    for (int i = 0; i < b->n; i++) {
        pl_budget_limit(pl_program_budget(b->programs[i]), b->stop, 0);
        PL_TRY(pl_budget_bound(pl_program_budget(b->programs[i]), &bound[i]));
    }
    for (int i; (i = next_to_ask(b, bound, asked)) >= 0;) {
        pl_program *p = b->programs[i];
        asked[i] = true;
        if (pl_program_plan(p)->arena_bytes <= arena) {
            pl_budget_trim(pl_program_budget(p));
            continue;
        }
        PL_TRY(pl_program_minimum(p, arena, &minimum));
        note_peak(b);
        if (minimum <= arena) continue;
        largest = p;
        arena = minimum;
    }
    *bytes = arena + replan_bytes(b);
    return b->on_host && largest ? try_lean(b, largest, bytes) : PL_OK;
}

pl_status pl_process_minimum(pl_process_budget *b, uint64_t *bytes)
{
    pl_arena mem = PL_ARENA_INIT;
    uint64_t *bound = pl_arena_new(&mem, uint64_t, b->n + 1);
    bool *asked = pl_arena_new(&mem, bool, b->n + 1);
    pl_status rc = bound && asked ? find_minimum(b, bound, asked, bytes) : PL_ERR_MEMORY;
    pl_arena_release(&mem);
    return rc;
}

/* ---- plans for a budget ----------------------------------------------------------------- */
/* Half of what the process may still take is for candidate lists of a search. */
static uint64_t search_bytes(const pl_process_budget *b)
{
    if (!b->on_host) return 0;
    uint64_t used = b->used(b->ctx);
    return b->bytes > used + 1 ? (b->bytes - used) / 2 : 1;
}

/* Plans within an arena. Where no plan is found the current plans stay. */
static pl_status plan_within(pl_process_budget *b, uint64_t arena)
{
    char state[32];
    PL_FAIL_IF(
        arena == 0 && arena_of(b, false), PL_ERR_FIT,
        "weights, optimizer state (%s together) and overhead leave nothing of the budget to the arena",
        pl_str_bytes(b->state_bytes, state, sizeof state));
    for (int i = 0; i < b->n; i++) {
        pl_program *p = b->programs[i];
        if (pl_program_plan(p)->arena_bytes <= arena) continue;
        pl_budget_limit(pl_program_budget(p), b->stop, search_bytes(b));
        pl_status rc = pl_program_set_budget(p, arena);
        note_peak(b);
        PL_TRY(rc);
    }
    return PL_OK;
}

/* Subtracts the predicted host memory of plans from the arena, so that one search suffices. The
 * part of the margin that is_near allows a plan to lack is not subtracted. */
static pl_status foresee(const pl_process_budget *b, uint64_t *arena)
{
    uint64_t taken = 0, bytes, spare = b->margin / 16;
    for (int i = 0; i < b->n && b->on_host; i++) {
        pl_budget *one = pl_program_budget(b->programs[i]);
        if (pl_program_plan(b->programs[i])->arena_bytes <= *arena) continue;
        pl_budget_limit(one, b->stop, 0);
        PL_TRY(pl_budget_foresee(one, *arena, &bytes));
        taken += bytes;
    }
    taken -= taken < spare ? taken : spare;
    *arena -= taken < *arena ? taken : *arena;
    return PL_OK;
}

static pl_status plan_foreseeing(pl_process_budget *b, uint64_t room)
{
    uint64_t arena = room;
    PL_TRY(foresee(b, &arena));
    pl_status rc = plan_within(b, arena);
    return rc == PL_ERR_FIT && arena < room ? plan_within(b, room) : rc;
}

/* Frees what only planning needs: the process that trains does not hold it. */
static void trim(const pl_process_budget *b)
{
    for (int i = 0; i < b->n; i++) pl_budget_trim(pl_program_budget(b->programs[i]));
    pl_sys_trim();
}

/* Returns the bytes that the budget leaves to the arena; 0: none. */
static uint64_t room_for_arena(const pl_process_budget *b, uint64_t margin)
{
    uint64_t taken =
        b->state_bytes + b->used(b->ctx) + pl_process_stage_bytes(b) + b->later_bytes + margin;
    return b->bytes > taken ? b->bytes - taken : 0;
}

uint64_t pl_process_room(const pl_process_budget *b)
{
    return room_for_arena(b, b->margin);
}

/* One measurement of the process, the smallest of all ranks. */
typedef struct look {
    uint64_t room;  /* for the arena, with the whole margin */
    uint64_t small; /* with the small margin */
    uint64_t fits;  /* 0 or 1: the plans that are set fit */
} look;

static pl_status look_at_process(const pl_process_budget *b, look *l)
{
    *l = (look){.room = room_for_arena(b, b->margin),
                .small = room_for_arena(b, b->small_margin),
                .fits = pl_process_memory_get(b, NULL).fits};
    PL_TRY(b->smallest(b->ctx, &l->room));
    PL_TRY(b->smallest(b->ctx, &l->small));
    return b->smallest(b->ctx, &l->fits);
}

/* Whether the plans leave the small margin and lack less of the whole margin than a search for
 * smaller plans would take of the host. A process whose budget is the minimum that another process
 * reported may lack some pages of it. */
static bool is_near(const pl_process_budget *b, const look *l)
{
    uint64_t lacks = arena_of(b, false) - l->room;
    return l->fits && lacks <= b->margin / 6 && lacks <= plans_above(b, l->room);
}

/* A plan is accepted with the whole margin: the part of it that a report may shrink covers what
 * changes between this measurement and the next one. Where no plan leaves the whole margin, a plan
 * that leaves the small one is accepted. */
pl_status pl_process_plan(pl_process_budget *b)
{
    enum { ROUNDS = 4 };
    pl_status rc = PL_OK;
    for (int round = 0; round < ROUNDS && b->bytes; round++) {
        look l;
        PL_TRY(look_at_process(b, &l));
        if (arena_of(b, false) <= l.room || is_near(b, &l)) break;
        rc = round ? plan_within(b, l.room) : plan_foreseeing(b, l.room);
        bool tight = rc == PL_ERR_FIT;
        if (tight && l.fits) rc = PL_OK;
        if (tight && !l.fits && l.small > l.room) rc = plan_within(b, l.small);
        trim(b);
        PL_TRY(look_at_process(b, &l));
        if (rc != PL_OK || (tight && l.fits)) break;
    }
    return rc;
}

/* ---- reports ---------------------------------------------------------------------------- */
pl_process_memory pl_process_memory_get(const pl_process_budget *b, const pl_session *session)
{
    pl_process_memory m = {.arena = arena_of(b, false), .state = b->state_bytes};
    if (session) {
        m.arena = pl_session_arena_bytes(session);
        m.state = pl_session_state_bytes(session);
    }
    uint64_t planned = m.arena + m.state, mapped = session ? planned : 0;
    uint64_t used = !session && b->used_then ? b->used_then : b->used(b->ctx);
    uint64_t held = used > mapped ? used - mapped : 0;
    if (!session) held += pl_process_stage_bytes(b) + b->later_bytes;
    m.overhead = held + b->margin;
    uint64_t smallest = b->n ? arena_of(b, true) + replan_bytes(b) : 0;
    if (smallest > m.arena) smallest = m.arena;
    if (b->known_minimum && b->known_minimum < smallest) smallest = b->known_minimum;
    m.minimum = m.state + m.overhead + smallest;
    if (m.minimum < b->plan_peak) m.minimum = b->plan_peak;
    bool shrinks =
        b->bytes && b->bytes < planned + m.overhead && b->bytes >= planned + held + b->small_margin;
    if (shrinks) m.overhead = b->bytes - planned;
    m.total = planned + m.overhead;
    m.fits = !b->bytes || (m.total <= b->bytes && b->plan_peak <= b->bytes);
    return m;
}
