/* plan_report.c - a plan in words and numbers: labels, the buffers at the peak. */
#include "plan/core/plan.h"

#include <stdio.h>

const char *pl_unit_label(const pl_graph *g, const pl_unit *u, char *buf, size_t cap)
{
    if (u->kind == PL_UNIT_MOVE) {
        size_t at = (size_t)snprintf(buf, cap, "move ");
        uint32_t from = u->in[0], node;
        while (pl_node_get(g, node = pl_producer(g, from))->op == pl_node_get(g, u->nodes[0])->op)
            from = pl_node_in(g, node)[0]; /* bytes moved before */
        if (at < cap) pl_node_label(g, node, buf + at, cap - at);
        return buf;
    }
    pl_node_label(g, u->nodes[u->n_nodes - 1], buf, cap);
    size_t n = 0;
    while (n < cap && buf[n]) n++;
    if (u->n_nodes > 1) snprintf(buf + n, cap - n, " +%u", u->n_nodes - 1);
    return buf;
}

const char *pl_plan_position_label(const pl_graph *g, const pl_units *units, const pl_plan *p,
                                   int32_t step, char *buf, size_t cap)
{
    if (step >= 0 && (uint32_t)step < p->n_order)
        return pl_unit_label(g, &units->unit[p->order[step]], buf, cap);
    uint32_t c = (uint32_t)step - p->n_order;
    if (step < 0 || c >= p->n_copies) {
        snprintf(buf, cap, "nothing");
    } else if (p->copies[c].to.space == PL_SPACE_STATE) {
        snprintf(buf, cap, "copy to %s", pl_store_slot(g->store, p->copies[c].to.slot)->name);
    } else {
        snprintf(buf, cap, "save %s", pl_store_slot(g->store, p->copies[c].from.slot)->name);
    }
    return buf;
}

uint64_t pl_view_bytes(const pl_graph *g, const pl_units *units)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < units->n; i++) {
        const pl_unit *u = &units->unit[i];
        if (u->kind != PL_UNIT_VIEW) continue;
        const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
        for (uint32_t k = 0; k < r->n_out; k++) sum += pl_type_bytes(pl_type_of(g, r->out + k));
    }
    return sum;
}

static uint64_t slot_bytes(const pl_slot *s)
{
    return (pl_slot_bytes(s) + PL_PLAN_ALIGN - 1) / PL_PLAN_ALIGN * PL_PLAN_ALIGN;
}

uint64_t pl_state_bytes(const pl_store *s, const pl_homes *homes)
{
    uint64_t sum = 0;
    for (int i = 0; i < pl_store_count(s); i++)
        if (!pl_home_level(homes, i)) sum += slot_bytes(pl_store_slot(s, i));
    return sum;
}

void pl_plan_components(const pl_graph *g, const pl_plan *p, const pl_homes *homes,
                        uint64_t bytes[PL_N_COMPONENTS])
{
    for (int c = 0; c < PL_N_COMPONENTS; c++) bytes[c] = 0;
    for (int i = 0; i < pl_store_count(g->store); i++) {
        const pl_slot *s = pl_store_slot(g->store, i);
        if (pl_home_level(homes, i)) continue;
        bool model = s->kind == PL_SLOT_PARAM || s->kind == PL_SLOT_BUFFER;
        bytes[model ? PL_COMP_WEIGHTS : PL_COMP_OPTIMIZER] += slot_bytes(s);
    }
    for (uint32_t i = 0; i < p->n_buffers; i++)
        if (p->buffers[i].first <= p->peak_position && p->peak_position < p->buffers[i].last)
            bytes[p->buffers[i].component] += p->buffers[i].bytes;
}
