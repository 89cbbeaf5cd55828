/* tar.c - see tar.h. */
#include "data/sets/tar.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 512 };

static pl_status open_plain(const char *path, int *fd, uint64_t *size)
{
    struct stat st;
    *fd = pl_sys_open(path, O_RDONLY, 0);
    PL_FAIL_IF(*fd < 0, PL_ERR_DATA, "%s: %s", path, strerror(errno));
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        *fd = -1;
        PL_FAIL(PL_ERR_DATA, "%s is not a plain file", path);
    }
    *size = (uint64_t)st.st_size;
    return PL_OK;
}

pl_status pl_tar_open(const char *path, pl_tar *t)
{
    *t = (pl_tar){.path = path, .fd = -1};
    return open_plain(path, &t->fd, &t->size);
}

void pl_tar_rest(pl_tar *t)
{
    pl_tar_close(t);
}

void pl_tar_open_memory(const void *data, size_t n, pl_tar *t)
{
    *t = (pl_tar){.path = "memory", .fd = -1, .memory = data, .size = n};
}

void pl_tar_close(pl_tar *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}

static pl_status read_all(const pl_tar *t, int fd, uint64_t offset, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        PL_FAIL_IF(n <= 0, PL_ERR_DATA, "%s: %s", t->path,
                   n ? strerror(errno) : "the file is cut off");
        done += (size_t)n;
    }
    return PL_OK;
}

pl_status pl_tar_read(const pl_tar *t, uint64_t offset, void *to, size_t bytes)
{
    PL_FAIL_IF(offset > t->size || bytes > t->size - offset, PL_ERR_DATA,
               "%s ends at byte %llu, inside a member", t->path, (unsigned long long)t->size);
    if (t->memory) {
        memcpy(to, t->memory + offset, bytes);
        return PL_OK;
    }
    if (t->fd >= 0) return read_all(t, t->fd, offset, to, bytes);
    uint64_t size;
    int fd;
    PL_TRY(open_plain(t->path, &fd, &size));
    pl_status rc = size == t->size ? read_all(t, fd, offset, to, bytes) : PL_OK;
    close(fd);
    PL_FAIL_IF(size != t->size, PL_ERR_DATA, "%s has changed: it had %llu bytes, now it has %llu",
               t->path, (unsigned long long)t->size, (unsigned long long)size);
    return rc;
}

/* Octal text, or base 256 when the first bit is set; false when it is neither. */
static bool number(const uint8_t *f, int n, uint64_t *out)
{
    uint64_t v = 0;
    int i = 0;
    if (f[0] & 0x80) {
        for (i = 0; i < n; i++) {
            uint8_t b = i ? f[i] : f[i] & 0x3f;
            if (v >> 55) return false;
            v = v << 8 | b;
        }
        *out = v;
        return (f[0] & 0x40) == 0;
    }
    while (i < n && f[i] == ' ') i++;
    for (; i < n && f[i] >= '0' && f[i] <= '7'; i++) v = v << 3 | (uint64_t)(f[i] - '0');
    *out = v;
    return i == n || f[i] == 0 || f[i] == ' ';
}

static bool sum_is_right(const uint8_t *h)
{
    uint64_t told, sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : h[i];
    return number(h + 148, 8, &told) && told == sum;
}

static bool is_zero(const uint8_t *h)
{
    for (int i = 0; i < BLOCK; i++)
        if (h[i]) return false;
    return true;
}

static void header_name(const uint8_t *h, char *to)
{
    size_t n = 0;
    if (memcmp(h + 257, "ustar", 5) == 0 && h[345] && memcmp(h + 257, "ustar  ", 7) != 0) {
        n = strnlen((const char *)h + 345, 155);
        memcpy(to, h + 345, n);
        to[n++] = '/';
    }
    size_t m = strnlen((const char *)h, 100);
    memcpy(to + n, h, m);
    to[n + m] = 0;
}

/* What extended headers say of the next member. */
typedef struct extra {
    char name[PL_TAR_NAME];
    bool has_name, has_size;
    uint64_t size;
} extra;

/* Records of a pax header: "LENGTH KEY=VALUE\n". */
static pl_status read_pax(const pl_tar *t, const char *text, size_t n, extra *x)
{
    for (size_t at = 0; at < n;) {
        size_t len = 0, i = at;
        while (i < n && text[i] >= '0' && text[i] <= '9' && len < n)
            len = 10 * len + (size_t)(text[i++] - '0');
        PL_FAIL_IF(i >= n || text[i] != ' ' || len > n - at || len < i + 2 - at, PL_ERR_DATA,
                   "%s: a pax header before byte %llu is corrupt", t->path,
                   (unsigned long long)t->at);
        const char *rec = text + i + 1;
        size_t m = at + len - (i + 1);
        if (m > 0 && rec[m - 1] == '\n') m--;
        if (m > 5 && memcmp(rec, "path=", 5) == 0 && m - 5 < sizeof x->name) {
            memcpy(x->name, rec + 5, m - 5);
            x->name[m - 5] = 0;
            x->has_name = true;
        }
        if (m > 5 && memcmp(rec, "size=", 5) == 0) {
            x->size = 0;
            for (size_t k = 5; k < m && rec[k] >= '0' && rec[k] <= '9' && x->size < t->size; k++)
                x->size = 10 * x->size + (uint64_t)(rec[k] - '0');
            x->has_size = true;
        }
        at += len;
    }
    return PL_OK;
}

enum { TEXT = 2 * PL_TAR_NAME }; /* bytes of an extended header that are read */

/* text has room for TEXT bytes. */
static pl_status parse_extra(const pl_tar *t, char type, uint64_t offset, uint64_t bytes,
                             char *text, extra *x)
{
    size_t n = bytes < TEXT ? (size_t)bytes : TEXT - 1;
    PL_TRY(pl_tar_read(t, offset, text, n));
    if (type == 'L') {
        if (n >= sizeof x->name) n = sizeof x->name - 1;
        memcpy(x->name, text, n);
        x->name[n] = 0;
        x->has_name = true;
        return PL_OK;
    }
    PL_FAIL_IF(bytes >= TEXT, PL_ERR_DATA, "%s: a pax header of %llu bytes", t->path,
               (unsigned long long)bytes);
    return read_pax(t, text, n, x);
}

static pl_status read_extra(const pl_tar *t, char type, uint64_t offset, uint64_t bytes, extra *x)
{
    char *text = pl_sys_alloc(TEXT);
    if (!text) return PL_ERR_MEMORY;
    pl_status rc = parse_extra(t, type, offset, bytes, text, x);
    pl_sys_free(text);
    return rc;
}

pl_status pl_tar_next(pl_tar *t, pl_tar_member *m, bool *more)
{
    extra x = {.has_name = false};
    for (*more = false; t->size - t->at >= BLOCK;) {
        uint8_t h[BLOCK];
        uint64_t bytes;
        PL_TRY(pl_tar_read(t, t->at, h, BLOCK));
        if (is_zero(h)) return PL_OK;
        PL_FAIL_IF(!sum_is_right(h) || !number(h + 124, 12, &bytes), PL_ERR_DATA,
                   "%s: no tar header at byte %llu", t->path, (unsigned long long)t->at);
        char type = (char)h[156];
        bool extends = type == 'x' || type == 'L';
        if (!extends && type != 'g' && x.has_size) bytes = x.size;
        uint64_t offset = t->at + BLOCK;
        PL_FAIL_IF(bytes > t->size - offset, PL_ERR_DATA,
                   "%s: the member at byte %llu has %llu bytes, the file ends before", t->path,
                   (unsigned long long)t->at, (unsigned long long)bytes);
        uint64_t end = offset + (bytes + BLOCK - 1) / BLOCK * BLOCK;
        if (extends) PL_TRY(read_extra(t, type, offset, bytes, &x));
        t->at = end < t->size ? end : t->size;
        if (extends || type == 'g') continue;
        header_name(h, m->name);
        if (x.has_name) memcpy(m->name, x.name, sizeof m->name);
        m->offset = offset;
        m->bytes = bytes;
        m->file = type == '0' || type == 0;
        *more = true;
        return PL_OK;
    }
    return PL_OK;
}
