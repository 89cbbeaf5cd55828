/* token_windows.h - a file of token numbers (pl_token_file) as windows of equal length.
 *
 * Tokens of a file without a header have 2 bytes, or 4 where the field is "u32". Row i of windows
 * of n + 1 tokens begins at token i * n: its last token is the first of the next row, so that every
 * token but the first is a target once.
 */
#ifndef PL_DATA_TOKEN_WINDOWS_H
#define PL_DATA_TOKEN_WINDOWS_H

#include "base/err.h"

typedef struct pl_token_windows pl_token_windows;

/* sample: type of a row, i32 or i64 [n + 1]. PL_ERR_DATA: the file has no whole window. */
pl_status pl_token_windows_open(const char *path, const char *field, const pl_type *sample,
                                pl_token_windows **out) PL_MUST_USE;
void pl_token_windows_close(pl_token_windows *w);
int64_t pl_token_windows_rows(const pl_token_windows *w);
pl_status pl_token_windows_read(const pl_token_windows *w, int64_t row, void *to) PL_MUST_USE;

#endif
