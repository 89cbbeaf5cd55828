/* plimsoll_json.h - a small JSON writer, for output that other programs read.
 *
 * The writer adds commas, quotes and escapes. It writes to a stream or into memory. In an object
 * every value has a key; in an array, and at the top, key is NULL. Errors (memory, a failed write,
 * ends that do not match) are sticky; pl_json_finish reports them.
 *
 *     pl_json *j = pl_json_new(stdout);
 *     pl_json_object(j, NULL);
 *     pl_json_int(j, "step", 12);
 *     pl_json_float(j, "loss", 0.25);       {"step":12,"loss":0.25}
 *     pl_json_end(j);
 *     if (pl_json_finish(j) != PL_OK) ...
 *     pl_json_free(j);
 */
#ifndef PLIMSOLL_JSON_H
#define PLIMSOLL_JSON_H

#include "plimsoll.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_json pl_json;

/* out NULL: the text is kept in memory, see pl_json_text. Returns NULL when memory runs out; every
 * function accepts NULL. */
PL_API pl_json *pl_json_new(FILE *out);
PL_API void pl_json_free(pl_json *j);

PL_API void pl_json_object(pl_json *j, const char *key); /* opens {...}; closed by pl_json_end */
PL_API void pl_json_array(pl_json *j, const char *key);  /* opens [...]; closed by pl_json_end */
PL_API void pl_json_end(pl_json *j);

PL_API void pl_json_int(pl_json *j, const char *key, int64_t v);
PL_API void pl_json_uint(pl_json *j, const char *key, uint64_t v);
/* Writes the fewest digits that read back to the same double; NaN and infinities become null. */
PL_API void pl_json_float(pl_json *j, const char *key, double v);
PL_API void pl_json_bool(pl_json *j, const char *key, bool v);
PL_API void pl_json_string(pl_json *j, const char *key, const char *v); /* NULL: null */
PL_API void pl_json_null(pl_json *j, const char *key);

/* Ends the document with a newline and flushes the stream. Further values start the next document:
 * one object per line. */
PL_API pl_status pl_json_finish(pl_json *j) PL_MUST_USE;
/* Returns the text so far when there is no stream, else ""; borrowed until the next call. */
PL_API const char *pl_json_text(const pl_json *j);

#ifdef __cplusplus
}
#endif
#endif
