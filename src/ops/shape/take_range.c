/* take_range.c - see ir/index_range.h: follows the indices of each take back to the value they
 * come from. */
#include "ir/index_range.h"
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

pl_index_range pl_index_range_of(const pl_graph *g, uint32_t val)
{
    pl_index_range r = {0, 0};
    for (uint32_t node = 1; node < g->n_nodes; node++) {
        bool wrapped;
        if (pl_node_get(g, node)->op != &pl_op_take) continue;
        const uint32_t *in = pl_node_in(g, node);
        int64_t rows = pl_type_of(g, in[0])->dim[0];
        if (!comes_from(g, in[1], val, &wrapped)) continue;
        int64_t low = wrapped ? -rows : 0;
        if (!r.high || low > r.low) r.low = low;
        if (!r.high || rows < r.high) r.high = rows;
    }
    return r;
}
