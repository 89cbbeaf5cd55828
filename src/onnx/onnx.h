/* onnx.h - shared by the files of onnx/: the opened model, values during a build, calls of ops.
 *
 * A build walks the nodes in their order. Each name of the file refers to a pl_ox_val:
 *   host   elements known while building: shapes, indices, constants
 *   tensor a tensor of the file that nothing has read yet; it becomes host or graph when used
 *   graph  a pl_val, with the order of its dimensions
 *
 * Dimensions have two orders. The file has them in logical order (channels first). The pl_val has
 * them in physical order: physical dimension i is logical dimension perm[i]. Transpose changes perm
 * alone; Conv returns values whose physical order is channels-last; elementwise ops work in the
 * physical order at hand. pl_ox_plain returns a value in logical order, and costs a copy where the
 * orders differ.
 */
#ifndef PL_ONNX_ONNX_H
#define PL_ONNX_ONNX_H

#include "base/str.h"
#include "io/file.h"
#include "onnx/proto.h"
#include "plimsoll_onnx.h"

#define PL_OX_HOST_ELEMS (1 << 22) /* most elements of a value that is computed while building */
#define PL_OX_MAX_CALLS  (1 << 20) /* most nodes of a build, with those of inlined functions */
#define PL_OX_NESTING    32        /* functions and branches inside each other */
#define PL_OX_MAX_SCOPES (1 << 16) /* calls of functions and branches, each with its own names */

/* ---- the model ------------------------------------------------------------------------------- */
typedef struct pl_ox_map pl_ox_map; /* texts to pointers */

/* How layers use an initializer; decides its layout, its training and its fresh initial values. */
typedef enum pl_ox_role {
    PL_OX_ROLE_NONE,
    PL_OX_ROLE_CONV,   /* weight of a convolution */
    PL_OX_ROLE_MATRIX, /* of a product */
    PL_OX_ROLE_TABLE,  /* of an embedding */
    PL_OX_ROLE_BIAS,
    PL_OX_ROLE_SCALE,   /* of a norm: ones at first */
    PL_OX_ROLE_SHIFT,   /* of a norm: zeros at first */
    PL_OX_ROLE_SLOPE,   /* of PReLU: a quarter at first */
    PL_OX_ROLE_OTHER,   /* weights of recurrent layers */
    PL_OX_ROLE_BUFFER,  /* running statistics */
    PL_OX_ROLE_CONSTANT /* a setting of an op that ONNX has as an input: scales, bounds */
} pl_ox_role;

/* The kind of an initializer that the exporter recorded (kinds.c). */
typedef enum pl_ox_kind {
    PL_OX_KIND_UNKNOWN,
    PL_OX_KIND_PARAMETER,
    PL_OX_KIND_BUFFER,
    PL_OX_KIND_TRANSIENT /* a buffer that is not in the state_dict, so not in model files */
} pl_ox_kind;

typedef struct pl_ox_init {
    pl_onnx_initializer about;
    const pl_ox_tensor *tensor; /* NULL: sparse */
    const pl_ox_sparse *sparse;
    pl_ox_role role;
    pl_ox_kind kind;
    double fan_in; /* of the layer that uses it; 0: unknown */
    bool conv;     /* lies channels-last in its slot */
    bool has_padding;
    int64_t padding; /* the row of an embedding whose look-ups have no gradient */
} pl_ox_init;

/* Host elements: whole numbers and truth values as int64_t, others as double. */
typedef struct pl_ox_host {
    int64_t n;
    int64_t *i; /* one of the two */
    double *d;
} pl_ox_host;

/* A slot that a build made, and where its initial value comes from. */
typedef struct pl_ox_slot {
    const char *name;
    const pl_ox_init *init; /* or */
    pl_ox_host host;
    int rank;
    int perm[PL_MAX_RANK];    /* physical dimension i is logical dimension perm[i] */
    int64_t dim[PL_MAX_RANK]; /* logical */
    bool fresh;               /* the slot's pl_init counts */
} pl_ox_slot;

struct pl_onnx {
    pl_arena mem;
    pl_file file;
    char *path, *folder;
    pl_ox_model *proto;
    char *producer;
    pl_onnx_port *in, *out;
    int n_in, n_out;
    pl_ox_init *init;
    int n_init;
    pl_ox_map *inits;     /* name to pl_ox_init */
    pl_ox_map *functions; /* "domain:name:overload" to pl_ox_function */
    pl_ox_map *slots;     /* name to pl_ox_slot */
    pl_ox_node **in_file; /* the nodes of the main graph in the order of the file */
    int64_t opset;        /* of the default domain */
    int recognised;       /* patterns of the last build */
};

/* Opens a model that lies in memory, for tests and fuzzers; data is borrowed. External data lie in
 * `folder`. */
pl_status pl_ox_open_memory(const void *data, size_t len, const char *folder,
                            pl_onnx **out) PL_MUST_USE;

/* ---- checksums (sums.c) ---------------------------------------------------------------------- */
enum { PL_OX_SUM_AT = 4 + sizeof PL_SUM_KEY - 1 + 2 }; /* offset of the digits in a file */
/* Appends the entries: the file's own, which pl_file_writer_sum_at completes, and, where `data` is
 * not NULL, that of the file `data` beside it. They must be the first bytes of the file. */
void pl_ox_put_sums(pl_str *s, const char *data, uint64_t data_sum);
/* Whether the entry of metadata_props in [body, end) is one of this program: its key begins with
 * "plimsoll.". */
bool pl_ox_is_own(const pl_file *f, uint64_t body, uint64_t end);
/* Compares the checksums that the model carries; PL_ERR_FILE: a file is damaged. */
pl_status pl_ox_verify(const pl_onnx *o) PL_MUST_USE;

pl_ox_map *pl_ox_map_new(pl_arena *mem);
void *pl_ox_map_get(const pl_ox_map *m, const char *key);                        /* NULL if none */
pl_status pl_ox_map_put(pl_ox_map *m, const char *key, void *value) PL_MUST_USE; /* key borrowed */

/* Puts the nodes of all graphs and functions in order; sets in_file (node_order.c). */
pl_status pl_ox_sort_nodes(pl_onnx *o) PL_MUST_USE;
/* Sets roles and numbers of inputs of all initializers, and which of them are weights. Requires
 * their kinds. */
pl_status pl_ox_set_roles(pl_onnx *o) PL_MUST_USE;
/* Reads the kinds of all initializers. */
pl_status pl_ox_read_kinds(pl_onnx *o) PL_MUST_USE;

/* ---- elements (elements.c) ------------------------------------------------------------------- */
/* The engine's type of a TensorProto.DataType; false: there is none. */
bool pl_ox_dtype(int32_t data_type, pl_dtype *out);
const char *pl_ox_type_name(int32_t data_type);
/* Whether the type has fewer bits than the engine's types of its kind and results of a cast to it
 * would differ: floats of 8 bits and fewer, whole numbers of 4 bits and fewer. */
bool pl_ox_type_widened(const char *type_name);
/* Whether the type is of whole numbers, and not one of the engine's: int8, uint32, ... */
bool pl_ox_type_narrow(const char *type_name);
/* Type of a tensor, with its dimensions checked. */
pl_status pl_ox_tensor_type_of(const pl_onnx *o, const pl_ox_tensor *t, pl_type *out) PL_MUST_USE;
/* Reads all elements; they lie in mem. */
pl_status pl_ox_tensor_read(const pl_onnx *o, const pl_ox_tensor *t, pl_arena *mem,
                            pl_ox_host *out) PL_MUST_USE;
pl_status pl_ox_init_read(const pl_onnx *o, const pl_ox_init *t, pl_arena *mem,
                          pl_ox_host *out) PL_MUST_USE;

/* A run of elements as raw bytes; *out is buffer, or bytes of the message. */
pl_status pl_ox_raw(const pl_onnx *o, const pl_ox_tensor *t, uint64_t at, uint64_t bytes,
                    uint8_t *buffer, const uint8_t **out) PL_MUST_USE;
/* Calls put for elements [0, n), in order. floats: the elements are `real`, else `whole`. */
typedef void pl_ox_put(void *ctx, int64_t k, int64_t whole, double real);
pl_status pl_ox_each(const pl_onnx *o, const pl_ox_tensor *t, int64_t n, bool floats,
                     pl_ox_put *put, void *ctx) PL_MUST_USE;
/* Bytes of so many elements in a file. */
uint64_t pl_ox_tensor_bytes(const pl_ox_tensor *t, int64_t elems);
/* Reads [at, at + bytes) of a tensor whose elements lie in external data. */
pl_status pl_ox_external_read(const pl_onnx *o, const pl_ox_tensor *t, uint64_t at, uint64_t bytes,
                              void *to) PL_MUST_USE;

/* pl_onnx_write with another limit than the 2 GiB of an ONNX file; beyond `most` bytes the elements
 * go into a second file, path.data. */
pl_status pl_ox_write(pl_onnx *o, const char *weights, const char *path, uint64_t most,
                      int *tensors) PL_MUST_USE;

/* ---- values (values.c) ----------------------------------------------------------------------- */
typedef struct pl_ox_val {
    const char *name;
    pl_dtype dtype;
    int rank;
    int64_t dim[PL_MAX_RANK]; /* logical */
    pl_ox_host host;          /* n 0 and no array: not known; see known */
    bool known;               /* host is filled */
    bool widened;             /* of 8 bits and fewer in the file; the engine has no such type */
    bool narrow;              /* whole numbers of another width, or unsigned, in the file */
    const pl_ox_init *init;   /* a tensor of the file */
    pl_val v;                 /* physical; none: not in the graph yet */
    int perm[PL_MAX_RANK];
    /* The node that made it, for patterns (recognise.c); op NULL: none. */
    const char *op;
    struct pl_ox_val **arg;
    int n_arg;
    int64_t axis;          /* attribute axis; -1: none */
    double number;         /* attribute epsilon; 1e-5: none */
    struct pl_ox_val *one; /* known, with a first dimension of 1: the value repeats it; NULL: no */
    struct pl_ox_val **item; /* of a sequence, which is not a tensor; NULL: a tensor */
    int n_item;
} pl_ox_val;

typedef struct pl_ox_scope pl_ox_scope;
typedef struct pl_ox_build {
    pl_onnx *model;
    pl_nn *m;
    pl_graph *g;
    const pl_onnx_opts *o;
    pl_arena mem;
    pl_ox_scope *scope;
    int64_t opset;
    int depth, calls, scopes;
    int recognised;       /* patterns that became one op */
    uint64_t dropped;     /* bit k: entry k of o->dropout matched a node */
    const char *mistyped; /* an attribute of another type than an op read it as; NULL: none */
    int32_t wanted_type;  /* enum pl_ox_attr_type, of that attribute */
} pl_ox_build;

/* A node that is being built. */
typedef struct pl_ox_call {
    pl_ox_build *b;
    pl_graph *g;
    const pl_ox_node *node;
    const char *op;
    int n_in, n_out;
    pl_ox_val **in; /* NULL: absent */
    pl_ox_val **out;
} pl_ox_call;

/* Returns an error of this node: "Conv node '/conv1/Conv' (output 'x'): ...". */
pl_status pl_ox_fail(const pl_ox_call *c, pl_status code, const char *fmt, ...) PL_PRINTF(3, 4);

/* Whether a wanted output of the model needs output k: exporters name outputs that no node
 * reads. */
bool pl_ox_is_read(const pl_ox_call *c, int k);
int64_t pl_ox_elems(const pl_ox_val *v);
/* Makes a value of the graph; perm NULL: plain. dims come from v's type. */
pl_ox_val *pl_ox_val_new(pl_ox_build *b, pl_val v, const int *perm);
pl_ox_val *pl_ox_host_new(pl_ox_build *b, pl_dtype dtype, int rank, const int64_t *dim);
/* Sets output k. */
pl_status pl_ox_set(pl_ox_call *c, int k, pl_val v, const int *perm) PL_MUST_USE;
pl_status pl_ox_set_val(pl_ox_call *c, int k, pl_ox_val *v) PL_MUST_USE;
/* Puts a value into the graph, in its physical order. */
pl_val pl_ox_any(pl_ox_build *b, pl_ox_val *v);
/* Makes a slot of a tensor of the module that no built node reads, so that model files are whole:
 * predictions of other outputs, and strict=True. */
pl_status pl_ox_keep(pl_ox_build *b, const pl_ox_init *t) PL_MUST_USE;
/* ... in logical order. */
pl_val pl_ox_plain(pl_ox_build *b, pl_ox_val *v);
/* ... in this physical order, seen as rank dimensions (leading ones are added). */
pl_val pl_ox_ordered(pl_ox_build *b, pl_ox_val *v, int rank, const int *perm);
/* ... channels last: [N, s.., C]. */
pl_val pl_ox_last(pl_ox_build *b, pl_ox_val *v);
/* Fills perm with the channels-last order of a rank. */
void pl_ox_last_perm(int rank, int *perm);
/* The physical position of logical dimension `axis`. */
int pl_ox_axis(const pl_ox_val *v, int axis);
/* Reads the elements of a value that is known; false (and no error): it is not. */
bool pl_ox_known(pl_ox_build *b, pl_ox_val *v);

/* ---- arguments of a call (arguments.c) ------------------------------------------------------- */
const pl_ox_attr *pl_ox_attr_find(const pl_ox_call *c, const char *name);
int64_t pl_ox_attr_int(const pl_ox_call *c, const char *name, int64_t fallback);
double pl_ox_attr_float(const pl_ox_call *c, const char *name, double fallback);
/* Whether the text attribute (absent: fallback) is `is`. */
bool pl_ox_attr_is(const pl_ox_call *c, const char *name, const char *fallback, const char *is);
const char *pl_ox_attr_text(const pl_ox_call *c, const char *name, const char *fallback);
const int64_t *pl_ox_attr_ints(const pl_ox_call *c, const char *name, int *n);
/* A text attribute whose word the standard does not have is an error (check_node.c). */
pl_status pl_ox_check_texts(const pl_ox_call *c) PL_MUST_USE;
/* An attribute that was read as another type than it has is an error. */
pl_status pl_ox_check_types(const pl_ox_call *c) PL_MUST_USE;
/* Input k: its presence; whole numbers that must be known; a number that must be known. */
bool pl_ox_has(const pl_ox_call *c, int k);
pl_status pl_ox_in_ints(const pl_ox_call *c, int k, const char *what, const int64_t **p,
                        int *n) PL_MUST_USE;
pl_status pl_ox_in_number(const pl_ox_call *c, int k, const char *what, double fallback,
                          double *out) PL_MUST_USE;
/* Whole numbers that are an input or, in old opsets, an attribute; *p NULL: neither. */
pl_status pl_ox_ints(const pl_ox_call *c, int k, const char *attr, const int64_t **p,
                     int *n) PL_MUST_USE;
/* Sizes of the parts of a Split of `whole` elements: one for each output, which add up. */
pl_status pl_ox_split_check(const pl_ox_call *c, const int64_t *sizes, int n,
                            int64_t whole) PL_MUST_USE;
/* An axis in [0, rank). */
pl_status pl_ox_axis_of(const pl_ox_call *c, int64_t axis, int rank, int *out) PL_MUST_USE;
/* Reads an input, and the axis that a second input names. */
pl_status pl_ox_input_and_axis(pl_ox_call *c, pl_ox_val **v, pl_val *x, int *axis) PL_MUST_USE;

/* ---- ops ------------------------------------------------------------------------------------- */
typedef pl_status pl_ox_emit(pl_ox_call *c);
typedef struct pl_ox_op {
    const char *name, *domain;
    pl_ox_emit *emit;
    const char *about;
} pl_ox_op;
/* NULL: there is none. */
const pl_ox_op *pl_ox_op_find(const char *domain, const char *name);
/* Computes a node whose inputs are known; *done false: it cannot, the graph has to. */
pl_status pl_ox_fold(pl_ox_call *c, bool *done) PL_MUST_USE;
/* Builds the nodes of a subgraph with the names around it visible. Its inputs are `in`; out gets
 * its first n_out outputs. */
pl_status pl_ox_subgraph(pl_ox_call *c, const pl_ox_graph *graph, int n_in, pl_ox_val *const *in,
                         int n_out, pl_ox_val **out) PL_MUST_USE;

#endif
