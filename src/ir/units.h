/* units.h - the partition of a graph's nodes into schedule units.
 *
 * A unit is one kernel call: a single node through its op's kernel, or a fused group
 * (group/fused.h). A value that is used only inside its unit has no buffer. Sources and effects
 * (input, state, assign, output) and nodes that no effect needs are in no unit. A view node (its
 * output is its input's bytes) is a separate unit that runs no kernel.
 *
 * A group may begin with a product (group/product.h).
 *
 * A group may hold a node of another unit: it then recomputes that node (a cheap producer) for
 * itself, so that the value needs no buffer.
 *
 * Invariants: units form a DAG over materialised values (groups are convex); unit ids are in a
 * topological order.
 */
#ifndef PL_IR_UNITS_H
#define PL_IR_UNITS_H

#include "ir/graph.h"
#include "ir/level.h"

PL_SHARED_BEGIN

typedef enum pl_unit_kind {
    PL_UNIT_KERNEL, /* one node, its op's kernel */
    PL_UNIT_GROUP,  /* fusable nodes: a fused group (group/fused.h) */
    PL_UNIT_VIEW,   /* one node, no work: output aliases input 0 at view_offset bytes */
    PL_UNIT_MOVE    /* one identity node: copies in[0] to out[0], which is at another level of
                     * memory; plan/core/expand.h adds it, no graph starts with one */
} pl_unit_kind;

typedef struct pl_unit {
    pl_unit_kind kind;
    uint32_t n_nodes; /* members, in topological order, recomputed ones included */
    uint32_t *nodes;
    uint32_t n_in; /* values read that have a buffer, each once */
    uint32_t *in;
    uint32_t n_out; /* values written that have a buffer */
    uint32_t *out;
    int64_t view_offset;
    const bool *bits; /* pl_units.bits; NULL: none */
} pl_unit;

typedef struct pl_units {
    pl_arena arena;
    pl_unit *unit; /* [0, n) */
    uint32_t n;
    uint32_t
        *unit_of; /* per value id: 1 + unit that writes its buffer; 0 if none (source, inside) */
    /* Per value id: a bool stored as bits (M13 of docs/MEMORY.md). Element e is bit e % 8 of byte
     * e / 8; spare bits of the last byte are 0. Only groups write and read such values. NULL: there
     * are none. */
    bool *bits;
    /* Per value id: enum pl_memory_level of its bytes (ir/level.h). NULL: all are on the device. */
    uint8_t *level;
} pl_units;

/* Returns the bytes of a value's buffer. */
static inline uint64_t pl_stored_bytes(const pl_graph *g, const bool *bits, uint32_t val)
{
    const pl_type *t = pl_type_of(g, val);
    return bits && bits[val] ? (uint64_t)(pl_type_elems(t) + 7) / 8 : pl_type_bytes(t);
}

void pl_units_free(pl_units *u); /* NULL is fine */
/* Makes the partition without fusion: every node is a separate unit. */
pl_status pl_units_single(const pl_graph *g, pl_units **out) PL_MUST_USE;

PL_SHARED_END

#endif
