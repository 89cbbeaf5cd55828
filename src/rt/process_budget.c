/* process_budget.c - see process_budget.h.
 *
 * Idea: on the host everything that the process holds is counted, not measured, so that the room
 * for arena and plans is known before the first search and is the same in every process. A plan
 * that recomputes takes its graph's host memory besides its arena, and searches limit the sum.
 *
 * While the planner searches, neither arena nor state is mapped: the search uses the memory that
 * they will take later. With a budget that is too small for a search, only the keep-all plans are
 * tried.
 *
 * Invariant: where `fits` is reported, arena + state + overhead <= budget. Cost: one search per
 * program that does not fit; more only where several programs recompute.
 *
 * Example: the budget is 2 GiB on the CPU. Program, libraries and keep-all plans hold 60 MB, state
 * has 400 MB, data readers will take 20 MB, the margin is 2 MB: 2147 - 60 - 400 - 20 - 2 = 1665 MB
 * are left. The keep-all plans of train and eval have arenas of 1900 MB and 700 MB, so only train
 * is planned again, within 1665 MB. Its cheapest plan has an arena of 1650 MB and a graph of 6 MB.
 */
#include "rt/process_budget.h"

#include "base/arena.h"
#include "base/str.h"
#include "base/sys.h"
#include "rt/device.h"

/* ---- what programs need ----------------------------------------------------------------- */
static uint64_t arena_of(const pl_process_budget *b)
{
    uint64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        uint64_t arena = pl_program_plan(b->programs[i])->arena_bytes;
        if (arena > most) most = arena;
    }
    return most;
}

/* Returns the host memory of a program's plan where that counts. */
static uint64_t plan_bytes(const pl_process_budget *b, int i)
{
    return b->on_host ? pl_budget_figures_get(pl_program_budget(b->programs[i])).host_bytes : 0;
}

static uint64_t plans_of(const pl_process_budget *b)
{
    uint64_t bytes = 0;
    for (int i = 0; i < b->n; i++) bytes += plan_bytes(b, i);
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

/* Returns everything besides state, arena and plans, without the margin. */
static uint64_t held_of(const pl_process_budget *b)
{
    uint64_t held = b->on_host ? b->held_bytes : b->used(b->ctx);
    return held + pl_process_stage_bytes(b) + b->later_bytes;
}

/* Returns the room that a search needs: it may use what state, arena and data will take later. */
static uint64_t search_room(const pl_process_budget *b)
{
    uint64_t most = 0, later = b->state_bytes + b->later_bytes;
    for (int i = 0; i < b->n && b->on_host; i++) {
        uint64_t bytes = pl_program_held_get(b->programs[i]).search_bytes;
        if (bytes > most) most = bytes;
    }
    return most > later ? most - later : 0;
}

static void note_peak(pl_process_budget *b)
{
    uint64_t used = b->on_host ? b->used(b->ctx) : 0;
    if (used > b->plan_peak) b->plan_peak = used;
}

/* Prepares a program's next search. Candidate lists may use half of the memory that the process has
 * left. */
static void limit_search(const pl_process_budget *b, int i, uint64_t room)
{
    pl_budget *one = pl_program_budget(b->programs[i]);
    uint64_t lists = (room + b->state_bytes + b->later_bytes) / 2 + 1;
    pl_budget_count_plans(one, b->on_host);
    pl_budget_limit(one, b->stop, b->on_host && b->bytes ? lists : 0);
    pl_budget_quick(one, b->quick);
}

void pl_process_pause(const pl_process_budget *b)
{
    for (int i = 0; i < b->n; i++) pl_budget_pause(pl_program_budget(b->programs[i]));
    pl_sys_trim();
}

void pl_process_trim(const pl_process_budget *b)
{
    for (int i = 0; i < b->n; i++) pl_budget_trim(pl_program_budget(b->programs[i]));
    pl_sys_trim();
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

/* Sets *room to the smallest arena of all programs plus the host memory of their plans, and
 * limit[i] to the budget that gives program i its plan then; 0: its keep-all plan. Programs share
 * one arena, so a program does not need a smaller arena than another one does: the need of the
 * first programs is `enough` for the next. */
static pl_status find_smallest(pl_process_budget *b, uint64_t *bound, bool *asked, uint64_t *limit,
                               uint64_t *room)
{
    uint64_t arena = 0, plans = 0;
    for (int i = 0; i < b->n; i++) {
        limit_search(b, i, UINT64_MAX / 4);
        PL_TRY(pl_budget_bound(pl_program_budget(b->programs[i]), &bound[i]));
    }
    for (int i; (i = next_to_ask(b, bound, asked)) >= 0;) {
        pl_program *p = b->programs[i];
        uint64_t keep_all = pl_program_plan(p)->keep_all_bytes;
        asked[i] = true;
        if (keep_all > arena || !pl_budget_may_keep_all(pl_program_budget(p))) {
            uint64_t size, host = pl_budget_least_host_bytes(pl_program_budget(p));
            PL_TRY(pl_program_minimum(p, arena ? arena + host : 0, &size));
            note_peak(b);
            uint64_t held = pl_budget_figures_get(pl_program_budget(p)).minimum_host_bytes;
            plans += held;
            if (size - held > arena) arena = size - held;
            limit[i] = size;
        }
        if (b->on_host) pl_budget_pause(pl_program_budget(p));
    }
    *room = arena + plans;
    return PL_OK;
}

/* Plans every program with its smallest size, or finds the room that this takes. */
static pl_status plan_smallest(pl_process_budget *b, bool set, uint64_t *room)
{
    pl_arena mem = PL_ARENA_INIT;
    uint64_t *bound = pl_arena_new(&mem, uint64_t, b->n + 1);
    uint64_t *limit = pl_arena_new(&mem, uint64_t, b->n + 1);
    bool *asked = pl_arena_new(&mem, bool, b->n + 1);
    pl_status rc = bound && asked && limit ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = find_smallest(b, bound, asked, limit, room);
    for (int i = 0; i < b->n && rc == PL_OK && set; i++)
        rc = pl_program_set_budget(b->programs[i], limit[i]);
    pl_arena_release(&mem);
    return rc;
}

/* Returns the arena of the keep-all plans; UINT64_MAX where a plan without moves or without marked
 * segments does not exist. */
static uint64_t keep_all_room(const pl_process_budget *b)
{
    uint64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        uint64_t arena = pl_program_plan(b->programs[i])->keep_all_bytes;
        if (!pl_budget_may_keep_all(pl_program_budget(b->programs[i]))) return UINT64_MAX;
        if (arena > most) most = arena;
    }
    return most;
}

uint64_t pl_process_keep_all(const pl_process_budget *b)
{
    uint64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        uint64_t arena = pl_program_plan(b->programs[i])->keep_all_bytes;
        if (!pl_budget_has_keep_all(pl_program_budget(b->programs[i]))) return UINT64_MAX;
        if (arena > most) most = arena;
    }
    return b->state_bytes + held_of(b) + b->margin + most;
}

pl_status pl_process_minimum(pl_process_budget *b, uint64_t *bytes)
{
    uint64_t room = 0, all = keep_all_room(b), search = search_room(b);
    if (all > search) PL_TRY(plan_smallest(b, false, &room)); /* else keep-all is the smallest */
    if (room < search) room = search;
    if (room > all) room = all;
    *bytes = b->state_bytes + held_of(b) + b->margin + room;
    if (*bytes < b->start_bytes) *bytes = b->start_bytes;
    return PL_OK;
}

/* ---- plans for a budget ----------------------------------------------------------------- */
/* Plans the programs that do not fit the room, each within the memory that the plans of the other
 * programs leave. *done: all fit. */
static pl_status plan_each(pl_process_budget *b, uint64_t room, bool *done)
{
    *done = true;
    for (int i = 0; i < b->n; i++) {
        pl_program *p = b->programs[i];
        uint64_t own = plan_bytes(b, i), others = plans_of(b) - own;
        if (pl_program_plan(p)->arena_bytes + own + others <= room) continue;
        *done = false;
        limit_search(b, i, room);
        pl_status rc = pl_program_set_budget(p, room > others ? room - others : 1);
        note_peak(b);
        if (b->on_host) pl_budget_pause(pl_program_budget(p));
        PL_TRY(rc);
    }
    return PL_OK;
}

/* Returns the host memory that plans of other programs than i will take at least. */
static uint64_t least_plans(const pl_process_budget *b, int i, uint64_t room)
{
    uint64_t bytes = 0;
    for (int k = 0; k < b->n; k++)
        if (k != i && pl_program_plan(b->programs[k])->keep_all_bytes > room)
            bytes += pl_budget_least_host_bytes(pl_program_budget(b->programs[k]));
    return bytes;
}

/* Refuses the room where one program does not fit what plans of the others leave. These plans,
 * which take seconds, are then not searched for. The first program that needs a plan is not asked:
 * plan_each asks it first. */
static pl_status check_each(const pl_process_budget *b, uint64_t room)
{
    bool may = true, first = true;
    for (int i = 0; i < b->n; i++) limit_search(b, i, room);
    for (int i = 0; i < b->n && may; i++) {
        pl_program *p = b->programs[i];
        uint64_t others = least_plans(b, i, room), left = room > others ? room - others : 1;
        bool asked_first = first && pl_program_plan(p)->keep_all_bytes > room;
        if (asked_first) first = false;
        if (asked_first) continue;
        PL_TRY(pl_budget_may_fit(pl_program_budget(p), left, &may));
        pl_status rc = may ? PL_OK : pl_program_set_budget(p, left);
        if (b->on_host) pl_budget_pause(pl_program_budget(p));
        PL_TRY(rc);
    }
    return PL_OK;
}

/* Plans within a room. Where no plan is found the current plans stay. */
static pl_status plan_within(pl_process_budget *b, uint64_t room)
{
    enum { ROUNDS = 4 };
    char state[32], has[32], needs[32];
    uint64_t search = search_room(b), smallest;
    bool done = false;
    PL_FAIL_IF(
        room == 0 && arena_of(b), PL_ERR_FIT,
        "weights, optimizer state (%s together) and overhead leave nothing of the budget to the arena",
        pl_str_bytes(b->state_bytes, state, sizeof state));
    PL_FAIL_IF(room < search && keep_all_room(b) > room, PL_ERR_FIT,
               "the search for a plan needs %s, the budget leaves it %s",
               pl_str_bytes(search + b->state_bytes + b->later_bytes, needs, sizeof needs),
               pl_str_bytes(room + b->state_bytes + b->later_bytes, has, sizeof has));
    PL_TRY(check_each(b, room));
    pl_status rc = PL_OK;
    for (int round = 0; round < ROUNDS && rc == PL_OK && !done; round++)
        rc = plan_each(b, room, &done);
    if (!b->on_host || done || (rc != PL_OK && rc != PL_ERR_FIT)) return rc;
    /* plans of several programs are in each other's way */
    bool several = plans_of(b) != 0;
    if (several) rc = plan_smallest(b, true, &smallest);
    PL_TRY(rc);
    PL_FAIL_IF(arena_of(b) + plans_of(b) > room, PL_ERR_FIT,
               "the smallest plans of all programs need %s, the budget leaves %s",
               pl_str_bytes(arena_of(b) + plans_of(b), needs, sizeof needs),
               pl_str_bytes(room, has, sizeof has));
    return PL_OK;
}

static uint64_t room_for_plans(const pl_process_budget *b, uint64_t margin)
{
    uint64_t taken = b->state_bytes + held_of(b) + margin;
    return b->bytes > taken ? b->bytes - taken : 0;
}

uint64_t pl_process_room(const pl_process_budget *b)
{
    return room_for_plans(b, b->margin);
}

/* A plan is accepted with the whole margin. Where none leaves it, a plan that leaves the small
 * margin is. */
pl_status pl_process_plan(pl_process_budget *b)
{
    char start[32];
    if (!b->bytes) return PL_OK;
    PL_FAIL_IF(b->bytes < b->start_small, PL_ERR_FIT,
               "the program and its libraries take %s before they plan, more than the budget",
               pl_str_bytes(b->start_small, start, sizeof start));
    for (int i = 0; i < b->n; i++) pl_program_limit_memory(b->programs[i]);
    uint64_t room = room_for_plans(b, b->margin), small = room_for_plans(b, b->small_margin);
    uint64_t fits = pl_process_memory_get(b, NULL).fits;
    PL_TRY(b->smallest(b->ctx, &room));
    PL_TRY(b->smallest(b->ctx, &small));
    PL_TRY(b->smallest(b->ctx, &fits));
    if (arena_of(b) + plans_of(b) <= room) return PL_OK;
    pl_status rc = plan_within(b, room);
    if (rc == PL_ERR_FIT && fits)
        rc = PL_OK;
    else if (rc == PL_ERR_FIT && small > room)
        rc = plan_within(b, small);
    pl_process_pause(b);
    return rc;
}

/* ---- reports ---------------------------------------------------------------------------- */
/* Returns the overhead without the margin. On a device with a session it is measured: what the
 * session mapped is in use. */
static uint64_t overhead_of(const pl_process_budget *b, uint64_t mapped, bool session)
{
    if (b->on_host) return held_of(b) + plans_of(b);
    uint64_t used = !session && b->used_then ? b->used_then : b->used(b->ctx);
    uint64_t held = used > mapped ? used - mapped : 0;
    return session ? held : held + pl_process_stage_bytes(b) + b->later_bytes;
}

pl_process_memory pl_process_memory_get(const pl_process_budget *b, const pl_session *session)
{
    pl_process_memory m = {.arena = arena_of(b), .state = b->state_bytes};
    if (session) {
        m.arena = pl_session_arena_bytes(session);
        m.state = pl_session_state_bytes(session);
    }
    uint64_t planned = m.arena + m.state;
    uint64_t held = overhead_of(b, session ? planned : 0, session != NULL);
    m.overhead = held + b->margin;
    if (planned + m.overhead < b->start_bytes) m.overhead = b->start_bytes - planned;
    m.minimum = planned + m.overhead;
    if (b->known_minimum && b->known_minimum < m.minimum) m.minimum = b->known_minimum;
    bool shrinks = b->bytes >= b->start_small && b->bytes && b->bytes < planned + m.overhead &&
                   b->bytes >= planned + held + b->small_margin;
    if (shrinks) m.overhead = b->bytes - planned;
    m.total = planned + m.overhead;
    m.fits = !b->bytes || m.total <= b->bytes;
    return m;
}
