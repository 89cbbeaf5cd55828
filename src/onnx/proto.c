/* proto.c - see proto.h.
 *
 * Parsing has two passes. cut() walks the wire format and writes a second message: fields that the
 * tables do not name are dropped, and the elements of large tensors are replaced by their span in
 * the file. Then libprotobuf-c unpacks the second message. cut() reads the file through a window,
 * so a tensor of gigabytes is skipped, never read. All limits are in cut(): libprotobuf-c has no
 * limits for depth and count.
 */
#include "onnx/proto.h"

#include "base/sys.h"

#include <string.h>

#if __has_include(<protobuf-c/protobuf-c.h>)
# include <protobuf-c/protobuf-c.h>
# include <pthread.h>
# include <stddef.h>

_Static_assert(sizeof(pl_ox_base) == sizeof(ProtobufCMessage), "layout of messages");
_Static_assert(sizeof(pl_ox_bytes) == sizeof(ProtobufCBinaryData), "layout of bytes");
_Static_assert(sizeof(protobuf_c_boolean) == sizeof(int), "flags of optional fields");

/* ---- the tables ------------------------------------------------------------------------------ */
# define FIELD(text, number, kind, ctype, count, at, sub, flag)                                    \
  {                                                                                                \
   .name = text, .id = number, .label = PROTOBUF_C_LABEL_##kind, .type = PROTOBUF_C_TYPE_##ctype,  \
   .quantifier_offset = count, .offset = at, .descriptor = sub, .flags = flag                      \
  }
/* A number with a flag; a text or message without; repeated texts and messages; packed numbers. */
# define NUMBER(T, m, number, ctype)                                                               \
  FIELD(#m, number, OPTIONAL, ctype, offsetof(T, has_##m), offsetof(T, m), NULL, 0)
# define TEXT(T, m, number)     FIELD(# m, number, OPTIONAL, STRING, 0, offsetof(T, m), NULL, 0)
# define ONE(T, m, number, sub) FIELD(# m, number, OPTIONAL, MESSAGE, 0, offsetof(T, m), &sub, 0)
# define TEXTS(T, m, number)                                                                       \
  FIELD(#m, number, REPEATED, STRING, offsetof(T, n_##m), offsetof(T, m), NULL, 0)
# define BLOBS(T, m, number)                                                                       \
  FIELD(#m, number, REPEATED, BYTES, offsetof(T, n_##m), offsetof(T, m), NULL, 0)
# define MANY(T, m, number, sub)                                                                   \
  FIELD(#m, number, REPEATED, MESSAGE, offsetof(T, n_##m), offsetof(T, m), &sub, 0)
# define PACKED(T, m, number, ctype)                                                               \
  FIELD(#m, number, REPEATED, ctype, offsetof(T, n_##m), offsetof(T, m), NULL,                     \
        PROTOBUF_C_FIELD_FLAG_PACKED)
/* Defines the descriptor `d` of struct T; fields and ranges are in the order of field numbers. */
# define MESSAGE(d, T, text, ...)                                                                  \
  static const ProtobufCFieldDescriptor d##_fields[] = {__VA_ARGS__};                              \
  static const ProtobufCMessageDescriptor d = {                                                    \
      .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,                                               \
      .name = text,                                                                                \
      .short_name = text,                                                                          \
      .c_name = text,                                                                              \
      .package_name = "onnx",                                                                      \
      .sizeof_message = sizeof(T),                                                                 \
      .n_fields = sizeof d##_fields / sizeof *d##_fields,                                          \
      .fields = d##_fields,                                                                        \
      .n_field_ranges = sizeof d##_fields / sizeof *d##_fields,                                    \
      .field_ranges = d##_ranges,                                                                  \
  }

/* Numbers of the fields that cut() writes: outside the numbers of the standard. */
enum { RAW_AT = 1000, RAW_BYTES = 1001 };

/* clang-format off */
static const ProtobufCIntRange pair_ranges[] = {{1, 0}, {2, 1}, {0, 2}};
MESSAGE(pair, pl_ox_pair, "StringStringEntryProto", TEXT(pl_ox_pair, key, 1), TEXT(pl_ox_pair, value, 2));

static const ProtobufCIntRange tensor_ranges[] = {{1, 0}, {2, 1}, {4, 2}, {5, 3}, {6, 4}, {7, 5}, {8, 6}, {9, 7},
    {10, 8}, {11, 9}, {13, 10}, {14, 11}, {RAW_AT, 12}, {RAW_BYTES, 13}, {0, 14}};
MESSAGE(tensor, pl_ox_tensor, "TensorProto",
    PACKED(pl_ox_tensor, dims, 1, INT64), NUMBER(pl_ox_tensor, data_type, 2, INT32), PACKED(pl_ox_tensor, float_data, 4, FLOAT),
    PACKED(pl_ox_tensor, int32_data, 5, INT32), BLOBS(pl_ox_tensor, string_data, 6), PACKED(pl_ox_tensor, int64_data, 7, INT64),
    TEXT(pl_ox_tensor, name, 8), NUMBER(pl_ox_tensor, raw_data, 9, BYTES), PACKED(pl_ox_tensor, double_data, 10, DOUBLE),
    PACKED(pl_ox_tensor, uint64_data, 11, UINT64), MANY(pl_ox_tensor, external_data, 13, pair),
    NUMBER(pl_ox_tensor, data_location, 14, INT32), NUMBER(pl_ox_tensor, raw_at, RAW_AT, UINT64),
    NUMBER(pl_ox_tensor, raw_bytes, RAW_BYTES, UINT64));

static const ProtobufCIntRange sparse_ranges[] = {{1, 0}, {2, 1}, {3, 2}, {0, 3}};
MESSAGE(sparse, pl_ox_sparse, "SparseTensorProto", ONE(pl_ox_sparse, values, 1, tensor),
    ONE(pl_ox_sparse, indices, 2, tensor), PACKED(pl_ox_sparse, dims, 3, INT64));

static const ProtobufCMessageDescriptor graph;
static const ProtobufCIntRange attr_ranges[] = {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {6, 5}, {7, 6}, {8, 7}, {9, 8},
    {20, 9}, {21, 10}, {22, 11}, {0, 12}};
MESSAGE(attr, pl_ox_attr, "AttributeProto",
    TEXT(pl_ox_attr, name, 1), NUMBER(pl_ox_attr, f, 2, FLOAT), NUMBER(pl_ox_attr, i, 3, INT64), NUMBER(pl_ox_attr, s, 4, BYTES),
    ONE(pl_ox_attr, t, 5, tensor), ONE(pl_ox_attr, g, 6, graph), PACKED(pl_ox_attr, floats, 7, FLOAT),
    PACKED(pl_ox_attr, ints, 8, INT64), BLOBS(pl_ox_attr, strings, 9), NUMBER(pl_ox_attr, type, 20, INT32),
    TEXT(pl_ox_attr, ref_attr_name, 21), ONE(pl_ox_attr, sparse, 22, sparse));

static const ProtobufCIntRange dim_ranges[] = {{1, 0}, {2, 1}, {0, 2}};
MESSAGE(dim, pl_ox_dim, "Dimension", NUMBER(pl_ox_dim, value, 1, INT64), TEXT(pl_ox_dim, param, 2));
static const ProtobufCIntRange shape_ranges[] = {{1, 0}, {0, 1}};
MESSAGE(shape, pl_ox_shape, "TensorShapeProto", MANY(pl_ox_shape, dim, 1, dim));
static const ProtobufCIntRange tensor_type_ranges[] = {{1, 0}, {2, 1}, {0, 2}};
MESSAGE(tensor_type, pl_ox_tensor_type, "TypeProto.Tensor", NUMBER(pl_ox_tensor_type, elem_type, 1, INT32),
    ONE(pl_ox_tensor_type, shape, 2, shape));
static const ProtobufCIntRange type_ranges[] = {{1, 0}, {0, 1}};
MESSAGE(type, pl_ox_type_proto, "TypeProto", ONE(pl_ox_type_proto, tensor, 1, tensor_type));
static const ProtobufCIntRange info_ranges[] = {{1, 0}, {2, 1}, {0, 2}};
MESSAGE(info, pl_ox_info, "ValueInfoProto", TEXT(pl_ox_info, name, 1), ONE(pl_ox_info, type, 2, type));

static const ProtobufCIntRange node_ranges[] = {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}, {7, 5}, {8, 6}, {0, 7}};
MESSAGE(node, pl_ox_node, "NodeProto", TEXTS(pl_ox_node, input, 1), TEXTS(pl_ox_node, output, 2), TEXT(pl_ox_node, name, 3),
    TEXT(pl_ox_node, op_type, 4), MANY(pl_ox_node, attribute, 5, attr), TEXT(pl_ox_node, domain, 7),
    TEXT(pl_ox_node, overload, 8));

static const ProtobufCIntRange graph_ranges[] = {{1, 0}, {2, 1}, {5, 2}, {11, 3}, {12, 4}, {13, 5}, {15, 6}, {16, 7}, {0, 8}};
MESSAGE(graph, pl_ox_graph, "GraphProto", MANY(pl_ox_graph, node, 1, node), TEXT(pl_ox_graph, name, 2),
    MANY(pl_ox_graph, initializer, 5, tensor), MANY(pl_ox_graph, input, 11, info), MANY(pl_ox_graph, output, 12, info),
    MANY(pl_ox_graph, value_info, 13, info), MANY(pl_ox_graph, sparse, 15, sparse),
    MANY(pl_ox_graph, metadata, 16, pair));

static const ProtobufCIntRange opset_ranges[] = {{1, 0}, {2, 1}, {0, 2}};
MESSAGE(opset, pl_ox_opset, "OperatorSetIdProto", TEXT(pl_ox_opset, domain, 1), NUMBER(pl_ox_opset, version, 2, INT64));

static const ProtobufCIntRange function_ranges[] = {{1, 0}, {4, 1}, {5, 2}, {6, 3}, {7, 4}, {9, 5}, {10, 6}, {11, 7},
    {13, 8}, {0, 9}};
MESSAGE(function, pl_ox_function, "FunctionProto", TEXT(pl_ox_function, name, 1), TEXTS(pl_ox_function, input, 4),
    TEXTS(pl_ox_function, output, 5), TEXTS(pl_ox_function, attribute, 6), MANY(pl_ox_function, node, 7, node),
    MANY(pl_ox_function, opset, 9, opset), TEXT(pl_ox_function, domain, 10), MANY(pl_ox_function, attribute_proto, 11, attr),
    TEXT(pl_ox_function, overload, 13));

static const ProtobufCIntRange model_ranges[] = {{1, 0}, {2, 1}, {3, 2}, {7, 3}, {8, 4}, {14, 5}, {25, 6}, {0, 7}};
MESSAGE(model, pl_ox_model, "ModelProto", NUMBER(pl_ox_model, ir_version, 1, INT64), TEXT(pl_ox_model, producer_name, 2),
    TEXT(pl_ox_model, producer_version, 3), ONE(pl_ox_model, graph, 7, graph), MANY(pl_ox_model, opset, 8, opset),
    MANY(pl_ox_model, metadata, 14, pair), MANY(pl_ox_model, function, 25, function));
/* clang-format on */

/* ---- the library ----------------------------------------------------------------------------- */
typedef union protobuf_table {
    struct {
        __typeof__(&protobuf_c_message_unpack) unpack;
    };
    void *table[1];
} protobuf_table;
static protobuf_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libprotobuf-c.so.1", "libprotobuf-c.so", NULL};
    static const char *const symbols[] = {"protobuf_c_message_unpack"};
    here = pl_library_load(names, symbols, 1, lib.table);
}

const char *pl_ox_missing(void)
{
    pthread_once(&once, load);
    return here ? NULL : "libprotobuf-c is not installed (apt-get install libprotobuf-c1)";
}

/* ---- cutting --------------------------------------------------------------------------------- */
enum { WINDOW = 1 << 16, WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct cutter {
    const pl_file *f;
    uint8_t *window; /* bytes [at, at + have) of the file */
    uint64_t at;
    size_t have;
    uint8_t *out; /* the second message */
    size_t len, cap;
    int messages;
} cutter;

/* Makes `bytes` (at most WINDOW) bytes at pos readable at *p; fewer only at the end of the file. */
static pl_status look(cutter *c, uint64_t pos, size_t bytes, const uint8_t **p, size_t *got)
{
    if (pos < c->at || pos + bytes > c->at + c->have) {
        uint64_t left = c->f->size - pos;
        size_t n = left < WINDOW ? (size_t)left : WINDOW;
        PL_TRY(pl_file_read(c->f, pos, n, c->window));
        c->at = pos;
        c->have = n;
    }
    *p = c->window + (pos - c->at);
    *got = (size_t)(c->at + c->have - pos);
    return PL_OK;
}

/* Returns the format of a file that begins like another known format; NULL: not known. */
static const char *other_format(cutter *c)
{
    static const struct {
        const char *begins, *says;
    } known[] = {
        {"version https://git-lfs", "a pointer of Git LFS: fetch the model with git lfs pull"},
        {"PK\3\4", "a zip archive: unpack it; a module that PyTorch saved is exported with "
                   "torch.onnx.export"},
        {"\x1f\x8b", "compressed by gzip: unpack it with gunzip"},
        {"<", "a page of text, possibly the answer of a web server: download the model again"},
        {"\x89HDF", "an HDF5 file (Keras): convert it to ONNX first"},
    };
    const uint8_t *p;
    size_t got;
    if (look(c, 0, c->f->size < 32 ? (size_t)c->f->size : 32, &p, &got) != PL_OK) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].begins);
        if (n <= got && memcmp(p, known[i].begins, n) == 0) return known[i].says;
    }
    return NULL;
}

static pl_status damaged(cutter *c, uint64_t pos, const char *what)
{
    const char *other = other_format(c);
    PL_FAIL_IF(other, PL_ERR_FILE, "%s is not an ONNX file but %s", c->f->name, other);
    PL_FAIL(PL_ERR_FILE, "%s: byte %llu: %s; the file is damaged or not an ONNX file", c->f->name,
            (unsigned long long)pos, what);
}

static pl_status varint(cutter *c, uint64_t *pos, uint64_t end, uint64_t *value)
{
    const uint8_t *p;
    size_t got;
    PL_TRY(look(c, *pos, end - *pos < 10 ? (size_t)(end - *pos) : 10, &p, &got));
    *value = 0;
    for (int i = 0; i < 10 && *pos < end; i++, (*pos)++) {
        *value |= (uint64_t)(p[i] & 127) << (7 * i);
        if (p[i] < 128) return (*pos)++, PL_OK;
    }
    return damaged(c, *pos, "a number does not end");
}

static pl_status room(cutter *c, uint64_t bytes)
{
    PL_FAIL_IF(bytes > PL_OX_MAX_META - c->len, PL_ERR_FILE,
               "%s: more than the limit of %u bytes, without the elements of tensors", c->f->name,
               PL_OX_MAX_META);
    if (c->len + bytes <= c->cap) return PL_OK;
    size_t cap = (c->len + (size_t)bytes) * 2 + 4096;
    uint8_t *p = pl_sys_realloc(c->out, c->cap, cap);
    if (!p) return PL_ERR_MEMORY;
    c->out = p;
    c->cap = cap;
    return PL_OK;
}

/* Writes a number with exactly `width` bytes, padded where 0 < width. */
static void put_varint(uint8_t *to, size_t *len, uint64_t v, int width)
{
    int i = 0;
    do {
        bool more = v >> 7 || i + 1 < width;
        to[(*len)++] = (uint8_t)((v & 127) | (more ? 128 : 0));
        v >>= 7;
        i++;
    } while (v || i < width);
}

static pl_status copy(cutter *c, uint64_t pos, uint64_t bytes)
{
    PL_TRY(room(c, bytes));
    while (bytes) {
        const uint8_t *p;
        size_t got, n = bytes < WINDOW ? (size_t)bytes : WINDOW;
        PL_TRY(look(c, pos, n, &p, &got));
        memcpy(c->out + c->len, p, n);
        c->len += n;
        pos += n;
        bytes -= n;
    }
    return PL_OK;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *d, uint64_t id)
{
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].id == id) return &d->fields[i];
    return NULL;
}

/* The fields of a tensor that hold its elements as they lie in memory. */
static bool is_elements(const ProtobufCMessageDescriptor *d, uint64_t id)
{
    return d == &tensor && (id == 4 || id == 9 || id == 10);
}

static pl_status cut(cutter *c, const ProtobufCMessageDescriptor *d, uint64_t pos, uint64_t end,
                     int depth);

/* Copies, descends into, or replaces a field of `bytes` bytes at pos. */
static pl_status cut_bytes(cutter *c, const ProtobufCMessageDescriptor *d,
                           const ProtobufCFieldDescriptor *f, uint64_t pos, uint64_t bytes,
                           int depth)
{
    PL_TRY(room(c, 64));
    if (is_elements(d, f->id) && bytes > PL_OX_INLINE_BYTES) {
        put_varint(c->out, &c->len, (uint64_t)RAW_AT << 3, 0);
        put_varint(c->out, &c->len, pos, 0);
        put_varint(c->out, &c->len, (uint64_t)RAW_BYTES << 3, 0);
        put_varint(c->out, &c->len, bytes, 0);
        return PL_OK;
    }
    put_varint(c->out, &c->len, (uint64_t)f->id << 3 | WIRE_BYTES, 0);
    if (f->type != PROTOBUF_C_TYPE_MESSAGE) {
        put_varint(c->out, &c->len, bytes, 0);
        return copy(c, pos, bytes);
    }
    /* The length is not known yet: five bytes are kept for it (PL_OX_MAX_META < 2^35). */
    size_t at = c->len;
    c->len += 5;
    PL_TRY(cut(c, f->descriptor, pos, pos + bytes, depth + 1));
    put_varint(c->out, &at, c->len - at - 5, 5);
    return PL_OK;
}

static pl_status cut(cutter *c, const ProtobufCMessageDescriptor *d, uint64_t pos, uint64_t end,
                     int depth)
{
    PL_FAIL_IF(depth > PL_OX_MAX_DEPTH, PL_ERR_FILE, "%s: messages lie more than %d deep",
               c->f->name, PL_OX_MAX_DEPTH);
    PL_FAIL_IF(++c->messages > PL_OX_MAX_MESSAGES, PL_ERR_FILE,
               "%s: more than %d nodes, tensors and attributes", c->f->name, PL_OX_MAX_MESSAGES);
    while (pos < end) {
        uint64_t key, n, begin = pos;
        PL_TRY(varint(c, &pos, end, &key));
        if (key >> 3 == 0) return damaged(c, begin, "a field without a number");
        const ProtobufCFieldDescriptor *f = field_of(d, key >> 3);
        if (f && f->id >= RAW_AT && d == &tensor) f = NULL; /* ours alone */
        unsigned wire = (unsigned)(key & 7);
        if (wire == WIRE_VARINT)
            PL_TRY(varint(c, &pos, end, &n));
        else if (wire == WIRE_64 || wire == WIRE_32)
            pos += wire == WIRE_64 ? 8 : 4;
        else if (wire == WIRE_BYTES) {
            PL_TRY(varint(c, &pos, end, &n));
            if (n > end - pos) return damaged(c, pos, "a field is longer than what holds it");
            if (f) PL_TRY(cut_bytes(c, d, f, pos, n, depth));
            pos += n;
            continue;
        } else
            return damaged(c, pos, "a field of an unknown kind");
        if (pos > end) return damaged(c, pos, "a field is longer than what holds it");
        if (f) PL_TRY(copy(c, begin, pos - begin));
    }
    return PL_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------- */
static void *from_arena(void *arena, size_t bytes)
{
    return pl_arena_alloc(arena, bytes);
}

static void to_arena(void *arena, void *p)
{
    (void)arena, (void)p;
}

static pl_status parse(const pl_file *f, const ProtobufCMessageDescriptor *d, pl_arena *mem,
                       void *out)
{
    PL_FAIL_IF(pl_ox_missing(), PL_ERR_UNSUPPORTED, "%s: %s", f->name, pl_ox_missing());
    cutter c = {.f = f, .window = pl_sys_alloc(WINDOW)};
    pl_status rc = c.window ? cut(&c, d, 0, f->size, 0) : PL_ERR_MEMORY;
    pl_sys_free(c.window);
    if (rc == PL_OK) {
        ProtobufCAllocator a = {from_arena, to_arena, mem};
        void *m = lib.unpack(d, &a, c.len, c.out ? c.out : (const uint8_t *)"");
        if (m)
            *(void **)out = m;
        else
            rc = pl_fail(PL_ERR_FILE, "%s: the file is damaged or not an ONNX file", f->name);
    }
    pl_sys_free(c.out);
    return rc;
}

pl_status pl_ox_parse(const pl_file *f, pl_arena *mem, pl_ox_model **out)
{
    return parse(f, &model, mem, out);
}

pl_status pl_ox_parse_tensor(const pl_file *f, pl_arena *mem, pl_ox_tensor **out)
{
    return parse(f, &tensor, mem, out);
}

#else

const char *pl_ox_missing(void)
{
    return "this program was built without ONNX (apt-get install libprotobuf-c-dev, then build "
           "again)";
}

pl_status pl_ox_parse(const pl_file *f, pl_arena *mem, pl_ox_model **out)
{
    (void)mem, (void)out;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s: %s", f->name, pl_ox_missing());
}

pl_status pl_ox_parse_tensor(const pl_file *f, pl_arena *mem, pl_ox_tensor **out)
{
    (void)mem, (void)out;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s: %s", f->name, pl_ox_missing());
}

#endif
