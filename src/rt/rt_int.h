/* rt_int.h - what program.c, session.c, feed.c and profile.c share. */
#ifndef PL_RT_RT_INT_H
#define PL_RT_RT_INT_H

#include "base/sys.h"
#include "plan/core/fit.h"
#include "plan/cost/cost_link.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"

/* A compiled graph. Nothing in it changes once a session has it, so sessions may share it.
 *
 * `base` is the graph as compiled, each unit run once; kernels are prepared for its units. A plan
 * that recomputes runs an expansion of it, whose units share those kernels. g, units and plan are
 * what runs: the base's own, or those of `fitted`. */
struct pl_program {
    pl_arena mem; /* the arrays below */
    const pl_device *dev;
    pl_compile_opts opts;
    const pl_graph *g;
    const pl_units *units;
    const pl_plan *plan;
    pl_graph *base_graph;
    pl_units *base_units;
    pl_plan *keep_all;
    pl_fit_base base;
    pl_plan_opts plan_opts;
    pl_fit *fit;           /* while budgets are tried */
    pl_fitted *fitted;     /* NULL: everything is kept */
    bool knows_minimum;    /* info.minimum_bytes is the smallest arena, not just small enough */
    uint64_t minimum_held; /* host memory that its plan takes; 0: none is known */
    uint64_t refused;      /* the largest arena that a search found no plan for */
    pl_exec *exec;         /* per base unit */
    pl_call *call;         /* per base unit: types and attributes */
    pl_cost *cost;         /* per base unit */
    uint8_t *time_source;  /* per base unit: enum pl_time_source of base.cost_ns */
    double copy_ns, copy_ns_byte; /* of a copy */
    pl_link link;                 /* what joins ranks */
    uint32_t *inputs;             /* input nodes */
    int n_inputs;
    const char **step_label; /* per step */
    pl_plan_info info;
    pl_program_times times;
};

/* Milliseconds since *from, which becomes now. */
static inline double pl_lap(uint64_t *from)
{
    uint64_t begin = *from;
    *from = pl_sys_now_ns();
    return (double)(*from - begin) / 1e6;
}

/* The base unit whose kernel a unit runs. */
static inline uint32_t pl_base_unit(const pl_program *p, uint32_t unit)
{
    return p->fitted ? p->fitted->x->base[unit] : unit;
}

/* The values that a unit's call takes and gives, in order: a node's operands, or a group's
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

/* Times of one program's steps, summed over runs. */
typedef struct pl_profile {
    uint64_t *ns; /* per step; NULL: not measuring */
    uint64_t runs;
} pl_profile;

/* Inputs and outputs of a program on a device that is apart; all zero elsewhere. */
typedef struct pl_feed {
    pl_tape_plan plan;
    void *tape;             /* NULL: launch by launch, watched */
    pl_transfer *out;       /* every output; plan.out has the small ones, which every run fetches */
    bool *fresh;            /* per output: the mirror has the last run's */
    size_t mirror_bytes[2]; /* large outputs are in the first alone */
    int side;               /* of the next run */
    bool sent;              /* the next run's inputs are on their way */
} pl_feed;

/* A program bound to a session's memory. */
typedef struct pl_bound {
    pl_program *p;
    pl_launch *launch; /* n_order + n_copies */
    uint32_t n_launch;
    uint32_t *dies;      /* poison: buffers in the order of their death */
    uint32_t *dies_from; /* per step: first of dies[]; n_launch + 1 entries */
    pl_profile profile;
    pl_feed feed;
} pl_bound;

struct pl_session {
    pl_arena mem;
    pl_store *store;
    const pl_device *dev;
    pl_bound *bound;
    int n_bound, max_bound; /* bound programs do not move: their tapes know where they are */
    char *arena, *state;
    uint64_t arena_bytes, state_bytes;
    uint64_t *slot_at; /* per slot: offset in state */
    int n_slots;
    char *stage, *bounce; /* apart: the device's block for inputs, the host's for slots */
    size_t stage_bytes, bounce_bytes;
    bool watching; /* values are looked at when they are written (watch.c) */
    pl_session_times times;
    char found[384]; /* the first that was not finite; "" */
};

void *pl_session_address(const pl_session *s, const pl_place *at);
/* After launch i of a watched run: notes the first value that is not finite. */
pl_status pl_watch_launch(pl_session *s, const pl_bound *b, uint32_t i) PL_MUST_USE;
/* Launch by launch: what poison, timing and watching need. */
pl_status pl_session_run_watched(pl_session *s, pl_bound *b, uint32_t *failed) PL_MUST_USE;

pl_bound *pl_session_find(const pl_session *s, const pl_program *p); /* NULL if not bound */

/* ---- feed.c: devices that are apart ------------------------------------------------------ */
/* Host blocks and tapes for all bound programs. State and arena hold no data afterwards. */
pl_status pl_feed_make(pl_session *s) PL_MUST_USE;
void pl_feed_release(pl_session *s);
/* For one more program, at the end of the list; the state is as it was. */
pl_status pl_feed_add(pl_session *s, pl_bound *b) PL_MUST_USE;
void pl_feed_drop(pl_session *s, pl_bound *b);
void *pl_feed_input(const pl_bound *b, int i);
/* Of the last run, or (ago = 1) the one before it; NULL if that failed or has no such output any
 * more. */
const void *pl_feed_output(pl_session *s, pl_bound *b, uint32_t i, int ago);
pl_status pl_feed_send(pl_session *s, pl_bound *b) PL_MUST_USE;
pl_status pl_feed_run(pl_session *s, pl_bound *b, uint32_t *failed) PL_MUST_USE;
pl_status pl_feed_wait(pl_session *s) PL_MUST_USE;
pl_status pl_feed_wait_for(pl_session *s, const pl_bound *b, int ago) PL_MUST_USE;

#endif
