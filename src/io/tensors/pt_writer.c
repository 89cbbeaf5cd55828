/* pt_writer.c - see pt_writer.h. Protocol 2, without a memo: a tensor takes about 250 bytes. */
#include "io/tensors/pt_writer.h"

#include "base/err.h"

#include <jansson.h>
#include <string.h>

bool pl_pt_named(const char *path)
{
    static const char *const tail[] = {".pt", ".pth", ".ckpt", ".bin"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) {
        size_t m = strlen(tail[i]);
        if (n >= m && strcmp(path + n - m, tail[i]) == 0) return true;
    }
    return false;
}

static void put(pl_str *p, uint64_t x, int n)
{
    char bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (char)(x >> 8 * i);
    pl_str_addn(p, bytes, (size_t)n);
}

static void put_int(pl_str *p, int64_t x)
{
    bool small = x >= INT32_MIN && x <= INT32_MAX;
    pl_str_addn(p, small ? "J" : "\x8a\x08", small ? 1 : 2);
    put(p, (uint64_t)x, small ? 4 : 8);
}

void pl_pt_text(pl_str *p, const char *text)
{
    pl_str_add(p, "X");
    put(p, strlen(text), 4);
    pl_str_add(p, text);
}

void pl_pt_begin(pl_str *p)
{
    pl_str_addn(p, "\x80\x02", 2);
}

void pl_pt_open(pl_str *p, bool ordered)
{
    pl_str_add(p, ordered ? "ccollections\nOrderedDict\n)R(" : "}(");
}

void pl_pt_key(pl_str *p, const char *key)
{
    pl_pt_text(p, key);
}

void pl_pt_close(pl_str *p)
{
    pl_str_add(p, "u");
}

void pl_pt_end(pl_str *p)
{
    pl_str_add(p, ".");
}

static const char *storage_of(pl_dtype d)
{
    switch (d) {
    case PL_F32: return "FloatStorage";
    case PL_F16: return "HalfStorage";
    case PL_BF16: return "BFloat16Storage";
    case PL_F64: return "DoubleStorage";
    case PL_I64: return "LongStorage";
    case PL_I32: return "IntStorage";
    case PL_U8: return "ByteStorage";
    case PL_BOOL: return "BoolStorage";
    default: PL_BUG("dtype %d has no storage of PyTorch", (int)d);
    }
}

void pl_pt_tensor(pl_str *p, const pl_type *type, int storage)
{
    char key[16];
    int64_t stride = pl_type_elems(type);
    snprintf(key, sizeof key, "%d", storage);
    pl_str_add(p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    pl_pt_text(p, "storage");
    pl_str_addf(p, "ctorch\n%s\n", storage_of(type->dtype));
    pl_pt_text(p, key);
    pl_pt_text(p, "cpu");
    put_int(p, stride);
    pl_str_add(p, "tQ");
    put_int(p, 0);
    pl_str_add(p, "(");
    for (int i = 0; i < type->rank; i++) put_int(p, type->dim[i]);
    pl_str_add(p, "t(");
    stride = 1;
    int64_t strides[PL_MAX_RANK];
    for (int i = type->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= type->dim[i] ? type->dim[i] : 1;
    }
    for (int i = 0; i < type->rank; i++) put_int(p, strides[i]);
    pl_str_add(p, "t\x89"
                  "ccollections\nOrderedDict\n)RtR"); /* needs no gradient; no hooks */
}

static void put_value(pl_str *p, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    double real;
    uint64_t bits;
    switch (json_typeof(v)) {
    case JSON_NULL: pl_str_add(p, "N"); return;
    case JSON_TRUE: pl_str_add(p, "\x88"); return;
    case JSON_FALSE: pl_str_add(p, "\x89"); return;
    case JSON_INTEGER: put_int(p, json_integer_value(v)); return;
    case JSON_REAL:
        real = json_real_value(v);
        memcpy(&bits, &real, sizeof bits);
        pl_str_add(p, "G");
        put(p, __builtin_bswap64(bits), 8);
        return;
    case JSON_STRING: pl_pt_text(p, json_string_value(v)); return;
    case JSON_ARRAY:
        pl_str_add(p, "](");
        json_array_foreach(v, i, item) put_value(p, item);
        pl_str_add(p, "e");
        return;
    case JSON_OBJECT:
        pl_pt_open(p, false);
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            pl_pt_key(p, key);
            put_value(p, item);
        }
        pl_pt_close(p);
        return;
    }
}

pl_status pl_pt_json(pl_str *p, const char *json)
{
    json_error_t e;
    json_t *v = json_loads(json, JSON_DECODE_ANY, &e);
    PL_FAIL_IF(!v, PL_ERR_ARG, "an entry of a PyTorch file is not JSON: %.80s", json);
    put_value(p, v);
    json_decref(v);
    return PL_OK;
}
