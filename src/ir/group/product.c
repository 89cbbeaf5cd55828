/* product.c - see product.h. */
#include "ir/group/product.h"

#include <string.h>

uint32_t pl_group_product(const pl_graph *g, const pl_unit *u)
{
    for (uint32_t i = 0; u->kind == PL_UNIT_GROUP && i < u->n_nodes; i++)
        if (pl_node_get(g, u->nodes[i])->op->product) return u->nodes[i];
    return 0;
}

pl_status pl_group_behind(const pl_graph *g, const pl_unit *u, pl_arena *a, pl_unit *behind)
{
    uint32_t product = pl_group_product(g, u), y = pl_node_get(g, product)->out;
    *behind = *u;
    behind->nodes = pl_arena_new(a, uint32_t, u->n_nodes);
    behind->in = pl_arena_new(a, uint32_t, u->n_in + 1);
    if (!behind->nodes || !behind->in) return PL_ERR_MEMORY;
    behind->n_nodes = 0;
    for (uint32_t i = 0; i < u->n_nodes; i++)
        if (u->nodes[i] != product) behind->nodes[behind->n_nodes++] = u->nodes[i];
    memcpy(behind->in, u->in, sizeof *u->in * u->n_in);
    behind->in[behind->n_in++] = y;
    if (u->n_out && u->out[u->n_out - 1] == y) behind->n_out--;
    return PL_OK;
}

static bool is_operand(const pl_graph *g, uint32_t product, uint32_t val)
{
    for (uint32_t i = 0; i < pl_node_get(g, product)->n_in; i++)
        if (pl_node_in(g, product)[i] == val) return true;
    return false;
}

pl_status pl_group_product_inplace(const pl_graph *g, const pl_unit *u, const pl_unit *behind,
                                   const bool *may, pl_arena *a, bool **out)
{
    uint32_t product = pl_group_product(g, u);
    bool *table = pl_arena_new(a, bool, (size_t)u->n_in * u->n_out + 1);
    if (!table) return PL_ERR_MEMORY;
    for (uint32_t k = 0; k < behind->n_out; k++)
        for (uint32_t i = 0; i < u->n_in; i++)
            table[k * u->n_in + i] = may[k * behind->n_in + i] && !is_operand(g, product, u->in[i]);
    *out = table;
    return PL_OK;
}
