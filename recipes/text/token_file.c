/* token_file.c - a file of token numbers (data.tokens): a text that another program has tokenised
 * once.
 *
 * The file has numbers of 2 or 4 bytes (data.token_bytes), little-endian, one behind the other. A
 * file of llm.c begins with 256 numbers of 4 bytes: a magic number, a version, the number of
 * tokens, zeros; its magic number says how wide tokens are. Tokens are read where a sample needs
 * them: a file of any size takes no memory. A token that the vocabulary does not have is an error
 * with its place.
 */
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 1024, MAGIC_2 = 20240520, MAGIC_4 = 20240801, PIECE = 4096 };

struct text_token_file {
    int fd, bytes; /* of a token */
    int64_t first, count, vocabulary;
    char path[1]; /* longer */
};

static uint32_t number_at(const unsigned char *p, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << (8 * i);
    return v;
}

static pl_status read_at(const text_token_file *f, void *to, size_t n, int64_t at)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(f->fd, (char *)to + got, n - got, (off_t)at + (off_t)got);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return pl_fail(PL_ERR_DATA, "data.tokens %s: %s", f->path,
                           k < 0 ? strerror(errno) : "it became shorter while it was read");
        got += (size_t)k;
    }
    return PL_OK;
}

/* Finds where tokens begin, how wide they are, and how many there are. */
static pl_status measure(text_token_file *f, int64_t bytes, int width)
{
    unsigned char head[12];
    f->bytes = width;
    if (bytes >= HEADER) {
        pl_status rc = read_at(f, head, sizeof head, 0);
        if (rc != PL_OK) return rc;
        uint32_t magic = number_at(head, 4);
        if (magic == MAGIC_2 || magic == MAGIC_4) {
            f->bytes = magic == MAGIC_2 ? 2 : 4;
            f->first = HEADER;
            f->count = number_at(head + 8, 4);
            if (f->first + f->count * f->bytes <= bytes) return PL_OK;
            return pl_fail(
                PL_ERR_DATA,
                "data.tokens %s: its header counts %lld tokens of %d bytes, but the file "
                "has %lld bytes: it is cut off",
                f->path, (long long)f->count, f->bytes, (long long)bytes);
        }
    }
    if (bytes % width)
        return pl_fail(PL_ERR_DATA,
                       "data.tokens %s has %lld bytes, which are no whole tokens of %d bytes: "
                       "set data.token_bytes to 2 or 4 as the file was written",
                       f->path, (long long)bytes, width);
    f->count = bytes / width;
    return PL_OK;
}

pl_status text_token_file_open(const pl_config *c, int64_t vocabulary, text_token_file **out)
{
    const char *path = pl_config_text(c, "data.tokens");
    struct stat st;
    text_token_file *f = calloc(1, sizeof *f + strlen(path));
    if (!f) return PL_ERR_MEMORY;
    strcpy(f->path, path);
    f->vocabulary = vocabulary;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    pl_status rc = PL_OK;
    if (f->fd < 0 || fstat(f->fd, &st) != 0)
        rc = pl_fail(PL_ERR_DATA, "data.tokens %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = pl_fail(PL_ERR_DATA, "data.tokens %s is not a file", path);
    else
        rc = measure(f, (int64_t)st.st_size, (int)pl_config_int(c, "data.token_bytes"));
    if (rc != PL_OK)
        text_token_file_close(f);
    else
        *out = f;
    return rc;
}

void text_token_file_close(text_token_file *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    free(f);
}

int64_t text_token_file_count(const text_token_file *f)
{
    return f->count;
}

pl_status text_token_file_read(const text_token_file *f, int64_t at, int64_t n, int32_t *to)
{
    unsigned char piece[PIECE];
    int64_t most = PIECE / f->bytes;
    for (int64_t done = 0; done < n;) {
        int64_t k = n - done < most ? n - done : most;
        pl_status rc = read_at(f, piece, (size_t)(k * f->bytes), f->first + (at + done) * f->bytes);
        if (rc != PL_OK) return rc;
        for (int64_t i = 0; i < k; i++) {
            uint32_t v = number_at(piece + i * f->bytes, f->bytes);
            if (v >= (uint64_t)f->vocabulary)
                return pl_fail(PL_ERR_DATA,
                               "data.tokens %s: token %lld is %lu, but the vocabulary has %lld "
                               "tokens: check data.vocabulary, model.vocabulary and "
                               "data.token_bytes (%d)",
                               f->path, (long long)(at + done + i), (unsigned long)v,
                               (long long)f->vocabulary, f->bytes);
            to[done + i] = (int32_t)v;
        }
        done += k;
    }
    return PL_OK;
}
