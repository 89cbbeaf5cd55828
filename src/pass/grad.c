/* grad.c - reverse mode, graph to graph.
 *
 * Nodes are in topological order, so one walk from the last y back to the first x visits every node
 * after all its readers. Each value collects the sum of the cotangents that its readers send; when
 * its producer is reached the sum is complete, and the producer's rule (op->vjp) turns it into
 * nodes for the inputs. Only values on a path from some x to some y get gradients, so no unneeded
 * node is created. A value of the forward pass that the backward pass needs is an ordinary edge.
 *
 * The result is ordinary nodes, so gradients of gradients work: call it again. A rule may itself
 * call pl_grad_seeded (an op without a direct second derivative differentiates its decomposition);
 * the tables here are local to a call, and nodes appended during the walk lie past its end.
 *
 * Cost: O(nodes + edges) time, three arrays of one entry a value.
 */
#include "base/sys.h"
#include "ir/graph.h"
#include "plimsoll_ops.h"

#include <string.h>

typedef struct walk {
    pl_graph *g;
    uint32_t n_vals, n_nodes; /* of the graph when the walk began */
    bool *from_x;             /* value depends on some x */
    pl_val *cot;              /* summed cotangent; none = nothing flowed yet */
} walk;

static bool carries_gradient(const pl_graph *g, uint32_t val)
{
    return pl_dtype_is_float(g->vals[val].type.dtype);
}

/* Marks what depends on x. Ops without a gradient stop the marking. */
static void mark_from_x(walk *w, const pl_val *x, int n_x)
{
    pl_graph *g = w->g;
    for (int i = 0; i < n_x; i++) w->from_x[x[i].id] = true;
    for (uint32_t n = 1; n < w->n_nodes; n++) {
        const pl_node_rec *r = &g->nodes[n];
        if (r->op->flags & (PL_OP_NO_GRAD | PL_OP_EFFECT)) continue;
        bool any = false;
        for (uint32_t i = 0; i < r->n_in; i++) any |= w->from_x[g->edges[r->in + i]];
        for (uint32_t k = 0; any && k < r->n_out; k++)
            if (carries_gradient(g, r->out + k)) w->from_x[r->out + k] = true;
    }
}

static void flow_into(walk *w, uint32_t val, pl_val d)
{
    if (!pl_val_ok(d)) return;
    pl_type want = w->g->vals[val].type, got = pl_val_type(w->g, d);
    if (w->g->status == PL_OK && !pl_type_equal(&want, &got)) {
        char a[96], b[96], label[160];
        pl_graph_fail(w->g, PL_ERR_GRAPH, "gradient %s for a value %s of %s",
                      pl_type_text(&got, a, sizeof a), pl_type_text(&want, b, sizeof b),
                      pl_node_label(w->g, w->g->vals[val].node, label, sizeof label));
        return;
    }
    w->cot[val] = pl_val_ok(w->cot[val]) ? pl_add(w->g, w->cot[val], d) : d;
}

/* Pulls the cotangents of one node's outputs back to its inputs. */
static void pull_back(walk *w, uint32_t node, pl_val *in, pl_val *gin, bool *need)
{
    pl_graph *g = w->g;
    const pl_node_rec r = g->nodes[node];
    bool flows = false, wanted = false;
    pl_val out[PL_MAX_OUT], gout[PL_MAX_OUT];
    for (uint32_t k = 0; k < r.n_out; k++) {
        out[k] = (pl_val){r.out + k};
        gout[k] = w->cot[r.out + k];
        flows |= pl_val_ok(gout[k]);
    }
    for (uint32_t i = 0; i < r.n_in; i++) {
        in[i] = (pl_val){g->edges[r.in + i]};
        gin[i] = PL_NO_VAL;
        need[i] = w->from_x[in[i].id] && carries_gradient(g, in[i].id);
        wanted |= need[i];
    }
    if (!flows || !wanted || (r.op->flags & (PL_OP_NO_GRAD | PL_OP_EFFECT))) return;
    if (!r.op->vjp) {
        pl_graph_fail(g, PL_ERR_UNSUPPORTED, "%s has no gradient", r.op->name);
        return;
    }
    uint32_t outer = g->scope;
    bool was = g->backward;
    g->scope = r.scope; /* backward nodes belong to the layer they come from */
    g->backward = true;
    r.op->vjp(&(pl_vjp){.g = g,
                        .attr = r.attr,
                        .in = in,
                        .out = out,
                        .gout = gout,
                        .gin = gin,
                        .need = need,
                        .n_in = r.n_in,
                        .n_out = r.n_out});
    for (uint32_t i = 0; i < r.n_in; i++)
        if (need[i]) flow_into(w, in[i].id, gin[i]);
    g->scope = outer;
    g->backward = was;
}

static void walk_back(walk *w, pl_arena *scratch)
{
    uint32_t widest = pl_graph_widest(w->g);
    pl_val *in = pl_arena_new(scratch, pl_val, widest),
           *gin = pl_arena_new(scratch, pl_val, widest);
    bool *need = pl_arena_new(scratch, bool, widest);
    if (!in || !gin || !need) {
        pl_graph_adopt_error(w->g, PL_ERR_MEMORY);
        return;
    }
    for (uint32_t n = w->n_nodes - 1; n >= 1 && w->g->status == PL_OK; n--)
        pull_back(w, n, in, gin, need);
}

void pl_grad_seeded(pl_graph *g, const pl_val *y, const pl_val *gy, int n_y, const pl_val *x,
                    int n_x, pl_val *gx)
{
    for (int i = 0; i < n_x; i++) gx[i] = PL_NO_VAL;
    if (!g || g->status != PL_OK) return;
    for (int i = 0; i < n_x; i++)
        if (!pl_val_ok(x[i])) {
            pl_graph_fail(g, PL_ERR_ARG, "grad: input %d is missing", i);
            return;
        }
    pl_arena scratch = PL_ARENA_INIT;
    walk w = {g, g->n_vals, g->n_nodes, NULL, NULL};
    w.from_x = pl_arena_new(&scratch, bool, w.n_vals);
    w.cot = pl_arena_new(&scratch, pl_val, w.n_vals);
    if (!w.from_x || !w.cot) {
        pl_graph_adopt_error(g, PL_ERR_MEMORY);
    } else {
        mark_from_x(&w, x, n_x);
        for (int k = 0; k < n_y; k++)
            if (pl_val_ok(y[k]) && pl_val_ok(gy[k]) && w.from_x[y[k].id])
                flow_into(&w, y[k].id, gy[k]);
        walk_back(&w, &scratch);
        for (int i = 0; i < n_x && g->status == PL_OK; i++) gx[i] = w.cot[x[i].id];
    }
    pl_arena_release(&scratch);
}

void pl_grad(pl_graph *g, pl_val y, const pl_val *x, int n, pl_val *grads)
{
    for (int i = 0; i < n; i++) grads[i] = PL_NO_VAL;
    if (!g || g->status != PL_OK) return;
    if (!pl_val_ok(y) || !pl_dtype_is_float(pl_val_type(g, y).dtype)) {
        pl_graph_fail(g, PL_ERR_ARG, "grad: what is differentiated must be a float value");
        return;
    }
    pl_val one = pl_full_like(g, y, 1);
    pl_grad_seeded(g, &y, &one, 1, x, n, grads);
    for (int i = 0; i < n; i++)
        if (!pl_val_ok(grads[i])) grads[i] = pl_full_like(g, x[i], 0);
}
