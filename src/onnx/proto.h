/* proto.h - the messages of an ONNX file, with the fields that the importer uses.
 *
 * An ONNX file is one protobuf message, ModelProto. pl_ox_parse reads the file without its large
 * tensors: bytes of a tensor that are longer than PL_OX_INLINE_BYTES stay in the file, and the
 * message has their offset (raw_at, raw_bytes). libprotobuf-c unpacks the rest by the tables of
 * proto.c, so the structs below have the layout that libprotobuf-c writes: repeated fields are a
 * count and an array; optional numbers have a flag before them; absent texts are NULL.
 */
#ifndef PL_ONNX_PROTO_H
#define PL_ONNX_PROTO_H

#include "base/arena.h"
#include "io/file.h"

/* Limits against hostile files. */
#define PL_OX_INLINE_BYTES 256        /* bytes of a tensor that are kept in its message */
#define PL_OX_MAX_DEPTH    64         /* messages inside messages */
#define PL_OX_MAX_MESSAGES (1 << 21)  /* in one file */
#define PL_OX_MAX_META     (1u << 30) /* bytes of the file without large tensors */

/* Layouts of ProtobufCMessage and ProtobufCBinaryData; proto.c checks both. */
typedef struct pl_ox_base {
    const void *descriptor;
    unsigned n_unknown;
    void *unknown;
} pl_ox_base;
typedef struct pl_ox_bytes {
    size_t len;
    uint8_t *data;
} pl_ox_bytes;

typedef struct pl_ox_pair { /* StringStringEntryProto */
    pl_ox_base base;
    char *key, *value;
} pl_ox_pair;

typedef struct pl_ox_tensor { /* TensorProto */
    pl_ox_base base;
    size_t n_dims;
    int64_t *dims;
    int has_data_type;
    int32_t data_type; /* enum pl_ox_type */
    size_t n_float_data;
    float *float_data;
    size_t n_int32_data;
    int32_t *int32_data;
    size_t n_string_data;
    pl_ox_bytes *string_data;
    size_t n_int64_data;
    int64_t *int64_data;
    char *name;
    int has_raw_data;
    pl_ox_bytes raw_data;
    size_t n_double_data;
    double *double_data;
    size_t n_uint64_data;
    uint64_t *uint64_data;
    size_t n_external_data;
    pl_ox_pair **external_data;
    int has_data_location;
    int32_t data_location; /* 1: external_data */
    int has_raw_at, has_raw_bytes;
    uint64_t raw_at, raw_bytes; /* span of the file that holds the elements, little-endian */
} pl_ox_tensor;

typedef struct pl_ox_sparse { /* SparseTensorProto */
    pl_ox_base base;
    pl_ox_tensor *values, *indices;
    size_t n_dims;
    int64_t *dims;
} pl_ox_sparse;

typedef struct pl_ox_graph pl_ox_graph;
typedef struct pl_ox_attr { /* AttributeProto */
    pl_ox_base base;
    char *name;
    int has_f;
    float f;
    int has_i;
    int64_t i;
    int has_s;
    pl_ox_bytes s;
    pl_ox_tensor *t;
    pl_ox_graph *g;
    size_t n_floats;
    float *floats;
    size_t n_ints;
    int64_t *ints;
    size_t n_strings;
    pl_ox_bytes *strings;
    int has_type;
    int32_t type;
    char *ref_attr_name;
    pl_ox_sparse *sparse;
} pl_ox_attr;

typedef struct pl_ox_dim { /* TensorShapeProto.Dimension */
    pl_ox_base base;
    int has_value;
    int64_t value;
    char *param;
} pl_ox_dim;
typedef struct pl_ox_shape { /* TensorShapeProto */
    pl_ox_base base;
    size_t n_dim;
    pl_ox_dim **dim;
} pl_ox_shape;
typedef struct pl_ox_tensor_type { /* TypeProto.Tensor */
    pl_ox_base base;
    int has_elem_type;
    int32_t elem_type;
    pl_ox_shape *shape;
} pl_ox_tensor_type;
typedef struct pl_ox_type_proto { /* TypeProto */
    pl_ox_base base;
    pl_ox_tensor_type *tensor;
} pl_ox_type_proto;
typedef struct pl_ox_info { /* ValueInfoProto */
    pl_ox_base base;
    char *name;
    pl_ox_type_proto *type;
} pl_ox_info;

typedef struct pl_ox_node { /* NodeProto */
    pl_ox_base base;
    size_t n_input;
    char **input;
    size_t n_output;
    char **output;
    char *name, *op_type;
    size_t n_attribute;
    pl_ox_attr **attribute;
    char *domain;
    char *overload;
} pl_ox_node;

struct pl_ox_graph { /* GraphProto */
    pl_ox_base base;
    size_t n_node;
    pl_ox_node **node;
    char *name;
    size_t n_initializer;
    pl_ox_tensor **initializer;
    size_t n_input;
    pl_ox_info **input;
    size_t n_output;
    pl_ox_info **output;
    size_t n_value_info;
    pl_ox_info **value_info;
    size_t n_sparse;
    pl_ox_sparse **sparse;
    size_t n_metadata;
    pl_ox_pair **metadata;
};

typedef struct pl_ox_opset { /* OperatorSetIdProto */
    pl_ox_base base;
    char *domain;
    int has_version;
    int64_t version;
} pl_ox_opset;

typedef struct pl_ox_function { /* FunctionProto */
    pl_ox_base base;
    char *name;
    size_t n_input;
    char **input;
    size_t n_output;
    char **output;
    size_t n_attribute;
    char **attribute;
    size_t n_node;
    pl_ox_node **node;
    size_t n_opset;
    pl_ox_opset **opset;
    char *domain;
    size_t n_attribute_proto;
    pl_ox_attr **attribute_proto;
    char *overload;
} pl_ox_function;

typedef struct pl_ox_model { /* ModelProto */
    pl_ox_base base;
    int has_ir_version;
    int64_t ir_version;
    char *producer_name, *producer_version;
    pl_ox_graph *graph;
    size_t n_opset;
    pl_ox_opset **opset;
    size_t n_metadata;
    pl_ox_pair **metadata;
    size_t n_function;
    pl_ox_function **function;
} pl_ox_model;

/* TensorProto.DataType */
enum pl_ox_type {
    PL_OX_FLOAT = 1,
    PL_OX_UINT8,
    PL_OX_INT8,
    PL_OX_UINT16,
    PL_OX_INT16,
    PL_OX_INT32,
    PL_OX_INT64,
    PL_OX_STRING,
    PL_OX_BOOL,
    PL_OX_FLOAT16,
    PL_OX_DOUBLE,
    PL_OX_UINT32,
    PL_OX_UINT64,
    PL_OX_COMPLEX64,
    PL_OX_COMPLEX128,
    PL_OX_BFLOAT16,
    PL_OX_FLOAT8E4M3FN,
    PL_OX_FLOAT8E4M3FNUZ,
    PL_OX_FLOAT8E5M2,
    PL_OX_FLOAT8E5M2FNUZ,
    PL_OX_UINT4,
    PL_OX_INT4,
    PL_OX_FLOAT4E2M1,
    PL_OX_FLOAT8E8M0,
    PL_OX_UINT2,
    PL_OX_INT2,
    PL_OX_N_TYPES
};
/* AttributeProto.AttributeType */
enum pl_ox_attr_type {
    PL_OX_ATTR_FLOAT = 1,
    PL_OX_ATTR_INT,
    PL_OX_ATTR_STRING,
    PL_OX_ATTR_TENSOR,
    PL_OX_ATTR_GRAPH,
    PL_OX_ATTR_FLOATS,
    PL_OX_ATTR_INTS,
    PL_OX_ATTR_STRINGS
};

/* Returns why ONNX files cannot be read (libprotobuf-c is missing); NULL: they can. */
const char *pl_ox_missing(void);
/* Reads the model in f; messages lie in mem. PL_ERR_FILE: f is not an ONNX file, is damaged, or
 * exceeds a limit. */
pl_status pl_ox_parse(const pl_file *f, pl_arena *mem, pl_ox_model **out) PL_MUST_USE;
/* The same for a file with one TensorProto. */
pl_status pl_ox_parse_tensor(const pl_file *f, pl_arena *mem, pl_ox_tensor **out) PL_MUST_USE;

#endif
