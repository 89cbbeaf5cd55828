/* program_levels.c - a program's use of memory below the device: setting it, and its figures. */
#include "plimsoll_levels.h"
#include "rt/levels/process_levels.h"
#include "rt/process_budget.h"
#include "rt/rt_int.h"

#include <string.h>

pl_status pl_program_set_levels(pl_program *p, const pl_level_opts *levels, const char *disk_dir)
{
    p->levels = levels;
    p->homes = levels ? levels->homes : NULL;
    p->disk_dir = disk_dir;
    pl_budget_levels(p->budget, levels);
    PL_TRY(pl_program_set_budget(p, 0));
    if (!p->dev->own_memory) pl_budget_trim(p->budget); /* its memory counts on the host */
    return PL_OK;
}

const pl_store *pl_program_store(const pl_program *p)
{
    return p->base_graph->store;
}

bool pl_program_slot_may_move(const pl_program *p, int slot)
{
    return pl_level_slot_may_move(p->base_graph, p->base_units, slot);
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

pl_status pl__program_level_time(const pl_program *p, double *begin_ns, double *move_ns,
                                 pl_level_times *out)
{
    pl_arena mem = PL_ARENA_INIT;
    double *cost = pl_arena_new(&mem, double, p->plan->n_order + 1);
    for (uint32_t i = 0; cost && i < p->plan->n_order; i++)
        cost[i] = p->cost_ns[pl_base_unit(p, p->plan->order[i])];
    pl_status rc =
        cost ? pl_level_time(p->plan, cost, p->levels, begin_ns, move_ns, out) : PL_ERR_MEMORY;
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
