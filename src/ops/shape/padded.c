/* padded.c - rows padded to whole units of tensor cores.
 *
 * Tensor cores read and write rows that begin at multiples of 16 bytes. Libraries compute products
 * of other rows several times as slowly: logits of 50257 classes in 16 bits, their gradients,
 * layers of width 770. The rule `padded` of an op (ir/op.h) builds the op over wider rows, whose
 * added columns are zero, and slices the result:
 *
 *   logits [M,50257] = x w'      =>      wide [M,50304] = x pad(w)'    logits = slice(wide)
 *
 * A rule that reads such a slice reads the wide value instead, where its own result does not depend
 * on the added columns, or where they are zero. So between a product, the loss over its result and
 * the products of the gradient no slice and no pad is left; weights are padded once a step.
 * Terms of zero change no sum.
 */
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/shape.h"

#include <string.h>

enum {
    LONG = 4096, /* rows from here on are padded to whole lines of the cache */
    LINE = 64,
    DEPTH = 8
};

int64_t pl__row_unit(pl_dtype d, bool tf32)
{
    enum { BYTES = 16 };
    bool fast = d == PL_BF16 || d == PL_F16 || (d == PL_F32 && tf32);
    return fast ? BYTES / (int64_t)pl_dtype_bytes(d) : 1;
}

int64_t pl__padded_row(int64_t n, int64_t unit)
{
    int64_t by = n < LONG ? unit : LINE;
    return n % unit ? (n + by - 1) / by * by : n;
}

pl_val pl__wide_of(const pl_graph *g, pl_val x)
{
    const pl_node_rec *r = pl_node_get(g, pl_producer(g, x.id));
    if (r->op != &pl_op_slice) return PL_NO_VAL;
    const pl_slice_attr *a = r->attr;
    pl_val wide = {pl_node_in(g, pl_producer(g, x.id))[0]};
    const pl_type *t = pl_type_of(g, wide.id);
    for (int i = 0; i < t->rank; i++) {
        bool whole = a->start.v[i] == 0 && a->step.v[i] == 1;
        if (!whole || (i < t->rank - 1 && a->stop.v[i] != t->dim[i])) return PL_NO_VAL;
    }
    return wide;
}

static bool is_zero_from(const pl_graph *g, pl_val x, int axis, int64_t n, int depth);

/* Whether the columns of a product from n on are zero: those of its right factor and its bias. */
static bool product_is_zero_from(const pl_graph *g, const pl_node_rec *r, int64_t n, int depth)
{
    const pl_matmul_attr *t = r->attr;
    const uint32_t *in = &g->edges[r->in];
    int rank = pl_type_of(g, in[1])->rank;
    return is_zero_from(g, (pl_val){in[1]}, rank - (t->tb ? 2 : 1), n, depth) &&
           (r->n_in == 2 || is_zero_from(g, (pl_val){in[2]}, 0, n, depth));
}

static bool is_zero_from(const pl_graph *g, pl_val x, int axis, int64_t n, int depth)
{
    const pl_node_rec *r = pl_node_get(g, pl_producer(g, x.id));
    const pl_type *t = pl_type_of(g, x.id);
    if (t->dim[axis] <= n) return true;
    if (depth == DEPTH) return false;
    if (r->op == &pl_op_pad) {
        const pl_pad_attr *a = r->attr;
        return a->value == 0 && t->dim[axis] - a->hi.v[axis] <= n;
    }
    if (axis != t->rank - 1) return false;
    if (r->op == &pl_op_cross_entropy_bwd) {
        const pl_cross_entropy_attr *a = r->attr;
        return a->classes && a->classes <= n;
    }
    bool attends = r->op == &pl_op_attention || r->op == &pl_op_attention_masked;
    if (attends && x.id == r->out) /* sums of v */
        return is_zero_from(g, (pl_val){g->edges[r->in + 2]}, axis, n, depth + 1);
    if (r->op == &pl_op_matmul) return product_is_zero_from(g, r, n, depth + 1);
    if (r->op == &pl_op_reshape) {
        pl_val from = {g->edges[r->in]};
        const pl_type *u = pl_type_of(g, from.id);
        return u->rank > 0 && u->dim[u->rank - 1] == t->dim[axis] &&
               is_zero_from(g, from, u->rank - 1, n, depth + 1);
    }
    return false;
}

pl_val pl__wide_with_zeros_of(const pl_graph *g, pl_val x)
{
    pl_val wide = pl__wide_of(g, x);
    if (!pl_val_ok(wide)) return PL_NO_VAL;
    const pl_type *t = pl_type_of(g, x.id);
    return is_zero_from(g, wide, t->rank - 1, t->dim[t->rank - 1], 0) ? wide : PL_NO_VAL;
}

pl_val pl__padded_to(pl_graph *g, pl_val x, int64_t rows, int64_t columns)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t lo[PL_MAX_RANK] = {0}, hi[PL_MAX_RANK] = {0};
    pl_val wide = pl__wide_with_zeros_of(g, x);
    if (pl_val_ok(wide) && rows == t.dim[t.rank - 2] &&
        pl_val_type(g, wide).dim[t.rank - 1] == columns)
        return wide;
    hi[t.rank - 2] = rows - t.dim[t.rank - 2];
    hi[t.rank - 1] = columns - t.dim[t.rank - 1];
    return pl__pad_all(g, x, lo, hi, lo, 0);
}

pl_val pl__first_of(pl_graph *g, pl_val x, int64_t rows, int64_t columns)
{
    if (!pl_val_ok(x)) return PL_NO_VAL;
    pl_type t = pl_val_type(g, x);
    int64_t lo[PL_MAX_RANK] = {0}, step[PL_MAX_RANK];
    for (int i = 0; i < t.rank; i++) step[i] = 1;
    t.dim[t.rank - 2] = rows;
    t.dim[t.rank - 1] = columns;
    return pl__slice_all(g, x, lo, t.dim, step);
}
