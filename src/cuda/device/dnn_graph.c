/* dnn_graph.c - descriptors of cuDNN's backend API, and graphs of operations. */
#include "cuda/device/dnn_graph.h"

#include <stdio.h>

/* ---- descriptors --------------------------------------------------------------------------- */
void pl_dnn_drop(pl_dnn_desc *d)
{
    if (*d) cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

pl_status pl_dnn_make(cudnnBackendDescriptorType_t type, pl_dnn_desc *out)
{
    PL_DNN(cudnnBackendCreateDescriptor(type, out));
    return PL_OK;
}

pl_status pl_dnn_set(pl_dnn_desc d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *v)
{
    cudnnStatus_t rc = cudnnBackendSetAttribute(d, name, type, n, v);
    if (rc == CUDNN_STATUS_SUCCESS) return PL_OK;
    char what[64];
    snprintf(what, sizeof what, "cudnnBackendSetAttribute(%d)", (int)name);
    return pl_cuda_dnn_failed(rc, what, __FILE__, __LINE__);
}

pl_status pl_dnn_set_desc(pl_dnn_desc d, cudnnBackendAttributeName_t name, pl_dnn_desc v)
{
    return pl_dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

pl_status pl_dnn_finalize(pl_dnn_desc d, const char *what)
{
    cudnnStatus_t rc = cudnnBackendFinalize(d);
    if (rc == CUDNN_STATUS_SUCCESS) return PL_OK;
    char text[96];
    snprintf(text, sizeof text, "cudnnBackendFinalize of %s", what);
    return pl_cuda_dnn_failed(rc, text, __FILE__, __LINE__);
}

cudnnDataType_t pl_dnn_type(pl_dtype dtype)
{
    return dtype == PL_F64    ? CUDNN_DATA_DOUBLE
           : dtype == PL_F16  ? CUDNN_DATA_HALF
           : dtype == PL_BF16 ? CUDNN_DATA_BFLOAT16
                              : CUDNN_DATA_FLOAT;
}

/* ---- graphs --------------------------------------------------------------------------------- */
static bool stopped(const pl_dnn_graph *g)
{
    return g->rc != PL_OK;
}

/* NULL once building has stopped. */
static pl_dnn_desc make(pl_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    if (stopped(g)) return NULL;
    if (g->n_made == PL_DNN_DESCS)
        PL_BUG("a cuDNN graph has more descriptors than %d", PL_DNN_DESCS);
    g->rc = pl_dnn_make(type, &g->made[g->n_made]);
    return stopped(g) ? NULL : g->made[g->n_made++];
}

static void set(pl_dnn_graph *g, pl_dnn_desc d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *v)
{
    if (!stopped(g)) g->rc = pl_dnn_set(d, name, type, n, v);
}

static void set_desc(pl_dnn_graph *g, pl_dnn_desc d, cudnnBackendAttributeName_t name,
                     pl_dnn_desc v)
{
    if (!stopped(g)) g->rc = pl_dnn_set_desc(d, name, v);
}

static void finalize(pl_dnn_graph *g, pl_dnn_desc d, const char *what)
{
    if (!stopped(g)) g->rc = pl_dnn_finalize(d, what);
}

static void add_op(pl_dnn_graph *g, pl_dnn_desc op, const char *what)
{
    finalize(g, op, what);
    if (stopped(g)) return;
    if (g->n_ops == PL_DNN_OPS) PL_BUG("a cuDNN graph has more operations than %d", PL_DNN_OPS);
    g->op[g->n_ops++] = op;
}

static pl_dnn_desc tensor(pl_dnn_graph *g, const pl_dnn_tensor *t, bool by_value)
{
    enum { VIRTUAL_FROM = 1000 };
    int64_t uid = t->uid ? t->uid : VIRTUAL_FROM + g->virtual_uid++, align = 16;
    const bool yes = true;
    pl_dnn_desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (!t->uid) set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (by_value) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finalize(g, d, "a tensor descriptor");
    return d;
}

pl_dnn_desc pl_dnn_tensor_of(pl_dnn_graph *g, const pl_dnn_tensor *t)
{
    return tensor(g, t, false);
}

pl_dnn_desc pl_dnn_number(pl_dnn_graph *g, int64_t uid)
{
    pl_dnn_tensor t = {uid, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT};
    return tensor(g, &t, true);
}

/* axis: of an index; negative: none. */
static void pointwise(pl_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
                      int64_t axis, pl_dnn_desc x, pl_dnn_desc b, pl_dnn_desc t, pl_dnn_desc y)
{
    pl_dnn_desc how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (axis >= 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, how, "a function of elements");
    pl_dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op, "an elementwise operation");
}

void pl_dnn_pointwise(pl_dnn_graph *g, cudnnPointwiseMode_t mode, pl_dnn_desc x, pl_dnn_desc b,
                      pl_dnn_desc t, pl_dnn_desc y)
{
    pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, t, y);
}

void pl_dnn_lower_triangle(pl_dnn_graph *g, pl_dnn_desc x, const pl_dnn_desc index[2],
                           pl_dnn_desc y)
{
    for (int i = 0; i < 2; i++)
        pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2 + i, x, NULL, NULL, index[i]);
    pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, index[0], index[1], NULL, y);
}

void pl_dnn_reduce(pl_dnn_graph *g, cudnnReduceTensorOp_t how, pl_dnn_desc x, pl_dnn_desc y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    pl_dnn_desc d = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    set(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(g, d, "a reduction descriptor");
    pl_dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(g, op, "a reduction");
}

void pl_dnn_product(pl_dnn_graph *g, pl_dnn_desc a, pl_dnn_desc b, pl_dnn_desc y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    pl_dnn_desc d = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(g, d, "a product descriptor");
    pl_dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    add_op(g, op, "a product");
}

void pl_dnn_reshape(pl_dnn_graph *g, pl_dnn_desc x, pl_dnn_desc y)
{
    pl_dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "a reshape");
}

pl_status pl_dnn_graph_finish(pl_dnn_graph *g)
{
    cudnnHandle_t h;
    PL_TRY(g->rc);
    PL_TRY(pl_cuda_dnn(&h));
    PL_TRY(pl_dnn_make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &g->graph));
    PL_TRY(pl_dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      g->n_ops, g->op));
    PL_TRY(pl_dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h));
    return pl_dnn_finalize(g->graph, "a graph of operations");
}

void pl_dnn_graph_release(pl_dnn_graph *g)
{
    pl_dnn_drop(&g->graph);
    while (g->n_made) pl_dnn_drop(&g->made[--g->n_made]);
}
