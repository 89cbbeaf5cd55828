/* plan_int.h - shared by the files of the planner: the problem, in which views and groups are
 * resolved.
 *
 * A buffer is a piece of memory with one writer: a produced value with all views of it (M4), an
 * input, or the old value of a slot. Units here are the units that run, numbered from 0 on without
 * the views; "unit id" is the index in pl_units. Order, lifetimes and in-place reuse are decided on
 * units and buffers alone. All lists are compressed rows: the entries of row i are list[start[i]]
 * .. list[start[i+1]-1].
 */
#ifndef PL_PLAN_PLAN_INT_H
#define PL_PLAN_PLAN_INT_H

#include "plan/core/plan.h"

#define PL_NONE UINT32_MAX

typedef struct pl_plan_rows {
    uint32_t *start; /* n + 1 entries */
    uint32_t *list;
} pl_plan_rows;

typedef struct pl_buffer {
    uint64_t bytes;    /* rounded up to the alignment */
    uint32_t val;      /* the value that names it */
    uint32_t producer; /* unit; PL_NONE for inputs and old values of slots */
    uint8_t level;     /* enum pl_memory_level: where its bytes are */
    int32_t old_slot;  /* it is the old value of this slot; -1 */
    int32_t direct;    /* it is produced in this slot's memory; -1 */
    bool is_input;
    bool pinned; /* needed after the last unit: an output, the source of a copy */
} pl_buffer;

/* Output buffer `out` may be written over input buffer `in` of its unit. */
typedef struct pl_in_place {
    uint32_t in, out;
} pl_in_place;

/* Input buffer `in` of a unit may lie in its output buffer `out` from byte `at` on, from its
 * production on: the unit (a concat) then copies nothing. */
typedef struct pl_join {
    uint32_t unit, in, out;
    uint64_t at;
} pl_join;

/* An assign node whose value must be copied at the end: not produced in the slot's memory, and not
 * the slot's own value. */
typedef struct pl_assign_rec {
    int32_t slot;
    uint32_t val;
    bool copy;
} pl_assign_rec;

typedef struct pl_problem {
    const pl_graph *g;
    const pl_units *units;
    const pl_plan_opts *opts;
    uint32_t n_units;
    uint32_t *unit_id;     /* per unit: its id */
    uint32_t *unit_number; /* per unit id: the unit, PL_NONE for views */
    pl_buffer *buffer;
    uint32_t n_buffers;
    uint32_t *buffer_of;       /* per value: its buffer, PL_NONE if it has none */
    uint64_t *offset;          /* per value: bytes from the buffer's start */
    pl_plan_rows reads;        /* per unit: distinct buffers */
    pl_plan_rows writes;       /* per unit: buffers */
    pl_plan_rows readers;      /* per buffer: distinct units */
    pl_plan_rows preds, succs; /* per unit: units, data and slot order together, distinct */
    pl_in_place *in_place;     /* grouped by unit */
    uint32_t *in_place_start;  /* n_units + 1 */
    uint64_t *work;            /* per unit: scratch, rounded */
    pl_assign_rec *assigns;
    uint32_t n_assigns;
    pl_join *joins; /* possible joins; grouped by unit */
    uint32_t n_joins;
    /* Chosen joins: per buffer, the buffer it lies in (mostly itself), and the offset; NULL:
     * none. */
    uint32_t *home;
    uint64_t *home_at;
    bool *shared;          /* per buffer: it lies in another, or another lies in it */
    uint32_t *old_of_slot; /* per slot: buffer of the old value, PL_NONE if unread */
    uint32_t n_slots;
    pl_plan_rows ends; /* per position: moves that have ended before it; NULL: there are no moves */
} pl_problem;

static inline uint64_t pl_round_up(uint64_t bytes)
{
    return (bytes + PL_PLAN_ALIGN - 1) / PL_PLAN_ALIGN * PL_PLAN_ALIGN;
}

/* Returns the arena bytes that a buffer takes; a buffer in a slot takes none. */
static inline uint64_t pl_buffer_arena_bytes(const pl_buffer *s)
{
    return s->old_slot >= 0 || s->direct >= 0 || s->level ? 0 : s->bytes;
}

/* problem.c: units, buffers, in_place; then slots.c: which assigned values are made in their slot
 */
pl_status pl_problem_build(pl_problem *p, pl_arena *mem) PL_MUST_USE;
pl_status pl_problem_slots(pl_problem *p, pl_arena *mem) PL_MUST_USE;
/* Whether output k of the unit with this id may be written over input buffer `in`: same size, and
 * the op or group allows it (M3). */
bool pl_problem_may_overwrite(const pl_problem *p, uint32_t id, uint32_t k, uint32_t in);
/* Sets preds and succs from data and, for direct buffers, from the order of a slot's old and new
 * value. */
pl_status pl_problem_edges(pl_problem *p, pl_arena *mem) PL_MUST_USE;
/* Makes n rows from pairs (row, entry); each row's entries are in the order of the pairs. */
pl_status pl_plan_rows_make(pl_arena *mem, uint32_t n, const uint32_t (*pair)[2], size_t n_pairs,
                            pl_plan_rows *out) PL_MUST_USE;

/* lifetime.c: what an order means for memory */
typedef struct pl_life {
    uint32_t *owner; /* per buffer: the buffer whose bytes it has: itself, or the input that it
                      * overwrites in place */
    int32_t *first, *last; /* per buffer that is its own owner */
    uint32_t *left;        /* scratch: remaining readers */
    uint32_t *users; /* scratch, of a home: remaining writes and reads, including its guests' */
    uint64_t peak;   /* largest sum of bytes alive */
    int32_t peak_position;
} pl_life;
pl_status pl_life_new(const pl_problem *p, pl_arena *mem, pl_life *out) PL_MUST_USE;
/* Replays the order: in-place reuse, lifetimes up to the last unit, the peak. `limit`: stops (peak
 * = UINT64_MAX) as soon as the peak exceeds it. */
void pl_life_replay(const pl_problem *p, const uint32_t *order, uint64_t limit, pl_life *l);

/* join.c: lists which inputs of concats may be produced in their part of the result; then chooses,
 * for an order, the joins that do not raise its peak. `l` holds the last replay that counts. */
pl_status pl_join_list(pl_problem *p, pl_arena *mem) PL_MUST_USE;
pl_status pl_join_choose(pl_problem *p, const uint32_t *order, pl_arena *mem,
                         pl_life *l) PL_MUST_USE;

/* moves.c: places the values that are moved below the device, each level by itself after the slots
 * that live there; level_at: per buffer. Then lists the moves; p->order has unit ids. */
pl_status pl_plan_place_moved(const pl_problem *q, const pl_life *l, pl_plan *p, pl_arena *scratch,
                              uint64_t **level_at) PL_MUST_USE;
pl_status pl_plan_list_moves(const pl_problem *q, pl_plan *p) PL_MUST_USE;

/* order.c: writes the best order found to order[n_units]; *name is the strategy. *program_peak is
 * the peak of the order in which the graph was written, *own_peak the peak without in-place
 * reuse. */
pl_status pl_order_search(const pl_problem *p, uint32_t *order, const char **name,
                          uint64_t *program_peak, uint64_t *own_peak) PL_MUST_USE;
/* gather.c: changes the order so that updates of slots are adjacent, as far as the peak does not
 * rise. */
pl_status pl_order_gather(const pl_problem *p, uint32_t *order) PL_MUST_USE;

/* Moves the buffers of a plan so that memory is reused later, in an arena of the same size, where
 * that is possible. spread.c */
pl_status pl_plan_spread(pl_plan *p, uint64_t seed, pl_arena *scratch) PL_MUST_USE;

#endif
