/* budget_small.c - plans with moves of small programs, by a joint search (levels/small.h).
 *
 * The search ignores gaps between buffers. Where its plans do not pack within the budget, it
 * searches again with a smaller arena. */
#include "base/sys.h"
#include "plan/budget_levels_int.h"
#include "plan/levels/small.h"

enum { PLANS = 6, ROUNDS = 3, SMALLEST = 4096 };

typedef struct small {
    pl__levels_search *s;
    pl_small_problem p;
    uint32_t buffer[PL_SMALL_VALUES]; /* of each value */
    uint8_t *value;                   /* of each buffer; PL_SMALL_NONE: always on the device */
} small;

/* Whether a program is small enough, and no slot below the device is written. */
static bool is_small(const pl__levels_search *s)
{
    const pl_problem *q = &s->f->units;
    if (q->n_units > PL_SMALL_UNITS || !q->n_units || s->budget == UINT64_MAX) return false;
    for (uint32_t i = 0; i < q->n_assigns; i++)
        if (pl_home_level(s->levels->homes, q->assigns[i].slot)) return false;
    for (uint32_t i = 0; i < q->n_buffers; i++)
        if (q->buffer[i].direct >= 0 && pl_home_level(s->levels->homes, q->buffer[i].direct))
            return false;
    return true;
}

/* Numbers the buffers that take bytes of the arena; false: there are too many. */
static bool number_values(small *m)
{
    const pl__search *f = m->s->f;
    pl_small_problem *p = &m->p;
    for (uint32_t i = 0; i < f->units.n_buffers; i++) {
        const pl_buffer *b = &f->units.buffer[i];
        uint8_t level = b->old_slot < 0 ? 0 : pl_home_level(m->s->levels->homes, b->old_slot);
        m->value[i] = PL_SMALL_NONE;
        if (!pl_buffer_arena_bytes(b) && !level) continue;
        if (p->n_values == PL_SMALL_VALUES) return false;
        uint32_t v = p->n_values++;
        uint64_t bit = (uint64_t)1 << v;
        m->value[i] = (uint8_t)v;
        m->buffer[v] = i;
        p->bytes[v] = b->bytes;
        p->made_by[v] = PL_SMALL_NONE;
        if (b->producer == PL_NONE) p->home[level] |= bit;
        if (f->problem.buffer_flags[i]) p->stays |= bit;
        if (f->problem.buffer_flags[i] & PL_RECOMPUTE_END) p->wanted |= bit;
        if (b->bytes < SMALLEST || (f->units.shared && f->units.shared[i])) p->small |= bit;
        if (level) p->stays &= ~bit, p->small &= ~bit;
    }
    return true;
}

static uint64_t row(const small *m, const uint32_t *at, const uint32_t *list, uint32_t unit)
{
    uint64_t set = 0;
    for (uint32_t e = at[unit]; e < at[unit + 1]; e++)
        if (m->value[list[e]] != PL_SMALL_NONE) set |= (uint64_t)1 << m->value[list[e]];
    return set;
}

static void describe(small *m)
{
    const pl_recompute_problem *r = &m->s->f->problem;
    const pl_level_opts *o = m->s->levels;
    pl_small_problem *p = &m->p;
    p->n_units = r->n_units;
    p->levels = o;
    for (uint32_t u = 0; u < r->n_units; u++) {
        p->cost_ns[u] = r->cost[u] > 1 ? r->cost[u] : 1;
        p->work[u] = r->work_bytes[u];
        p->once[u] = r->unit_flags[u] & PL_RECOMPUTE_ONCE;
        p->reads[u] = row(m, r->in_at, r->in, u);
        p->writes[u] = row(m, r->out_at, r->out, u);
        for (uint32_t e = r->out_at[u]; e < r->out_at[u + 1]; e++)
            if (m->value[r->out[e]] != PL_SMALL_NONE) p->made_by[m->value[r->out[e]]] = (uint8_t)u;
    }
    for (int level = 1; level < PL_N_LEVELS; level++) {
        uint64_t slots = o->homes ? o->homes->bytes[level] : 0;
        p->room[level] = o->capacity[level] > slots ? o->capacity[level] - slots : 0;
    }
}

/* ---- from a small plan to a list with moves -------------------------------------------------- */
/* Returns the value of the graph `x` that is the same source as a value of the base graph; 0:
 * none. */
static uint32_t same_source(const pl_graph *g, const pl_graph *x, uint32_t val)
{
    uint32_t n = 1;
    for (uint32_t k = 1; k < g->n_nodes; k++) {
        if (!(g->nodes[k].op->flags & PL_OP_SOURCE)) continue;
        while (n < x->n_nodes && !(x->nodes[n].op->flags & PL_OP_SOURCE)) n++;
        if (n == x->n_nodes) return 0;
        if (g->nodes[k].out == val) return x->nodes[n].out;
        n++;
    }
    return 0;
}

/* Returns the value of the list's graph that the latest run before an entry made. */
static uint32_t value_before(const small *m, const pl_small_plan *plan,
                             const pl_expanded_plan *still, uint32_t v, uint32_t entry)
{
    const pl_budget_base *b = m->s->f->base;
    uint32_t val = m->s->f->units.buffer[m->buffer[v]].val, i = entry;
    if (m->p.made_by[v] == PL_SMALL_NONE) return same_source(b->g, still->x->g, val);
    while (i && plan->unit[i - 1] != m->p.made_by[v]) i--;
    if (!i) return 0;
    uint32_t unit = still->x->order[i - 1];
    const pl_unit *old = &b->units->unit[still->x->base[unit]];
    for (uint32_t k = 0; k < old->n_out; k++)
        if (old->out[k] == val) return still->x->units->unit[unit].out[k];
    return 0;
}

static bool list_moves(const small *m, const pl_small_plan *plan, const pl_expanded_plan *still,
                       pl_list_move *out)
{
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const pl_small_move *a = &plan->move[i];
        out[i] = (pl_list_move){.at = a->at,
                                .end = a->end,
                                .val = value_before(m, plan, still, a->value, a->at),
                                .from = a->from,
                                .to = a->to,
                                .late = a->late};
        if (!out[i].val) return false;
    }
    return true;
}

/* Plans one schedule of the small search. */
static pl_status try_plan(small *m, const pl_small_plan *plan, uint64_t *over)
{
    pl__search *f = m->s->f;
    uint32_t list[PL_SMALL_ENTRIES];
    pl_list_move moves[2 * PL_SMALL_ENTRIES];
    pl_expanded_plan *still;
    for (uint32_t i = 0; i < plan->n; i++) list[i] = f->units.unit_id[f->unit_at[plan->unit[i]]];
    PL_TRY(pl__levels_new_plan(&still));
    pl_status rc = pl__expand_list(f->base, list, plan->n, still);
    if (rc == PL_OK && list_moves(m, plan, still, moves))
        rc = pl__levels_try_moves(m->s, still, moves, plan->n_moves, over);
    pl__expanded_plan_free(still);
    return rc;
}

static pl_status search_round(small *m, pl_small_plan *plan, bool *fits, uint64_t *least)
{
    uint32_t n;
    PL_TRY(pl_small_search(&m->p, plan, PLANS, &n));
    *least = UINT64_MAX;
    *fits = !n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t over = 0;
        if (m->s->best && plan[i].ns >= m->s->best->total_ns) break;
        PL_TRY(try_plan(m, &plan[i], &over));
        if (!over) *fits = true;
        if (over && over < *least) *least = over;
    }
    return pl__search_stopped(m->s->f);
}

pl_status pl__levels_search_small(pl__levels_search *s)
{
    small m = {.s = s};
    if (!is_small(s)) return PL_OK;
    m.value = pl_sys_alloc(s->f->units.n_buffers + 1);
    pl_small_plan *plan = pl_sys_alloc(PLANS * sizeof *plan);
    pl_status rc = m.value && plan ? PL_OK : PL_ERR_MEMORY;
    bool fits = !(rc == PL_OK && number_values(&m));
    if (!fits) describe(&m);
    m.p.arena = s->budget + s->f->shift;
    for (int k = 0; k < ROUNDS && rc == PL_OK && !fits; k++) {
        uint64_t over;
        rc = search_round(&m, plan, &fits, &over);
        if (rc != PL_OK || fits || over >= m.p.arena) break;
        m.p.arena -= over;
    }
    pl_sys_free(m.value);
    pl_sys_free(plan);
    return rc;
}
