/* process_levels.c - see process_levels.h.
 *
 * Order of slots: by the moves that one step needs for each byte that leaves the device (reads by
 * kernels, plus the store of the new value), then the largest first: a few large moves have less
 * fixed cost than many small ones. So frozen weights that are read once go first, moments and
 * averages next, weights that train last.
 *
 * Candidates are first compared with moves alone; the best is planned again with recompute as
 * another means.
 *
 * Candidates are prefixes with a fixed share of all movable bytes, the same for every budget: a
 * larger budget considers all plans that a smaller one does.
 */
#include "rt/levels/process_levels.h"

#include "base/sys.h"
#include "rt/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES = 8, SMALLEST = 4096 };

typedef struct movable {
    int slot, moves;
    uint64_t bytes;
} movable;

static int by_traffic(const void *a, const void *b)
{
    const movable *x = a, *y = b;
    if (x->moves != y->moves) return x->moves - y->moves;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->slot - y->slot;
}

static const pl_store *store_of(const pl_process_budget *b)
{
    return b->n ? pl_program_store(b->programs[0]) : NULL;
}

/* Lists the slots that all programs allow to live below the device. */
static pl_status list_movable(const pl_process_budget *b, pl_arena *mem, movable **out, int *n)
{
    const pl_store *store = store_of(b);
    int slots = store ? pl_store_count(store) : 0;
    *out = pl_arena_new(mem, movable, slots + 1);
    *n = 0;
    if (!*out) return PL_ERR_MEMORY;
    for (int s = 0; s < slots; s++) {
        movable m = {.slot = s, .bytes = pl_type_bytes(&pl_store_slot(store, s)->type)};
        bool may = m.bytes >= SMALLEST;
        for (int i = 0; i < b->n && may; i++) {
            bool assigned;
            may = pl_program_slot_may_move(b->programs[i], s);
            m.moves += pl_program_slot_uses(b->programs[i], s, &assigned);
            m.moves += assigned;
        }
        if (may) (*out)[(*n)++] = m;
    }
    qsort(*out, (size_t)*n, sizeof **out, by_traffic);
    return PL_OK;
}

/* Gives homes to the first slots of the list with at least that share of its bytes; a slot for
 * which no level has room stays. */
static void place_slots(pl_process_levels *l, const movable *list, int n, int share)
{
    uint64_t all = 0, taken = 0;
    memset(l->homes.level, 0, l->homes.n);
    memset(l->homes.bytes, 0, sizeof l->homes.bytes);
    l->freed_bytes = 0;
    for (int i = 0; i < n; i++) all += list[i].bytes;
    for (int i = 0; i < n && taken < all / SHARES * (uint64_t)share; i++) {
        uint64_t bytes = pl_level_round_up(list[i].bytes);
        uint8_t level = 1;
        taken += list[i].bytes;
        while (level < PL_N_LEVELS && l->homes.bytes[level] + bytes > l->budget[level]) level++;
        if (level == PL_N_LEVELS) continue;
        l->homes.level[list[i].slot] = level;
        l->homes.offset[list[i].slot] = l->homes.bytes[level];
        l->homes.bytes[level] += bytes;
        l->freed_bytes += (list[i].bytes + PL_PLAN_ALIGN - 1) / PL_PLAN_ALIGN * PL_PLAN_ALIGN;
    }
}

/* Whether slots are so small a part of the arena that moving them cannot matter. */
static bool are_small(const pl_process_budget *b, const movable *list, int n)
{
    enum { PART = 50 };
    uint64_t slots = 0, arena = 0;
    for (int i = 0; i < n; i++) slots += list[i].bytes;
    for (int i = 0; i < b->n; i++) {
        const pl_plan_info *p = pl_program_plan(b->programs[i]);
        if (p->arena_bytes > arena) arena = p->arena_bytes;
    }
    return slots < arena / PART;
}

/* Plans a candidate. *fits: it is within the budget. */
static pl_status try_share(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                           int share, uint64_t state, bool quick, bool *fits)
{
    place_slots(l, list, n, share);
    l->opts.only_moves = quick;
    memcpy(l->opts.capacity, l->budget, sizeof l->opts.capacity);
    l->opts.homes = &l->homes;
    b->state_bytes = state - l->freed_bytes;
    for (int i = 0; i < b->n; i++)
        PL_TRY(pl_program_set_levels(b->programs[i], &l->opts, l->disk_dir));
    pl_sys_trim();
    pl_status rc = pl_process_plan(b);
    uint64_t fit = rc == PL_OK && pl_process_memory_get(b, NULL).fits;
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
    return l->homes.level && l->homes.offset ? PL_OK : PL_ERR_MEMORY;
}

static double keep_all_ms(const pl_process_budget *b)
{
    double sum = 0;
    for (int i = 0; i < b->n; i++) sum += pl_program_plan(b->programs[i])->keep_all_ms;
    return sum;
}

/* Whether nothing waits and nothing is recomputed: no other candidate is faster. */
static bool is_free(const pl_process_budget *b)
{
    double sum = 0;
    for (int i = 0; i < b->n; i++) sum += pl_program_plan(b->programs[i])->predicted_step_ms;
    return sum <= keep_all_ms(b) * 1.002;
}

static pl_status choose(pl_process_budget *b, pl_process_levels *l, const movable *list, int n,
                        pl_status (*predicted_ms)(void *, double *))
{
    uint64_t state = store_of(b) ? pl_state_bytes(store_of(b), NULL) : 0;
    int best = -1;
    bool fits = false, free_of_cost = false;
    double best_ms = HUGE_VAL, ms;
    for (int share = 0; share <= SHARES && (share == 0 || n); share++) {
        PL_TRY(try_share(b, l, list, n, share, state, true, &fits));
        if (!fits) continue;
        PL_TRY(predicted_ms(b->ctx, &ms));
        bool better = ms < best_ms;
        if (better) best_ms = ms, best = share;
        uint64_t none = is_free(b), done = none || are_small(b, list, n) || !better;
        PL_TRY(b->smallest(b->ctx, &none));
        PL_TRY(b->smallest(b->ctx, &done));
        free_of_cost = none;
        if (done) break;
    }
    if (free_of_cost) return PL_OK;
    /* with recompute: the best candidate; where none fits, the one with the smallest state */
    return try_share(b, l, list, n, best < 0 ? (n ? SHARES : 0) : best, state, false, &fits);
}

pl_status pl_process_plan_levels(pl_process_budget *b, pl_process_levels *l,
                                 pl_status (*predicted_ms)(void *ctx, double *ms))
{
    pl_arena mem = PL_ARENA_INIT;
    movable *list;
    int n;
    PL_TRY(make_homes(b, l));
    pl_status rc = list_movable(b, &mem, &list, &n);
    if (rc == PL_OK) rc = choose(b, l, list, n, predicted_ms);
    pl_arena_release(&mem);
    return rc;
}

void pl_process_levels_release(pl_process_levels *l)
{
    pl_arena_release(&l->mem);
    *l = (pl_process_levels){0};
}
