/* cost.c - the expected cost of a unit: arithmetic and bytes moved.
 *
 * A kernel's cost comes from its op (default: one operation for each output element, every operand
 * moved once). A group does the arithmetic of all its nodes but moves only its inputs and outputs;
 * of an input that all its readers slice, it moves the lines of memory that the slices touch. A
 * group that begins with a product has the arithmetic of the product, beside which the rest is
 * little.
 * Time on a CPU is a roofline: the longer of arithmetic and traffic, plus a fixed time for a unit.
 */
#include "plan/cost/cost.h"

#include "ir/group/product.h"

static double bytes_of(const pl_graph *g, const bool *bits, const uint32_t *vals, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)pl_stored_bytes(g, bits, vals[i]);
    return sum;
}

/* Returns the bytes that a node of a group moves to read an operand: all of them, or the operands
 * of a slice. Runs of neighbouring elements shorter than LINE cost a line each. */
static double bytes_read(const pl_graph *g, uint32_t node, uint32_t val, pl_type *types)
{
    enum { LINE = 64 };
    const pl_node_rec *r = pl_node_get(g, node);
    const pl_type *from = pl_type_of(g, val), *to = pl_type_of(g, r->out);
    double all = (double)pl_type_bytes(from), bytes = (double)pl_type_bytes(to);
    pl_call c;
    pl_type out[PL_MAX_OUT];
    pl_affine a;
    if (!(r->op->flags & PL_OP_AFFINE) || r->n_in != 1 || bytes >= all) return all;
    pl_node_call(g, node, types, out, &c);
    if (!r->op->affine(&c, &a)) return all;
    int64_t run = 1;
    for (int i = to->rank - 1; i >= 0; i--) {
        if (to->dim[i] == 1) continue;
        if (a.stride[i] != run) break;
        run *= to->dim[i];
    }
    double line = (double)run * bytes / (double)pl_type_elems(to);
    if (line < LINE) bytes *= LINE / line;
    return bytes < all ? bytes : all;
}

/* Returns the bytes of a group's inputs that its nodes touch. */
static pl_status bytes_touched(const pl_graph *g, const pl_unit *u, pl_type *types,
                               pl_arena *scratch, double *sum)
{
    double *touched = pl_arena_new(scratch, double, u->n_in + 1);
    if (!touched) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        const pl_node_rec *r = pl_node_get(g, u->nodes[i]);
        for (uint32_t k = 0; k < r->n_in; k++) {
            uint32_t v = pl_node_in(g, u->nodes[i])[k], at = 0;
            while (at < u->n_in && u->in[at] != v) at++;
            if (at < u->n_in) touched[at] += bytes_read(g, u->nodes[i], v, types);
        }
    }
    *sum = 0;
    for (uint32_t i = 0; i < u->n_in; i++) {
        double all = (double)pl_stored_bytes(g, u->bits, u->in[i]);
        *sum += touched[i] > 0 && touched[i] < all ? touched[i] : all;
    }
    return PL_OK;
}

static double node_flops(const pl_graph *g, uint32_t node, pl_type *types, pl_cost *all)
{
    const pl_node_rec *r = pl_node_get(g, node);
    double elems = 0;
    for (uint32_t k = 0; k < r->n_out; k++)
        elems += (double)pl_type_elems(pl_type_of(g, r->out + k));
    *all = (pl_cost){elems, 0};
    if (r->op->cost) {
        pl_call c;
        pl_type out[PL_MAX_OUT];
        pl_node_call(g, node, types, out, &c);
        *all = r->op->cost(&c);
    }
    return all->flops;
}

static pl_cost product_cost(const pl_graph *g, uint32_t node, pl_type *types, double bytes)
{
    pl_call c;
    pl_type out[PL_MAX_OUT];
    pl_plain_product p;
    pl_node_call(g, node, types, out, &c);
    pl_node_get(g, node)->op->product(&c, &p);
    double m = (double)p.m, n = (double)p.n, k = (double)p.k;
    return (pl_cost){2 * m * n * k, bytes, PL_WORK_PRODUCT, m, n, k};
}

pl_status pl_unit_cost(const pl_graph *g, const pl_unit *u, pl_arena *scratch, pl_cost *out)
{
    pl_arena_mark mark = pl_arena_mark_get(scratch);
    uint32_t widest = 1;
    for (uint32_t i = 0; i < u->n_nodes; i++)
        if (pl_node_get(g, u->nodes[i])->n_in > widest) widest = pl_node_get(g, u->nodes[i])->n_in;
    pl_type *types = pl_arena_new(scratch, pl_type, widest);
    if (!types) return PL_ERR_MEMORY;
    pl_cost one = {0}, sum = {0, bytes_of(g, u->bits, u->in, u->n_in) +
                                     bytes_of(g, u->bits, u->out, u->n_out)};
    if (u->kind == PL_UNIT_GROUP) {
        double in;
        PL_TRY(bytes_touched(g, u, types, scratch, &in));
        sum.bytes = in + bytes_of(g, u->bits, u->out, u->n_out);
    }
    uint32_t product = pl_group_product(g, u);
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        if (u->nodes[i] == product) continue;
        sum.flops += node_flops(g, u->nodes[i], types, &one);
        if (u->kind == PL_UNIT_KERNEL && one.bytes > sum.bytes) sum.bytes = one.bytes;
    }
    if (product) sum = product_cost(g, product, types, sum.bytes);
    if (u->kind == PL_UNIT_KERNEL) {
        sum.work = one.work;
        sum.m = one.m, sum.n = one.n, sum.k = one.k;
    }
    if (u->kind == PL_UNIT_VIEW) sum = (pl_cost){0};
    pl_arena_rewind(scratch, mark);
    *out = sum;
    return PL_OK;
}

double pl_cost_ms(const pl_cost *c, int threads)
{
    /* A core of a present-day server: about 40 GFLOP/s of f32 work in practice; memory bandwidth of
     * 12 GB/s per core up to about 100 GB/s (updates of 1.5 billion weights by 16 cores: 97 GB/s);
     * one or two microseconds to start a parallel loop. */
    double flops = 40e9 * threads, bytes = 12e9 * (threads < 8 ? threads : 8);
    double a = c->flops / flops, b = c->bytes / bytes;
    return ((a > b ? a : b) + 2e-6) * 1e3;
}
