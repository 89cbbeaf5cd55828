/* proto_write.c - see proto_write.h. */
#include "tests/onnx/proto_write.h"

#include <string.h>

void put_number(pl_str *s, int field, uint64_t v)
{
    char b[20];
    size_t n = 0;
    uint64_t key = (uint64_t)field << 3;
    for (int k = 0; k < 2; k++) {
        uint64_t x = k ? v : key;
        do {
            b[n++] = (char)((x & 127) | (x > 127 ? 128 : 0));
            x >>= 7;
        } while (x);
    }
    pl_str_addn(s, b, n);
}

void put_bytes(pl_str *s, int field, const void *data, size_t len)
{
    pl_str head = PL_STR_INIT;
    put_number(&head, field, len);
    head.text[0] = (char)(head.text[0] | 2); /* length-delimited; field numbers are below 16 */
    pl_str_addn(s, head.text, head.len);
    pl_str_addn(s, data, len);
    pl_str_release(&head);
}

void put_text(pl_str *s, int field, const char *text)
{
    put_bytes(s, field, text, strlen(text));
}

void put_message(pl_str *s, int field, pl_str *m)
{
    put_bytes(s, field, m->text ? m->text : "", m->len);
    pl_str_release(m);
}

void put_floats(pl_str *graph, int field, const char *name, int rank, const int64_t *dim)
{
    pl_str shape = PL_STR_INIT, tensor = PL_STR_INIT, type = PL_STR_INIT, info = PL_STR_INIT;
    for (int i = 0; i < rank; i++) {
        pl_str d = PL_STR_INIT;
        put_number(&d, 1, (uint64_t)dim[i]);
        put_message(&shape, 1, &d);
    }
    put_number(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(graph, field, &info);
}

pl_str model_of(pl_str *graph)
{
    pl_str m = PL_STR_INIT, opset = PL_STR_INIT;
    put_number(&m, 1, 8);
    put_message(&m, 7, graph);
    put_number(&opset, 2, 17);
    put_message(&m, 8, &opset);
    return m;
}
