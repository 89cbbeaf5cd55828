/* conv_graph.h - a convolution and its tail in cuDNN's graph API: descriptors of tensors and
 * operations. conv_plan.c chooses the engine. */
#ifndef PL_CUDA_CONV_GRAPH_H
#define PL_CUDA_CONV_GRAPH_H

#include "cuda/conv/conv.h"
#include "cuda/device/dnn_graph.h"

/* ---- graphs --------------------------------------------------------------------------------- */
/* Tensor ids, used when pointers are bound. */
enum {
    PL_CONV_UID_X = 1,
    PL_CONV_UID_W,
    PL_CONV_UID_Y,
    PL_CONV_UID_BIAS,
    PL_CONV_UID_ADD,
    PL_CONV_UID_MID
};

enum { PL_CONV_STEPS = 3 }; /* bias, addition, function */
typedef struct pl_conv_graph {
    pl_dnn_desc x, w, y, bias, other, conv, op, graph;
    pl_dnn_desc mid[PL_CONV_STEPS]; /* results of the convolution and of all steps but the last */
    pl_dnn_desc how[PL_CONV_STEPS], step[PL_CONV_STEPS];
    int n_steps;
} pl_conv_graph;

/* Builds the graph with as much of the tail as the level says. *g must be zeroed before; release it
 * also on failure. */
pl_status pl_conv_graph_make(const pl_conv_shape *c, pl_conv_level level,
                             pl_conv_graph *g) PL_MUST_USE;
void pl_conv_graph_release(pl_conv_graph *g);

#endif
