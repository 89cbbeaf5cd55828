/* quantize.c - reads weights that are stored in fewer bits.
 *
 * Model code reads every slot in the slot's own type. This pass, the first, makes the read of a
 * quantized slot (pl_slot.quant) two nodes: the codes, and their dequantization to that type. From
 * there on the numbers are an ordinary value: a plan gives them bytes only while kernels need them,
 * and may dequantize a second time in the backward pass.
 */
#include "pass/pass.h"

#include "pass/rewrite.h"
#include "plimsoll_ops.h"

/* Whether the node reads a quantized slot in the slot's own type. */
static bool reads_quantized(const pl_graph *g, uint32_t node, int *slot)
{
    const pl_node_rec *r = pl_node_get(g, node);
    *slot = pl_node_slot(g, node);
    if (*slot < 0 || r->op->flags & PL_OP_EFFECT) return false;
    const pl_slot *s = pl_store_slot(g->store, *slot);
    return s->quant && pl_type_equal(&s->type, pl_type_of(g, r->out));
}

pl_status pl_pass_quantize(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    (void)o;
    pl_rewrite c;
    pl_status rc = pl_rewrite_begin(&c, in);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        int slot;
        pl_rewrite_at(&c, n);
        if (reads_quantized(in, n, &slot)) {
            const pl_slot *s = pl_store_slot(in->store, slot);
            pl_val codes = pl_state_codes(c.out, slot);
            c.map[in->nodes[n].out] = pl_dequantize(c.out, codes, s->quant, &s->type).id;
        } else {
            pl_rewrite_node(&c, n);
        }
        rc = c.out->status;
    }
    return pl_rewrite_end(&c, rc, out);
}
