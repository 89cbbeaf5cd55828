/* plimsoll_onnx.h - ONNX models as graphs that train: read a file, build it, read its weights.
 *
 *     pl_onnx *model;
 *     PL_TRY(pl_onnx_open("resnet50.onnx", &model));
 *     pl_onnx_opts o = {.batch = 64};
 *     pl_onnx_value image = {.name = "input", .value = x, .channels_last = true};
 *     pl_onnx_value logits = {.name = "output"};
 *     PL_TRY(pl_onnx_build(model, m, &o, 1, &image, 1, &logits));
 *
 * An initializer becomes a slot of the graph's store, with its name in the file. Convolution
 * weights have the engine's layout (OHWI); pl_slot.layout has the layout in model files.
 * pl_onnx_slot_read reads the initial values of slots from the file.
 *
 * Values are channels-first in an ONNX file and channels-last here. The importer keeps the order of
 * dimensions of every value beside the value, so Transpose nodes and the change to channels-last
 * cost nothing if the following ops can work in the current order.
 *
 * A model is read once; any number of graphs are built from it, also over one store. Functions of
 * one model must not run at the same time.
 */
#ifndef PLIMSOLL_ONNX_H
#define PLIMSOLL_ONNX_H

#include "plimsoll_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_onnx pl_onnx;

/* Returns the reason why this program cannot read ONNX files (libprotobuf-c is missing); NULL: it
 * can. */
PL_API const char *pl_onnx_missing(void);
/* Reads the file without the elements of large tensors. External data must lie in the folder of the
 * file. PL_ERR_FILE: the file is damaged, or not an ONNX file, or too deeply nested. */
PL_API pl_status pl_onnx_open(const char *path, pl_onnx **out) PL_MUST_USE;
PL_API void pl_onnx_free(pl_onnx *o);

/* ---- contents of the file ----------------------------------------------------------------- */
/* An input or output of the graph. Inputs that are also initializers are not listed. */
typedef struct pl_onnx_port {
    const char *name;
    const char *type_name;    /* of its elements, in ONNX's words: "float", "int64" */
    pl_dtype dtype;           /* here; i8, u8, i16, u16: i32; u32, u64: i64 */
    bool supported;           /* false: the engine has no such elements (texts, complex numbers) */
    int rank;                 /* -1: unknown (outputs only) */
    int64_t dim[PL_MAX_RANK]; /* -1: dynamic */
    const char *dim_name[PL_MAX_RANK]; /* of dynamic dimensions; NULL: none */
} pl_onnx_port;
PL_API int pl_onnx_input_count(const pl_onnx *o);
PL_API const pl_onnx_port *pl_onnx_input(const pl_onnx *o, int i);
PL_API int pl_onnx_output_count(const pl_onnx *o);
PL_API const pl_onnx_port *pl_onnx_output(const pl_onnx *o, int i);

typedef struct pl_onnx_initializer {
    const char *name;
    pl_type type; /* in the order of dimensions of the file */
    /* trained unless a pattern excludes it: a float tensor that a layer uses as a weight or that
     * has the name of a parameter */
    bool weight;
} pl_onnx_initializer;
PL_API int pl_onnx_initializer_count(const pl_onnx *o);
PL_API const pl_onnx_initializer *pl_onnx_initializer_get(const pl_onnx *o, int i);
PL_API int pl_onnx_node_count(const pl_onnx *o);       /* of the main graph */
PL_API const char *pl_onnx_producer(const pl_onnx *o); /* "pytorch 2.5.1"; "": unknown */
/* The value of a key of the file's metadata (metadata_props); NULL: there is none. */
PL_API const char *pl_onnx_meta(const pl_onnx *o, const char *key);

/* ---- building ---------------------------------------------------------------------------- */
/* The size of a dynamic dimension, by its name. */
typedef struct pl_onnx_dim {
    const char *name;
    int64_t size;
} pl_onnx_dim;
/* Dropout in training behind a node: a pattern (pl_nn_match) of names of nodes or of their outputs,
 * and a probability. */
typedef struct pl_onnx_dropout {
    const char *pattern;
    double p;
} pl_onnx_dropout;

/* An input with a fixed value, by its name: shapes may depend on it, and it is not an input of the
 * program. data is row-major, of type.dtype; it is converted to the element type of the input. */
enum { PL_ONNX_CONSTANT_ELEMS = 1 << 22 }; /* most elements of such a value */
typedef struct pl_onnx_constant {
    const char *name;
    pl_type type;
    const void *data;
} pl_onnx_constant;

typedef enum pl_onnx_init {
    PL_ONNX_INIT_FILE,   /* initial values of the file */
    PL_ONNX_INIT_PYTORCH /* drawn, as PyTorch does for the layer that reads the weight */
} pl_onnx_init;

typedef struct pl_onnx_opts {
    int64_t batch; /* size of the first dimension of inputs where it is dynamic; 0: none */
    const pl_onnx_dim *dims; /* ends with {NULL}; NULL: none */
    /* Patterns (pl_nn_match) of initializers. trainable NULL: all weights. frozen NULL: none. */
    const char *trainable, *frozen;
    const pl_onnx_dropout *dropout;    /* ends with {NULL}; NULL: none */
    const pl_onnx_constant *constants; /* ends with {NULL}; NULL: none */
    pl_onnx_init init;
    bool plain; /* recognise no patterns (attention, norms): for comparison */
} pl_onnx_opts;

/* An input or output of pl_onnx_build. */
typedef struct pl_onnx_value {
    const char *name;
    pl_val value;
    bool channels_last; /* value is [N, s.., C] where the file has [N, C, s..] */
} pl_onnx_value;

/* The type of input `name` with its dynamic dimensions bound. PL_ERR_CONFIG: one is not bound; the
 * message names the dimension and the key (dims: {NAME: SIZE}). */
PL_API pl_status pl_onnx_input_type(const pl_onnx *o, const char *name, const pl_onnx_opts *opts,
                                    pl_type *out) PL_MUST_USE;
/* Adds the model's nodes to m's graph. m->training selects the training form of BatchNorm and
 * Dropout. Inputs that are not listed in `in` become inputs of the graph (pl_input) with their
 * names. Sets out[].value; with n_out 0 all nodes are built, otherwise the nodes that the named
 * outputs need. An output may be any value of the main graph. Errors name the node;
 * PL_ERR_UNSUPPORTED: an op is missing, or shapes depend on data. */
PL_API pl_status pl_onnx_build(pl_onnx *o, pl_nn *m, const pl_onnx_opts *opts, int n_in,
                               const pl_onnx_value *in, int n_out, pl_onnx_value *out) PL_MUST_USE;

/* Writes the initial value of a slot that pl_onnx_build made: row-major, in the type and layout of
 * the slot (pl_slot.type). *known false: the slot is not of this model, or gets its value from
 * pl_slot.init (PL_ONNX_INIT_PYTORCH); nothing is written. */
PL_API pl_status pl_onnx_slot_read(pl_onnx *o, const pl_slot *slot, void *to,
                                   bool *known) PL_MUST_USE;

/* ---- writing ------------------------------------------------------------------------------ */
/* Writes the model to `path` for inference: the same file with the tensors of `weights` (a model
 * file: safetensors or PyTorch's, in the layout of files) in place of the initializers of the same
 * names. BatchNormalization and Dropout are switched to evaluation. The file appears complete or
 * not at all. Sets *tensors, unless NULL, to the number of replaced initializers. */
PL_API pl_status pl_onnx_write(pl_onnx *o, const char *weights, const char *path,
                               int *tensors) PL_MUST_USE;

/* ---- ops ---------------------------------------------------------------------------------- */
/* A row of the table of ops (docs/ONNX.md). */
typedef struct pl_onnx_op {
    const char *name, *domain, *about;
} pl_onnx_op;
/* Sets *out to row i of the table; returns false if i is past the end. */
PL_API bool pl_onnx_op_get(int i, pl_onnx_op *out);

#ifdef __cplusplus
}
#endif
#endif
