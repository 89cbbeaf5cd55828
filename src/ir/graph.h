/* graph.h - the graph: a computation as plain data.
 *
 * Values and nodes live in two arrays addressed by dense ids (0 is "none"); any analysis is a plain
 * array indexed by id. Nodes are in creation order, which is a topological order: inputs of a node
 * have smaller ids. Value (type), node (op) and buffer (offset in a plan) are three things; a graph
 * has no buffers.
 *
 * Invariants, checked by verify.c
 *   G1  every input of node n is an output of a node with a smaller id
 *   G2  types of outputs are the types that the op's infer computes from the inputs
 *   G3  a slot is assigned at most once, with a value of the slot's type
 *   G4  names of inputs are unique, and so are names of outputs
 */
#ifndef PL_IR_GRAPH_H
#define PL_IR_GRAPH_H

#include "base/arena.h"
#include "ir/op.h"

PL_SHARED_BEGIN

typedef struct pl_value_rec {
    pl_type type;
    uint32_t node; /* producer */
    uint32_t out;  /* which of its outputs */
} pl_value_rec;

typedef struct pl_node_rec {
    const pl_op *op;
    void *attr;   /* op->attr_bytes in the graph's arena, NULL if none */
    uint32_t in;  /* first input in edges[] */
    uint32_t out; /* id of output 0; outputs are consecutive */
    uint16_t n_in, n_out;
    uint32_t scope; /* index into scopes[], 0 = none */
    bool backward;  /* made by reverse mode */
} pl_node_rec;

/* A graph that several ranks run, each on its own samples. A random draw over samples is this
 * rank's part of the draw over the samples of all ranks; draw_axis[stream] - 1 is the axis of
 * samples, draw_axis[stream] == 0: the draw has none. */
typedef struct pl_spread {
    int ranks, rank;
    const int8_t *draw_axis;
    uint32_t n_draws;
} pl_spread;

typedef struct pl_scope_rec {
    const char *path; /* "model.layer1" */
    uint32_t parent;
    bool checkpoint; /* the user asked to recompute this scope */
    bool full;       /* computed in f32 even in mixed precision */
} pl_scope_rec;

struct pl_graph {
    pl_arena arena; /* attributes, names */
    pl_store *store;
    pl_value_rec *vals; /* [0] unused */
    pl_node_rec *nodes; /* [0] unused */
    uint32_t *edges;    /* value ids */
    pl_scope_rec *scopes;
    uint32_t n_vals, n_nodes, n_edges, n_scopes; /* counts include the unused [0] */
    uint32_t cap_vals, cap_nodes, cap_edges, cap_scopes;
    uint32_t scope;          /* current */
    bool backward;           /* nodes being made are reverse mode's */
    uint32_t n_streams;      /* random streams handed out */
    const pl_spread *spread; /* borrowed; NULL: one rank runs it */
    pl_status status;        /* first error; building does nothing once set */
    char error[512];
};

/* Returns the memory that the graph takes. */
static inline uint64_t pl_graph_bytes(const pl_graph *g)
{
    return sizeof *g + g->arena.total + g->cap_vals * sizeof *g->vals +
           g->cap_nodes * sizeof *g->nodes + g->cap_edges * sizeof *g->edges +
           g->cap_scopes * sizeof *g->scopes;
}
static inline const pl_node_rec *pl_node_get(const pl_graph *g, uint32_t node)
{
    return &g->nodes[node];
}
static inline const uint32_t *pl_node_in(const pl_graph *g, uint32_t node)
{
    return g->edges + g->nodes[node].in;
}
static inline const pl_type *pl_type_of(const pl_graph *g, uint32_t val)
{
    return &g->vals[val].type;
}
static inline uint32_t pl_producer(const pl_graph *g, uint32_t val)
{
    return g->vals[val].node;
}

/* Fills *c with the types and attributes of a node; pointers are NULL. Copies types into the
 * caller's arrays, which need room for n_in and n_out entries. */
void pl_node_call(const pl_graph *g, uint32_t node, pl_type *in_type, pl_type *out_type,
                  pl_call *c);
/* Returns the largest number of inputs of a node, at least 1. */
uint32_t pl_graph_widest(const pl_graph *g);
/* Marks the nodes that an effect (assign, output) depends on, and effects. needed: n_nodes entries,
 * all false. */
void pl_graph_mark_needed(const pl_graph *g, bool *needed);
/* Copies all scopes of one graph into another that has none; scope numbers stay. Returns false and
 * sets the graph's error when memory runs out. */
bool pl_graph_copy_scopes(const pl_graph *from, pl_graph *to);
/* Writes "model.layer1: conv" into buf, for messages; returns buf. */
const char *pl_node_label(const pl_graph *g, uint32_t node, char *buf, size_t cap);

/* ---- building (graph.c) ----------------------------------------------------------------- */
/* Appends a node: copies attr, infers, checks. Returns PL_NO_NODE after an error, which the graph
 * remembers with the scope path in front; then outs are PL_NO_VAL. outs may be NULL. */
pl_node pl_build(pl_graph *g, const pl_op *op, const void *attr, int n_in, const pl_val *in,
                 pl_val *outs);
/* The common case of one output. */
/* Reads the codes of a quantized slot: u8, as pl_slot_stored says (ops/shape/endpoints.c). */
pl_val pl_state_codes(pl_graph *g, int slot);
pl_val pl_build1(pl_graph *g, const pl_op *op, const void *attr, int n_in, const pl_val *in);
/* Records the first error of the graph, scope path in front. */
void pl_graph_fail(pl_graph *g, pl_status code, const char *fmt, ...) PL_PRINTF(3, 4);
/* Records the current thread's message as the graph's error. */
void pl_graph_adopt_error(pl_graph *g, pl_status code);
/* Returns a stream number for a node that draws random numbers. The same model code gets the same
 * numbers. */
uint32_t pl_graph_next_stream(pl_graph *g);

/* General reverse mode (pass/grad.c): cotangents gy[k] of y[k] (PL_NO_VAL: zero) are pulled back to
 * x[i]; gx[i] is PL_NO_VAL where no path exists. Usable inside gradient rules. */
void pl_grad_seeded(pl_graph *g, const pl_val *y, const pl_val *gy, int n_y, const pl_val *x,
                    int n_x, pl_val *gx);

/* ---- sources and effects by what they carry --------------------------------------------- */
/* Returns the index of the slot of a state or assign node; -1 for other nodes. */
int pl_node_slot(const pl_graph *g, uint32_t node);
/* Returns the name of an input or output node; NULL for other nodes. */
const char *pl_node_name(const pl_graph *g, uint32_t node);

/* Returns whether all elements of v are one constant; sets *value to it. */
bool pl_fill_of(const pl_graph *g, pl_val v, double *value);

/* ---- attributes (attr.c) ---------------------------------------------------------------- */
bool pl_attr_equal(const pl_op *op, const void *a, const void *b);
uint64_t pl_attr_hash(const pl_op *op, const void *attr);

PL_SHARED_END

#endif
