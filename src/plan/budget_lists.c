/* budget_lists.c - lists of units that plans with moves start from, and their graphs.
 *
 * List 0 is the keep-all order. The others are answers of the recompute planner to fixed budgets.
 * They do not depend on where slots live, so they are asked once for all choices of slots
 * (pl__level_list). Their graphs do, and take host memory: one exists at a time.
 */
#include "base/sys.h"
#include "plan/budget_levels_int.h"

#include <string.h>

pl_status pl__levels_new_plan(pl_expanded_plan **out)
{
    *out = pl_sys_alloc(sizeof **out);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

/* Adds a graph as a list; its units are runs of the base's units. */
static pl_status add_graph(pl__levels_search *s, uint32_t list, pl_expanded_plan *still)
{
    const pl_expansion *x = still->x;
    double *cost = pl_arena_new(&s->mem, double, x->units->n + 1);
    s->still[list] = still;
    s->cost[list] = cost;
    if (list >= s->n_lists && list < PL__LEVEL_MIXED) s->n_lists = list + 1;
    for (uint32_t i = 0; cost && i < x->units->n; i++) cost[i] = s->f->base->cost_ns[x->base[i]];
    return cost ? PL_OK : PL_ERR_MEMORY;
}

/* The keep-all order needs no expansion. */
pl_status pl__levels_add_keep_all(pl__levels_search *s)
{
    const pl_budget_base *b = s->f->base;
    pl_expansion *x = pl_arena_new(&s->mem, pl_expansion, 1);
    pl_expanded_plan *still = pl_arena_new(&s->mem, pl_expanded_plan, 1);
    if (!x || !still) return PL_ERR_MEMORY;
    *x = (pl_expansion){.g = (pl_graph *)(uintptr_t)b->g, /* only read */
                        .units = (pl_units *)(uintptr_t)b->units,
                        .base = pl_arena_new(&s->mem, uint32_t, b->units->n + 1),
                        .recomputed = pl_arena_new(&s->mem, bool, b->units->n + 1),
                        .order = s->f->order,
                        .n_order = b->keep_all->n_order};
    *still = (pl_expanded_plan){.x = x, .opts = *b->opts};
    still->opts.fixed_order = x->order;
    if (!x->base || !x->recomputed) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < b->units->n; i++) x->base[i] = i;
    return add_graph(s, 0, still);
}

/* Makes the graph of a list of the recompute planner: with further runs that cost less than moves
 * unless s->bare, and with updates where the old values are not read later. */
static pl_status expand_asked(const pl__levels_search *s, const pl__level_list *asked,
                              pl_expanded_plan *still)
{
    const pl_budget_base *b = s->f->base;
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list = pl_arena_new(&mem, uint32_t, asked->n + 1), n = asked->n;
    pl_plan_opts opts = *b->opts;
    pl_level_problem p = {.g = b->g,
                          .units = b->units,
                          .opts = &opts,
                          .n = n,
                          .cost_ns = b->cost_ns,
                          .levels = s->levels};
    pl_status rc = list ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK) memcpy(list, asked->unit, n * sizeof *list);
    opts.fixed_order = list;
    if (rc == PL_OK && !s->bare) rc = pl_level_repeat_cheap(&p, &mem, &list, &n);
    if (rc == PL_OK) rc = pl_level_delay_updates(b->g, b->units, list, n);
    if (rc == PL_OK) rc = pl__expand_list(b, list, n, still);
    pl_arena_release(&mem);
    return rc;
}

/* Keeps a list of the recompute planner as unit ids. */
static pl_status keep_list(pl__search *f, const pl_recompute_plan *plan, pl__level_list *out)
{
    pl_arena mem = PL_ARENA_INIT;
    uint32_t *list;
    pl_status rc = pl__list_units(f, plan, &mem, &list);
    if (rc == PL_OK) {
        *out = (pl__level_list){.unit = pl_sys_alloc(((size_t)plan->n + 1) * sizeof *list),
                                .n = plan->n,
                                .cost_ns = plan->cost_ns};
        if (out->unit) memcpy(out->unit, list, plan->n * sizeof *list);
        if (!out->unit) rc = PL_ERR_MEMORY;
    }
    pl_arena_release(&mem);
    return rc;
}

/* The keep-all bytes, smaller by a sixth from list to list, the last ones by a third. */
uint64_t pl__levels_asked(const pl__search *f, uint32_t k)
{
    uint64_t asked = f->keep_all_bytes;
    for (uint32_t i = 0; i < k; i++) asked -= asked / (i < 9 ? 6 : 3);
    return asked;
}

/* Computes list k, once. */
static pl_status ask_list(pl__search *f, uint32_t k, const pl__level_list **out)
{
    pl__level_list *l = &f->lists[k];
    pl__candidate *c = NULL;
    uint64_t asked = pl__levels_asked(f, k);
    *out = l;
    if (l->known) return PL_OK;
    if (asked >= f->bound) PL_TRY(pl__candidate_ask(f, &(pl__candidate){.asked = asked}, &c));
    if (c) PL_TRY(keep_list(f, c->plan, l));
    l->known = true;
    return PL_OK;
}

/* Makes the graph of a list and adds it. */
static pl_status add_asked(pl__levels_search *s, uint32_t k, const pl__level_list *asked)
{
    pl_expanded_plan *still;
    PL_TRY(pl__levels_new_plan(&still));
    pl_status rc = expand_asked(s, asked, still);
    if (rc != PL_OK) {
        pl__expanded_plan_free(still);
        return rc;
    }
    pl__expanded_plan_free(s->still[k]);
    s->asked_ns[k] = asked->cost_ns;
    return add_graph(s, k, still);
}

pl_status pl__levels_add_recompute(pl__levels_search *s, uint32_t k, double most, bool *added)
{
    const pl__level_list *asked;
    *added = false;
    PL_TRY(ask_list(s->f, k, &asked));
    if (!asked->unit || asked->cost_ns >= most) return PL_OK;
    *added = true;
    return add_asked(s, k, asked);
}

pl_status pl__levels_add_mixed(pl__levels_search *s, pl__search *of, const pl_recompute_plan *plan)
{
    pl__level_list list;
    PL_TRY(keep_list(of, plan, &list));
    pl_status rc = add_asked(s, PL__LEVEL_MIXED, &list);
    pl_sys_free(list.unit);
    return rc;
}

void pl__levels_free_graphs(pl__levels_search *s)
{
    for (uint32_t i = 1; i < PL__LEVEL_PLACES; i++) {
        pl__expanded_plan_free(s->still[i]);
        s->still[i] = NULL;
    }
}

void pl__levels_free_lists(pl__levels_search *s)
{
    pl__levels_free_graphs(s);
    pl_arena_release(&s->mem);
    memset(s->cost, 0, sizeof s->cost);
    s->n_lists = s->n_options = 0;
}
