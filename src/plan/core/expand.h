/* expand.h - a graph in which some units run more than once, or values move between levels.
 *
 * Recompute changes the graph, not the runtime (M12): a list of units with repeats becomes a graph
 * in which each run is a separate unit with its own nodes, and every reader reads the latest run
 * before it. All later stages (lifetimes, offsets, the checker, kernels) see an ordinary graph in
 * which each unit runs once.
 *
 * A move changes the graph, too (M14): it is a unit that reads a value at one level of memory
 * (ir/level.h) and writes a copy of it at another. Units read the latest copy on the device before
 * them. A slot that lives below the device is read through such copies, and its new value is the
 * result of a move.
 */
#ifndef PL_PLAN_EXPAND_H
#define PL_PLAN_EXPAND_H

#include "ir/units.h"

/* A move of a value: it begins before entry `at` of the list, and must have ended before entry
 * `end` >= at; where the move leaves the device or goes to the host, also before moves that begin
 * there. With end = at, it must have ended before the next move of its value that begins before
 * that entry, if there is one. n: after the last entry. */
typedef struct pl_list_move {
    uint32_t at, end;
    uint32_t val;
    uint8_t from, to; /* enum pl_memory_level */
    bool at_once;     /* it must have ended before the next entry or move begins */
    bool late;        /* with end > at: moves that begin before entry `end` do not wait for it */
} pl_list_move;

typedef struct pl_expansion {
    pl_arena mem;
    pl_graph *g;
    pl_units *units;
    uint32_t *base;   /* per new unit: the unit it is a run of; units->n of the old ones: a move */
    bool *recomputed; /* per new unit: not its first run */
    uint32_t *order;  /* new units without views, in the order of the list */
    uint32_t n_order;
    uint32_t *move_end; /* per new unit that is a move: index in order before which it has ended */
} pl_expansion;

/* list: n unit ids of `units`, without views, each unit at least once and after the producers of
 * its inputs. All readers of a value that is assigned to a slot read the result of its unit's first
 * run; an output is the result of the last run. */
pl_status pl_expand(const pl_graph *g, const pl_units *units, const uint32_t *list, uint32_t n,
                    pl_expansion **out) PL_MUST_USE;
/* The same with moves, sorted by `at`; homes: where slots live. A value is read on the device only
 * after a move has brought it there, if it is not produced there; the assigned value of a slot
 * below the device must have been moved to the slot's level. */
pl_status pl_expand_moves(const pl_graph *g, const pl_units *units, const uint32_t *list,
                          uint32_t n, const pl_list_move *moves, uint32_t n_moves,
                          const pl_homes *homes, pl_expansion **out) PL_MUST_USE;
void pl_expansion_free(pl_expansion *x); /* NULL is fine */

#endif
