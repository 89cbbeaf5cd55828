/* write_graph.h - a graph of the engine as an ONNX file (`plimsoll export --as onnx`).
 *
 * The file computes the graph's outputs, in the types of the graph: its inputs and outputs have the
 * names and shapes of the graph's (pictures are channels-last), slots are initializers with the
 * names, shapes and order of elements of model files. Draws of random numbers become inputs named
 * draw.0, draw.1, ...: ONNX Runtime draws other numbers than the engine.
 */
#ifndef PL_ONNX_WRITE_GRAPH_H
#define PL_ONNX_WRITE_GRAPH_H

#include "plimsoll.h"

typedef struct pl_ow_source {
    void *ctx;
    pl_type (*type)(void *ctx, int slot); /* type of a slot in model files */
    /* Writes the elements of a slot, in the order of model files. */
    pl_status (*read)(void *ctx, int slot, void *to);
    /* Calls put for each pair that goes into the file's metadata; NULL: none. */
    pl_status (*facts)(void *ctx, pl_status (*put)(void *to, const char *key, const char *text),
                       void *to);
} pl_ow_source;

typedef struct pl_ow_info {
    int nodes, tensors, draws;
    uint64_t bytes; /* of tensors */
    bool external;  /* the tensors lie in a second file, PATH.data */
} pl_ow_info;

/* Writes the graph. inline_bytes: most bytes of a file with its tensors inside; beyond them the
 * tensors go into a second file; 0: 2 GiB, the most that ONNX allows. PL_ERR_UNSUPPORTED: an op
 * cannot be written; the message names the op and its node. Files appear whole or not at all. */
pl_status pl_ow_graph(const pl_graph *g, const pl_ow_source *source, const char *path,
                      uint64_t inline_bytes, pl_ow_info *info) PL_MUST_USE;

/* Why an op has no writer; NULL: it has one. For tests. */
const char *pl_ow_lacks(const char *op);

#endif
