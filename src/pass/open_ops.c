/* open_ops.c - decomposes kernels that are maps in disguise, so that groups can include them.
 *
 * Two passes. `open` replaces an op by maps and affine readings where its rule (op->as_maps) offers
 * them: a maximum over adjacent windows is a chain of maxima over strided slices, its gradient a
 * comparison with the winner's place. `sink` moves maps below the slices that read them,
 * slice(f(a, b)) = f(slice(a), slice(b)): what came before a pool is then computed at the pool's
 * own size, in its group, and the full size is never stored.
 *
 * A map sinks only when every reader in its own phase (forward or backward) takes a slice or sinks
 * as well, and the slices together have no more elements than the map: nothing is computed twice
 * within a phase. Readers of the other phase keep a copy at full size, which groups compute where
 * they need it. Every value keeps its bits: maps do not depend on the position of an element.
 */
#include "pass/pass.h"

#include "pass/rewrite.h"

pl_status pl_pass_open(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    pl_rewrite c;
    pl_status rc = pl_rewrite_begin(&c, in);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        const pl_node_rec *r = &in->nodes[n];
        pl_val made[PL_MAX_OUT];
        pl_rewrite_at(&c, n);
        if (r->op->as_maps && r->op->as_maps(c.out, r->attr, c.args, r->n_in, made)) {
            for (uint32_t k = 0; k < r->n_out; k++) c.map[r->out + k] = made[k].id;
        } else {
            pl_rewrite_node(&c, n);
        }
        rc = c.out->status;
    }
    return pl_rewrite_end(&c, rc, out);
}

/* ---- sinking ---------------------------------------------------------------------------- */
static bool is_map(const pl_graph *g, uint32_t node)
{
    return (g->nodes[node].op->flags & PL_OP_MAP) != 0;
}

/* Whether the node reads a part of its input, each element at most once. */
static bool is_slice(const pl_graph *g, uint32_t node)
{
    const pl_node_rec *r = &g->nodes[node];
    if (!(r->op->flags & PL_OP_AFFINE) || r->n_in != 1) return false;
    return pl_type_elems(pl_type_of(g, r->out)) <
           pl_type_elems(pl_type_of(g, pl_node_in(g, node)[0]));
}

typedef struct sinker {
    pl_rewrite c;
    bool *sinks;     /* per old value: a map that moves below its slices */
    bool *sunk;      /* per new value: stands for such a map */
    uint32_t n_sunk; /* entries of it */
} sinker;

/* Walks the nodes backwards. `sliced` counts the elements that slices of a value's own phase read;
 * a reader that neither slices nor sinks keeps the value in place. */
static pl_status mark_sinking(sinker *s)
{
    const pl_graph *g = s->c.in;
    bool *kept = pl_arena_new(&s->c.mem, bool, g->n_vals);
    int64_t *sliced = pl_arena_new(&s->c.mem, int64_t, g->n_vals);
    s->sinks = pl_arena_new(&s->c.mem, bool, g->n_vals);
    if (!kept || !sliced || !s->sinks) return PL_ERR_MEMORY;
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--) {
        const pl_node_rec *r = &g->nodes[n];
        uint32_t own = r->out;
        bool slices = is_slice(g, n);
        if (is_map(g, n))
            s->sinks[own] =
                !kept[own] && sliced[own] > 0 && sliced[own] <= pl_type_elems(pl_type_of(g, own));
        for (uint32_t i = 0; i < r->n_in; i++) {
            uint32_t v = g->edges[r->in + i];
            if (g->nodes[pl_producer(g, v)].backward != r->backward) continue;
            if (slices)
                sliced[v] += pl_type_elems(pl_type_of(g, own));
            else if (is_map(g, n) && s->sinks[own] && sliced[own] > sliced[v])
                sliced[v] = sliced[own];
            else if (!is_map(g, n) || !s->sinks[own])
                kept[v] = true;
        }
    }
    return PL_OK;
}

static pl_status note_sunk(sinker *s, pl_val v)
{
    while (v.id >= s->n_sunk) {
        uint32_t n = s->n_sunk * 2 + 1024;
        bool *more = pl_arena_new(&s->c.mem, bool, n);
        if (!more) return PL_ERR_MEMORY;
        for (uint32_t i = 0; i < s->n_sunk; i++) more[i] = s->sunk[i];
        s->sunk = more;
        s->n_sunk = n;
    }
    s->sunk[v.id] = true;
    return PL_OK;
}

/* Returns the slice `op, attr` of new value v, taken as far up as sinking maps go. The recursion
 * follows a chain of maps, whose length MOST bounds. */
static pl_val slice_of(sinker *s, const pl_op *op, const void *attr, pl_val v, int depth)
{
    enum { MOST = 64 };
    pl_graph *g = s->c.out;
    if (v.id >= s->n_sunk || !s->sunk[v.id] || depth == MOST) return pl_build1(g, op, attr, 1, &v);
    uint32_t node = pl_producer(g, v.id), n_in = g->nodes[node].n_in;
    pl_val in[3];
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = slice_of(s, op, attr, (pl_val){pl_node_in(g, node)[i]}, depth + 1);
    return pl_build1(g, g->nodes[node].op, g->nodes[node].attr, (int)n_in, in);
}

pl_status pl_pass_sink(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    sinker s = {0};
    pl_status rc = pl_rewrite_begin(&s.c, in);
    if (rc == PL_OK) rc = mark_sinking(&s);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        const pl_node_rec *r = &in->nodes[n];
        pl_rewrite_at(&s.c, n);
        if (is_slice(in, n) && s.sinks[pl_node_in(in, n)[0]])
            s.c.map[r->out] = slice_of(&s, r->op, r->attr, s.c.args[0], 0).id;
        else
            pl_rewrite_node(&s.c, n);
        if (is_map(in, n) && s.sinks[r->out]) rc = note_sunk(&s, (pl_val){s.c.map[r->out]});
        if (rc == PL_OK) rc = s.c.out->status;
    }
    return pl_rewrite_end(&s.c, rc, out);
}
