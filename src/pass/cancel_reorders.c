/* cancel_reorders.c - removes ops that move elements and then move them back.
 *
 *   x ─► permute(0,3,1,2) ─► permute(0,2,3,1) ─► y      =>      y is x
 *
 * Networks that are ported from other layouts have such pairs between layers, and so do their
 * gradients. Each op of a chain reads one input element for each output element, at an affine index
 * (op->affine; a view reads its elements in order). The pass composes these readings
 * (ir/group/amap.h) from the end of the chain upwards. When element i of the output is element i of
 * an earlier value, for all i, the output becomes that value, with a reshape where the shapes
 * differ.
 *
 * Invariant: a value is replaced only by a value with the same elements in the same order, so no
 * bit of a result changes. Chains with fewer than two ops that copy are left alone: views are free.
 * All ops of a chain are in one phase (forward or backward), so no forward value has to live
 * longer.
 *
 * Cost: O(nodes), with at most MOST compositions for each node. `simplify` removes ops without a
 * reader afterwards.
 */
#include "pass/pass.h"

#include "ir/group/amap.h"
#include "pass/rewrite.h"
#include "plimsoll_ops.h"

enum { MOST = 16 }; /* ops of a chain */

/* Changes *map from reading the output of a node to reading its input; adds to *copies when the
 * node is not a view. False: the node does something else, or the composed index is not affine. */
static bool read_through(const pl_graph *g, uint32_t node, pl_amap *map, int *copies)
{
    const pl_node_rec *r = &g->nodes[node];
    uint32_t flags = r->op->flags;
    pl_type from[1], to[PL_MAX_OUT];
    pl_call c;
    pl_affine a;
    int64_t at = 0;
    /* PL_OP_NO_GRAD: a view that is kept on purpose. */
    if (r->n_in != 1 || r->n_out != 1 || flags & PL_OP_NO_GRAD) return false;
    if (!(flags & (PL_OP_AFFINE | PL_OP_VIEW))) return false;
    pl_node_call(g, node, from, to, &c);
    if (from[0].dtype != to[0].dtype || pl_type_elems(&to[0]) == 0) return false;
    bool view = flags & PL_OP_VIEW && r->op->view(&c, &at);
    *copies += !view;
    if (view && at == 0 && pl_type_elems(&from[0]) == pl_type_elems(&to[0])) return true;
    if (!(flags & PL_OP_AFFINE) || !r->op->affine(&c, &a)) return false;
    pl_amap below = *map;
    return pl_amap_through(&below, to[0].rank, to[0].dim, &a, map);
}

/* Returns the earlier value that has the elements of node n's output in their order; 0: none
 * found. */
static uint32_t original_of(const pl_graph *g, uint32_t n)
{
    if (g->nodes[n].n_out != 1) return 0;
    int64_t elems = pl_type_elems(pl_type_of(g, g->nodes[n].out));
    pl_amap map = pl_amap_identity(elems);
    int copies = 0;
    uint32_t node = n;
    for (int i = 0; i < MOST && g->nodes[node].backward == g->nodes[n].backward; i++) {
        if (!read_through(g, node, &map, &copies)) return 0;
        uint32_t val = pl_node_in(g, node)[0];
        if (copies > 1 && pl_amap_is_identity(&map) && pl_type_elems(pl_type_of(g, val)) == elems)
            return val;
        node = pl_producer(g, val);
    }
    return 0;
}

pl_status pl_pass_cancel(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    pl_rewrite c;
    pl_status rc = pl_rewrite_begin(&c, in);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        uint32_t val = original_of(in, n);
        pl_rewrite_at(&c, n);
        if (val) {
            const pl_type *t = pl_type_of(in, in->nodes[n].out);
            pl_val v = {c.map[val]};
            if (!pl_type_equal(pl_type_of(in, val), t)) v = pl_reshape(c.out, v, t->rank, t->dim);
            c.map[in->nodes[n].out] = v.id;
        } else {
            pl_rewrite_node(&c, n);
        }
        rc = c.out->status;
    }
    return pl_rewrite_end(&c, rc, out);
}
