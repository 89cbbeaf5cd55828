/* check_bits.c - messages of the checker, and its rule about bit-packed values; see check_int.h. */
#include "plan/core/check_int.h"

pl_status pl_check_wrong(const pl_graph *g, const pl_units *units, uint32_t unit, const char *what,
                         uint32_t val)
{
    char a[160] = "end of the run", b[160] = "";
    if (unit != PL_NO_UNIT) pl_unit_label(g, &units->unit[unit], a, sizeof a);
    if (val) pl_node_label(g, pl_producer(g, val), b, sizeof b);
    PL_FAIL(PL_ERR_PLAN, "the plan is wrong at \"%s\": %s%s%s%s", a, what, val ? " \"" : "", b,
            val ? "\"" : "");
}

pl_status pl_check_bits(const pl_graph *g, const pl_units *units)
{
    const bool *bits = units->bits;
    if (!bits) return PL_OK;
    for (uint32_t i = 0; i < units->n; i++) {
        const pl_unit *u = &units->unit[i];
        if (u->bits != bits)
            return pl_check_wrong(g, units, i, "does not know which values are bits", 0);
        if (u->kind == PL_UNIT_GROUP) continue;
        if (u->kind == PL_UNIT_MOVE && bits[u->in[0]] == bits[u->out[0]]) continue;
        for (uint32_t k = 0; k < u->n_in; k++)
            if (bits[u->in[k]]) return pl_check_wrong(g, units, i, "reads bits:", u->in[k]);
        for (uint32_t k = 0; k < u->n_out; k++)
            if (bits[u->out[k]]) return pl_check_wrong(g, units, i, "writes bits:", u->out[k]);
    }
    for (uint32_t n = 1; n < g->n_nodes; n++)
        for (uint32_t k = 0; k < g->nodes[n].n_in; k++)
            if ((g->nodes[n].op->flags & PL_OP_EFFECT) && bits[pl_node_in(g, n)[k]])
                return pl_check_wrong(g, units, PL_NO_UNIT,
                                      "bits leave the program:", pl_node_in(g, n)[k]);
    return PL_OK;
}
