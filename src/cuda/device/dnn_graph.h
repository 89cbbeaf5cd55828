/* dnn_graph.h - graphs of operations for cuDNN's backend API, and their plans.
 *
 * Descriptors: make, set attributes, finalize, drop. A pl_dnn_graph collects the operations of one
 * graph and owns every descriptor that it makes. Building is sticky: the first error stays in rc,
 * later calls do nothing, and pl_dnn_graph_finish reports it.
 *
 * A plan is an engine of cuDNN for a graph. Plans are kept on disk as the text that cuDNN makes of
 * them, compiled code included, because heuristics and engines that compile take up to a second.
 */
#ifndef PL_CUDA_DNN_GRAPH_H
#define PL_CUDA_DNN_GRAPH_H

#include "cuda/codegen/codegen_cache.h"
#include "cuda/device/lib.h"

/* ---- descriptors ---------------------------------------------------------------------------- */
typedef cudnnBackendDescriptor_t pl_dnn_desc;
void pl_dnn_drop(pl_dnn_desc *d); /* NULL afterwards */
pl_status pl_dnn_make(cudnnBackendDescriptorType_t type, pl_dnn_desc *out) PL_MUST_USE;
pl_status pl_dnn_set(pl_dnn_desc d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *v) PL_MUST_USE;
pl_status pl_dnn_set_desc(pl_dnn_desc d, cudnnBackendAttributeName_t name,
                          pl_dnn_desc v) PL_MUST_USE;
/* what: names the descriptor in messages. */
pl_status pl_dnn_finalize(pl_dnn_desc d, const char *what) PL_MUST_USE;
cudnnDataType_t pl_dnn_type(pl_dtype dtype);

/* ---- graphs --------------------------------------------------------------------------------- */
enum { PL_DNN_DESCS = 96, PL_DNN_OPS = 24 };
typedef struct pl_dnn_graph {
    pl_dnn_desc made[PL_DNN_DESCS], op[PL_DNN_OPS], graph;
    int n_made, n_ops;
    int64_t virtual_uid;
    pl_status rc;
} pl_dnn_graph;

/* A tensor of rank 4. Pointers are bound to tensors by uid; uid 0: the tensor is virtual, a value
 * inside the graph that has no memory. */
typedef struct pl_dnn_tensor {
    int64_t uid, dim[4], stride[4];
    cudnnDataType_t type;
} pl_dnn_tensor;

/* g: zeroed before the first call. Every descriptor belongs to the graph. */
pl_dnn_desc pl_dnn_tensor_of(pl_dnn_graph *g, const pl_dnn_tensor *t);
/* A number of f32 that is bound as a pointer to host memory. */
pl_dnn_desc pl_dnn_number(pl_dnn_graph *g, int64_t uid);
/* y = mode(x, b), or for a selection t ? x : b; b and t may be NULL. Computed in f32. */
void pl_dnn_pointwise(pl_dnn_graph *g, cudnnPointwiseMode_t mode, pl_dnn_desc x, pl_dnn_desc b,
                      pl_dnn_desc t, pl_dnn_desc y);
/* y = row >= column, of indices along the last two axes of x. index: two virtual tensors of i32. */
void pl_dnn_lower_triangle(pl_dnn_graph *g, pl_dnn_desc x, const pl_dnn_desc index[2],
                           pl_dnn_desc y);
/* y = sum or maximum of x over the axes that y does not have. */
void pl_dnn_reduce(pl_dnn_graph *g, cudnnReduceTensorOp_t how, pl_dnn_desc x, pl_dnn_desc y);
/* y = a b, summed in f32. */
void pl_dnn_product(pl_dnn_graph *g, pl_dnn_desc a, pl_dnn_desc b, pl_dnn_desc y);
/* y is x with other strides. */
void pl_dnn_reshape(pl_dnn_graph *g, pl_dnn_desc x, pl_dnn_desc y);
pl_status pl_dnn_graph_finish(pl_dnn_graph *g) PL_MUST_USE;
void pl_dnn_graph_release(pl_dnn_graph *g);

/* ---- plans ---------------------------------------------------------------------------------- */
typedef struct pl_dnn_plan {
    pl_dnn_desc plan; /* NULL: cuDNN has no engine for the graph */
    size_t work_bytes;
    int32_t tag;     /* a number of the caller's, saved with the plan */
    char engine[64]; /* for people */
} pl_dnn_plan;

/* The first deterministic engine of cuDNN's heuristics. plan stays NULL where there is none. */
pl_status pl_dnn_plan_first(const pl_dnn_graph *g, pl_dnn_plan *p) PL_MUST_USE;
/* Key of a plan on disk: the bytes of a problem, the library, the GPU model, the use of TF32. */
pl_code_key pl_dnn_plan_key(const void *problem, size_t bytes);
/* Reads a plan from disk. false: there is none, or the library does not accept the plan. */
bool pl_dnn_plan_load(pl_code_key key, pl_dnn_plan *p);
/* Best effort. */
void pl_dnn_plan_save(pl_code_key key, const pl_dnn_plan *p);
/* Pointers for n tensors, and scratch: *out is dropped with pl_dnn_drop. */
pl_status pl_dnn_bind(int64_t n, const int64_t *uid, const void *const *at, void *work,
                      pl_dnn_desc *out) PL_MUST_USE;

#endif
