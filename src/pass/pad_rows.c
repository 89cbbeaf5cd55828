/* pad_rows.c - pads the rows of products to whole units of tensor cores.
 *
 * Ops compute their gain and build the padded form themselves (op->padded in ir/op.h). Their rules
 * look at operands that earlier rules have built, so one pass in node order is enough. Equal pads,
 * of a weight in forward and backward, and slices without a reader are removed by `simplify`, which
 * runs only where a rule has built something: other graphs are not changed.
 */
#include "pass/pass.h"

#include "pass/rewrite.h"

static pl_status write_padded(const pl_graph *in, const pl_padding *p, pl_graph **out, bool *any)
{
    pl_rewrite c;
    pl_status rc = pl_rewrite_begin(&c, in);
    for (uint32_t n = 1; rc == PL_OK && n < in->n_nodes; n++) {
        const pl_node_rec *r = &in->nodes[n];
        pl_val made[PL_MAX_OUT];
        pl_rewrite_at(&c, n);
        if (r->op->padded && r->op->padded(c.out, p, r->attr, c.args, (int)r->n_in, made)) {
            *any = true;
            for (uint32_t k = 0; k < r->n_out; k++) c.map[r->out + k] = made[k].id;
        } else {
            pl_rewrite_node(&c, n);
        }
        rc = c.out->status;
    }
    return pl_rewrite_end(&c, rc, out);
}

pl_status pl_pass_pad(const pl_graph *in, const pl_pass_opts *o, pl_graph **out)
{
    const pl_padding p = {.tf32 = o->tf32, .always = o->pads_all};
    bool any = false;
    PL_TRY(write_padded(in, &p, out, &any));
    for (int before = 0; any && pl_graph_nodes(*out) != before;) {
        pl_graph *less = NULL;
        before = pl_graph_nodes(*out);
        PL_TRY(pl_pass_simplify(*out, o, &less));
        pl_graph_free(*out);
        *out = less;
    }
    return PL_OK;
}
