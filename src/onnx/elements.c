/* elements.c - the elements of the file's tensors, of every type and at every place.
 *
 * Elements lie in the message (typed arrays, or raw bytes), in a span of the file, or in a file of
 * external data. External files must lie in the folder of the model or below it: their path is
 * relative, has no part "..", and no symbolic link leads out of the folder. Sizes are compared with
 * the dimensions before any memory is taken.
 */
#include "onnx/onnx.h"

#include "base/dtype.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns: name, the engine's type, whether there is one, bits. */
static const struct {
    const char *name;
    pl_dtype dtype;
    bool here;
    int bits;
} types[PL_OX_N_TYPES] = {
    [PL_OX_FLOAT] = {"float", PL_F32, true, 32},
    [PL_OX_UINT8] = {"uint8", PL_I32, true, 8},
    [PL_OX_INT8] = {"int8", PL_I32, true, 8},
    [PL_OX_UINT16] = {"uint16", PL_I32, true, 16},
    [PL_OX_INT16] = {"int16", PL_I32, true, 16},
    [PL_OX_INT32] = {"int32", PL_I32, true, 32},
    [PL_OX_INT64] = {"int64", PL_I64, true, 64},
    [PL_OX_STRING] = {"string", PL_F32, false, 0},
    [PL_OX_BOOL] = {"bool", PL_BOOL, true, 8},
    [PL_OX_FLOAT16] = {"float16", PL_F16, true, 16},
    [PL_OX_DOUBLE] = {"double", PL_F64, true, 64},
    [PL_OX_UINT32] = {"uint32", PL_I64, true, 32},
    [PL_OX_UINT64] = {"uint64", PL_I64, true, 64},
    [PL_OX_COMPLEX64] = {"complex64", PL_F32, false, 64},
    [PL_OX_COMPLEX128] = {"complex128", PL_F64, false, 128},
    [PL_OX_BFLOAT16] = {"bfloat16", PL_BF16, true, 16},
    [PL_OX_FLOAT8E4M3FN] = {"float8e4m3fn", PL_F32, true, 8},
    [PL_OX_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", PL_F32, true, 8},
    [PL_OX_FLOAT8E5M2] = {"float8e5m2", PL_F32, true, 8},
    [PL_OX_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", PL_F32, true, 8},
    [PL_OX_UINT4] = {"uint4", PL_I32, true, 4},
    [PL_OX_INT4] = {"int4", PL_I32, true, 4},
    [PL_OX_FLOAT4E2M1] = {"float4e2m1", PL_F32, true, 4},
    [PL_OX_FLOAT8E8M0] = {"float8e8m0", PL_F32, true, 8},
    [PL_OX_UINT2] = {"uint2", PL_I32, true, 2},
    [PL_OX_INT2] = {"int2", PL_I32, true, 2},
};

bool pl_ox_dtype(int32_t t, pl_dtype *out)
{
    if (t <= 0 || t >= PL_OX_N_TYPES || !types[t].here) return false;
    *out = types[t].dtype;
    return true;
}

const char *pl_ox_type_name(int32_t t)
{
    return t > 0 && t < PL_OX_N_TYPES ? types[t].name : "unknown";
}

bool pl_ox_type_widened(const char *name)
{
    for (int32_t t = PL_OX_FLOAT8E4M3FN; t < PL_OX_N_TYPES; t++)
        if (strcmp(types[t].name, name) == 0) return true;
    return false;
}

bool pl_ox_type_narrow(const char *name)
{
    pl_dtype d;
    for (int32_t t = 1; t < PL_OX_N_TYPES; t++)
        if (strcmp(types[t].name, name) == 0)
            return pl_ox_dtype(t, &d) && (d == PL_I32 || d == PL_I64) && t != PL_OX_INT32 &&
                   t != PL_OX_INT64;
    return false;
}

static const char *name_of(const pl_ox_tensor *t)
{
    return t->name && t->name[0] ? t->name : "(without a name)";
}

pl_status pl_ox_tensor_type_of(const pl_onnx *o, const pl_ox_tensor *t, pl_type *out)
{
    const char *file = o->path, *name = name_of(t);
    pl_type r = {.rank = (int32_t)t->n_dims};
    PL_FAIL_IF(!pl_ox_dtype(t->data_type, &r.dtype), PL_ERR_UNSUPPORTED,
               "%s: tensor '%s' has elements of type %s, which Plimsoll does not support", file,
               name, pl_ox_type_name(t->data_type));
    PL_FAIL_IF(t->n_dims > PL_MAX_RANK, PL_ERR_UNSUPPORTED,
               "%s: tensor '%s' has %zu dimensions; Plimsoll supports at most %d", file, name,
               t->n_dims, PL_MAX_RANK);
    int64_t n = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        int64_t d = t->dims[i];
        PL_FAIL_IF(d < 0 || (d && n > INT64_MAX / 16 / d), PL_ERR_FILE,
                   "%s: tensor '%s' has a dimension of %lld", file, name, (long long)d);
        n *= d ? d : 1;
        r.dim[i] = d;
    }
    *out = r;
    return PL_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */
/* Whether the file lies in the folder once links are followed. Paths are long: they lie on the
 * heap (realpath allocates them). */
static bool inside(const char *folder, const char *path)
{
    char *a = realpath(folder, NULL), *b = realpath(path, NULL);
    size_t n = a ? strlen(a) : 0;
    bool in = a && b && strncmp(a, b, n) == 0 && (b[n] == '/' || (n == 1 && a[0] == '/'));
    free(a);
    free(b);
    return in;
}

static bool has_parent(const char *path)
{
    for (const char *p = path; p; p = strchr(p, '/'), p = p ? p + 1 : NULL)
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || !p[2])) return true;
    return false;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (!text || text[0] < '0' || text[0] > '9') return false;
    unsigned long long v = strtoull(text, &end, 10);
    *out = v;
    return *end == 0 && v < (1ull << 62);
}

pl_status pl_ox_external_read(const pl_onnx *o, const pl_ox_tensor *t, uint64_t at, uint64_t bytes,
                              void *to)
{
    const char *location = NULL, *name = name_of(t);
    uint64_t offset = 0, length = 0;
    bool has_length = false, ok = true;
    for (size_t i = 0; i < t->n_external_data; i++) {
        const pl_ox_pair *p = t->external_data[i];
        if (!p->key || !p->value) continue;
        if (strcmp(p->key, "location") == 0) location = p->value;
        if (strcmp(p->key, "offset") == 0) ok &= number(p->value, &offset);
        if (strcmp(p->key, "length") == 0) ok &= has_length = number(p->value, &length);
    }
    PL_FAIL_IF(!location || !location[0] || !ok, PL_ERR_FILE,
               "%s: tensor '%s': external data without a location, or with a bad offset or length",
               o->path, name);
    PL_FAIL_IF(
        location[0] == '/' || has_parent(location), PL_ERR_FILE,
        "%s: tensor '%s': external data '%s' lie outside the folder of the model; only files "
        "inside that folder are read",
        o->path, name, location);
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", o->folder, location);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof path, PL_ERR_FILE,
               "%s: tensor '%s': the path of its external data is too long", o->path, name);
    pl_file f = PL_FILE_NONE;
    PL_TRY(pl_file_open(path, PL_ERR_FILE, &f));
    pl_status rc = PL_OK;
    if (!inside(o->folder, path))
        rc = pl_fail(PL_ERR_FILE,
                     "%s: tensor '%s': external data '%s' is a link out of the folder of the model",
                     o->path, name, location);
    else if (offset > f.size || at + bytes > f.size - offset ||
             (has_length && (at + bytes > length || length > f.size - offset)))
        rc = pl_fail(PL_ERR_FILE,
                     "%s: tensor '%s' needs %llu bytes at byte %llu of %s, which has %llu bytes "
                     "(length given for the tensor: %llu)",
                     o->path, name, (unsigned long long)(at + bytes), (unsigned long long)offset,
                     path, (unsigned long long)f.size,
                     (unsigned long long)(has_length ? length : f.size));
    if (rc == PL_OK && bytes) rc = pl_file_read(&f, offset + at, (size_t)bytes, to);
    pl_file_close(&f);
    return rc;
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* An 8-bit or 4-bit float: sign, e exponent bits, m mantissa bits. fn: no infinities; uz: no
 * negative zero, whose bits are NaN, and a bias that is larger by one. */
static double small_float(unsigned bits, int e, int m, bool fn, bool uz)
{
    unsigned sign = bits >> (e + m) & 1, exponent = bits >> m & ((1u << e) - 1);
    unsigned mantissa = bits & ((1u << m) - 1);
    int bias = (1 << (e - 1)) - (uz ? 0 : 1);
    double nan = __builtin_nan("");
    if (uz && sign && !exponent && !mantissa) return nan;
    if (!uz && e + m == 7 && exponent == (1u << e) - 1) {
        if (!fn) return mantissa ? nan : sign ? -__builtin_inf() : __builtin_inf();
        if (mantissa == (1u << m) - 1) return nan;
    }
    double v = exponent
                   ? (1 + mantissa / (double)(1u << m)) * __builtin_exp2((double)exponent - bias)
                   : mantissa / (double)(1u << m) * __builtin_exp2(1.0 - bias);
    return sign ? -v : v;
}

static double float_at(int32_t type, const uint8_t *p, int64_t k)
{
    uint16_t h;
    float f;
    double d;
    unsigned nibble = p[type == PL_OX_FLOAT4E2M1 ? k / 2 : 0] >> (k % 2 * 4) & 15;
    switch (type) {
    case PL_OX_FLOAT: return memcpy(&f, p + 4 * k, 4), (double)f;
    case PL_OX_DOUBLE: return memcpy(&d, p + 8 * k, 8), d;
    case PL_OX_FLOAT16: return memcpy(&h, p + 2 * k, 2), (double)pl_f16_to_f32(h);
    case PL_OX_BFLOAT16: return memcpy(&h, p + 2 * k, 2), (double)pl_bf16_to_f32(h);
    case PL_OX_FLOAT8E4M3FN: return small_float(p[k], 4, 3, true, false);
    case PL_OX_FLOAT8E4M3FNUZ: return small_float(p[k], 4, 3, true, true);
    case PL_OX_FLOAT8E5M2: return small_float(p[k], 5, 2, false, false);
    case PL_OX_FLOAT8E5M2FNUZ: return small_float(p[k], 5, 2, true, true);
    case PL_OX_FLOAT8E8M0: return p[k] == 255 ? __builtin_nan("") : __builtin_exp2(p[k] - 127.0);
    default: return small_float(nibble, 2, 1, true, false);
    }
}

static int64_t whole_at(int32_t type, const uint8_t *p, int64_t k)
{
    int16_t s;
    uint16_t h;
    int32_t i;
    uint32_t u;
    int64_t l;
    switch (type) {
    case PL_OX_BOOL: return p[k] != 0;
    case PL_OX_UINT8: return p[k];
    case PL_OX_INT8: return (int8_t)p[k];
    case PL_OX_UINT16: return memcpy(&h, p + 2 * k, 2), h;
    case PL_OX_INT16: return memcpy(&s, p + 2 * k, 2), s;
    case PL_OX_INT32: return memcpy(&i, p + 4 * k, 4), i;
    case PL_OX_UINT32: return memcpy(&u, p + 4 * k, 4), u;
    case PL_OX_UINT4: return p[k / 2] >> (k % 2 * 4) & 15;
    case PL_OX_INT4: return (int8_t)(uint8_t)(p[k / 2] >> (k % 2 * 4) << 4) >> 4;
    case PL_OX_UINT2: return p[k / 4] >> (k % 4 * 2) & 3;
    case PL_OX_INT2: return (int8_t)(uint8_t)(p[k / 4] >> (k % 4 * 2) << 6) >> 6;
    default: return memcpy(&l, p + 8 * k, 8), l;
    }
}

/* Element k of the typed arrays of a message. Elements of 2 and 4 bits share the low byte of a
 * number of int32_data. */
static double typed_float(const pl_ox_tensor *t, int64_t k)
{
    if (t->n_float_data) return (double)t->float_data[k];
    if (t->n_double_data) return t->double_data[k];
    int each = 8 / types[t->data_type].bits;
    if (each > 1) {
        uint8_t byte = (uint8_t)t->int32_data[k / each];
        return float_at(t->data_type, &byte, k % each);
    }
    uint8_t low[2] = {(uint8_t)t->int32_data[k], (uint8_t)(t->int32_data[k] >> 8)};
    return float_at(t->data_type, low, 0);
}

static int64_t typed_whole(const pl_ox_tensor *t, int64_t k)
{
    if (t->n_int64_data) return t->int64_data[k];
    if (t->n_uint64_data) return (int64_t)t->uint64_data[k];
    int each = 8 / types[t->data_type].bits;
    if (each > 1) {
        uint8_t byte = (uint8_t)t->int32_data[k / each];
        return whole_at(t->data_type, &byte, k % each);
    }
    return t->data_type == PL_OX_BOOL ? t->int32_data[k] != 0 : t->int32_data[k];
}

static size_t typed_count(const pl_ox_tensor *t, bool floats)
{
    if (t->n_int32_data && types[t->data_type].bits < 8)
        return t->n_int32_data * (size_t)(8 / types[t->data_type].bits);
    if (floats && t->n_float_data) return t->n_float_data;
    if (floats && t->n_double_data) return t->n_double_data;
    if (!floats && t->n_int64_data) return t->n_int64_data;
    if (!floats && t->n_uint64_data) return t->n_uint64_data;
    if (floats && types[t->data_type].bits > 16) return 0; /* int32_data hold 16 bits at most */
    return t->n_int32_data;
}

pl_status pl_ox_raw(const pl_onnx *o, const pl_ox_tensor *t, uint64_t at, uint64_t bytes,
                    uint8_t *buffer, const uint8_t **out)
{
    *out = buffer;
    if (t->data_location == 1) return pl_ox_external_read(o, t, at, bytes, buffer);
    if (t->has_raw_at) return pl_file_read(&o->file, t->raw_at + at, (size_t)bytes, buffer);
    *out = t->raw_data.data + at;
    return PL_OK;
}

uint64_t pl_ox_tensor_bytes(const pl_ox_tensor *t, int64_t elems)
{
    return ((uint64_t)elems * (uint64_t)types[t->data_type].bits + 7) / 8;
}

static pl_status short_of(const pl_onnx *o, const pl_ox_tensor *t, int64_t want, uint64_t have,
                          const char *unit)
{
    PL_FAIL(PL_ERR_FILE, "%s: tensor '%s' has %lld elements by its dimensions, and %llu %s",
            o->path, name_of(t), (long long)want, (unsigned long long)have, unit);
}

enum { CHUNK = 1 << 16 }; /* elements that are read at once; even */

pl_status pl_ox_each(const pl_onnx *o, const pl_ox_tensor *t, int64_t n, bool floats,
                     pl_ox_put *put, void *ctx)
{
    int bits = types[t->data_type].bits;
    uint64_t bytes = pl_ox_tensor_bytes(t, n);
    bool external = t->data_location == 1;
    if (!external && !t->has_raw_at && !t->has_raw_data) {
        size_t have = typed_count(t, floats);
        if (have < (size_t)n) return short_of(o, t, n, have, "numbers in the file");
        for (int64_t k = 0; k < n; k++)
            put(ctx, k, floats ? 0 : typed_whole(t, k), floats ? typed_float(t, k) : 0);
        return PL_OK;
    }
    uint64_t have = t->has_raw_at ? t->raw_bytes : t->raw_data.len;
    if (!external && have != bytes) return short_of(o, t, n, have, "bytes in the file");
    uint8_t *buffer = pl_sys_alloc(CHUNK * 8);
    if (!buffer) return PL_ERR_MEMORY;
    pl_status rc = PL_OK;
    for (int64_t first = 0; first < n && rc == PL_OK; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;
        const uint8_t *p = NULL;
        rc = pl_ox_raw(o, t, (uint64_t)first * (uint64_t)bits / 8,
                       ((uint64_t)count * (uint64_t)bits + 7) / 8, buffer, &p);
        for (int64_t k = 0; k < count && rc == PL_OK; k++)
            put(ctx, first + k, floats ? 0 : whole_at(t->data_type, p, k),
                floats ? float_at(t->data_type, p, k) : 0);
    }
    pl_sys_free(buffer);
    return rc;
}

/* ---- host values ----------------------------------------------------------------------------- */
static void put_host(void *ctx, int64_t k, int64_t whole, double real)
{
    pl_ox_host *h = ctx;
    if (h->i)
        h->i[k] = whole;
    else
        h->d[k] = real;
}

static pl_status host_room(pl_arena *mem, int64_t n, bool floats, pl_ox_host *h)
{
    void *p = pl_arena_alloc(mem, (size_t)(n ? n : 1) * 8);
    if (!p) return PL_ERR_MEMORY;
    *h = (pl_ox_host){.n = n, .i = floats ? NULL : p, .d = floats ? p : NULL};
    return PL_OK;
}

pl_status pl_ox_tensor_read(const pl_onnx *o, const pl_ox_tensor *t, pl_arena *mem, pl_ox_host *out)
{
    pl_type type;
    PL_TRY(pl_ox_tensor_type_of(o, t, &type));
    bool floats = pl_dtype_is_float(type.dtype);
    int64_t n = pl_type_elems(&type);
    PL_FAIL_IF(n > (int64_t)1 << 32, PL_ERR_UNSUPPORTED,
               "%s: tensor '%s' has %lld elements, too many for a constant", o->path, name_of(t),
               (long long)n);
    /* Sizes first: the dimensions of a damaged file must not decide how much memory is taken. */
    uint64_t bytes = ((uint64_t)n * (uint64_t)types[t->data_type].bits + 7) / 8;
    uint64_t raw = t->has_raw_at ? t->raw_bytes : t->raw_data.len;
    uint8_t last;
    if (t->data_location == 1) {
        if (bytes) PL_TRY(pl_ox_external_read(o, t, bytes - 1, 1, &last));
    } else if (t->has_raw_at || t->has_raw_data) {
        if (raw != bytes) return short_of(o, t, n, raw, "bytes in the file");
    } else if (typed_count(t, floats) < (size_t)n)
        return short_of(o, t, n, typed_count(t, floats), "numbers in the file");
    pl_ox_host h;
    PL_TRY(host_room(mem, n, floats, &h));
    PL_TRY(pl_ox_each(o, t, n, floats, put_host, &h));
    *out = h;
    return PL_OK;
}

static pl_status read_sparse(const pl_onnx *o, const pl_ox_init *t, pl_arena *mem, pl_ox_host *out)
{
    pl_ox_host values, indices, h;
    const pl_ox_sparse *s = t->sparse;
    int64_t n = pl_type_elems(&t->about.type);
    PL_TRY(pl_ox_tensor_read(o, s->values, mem, &values));
    PL_TRY(pl_ox_tensor_read(o, s->indices, mem, &indices));
    int64_t rank = values.n ? indices.n / values.n : 1;
    PL_FAIL_IF(indices.d || n > PL_OX_HOST_ELEMS || (rank != 1 && rank != t->about.type.rank),
               PL_ERR_FILE, "%s: sparse tensor '%s' has indices that do not match its shape",
               o->path, t->about.name);
    PL_TRY(host_room(mem, n, values.d != NULL, &h));
    for (int64_t k = 0; k < values.n; k++) {
        int64_t at = 0;
        for (int64_t j = 0; j < rank; j++)
            at = (rank > 1 ? at * t->about.type.dim[j] : 0) + indices.i[k * rank + j];
        PL_FAIL_IF(at < 0 || at >= n, PL_ERR_FILE,
                   "%s: sparse tensor '%s' has an index out of range", o->path, t->about.name);
        if (h.d)
            h.d[at] = values.d[k];
        else
            h.i[at] = values.i[k];
    }
    *out = h;
    return PL_OK;
}

pl_status pl_ox_init_read(const pl_onnx *o, const pl_ox_init *t, pl_arena *mem, pl_ox_host *out)
{
    return t->tensor ? pl_ox_tensor_read(o, t->tensor, mem, out) : read_sparse(o, t, mem, out);
}
