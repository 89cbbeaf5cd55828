/* token_windows.c - see token_windows.h. */
#include "data/sets/token_windows.h"

#include "base/sys.h"
#include "plimsoll_tokens.h"

#include <string.h>

struct pl_token_windows {
    pl_token_file *file;
    pl_dtype dtype;
    int64_t n; /* tokens of a row */
};

static pl_status check_length(const pl_token_windows *w, const char *path)
{
    PL_FAIL_IF(w->n < 2 || pl_token_windows_rows(w) < 1, PL_ERR_DATA,
               "%s has %lld tokens; a sample has %lld", path,
               (long long)pl_token_file_count(w->file), (long long)w->n);
    return PL_OK;
}

pl_status pl_token_windows_open(const char *path, const char *field, const pl_type *sample,
                                pl_token_windows **out)
{
    PL_FAIL_IF(sample->rank != 1 || (sample->dtype != PL_I32 && sample->dtype != PL_I64),
               PL_ERR_DATA, "%s has tokens: its input has one row of whole numbers per sample",
               path);
    pl_token_windows *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    *w = (pl_token_windows){.dtype = sample->dtype, .n = sample->dim[0]};
    pl_status rc =
        pl_token_file_open(path, strcmp(field, "u32") == 0 ? 4 : 2, (int64_t)1 << 31, &w->file);
    if (rc == PL_OK) rc = check_length(w, path);
    if (rc == PL_OK)
        *out = w;
    else
        pl_token_windows_close(w);
    return rc;
}

void pl_token_windows_close(pl_token_windows *w)
{
    if (!w) return;
    pl_token_file_close(w->file);
    pl_sys_free(w);
}

int64_t pl_token_windows_rows(const pl_token_windows *w)
{
    int64_t tokens = pl_token_file_count(w->file);
    return tokens ? (tokens - 1) / (w->n - 1) : 0;
}

pl_status pl_token_windows_read(const pl_token_windows *w, int64_t row, void *to)
{
    PL_TRY(pl_token_file_read(w->file, row * (w->n - 1), w->n, to));
    /* the last token first, because a wider token covers the places of two */
    for (int64_t i = w->n - 1; w->dtype == PL_I64 && i >= 0; i--) {
        int32_t token;
        memcpy(&token, (const char *)to + (size_t)i * sizeof token, sizeof token);
        ((int64_t *)to)[i] = token;
    }
    return PL_OK;
}
