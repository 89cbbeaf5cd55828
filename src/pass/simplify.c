/* simplify.c - dead code, common subexpressions and no-ops vanish; no result changes by a bit.
 *
 * One pass in node order over the live nodes (those an assign or output depends on) writes a new
 * graph. A node is dropped when its op's own rule (op->simplify) names an equal value, or when an
 * equal node (same op, inputs and attributes) was written before; every op is a pure function of
 * inputs and attributes, random draws included, so that is always sound. A second backward mark is
 * not needed: what a rewrite leaves unused is removed by running the pass again, which the pipeline
 * does until nothing shrinks (two rounds in practice).
 *
 * Merging equal nodes of forward and backward can lengthen a lifetime; grouping undoes that where
 * recomputing is cheap (fuse.c).
 *
 * Cost: O(nodes + edges) expected, by a hash table of nodes.
 */
#include "pass/pass.h"

#include "base/sys.h"

#include <string.h>

typedef struct rewriter {
    const pl_graph *in;
    pl_graph *out;
    bool *live;      /* per old node */
    uint32_t *map;   /* old value -> new value */
    uint32_t *table; /* open addressing over new nodes; 0 = empty */
    uint32_t table_cap;
    pl_val *args;
} rewriter;

static void mark_live(const pl_graph *g, bool *live)
{
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--) {
        const pl_node_rec *r = &g->nodes[n];
        if (r->op->flags & PL_OP_EFFECT) live[n] = true;
        for (uint32_t i = 0; live[n] && i < r->n_in; i++)
            live[g->vals[g->edges[r->in + i]].node] = true;
    }
}

static uint64_t node_hash(const pl_op *op, const void *attr, const pl_val *in, uint32_t n_in)
{
    uint64_t h = pl_attr_hash(op, attr) ^ (uint64_t)(uintptr_t)op;
    for (uint32_t i = 0; i < n_in; i++) h = (h ^ in[i].id) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static bool same_node(const rewriter *w, uint32_t node, const pl_node_rec *r)
{
    const pl_node_rec *m = &w->out->nodes[node];
    if (m->op != r->op || m->n_in != r->n_in) return false;
    for (uint32_t i = 0; i < r->n_in; i++)
        if (w->out->edges[m->in + i] != w->args[i].id) return false;
    return !r->op->attrs || pl_attr_equal(r->op, m->attr, r->attr);
}

/* The slot of the table where an equal node stands or a new one may be put. */
static uint32_t *find_equal(rewriter *w, const pl_node_rec *r)
{
    uint64_t h = node_hash(r->op, r->attr, w->args, r->n_in);
    uint32_t i = (uint32_t)h & (w->table_cap - 1);
    while (w->table[i] && !same_node(w, w->table[i], r)) i = (i + 1) & (w->table_cap - 1);
    return &w->table[i];
}

static void rewrite_node(rewriter *w, uint32_t n)
{
    const pl_node_rec *r = &w->in->nodes[n];
    pl_graph *g = w->out;
    for (uint32_t i = 0; i < r->n_in; i++) w->args[i] = (pl_val){w->map[w->in->edges[r->in + i]]};
    g->scope = r->scope; /* scopes are copied with their numbers */
    g->backward = r->backward;
    if (r->op->simplify) {
        pl_val v = r->op->simplify(g, r->attr, w->args, r->n_in);
        if (pl_val_ok(v)) {
            w->map[r->out] = v.id;
            return;
        }
    }
    bool mergeable = !(r->op->flags & PL_OP_EFFECT);
    uint32_t *seat = mergeable ? find_equal(w, r) : NULL;
    uint32_t node = seat ? *seat : 0;
    if (!node) {
        node = pl_build(g, r->op, r->attr, r->n_in, w->args, NULL).id;
        if (!node) return;
        if (seat) *seat = node;
    }
    for (uint32_t k = 0; k < r->n_out; k++) w->map[r->out + k] = g->nodes[node].out + k;
}

static pl_status simplify(rewriter *w, pl_arena *scratch)
{
    const pl_graph *in = w->in;
    uint32_t widest = 1;
    for (uint32_t n = 1; n < in->n_nodes; n++)
        if (in->nodes[n].n_in > widest) widest = in->nodes[n].n_in;
    w->table_cap = 64;
    while (w->table_cap < 2 * in->n_nodes) w->table_cap *= 2;
    w->live = pl_arena_new(scratch, bool, in->n_nodes);
    w->map = pl_arena_new(scratch, uint32_t, in->n_vals);
    w->table = pl_arena_new(scratch, uint32_t, w->table_cap);
    w->args = pl_arena_new(scratch, pl_val, widest);
    if (!w->live || !w->map || !w->table || !w->args) return PL_ERR_MEMORY;
    mark_live(in, w->live);
    if (!pl_graph_copy_scopes(in, w->out)) return w->out->status;
    for (uint32_t n = 1; n < in->n_nodes && w->out->status == PL_OK; n++)
        if (w->live[n]) rewrite_node(w, n);
    w->out->scope = 0;
    w->out->backward = false;
    w->out->n_streams = in->n_streams;
    return pl_graph_status(w->out);
}

pl_status pl_pass_simplify(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    pl_arena scratch = PL_ARENA_INIT;
    rewriter w = {.in = in, .out = pl_graph_new(in->store)};
    pl_status rc = w.out ? simplify(&w, &scratch) : PL_ERR_MEMORY;
    pl_arena_release(&scratch);
    if (rc != PL_OK) {
        pl_graph_free(w.out);
        return rc;
    }
    *out = w.out;
    return PL_OK;
}
