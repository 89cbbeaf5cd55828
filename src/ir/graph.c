/* graph.c - storage of a graph, node creation, scopes; see graph.h.
 *
 * Errors are sticky: the first one is kept with the scope path in front, and every later call
 * returns "none", so that model code needs no check per line. An error in the store (a slot that
 * could not be added) surfaces through the first use of the slot.
 */
#include "ir/graph.h"

#include "base/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes room for `more` elements beyond n; capacity doubles. */
static bool reserve(void **p, uint32_t *cap, uint32_t n, uint32_t more, size_t elem)
{
    if (n + more <= *cap) return true;
    uint32_t c = *cap ? *cap * 2 : 64;
    while (c < n + more) c *= 2;
    void *q = pl_sys_realloc(*p, (size_t)*cap * elem, (size_t)c * elem);
    if (!q) return false;
    *p = q;
    *cap = c;
    return true;
}
#define RESERVE(g, what, more)                                                                     \
 reserve((void **)&(g)->what, &(g)->cap_##what, (g)->n_##what, (more), sizeof *(g)->what)

pl_graph *pl_graph_new(pl_store *store)
{
    pl_graph *g = pl_sys_alloc(sizeof *g);
    if (!g) return NULL;
    g->store = store;
    if (!RESERVE(g, vals, 1) || !RESERVE(g, nodes, 1) || !RESERVE(g, edges, 1) ||
        !RESERVE(g, scopes, 1)) {
        pl_graph_free(g);
        return NULL;
    }
    g->n_vals = g->n_nodes = g->n_scopes = 1;
    g->scopes[0].path = "";
    return g;
}

void pl_graph_free(pl_graph *g)
{
    if (!g) return;
    pl_sys_free(g->vals);
    pl_sys_free(g->nodes);
    pl_sys_free(g->edges);
    pl_sys_free(g->scopes);
    pl_arena_release(&g->arena);
    pl_sys_free(g);
}

pl_status pl_graph_status(const pl_graph *g)
{
    if (!g) return pl__fail(PL_ERR_MEMORY, __FILE__, __LINE__, "no memory for a graph");
    if (g->status != PL_OK) return pl__fail(g->status, __FILE__, __LINE__, "%s", g->error);
    return pl_store_status(g->store);
}

const char *pl_graph_error(const pl_graph *g)
{
    return g ? g->error : "no memory for a graph";
}

pl_store *pl_graph_store(const pl_graph *g)
{
    return g->store;
}

int pl_graph_nodes(const pl_graph *g)
{
    return (int)g->n_nodes - 1;
}

pl_type pl_val_type(const pl_graph *g, pl_val v)
{
    if (!g || v.id == 0 || v.id >= g->n_vals) return PL_RANK0(PL_F32);
    return g->vals[v.id].type;
}

void pl_graph_adopt_error(pl_graph *g, pl_status code)
{
    if (g->status != PL_OK || code == PL_OK) return;
    g->status = code;
    const char *path = g->scopes[g->scope].path;
    snprintf(g->error, sizeof g->error, "%s%s%s", path, *path ? ": " : "", pl_error_text());
}

void pl_graph_fail(pl_graph *g, pl_status code, const char *fmt, ...)
{
    if (g->status != PL_OK) return;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_graph_adopt_error(g, pl__fail(code, __FILE__, __LINE__, "%s", text));
}

uint32_t pl_graph_next_stream(pl_graph *g)
{
    return ++g->n_streams;
}

/* ---- scopes ----------------------------------------------------------------------------- */
void pl_scope_push(pl_graph *g, const char *name)
{
    if (!g || g->status != PL_OK) return;
    const char *base = g->scopes[g->scope].path;
    char *path = pl_arena_printf(&g->arena, "%s%s%s", base, *base ? "." : "", name);
    if (!path || !RESERVE(g, scopes, 1)) {
        pl_graph_adopt_error(g, PL_ERR_MEMORY);
        return;
    }
    g->scopes[g->n_scopes] = (pl_scope_rec){path, g->scope, false, g->scopes[g->scope].full};
    g->scope = g->n_scopes++;
}

void pl_scope_pop(pl_graph *g)
{
    if (!g || g->status != PL_OK) return;
    g->scope = g->scopes[g->scope].parent;
}

void pl_scope_checkpoint(pl_graph *g)
{
    if (g && g->status == PL_OK && g->scope) g->scopes[g->scope].checkpoint = true;
}

void pl_scope_full(pl_graph *g)
{
    if (g && g->status == PL_OK && g->scope) g->scopes[g->scope].full = true;
}

bool pl_graph_copy_scopes(const pl_graph *from, pl_graph *to)
{
    for (uint32_t i = 1; i < from->n_scopes && to->status == PL_OK; i++) {
        to->scope = 0;
        pl_scope_push(to, from->scopes[i].path);
        if (to->status != PL_OK) break;
        const char *path = to->scopes[i].path;
        to->scopes[i] = from->scopes[i];
        to->scopes[i].path = path;
    }
    to->scope = 0;
    return to->status == PL_OK;
}

/* ---- nodes ------------------------------------------------------------------------------ */
static pl_status copy_attr(pl_graph *g, const pl_op *op, const void *attr, void **out)
{
    *out = NULL;
    if (!op->attr_bytes) return PL_OK;
    char *copy = pl_arena_alloc(&g->arena, op->attr_bytes);
    if (!copy) return PL_ERR_MEMORY;
    if (attr) memcpy(copy, attr, op->attr_bytes);
    for (const pl_attr *a = op->attrs; a && a->name; a++) {
        if (a->kind != PL_ATTR_TEXT) continue;
        const char *text;
        memcpy(&text, copy + a->offset, sizeof text);
        text = pl_arena_strdup(&g->arena, text ? text : "");
        if (!text) return PL_ERR_MEMORY;
        memcpy(copy + a->offset, &text, sizeof text);
    }
    *out = copy;
    return PL_OK;
}

/* Inputs of a node whose types need no memory of the graph. */
enum { FEW = 16 };

/* Points *types to the types of the inputs: in `few`, or, where they are many, in the arena. */
static pl_status gather_inputs(pl_graph *g, const pl_op *op, int n_in, const pl_val *in,
                               pl_type *few, pl_type **types)
{
    PL_FAIL_IF(n_in < op->min_in || (op->max_in >= 0 && n_in > op->max_in) || n_in > 65535,
               PL_ERR_ARG, "%s takes %d to %d inputs, got %d", op->name, op->min_in, op->max_in,
               n_in);
    *types = n_in <= FEW ? few : pl_arena_new(&g->arena, pl_type, n_in);
    if (!*types) return PL_ERR_MEMORY;
    for (int i = 0; i < n_in; i++) {
        PL_FAIL_IF(in[i].id >= g->n_vals, PL_ERR_ARG, "%s: input %d is not a value of this graph",
                   op->name, i);
        (*types)[i] = g->vals[in[i].id].type;
    }
    return PL_OK;
}

static pl_status infer_outputs(const pl_op *op, const pl_type *in, int n_in, void *attr,
                               pl_type *out)
{
    pl_status rc = op->infer(in, n_in, attr, out);
    if (rc != PL_OK) return pl__fail_prefix(rc, "%s", op->name);
    for (int k = 0; k < op->n_out; k++) {
        int64_t elems = 1;
        for (int i = 0; i < out[k].rank; i++) {
            PL_FAIL_IF(out[k].dim[i] < 0, PL_ERR_SHAPE, "%s: negative size", op->name);
            PL_FAIL_IF(__builtin_mul_overflow(elems, out[k].dim[i], &elems) || elems > (int64_t)1
                                                                                           << 48,
                       PL_ERR_SHAPE, "%s: more than 2^48 elements", op->name);
        }
    }
    return PL_OK;
}

static pl_status append(pl_graph *g, const pl_op *op, const void *attr, int n_in, const pl_val *in,
                        uint32_t *node)
{
    void *own;
    pl_type few[FEW], *types = NULL, out[PL_MAX_OUT];
    pl_arena_mark mark = pl_arena_mark_get(&g->arena);
    PL_TRY(copy_attr(g, op, attr, &own));
    pl_arena_mark kept = pl_arena_mark_get(&g->arena);
    PL_TRY(gather_inputs(g, op, n_in, in, few, &types));
    memset(out, 0, sizeof out);
    pl_status rc = infer_outputs(op, types, n_in, own, out);
    pl_arena_rewind(&g->arena, kept);
    if (rc == PL_OK && (!RESERVE(g, nodes, 1) || !RESERVE(g, edges, (uint32_t)n_in) ||
                        !RESERVE(g, vals, PL_MAX_OUT)))
        rc = PL_ERR_MEMORY;
    if (rc != PL_OK) {
        pl_arena_rewind(&g->arena, mark);
        return rc;
    }
    pl_node_rec *n = &g->nodes[g->n_nodes];
    *n = (pl_node_rec){.op = op,
                       .attr = own,
                       .in = g->n_edges,
                       .out = g->n_vals,
                       .n_in = (uint16_t)n_in,
                       .n_out = (uint16_t)op->n_out,
                       .scope = g->scope,
                       .backward = g->backward};
    for (int i = 0; i < n_in; i++) g->edges[g->n_edges++] = in[i].id;
    for (uint32_t k = 0; k < n->n_out; k++)
        g->vals[g->n_vals++] = (pl_value_rec){out[k], g->n_nodes, k};
    *node = g->n_nodes++;
    return PL_OK;
}

pl_node pl_build(pl_graph *g, const pl_op *op, const void *attr, int n_in, const pl_val *in,
                 pl_val *outs)
{
    for (int k = 0; outs && k < op->n_out; k++) outs[k] = PL_NO_VAL;
    if (!g || g->status != PL_OK) return PL_NO_NODE;
    for (int i = 0; i < n_in; i++) {
        if (in[i].id) continue;
        pl_graph_fail(g, PL_ERR_ARG, "%s: input %d is missing", op->name, i);
        return PL_NO_NODE;
    }
    uint32_t node;
    pl_status rc = append(g, op, attr, n_in, in, &node);
    if (rc != PL_OK) {
        pl_graph_adopt_error(g, rc);
        return PL_NO_NODE;
    }
    for (int k = 0; outs && k < op->n_out; k++)
        outs[k] = (pl_val){g->nodes[node].out + (uint32_t)k};
    return (pl_node){node};
}

pl_val pl_build1(pl_graph *g, const pl_op *op, const void *attr, int n_in, const pl_val *in)
{
    pl_val out[PL_MAX_OUT];
    pl_build(g, op, attr, n_in, in, out);
    return out[0];
}

void pl_node_call(const pl_graph *g, uint32_t node, pl_type *in_type, pl_type *out_type, pl_call *c)
{
    const pl_node_rec *n = &g->nodes[node];
    for (int i = 0; i < n->n_in; i++) in_type[i] = g->vals[g->edges[n->in + (uint32_t)i]].type;
    for (int k = 0; k < n->n_out; k++) out_type[k] = g->vals[n->out + (uint32_t)k].type;
    *c = (pl_call){.in_type = in_type,
                   .out_type = out_type,
                   .attr = n->attr,
                   .n_in = n->n_in,
                   .n_out = n->n_out};
}

uint32_t pl_graph_widest(const pl_graph *g)
{
    uint32_t widest = 1;
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].n_in > widest) widest = g->nodes[n].n_in;
    return widest;
}

/* Nodes are in topological order, so one backward walk finds the nodes that the effects need. */
void pl_graph_mark_needed(const pl_graph *g, bool *needed)
{
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--) {
        const pl_node_rec *r = &g->nodes[n];
        if (r->op->flags & PL_OP_EFFECT) needed[n] = true;
        for (uint32_t i = 0; needed[n] && i < r->n_in; i++)
            needed[pl_producer(g, pl_node_in(g, n)[i])] = true;
    }
}

const char *pl_node_label(const pl_graph *g, uint32_t node, char *buf, size_t cap)
{
    const char *path = g->scopes[g->nodes[node].scope].path;
    snprintf(buf, cap, "%s%s%s", path, *path ? ": " : "", g->nodes[node].op->name);
    return buf;
}

bool pl_fill_of(const pl_graph *g, pl_val v, double *value)
{
    const pl_node_rec *n = &g->nodes[g->vals[v.id].node];
    if (!(n->op->flags & PL_OP_FILL)) return false;
    pl_type out;
    pl_call c;
    pl_ramp ramp;
    pl_node_call(g, g->vals[v.id].node, NULL, &out, &c);
    n->op->ramp(&c, &ramp);
    for (int i = 0; i < out.rank; i++)
        if (ramp.step[i] != 0 && out.dim[i] > 1) return false;
    *value = ramp.base;
    return true;
}
