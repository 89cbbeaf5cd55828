/* graph_eval.c - see graph_eval.h. */
#include "tests/lib/graph_eval.h"

#include "base/dtype.h"
#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

graph_eval *graph_eval_new(const pl_graph *g, bool reference)
{
    graph_eval *e = pl_sys_alloc(sizeof *e);
    e->g = g;
    e->reference = reference;
    e->data = pl_sys_alloc(sizeof(void *) * g->n_vals);
    for (uint32_t v = 1; v < g->n_vals; v++)
        e->data[v] = aligned_alloc(64, (pl_type_bytes(&g->vals[v].type) + 127) & ~(size_t)63);
    for (uint32_t v = 1; v < g->n_vals; v++) memset(e->data[v], 0, pl_type_bytes(&g->vals[v].type));
    return e;
}

void graph_eval_free(graph_eval *e)
{
    if (!e) return;
    for (uint32_t v = 1; v < e->g->n_vals; v++) free(e->data[v]);
    pl_sys_free(e->data);
    pl_sys_free(e);
}

void *graph_eval_at(graph_eval *e, pl_val v)
{
    return e->data[v.id];
}

pl_status graph_eval_kernel(const pl_kernel *k, pl_call *c)
{
    size_t bytes = 0;
    c->prep = c->work = NULL;
    if (k->prepare) PL_TRY(k->prepare(c, &c->prep, &bytes));
    c->work = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    pl_status rc = k->run(c);
    free(c->work);
    if (k->release) k->release(c->prep);
    return rc;
}

static pl_status run_node(graph_eval *e, uint32_t node)
{
    const pl_node_rec *n = pl_node_get(e->g, node);
    if (n->op->flags & (PL_OP_SOURCE | PL_OP_EFFECT)) return PL_OK;
    pl_type in_type[16], out_type[PL_MAX_OUT];
    const void *in[16];
    void *out[PL_MAX_OUT];
    PL_FAIL_IF(n->n_in > 16, PL_ERR_ARG, "%d inputs", n->n_in);
    pl_call c;
    pl_node_call(e->g, node, in_type, out_type, &c);
    for (int i = 0; i < n->n_in; i++) in[i] = e->data[pl_node_in(e->g, node)[i]];
    for (int k = 0; k < n->n_out; k++) out[k] = e->data[n->out + (uint32_t)k];
    c.in = in;
    c.out = out;
    const pl_kernel *k = n->op->cpu;
    while (e->reference ? strcmp(k->name, "ref") != 0 : k->accepts && !k->accepts(&c)) k++;
    return graph_eval_kernel(k, &c);
}

pl_status graph_eval_run(graph_eval *e)
{
    for (uint32_t n = 1; n < e->g->n_nodes; n++) PL_TRY(run_node(e, n));
    return PL_OK;
}

void graph_eval_wave(graph_eval *e, pl_val v, double f)
{
    pl_type t = pl_val_type(e->g, v);
    for (int64_t i = 0; i < pl_type_elems(&t); i++)
        pl_elem_set(t.dtype, graph_eval_at(e, v), i, sin(f * (double)i + 0.1));
}

double graph_eval_off(graph_eval *e, pl_val v, double want)
{
    pl_type t = pl_val_type(e->g, v);
    double sum = 0, size = 0;
    for (int64_t i = 0; i < pl_type_elems(&t); i++) {
        double x = pl_elem_get(t.dtype, graph_eval_at(e, v), i);
        sum += x * cos(0.23 * (double)i);
        size += fabs(x);
    }
    return fabs(sum - want) / ((t.dtype == PL_F64 ? 1e-10 : 2e-6) * (1 + size));
}
