/* program_levels.c - a program's use of memory below the device: setting it, and its figures. */
#include "plimsoll_levels.h"
#include "rt/levels/process_levels.h"
#include "rt/process_budget.h"
#include "rt/rt_int.h"

#include <math.h>
#include <string.h>

pl_status pl_program_set_levels(pl_program *p, const pl_level_opts *levels, const char *disk_dir)
{
    p->levels = levels;
    p->homes = levels ? levels->homes : NULL;
    p->disk_dir = disk_dir;
    pl_budget_levels(p->budget, levels);
    return pl_program_set_budget(p, 0);
}

const pl_store *pl_program_store(const pl_program *p)
{
    return p->base_graph->store;
}

bool pl_program_slot_may_move(const pl_program *p, int slot)
{
    return pl_level_slot_may_move(p->base_graph, p->base_units, slot);
}

bool pl_program_uses_slot(const pl_program *p, int slot)
{
    for (uint32_t k = 1; k < p->base_graph->n_nodes; k++)
        if (pl_node_slot(p->base_graph, k) == slot) return true;
    return false;
}

int pl_program_slot_uses(const pl_program *p, int slot, bool *assigned)
{
    int n = 0;
    *assigned = false;
    for (uint32_t k = 1; k < p->base_graph->n_nodes; k++) {
        const pl_node_rec *r = pl_node_get(p->base_graph, k);
        if (pl_node_slot(p->base_graph, k) != slot) continue;
        if (r->op->flags & PL_OP_EFFECT) *assigned = true;
        if (!(r->op->flags & PL_OP_SOURCE)) continue;
        for (uint32_t u = 0; u < p->base_units->n; u++)
            for (uint32_t i = 0; i < p->base_units->unit[u].n_in; i++)
                n += p->base_units->unit[u].in[i] == r->out;
    }
    return n;
}

/* Returns 1 + the unit that computes a value, or the value of which it is a view; 0: none. */
static uint32_t producer_of(const pl_program *p, uint32_t val)
{
    const pl_units *units = p->base_units;
    uint32_t unit;
    while ((unit = units->unit_of[val]) && units->unit[unit - 1].kind == PL_UNIT_VIEW)
        val = units->unit[unit - 1].in[0];
    return unit;
}

/* Returns the time at which all that a unit reads has been computed. */
static double ready_at(const pl_program *p, uint32_t unit, const double *ended)
{
    const pl_unit *u = &p->base_units->unit[unit];
    double at = 0;
    for (uint32_t i = 0; i < u->n_in; i++) {
        uint32_t from = producer_of(p, u->in[i]);
        if (from) at = fmax(at, ended[from - 1]);
    }
    return at;
}

/* Whether a unit computes single numbers only: a rate, a norm. */
static bool is_small(const pl_program *p, uint32_t unit)
{
    enum { SMALL = 64 }; /* bytes */
    const pl_unit *u = &p->base_units->unit[unit];
    for (uint32_t i = 0; i < u->n_out; i++)
        if (pl_type_bytes(pl_type_of(p->base_graph, u->out[i])) > SMALL) return false;
    return true;
}

/* Fills ended[unit] with the time at which a unit of the keep-all plan can have ended, if units
 * that assign slots took no time; returns the end of the program. Units that compute single numbers
 * are free to run once their inputs are there, wherever the plan has them. */
static double find_ends(const pl_program *p, const bool *assigns, double *ended)
{
    double now = 0;
    for (uint32_t i = 0; i < p->keep_all->n_order; i++) {
        uint32_t unit = p->keep_all->order[i];
        if (!assigns[unit]) now += p->cost_ns[unit];
        ended[unit] = is_small(p, unit) ? ready_at(p, unit, ended) : now;
    }
    return now;
}

pl_status pl_program_slot_slack(const pl_program *p, double *slack_ns)
{
    const pl_graph *g = p->base_graph;
    pl_arena mem = PL_ARENA_INIT;
    bool *assigns = pl_arena_new(&mem, bool, p->base_units->n + 1);
    double *ended = pl_arena_new(&mem, double, p->base_units->n + 1), end = 0;
    pl_status rc = assigns && ended ? PL_OK : PL_ERR_MEMORY;
    for (int pass = 0; pass < 2 && rc == PL_OK; pass++) {
        for (uint32_t n = 1; n < g->n_nodes; n++) {
            int slot = pl_node_slot(g, n);
            if (!(pl_node_get(g, n)->op->flags & PL_OP_EFFECT) || slot < 0) continue;
            uint32_t unit = producer_of(p, pl_node_in(g, n)[0]);
            if (!unit) continue;
            assigns[unit - 1] = true;
            if (pass) slack_ns[slot] = fmin(slack_ns[slot], end - ready_at(p, unit - 1, ended));
        }
        end = find_ends(p, assigns, ended);
    }
    pl_arena_release(&mem);
    return rc;
}

pl_status pl__program_level_time(const pl_program *p, double *begin_ns, double *move_ns,
                                 pl_level_times *out)
{
    pl_arena mem = PL_ARENA_INIT;
    double *cost = pl_arena_new(&mem, double, p->plan->n_order + 1);
    for (uint32_t i = 0; cost && i < p->plan->n_order; i++)
        cost[i] = p->cost_ns[pl_base_unit(p, p->plan->order[i])];
    pl_status rc = cost ? pl_level_time_placed(p->g, p->units, p->plan, cost, p->levels, begin_ns,
                                               move_ns, out)
                        : PL_ERR_MEMORY;
    pl_arena_release(&mem);
    return rc;
}

pl_level_info pl_program_levels(const pl_program *p)
{
    const pl_level_times *t = &p->level_times;
    double busy = 0;
    for (int c = 0; c < PL_N_CHANNELS; c++) busy += t->channel_ns[c];
    double hidden = busy > t->wait_ns ? busy - t->wait_ns : 0;
    return (pl_level_info){.host_bytes = p->plan->level_bytes[PL_LEVEL_HOST],
                           .disk_bytes = p->plan->level_bytes[PL_LEVEL_DISK],
                           .moved_bytes = t->moved_bytes,
                           .wait_ms = t->wait_ns / 1e6,
                           .hidden_ms = hidden / 1e6,
                           .moves = (int32_t)p->plan->n_moves};
}

int pl_program_moves(const pl_program *p, pl_plan_move *out, int cap)
{
    const pl_plan *plan = p->plan;
    int n = (int)plan->n_moves < cap ? (int)plan->n_moves : cap;
    if (!n) return (int)plan->n_moves;
    pl_level_times times;
    double *at = pl_sys_alloc(2 * (size_t)plan->n_moves * sizeof *at);
    bool timed = at && pl__program_level_time(p, NULL, at, &times) == PL_OK;
    for (int i = 0; i < n; i++) {
        const pl_move *m = &plan->moves[i];
        out[i] = (pl_plan_move){.label = p->position_label[m->begin],
                                .channel = (enum pl_move_channel)m->channel,
                                .begin = m->begin,
                                .end = m->end,
                                .bytes = m->bytes,
                                .begin_ms = timed ? at[2 * i] / 1e6 : 0,
                                .end_ms = timed ? at[2 * i + 1] / 1e6 : 0};
    }
    pl_sys_free(at);
    return (int)plan->n_moves;
}
