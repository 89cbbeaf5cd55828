/* encode.h - fields of protobuf messages, appended to a text buffer. */
#ifndef PL_ONNX_ENCODE_H
#define PL_ONNX_ENCODE_H

#include "base/str.h"

void pl_ow_put_int(pl_str *s, int field, int64_t v);
void pl_ow_put_float(pl_str *s, int field, float v);
void pl_ow_put_bytes(pl_str *s, int field, const void *data, size_t len);
void pl_ow_put_text(pl_str *s, int field, const char *text);
/* The tag and the length of a field of `len` bytes that follow. */
void pl_ow_put_head(pl_str *s, int field, uint64_t len);
/* Appends the message m and releases it. */
void pl_ow_put_message(pl_str *s, int field, pl_str *m);

#endif
