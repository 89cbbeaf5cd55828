/* rt_int.h - shared by the files of rt/: a compiled program, and a session that runs programs. */
#ifndef PL_RT_RT_INT_H
#define PL_RT_RT_INT_H

#include "base/sys.h"
#include "plan/budget.h"
#include "plan/cost/cost_link.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"

/* A compiled graph. Nothing in it changes once a session has it, so sessions may share it.
 *
 * `base` is the graph as compiled, each unit run once; kernels are prepared for its units. A plan
 * that recomputes runs an expansion of it, whose units share those kernels. g, units and plan are
 * what runs: the base's own, or the graph, units and plan that `budget` has set. */
struct pl_program {
    pl_arena mem;      /* the arrays below */
    pl_arena plan_mem; /* inputs and labels of the plan that runs */
    const pl_device *dev;
    pl_compile_opts opts;
    const pl_graph *g;
    const pl_units *units;
    const pl_plan *plan;
    bool limited; /* the memory of the process is limited */
    pl_graph *base_graph;
    pl_units *base_units;
    pl_plan *keep_all;
    pl_plan_opts plan_opts; /* of the keep-all plan */
    /* memory below the device that the program may use; NULL: nothing */
    const pl_level_opts *levels;
    const pl_homes *homes;        /* where slots live, for all programs of a session; NULL */
    const char *disk_dir;         /* folder of the disk level's file; NULL: none */
    pl_level_times level_times;   /* of the plan; zero without moves */
    pl_budget *budget;            /* has the plan that recomputes, if one is set */
    const pl_expansion *x;        /* of that plan; NULL: the keep-all plan */
    double *cost_ns;              /* per base unit */
    pl_exec *exec;                /* per base unit */
    pl_call *call;                /* per base unit: types and attributes */
    pl_cost *cost;                /* per base unit */
    uint8_t *time_source;         /* per base unit: enum pl_time_source of cost_ns */
    double copy_ns, copy_ns_byte; /* of a copy: fixed, and for each byte */
    pl_rank_link link;            /* the link between ranks */
    uint32_t *inputs;             /* input nodes */
    int n_inputs;
    const char **position_label; /* per position */
    pl_plan_info info;
    pl_program_times times;
};

/* Returns the milliseconds since *from, and sets *from to the current time. */
static inline double pl_lap(uint64_t *from)
{
    uint64_t begin = *from;
    *from = pl_sys_now_ns();
    return (double)(*from - begin) / 1e6;
}

/* Returns how the program's units compute. */
static inline pl_device_mode pl_program_mode(const pl_program *p)
{
    return (pl_device_mode){.tf32 = p->opts.precision == PL_PRECISION_TF32,
                            .autotune = p->opts.mode == PL_MODE_MAX_AUTOTUNE,
                            .plain = p->opts.fp32 == PL_FP32_PLAIN};
}

/* Returns the base unit whose kernel a unit runs. */
static inline uint32_t pl_base_unit(const pl_program *p, uint32_t unit)
{
    return p->x ? p->x->base[unit] : unit;
}

/* The values that a unit's call reads and writes, in order: a node's operands, or a group's
 * in[]. */
typedef struct pl_unit_args {
    const uint32_t *in;
    uint32_t n_in, out0; /* kernel: outputs out0, out0+1, ...; group: from list */
    const uint32_t *out;
    uint32_t n_out;
} pl_unit_args;
pl_unit_args pl_unit_args_of(const pl_graph *g, const pl_unit *u);
static inline uint32_t pl_arg_out(const pl_unit_args *a, uint32_t k)
{
    return a->out ? a->out[k] : a->out0 + k;
}

/* Times of one program's units, summed over runs. */
typedef struct pl_profile {
    uint64_t *ns; /* per unit; NULL: not measuring */
    uint64_t runs;
} pl_profile;

/* Host side of one program on a device with its own memory (staging.c); zero with direct access. */
typedef struct pl_staging {
    pl_capture_plan plan;
    void *captured;         /* NULL: runs unit by unit, because it is poisoned */
    pl_transfer *out;       /* every output; plan.out has the small ones, which every run fetches */
    bool *fresh;            /* per output: the mirror holds the last run's value */
    size_t mirror_bytes[2]; /* large outputs have room in the first mirror only */
    int side;               /* of the next run */
    bool sent;              /* the upload of the next run's inputs has begun */
} pl_staging;

/* A program bound to a session's memory. */
typedef struct pl_bound_program {
    pl_program *p;
    bool on_host;         /* compiled for the CPU in a session of a device with its own memory */
    pl_bound_unit *units; /* the plan's units in order, then its copies */
    uint32_t n_units;
    uint32_t *dies;      /* poison: buffers in the order of their death */
    uint32_t *dies_from; /* per position: first of dies[]; n_units + 1 entries */
    pl_profile profile;
    pl_staging staging;
} pl_bound_program;

struct pl_session {
    pl_arena mem;
    pl_store *store;
    const pl_device *dev;
    pl_bound_program *bound;
    int n_bound, max_bound; /* bound[] never moves: captured programs point into it */
    char *arena, *state;
    char *host_arena;         /* of the programs that run on the host; NULL: none does */
    struct pl_levels *levels; /* lower levels (rt/levels/levels.h); NULL: none */
    const pl_homes *homes;    /* of the programs; NULL: all slots are on the device */
    const char *disk_dir;     /* folder of the disk level's file; NULL: none */
    uint64_t arena_bytes, state_bytes, host_arena_bytes, level_bytes[PL_N_LEVELS];
    uint64_t *slot_at; /* per slot on the device: offset in state */
    int n_slots;
    /* Staged access: the device's block that inputs pass through, and the host's block that slots
     * pass through. */
    char *stage, *bounce;
    size_t stage_bytes, bounce_bytes;
    bool watching; /* checks every value for finite numbers as it is written (find_nonfinite.c) */
    pl_session_times times;
    char found[384]; /* the first value that was not finite; "": none */
};

/* Returns the address of a place of the program's plan; NULL: it is in a file, or has no place. */
void *pl_bound_address(const pl_session *s, const pl_bound_program *b, const pl_place *at);
/* After unit i of a watched run: records the first value that is not finite. */
pl_status pl_watch_unit(pl_session *s, const pl_bound_program *b, uint32_t i) PL_MUST_USE;
/* Whether a run must go unit by unit: for poison, timing or watching. */
bool pl_session_is_watched(const pl_session *s, const pl_bound_program *b);
/* Runs unit by unit. */
pl_status pl_session_run_watched(pl_session *s, pl_bound_program *b, uint32_t *failed) PL_MUST_USE;

/* Reads or writes bytes of a slot as they are in memory; the range is checked. */
pl_status pl__slot_read_stored(pl_session *s, int slot, uint64_t at, void *to,
                               size_t bytes) PL_MUST_USE;
pl_status pl__slot_write_stored(pl_session *s, int slot, uint64_t at, const void *from,
                                size_t bytes) PL_MUST_USE;
/* quantized_slot.c: the same for a quantized slot, whose bytes are counted in its own type. A write
 * begins at a block of PL_QUANT_BLOCK elements, and ends at a block or at the slot's end. */
pl_status pl__slot_read_quantized(pl_session *s, int slot, uint64_t at, void *to,
                                  size_t bytes) PL_MUST_USE;
pl_status pl__slot_write_quantized(pl_session *s, int slot, uint64_t at, const void *from,
                                   size_t bytes) PL_MUST_USE;

/* program_levels.c: predicts the plan with its moves. begin_ns, move_ns: see pl_level_time. */
pl_status pl__program_level_time(const pl_program *p, double *begin_ns, double *move_ns,
                                 pl_level_times *out) PL_MUST_USE;

pl_bound_program *pl_session_find(const pl_session *s, const pl_program *p); /* NULL: not bound */

#endif
