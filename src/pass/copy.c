/* copy.c - see copy.h. */
#include "pass/copy.h"

pl_status pl_copy_scopes(const pl_graph *in, pl_graph *out, uint32_t *scopes)
{
    for (uint32_t i = 1; i < in->n_scopes; i++) {
        const pl_scope_rec *s = &in->scopes[i];
        out->scope = 0;
        pl_scope_push(out, s->path);
        PL_TRY(out->status);
        scopes[i] = out->scope;
        out->scopes[out->scope].parent = scopes[s->parent];
        out->scopes[out->scope].checkpoint = s->checkpoint;
    }
    out->scope = 0;
    return PL_OK;
}

pl_status pl_copy_begin(pl_copy *c, const pl_graph *in)
{
    uint32_t widest = 1;
    for (uint32_t n = 1; n < in->n_nodes; n++)
        if (in->nodes[n].n_in > widest) widest = in->nodes[n].n_in;
    *c = (pl_copy){.in = in, .out = pl_graph_new(in->store)};
    c->map = pl_arena_new(&c->mem, uint32_t, in->n_vals);
    c->scopes = pl_arena_new(&c->mem, uint32_t, in->n_scopes);
    c->args = pl_arena_new(&c->mem, pl_val, widest);
    if (!c->out || !c->map || !c->scopes || !c->args) return PL_ERR_MEMORY;
    return pl_copy_scopes(in, c->out, c->scopes);
}

void pl_copy_at(pl_copy *c, uint32_t n)
{
    const pl_node_rec *r = &c->in->nodes[n];
    for (uint32_t i = 0; i < r->n_in; i++)
        c->args[i] = (pl_val){c->map[c->in->edges[r->in + i]]};
    c->out->scope = c->scopes[r->scope];
    c->out->backward = r->backward;
}

void pl_copy_node(pl_copy *c, uint32_t n)
{
    const pl_node_rec *r = &c->in->nodes[n];
    uint32_t node = pl_build(c->out, r->op, r->attr, r->n_in, c->args, NULL).id;
    for (uint32_t k = 0; node && k < r->n_out; k++)
        c->map[r->out + k] = c->out->nodes[node].out + k;
}

pl_status pl_copy_end(pl_copy *c, pl_status rc, pl_graph **out)
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
