/* beside.h - which units of a program may run beside each other.
 *
 * A program is a list of units, and a unit depends on the units before it only through memory: a
 * kernel reads its operands, writes its results and uses its scratch, nothing else (ir/kernel.h).
 * So unit b must follow unit a exactly if one of them writes bytes that the other reads or writes.
 * Everything else may overlap: the bits are the same in every order that keeps these pairs.
 *
 * The list is cut into spans of PL_BESIDE_SPAN units. The first unit of a span follows all units
 * before it, and all units of the span follow the first one. That bounds the work for each unit and
 * the number of edges, and no pair of units in different spans needs to be looked at.
 *
 * No CUDA in here: capture.c turns the answers into edges of a CUDA graph.
 */
#ifndef PL_CUDA_BESIDE_H
#define PL_CUDA_BESIDE_H

#include "rt/device.h"

enum { PL_BESIDE_SPAN = 64 };

typedef struct pl_beside {
    const pl_bound_unit *unit[PL_BESIDE_SPAN]; /* the entries of the span: their first units */
    uint32_t count[PL_BESIDE_SPAN];            /* and how many consecutive units each one has */
    uint64_t
        before[PL_BESIDE_SPAN]; /* bit k: entry k of the span is before this one, directly or not */
    int n;
} pl_beside;

/* Whether units may run beside each other at all: exchanges between ranks and moves between levels
 * have a separate order. */
bool pl_beside_allowed(const pl_bound_unit *l, uint32_t n);

/* Adds an entry: `count` units that run as one. Returns its position in the span. *follows has bit
 * k if the entry directly follows entry k; *opens: the entry begins a new span, and *follows are
 * the ends of the span before it. */
int pl_beside_add(pl_beside *b, const pl_bound_unit *l, uint32_t count, uint64_t *follows,
                  bool *opens);

/* Returns the entries of the span that no other entry follows. */
uint64_t pl_beside_ends(const pl_beside *b);

#endif
