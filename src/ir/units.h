/* units.h - the partition of a graph's nodes into schedule units.
 *
 * A unit is what runs at once: a single node through its op's kernel, or a group of fusable nodes
 * through one generated program. Values used only inside their unit have no storage. Sources and
 * effects (input, state, assign, output) and nodes nobody needs are in no unit. A view node (one
 * whose output is its input's bytes) is a unit of its own that runs nothing.
 *
 * A group may hold a node that is also computed elsewhere: `extra` members are nodes of another
 * unit that this one computes again for itself (cheap producers), so that their value need not be
 * stored for it.
 *
 * Invariants: units form a DAG over materialised values (groups are convex); unit ids are in a
 * topological order.
 */
#ifndef PL_IR_UNITS_H
#define PL_IR_UNITS_H

#include "ir/graph.h"

PL_SHARED_BEGIN

typedef enum pl_unit_kind {
    PL_UNIT_KERNEL, /* one node, its op's kernel */
    PL_UNIT_GROUP,  /* fusable nodes, one tile program */
    PL_UNIT_VIEW    /* one node, no work: output aliases input 0 at view_offset bytes */
} pl_unit_kind;

typedef struct pl_unit {
    pl_unit_kind kind;
    uint32_t n_nodes; /* members, in topological order (extra ones included) */
    uint32_t *nodes;
    uint32_t n_in; /* materialised values read, each once */
    uint32_t *in;
    uint32_t n_out; /* materialised values written */
    uint32_t *out;
    int64_t view_offset;
    const bool *bits; /* those of the partition; NULL: none */
} pl_unit;

typedef struct pl_units {
    pl_arena arena;
    pl_unit *unit; /* [0, n) */
    uint32_t n;
    uint32_t *unit_of; /* per value id: 1 + unit that materialises it; 0 if none (source, inside) */
    /* Per value id: a bool stored as bits, element e being bit e % 8 of byte e / 8, the last byte's
     * spare bits 0. Groups make it and only groups read it. NULL: no value is. */
    bool *bits;
} pl_units;

/* Bytes of memory that a value takes. */
static inline uint64_t pl_stored_bytes(const pl_graph *g, const bool *bits, uint32_t val)
{
    const pl_type *t = pl_type_of(g, val);
    return bits && bits[val] ? (uint64_t)(pl_type_elems(t) + 7) / 8 : pl_type_bytes(t);
}

void pl_units_free(pl_units *u); /* NULL is fine */
/* Every node a unit of its own: the partition without fusion, for tests and comparison. */
pl_status pl_units_single(const pl_graph *g, pl_units **out) PL_MUST_USE;

PL_SHARED_END

#endif
