/* plan.h - the plan: the order of units and the place of every byte, as plain data.
 *
 * A position is an index in the execution order. Positions 0 .. n_order-1 run one unit each;
 * positions n_order .. n_positions-1 run one copy each (values that could not be produced in their
 * slot's memory, old values to be kept). Views run nothing and have no position. A buffer is alive
 * in the half-open range of positions [first,last).
 *
 * Memory is two spaces. The arena holds what lives within a run: values, inputs, kernel scratch;
 * offsets count from its base. The state holds the slots of the store; a place there is a slot and
 * an offset in it. A `state` value is its slot's memory; a value assigned to a slot is produced
 * directly there when that is safe.
 *
 * Invariants, all of them checked by pl_plan_check on every plan
 *   P1  every unit that is not a view runs exactly once, after the producers of its inputs
 *   P2  no other unit writes bytes that a value needs until its last use
 *   P3  an output is written over an input only when the op allows it and nobody reads the input
 *       later
 *   P4  a slot's old value stays until its last reader has run; at the end the slot has the new one
 *   P5  scratch touches nothing alive; everything lies inside the arena, 64-byte aligned
 *   P6  a move begins at its position and has ended before position `end`: meanwhile nobody writes
 *       its source, nobody reads or writes its destination; kernels touch the device only
 */
#ifndef PL_PLAN_PLAN_H
#define PL_PLAN_PLAN_H

#include "ir/group/inplace.h"

#define PL_PLAN_ALIGN 64u
#define PL_NO_UNIT    UINT32_MAX

typedef enum pl_space {
    PL_SPACE_NONE, /* the value has no bytes: it lives inside a group */
    PL_SPACE_ARENA,
    PL_SPACE_STATE, /* of a slot that lives at a lower level: its memory there */
    PL_SPACE_HOST,  /* moved values: in the block of that level */
    PL_SPACE_DISK
} pl_space;

typedef struct pl_place {
    pl_space space;
    int32_t slot;    /* PL_SPACE_STATE */
    uint64_t offset; /* bytes, from the base of the arena or block, or from the slot's first byte */
} pl_place;

/* One range of the arena with one lifetime. */
typedef struct pl_placed_buffer {
    uint32_t value; /* the first value that lives in it, or the old value saved; 0 for scratch */
    uint32_t unit;  /* scratch: its unit; otherwise the producer, PL_NO_UNIT if none */
    uint64_t bytes, offset;
    int32_t first, last;
    enum pl_component component;
} pl_placed_buffer;

/* A copy of `bytes` bytes of value val at the end of the run. */
typedef struct pl_copy {
    uint32_t val;
    pl_place from, to;
    uint64_t bytes;
} pl_copy;

/* Where an output is when the run is over. */
typedef struct pl_plan_output {
    uint32_t node;
    pl_place place;
} pl_plan_output;

/* A copy between levels that runs beside kernels: it begins when its position is reached and must
 * have ended before position `end` begins. Moves of one channel run one after the other. */
typedef struct pl_move {
    uint32_t unit;
    uint8_t from, to, channel; /* enum pl_memory_level, enum pl_channel */
    int32_t begin, end;
    pl_place source, dest;
    uint64_t bytes;
    uint32_t after; /* 1 + the move whose result it moves; 0: none */
} pl_move;

typedef struct pl_plan {
    pl_arena mem; /* all arrays below */
    uint32_t *order;
    uint32_t n_order, n_positions;
    pl_place *place; /* per value id */
    uint32_t n_vals;
    uint64_t *work_bytes, *work_offset; /* per unit id */
    pl_copy *copies;
    uint32_t n_copies;
    pl_plan_output *outputs; /* in node order */
    uint32_t n_outputs;
    pl_placed_buffer *buffers;
    uint32_t n_buffers;
    pl_move *moves; /* by position */
    uint32_t n_moves;
    uint64_t
        level_bytes[PL_N_LEVELS]; /* blocks of the lower levels, slots that live there included */
    uint64_t arena_bytes;         /* height of the packing */
    uint64_t live_bound;          /* largest sum of buffers alive at one position */
    uint64_t no_reuse_bytes;      /* sum of all buffers, each value with separate bytes */
    int32_t peak_position;        /* the first with live_bound bytes alive */
    const char *order_name;       /* the strategy that won */
    uint64_t program_order_bound; /* live_bound of the order in which the graph was written */
    uint64_t own_bytes_bound;     /* the same without in-place outputs */
} pl_plan;

/* Input of the planner. work_bytes and inplace are per unit id. inplace has the in-place table of
 * each group (ir/group/inplace.h); NULL, or NULL for a group: no output of a group is in place. */
typedef struct pl_plan_opts {
    const uint64_t *work_bytes;
    const bool *const *inplace;
    bool no_reuse;
    bool no_join;       /* concats copy all their inputs */
    bool program_order; /* no search for a better order */
    bool gather;        /* the device runs adjacent updates as one launch */
    bool spread;        /* the device runs units beside each other: memory is reused late */
    /* Where slots live; NULL: on the device. */
    const pl_homes *homes;
    /* Per unit id that is a move: index in fixed_order before which it must have ended. */
    const uint32_t *move_end;
    /* A given order: ids of all units that are not views. NULL: the planner searches one. */
    const uint32_t *fixed_order;
    uint64_t seed;
    /* time limit of the offset search, in addition to its work limit: the plan then depends on the
     * machine's speed; 0: work limit only */
    double seconds;
    bool quick;               /* a short offset search only: the caller can ask for less instead */
    uint64_t enough;          /* an arena of at most this many bytes ends the offset search */
    uint64_t fits;            /* an arena of at most this many bytes shortens the offset search */
    const volatile int *stop; /* the search ends soon after *stop becomes nonzero; NULL: never */
    /* plan/budget.h keeps candidate lists of about this many bytes; 0: no limit */
    uint64_t host_bytes;
} pl_plan_opts;

pl_status pl_plan_make(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                       pl_plan **out) PL_MUST_USE;
void pl_plan_free(pl_plan *p);
/* Computes the most bytes alive at once under o->fixed_order: the live bound of the plan that
 * pl_plan_make would return, apart from values saved by copies at the end. Quick: nothing is
 * packed. */
pl_status pl_plan_peak(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                       uint64_t *bytes) PL_MUST_USE;

/* Accepts or rejects a plan (PL_ERR_PLAN, with the reason). Shares no code with the planner. */
pl_status pl_plan_check(const pl_graph *g, const pl_units *units, const pl_plan_opts *o,
                        const pl_plan *p) PL_MUST_USE;

/* ---- report ----------------------------------------------------------------------------- */
/* Writes "model.layer1: conv", or "model.layer1: add +3" for a group, to buf and returns buf. */
const char *pl_unit_label(const pl_graph *g, const pl_unit *u, char *buf, size_t cap);
/* Returns the label of the unit or copy at a position. */
const char *pl_plan_position_label(const pl_graph *g, const pl_units *units, const pl_plan *p,
                                   int32_t position, char *buf, size_t cap);
/* Sums the bytes alive on the device at the peak by kind; slots that live there count whole. */
void pl_plan_components(const pl_graph *g, const pl_plan *p, const pl_homes *homes,
                        uint64_t bytes[PL_N_COMPONENTS]);
/* Returns the bytes of the results of all views, if they were copied. */
uint64_t pl_view_bytes(const pl_graph *g, const pl_units *units);
/* Returns the bytes of the slots that live on the device, each rounded up to the alignment. homes:
 * NULL: all of them. */
uint64_t pl_state_bytes(const pl_store *s, const pl_homes *homes);

#endif
