/* role.c - which role a node can play in a fused group; see role.h.
 *
 * The role follows from the op's flags, types and attributes alone, so a node has the same role
 * wherever it is read. Cost: one call of the op's rule for each node.
 */
#include "ir/group/role.h"

#include "base/err.h"

#include <stdlib.h>

void pl_node_affine(const pl_graph *g, uint32_t node, pl_affine *out)
{
    pl_type in[1], type[PL_MAX_OUT];
    pl_call c;
    pl_node_call(g, node, in, type, &c);
    if (!pl_node_get(g, node)->op->affine(&c, out)) PL_BUG("affine of node %u", node);
}

void pl_node_reduction(const pl_graph *g, uint32_t node, pl_reduction *out)
{
    pl_type in[1], type[PL_MAX_OUT];
    pl_call c;
    pl_node_call(g, node, in, type, &c);
    pl_node_get(g, node)->op->reduction(&c, out);
}

int64_t pl_node_row(const pl_graph *g, uint32_t node)
{
    const pl_type *t = pl_type_of(g, pl_node_in(g, node)[0]);
    pl_reduction r;
    pl_node_reduction(g, node, &r);
    int64_t row = 1;
    bool outside = false; /* a kept dim has been passed */
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->dim[d] == 1) continue;
        if (!(r.axes >> d & 1u))
            outside = true;
        else if (outside)
            return 0;
        else
            row *= t->dim[d];
    }
    return row;
}

/* A reading that jumps with every element wastes most of each cache line; a separate kernel reads
 * in blocks and is faster. */
static bool near(const pl_type *y, const pl_affine *a)
{
    for (int d = y->rank - 1; d >= 0; d--)
        if (y->dim[d] > 1) return labs(a->stride[d]) <= 4;
    return true;
}

static pl_role view_role(const pl_graph *g, uint32_t node)
{
    pl_type in[1], out[PL_MAX_OUT];
    pl_call c;
    int64_t offset = 0;
    pl_node_call(g, node, in, out, &c);
    bool same = pl_node_get(g, node)->op->view(&c, &offset) && offset == 0 &&
                pl_type_elems(&in[0]) == pl_type_elems(&out[0]) && in[0].dtype == out[0].dtype;
    return same ? PL_ROLE_SAME : PL_ROLE_KERNEL;
}

pl_role pl_role_of(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(g, node);
    uint32_t f = r->op->flags;
    if (f & (PL_OP_SOURCE | PL_OP_EFFECT)) return PL_ROLE_NONE;
    if (r->n_out == 0 || r->n_in > 3) return PL_ROLE_KERNEL;
    for (uint32_t k = 0; k < r->n_out; k++)
        if (pl_type_elems(pl_type_of(g, r->out + k)) == 0) return PL_ROLE_KERNEL;
    if (f & PL_OP_MAP) return PL_ROLE_MAP;
    if (f & PL_OP_FILL) return PL_ROLE_FILL;
    if (f & PL_OP_DRAW) {
        uint32_t key = pl_producer(g, pl_node_in(g, node)[0]);
        bool source = pl_node_get(g, key)->op->flags & PL_OP_SOURCE;
        return source ? PL_ROLE_DRAW : PL_ROLE_KERNEL;
    }
    if (f & PL_OP_REDUCE)
        return pl_type_elems(pl_type_of(g, pl_node_in(g, node)[0])) ? PL_ROLE_REDUCE
                                                                    : PL_ROLE_KERNEL;
    if (f & PL_OP_AFFINE) {
        pl_type in[1], out[PL_MAX_OUT];
        pl_call c;
        pl_affine a;
        pl_node_call(g, node, in, out, &c);
        return r->op->affine(&c, &a) && near(&out[0], &a) ? PL_ROLE_AFFINE : PL_ROLE_KERNEL;
    }
    if (f & PL_OP_VIEW) return view_role(g, node);
    return PL_ROLE_KERNEL;
}
