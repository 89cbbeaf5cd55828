/* conv_graph.c - convolutions described to cuDNN's graph API.
 *
 * Tensors are NCHW to cuDNN, with strides that say channels last: dims [N, C, s..], channel stride
 * 1. Filters are [O, I, k..] in the same way. Groups follow from the sizes: x has `groups` times
 * the channels of w.
 *
 *   x ─┐
 *      conv ── y            without bias, and for the two gradients
 *   w ─┘
 *      conv ── (f32, virtual) ── add ── y        with bias
 *                      bias ─────┘
 *      conv ── add ── add ── act ── y            with a tail (ops/net/tail.h); f32, virtual between
 */
#include "cuda/conv/conv_graph.h"

/* Describes [n, c, size..] whose bytes are [n, size.., c]. */
static pl_status tensor(int64_t uid, cudnnDataType_t type, int spatial, int64_t n, int64_t c,
                        const int64_t *size, bool is_virtual, pl_dnn_desc *out)
{
    int64_t dim[5] = {n, c}, stride[5], align = 16;
    int rank = spatial + 2;
    for (int i = 0; i < spatial; i++) dim[2 + i] = size[3 - spatial + i];
    stride[1] = 1;
    stride[rank - 1] = c;
    for (int i = rank - 2; i >= 2; i--) stride[i] = stride[i + 1] * dim[i + 1];
    stride[0] = stride[2] * dim[2];
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
    if (is_virtual) {
        bool yes = true;
        PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes));
    }
    return pl_dnn_finalize(*out, "a tensor descriptor");
}

/* ---- the graph of one problem ---------------------------------------------------------------- */
void pl_conv_graph_release(pl_conv_graph *g)
{
    pl_dnn_drop(&g->graph);
    for (int i = 0; i < PL_CONV_STEPS; i++) {
        pl_dnn_drop(&g->step[i]);
        pl_dnn_drop(&g->how[i]);
        pl_dnn_drop(&g->mid[i]);
    }
    pl_dnn_drop(&g->op);
    pl_dnn_drop(&g->conv);
    pl_dnn_drop(&g->other);
    pl_dnn_drop(&g->bias);
    pl_dnn_drop(&g->y);
    pl_dnn_drop(&g->w);
    pl_dnn_drop(&g->x);
}

static pl_status conv_desc(const pl_conv_shape *c, pl_dnn_desc *out)
{
    cudnnDataType_t compute = c->dtype == PL_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t n = c->spatial, from = 3 - n;
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    PL_TRY(
        pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n,
                      c->pad_lo + from));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n,
                      c->pad_hi + from));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n,
                      c->dilation + from));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n,
                      c->stride + from));
    return pl_dnn_finalize(*out, "a convolution descriptor");
}

/* Attribute names of the three operations. */
typedef struct names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t alpha, beta, conv, w, x, y;
} names;
static const names names_of[] = {
    [PL_CONV_Y] = {.op = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                   .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                   .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                   .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                   .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                   .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    [PL_CONV_DX] = {.op = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                    .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                    .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    [PL_CONV_DW] = {.op = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                    .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                    .conv = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

static pl_status conv_op(const pl_conv_shape *c, pl_conv_graph *g)
{
    const names *m = &names_of[c->kind];
    bool wide = c->dtype == PL_F64;
    const double one64 = 1, zero64 = 0;
    const float one = 1, zero = 0;
    cudnnBackendAttributeType_t t = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    PL_TRY(pl_dnn_make(m->op, &g->op));
    PL_TRY(pl_dnn_set_desc(g->op, m->conv, g->conv));
    bool dx = c->kind == PL_CONV_DX;
    PL_TRY(pl_dnn_set_desc(g->op, m->x, dx && g->mid[0] ? g->mid[0] : g->x));
    PL_TRY(pl_dnn_set_desc(g->op, m->w, g->w));
    PL_TRY(pl_dnn_set_desc(g->op, m->y, !dx && g->mid[0] ? g->mid[0] : g->y));
    PL_TRY(pl_dnn_set(g->op, m->alpha, t, 1, wide ? (const void *)&one64 : &one));
    PL_TRY(pl_dnn_set(g->op, m->beta, t, 1, wide ? (const void *)&zero64 : &zero));
    return pl_dnn_finalize(g->op, "a convolution");
}

/* Describes a tensor with the result's dims. */
static pl_status like_result(const pl_conv_shape *c, int64_t uid, bool is_virtual, pl_dnn_desc *out)
{
    bool dx = c->kind == PL_CONV_DX;
    return tensor(uid, is_virtual ? CUDNN_DATA_FLOAT : pl_dnn_type((pl_dtype)c->dtype), c->spatial,
                  c->n, dx ? c->ic : c->oc, dx ? c->in : c->out, is_virtual, out);
}

static cudnnPointwiseMode_t mode_of(int32_t act)
{
    static const cudnnPointwiseMode_t mode[PL_N_ACTS] = {
        [PL_ACT_RELU] = CUDNN_POINTWISE_RELU_FWD,
        [PL_ACT_LEAKY_RELU] = CUDNN_POINTWISE_RELU_FWD,
        [PL_ACT_SILU] = CUDNN_POINTWISE_SWISH_FWD,
        [PL_ACT_GELU] = CUDNN_POINTWISE_GELU_FWD,
        [PL_ACT_GELU_TANH] = CUDNN_POINTWISE_GELU_APPROX_TANH_FWD,
        [PL_ACT_SIGMOID] = CUDNN_POINTWISE_SIGMOID_FWD,
        [PL_ACT_TANH] = CUDNN_POINTWISE_TANH_FWD,
    };
    return mode[act];
}

static pl_status pointwise(const pl_conv_shape *c, cudnnPointwiseMode_t mode, pl_dnn_desc *out)
{
    cudnnDataType_t prec = CUDNN_DATA_FLOAT;
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, out));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &prec));
    if (mode == CUDNN_POINTWISE_RELU_FWD && c->slope != 0)
        PL_TRY(pl_dnn_set(*out, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1,
                          &c->slope));
    return pl_dnn_finalize(*out, "a function of elements");
}

/* Adds one step of the tail: from mid[i] to mid[i + 1], or to the result. b: the second operand or
 * NULL. */
static pl_status step(const pl_conv_shape *c, pl_conv_graph *g, cudnnPointwiseMode_t mode,
                      pl_dnn_desc b)
{
    int i = g->n_steps++;
    pl_dnn_desc y = i + 1 < PL_CONV_STEPS && g->mid[i + 1] ? g->mid[i + 1]
                    : c->kind == PL_CONV_DX                ? g->x
                                                           : g->y;
    PL_TRY(pointwise(c, mode, &g->how[i]));
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &g->step[i]));
    PL_TRY(pl_dnn_set_desc(g->step[i], CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, g->how[i]));
    PL_TRY(pl_dnn_set_desc(g->step[i], CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->mid[i]));
    if (b) PL_TRY(pl_dnn_set_desc(g->step[i], CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    PL_TRY(pl_dnn_set_desc(g->step[i], CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    return pl_dnn_finalize(g->step[i], "a step behind a convolution");
}

static pl_status steps(const pl_conv_shape *c, pl_conv_level level, pl_conv_graph *g)
{
    static const int64_t ones[3] = {1, 1, 1};
    if (c->bias && level >= PL_CONV_WITH_BIAS) {
        PL_TRY(tensor(PL_CONV_UID_BIAS, pl_dnn_type((pl_dtype)c->dtype), c->spatial, 1, c->oc, ones,
                      false, &g->bias));
        PL_TRY(step(c, g, CUDNN_POINTWISE_ADD, g->bias));
    }
    if (c->add && level == PL_CONV_WHOLE) {
        PL_TRY(like_result(c, PL_CONV_UID_ADD, false, &g->other));
        PL_TRY(step(c, g, CUDNN_POINTWISE_ADD, g->other));
    }
    if (c->act && level == PL_CONV_WHOLE) PL_TRY(step(c, g, mode_of(c->act), NULL));
    return PL_OK;
}

static int count_steps(const pl_conv_shape *c, pl_conv_level level)
{
    bool whole = level == PL_CONV_WHOLE;
    return (c->bias && level >= PL_CONV_WITH_BIAS) + (c->add && whole) + (c->act && whole);
}

pl_status pl_conv_graph_make(const pl_conv_shape *c, pl_conv_level level, pl_conv_graph *g)
{
    cudnnDataType_t t = pl_dnn_type((pl_dtype)c->dtype);
    cudnnHandle_t h;
    PL_TRY(pl_cuda_dnn(&h));
    PL_TRY(tensor(PL_CONV_UID_X, t, c->spatial, c->n, c->ic, c->in, false, &g->x));
    PL_TRY(tensor(PL_CONV_UID_W, t, c->spatial, c->oc, c->ic / c->groups, c->kernel, false, &g->w));
    PL_TRY(tensor(PL_CONV_UID_Y, t, c->spatial, c->n, c->oc, c->out, false, &g->y));
    for (int i = 0; i < count_steps(c, level); i++)
        PL_TRY(like_result(c, PL_CONV_UID_MID + i, true, &g->mid[i]));
    PL_TRY(conv_desc(c, &g->conv));
    PL_TRY(conv_op(c, g));
    PL_TRY(steps(c, level, g));
    pl_dnn_desc ops[1 + PL_CONV_STEPS] = {g->op, g->step[0], g->step[1], g->step[2]};
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    PL_TRY(pl_dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      1 + g->n_steps, ops));
    PL_TRY(pl_dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
    return pl_dnn_finalize(g->graph, "a graph of operations");
}
