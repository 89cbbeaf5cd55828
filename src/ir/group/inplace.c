/* inplace.c - the in-place rule; see inplace.h.
 *
 * Invariant: where the rule says yes, a run whose output is its input's memory gives the bits of a
 * run with separate memory. Cost: operands times outputs of a group.
 */
#include "ir/group/inplace.h"

/* Position p of the space reads element p. */
static bool reads_densely(const pl_fused *f, const pl_fused_operand *x)
{
    int64_t stride = 1;
    for (int d = f->rank - 1; d >= 0; d--) {
        if (f->dim[d] != 1 && x->stride[d] != stride) return false;
        stride *= f->dim[d];
    }
    return x->offset == 0;
}

static bool is_only_reader(const pl_fused *f, int operand)
{
    for (int j = 0; j < f->n_in; j++)
        if (j != operand && f->in[j].in == f->in[operand].in) return false;
    return true;
}

bool pl_inplace_operand(const pl_fused *f, int operand, int output)
{
    const pl_fused_operand *x = &f->in[operand];
    const pl_fused_output *y = &f->out[output];
    return y->kind == PL_FUSED_STORE && !x->bits && !y->bits &&
           pl_dtype_bytes(x->dtype) == pl_dtype_bytes(y->dtype) && reads_densely(f, x) &&
           is_only_reader(f, operand);
}

pl_status pl_inplace_group(const pl_fused *f, const pl_unit *u, const bool *read_late, pl_arena *a,
                           bool **out)
{
    bool *may = pl_arena_new(a, bool, (size_t)u->n_in * u->n_out + 1);
    if (!may) return PL_ERR_MEMORY;
    for (int o = 0; o < f->n_out; o++)
        for (int i = 0; i < f->n_in; i++)
            if (!(read_late && read_late[i]) && pl_inplace_operand(f, i, o))
                may[(uint32_t)f->out[o].out * u->n_in + f->in[i].in] = true;
    *out = may;
    return PL_OK;
}

bool pl_inplace_unit(const pl_graph *g, const pl_unit *u, const bool *table, uint32_t k, uint32_t i)
{
    if (u->kind == PL_UNIT_GROUP) return table && table[k * u->n_in + i];
    const pl_node_rec *r = pl_node_get(g, u->nodes[0]);
    for (uint32_t j = 0; j < r->n_in; j++)
        if (pl_node_in(g, u->nodes[0])[j] == u->in[i] && (j >= 8 || !(r->op->inplace[k] >> j & 1)))
            return false;
    return true;
}
