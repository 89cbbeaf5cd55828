/* verify.c - checks that a graph is legal: invariants G1 to G4 of graph.h.
 *
 * Runs after every pass in tests and debug builds, and on every parsed text. It trusts nothing: ids
 * are checked before they are followed.
 */
#include "ir/graph.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static pl_status verify_edges(const pl_graph *g, uint32_t n)
{
    const pl_node_rec *r = &g->nodes[n];
    PL_FAIL_IF(!r->op, PL_ERR_GRAPH, "node %u has no op", n);
    PL_FAIL_IF((uint64_t)r->in + r->n_in > g->n_edges, PL_ERR_GRAPH, "node %u: inputs out of range",
               n);
    PL_FAIL_IF((uint64_t)r->out + r->n_out > g->n_vals || r->n_out > PL_MAX_OUT, PL_ERR_GRAPH,
               "node %u: outputs out of range", n);
    PL_FAIL_IF(r->scope >= g->n_scopes, PL_ERR_GRAPH, "node %u: no scope %u", n, r->scope);
    for (uint32_t i = 0; i < r->n_in; i++) {
        uint32_t v = g->edges[r->in + i];
        PL_FAIL_IF(v == 0 || v >= g->n_vals, PL_ERR_GRAPH, "node %u reads value %u of %u", n, v,
                   g->n_vals - 1);
        PL_FAIL_IF(g->vals[v].node >= n, PL_ERR_GRAPH,
                   "node %u (%s) reads value %u of the later node %u", n, r->op->name, v,
                   g->vals[v].node);
    }
    for (uint32_t k = 0; k < r->n_out; k++)
        PL_FAIL_IF(g->vals[r->out + k].node != n || g->vals[r->out + k].out != k, PL_ERR_GRAPH,
                   "value %u does not belong to node %u", r->out + k, n);
    return PL_OK;
}

static pl_status verify_types(const pl_graph *g, uint32_t n, pl_type *in, char *attr)
{
    const pl_node_rec *r = &g->nodes[n];
    pl_type out[PL_MAX_OUT];
    memset(out, 0, sizeof out);
    PL_FAIL_IF(r->n_in < r->op->min_in || (r->op->max_in >= 0 && r->n_in > r->op->max_in) ||
                   r->n_out != r->op->n_out,
               PL_ERR_GRAPH, "node %u (%s) has %u inputs and %u outputs", n, r->op->name, r->n_in,
               r->n_out);
    for (uint32_t i = 0; i < r->n_in; i++) in[i] = g->vals[g->edges[r->in + i]].type;
    if (r->op->attr_bytes) memcpy(attr, r->attr, r->op->attr_bytes);
    PL_TRY(r->op->infer(in, r->n_in, attr, out));
    for (uint32_t k = 0; k < r->n_out; k++) {
        char a[96], b[96];
        PL_FAIL_IF(!pl_type_equal(&out[k], &g->vals[r->out + k].type), PL_ERR_GRAPH,
                   "node %u (%s): result %u is %s, infer says %s", n, r->op->name, k,
                   pl_type_text(&g->vals[r->out + k].type, a, sizeof a),
                   pl_type_text(&out[k], b, sizeof b));
    }
    return PL_OK;
}

static pl_status verify_slot(const pl_graph *g, uint32_t n, bool *assigned)
{
    int slot = pl_node_slot(g, n);
    const pl_node_rec *r = &g->nodes[n];
    if (slot < 0) return PL_OK;
    PL_FAIL_IF(slot >= pl_store_count(g->store), PL_ERR_GRAPH, "node %u: no slot %d", n, slot);
    const pl_slot *s = pl_store_slot(g->store, slot);
    uint32_t v = r->op->flags & PL_OP_EFFECT ? g->edges[r->in] : r->out;
    char a[96], b[96];
    pl_type t = pl_slot_stored(s); /* model code reads the slot's own type (pass/quantize.c) */
    PL_FAIL_IF(!pl_type_equal(&t, &g->vals[v].type) && !pl_type_equal(&s->type, &g->vals[v].type),
               PL_ERR_GRAPH, "slot \"%s\" is %s, node %u has %s", s->name,
               pl_type_text(&t, a, sizeof a), n, pl_type_text(&g->vals[v].type, b, sizeof b));
    if (!(r->op->flags & PL_OP_EFFECT)) return PL_OK;
    PL_FAIL_IF(s->quant, PL_ERR_GRAPH, "slot \"%s\" is quantized: no program can assign it",
               s->name);
    PL_FAIL_IF(assigned[slot], PL_ERR_GRAPH, "slot \"%s\" is assigned twice in one program",
               s->name);
    assigned[slot] = true;
    return PL_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static pl_status verify_names(const pl_graph *g, uint32_t flag, pl_arena *scratch)
{
    const char **names = pl_arena_new(scratch, const char *, g->n_nodes);
    if (!names) return PL_ERR_MEMORY;
    size_t n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++)
        if ((g->nodes[i].op->flags & flag) && pl_node_name(g, i)) names[n++] = pl_node_name(g, i);
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 1; i < n; i++)
        PL_FAIL_IF(strcmp(names[i - 1], names[i]) == 0, PL_ERR_GRAPH, "two %s are named \"%s\"",
                   flag == PL_OP_SOURCE ? "inputs" : "outputs", names[i]);
    return PL_OK;
}

static pl_status verify_all(const pl_graph *g, pl_arena *scratch)
{
    size_t widest = 1, attr_bytes = 1;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        PL_TRY(verify_edges(g, n));
        if (g->nodes[n].n_in > widest) widest = g->nodes[n].n_in;
        if (g->nodes[n].op->attr_bytes > attr_bytes) attr_bytes = g->nodes[n].op->attr_bytes;
    }
    pl_type *in = pl_arena_new(scratch, pl_type, widest);
    char *attr = pl_arena_alloc(scratch, attr_bytes);
    bool *assigned = pl_arena_new(scratch, bool, pl_store_count(g->store) + 1);
    if (!in || !attr || !assigned) return PL_ERR_MEMORY;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        PL_TRY(verify_types(g, n, in, attr));
        PL_TRY(verify_slot(g, n, assigned));
    }
    PL_TRY(verify_names(g, PL_OP_SOURCE, scratch));
    return verify_names(g, PL_OP_EFFECT, scratch);
}

pl_status pl_graph_verify(const pl_graph *g)
{
    PL_TRY(pl_graph_status(g));
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = verify_all(g, &scratch);
    pl_arena_release(&scratch);
    return rc;
}
