/* repeat.c - units that are cheaper to run again than their results are to move.
 *
 * The bf16 copy of a weight is read in the forward and in the backward pass. The cast that makes it
 * reads only the weight, which is on the device all the time, and takes a tenth of the time that
 * moving the copy away and back would take. Such a unit runs again before a use that comes long
 * after the last one, so that its result needs no bytes in between.
 *
 * Only units whose inputs are slots on the device qualify: their inputs cost nothing to keep. Cost:
 * linear in the values that the list reads.
 */
#include "base/sys.h"
#include "plan/levels/gaps.h"

typedef struct repeat {
    const pl_level_problem *p;
    bool *cheap;     /* per unit: may run again */
    double *used_ns; /* per unit that is cheap: when the last use of its result has begun */
    uint32_t *out;   /* the new list */
    uint32_t n_out;
} repeat;

/* Returns 1 + the unit that computes a value, or the value of which it is a view; 0: none. *source:
 * the value at the end of the views. */
static uint32_t producer_of(const pl_units *units, uint32_t val, uint32_t *source)
{
    uint32_t unit;
    while ((unit = units->unit_of[val]) && units->unit[unit - 1].kind == PL_UNIT_VIEW)
        val = units->unit[unit - 1].in[0];
    *source = val;
    return unit;
}

/* Whether a unit reads nothing but slots on the device. */
static bool reads_slots(const repeat *r, const pl_unit *u)
{
    for (uint32_t i = 0; i < u->n_in; i++) {
        uint32_t source;
        if (producer_of(r->p->units, u->in[i], &source)) return false;
        int slot = pl_node_slot(r->p->g, pl_producer(r->p->g, source));
        if (slot < 0 || pl_home_level(r->p->levels->homes, slot)) return false;
    }
    return u->n_in > 0;
}

/* Returns the least time of moving a unit's result away and back. */
static double move_ns(const repeat *r, const pl_unit *u)
{
    const pl_level_opts *o = r->p->levels;
    uint64_t bytes = pl_stored_bytes(r->p->g, r->p->units->bits, u->out[0]);
    uint8_t level = o->capacity[PL_LEVEL_HOST] ? PL_LEVEL_HOST : PL_LEVEL_DISK;
    return pl_gap_fetch_ns(o, level, bytes) + pl_gap_store_ns(o, level, bytes);
}

/* Outputs of the program and new values of slots are not changed. */
static void find_cheap(repeat *r)
{
    const pl_graph *g = r->p->g;
    const pl_units *units = r->p->units;
    for (uint32_t i = 0; i < units->n; i++) {
        const pl_unit *u = &units->unit[i];
        bool kernel = u->kind == PL_UNIT_KERNEL || u->kind == PL_UNIT_GROUP;
        r->cheap[i] =
            kernel && u->n_out == 1 && reads_slots(r, u) && r->p->cost_ns[i] < move_ns(r, u) / 2;
    }
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        uint32_t source, unit;
        if (!(pl_node_get(g, n)->op->flags & PL_OP_EFFECT)) continue;
        if ((unit = producer_of(units, pl_node_in(g, n)[0], &source))) r->cheap[unit - 1] = false;
    }
}

/* Writes the cheap units whose results an entry uses after a long time. */
static void repeat_inputs(repeat *r, uint32_t unit, double now)
{
    const pl_unit *u = &r->p->units->unit[unit];
    for (uint32_t k = 0; k < u->n_in; k++) {
        uint32_t source, from = producer_of(r->p->units, u->in[k], &source);
        if (!from || !r->cheap[from - 1]) continue;
        const pl_unit *made = &r->p->units->unit[from - 1];
        bool late = now - r->used_ns[from - 1] > move_ns(r, made);
        bool is_new = late;
        for (uint32_t i = r->n_out; is_new && i-- > 0 && i + u->n_in >= r->n_out;)
            is_new = r->out[i] != from - 1;
        if (is_new) r->out[r->n_out++] = from - 1;
        r->used_ns[from - 1] = now + r->p->cost_ns[unit];
    }
}

pl_status pl_level_repeat_cheap(const pl_level_problem *p, pl_arena *mem, uint32_t **list,
                                uint32_t *n)
{
    pl_arena scratch = PL_ARENA_INIT;
    size_t reads = 0;
    for (uint32_t i = 0; i < p->n; i++) reads += p->units->unit[p->opts->fixed_order[i]].n_in;
    repeat r = {.p = p,
                .cheap = pl_arena_new(&scratch, bool, p->units->n + 1),
                .used_ns = pl_arena_new(&scratch, double, p->units->n + 1),
                .out = pl_arena_new(mem, uint32_t, p->n + reads + 1)};
    pl_status rc = r.cheap && r.used_ns && r.out ? PL_OK : PL_ERR_MEMORY;
    double now = 0;
    if (rc == PL_OK) find_cheap(&r);
    for (uint32_t i = 0; i < p->n && rc == PL_OK; i++) {
        uint32_t unit = p->opts->fixed_order[i];
        repeat_inputs(&r, unit, now);
        r.out[r.n_out++] = unit;
        now += p->cost_ns[unit];
        r.used_ns[unit] = now;
    }
    pl_arena_release(&scratch);
    *list = r.out;
    *n = r.n_out;
    return rc;
}
