/* lab.c - see lab.h. Graphs are evaluated node by node. */
#include "lab.h"

#include "base/sys.h"
#include "graph_eval.h"

#include <string.h>

enum { MAX_PROGRAMS = 4 };

struct lab {
    pl_store *store;
    pl_graph *graph[MAX_PROGRAMS];
    graph_eval *eval[MAX_PROGRAMS];
    int n;
    void **slot;
    int n_slots;
};

lab *lab_new(pl_store *s)
{
    lab *l = pl_sys_alloc(sizeof *l);
    l->store = s;
    return l;
}

void lab_free(lab *l)
{
    if (!l) return;
    for (int i = 0; i < l->n; i++) {
        graph_eval_free(l->eval[i]);
        pl_graph_free(l->graph[i]);
    }
    for (int i = 0; i < l->n_slots; i++) pl_sys_free(l->slot[i]);
    pl_sys_free(l->slot);
    pl_sys_free(l);
}

int lab_add(lab *l, pl_graph *g)
{
    l->graph[l->n] = g;
    return l->n++;
}

pl_status lab_open(lab *l)
{
    l->n_slots = pl_store_count(l->store);
    l->slot = pl_sys_alloc(sizeof(void *) * (size_t)(l->n_slots + 1));
    for (int i = 0; i < l->n_slots; i++)
        l->slot[i] = pl_sys_alloc(pl_type_bytes(&pl_store_slot(l->store, i)->type) + 1);
    for (int i = 0; i < l->n; i++) {
        PL_TRY(pl_graph_status(l->graph[i]));
        l->eval[i] = graph_eval_new(l->graph[i], false);
    }
    return PL_OK;
}

void *lab_slot(lab *l, int slot)
{
    return l->slot[slot];
}

/* The node of an op with that name; 0 if none. */
static uint32_t find(const pl_graph *g, const char *op, const char *name)
{
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (strcmp(g->nodes[n].op->name, op) != 0) continue;
        if (strcmp(pl_node_name(g, n), name) == 0) return n;
    }
    return 0;
}

void *lab_input(lab *l, int program, const char *name, pl_type *type)
{
    const pl_graph *g = l->graph[program];
    uint32_t n = find(g, "input", name);
    if (!n) return NULL;
    pl_val v = {g->nodes[n].out};
    if (type) *type = pl_val_type(g, v);
    return graph_eval_at(l->eval[program], v);
}

const void *lab_output(lab *l, int program, const char *name, pl_type *type)
{
    const pl_graph *g = l->graph[program];
    uint32_t n = find(g, "output", name);
    if (!n) return NULL;
    pl_val v = {pl_node_in(g, n)[0]};
    if (type) *type = pl_val_type(g, v);
    return graph_eval_at(l->eval[program], v);
}

/* Copies state in, or what is assigned out. */
static void exchange(lab *l, int program, bool in)
{
    const pl_graph *g = l->graph[program];
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        int slot = pl_node_slot(g, n);
        bool source = (g->nodes[n].op->flags & PL_OP_SOURCE) != 0;
        if (slot < 0 || source != in) continue;
        size_t bytes = pl_type_bytes(&pl_store_slot(l->store, slot)->type);
        if (in)
            memcpy(graph_eval_at(l->eval[program], (pl_val){g->nodes[n].out}), l->slot[slot], bytes);
        else
            memcpy(l->slot[slot], graph_eval_at(l->eval[program], (pl_val){pl_node_in(g, n)[0]}),
                   bytes);
    }
}

pl_status lab_run(lab *l, int program)
{
    exchange(l, program, true);
    PL_TRY(graph_eval_run(l->eval[program]));
    exchange(l, program, false);
    return PL_OK;
}
