/* process_levels.c - see process_levels.h.
 *
 * Order of slots: by the moves that one step needs for each byte that leaves the device (reads by
 * kernels, plus the store of the new value). So frozen weights that are read once go first, moments
 * and averages next, weights that train last; after all of them those whose update comes so late
 * that no kernel hides the store. Among slots with as many moves the largest go first: a few large
 * moves have less fixed cost than many small ones. Slots that are alike in all this are taken from
 * everywhere in the step, so that their moves are spread over it.
 *
 * That order gives a move the same cost at every position. Where kernels wait for a channel in one
 * part of the step only, slots that move in the other parts should leave first. So for the best
 * candidate orders are tried in which one group of slots leaves before the others.
 *
 * The time of every candidate is estimated; the fastest is planned. Where it does not fit after
 * all, the next ones with more slots below the device are. On a GPU the plan with all slots on the
 * device, which may recompute and move nothing, stays if it is not slower.
 *
 * Candidates are prefixes with a fixed share of all movable bytes, the same for every budget: a
 * larger budget considers all plans that a smaller one does.
 */
#include "rt/levels/process_levels.h"

#include "base/str.h"
#include "base/sys.h"
#include "plan/levels/gaps.h"
#include "rt/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES = 24, SMALLEST = 4096 };

typedef struct movable {
    int slot, moves;
    uint64_t bytes;
    bool late;      /* no kernel hides the store of its new value */
    uint32_t place; /* among slots that are alike: spread over all of them */
} movable;

static int by_traffic(const void *a, const void *b)
{
    const movable *x = a, *y = b;
    if (x->late != y->late) return x->late ? 1 : -1;
    if (x->moves != y->moves) return x->moves - y->moves;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->slot - y->slot;
}

/* Gives slots that are alike, which are consecutive in the order of their numbers, places by
 * multiples of the golden ratio: every first part of them is spread over the whole. */
static void spread_alike(movable *list, int n)
{
    for (int i = 1; i < n; i++) {
        const movable *before = &list[i - 1];
        bool alike = list[i].moves == before->moves && list[i].late == before->late &&
                     list[i].bytes == before->bytes;
        if (alike) list[i].place = before->place + 2654435769u;
    }
}

static const pl_store *store_of(const pl_process_budget *b)
{
    return b->n ? pl_program_store(b->programs[0]) : NULL;
}

/* Sets slack[slot] to the time that kernels of a step still run when the slot has its new value:
 * the least of all programs. */
static pl_status find_slack(const pl_process_budget *b, const pl_process_levels *l, int slots,
                            double *slack)
{
    for (int s = 0; s < slots; s++) slack[s] = HUGE_VAL;
    for (int i = 0; i < b->n; i++)
        if (l->weight(b->ctx, b->programs[i]) > 0)
            PL_TRY(pl_program_slot_slack(b->programs[i], slack));
    return PL_OK;
}

/* Lists the slots that all programs allow to live below the device. */
static pl_status list_movable(const pl_process_budget *b, const pl_process_levels *l, pl_arena *mem,
                              movable **out, int *n)
{
    const pl_store *store = store_of(b);
    int slots = store ? pl_store_count(store) : 0;
    uint8_t level = l->budget[PL_LEVEL_HOST] ? PL_LEVEL_HOST : PL_LEVEL_DISK;
    double *slack = pl_arena_new(mem, double, slots + 1);
    *out = pl_arena_new(mem, movable, slots + 1);
    *n = 0;
    if (!*out || !slack) return PL_ERR_MEMORY;
    PL_TRY(find_slack(b, l, slots, slack));
    for (int s = 0; s < slots; s++) {
        movable m = {.slot = s, .bytes = pl_slot_bytes(pl_store_slot(store, s))};
        bool may = m.bytes >= SMALLEST && !l->must[s];
        for (int i = 0; i < b->n && may; i++) {
            bool assigned;
            may = pl_program_slot_may_move(b->programs[i], s);
            m.moves += pl_program_slot_uses(b->programs[i], s, &assigned);
            m.moves += assigned;
        }
        m.late = slack[s] < pl_gap_store_ns(&l->opts, level, m.bytes);
        if (may) (*out)[(*n)++] = m;
    }
    qsort(*out, (size_t)*n, sizeof **out, by_traffic);
    spread_alike(*out, *n);
    qsort(*out, (size_t)*n, sizeof **out, by_traffic);
    return PL_OK;
}

/* Gives a slot a home at a level. */
static void place_slot(pl_process_levels *l, int slot, uint64_t bytes, uint8_t level)
{
    l->homes.level[slot] = level;
    l->homes.offset[slot] = l->homes.bytes[level];
    l->homes.bytes[level] += pl_level_round_up(bytes);
    l->freed_bytes += (bytes + PL_PLAN_ALIGN - 1) / PL_PLAN_ALIGN * PL_PLAN_ALIGN;
}

/* Returns the bytes of a level that slots may take, where one of them has `bytes`: values pass
 * through a part of the host on their way to disk, at least two at a time. */
static uint64_t room_of(const pl_process_levels *l, uint8_t level, uint64_t bytes)
{
    uint64_t transit = l->opts.transit;
    if (level == PL_LEVEL_HOST) return l->budget[level] - transit;
    return transit && bytes > transit / 2 ? 0 : l->budget[level];
}

/* Gives homes to the slots of programs on the host, then to the first slots of the list with at
 * least that share of its bytes; a slot for which no level has room stays. */
static void place_slots(pl_process_levels *l, const pl_store *store, const movable *list, int n,
                        int share)
{
    uint64_t all = 0, taken = 0;
    memset(l->homes.level, 0, l->homes.n);
    memset(l->homes.bytes, 0, sizeof l->homes.bytes);
    l->freed_bytes = 0;
    for (int s = 0; s < (int)l->homes.n; s++)
        if (l->must[s]) place_slot(l, s, pl_slot_bytes(pl_store_slot(store, s)), PL_LEVEL_HOST);
    for (int i = 0; i < n; i++) all += list[i].bytes;
    for (int i = 0; i < n && taken < all / SHARES * (uint64_t)share; i++) {
        uint64_t bytes = pl_level_round_up(list[i].bytes);
        uint8_t level = 1;
        taken += list[i].bytes;
        while (level < PL_N_LEVELS && l->homes.bytes[level] + bytes > room_of(l, level, bytes))
            level++;
        if (level < PL_N_LEVELS) place_slot(l, list[i].slot, list[i].bytes, level);
    }
}

/* Gives homes to the slots of a candidate; b becomes the budget of a process with them. */
static void take_share(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                       int share, uint64_t state)
{
    place_slots(l, store_of(b), list, n, share);
    memcpy(l->opts.capacity, l->budget, sizeof l->opts.capacity);
    l->opts.homes = &l->homes;
    b->state_bytes = state - l->freed_bytes;
    if (l->later) b->later_bytes = l->later(b->ctx);
}

/* Whether a candidate may be within the budget: no program is known to need more. */
static pl_status may_fit(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                         int share, uint64_t state, bool *may)
{
    take_share(b, l, list, n, share, state);
    uint64_t room = pl_process_room(b), bound, yes = 1;
    for (int i = 0; i < b->n && yes; i++) {
        pl_budget_levels(pl_program_budget(b->programs[i]), &l->opts);
        PL_TRY(pl_budget_levels_bound(pl_program_budget(b->programs[i]), &bound));
        yes = bound <= room;
        if (b->on_host) pl_budget_pause(pl_program_budget(b->programs[i]));
    }
    PL_TRY(b->smallest(b->ctx, &yes));
    *may = yes;
    return PL_OK;
}

/* Gives homes to the slots of a candidate, in the programs too. */
static pl_status set_share(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                           int share, uint64_t state)
{
    take_share(b, l, list, n, share, state);
    for (int i = 0; i < b->n; i++) {
        PL_TRY(pl_program_set_levels(b->programs[i], &l->opts, l->disk_dir));
        if (b->on_host) pl_budget_pause(pl_program_budget(b->programs[i])); /* its memory counts */
    }
    pl_sys_trim();
    return PL_OK;
}

/* Finds the smallest budget of the candidate that is set; UINT64_MAX: it has none. */
static pl_status find_need(pl_process_budget *b, uint64_t *needs)
{
    *needs = UINT64_MAX;
    pl_status rc = pl_process_minimum(b, needs);
    for (int i = 0; i < b->n && b->on_host; i++) pl_budget_pause(pl_program_budget(b->programs[i]));
    return rc == PL_ERR_FIT ? PL_OK : rc;
}

/* Plans a candidate. *fits: it is within the budget. On the host, where plans of several programs
 * take each other's memory, a candidate that needs more than the budget is not searched. */
static pl_status try_share(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                           int share, uint64_t state, bool *fits)
{
    uint64_t needs = 0;
    PL_TRY(set_share(b, l, list, n, share, state));
    if (b->on_host) PL_TRY(find_need(b, &needs));
    PL_TRY(b->smallest(b->ctx, &needs));
    *fits = false;
    if (needs > b->bytes) return PL_OK;
    pl_status rc = pl_process_plan(b);
    pl_process_memory m = pl_process_memory_get(b, NULL);
    uint64_t fit = rc == PL_OK && m.fits;
    PL_TRY(rc == PL_ERR_FIT ? PL_OK : rc);
    PL_TRY(b->smallest(b->ctx, &fit));
    *fits = fit;
    return PL_OK;
}

static pl_status make_homes(const pl_process_budget *b, pl_process_levels *l)
{
    const pl_store *store = store_of(b);
    l->homes.n = store ? (uint32_t)pl_store_count(store) : 0;
    l->homes.level = pl_arena_new(&l->mem, uint8_t, l->homes.n + 1);
    l->homes.offset = pl_arena_new(&l->mem, uint64_t, l->homes.n + 1);
    l->must = pl_arena_new(&l->mem, bool, l->homes.n + 1);
    return l->homes.level && l->homes.offset && l->must ? PL_OK : PL_ERR_MEMORY;
}

/* Finds the slots that programs on the host use, and whether they can live there. */
static pl_status find_must(const pl_process_budget *b, pl_process_levels *l)
{
    const pl_store *store = store_of(b);
    uint64_t bytes = 0;
    char need[32], have[32];
    for (int s = 0; s < (int)l->homes.n; s++) {
        for (int i = 0; i < l->n_host && !l->must[s]; i++)
            l->must[s] = pl_program_uses_slot(l->host_programs[i], s);
        if (l->must[s]) bytes += pl_level_round_up(pl_slot_bytes(pl_store_slot(store, s)));
        for (int i = 0; i < b->n && l->must[s]; i++)
            PL_FAIL_IF(!pl_program_slot_may_move(b->programs[i], s), PL_ERR_UNSUPPORTED,
                       "the update cannot run on the host: a program on the device outputs \"%s\" "
                       "or copies it to another slot",
                       pl_store_slot(store, s)->name);
    }
    PL_FAIL_IF(bytes > l->budget[PL_LEVEL_HOST], PL_ERR_FIT,
               "updates on the host need %s of host memory for weights, gradients and optimizer "
               "state; host_memory leaves %s",
               pl_str_bytes(bytes, need, sizeof need),
               pl_str_bytes(l->budget[PL_LEVEL_HOST], have, sizeof have));
    return PL_OK;
}

static double keep_all_ns(const pl_process_budget *b, const pl_process_levels *l)
{
    double sum = 0;
    for (int i = 0; i < b->n; i++)
        sum +=
            1e6 * l->weight(b->ctx, b->programs[i]) * pl_program_plan(b->programs[i])->keep_all_ms;
    return sum;
}

/* Estimates the time of a step with a candidate; HUGE_VAL where it is not expected to fit. */
static pl_status estimate_share(pl_process_budget *b, pl_process_levels *l, const movable *list,
                                int n, int share, uint64_t state, double *ns)
{
    take_share(b, l, list, n, share, state);
    uint64_t room = pl_process_room(b);
    PL_TRY(b->smallest(b->ctx, &room));
    *ns = 0;
    uint64_t plans = 0;
    for (int i = 0; i < b->n; i++) {
        pl_budget_levels(pl_program_budget(b->programs[i]), &l->opts);
        plans += pl_budget_held_guess(pl_program_budget(b->programs[i]));
    }
    for (int i = 0; i < b->n && *ns < HUGE_VAL; i++) {
        pl_budget *of = pl_program_budget(b->programs[i]);
        double one = HUGE_VAL, weight = l->weight(b->ctx, b->programs[i]);
        uint64_t others = plans - pl_budget_held_guess(of);
        if (weight <= 0) continue;
        if (room > others) PL_TRY(pl_budget_levels_ns(of, room - others, &one));
        *ns += weight * one;
    }
    return PL_OK;
}

/* Sets *best to the share with the fastest estimate; -1: none is expected to fit. */
static pl_status find_share(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                            uint64_t state, int *best, double *best_ns)
{
    double least = HUGE_VAL, ns, kept = keep_all_ns(b, l);
    int slower = 0;
    *best = -1;
    for (int share = 0; share <= SHARES && (share == 0 || n) && slower < 3; share++) {
        PL_TRY(estimate_share(b, l, list, n, share, state, &ns));
        slower = ns < HUGE_VAL && ns >= least ? slower + 1 : 0;
        if (ns < least) least = ns, *best = share;
        if (least <= kept * 1.002) break; /* nothing waits, nothing is recomputed */
    }
    uint64_t agreed = (uint64_t)(*best + 1);
    PL_TRY(b->smallest(b->ctx, &agreed));
    *best = (int)agreed - 1;
    *best_ns = least;
    return PL_OK;
}

/* Whether slots belong to one group: a step moves them as often. */
static bool is_group(const movable *x, const movable *y)
{
    return x->late == y->late && x->moves == y->moves;
}

/* Whether leaving first may help a group: kernels hide its stores, and its bytes matter. */
static bool may_lead(const movable *list, int n, int from)
{
    enum { LITTLE = 100 };
    uint64_t all = 0, group = 0;
    for (int i = 0; i < n; i++) {
        all += list[i].bytes;
        if (is_group(&list[i], &list[from])) group += list[i].bytes;
    }
    return !list[from].late && group > all / LITTLE;
}

/* Writes the list to out with one group before the others; from: its first slot. */
static void put_first(const movable *list, int n, int from, movable *out)
{
    int k = 0;
    for (int first = 1; first >= 0; first--)
        for (int i = 0; i < n; i++)
            if (is_group(&list[i], &list[from]) == (first != 0)) out[k++] = list[i];
}

/* Tries orders in which one group of slots leaves before the others, one group after the other.
 * out: the fastest order by estimate, or the list; room for n. *other: it is not the list. */
static pl_status find_order(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                            int share, uint64_t state, double least, movable *out, bool *other)
{
    enum { GAIN = 200 }; /* less than a GAIN-th is not worth another order */
    pl_arena mem = PL_ARENA_INIT;
    movable *tried = pl_arena_new(&mem, movable, n + 1);
    pl_status rc = tried ? PL_OK : PL_ERR_MEMORY;
    *other = false;
    memcpy(out, list, (size_t)n * sizeof *out);
    for (int i = 1; i < n && rc == PL_OK; i++) {
        double ns;
        if (is_group(&list[i], &list[i - 1]) || !may_lead(list, n, i)) continue;
        int from = 0;
        while (out[from].slot != list[i].slot) from++;
        put_first(out, n, from, tried);
        rc = estimate_share(b, l, tried, n, share, state, &ns);
        uint64_t faster = rc == PL_OK && ns < least - least / GAIN;
        if (rc == PL_OK) rc = b->smallest(b->ctx, &faster);
        if (rc != PL_OK || !faster) continue;
        least = ns;
        *other = true;
        memcpy(out, tried, (size_t)n * sizeof *out);
    }
    pl_arena_release(&mem);
    return rc;
}

/* Sets the candidate that needs the smallest budget. With more slots below the device there is less
 * state, so the last candidates are compared, until PATIENCE of them need more. Which ones does not
 * depend on the budget. */
static pl_status set_smallest(pl_process_budget *b, pl_process_levels *l, const movable *list,
                              int n, uint64_t state)
{
    enum { PATIENCE = 2 };
    int best = 0, set = -1, worse = 0;
    uint64_t least = UINT64_MAX, needs;
    for (int share = n ? SHARES : 0; share >= 0 && worse < PATIENCE; share--) {
        PL_TRY(set_share(b, l, list, n, share, state));
        PL_TRY(find_need(b, &needs));
        PL_TRY(b->smallest(b->ctx, &needs));
        worse = needs < least ? 0 : worse + 1;
        if (needs < least) least = needs, best = share;
        set = share;
    }
    return best == set ? PL_OK : set_share(b, l, list, n, best, state);
}

/* Plans the best candidate with another order of its slots, where that is expected to be faster.
 * order: room for n; the order that is planned where *fits becomes true. */
static pl_status try_other_order(pl_process_budget *b, pl_process_levels *l, const movable *list,
                                 int n, int share, uint64_t state, double ns, movable *order,
                                 bool *fits)
{
    bool other = false;
    if (share > 0 && share < SHARES)
        PL_TRY(find_order(b, l, list, n, share, state, ns, order, &other));
    /* on the host, the memory of searches counts */
    for (int i = 0; i < b->n && b->on_host; i++) pl_budget_pause(pl_program_budget(b->programs[i]));
    return other ? try_share(b, l, order, n, share, state, fits) : PL_OK;
}

/* Returns the predicted time of a step with the plans as they are. */
static double planned_ms(const pl_process_budget *b, const pl_process_levels *l)
{
    double sum = 0;
    for (int i = 0; i < b->n; i++)
        sum +=
            l->weight(b->ctx, b->programs[i]) * pl_program_plan(b->programs[i])->predicted_step_ms;
    return sum;
}

/* After the candidate `share`, whose plan is set: plans the one with all slots on the device, which
 * stays where it is faster. Not where little time can be saved. */
static pl_status stay_at_home(pl_process_budget *b, pl_process_levels *l, const movable *list,
                              int n, int share, uint64_t state)
{
    const double LITTLE = 1.01;
    double moved = planned_ms(b, l);
    bool fits;
    uint64_t may = moved > LITTLE * 1e-6 * keep_all_ns(b, l), faster;
    PL_TRY(b->smallest(b->ctx, &may));
    if (!may) return PL_OK;
    PL_TRY(may_fit(b, l, list, n, 0, state, &fits));
    if (fits) PL_TRY(try_share(b, l, list, n, 0, state, &fits));
    faster = fits && planned_ms(b, l) <= moved;
    PL_TRY(b->smallest(b->ctx, &faster));
    return faster ? PL_OK : try_share(b, l, list, n, share, state, &fits);
}

/* Plans the candidate with the fastest estimate. If it does not fit, choices with more slots below
 * the device are tried, then choices with fewer: what fits with any of them is not refused. Where
 * none fits, the message and the minimum are of the candidate that needs the smallest budget.
 * order: room for n. */
static pl_status choose_among(pl_process_budget *b, pl_process_levels *l, const movable *list,
                              int n, movable *order, bool *out)
{
    uint64_t state = store_of(b) ? pl_state_bytes(store_of(b), NULL) : 0;
    int best, last = n ? SHARES : 0, share;
    bool fits = false, may;
    double ns;
    PL_TRY(find_share(b, l, list, n, state, &best, &ns));
    PL_TRY(try_other_order(b, l, list, n, best, state, ns, order, &fits));
    share = best;
    if (!fits) order = NULL;
    if (best < 0) best = last;
    for (int k = 0; k <= last && !fits; k++) {
        share = k <= last - best ? best + k : last - k;
        PL_TRY(may_fit(b, l, list, n, share, state, &may));
        if (may) PL_TRY(try_share(b, l, list, n, share, state, &fits));
    }
    *out = fits;
    if (!fits) return set_smallest(b, l, list, n, state);
    return share > 0 && !b->on_host ? stay_at_home(b, l, order ? order : list, n, share, state)
                                    : PL_OK;
}

static pl_status choose(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                        bool *out)
{
    pl_arena mem = PL_ARENA_INIT;
    movable *order = pl_arena_new(&mem, movable, n + 1);
    pl_status rc = order ? choose_among(b, l, list, n, order, out) : PL_ERR_MEMORY;
    pl_arena_release(&mem);
    return rc;
}

/* A device with its own memory, host memory and a disk: first without the disk, which is slow and
 * takes a part of the host for values that pass through. */
static pl_status choose_levels(pl_process_budget *b, pl_process_levels *l, const movable *list,
                               int n)
{
    enum { PASSING = 8 }; /* values that are on their way at once */
    uint64_t disk = l->budget[PL_LEVEL_DISK], host = l->budget[PL_LEVEL_HOST], largest = 0;
    bool fits;
    if (!disk || !host) return choose(b, l, list, n, &fits);
    l->budget[PL_LEVEL_DISK] = 0;
    pl_status rc = choose(b, l, list, n, &fits);
    l->budget[PL_LEVEL_DISK] = disk;
    if (rc != PL_OK || fits) return rc;
    for (int i = 0; i < n; i++)
        if (list[i].bytes > largest) largest = list[i].bytes;
    uint64_t transit = PASSING * pl_level_round_up(largest), left = 0;
    for (int s = 0; s < (int)l->homes.n; s++)
        if (l->must[s]) left += pl_level_round_up(pl_slot_bytes(pl_store_slot(store_of(b), s)));
    left = host > left ? host - left : 0;
    l->opts.transit = (transit < left ? transit : left) / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
    return l->opts.transit ? choose(b, l, list, n, &fits) : PL_OK;
}

pl_status pl_process_plan_levels(pl_process_budget *b, pl_process_levels *l)
{
    pl_arena mem = PL_ARENA_INIT;
    movable *list;
    int n;
    for (int i = 0; i < b->n; i++) {
        pl_budget_count_plans(pl_program_budget(b->programs[i]), b->on_host);
        pl_program_limit_memory(b->programs[i]);
    }
    PL_TRY(make_homes(b, l));
    PL_TRY(find_must(b, l));
    pl_status rc = list_movable(b, l, &mem, &list, &n);
    if (rc == PL_OK) rc = choose_levels(b, l, list, n);
    pl_arena_release(&mem);
    return rc;
}

void pl_process_levels_release(pl_process_levels *l)
{
    pl_arena_release(&l->mem);
    *l = (pl_process_levels){0};
}
