/* expand.c - see expand.h (M12, M14).
 *
 * Sources come first, then the runs in the order of the list, then the effects. `now` maps each
 * value of the old graph to its latest copy. A view is created when a unit reads it, from the
 * current copy of its base, and is shared until the base is recomputed. Inside a group every run
 * has copies of all members; these are not visible outside the group.
 *
 * A repeated run draws the same random numbers as the first run (M11): the number of a node's
 * random stream is an attribute, and attributes are copied.
 *
 * Invariant: every unit of the new graph runs once, and its readers come after it in the list.
 * Cost: linear in the nodes of all runs.
 *
 * Example: the list A B A C, where B reads A, and C reads A and B, becomes four units
 *     A  ->  a        B  ->  b = f(a)        A' ->  a' (recomputed)        C  ->  g(a', b)
 * so a dies after B, and between B and A' its bytes are free.
 */
#include "plan/core/expand.h"

#include "base/sys.h"
#include "plimsoll_ops.h"

#include <string.h>

typedef struct expander {
    const pl_graph *in;
    const pl_units *units;
    pl_expansion *x;
    pl_arena scratch;
    uint32_t *now;               /* per old value: latest copy on the device, 0 = none yet */
    uint32_t *away[PL_N_LEVELS]; /* the same at the levels below */
    uint32_t *made_of; /* per old value that is a view: copy of the base it was taken from */
    uint32_t *local;   /* per old value: copy inside the run being made */
    uint32_t *run_of;  /* per old value: run + 1 for which local holds */
    bool *settled;     /* per old value: assigned to a slot, the first copy stays */
    bool *ran;         /* per old unit */
    pl_val *args;      /* of one node */
    uint32_t cap, run;
    const pl_list_move *moves;
    uint32_t n_moves;
    const pl_homes *homes;
    /* Per entry of the list, and after the last: index in x->order of the entry, and of the moves
     * that begin before it. */
    uint32_t *entry_at, *moves_at;
    uint32_t *move_at;    /* per move: its index in x->order */
    uint32_t *first_read; /* per slot: value of its first `state` node, which moves name; 0: none */
} expander;

void pl_expansion_free(pl_expansion *x)
{
    if (!x) return;
    pl_units_free(x->units);
    pl_graph_free(x->g);
    pl_arena_release(&x->mem);
    pl_sys_free(x);
}

/* ---- units ------------------------------------------------------------------------------ */
static void *grown(pl_arena *mem, const void *old, size_t n, size_t cap, size_t elem)
{
    void *p = pl_arena_alloc(mem, cap * elem);
    if (p && n) memcpy(p, old, n * elem);
    return p;
}

static pl_status reserve_unit(expander *e)
{
    pl_units *us = e->x->units;
    if (us->n < e->cap) return PL_OK;
    uint32_t cap = 2 * e->cap;
    pl_unit *unit = grown(&us->arena, us->unit, us->n, cap, sizeof *unit);
    uint32_t *base = grown(&e->x->mem, e->x->base, us->n, cap, sizeof *base);
    bool *again = grown(&e->x->mem, e->x->recomputed, us->n, cap, sizeof *again);
    if (!unit || !base || !again) return PL_ERR_MEMORY;
    us->unit = unit;
    e->x->base = base;
    e->x->recomputed = again;
    e->cap = cap;
    return PL_OK;
}

/* Adds a new unit with room for everything the old one has. */
static pl_status add_unit(expander *e, uint32_t old, pl_unit **out)
{
    static const pl_unit move = {.kind = PL_UNIT_MOVE, .n_nodes = 1, .n_in = 1, .n_out = 1};
    const pl_unit *u = old < e->units->n ? &e->units->unit[old] : &move;
    pl_units *us = e->x->units;
    PL_TRY(reserve_unit(e));
    pl_unit *v = &us->unit[us->n];
    *v = (pl_unit){.kind = u->kind, .view_offset = u->view_offset};
    v->nodes = pl_arena_new(&us->arena, uint32_t, u->n_nodes + 1);
    v->in = pl_arena_new(&us->arena, uint32_t, u->n_in + 1);
    v->out = pl_arena_new(&us->arena, uint32_t, u->n_out + 1);
    if (!v->nodes || !v->in || !v->out) return PL_ERR_MEMORY;
    e->x->base[us->n] = old;
    e->x->recomputed[us->n] = u != &move && e->ran[old];
    e->ran[old] = true;
    us->n++;
    *out = v;
    return PL_OK;
}

/* ---- nodes ------------------------------------------------------------------------------ */
static pl_status copy_node(expander *e, uint32_t node, uint32_t *out)
{
    const pl_node_rec *r = &e->in->nodes[node];
    pl_graph *g = e->x->g;
    g->scope = r->scope; /* scopes are copied with their numbers */
    g->backward = r->backward;
    *out = pl_build(g, r->op, r->attr, r->n_in, e->args, NULL).id;
    return *out ? PL_OK : pl_graph_status(g);
}

static pl_status resolve(expander *e, uint32_t val, uint32_t *out);

static pl_status make_view(expander *e, uint32_t unit, uint32_t val, uint32_t base)
{
    const pl_unit *u = &e->units->unit[unit];
    const pl_node_rec *r = &e->in->nodes[u->nodes[0]];
    uint32_t node, unused;
    for (uint32_t i = 0; i < r->n_in; i++) PL_TRY(resolve(e, e->in->edges[r->in + i], &unused));
    for (uint32_t i = 0; i < r->n_in; i++) e->args[i] = (pl_val){e->now[e->in->edges[r->in + i]]};
    PL_TRY(copy_node(e, u->nodes[0], &node));
    pl_unit *v;
    PL_TRY(add_unit(e, unit, &v));
    v->nodes[v->n_nodes++] = node;
    for (uint32_t i = 0; i < u->n_in; i++) v->in[v->n_in++] = e->now[u->in[i]];
    v->out[v->n_out++] = e->x->g->nodes[node].out;
    e->now[val] = e->x->g->nodes[node].out;
    e->made_of[val] = base;
    return PL_OK;
}

/* Returns the latest copy of an old value; updates views of it. */
static pl_status resolve(expander *e, uint32_t val, uint32_t *out)
{
    uint32_t unit = e->units->unit_of[val];
    if (unit && e->units->unit[unit - 1].kind == PL_UNIT_VIEW) {
        uint32_t base;
        PL_TRY(resolve(e, e->units->unit[unit - 1].in[0], &base));
        if (!e->now[val] || e->made_of[val] != base) PL_TRY(make_view(e, unit - 1, val, base));
    }
    int slot = unit || !e->homes ? -1 : pl_node_slot(e->in, pl_producer(e->in, val));
    if (pl_home_level(e->homes, slot)) e->now[val] = e->now[e->first_read[slot]];
    PL_FAIL_IF(!e->now[val], PL_ERR_PLAN, "value %u is read before it is computed", val);
    *out = e->now[val];
    return PL_OK;
}

/* Copies the members of a unit; e->now does not change. */
static pl_status copy_members(expander *e, const pl_unit *u, pl_unit *v)
{
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        const pl_node_rec *r = &e->in->nodes[u->nodes[i]];
        uint32_t node;
        for (uint32_t k = 0; k < r->n_in; k++) {
            uint32_t val = e->in->edges[r->in + k];
            e->args[k].id = e->run_of[val] == e->run ? e->local[val] : e->now[val];
        }
        PL_TRY(copy_node(e, u->nodes[i], &node));
        v->nodes[v->n_nodes++] = node;
        for (uint32_t k = 0; k < r->n_out; k++) {
            e->local[r->out + k] = e->x->g->nodes[node].out + k;
            e->run_of[r->out + k] = e->run;
        }
    }
    return PL_OK;
}

static pl_status add_run(expander *e, uint32_t unit)
{
    const pl_unit *u = &e->units->unit[unit];
    uint32_t unused;
    PL_FAIL_IF(u->kind == PL_UNIT_VIEW, PL_ERR_PLAN, "unit %u is a view and does not run", unit);
    for (uint32_t i = 0; i < u->n_in; i++) PL_TRY(resolve(e, u->in[i], &unused));
    pl_unit *v;
    PL_TRY(add_unit(e, unit, &v));
    e->x->order[e->x->n_order++] = e->x->units->n - 1;
    e->run++;
    PL_TRY(copy_members(e, u, v));
    for (uint32_t i = 0; i < u->n_in; i++) v->in[v->n_in++] = e->now[u->in[i]];
    for (uint32_t k = 0; k < u->n_out; k++) {
        uint32_t val = u->out[k];
        v->out[v->n_out++] = e->local[val];
        if (!e->now[val] || !e->settled[val]) e->now[val] = e->local[val];
    }
    return PL_OK;
}

/* ---- sources and effects ---------------------------------------------------------------- */
static pl_status copy_sources(expander *e)
{
    for (uint32_t n = 1; n < e->in->n_nodes; n++) {
        const pl_node_rec *r = &e->in->nodes[n];
        uint32_t node;
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        PL_TRY(copy_node(e, n, &node));
        int slot = pl_node_slot(e->in, n);
        uint8_t level = pl_home_level(e->homes, slot);
        if (level && !e->first_read[slot]) e->first_read[slot] = r->out;
        *(level ? &e->away[level][r->out] : &e->now[r->out]) = e->x->g->nodes[node].out;
    }
    return PL_OK;
}

/* ---- moves ------------------------------------------------------------------------------ */
static pl_status add_move(expander *e, const pl_list_move *m)
{
    pl_graph *g = e->x->g;
    uint32_t from = 0;
    if (m->from == PL_LEVEL_DEVICE)
        PL_TRY(resolve(e, m->val, &from));
    else
        from = e->away[m->from][m->val];
    PL_FAIL_IF(!from, PL_ERR_PLAN, "value %u is moved from a level that does not hold it", m->val);
    const pl_node_rec *made = pl_node_get(e->in, pl_producer(e->in, m->val));
    g->scope = made->scope;
    g->backward = made->backward;
    uint32_t to = pl_stop_gradient(g, (pl_val){from}).id;
    if (!to) return pl_graph_status(g);
    pl_unit *v;
    PL_TRY(add_unit(e, e->units->n, &v));
    v->nodes[v->n_nodes++] = pl_producer(g, to);
    v->in[v->n_in++] = from;
    v->out[v->n_out++] = to;
    *(m->to ? &e->away[m->to][m->val] : &e->now[m->val]) = to;
    e->x->order[e->x->n_order++] = e->x->units->n - 1;
    return PL_OK;
}

/* Returns the index in x->order before which move i must have ended. */
static uint32_t end_of_move(const expander *e, uint32_t i)
{
    const pl_list_move *m = &e->moves[i];
    if (m->at_once) return e->move_at[i] + 1;
    if (m->to == PL_LEVEL_DEVICE) return e->entry_at[m->end];
    if (m->at < m->end) return m->late ? e->entry_at[m->end] : e->moves_at[m->end];
    for (uint32_t k = i + 1; k < e->n_moves && e->moves[k].at == m->at; k++)
        if (e->moves[k].val == m->val && e->moves[k].from == m->to) return e->move_at[k];
    return e->entry_at[m->end];
}

/* Fills in levels and ends, once all units exist. */
static pl_status finish_moves(expander *e, const uint32_t *unit_of_move)
{
    pl_expansion *x = e->x;
    const pl_graph *g = x->g;
    x->move_end = pl_arena_new(&x->mem, uint32_t, x->units->n + 1);
    x->units->level = pl_arena_new(&x->units->arena, uint8_t, g->n_vals);
    if (!x->move_end || !x->units->level) return PL_ERR_MEMORY;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].op->flags & PL_OP_SOURCE)
            x->units->level[g->nodes[n].out] = pl_home_level(e->homes, pl_node_slot(g, n));
    for (uint32_t i = 0; i < e->n_moves; i++) {
        uint32_t unit = unit_of_move[i];
        x->move_end[unit] = end_of_move(e, i);
        x->units->level[x->units->unit[unit].out[0]] = e->moves[i].to;
    }
    return PL_OK;
}

/* An assigned value of a slot below the device is its copy at that level. */
static pl_status resolve_assigned(expander *e, uint32_t val, int slot, uint32_t *out)
{
    uint8_t level = pl_home_level(e->homes, slot);
    if (!level) return resolve(e, val, out);
    *out = e->away[level][val];
    PL_FAIL_IF(!*out, PL_ERR_PLAN, "the new value of \"%s\" is not moved to the slot's level",
               pl_store_slot(e->in->store, slot)->name);
    return PL_OK;
}

static pl_status copy_effects(expander *e)
{
    for (uint32_t n = 1; n < e->in->n_nodes; n++) {
        const pl_node_rec *r = &e->in->nodes[n];
        uint32_t node;
        if (!(r->op->flags & PL_OP_EFFECT)) continue;
        for (uint32_t i = 0; i < r->n_in; i++)
            PL_TRY(resolve_assigned(e, e->in->edges[r->in + i], pl_node_slot(e->in, n),
                                    &e->args[i].id));
        PL_TRY(copy_node(e, n, &node));
    }
    return PL_OK;
}

/* Marks values that are assigned to a slot, and the values that they are views of. */
static void settle_assigned(expander *e)
{
    for (uint32_t n = 1; n < e->in->n_nodes; n++) {
        if (!(e->in->nodes[n].op->flags & PL_OP_EFFECT) || pl_node_slot(e->in, n) < 0) continue;
        uint32_t val = pl_node_in(e->in, n)[0], unit;
        while ((unit = e->units->unit_of[val]) && e->units->unit[unit - 1].kind == PL_UNIT_VIEW)
            val = e->units->unit[unit - 1].in[0];
        e->settled[val] = true;
    }
}

/* ---- the whole -------------------------------------------------------------------------- */
static pl_status prepare(expander *e, uint32_t n)
{
    pl_expansion *x = e->x;
    uint32_t vals = e->in->n_vals;
    e->now = pl_arena_new(&e->scratch, uint32_t, vals);
    for (int level = 1; level < PL_N_LEVELS && (e->n_moves || e->homes); level++) {
        e->away[level] = pl_arena_new(&e->scratch, uint32_t, vals);
        if (!e->away[level]) return PL_ERR_MEMORY;
    }
    e->entry_at = pl_arena_new(&e->scratch, uint32_t, n + 1);
    e->moves_at = pl_arena_new(&e->scratch, uint32_t, n + 1);
    e->move_at = pl_arena_new(&e->scratch, uint32_t, e->n_moves + 1);
    e->first_read = pl_arena_new(&e->scratch, uint32_t, pl_store_count(e->in->store) + 1);
    e->made_of = pl_arena_new(&e->scratch, uint32_t, vals);
    e->local = pl_arena_new(&e->scratch, uint32_t, vals);
    e->run_of = pl_arena_new(&e->scratch, uint32_t, vals);
    e->settled = pl_arena_new(&e->scratch, bool, vals);
    e->ran = pl_arena_new(&e->scratch, bool, e->units->n + 1);
    e->args = pl_arena_new(&e->scratch, pl_val, pl_graph_widest(e->in));
    x->g = pl_graph_new(e->in->store);
    x->units = pl_sys_alloc(sizeof *x->units);
    x->order = pl_arena_new(&x->mem, uint32_t, n + e->n_moves + 1);
    e->cap = e->units->n + n / 2 + e->n_moves + 16;
    if (!e->entry_at || !e->moves_at || !e->move_at || !e->first_read || !e->now || !e->made_of ||
        !e->local || !e->run_of || !e->settled || !e->ran || !e->args || !x->g || !x->units ||
        !x->order)
        return PL_ERR_MEMORY;
    x->units->unit = pl_arena_new(&x->units->arena, pl_unit, e->cap);
    x->base = pl_arena_new(&x->mem, uint32_t, e->cap);
    x->recomputed = pl_arena_new(&x->mem, bool, e->cap);
    x->g->n_streams = e->in->n_streams;
    if (!x->units->unit || !x->base || !x->recomputed) return PL_ERR_MEMORY;
    return pl_graph_copy_scopes(e->in, x->g) ? PL_OK : x->g->status;
}

/* Records which unit produces a value, and which values are bits, as in the old graph. */
static pl_status index_outputs(const pl_units *old, pl_expansion *x)
{
    pl_units *us = x->units;
    us->unit_of = pl_arena_new(&us->arena, uint32_t, x->g->n_vals);
    us->bits = old->bits ? pl_arena_new(&us->arena, bool, x->g->n_vals) : NULL;
    if (!us->unit_of || (old->bits && !us->bits)) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < us->n; i++) {
        pl_unit *u = &us->unit[i];
        u->bits = us->bits;
        for (uint32_t k = 0; k < u->n_out; k++) {
            us->unit_of[u->out[k]] = i + 1;
            if (!us->bits) continue;
            us->bits[u->out[k]] = u->kind == PL_UNIT_MOVE ? us->bits[u->in[0]]
                                                          : old->bits[old->unit[x->base[i]].out[k]];
        }
    }
    return PL_OK;
}

static pl_status expand(expander *e, const uint32_t *list, uint32_t n)
{
    PL_TRY(prepare(e, n));
    settle_assigned(e);
    PL_TRY(copy_sources(e));
    uint32_t *unit_of_move = pl_arena_new(&e->scratch, uint32_t, e->n_moves + 1), k = 0;
    if (!unit_of_move) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i <= n; i++) {
        e->moves_at[i] = e->x->n_order;
        for (; k < e->n_moves && e->moves[k].at == i; k++) {
            PL_TRY(add_move(e, &e->moves[k]));
            unit_of_move[k] = e->x->units->n - 1;
            e->move_at[k] = e->x->n_order - 1;
        }
        e->entry_at[i] = e->x->n_order;
        if (i < n) PL_TRY(add_run(e, list[i]));
    }
    PL_FAIL_IF(k < e->n_moves, PL_ERR_PLAN, "moves are not sorted");
    PL_TRY(copy_effects(e));
    if (e->n_moves || e->homes) PL_TRY(finish_moves(e, unit_of_move));
    e->x->g->scope = 0;
    e->x->g->backward = false;
    return index_outputs(e->units, e->x);
}

pl_status pl_expand(const pl_graph *g, const pl_units *units, const uint32_t *list, uint32_t n,
                    pl_expansion **out)
{
    return pl_expand_moves(g, units, list, n, NULL, 0, NULL, out);
}

pl_status pl_expand_moves(const pl_graph *g, const pl_units *units, const uint32_t *list,
                          uint32_t n, const pl_list_move *moves, uint32_t n_moves,
                          const pl_homes *homes, pl_expansion **out)
{
    expander e = {.in = g,
                  .units = units,
                  .x = pl_sys_alloc(sizeof *e.x),
                  .moves = moves,
                  .n_moves = n_moves,
                  .homes = homes};
    if (!e.x) return PL_ERR_MEMORY;
    pl_status rc = expand(&e, list, n);
    pl_arena_release(&e.scratch);
    if (rc != PL_OK) {
        pl_expansion_free(e.x);
        return rc;
    }
    *out = e.x;
    return PL_OK;
}
