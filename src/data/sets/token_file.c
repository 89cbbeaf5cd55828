/* token_file.c - see token_file.h. A row is read into its place and widened there, from its end. */
#include "data/sets/token_file.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "io/file.h"

#include <string.h>

struct pl_token_file {
    pl_file file;
    char *path;
    pl_dtype dtype;
    size_t width; /* bytes per token */
    int64_t n;    /* tokens of a row */
    int64_t rows;
    uint64_t first; /* bytes before the first token */
};

enum { HEADER = 1024, MAGIC_U16 = 20240520, MAGIC_U32 = 20240801 };

static uint32_t number_at(const uint8_t *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Skips the header of llm.c, where there is one. */
static pl_status read_header(pl_token_file *t, uint64_t *bytes)
{
    uint8_t head[12];
    *bytes = t->file.size;
    if (t->file.size < HEADER) return PL_OK;
    PL_TRY(pl_file_read(&t->file, 0, sizeof head, head));
    uint32_t magic = number_at(head);
    if (magic != MAGIC_U16 && magic != MAGIC_U32) return PL_OK;
    t->width = magic == MAGIC_U16 ? 2 : 4;
    t->first = HEADER;
    *bytes = (uint64_t)number_at(head + 8) * t->width;
    PL_FAIL_IF(*bytes > t->file.size - HEADER, PL_ERR_DATA,
               "%s: its header counts %u tokens of %zu bytes, but the file has %llu bytes: it is "
               "cut off",
               t->path, number_at(head + 8), t->width, (unsigned long long)t->file.size);
    return PL_OK;
}

static pl_status open_file(pl_token_file *t)
{
    PL_TRY(pl_file_open(t->path, PL_ERR_DATA, &t->file));
    uint64_t bytes;
    PL_TRY(read_header(t, &bytes));
    int64_t tokens = (int64_t)(bytes / t->width);
    PL_FAIL_IF(bytes % t->width, PL_ERR_DATA,
               "%s has %llu bytes, which is not a whole number of tokens of %zu bytes", t->path,
               (unsigned long long)bytes, t->width);
    t->rows = t->n > 1 ? (tokens - 1) / (t->n - 1) : 0;
    PL_FAIL_IF(t->rows < 1, PL_ERR_DATA, "%s has %lld tokens; a sample has %lld", t->path,
               (long long)tokens, (long long)t->n);
    return PL_OK;
}

pl_status pl_token_file_open(const char *path, const char *field, const pl_type *sample,
                             pl_token_file **out)
{
    size_t bytes = strlen(path) + 1;
    PL_FAIL_IF(sample->rank != 1 || (sample->dtype != PL_I32 && sample->dtype != PL_I64),
               PL_ERR_DATA, "%s has tokens: its input has one row of whole numbers per sample",
               path);
    pl_token_file *t = pl_sys_alloc(sizeof *t + bytes);
    if (!t) return PL_ERR_MEMORY;
    *t = (pl_token_file){.file = PL_FILE_NONE,
                         .path = memcpy(t + 1, path, bytes),
                         .dtype = sample->dtype,
                         .width = strcmp(field, "u32") == 0 ? 4 : 2,
                         .n = sample->dim[0]};
    pl_status rc = open_file(t);
    if (rc == PL_OK)
        *out = t;
    else
        pl_token_file_close(t);
    return rc;
}

void pl_token_file_close(pl_token_file *t)
{
    if (!t) return;
    pl_file_close(&t->file);
    pl_sys_free(t);
}

int64_t pl_token_file_rows(const pl_token_file *t)
{
    return t->rows;
}

pl_status pl_token_file_read(const pl_token_file *t, int64_t row, void *to)
{
    uint64_t at = t->first + (uint64_t)row * (uint64_t)(t->n - 1) * t->width;
    PL_TRY(pl_file_read(&t->file, at, (size_t)t->n * t->width, to));
    const uint8_t *bytes = to;
    for (int64_t i = t->n - 1; i >= 0; i--) {
        const uint8_t *b = bytes + (size_t)i * t->width;
        uint32_t v = b[0] | (uint32_t)b[1] << 8;
        if (t->width == 4) v |= (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        PL_FAIL_IF(v > INT32_MAX, PL_ERR_DATA, "%s: token %lld is %u", t->path,
                   (long long)(row * (t->n - 1) + i), v);
        if (t->dtype == PL_I64)
            ((int64_t *)to)[i] = (int64_t)v;
        else
            ((int32_t *)to)[i] = (int32_t)v;
    }
    return PL_OK;
}
