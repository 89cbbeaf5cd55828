/* units.c - the partition without fusion: every needed node is a separate unit.
 *
 * Needed is what an effect (assign, output) depends on. All outputs of a unit's node have a
 * buffer, read or not, because a kernel fills every output.
 */
#include "ir/units.h"

#include "base/sys.h"

void pl_units_free(pl_units *u)
{
    if (!u) return;
    pl_arena_release(&u->arena);
    pl_sys_free(u);
}

static bool is_unit(const pl_graph *g, const bool *needed, uint32_t node)
{
    return needed[node] && !(g->nodes[node].op->flags & (PL_OP_EFFECT | PL_OP_SOURCE));
}

/* Lists the distinct inputs of a node, in the order of first use. `seen` holds the last node + 1
 * that listed a value. */
static pl_status list_inputs(const pl_graph *g, uint32_t node, uint32_t *seen, pl_arena *a,
                             pl_unit *u)
{
    const pl_node_rec *r = &g->nodes[node];
    u->in = pl_arena_new(a, uint32_t, r->n_in);
    if (!u->in) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t v = g->edges[r->in + i];
        if (seen[v] == node) continue;
        seen[v] = node;
        u->in[u->n_in++] = v;
    }
    return PL_OK;
}

static pl_status make_unit(const pl_graph *g, uint32_t node, uint32_t *seen, pl_type *types,
                           pl_units *us)
{
    const pl_node_rec *r = &g->nodes[node];
    pl_unit *u = &us->unit[us->n];
    u->nodes = pl_arena_new(&us->arena, uint32_t, 1);
    u->out = pl_arena_new(&us->arena, uint32_t, r->n_out);
    if (!u->nodes || !u->out) return PL_ERR_MEMORY;
    u->nodes[0] = node;
    u->n_nodes = 1;
    u->n_out = r->n_out;
    for (uint32_t k = 0; k < r->n_out; k++) {
        u->out[k] = r->out + k;
        us->unit_of[r->out + k] = us->n + 1;
    }
    PL_TRY(list_inputs(g, node, seen, &us->arena, u));
    if (r->op->flags & PL_OP_VIEW) {
        pl_call c;
        pl_type out[PL_MAX_OUT];
        pl_node_call(g, node, types, out, &c);
        if (r->op->view(&c, &u->view_offset)) u->kind = PL_UNIT_VIEW;
    }
    us->n++;
    return PL_OK;
}

static pl_status fill_units(const pl_graph *g, pl_units *us, pl_arena *scratch)
{
    bool *needed = pl_arena_new(scratch, bool, g->n_nodes);
    uint32_t *seen = pl_arena_new(scratch, uint32_t, g->n_vals), n = 0;
    pl_type *types = pl_arena_new(scratch, pl_type, pl_graph_widest(g));
    if (!needed || !seen || !types) return PL_ERR_MEMORY;
    pl_graph_mark_needed(g, needed);
    for (uint32_t i = 1; i < g->n_nodes; i++) n += is_unit(g, needed, i);
    us->unit = pl_arena_new(&us->arena, pl_unit, n);
    us->unit_of = pl_arena_new(&us->arena, uint32_t, g->n_vals);
    if (!us->unit || !us->unit_of) return PL_ERR_MEMORY;
    for (uint32_t i = 1; i < g->n_nodes; i++)
        if (is_unit(g, needed, i)) PL_TRY(make_unit(g, i, seen, types, us));
    return PL_OK;
}

pl_status pl_units_single(const pl_graph *g, pl_units **out)
{
    pl_units *us = pl_sys_alloc(sizeof *us);
    if (!us) return PL_ERR_MEMORY;
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = fill_units(g, us, &scratch);
    pl_arena_release(&scratch);
    if (rc != PL_OK) {
        pl_units_free(us);
        return rc;
    }
    *out = us;
    return PL_OK;
}
