/* token_file.h - a file of token numbers, one after the other, as windows of equal length.
 *
 * 16 bits per token, or 32 bits where the field is "u32", little-endian. A file of llm.c begins
 * with 256 numbers of 32 bits: a magic number, which says how wide tokens are, a version, the
 * number of tokens, zeros; the field does not count. Row i of windows of n + 1 tokens begins at
 * token i * n: its last token is the first of the next row, so that every token but the first is a
 * target once.
 */
#ifndef PL_DATA_TOKEN_FILE_H
#define PL_DATA_TOKEN_FILE_H

#include "base/err.h"

typedef struct pl_token_file pl_token_file;

/* sample: type of a row, i32 or i64 [n + 1]. PL_ERR_DATA: the file has no whole window. */
pl_status pl_token_file_open(const char *path, const char *field, const pl_type *sample,
                             pl_token_file **out) PL_MUST_USE;
void pl_token_file_close(pl_token_file *t);
int64_t pl_token_file_rows(const pl_token_file *t);
pl_status pl_token_file_read(const pl_token_file *t, int64_t row, void *to) PL_MUST_USE;

#endif
