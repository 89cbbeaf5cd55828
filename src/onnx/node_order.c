/* node_order.c - puts the nodes of graphs in order: each node after the nodes that it reads.
 *
 * The standard asks for this order. ONNX Runtime does not, and some of the tools that change graphs
 * append nodes at the end. Nodes that form a cycle keep the order of the file, and the build names
 * the first of them that reads a value too early. */
#include "onnx/onnx.h"

#include <string.h>

typedef struct edge {
    size_t from; /* index of the node that is read */
    struct edge *next;
} edge;

typedef struct sorter {
    pl_arena mem;
    pl_ox_map *maker; /* name of a value to its place in `index` */
    size_t *index;    /* 0, 1, 2, ... */
    edge **reads;     /* by node */
    size_t at;        /* the node that is looked at */
    bool late;        /* a node reads the result of a later one */
} sorter;

static pl_status add_read(sorter *s, const char *name)
{
    const size_t *from = name ? pl_ox_map_get(s->maker, name) : NULL;
    if (!from) return PL_OK;
    edge *e = pl_arena_new(&s->mem, edge, 1);
    if (!e) return PL_ERR_MEMORY;
    *e = (edge){*from, s->reads[s->at]};
    s->reads[s->at] = e;
    s->late |= *from >= s->at;
    return PL_OK;
}

/* The inputs of a node, and of the nodes of its subgraphs. */
static pl_status add_reads(sorter *s, const pl_ox_node *n, int depth)
{
    for (size_t k = 0; k < n->n_input; k++) PL_TRY(add_read(s, n->input[k]));
    for (size_t k = 0; k < n->n_attribute && depth < PL_OX_MAX_DEPTH; k++) {
        const pl_ox_graph *g = n->attribute[k]->g;
        for (size_t i = 0; g && i < g->n_node; i++) PL_TRY(add_reads(s, g->node[i], depth + 1));
        for (size_t i = 0; g && i < g->n_output; i++) PL_TRY(add_read(s, g->output[i]->name));
    }
    return PL_OK;
}

static pl_status find_reads(sorter *s, size_t n, pl_ox_node *const *node)
{
    s->maker = pl_ox_map_new(&s->mem);
    s->index = pl_arena_new(&s->mem, size_t, n + 1);
    s->reads = pl_arena_new(&s->mem, edge *, n + 1);
    if (!s->maker || !s->index || !s->reads) return PL_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        s->index[i] = i;
        for (size_t k = 0; k < node[i]->n_output; k++) {
            const char *name = node[i]->output[k];
            if (!name || !name[0] || pl_ox_map_get(s->maker, name)) continue;
            PL_TRY(pl_ox_map_put(s->maker, name, &s->index[i]));
        }
    }
    for (s->at = 0; s->at < n; s->at++) PL_TRY(add_reads(s, node[s->at], 0));
    return PL_OK;
}

/* Walks from each node to the nodes that it reads, with a stack. Changes nothing if a node reads
 * its own result, directly or not. */
static pl_status put_in_order(sorter *s, size_t n, pl_ox_node **node)
{
    enum { NEW, OPEN, DONE };
    pl_ox_node **sorted = pl_arena_new(&s->mem, pl_ox_node *, n);
    size_t *stack = pl_arena_new(&s->mem, size_t, n), n_sorted = 0;
    char *state = pl_arena_new(&s->mem, char, n);
    if (!sorted || !stack || !state) return PL_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        size_t depth = 0;
        if (state[i] == NEW) stack[depth++] = i;
        while (depth > 0) {
            size_t k = stack[depth - 1];
            state[k] = OPEN;
            edge *e = s->reads[k];
            while (e && state[e->from] == DONE) e = e->next;
            s->reads[k] = e;
            if (e && state[e->from] == OPEN) return PL_OK;
            if (e) {
                stack[depth++] = e->from;
                continue;
            }
            state[k] = DONE;
            sorted[n_sorted++] = node[k];
            depth--;
        }
    }
    memcpy(node, sorted, n * sizeof *node);
    return PL_OK;
}

static pl_status sort_all(size_t n, pl_ox_node **node, int depth)
{
    for (size_t i = 0; i < n && depth < PL_OX_MAX_DEPTH; i++)
        for (size_t k = 0; k < node[i]->n_attribute; k++) {
            pl_ox_graph *g = node[i]->attribute[k]->g;
            if (g) PL_TRY(sort_all(g->n_node, g->node, depth + 1));
        }
    sorter s = {.mem = PL_ARENA_INIT};
    pl_status rc = find_reads(&s, n, node);
    if (rc == PL_OK && s.late) rc = put_in_order(&s, n, node);
    pl_arena_release(&s.mem);
    return rc;
}

pl_status pl_ox_sort_nodes(pl_onnx *o)
{
    pl_ox_graph *g = o->proto->graph;
    o->in_file = pl_arena_new(&o->mem, pl_ox_node *, g->n_node + 1);
    if (!o->in_file) return PL_ERR_MEMORY;
    if (g->n_node) memcpy(o->in_file, g->node, g->n_node * sizeof *g->node);
    for (size_t i = 0; i < o->proto->n_function; i++)
        PL_TRY(sort_all(o->proto->function[i]->n_node, o->proto->function[i]->node, 0));
    return sort_all(g->n_node, g->node, 0);
}
