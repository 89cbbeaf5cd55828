/* proto_write.h - a small writer of protobuf messages, for models that tests make. Field numbers
 * are below 16, but for numbers. */
#ifndef PL_TESTS_PROTO_WRITE_H
#define PL_TESTS_PROTO_WRITE_H

#include "base/str.h"

void put_number(pl_str *s, int field, uint64_t v);
void put_bytes(pl_str *s, int field, const void *data, size_t len);
void put_text(pl_str *s, int field, const char *text);
/* Writes the message m and releases it. */
void put_message(pl_str *s, int field, pl_str *m);
/* An input (field 11) or output (field 12) of a graph, of floats. */
void put_floats(pl_str *graph, int field, const char *name, int rank, const int64_t *dim);
/* The model of a graph, opset 17; graph is released. */
pl_str model_of(pl_str *graph);

#endif
