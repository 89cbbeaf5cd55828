/* dnn_conv.h - shared by the files of convolutions: dnn_conv.c (direct, phases, the choice) and
 * dnn_conv_few.c (thin, narrow). */
#ifndef PL_CPU_DNN_CONV_H
#define PL_CPU_DNN_CONV_H

#include "cpu/dnn/dnn_int.h"

typedef pl_dnn_conv_desc pl_conv;

/* The descriptors of a convolution's tensors; weights as the caller has them. */
typedef struct pl_conv_tensors {
    pl_mdesc x, y, w, bias;
} pl_conv_tensors;

/* The operands of a convolution, in the layouts of pl_conv_tensors. */
typedef struct pl_conv_io {
    int x, y, w, bias;
} pl_conv_io;

/* The number of taps of the kernel. */
static inline int64_t pl_conv_taps(const pl_conv *c)
{
    int64_t n = 1;
    for (int i = 0; i < c->n_spatial; i++) n *= c->kernel[i];
    return n;
}

/* Weights of one tap whose output and input channels lie o and i elements apart. */
static inline void pl_conv_weight_strides(pl_mdesc *w, int64_t o, int64_t i)
{
    const int64_t by_o = o * w->dim[0], by_i = i * w->dim[1];
    w->stride[0] = o;
    w->stride[1] = i;
    for (int k = 2; k < w->rank; k++) w->stride[k] = by_o > by_i ? by_o : by_i;
}

pl_status pl_conv_tensors_init(pl_conv_tensors *t, const pl_conv *c);
/* Adds the steps of oneDNN's own convolution: the reorder of weights into the kernel's layout, the
 * kernel, the reorder of a weight gradient out of it. */
pl_status pl_conv_direct_add(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                             const pl_conv_tensors *t, const pl_conv_io *io);

/* dnn_conv_few.c: for each algorithm, whether it can compute the convolution, whether it is faster,
 * and the steps. */
bool pl_conv_thin_can(pl_dnn_conv_kind kind, const pl_conv *c);
bool pl_conv_thin_pays(pl_dnn_conv_kind kind, const pl_conv *c);
pl_status pl_conv_thin_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                             const pl_conv_tensors *t);
bool pl_conv_is_narrow(pl_dnn_conv_kind kind, const pl_conv *c);
pl_status pl_conv_narrow_build(pl_dnn *d, pl_dnn_conv_kind kind, const pl_conv *c,
                               const pl_conv_tensors *t);

#endif
