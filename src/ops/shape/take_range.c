/* take_range.c - see ir/index_range.h: follows the indices of each take, and the labels of each
 * cross-entropy, back to the value they come from. */
#include "ir/index_range.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

/* Whether v is select(x < 0, x + rows, x): indices that count from the end. Sets *x. */
static bool is_wrapped(const pl_graph *g, uint32_t node, uint32_t *x)
{
    const pl_node_rec *n = pl_node_get(g, node);
    if (n->op != &pl_op_select) return false;
    const uint32_t *in = pl_node_in(g, node);
    uint32_t low = pl_producer(g, in[0]), shifted = pl_producer(g, in[1]);
    double zero;
    *x = in[2];
    return pl_node_get(g, low)->op == &pl_op_lt && pl_node_in(g, low)[0] == *x &&
           pl_fill_of(g, (pl_val){pl_node_in(g, low)[1]}, &zero) && zero == 0 &&
           pl_node_get(g, shifted)->op->flags & PL_OP_MAP && pl_node_in(g, shifted)[0] == *x;
}

/* Whether the indices v are elements of `from`; *wrapped: those below 0 count from the end. */
static bool comes_from(const pl_graph *g, uint32_t v, uint32_t from, bool *wrapped)
{
    *wrapped = false;
    while (v != from) {
        uint32_t node = pl_producer(g, v), x;
        const pl_op *op = pl_node_get(g, node)->op;
        if (is_wrapped(g, node, &x)) {
            *wrapped = true;
            v = x;
        } else if (op == &pl_op_cast || op->flags & (PL_OP_VIEW | PL_OP_AFFINE)) {
            v = pl_node_in(g, node)[0];
        } else {
            return false;
        }
    }
    return true;
}

/* What a node reads its second operand for: rows of its first, or its classes; high 0: other. */
static pl_index_range range_at(const pl_graph *g, const pl_node_rec *n, const uint32_t *in)
{
    pl_index_range r = {0};
    if (n->op != &pl_op_take && n->op != &pl_op_cross_entropy) return r;
    const pl_type *t = pl_type_of(g, in[0]);
    r.high = t->dim[0];
    if (n->op == &pl_op_take) return r;
    const pl_cross_entropy_attr *a = n->attr;
    r.classes = true;
    r.high = a->classes ? a->classes : t->dim[t->rank - 1];
    r.skips = a->ignores;
    r.skip = a->ignores ? a->ignore : 0;
    return r;
}

pl_index_range pl_index_range_of(const pl_graph *g, uint32_t val)
{
    pl_index_range r = {0};
    for (uint32_t node = 1; node < g->n_nodes; node++) {
        bool wrapped;
        const uint32_t *in = pl_node_in(g, node);
        pl_index_range one = range_at(g, pl_node_get(g, node), in);
        if (!one.high || !comes_from(g, in[1], val, &wrapped)) continue;
        if (wrapped && !one.classes) one.low = -one.high;
        if (!r.high) {
            r = one;
            continue;
        }
        r.skips = r.skips && one.skips && one.skip == r.skip;
        r.classes = r.classes && one.classes;
        if (one.low > r.low) r.low = one.low;
        if (one.high < r.high) r.high = one.high;
    }
    return r;
}
