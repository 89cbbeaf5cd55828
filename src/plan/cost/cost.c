/* cost.c - the expected cost of a unit: arithmetic and bytes moved.
 *
 * A kernel's cost comes from its op (default: one operation for each output element, every operand
 * moved once). A group does the arithmetic of all its nodes but moves only its inputs and outputs.
 * Time on a CPU is a roofline: the longer of arithmetic and traffic, plus a fixed time for a unit.
 */
#include "plan/cost/cost.h"

static double bytes_of(const pl_graph *g, const bool *bits, const uint32_t *vals, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)pl_stored_bytes(g, bits, vals[i]);
    return sum;
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
    for (uint32_t i = 0; i < u->n_nodes; i++) {
        sum.flops += node_flops(g, u->nodes[i], types, &one);
        if (u->kind == PL_UNIT_KERNEL && one.bytes > sum.bytes) sum.bytes = one.bytes;
    }
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
