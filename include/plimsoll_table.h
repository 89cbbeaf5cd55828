/* plimsoll_table.h - tables of text files: CSV with a header line.
 *
 *     age,city,price          names of the columns
 *     31,Oslo,1200.5          one row per line; fields may be quoted: "a, ""b"""
 *
 * The separator is the comma, semicolon or tab, whichever is most frequent in the header. Lines end
 * with LF or CRLF; empty lines are skipped; a byte-order mark is skipped. Every row must have as
 * many fields as the header. Problems are PL_ERR_DATA with file and line.
 */
#ifndef PLIMSOLL_TABLE_H
#define PLIMSOLL_TABLE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_table pl_table;

/* Reads the whole file. Two columns with the same name are an error. */
PL_API pl_status pl_table_open(const char *path, pl_table **out) PL_MUST_USE;
PL_API void pl_table_close(pl_table *t);
PL_API int pl_table_columns(const pl_table *t);
PL_API int64_t pl_table_rows(const pl_table *t);
PL_API const char *pl_table_name(const pl_table *t, int column);
PL_API int pl_table_find(const pl_table *t, const char *name); /* -1: no such column */
/* A field without its quotes and without spaces around it; borrowed. */
PL_API const char *pl_table_text(const pl_table *t, int64_t row, int column);
/* Returns whether the field is a finite number, and sets *out to the number. The decimal point is
 * '.'. */
PL_API bool pl_table_number(const pl_table *t, int64_t row, int column, double *out);
/* Line of the file in which the row begins, for messages. */
PL_API int64_t pl_table_line(const pl_table *t, int64_t row);

#ifdef __cplusplus
}
#endif
#endif
