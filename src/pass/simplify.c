/* simplify.c - removes dead code, common subexpressions and no-ops; no result changes by a bit.
 *
 * One pass in node order over the live nodes (nodes that an assign or output depends on) writes a
 * new graph. A node is dropped when its op's own rule (op->simplify) names an equal value, or when
 * an equal node (same op, inputs and attributes) was written before; every op is a pure function of
 * inputs and attributes, random draws included, so that is always sound. A second backward mark is
 * not needed: running the pass again removes nodes that a rewrite leaves unused; the pipeline
 * repeats it until the graph does not shrink (twice in practice).
 *
 * Merging equal nodes of forward and backward can lengthen a lifetime; grouping undoes that where
 * recompute is cheap (fuse.c).
 *
 * Cost: O(nodes + edges) expected, by a hash table of nodes.
 */
#include "pass/pass.h"
#include "pass/rewrite.h"

typedef struct simplifier {
    pl_rewrite c;
    uint32_t *table; /* open addressing over new nodes; 0 = empty */
    uint32_t table_cap;
} simplifier;

static uint64_t node_hash(const pl_op *op, const void *attr, const pl_val *in, uint32_t n_in)
{
    uint64_t h = pl_attr_hash(op, attr) ^ (uint64_t)(uintptr_t)op;
    for (uint32_t i = 0; i < n_in; i++) h = (h ^ in[i].id) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static bool same_node(const pl_rewrite *c, uint32_t node, const pl_node_rec *r)
{
    const pl_node_rec *m = &c->out->nodes[node];
    if (m->op != r->op || m->n_in != r->n_in) return false;
    for (uint32_t i = 0; i < r->n_in; i++)
        if (c->out->edges[m->in + i] != c->args[i].id) return false;
    return !r->op->attrs || pl_attr_equal(r->op, m->attr, r->attr);
}

/* Returns the cell of the table where an equal node is or a new one goes. */
static uint32_t *find_equal(simplifier *s, const pl_node_rec *r)
{
    uint64_t h = node_hash(r->op, r->attr, s->c.args, r->n_in);
    uint32_t i = (uint32_t)h & (s->table_cap - 1);
    while (s->table[i] && !same_node(&s->c, s->table[i], r)) i = (i + 1) & (s->table_cap - 1);
    return &s->table[i];
}

static void simplify_node(simplifier *s, uint32_t n)
{
    const pl_node_rec *r = &s->c.in->nodes[n];
    pl_graph *g = s->c.out;
    pl_rewrite_at(&s->c, n);
    if (r->op->simplify) {
        pl_val v = r->op->simplify(g, r->attr, s->c.args, r->n_in);
        if (pl_val_ok(v)) {
            s->c.map[r->out] = v.id;
            return;
        }
    }
    bool mergeable = !(r->op->flags & PL_OP_EFFECT);
    uint32_t *seat = mergeable ? find_equal(s, r) : NULL;
    if (seat && *seat) {
        for (uint32_t k = 0; k < r->n_out; k++) s->c.map[r->out + k] = g->nodes[*seat].out + k;
        return;
    }
    uint32_t node = pl_rewrite_node(&s->c, n);
    if (seat) *seat = node;
}

static pl_status simplify(simplifier *s)
{
    const pl_graph *in = s->c.in;
    s->table_cap = 64;
    while (s->table_cap < 2 * in->n_nodes) s->table_cap *= 2;
    s->table = pl_arena_new(&s->c.mem, uint32_t, s->table_cap);
    bool *live = pl_arena_new(&s->c.mem, bool, in->n_nodes);
    if (!s->table || !live) return PL_ERR_MEMORY;
    pl_graph_mark_needed(in, live);
    for (uint32_t n = 1; n < in->n_nodes && s->c.out->status == PL_OK; n++)
        if (live[n]) simplify_node(s, n);
    return PL_OK;
}

pl_status pl_pass_simplify(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    simplifier s = {0};
    pl_status rc = pl_rewrite_begin(&s.c, in);
    if (rc == PL_OK) rc = simplify(&s);
    return pl_rewrite_end(&s.c, rc, out);
}
