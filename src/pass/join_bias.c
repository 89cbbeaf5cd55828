/* join_bias.c - a vector added to the columns of a product becomes the product's own operand.
 *
 *   matmul(a, b) ─► [reshape] ─► add broadcast(bias)        =>        matmul(a, b, bias)
 *
 * Networks that are written with a plain product and an addition (Hugging Face's Conv1D, imported
 * files) then run like those that name the bias: libraries add it without another pass over the
 * result, and the next operations can join the product, too (join_tails.c).
 *
 * The product's result has one reader, so nothing else sees it without the bias. Which number each
 * element reads is composed from the ops between bias and addition (ir/group/amap.h): it must be
 * the number of its column.
 *
 * Cost: O(nodes), with at most MOST compositions for each addition. `simplify` then removes values
 * without a reader.
 */
#include "pass/pass.h"

#include "ir/group/amap.h"
#include "ir/group/role.h"
#include "pass/rewrite.h"
#include "plimsoll_ops.h"

enum { MOST = 8 }; /* ops between */

typedef struct joiner {
    pl_rewrite c;
    const pl_graph *g;
    uint32_t *readers; /* per value: how many nodes read it */
    uint32_t *bias;    /* per node: the value that it gets as its last operand; 0: none */
    uint32_t *sum;     /* per node: the operand that an addition becomes; 0: no such addition */
    bool *built;       /* per node: a source that was built before its turn */
} joiner;

/* Returns the product whose result the value is, in order and without another reader; 0: none. */
static uint32_t product_of(const joiner *j, uint32_t val)
{
    for (int i = 0; i < MOST && j->readers[val] == 1; i++) {
        uint32_t n = pl_producer(j->g, val);
        const pl_node_rec *r = &j->g->nodes[n];
        if (r->op->flags & PL_OP_BIAS) return r->n_in == r->op->min_in && !j->bias[n] ? n : 0;
        if (pl_role_of(j->g, n) != PL_ROLE_SAME) return 0;
        val = pl_node_in(j->g, n)[0];
    }
    return 0;
}

/* Returns the vector of `columns` numbers that the value repeats in every row; 0: none. */
static uint32_t vector_of(const pl_graph *g, uint32_t val, int64_t columns)
{
    int64_t elems = pl_type_elems(pl_type_of(g, val));
    pl_amap map = pl_amap_identity(elems);
    for (int i = 0; i < MOST; i++) {
        const pl_type *t = pl_type_of(g, val);
        uint32_t n = pl_producer(g, val);
        pl_role role = pl_role_of(g, n);
        if (t->rank == 1 && t->dim[0] == columns && map.offset == 0 && map.n == 2 &&
            map.size[0] == columns && map.stride[0] == 1 && map.stride[1] == 0)
            return val;
        if (role == PL_ROLE_AFFINE) {
            pl_type from[1], to[PL_MAX_OUT];
            pl_call c;
            pl_affine a;
            pl_amap below = map;
            pl_node_call(g, n, from, to, &c);
            if (!g->nodes[n].op->affine(&c, &a) ||
                !pl_amap_through(&below, to[0].rank, to[0].dim, &a, &map))
                return 0;
        } else if (role != PL_ROLE_SAME) {
            return 0;
        }
        val = pl_node_in(g, n)[0];
    }
    return 0;
}

/* Whether the node reads a slot. Files name the bias behind the product, where the importer reads
 * it. */
static bool is_slot(const pl_graph *g, uint32_t n)
{
    return g->nodes[n].op->flags & PL_OP_SOURCE && !g->nodes[n].n_in;
}

static void find(joiner *j, uint32_t n)
{
    const pl_graph *g = j->g;
    const pl_node_rec *r = &g->nodes[n];
    const uint32_t *in = pl_node_in(g, n);
    if (!(r->op->flags & PL_OP_PLUS) || r->n_in != 2 || in[0] == in[1]) return;
    for (int i = 0; i < 2 && !j->sum[n]; i++) {
        uint32_t p = product_of(j, in[i]);
        if (!p) continue;
        const pl_node_rec *q = &g->nodes[p];
        const pl_type *t = pl_type_of(g, q->out);
        uint32_t bias = vector_of(g, in[1 - i], t->dim[t->rank - 1]);
        /* The bias is known before the product, or is a slot, which may be read earlier; both ops
         * have one precision. */
        if (!bias || (pl_producer(g, bias) >= p && !is_slot(g, pl_producer(g, bias))) ||
            pl_type_of(g, bias)->dtype != t->dtype ||
            g->scopes[r->scope].full != g->scopes[q->scope].full || r->backward != q->backward)
            continue;
        j->bias[p] = bias;
        j->sum[n] = in[i];
    }
}

static void build(joiner *j, uint32_t n)
{
    const pl_node_rec *r = &j->g->nodes[n];
    pl_graph *out = j->c.out;
    uint32_t source = j->bias[n] ? pl_producer(j->g, j->bias[n]) : 0;
    if (j->built[n]) return;
    if (source > n && !j->built[source]) {
        pl_rewrite_at(&j->c, source);
        pl_rewrite_node(&j->c, source);
        j->built[source] = true;
    }
    pl_rewrite_at(&j->c, n);
    if (j->sum[n]) { /* its product has added it */
        const pl_type *t = pl_type_of(j->g, r->out);
        pl_val v = {j->c.map[j->sum[n]]};
        if (!pl_type_equal(pl_type_of(j->g, j->sum[n]), t)) v = pl_reshape(out, v, t->rank, t->dim);
        j->c.map[r->out] = v.id;
    } else if (j->bias[n]) {
        pl_val in[8], y;
        for (uint32_t i = 0; i < r->n_in; i++) in[i] = j->c.args[i];
        in[r->n_in] = (pl_val){j->c.map[j->bias[n]]};
        y = pl_build1(out, r->op, r->attr, r->n_in + 1, in);
        j->c.map[r->out] = y.id;
    } else {
        pl_rewrite_node(&j->c, n);
    }
}

pl_status pl_pass_bias(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    joiner j = {.g = in};
    pl_status rc = pl_rewrite_begin(&j.c, in);
    if (rc == PL_OK) {
        j.readers = pl_arena_new(&j.c.mem, uint32_t, in->n_vals);
        j.bias = pl_arena_new(&j.c.mem, uint32_t, in->n_nodes);
        j.sum = pl_arena_new(&j.c.mem, uint32_t, in->n_nodes);
        j.built = pl_arena_new(&j.c.mem, bool, in->n_nodes);
        if (!j.readers || !j.bias || !j.sum || !j.built) rc = PL_ERR_MEMORY;
    }
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++)
        for (uint32_t i = 0; i < in->nodes[n].n_in; i++) j.readers[pl_node_in(in, n)[i]]++;
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) find(&j, n);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        build(&j, n);
        rc = j.c.out->status;
    }
    return pl_rewrite_end(&j.c, rc, out);
}
