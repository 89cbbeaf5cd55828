/* rewrite.c - see rewrite.h. */
#include "pass/rewrite.h"

pl_status pl_rewrite_begin(pl_rewrite *c, const pl_graph *in)
{
    *c = (pl_rewrite){.in = in, .out = pl_graph_new(in->store)};
    c->map = pl_arena_new(&c->mem, uint32_t, in->n_vals);
    c->args = pl_arena_new(&c->mem, pl_val, pl_graph_widest(in));
    if (!c->out || !c->map || !c->args) return PL_ERR_MEMORY;
    return pl_graph_copy_scopes(in, c->out) ? PL_OK : c->out->status;
}

void pl_rewrite_at(pl_rewrite *c, uint32_t n)
{
    const pl_node_rec *r = &c->in->nodes[n];
    for (uint32_t i = 0; i < r->n_in; i++) c->args[i] = (pl_val){c->map[c->in->edges[r->in + i]]};
    c->out->scope = r->scope; /* scopes are copied with their numbers */
    c->out->backward = r->backward;
}

uint32_t pl_rewrite_node(pl_rewrite *c, uint32_t n)
{
    const pl_node_rec *r = &c->in->nodes[n];
    uint32_t node = pl_build(c->out, r->op, r->attr, r->n_in, c->args, NULL).id;
    for (uint32_t k = 0; node && k < r->n_out; k++)
        c->map[r->out + k] = c->out->nodes[node].out + k;
    return node;
}

pl_status pl_rewrite_end(pl_rewrite *c, pl_status rc, pl_graph **out)
{
    if (rc == PL_OK) {
        c->out->scope = 0;
        c->out->backward = false;
        c->out->n_streams = c->in->n_streams;
        rc = pl_graph_status(c->out);
    }
    if (rc == PL_OK)
        *out = c->out;
    else
        pl_graph_free(c->out);
    pl_arena_release(&c->mem);
    return rc;
}
