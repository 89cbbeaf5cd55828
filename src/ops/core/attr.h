/* attr.h - the attribute structs of the ops: what a call's attr points to.
 *
 * The struct of an op that shares it with no other, pl_<op>_attr, is generated from its row in
 * ir/ops.def. The others are below, each under the file in ops/ that defines its table, its rule
 * and its meaning. Device kernels read both kinds here. The structs of ops with a sliding window
 * are in window.h.
 *
 * Valid C++ too: device code includes it.
 */
#ifndef PL_OPS_ATTR_H
#define PL_OPS_ATTR_H

#include "ir/op.h"

#define PL_OP_ATTR(name, ...)                                                                      \
 typedef struct pl_##name##_attr {                                                                 \
  __VA_ARGS__                                                                                      \
 } pl_##name##_attr;
#include "ir/ops.def"

/* ---- endpoints.c --------------------------------------------------------------------------- */
typedef struct pl_source_attr {
    const char *name;
    pl_dtype dtype;
    pl_dims shape;
} pl_source_attr;

/* The attributes include the slot's type, so that infer needs no store. */
typedef struct pl_slot_attr {
    int32_t slot;
    pl_dtype dtype;
    pl_dims shape;
} pl_slot_attr;

typedef struct pl_output_attr {
    const char *name;
} pl_output_attr;

/* ---- elementwise.c ------------------------------------------------------------------------- */
typedef struct pl_leaky_attr {
    double slope;
} pl_leaky_attr;

typedef struct pl_cast_attr {
    pl_dtype to;
} pl_cast_attr;

/* ---- fill.c -------------------------------------------------------------------------------- */
typedef struct pl_fill_attr {
    pl_dtype dtype;
    pl_dims shape;
    double value;  /* fill */
    int64_t axis;  /* iota */
    pl_dims steps; /* iota: step of each coordinate; empty: 1 along the axis, else 0 */
} pl_fill_attr;

/* ---- sum_squares.c ------------------------------------------------------------------------ */
enum { PL_SQUARES_CHUNK = 16384 }; /* elements of a chunk */
static inline int64_t pl_squares_chunks(int64_t elems)
{
    return elems > 0 ? (elems + PL_SQUARES_CHUNK - 1) / PL_SQUARES_CHUNK : 1;
}

/* ---- matmul.c ------------------------------------------------------------------------------ */
typedef struct pl_matmul_attr {
    bool ta, tb;
} pl_matmul_attr;

/* ---- reduce.c ------------------------------------------------------------------------------ */
typedef struct pl_reduce_attr {
    pl_dims axes;
    bool keep;
} pl_reduce_attr;

/* ---- reshape.c ----------------------------------------------------------------------------- */
typedef struct pl_stop_attr {
    /* passes remove the node, so that equal operations after it and after its input are merged */
    bool shared;
} pl_stop_attr;

/* ---- resize.c ------------------------------------------------------------------------------ */
typedef struct pl_resize_attr {
    pl_dims size; /* spatial size of the result: of y for resize, of dx for resize_bwd */
    int32_t mode; /* pl_resize_mode */
    bool align_corners;
} pl_resize_attr;

/* ---- pool.c -------------------------------------------------------------------------------- */
typedef struct pl_adaptive_attr {
    pl_dims size; /* spatial size of the result: of y, or of dx in the adjoint */
} pl_adaptive_attr;

/* ---- take.c -------------------------------------------------------------------------------- */
typedef struct pl_scatter_attr {
    int64_t rows;
} pl_scatter_attr;

/* ---- take_along.c -------------------------------------------------------------------------- */
typedef struct pl_along_attr {
    int64_t axis;
} pl_along_attr;

typedef struct pl_put_attr {
    int64_t axis, size;
} pl_put_attr;

/* ---- random.c ------------------------------------------------------------------------------ */
typedef struct pl_random_attr {
    pl_dtype dtype;
    pl_dims shape;
    int64_t stream;
} pl_random_attr;

typedef struct pl_order_attr {
    int64_t n, stream;
} pl_order_attr;

/* ---- bezier.c ------------------------------------------------------------------------------ */
typedef struct pl_bezier_attr {
    bool silu_points;
} pl_bezier_attr;

/* ---- optim.c ------------------------------------------------------------------------------- */
typedef struct pl_optim_attr {
    double beta1, beta2, eps, weight_decay, momentum, dampening, alpha;
    bool decoupled, nesterov;
    int64_t stream; /* with a key: the first of two streams of random bits */
} pl_optim_attr;

/* ---- collective.c -------------------------------------------------------------------------- */
typedef struct pl_collective_attr {
    int64_t ranks, root; /* root: broadcast_from */
    const char *name;    /* name of the exchange, for messages; nodes with different names are
                          * different nodes */
} pl_collective_attr;

/* ---- attention.c --------------------------------------------------------------------------- */
typedef struct pl_attention_attr {
    double scale; /* 0: 1/sqrt(D) */
    bool causal;
} pl_attention_attr;

/* The parts of a row begin at q_at, k_at and v_at; `step` elements lie between two heads. Begins
 * like pl_attention_attr. */
typedef struct pl_attention_rows_attr {
    double scale;
    bool causal;
    int64_t heads, q_at, k_at, v_at, step;
} pl_attention_rows_attr;

/* ---- cross_entropy.c ----------------------------------------------------------------------- */
typedef struct pl_cross_entropy_attr {
    double smoothing, z_loss;
    int64_t ignore; /* the label of rows that do not count, where ignores */
    bool ignores;
    bool weighted; /* the last operand is the weights of the classes */
    int64_t
        classes; /* columns of the logits that count; the rest is not read, and 0 in dx; 0: all */
} pl_cross_entropy_attr;

#endif
