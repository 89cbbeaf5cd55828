/* budget.c - one program's plan under budgets; see budget.h.
 *
 * Idea: keep what a search learns, not the search. A pl_budget holds the plan that is set and some
 * figures for as long as the program lives. The search itself (budget_int.h), with hundreds of
 * lists, is created when it is first needed and freed by pl_budget_trim. Its figures answer later
 * questions without a search: a budget at or below a refused budget is refused.
 *
 *     pl_budget_set ──► keep-all plan fits? ── yes ─► set it
 *                            │ no
 *                            ├─ PL_CHECKPOINT_BLOCKS ─► the segments that the model marks
 *                            ├─ PL_CHECKPOINT_OFF    ─► PL_ERR_FIT
 *                            └─ PL_CHECKPOINT_AUTO   ─► pl__search_solve (budget_search.c)
 *
 * Invariant: the plan that is set passed pl_plan_check (plan.h, P1 to P5). A failure does not
 * change it.
 */
#include "plan/budget.h"

#include "base/sys.h"
#include "plan/budget_int.h"
#include "plan/core/segment.h"

struct pl_budget {
    pl_plan_opts opts; /* the caller's, with the limits of pl_budget_limit */
    pl_budget_base base;
    enum pl_checkpointing how;
    pl_expanded_plan *set;       /* NULL: the keep-all plan */
    pl__search *search;          /* NULL: none is under way */
    pl__search *plain;           /* with levels: the search of plans without them; NULL */
    bool counts;                 /* see pl_budget_count_plans */
    uint64_t minimum;            /* smallest arena or size found so far; 0: none */
    bool minimum_final;          /* final: searches find no smaller one */
    uint64_t minimum_held;       /* the part of it that is host memory of its plan */
    uint64_t minimum_enough;     /* with levels: see pl_budget_minimum */
    uint64_t refused;            /* the largest arena for which a search found no plan */
    const pl_level_opts *levels; /* NULL: the device only */
    pl__level_list lists[PL__LEVEL_LISTS];
    pl__descent found[PL__DESCENTS]; /* what the last search knows about the smallest plans */
    bool quick;                      /* see pl_budget_quick */
};

/* ---- the search ------------------------------------------------------------------------- */
static void free_search(pl__search *f)
{
    if (!f) return;
    for (uint32_t i = 0; i < f->n_candidates; i++) pl_recompute_plan_free(f->candidates[i].plan);
    pl__descents_free(f->descent);
    pl_recompute_memo_free(f->memo);
    pl__expanded_plan_free(f->packed);
    pl_arena_release(&f->mem);
    pl_sys_free(f);
}

static pl_status new_search(pl_budget *b, bool spread, pl__search **out)
{
    if (*out) return PL_OK;
    pl__search *f = pl_sys_alloc(sizeof *f);
    if (!f) return PL_ERR_MEMORY;
    f->base = &b->base;
    f->counts = b->counts;
    f->spread = spread;
    f->lists = b->lists;
    f->units = (pl_problem){.g = b->base.g, .units = b->base.units, .opts = &b->opts};
    pl_status rc = pl__search_describe(f);
    if (rc != PL_OK) {
        free_search(f);
        return rc;
    }
    *out = f;
    return PL_OK;
}

static pl_status need_search(pl_budget *b)
{
    bool is_new = !b->search;
    PL_TRY(new_search(b, b->levels != NULL, &b->search));
    if (is_new && !b->levels) pl__search_give_descents(b->search, b->found);
    b->search->quick = b->quick;
    b->search->minimum_before = b->minimum_final && !b->levels ? b->minimum : 0;
    return PL_OK;
}

/* Stores the facts that the search has about the minimum. */
static void note_minimum(pl_budget *b)
{
    const pl__search *f = b->search;
    if (f->knows_minimum) b->minimum = f->minimum;
    b->minimum_final |= f->knows_minimum;
    if (f->minimum) b->minimum_held = f->minimum_held;
}

/* Returns the effort of a search, in nanoseconds: per unit, and at most. */
static uint64_t effort_of(const pl_budget *b)
{
    enum { EFFORT = 240000, MOST = 150000000 };
    uint64_t effort = (uint64_t)b->base.units->n * EFFORT;
    if (effort > MOST) effort = MOST;
    return b->base.effort ? b->base.effort : effort;
}

static pl_status search_plan(pl_budget *b, uint64_t arena_budget, pl_expanded_plan **out)
{
    PL_FAIL_IF(arena_budget <= b->refused && !b->minimum, PL_ERR_FIT,
               "no plan found for an arena of %llu bytes", (unsigned long long)arena_budget);
    PL_FAIL_IF(arena_budget <= b->refused, PL_ERR_FIT,
               "no plan found for an arena of %llu bytes; the smallest found is %llu",
               (unsigned long long)arena_budget, (unsigned long long)b->minimum);
    PL_TRY(need_search(b));
    pl_status rc = pl__search_solve(b->search, arena_budget, effort_of(b), out);
    note_minimum(b);
    int last = pl__search_has_second(b->search) ? PL__SECOND : PL__FIRST;
    if (rc == PL_ERR_FIT && b->search->descent[last].ended) b->refused = arena_budget;
    return rc;
}

/* Plans the marked segments exactly as marked, for every budget. */
static pl_status run_segments(pl_budget *b, pl_expanded_plan **out)
{
    const pl_plan *all = b->base.keep_all;
    uint32_t *list, n;
    pl_arena mem = PL_ARENA_INIT;
    *out = NULL;
    pl_status rc =
        pl_segment_list(b->base.g, b->base.units, all->order, all->n_order, &mem, &list, &n);
    if (rc == PL_OK) rc = pl__plan_of_list(&b->base, list, n, out);
    pl_arena_release(&mem);
    if (rc == PL_OK)
        rc = pl_plan_check((*out)->x->g, (*out)->x->units, &(*out)->opts, (*out)->plan);
    if (rc != PL_OK) {
        pl__expanded_plan_free(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- budget.h --------------------------------------------------------------------------- */
pl_status pl_budget_new(const pl_budget_base *base, enum pl_checkpointing how, pl_budget **out)
{
    pl_budget *b = pl_sys_alloc(sizeof *b);
    if (!b) return PL_ERR_MEMORY;
    b->opts = *base->opts;
    b->base = *base;
    b->base.opts = &b->opts;
    b->how = how;
    *out = b;
    return PL_OK;
}

void pl_budget_free(pl_budget *b)
{
    if (!b) return;
    pl_budget_trim(b);
    pl__expanded_plan_free(b->set);
    pl_sys_free(b);
}

void pl_budget_pause(pl_budget *b)
{
    if (b->search && !b->levels) pl__search_take_descents(b->search, b->found);
    free_search(b->search);
    free_search(b->plain);
    b->search = b->plain = NULL;
}

void pl_budget_trim(pl_budget *b)
{
    pl_budget_pause(b);
    pl__descents_free(b->found);
    for (int i = 0; i < PL__LEVEL_LISTS; i++) {
        pl_sys_free(b->lists[i].unit);
        b->lists[i] = (pl__level_list){0};
    }
}

void pl_budget_limit(pl_budget *b, const volatile int *stop, uint64_t search_bytes)
{
    b->opts.stop = stop;
    b->opts.host_bytes = search_bytes;
}

void pl_budget_quick(pl_budget *b, bool quick)
{
    if (b->quick != quick) pl_budget_pause(b); /* figures of short searches */
    b->quick = quick;
}

pl_status pl_budget_may_fit(pl_budget *b, uint64_t arena_budget, bool *may)
{
    *may = true;
    if (b->levels || b->how != PL_CHECKPOINT_AUTO) return PL_OK;
    if (b->base.keep_all->arena_bytes <= arena_budget) return PL_OK;
    PL_TRY(need_search(b));
    return pl__search_may_fit(b->search, arena_budget, may);
}

void pl_budget_count_plans(pl_budget *b, bool count)
{
    b->counts = count;
}

void pl_budget_levels(pl_budget *b, const pl_level_opts *levels)
{
    if (!levels != !b->levels) pl_budget_trim(b);
    b->levels = levels;
    b->minimum = b->minimum_held = b->refused = 0;
    b->minimum_final = false;
}

/* Whether slots live below the device: then the keep-all plan cannot run. */
static bool has_homes(const pl_budget *b)
{
    const pl_homes *h = b->levels ? b->levels->homes : NULL;
    for (uint32_t i = 0; h && i < h->n; i++)
        if (h->level[i]) return true;
    return false;
}

/* Whether plans without moves are searched for, too. */
static bool may_stay(const pl_budget *b)
{
    return !has_homes(b) && b->how == PL_CHECKPOINT_AUTO && !b->levels->only_moves;
}

/* Plans with moves, and with recompute where that is faster. Where the memory of searches counts
 * there is one search for both. */
static pl_status search_levels(pl_budget *b, uint64_t arena_budget, pl_expanded_plan **out)
{
    bool stays = may_stay(b);
    PL_TRY(need_search(b));
    if (stays && !b->counts) PL_TRY(new_search(b, false, &b->plain));
    return pl__search_levels(b->search, b->plain, b->levels, b->how, arena_budget,
                             stays ? effort_of(b) : 0, out);
}

pl_status pl_budget_levels_ns(pl_budget *b, uint64_t arena_budget, double *ns)
{
    PL_TRY(need_search(b));
    if (!has_homes(b) && b->base.keep_all->arena_bytes <= arena_budget) {
        *ns = 0;
        for (uint32_t i = 0; i < b->base.units->n; i++)
            if (b->base.units->unit[i].kind != PL_UNIT_VIEW) *ns += b->base.cost_ns[i];
        return PL_OK;
    }
    return pl__search_levels_estimate(b->search, b->levels, b->how, arena_budget, ns);
}

pl_status pl_budget_levels_bound(pl_budget *b, uint64_t *arena_bytes)
{
    PL_TRY(need_search(b));
    return pl__search_levels_bound(b->search, b->levels, arena_bytes);
}

static uint64_t arena_of(const pl_budget *b, const pl_expanded_plan *t)
{
    return t ? t->plan->arena_bytes : b->base.keep_all->arena_bytes;
}

static uint64_t host_bytes_of(const pl_expanded_plan *t)
{
    return t && t->host_bytes ? t->host_bytes : pl_expanded_plan_bytes(t);
}

bool pl_budget_has_keep_all(const pl_budget *b)
{
    return b->how != PL_CHECKPOINT_BLOCKS;
}

bool pl_budget_may_keep_all(const pl_budget *b)
{
    return pl_budget_has_keep_all(b) && !has_homes(b);
}

uint64_t pl_budget_least_host_bytes(const pl_budget *b)
{
    return b->counts ? pl__base_host_bytes(&b->base) : 0;
}

uint64_t pl_budget_held_guess(const pl_budget *b)
{
    return has_homes(b) ? pl_budget_least_host_bytes(b) : 0;
}

/* Returns what budgets limit. */
static uint64_t size_of(const pl_budget *b, const pl_expanded_plan *t)
{
    return arena_of(b, t) + (b->counts ? host_bytes_of(t) : 0);
}

pl_status pl_budget_set(pl_budget *b, uint64_t arena_budget)
{
    pl_expanded_plan *plan = NULL;
    bool fits = (!arena_budget || arena_of(b, NULL) <= arena_budget) && !has_homes(b);
    if (b->levels && !fits)
        PL_TRY(search_levels(b, arena_budget, &plan));
    else if (b->how == PL_CHECKPOINT_BLOCKS)
        PL_TRY(run_segments(b, &plan));
    else if (b->how == PL_CHECKPOINT_AUTO && !fits)
        PL_TRY(search_plan(b, arena_budget, &plan));
    uint64_t needs = size_of(b, plan);
    if (arena_budget && needs > arena_budget) {
        pl__expanded_plan_free(plan);
        PL_FAIL(PL_ERR_FIT,
                "the arena needs %llu bytes, the budget leaves %llu; set checkpointing=auto",
                (unsigned long long)needs, (unsigned long long)arena_budget);
    }
    pl__expanded_plan_free(b->set);
    b->set = plan;
    return PL_OK;
}

const pl_expanded_plan *pl_budget_plan(const pl_budget *b)
{
    return b->set;
}

pl_status pl_budget_minimum(pl_budget *b, uint64_t enough, uint64_t *arena_bytes)
{
    if (b->levels) {
        if (!b->minimum || b->minimum_enough != enough) {
            PL_TRY(need_search(b));
            PL_TRY(pl__search_levels_minimum(b->search, b->levels, b->how, may_stay(b), enough,
                                             &b->minimum, &b->minimum_held));
            b->minimum_enough = enough;
            b->minimum_final = true;
        }
    } else if (b->how != PL_CHECKPOINT_AUTO) {
        b->minimum = size_of(b, b->set);
        b->minimum_held = b->minimum - arena_of(b, b->set);
    } else if (!b->minimum_final && (!b->minimum || b->minimum > enough)) {
        PL_TRY(need_search(b));
        PL_TRY(pl__search_minimum(b->search, enough, &b->minimum));
        note_minimum(b);
    }
    *arena_bytes = b->minimum;
    return PL_OK;
}

pl_status pl_budget_bound(pl_budget *b, uint64_t *arena_bytes)
{
    *arena_bytes = b->minimum_final ? b->minimum : arena_of(b, b->set);
    if (b->minimum_final || b->how != PL_CHECKPOINT_AUTO) return PL_OK;
    PL_TRY(need_search(b));
    *arena_bytes = b->search->bound;
    return PL_OK;
}

pl_budget_figures pl_budget_figures_get(const pl_budget *b)
{
    return (pl_budget_figures){.minimum_bytes = b->minimum,
                               .minimum_final = b->minimum_final,
                               .minimum_host_bytes = b->minimum_held,
                               .host_bytes = host_bytes_of(b->set),
                               .asked = b->search ? b->search->n_asked : 0,
                               .packed = b->search ? b->search->n_packed : 0};
}
