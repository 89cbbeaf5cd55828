/* labels.h - the usual labels of dimensions (ir/op.h: pl_labels). */
#ifndef PL_OPS_LABELS_H
#define PL_OPS_LABELS_H

#include "ir/op.h"

/* Dimension 0 is the same index in the inputs and outputs of the masks; the rest is mixed. */
static inline void pl_label_first(pl_labels *l, uint32_t in, uint32_t out)
{
    for (int i = 0; i < PL_LABEL_IN; i++) l->in[i][0] = in >> i & 1;
    for (int k = 0; k < PL_MAX_OUT; k++) l->out[k][0] = out >> k & 1;
}

/* Every dimension but `axis` is the same index in all operands, which have one rank. */
static inline void pl_label_off_axis(const pl_call *c, pl_labels *l, int64_t axis)
{
    for (int d = 0; d < c->out_type[0].rank; d++) {
        int8_t label = d == axis ? PL_LABEL_MIX : (int8_t)(d + 1);
        for (int i = 0; i < c->n_in && i < PL_LABEL_IN; i++) l->in[i][d] = label;
        for (int k = 0; k < c->n_out; k++) l->out[k][d] = label;
    }
}

#endif
