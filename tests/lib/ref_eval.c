/* ref_eval.c - see ref_eval.h. Plain malloc throughout, because this is a test tool. */
#include "tests/lib/ref_eval.h"

#include "base/err.h"
#include "ir/graph.h"

#include <stdlib.h>
#include <string.h>

struct ref_eval {
    const pl_graph *g;
    uint32_t n_vals, n_nodes;
    int n_slots;
    void **bytes; /* per value */
    void **slots; /* per slot, NULL if unused */
};

static void *room(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) return NULL;
    memset(p, 0, bytes);
    return p;
}

ref_eval *ref_eval_new(const pl_graph *g)
{
    ref_eval *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (ref_eval){g, g->n_vals, g->n_nodes, pl_store_count(g->store), NULL, NULL};
    e->bytes = calloc(e->n_vals, sizeof *e->bytes);
    e->slots = calloc((size_t)e->n_slots + 1, sizeof *e->slots);
    bool ok = e->bytes && e->slots;
    for (uint32_t v = 1; ok && v < e->n_vals; v++)
        ok = (e->bytes[v] = room(pl_type_bytes(pl_type_of(g, v)))) != NULL;
    for (uint32_t n = 1; ok && n < e->n_nodes; n++) {
        int s = pl_node_slot(g, n);
        if (s < 0 || e->slots[s]) continue;
        ok = (e->slots[s] = room(pl_type_bytes(&pl_store_slot(g->store, s)->type))) != NULL;
    }
    if (ok) return e;
    ref_eval_free(e);
    return NULL;
}

void ref_eval_free(ref_eval *e)
{
    if (!e) return;
    for (uint32_t v = 1; e->bytes && v < e->n_vals; v++) free(e->bytes[v]);
    for (int s = 0; e->slots && s < e->n_slots; s++) free(e->slots[s]);
    free(e->bytes);
    free(e->slots);
    free(e);
}

/* The input or output node of that name; 0 if none. */
static uint32_t named(const ref_eval *e, const char *name, uint32_t flag)
{
    for (uint32_t n = 1; n < e->n_nodes; n++) {
        const char *own = pl_node_name(e->g, n);
        if (own && (pl_node_get(e->g, n)->op->flags & flag) && strcmp(own, name) == 0) return n;
    }
    return 0;
}

void *ref_eval_input(ref_eval *e, const char *name)
{
    uint32_t n = named(e, name, PL_OP_SOURCE);
    return n ? e->bytes[pl_node_get(e->g, n)->out] : NULL;
}

pl_val ref_eval_output(const ref_eval *e, const char *name)
{
    uint32_t n = named(e, name, PL_OP_EFFECT);
    return n ? (pl_val){pl_node_in(e->g, n)[0]} : PL_NO_VAL;
}

void *ref_eval_slot(ref_eval *e, int slot)
{
    return slot >= 0 && slot < e->n_slots ? e->slots[slot] : NULL;
}

const void *ref_eval_get(const ref_eval *e, pl_val v)
{
    return e->bytes[v.id];
}

/* The last kernel of an op is its reference. */
static const pl_kernel *reference(const pl_op *op)
{
    const pl_kernel *k = op->cpu;
    while (k && k->run && k[1].run) k++;
    return k;
}

static pl_status run_kernel(const pl_kernel *k, pl_call *c)
{
    size_t work = 0;
    if (k->prepare) PL_TRY(k->prepare(c, &c->prep, &work));
    c->work = room(work);
    pl_status rc =
        c->work ? k->run(c) : pl__fail(PL_ERR_MEMORY, __FILE__, __LINE__, "%zu bytes", work);
    free(c->work);
    if (k->release) k->release(c->prep);
    return rc;
}

static pl_status run_node(ref_eval *e, uint32_t node)
{
    const pl_node_rec *r = pl_node_get(e->g, node);
    const pl_kernel *k = reference(r->op);
    PL_FAIL_IF(!k || !k->run, PL_ERR_UNSUPPORTED, "%s has no kernel", r->op->name);
    pl_type out_type[PL_MAX_OUT], *in_type = calloc((size_t)r->n_in + 1, sizeof *in_type);
    const void **in = calloc((size_t)r->n_in + 1, sizeof *in);
    void *out[PL_MAX_OUT];
    pl_status rc = PL_ERR_MEMORY;
    if (in && in_type) {
        pl_call c;
        pl_node_call(e->g, node, in_type, out_type, &c);
        for (int i = 0; i < c.n_in; i++) in[i] = e->bytes[pl_node_in(e->g, node)[i]];
        for (int i = 0; i < c.n_out; i++) out[i] = e->bytes[r->out + (uint32_t)i];
        c.in = in;
        c.out = out;
        rc = run_kernel(k, &c);
    }
    free(in_type);
    free(in);
    return rc == PL_OK ? PL_OK : pl__fail_prefix(rc, "%%%u %s", r->out, r->op->name);
}

pl_status ref_eval_run(ref_eval *e)
{
    const pl_graph *g = e->g;
    for (uint32_t n = 1; n < e->n_nodes; n++) {
        const pl_node_rec *r = pl_node_get(g, n);
        int s = pl_node_slot(g, n);
        if (s >= 0 && (r->op->flags & PL_OP_SOURCE))
            memcpy(e->bytes[r->out], e->slots[s], pl_type_bytes(pl_type_of(g, r->out)));
        if (!(r->op->flags & (PL_OP_SOURCE | PL_OP_EFFECT))) PL_TRY(run_node(e, n));
    }
    /* Assignments take effect together, at the end. */
    for (uint32_t n = 1; n < e->n_nodes; n++) {
        int s = pl_node_slot(g, n);
        if (s < 0 || !(pl_node_get(g, n)->op->flags & PL_OP_EFFECT)) continue;
        uint32_t v = pl_node_in(g, n)[0];
        memcpy(e->slots[s], e->bytes[v], pl_type_bytes(pl_type_of(g, v)));
    }
    return PL_OK;
}
