/* encode.c - see encode.h. */
#include "onnx/write/encode.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_varint(pl_str *s, uint64_t v)
{
    char b[10];
    size_t n = 0;
    do {
        b[n++] = (char)((v & 127) | (v > 127 ? 128 : 0));
        v >>= 7;
    } while (v);
    pl_str_addn(s, b, n);
}

void pl_ow_put_int(pl_str *s, int field, int64_t v)
{
    put_varint(s, (uint64_t)field << 3 | WIRE_VARINT);
    put_varint(s, (uint64_t)v);
}

void pl_ow_put_float(pl_str *s, int field, float v)
{
    char b[4];
    memcpy(b, &v, sizeof b);
    put_varint(s, (uint64_t)field << 3 | WIRE_32);
    pl_str_addn(s, b, sizeof b);
}

void pl_ow_put_head(pl_str *s, int field, uint64_t len)
{
    put_varint(s, (uint64_t)field << 3 | WIRE_BYTES);
    put_varint(s, len);
}

void pl_ow_put_bytes(pl_str *s, int field, const void *data, size_t len)
{
    pl_ow_put_head(s, field, len);
    pl_str_addn(s, data, len);
}

void pl_ow_put_text(pl_str *s, int field, const char *text)
{
    pl_ow_put_bytes(s, field, text, strlen(text));
}

void pl_ow_put_message(pl_str *s, int field, pl_str *m)
{
    s->failed |= m->failed;
    pl_ow_put_bytes(s, field, m->text ? m->text : "", m->len);
    pl_str_release(m);
}
