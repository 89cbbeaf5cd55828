/* token_file.c - files of token numbers: see plimsoll_tokens.h. */
#include "base/sys.h"
#include "io/file.h"
#include "plimsoll_tokens.h"

#include <string.h>

enum { HEADER = 1024, MAGIC_2 = 20240520, MAGIC_4 = 20240801 };

struct pl_token_file {
    pl_file file;
    uint64_t first; /* bytes before the first token */
    int64_t count, limit;
    int width;
    char path[1]; /* longer */
};

static uint32_t number_at(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << (8 * i);
    return v;
}

/* Finds where tokens begin, how wide they are, and how many there are. */
static pl_status measure(pl_token_file *f)
{
    uint8_t head[12];
    unsigned long long size = f->file.size;
    if (size >= HEADER) {
        PL_TRY(pl_file_read(&f->file, 0, sizeof head, head));
        uint32_t magic = number_at(head, 4);
        if (magic == MAGIC_2 || magic == MAGIC_4) {
            f->width = magic == MAGIC_2 ? 2 : 4;
            f->first = HEADER;
            f->count = number_at(head + 8, 4);
            PL_FAIL_IF((uint64_t)f->count * (uint64_t)f->width > size - HEADER, PL_ERR_DATA,
                       "%s: its header counts %lld tokens of %d bytes, but the file has %llu "
                       "bytes: it is cut off",
                       f->path, (long long)f->count, f->width, size);
            return PL_OK;
        }
    }
    PL_FAIL_IF(size % (unsigned)f->width, PL_ERR_DATA,
               "%s has %llu bytes, which is not a whole number of tokens of %d bytes", f->path,
               size, f->width);
    f->count = (int64_t)(size / (unsigned)f->width);
    return PL_OK;
}

pl_status pl_token_file_open(const char *path, int width, int64_t limit, pl_token_file **out)
{
    PL_FAIL_IF((width != 2 && width != 4) || limit < 1 || limit > (int64_t)1 << 31, PL_ERR_ARG,
               "%s: tokens of %d bytes below %lld; tokens have 2 or 4 bytes and are below 2^31",
               path, width, (long long)limit);
    pl_token_file *f = pl_sys_alloc(sizeof *f + strlen(path));
    if (!f) return PL_ERR_MEMORY;
    *f = (pl_token_file){.file = PL_FILE_NONE, .limit = limit, .width = width};
    strcpy(f->path, path);
    pl_status rc = pl_file_open(f->path, PL_ERR_DATA, &f->file);
    if (rc == PL_OK) rc = measure(f);
    if (rc == PL_OK)
        *out = f;
    else
        pl_token_file_close(f);
    return rc;
}

void pl_token_file_close(pl_token_file *f)
{
    if (!f) return;
    pl_file_close(&f->file);
    pl_sys_free(f);
}

int64_t pl_token_file_count(const pl_token_file *f)
{
    return f->count;
}

int pl_token_file_width(const pl_token_file *f)
{
    return f->width;
}

/* Tokens of 2 bytes are read into the second half of their place and widened from the front: a
 * token is written behind itself only after it was read. */
pl_status pl_token_file_read(const pl_token_file *f, int64_t at, int64_t n, int32_t *to)
{
    PL_FAIL_IF(at < 0 || n < 0 || at > f->count - n, PL_ERR_ARG,
               "%s has %lld tokens; %lld tokens from number %lld on were requested", f->path,
               (long long)f->count, (long long)n, (long long)at);
    size_t width = (size_t)f->width, bytes = (size_t)n * width;
    uint8_t *raw = (uint8_t *)to + ((size_t)n * sizeof *to - bytes);
    PL_TRY(pl_file_read(&f->file, f->first + (uint64_t)at * width, bytes, raw));
    for (int64_t i = 0; i < n; i++) {
        uint32_t v = number_at(raw + (size_t)i * width, f->width);
        PL_FAIL_IF(v >= (uint64_t)f->limit, PL_ERR_DATA,
                   "%s: token %lld is %lu, but the vocabulary has %lld tokens", f->path,
                   (long long)(at + i), (unsigned long)v, (long long)f->limit);
        to[i] = (int32_t)v;
    }
    return PL_OK;
}
