/* file.c - see file.h.
 *
 * The writer collects small pieces in its own buffer; pieces as large as the buffer go directly to
 * the file. The temporary file is created with O_EXCL under path.tmp-PID-N, so two writers, or the
 * remains of a killed one, never share a file.
 */
#define XXH_STATIC_LINKING_ONLY /* the state of a hash inside another struct */
#include "io/file.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { BUFFER_BYTES = 1 << 16, TEMP_TRIES = 100 };

pl_status pl_file_open(const char *path, pl_status bad, pl_file *out)
{
    int fd = pl_sys_open(path, O_RDONLY, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_IO, "cannot open %.300s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        PL_FAIL(bad, "%.300s is not a regular file", path);
    }
    *out = (pl_file){.name = path, .size = (uint64_t)st.st_size, .fd = fd, .bad = bad};
    return PL_OK;
}

void pl_file_open_memory(const void *data, size_t len, const char *name, pl_status bad,
                         pl_file *out)
{
    *out = (pl_file){.name = name, .mem = data, .size = len, .fd = -1, .bad = bad};
}

void pl_file_close(pl_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

pl_status pl_file_read(const pl_file *f, uint64_t offset, size_t bytes, void *dst)
{
    PL_FAIL_IF(offset > f->size || bytes > f->size - offset, f->bad,
               "%.200s: a read at byte %llu of %zu bytes goes past its end (%llu bytes)", f->name,
               (unsigned long long)offset, bytes, (unsigned long long)f->size);
    if (f->fd < 0) {
        if (bytes) memcpy(dst, f->mem + offset, bytes);
        return PL_OK;
    }
    for (size_t n = 0; n < bytes;) {
        ssize_t r = pread(f->fd, (char *)dst + n, bytes - n, (off_t)(offset + n));
        if (r < 0 && errno == EINTR) continue;
        PL_FAIL_IF(r < 0, PL_ERR_IO, "cannot read %.200s: %s", f->name, strerror(errno));
        PL_FAIL_IF(r == 0, f->bad,
                   "%.200s was cut short while open: it had %llu bytes, now it ends at %llu",
                   f->name, (unsigned long long)f->size, (unsigned long long)(offset + n));
        n += (size_t)r;
    }
    return PL_OK;
}

struct pl_file_writer {
    char *path, *temp; /* both in the same block as the struct */
    int fd;
    bool failed, committed, summed;
    uint64_t bytes, sum_at; /* offset of the checksum's digits, where summed */
    XXH64_state_t hash;
    size_t used; /* bytes waiting in buffer */
    char buffer[BUFFER_BYTES];
};

pl_status pl_file_writer_new(const char *path, pl_file_writer **out)
{
    char real[PATH_MAX];
    PL_TRY(pl_sys_target(&path, real));
    size_t n = strlen(path) + 1, suffix = 48;
    pl_file_writer *w = pl_sys_alloc(sizeof *w + 2 * n + suffix);
    if (!w) return PL_ERR_MEMORY;
    w->path = (char *)(w + 1);
    w->temp = w->path + n;
    memcpy(w->path, path, n);
    XXH64_reset(&w->hash, 0);
    w->fd = -1;
    for (int i = 0; i < TEMP_TRIES && w->fd < 0; i++) {
        snprintf(w->temp, n + suffix, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        w->fd = pl_sys_open(w->temp, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (w->fd < 0 && errno != EEXIST) break;
    }
    if (w->fd < 0) {
        int err = errno;
        pl_sys_free(w);
        PL_FAIL(PL_ERR_IO, "cannot write %.300s: %s", path, strerror(err));
    }
    *out = w;
    return PL_OK;
}

static pl_status write_all(pl_file_writer *w, const char *data, size_t bytes)
{
    for (size_t n = 0; n < bytes;) {
        ssize_t r = write(w->fd, data + n, bytes - n);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            w->failed = true;
            PL_FAIL(PL_ERR_IO, "cannot write %.300s: %s", w->path, strerror(errno));
        }
        n += (size_t)r;
    }
    return PL_OK;
}

static pl_status flush_buffer(pl_file_writer *w)
{
    size_t n = w->used;
    w->used = 0;
    return write_all(w, w->buffer, n);
}

pl_status pl_file_writer_write(pl_file_writer *w, const void *data, size_t bytes)
{
    PL_FAIL_IF(w->failed, PL_ERR_IO, "%.300s: an earlier write failed", w->path);
    if (bytes == 0) return PL_OK;
    XXH64_update(&w->hash, data, bytes);
    w->bytes += bytes;
    if (bytes > sizeof w->buffer - w->used) PL_TRY(flush_buffer(w));
    if (bytes >= sizeof w->buffer) return write_all(w, data, bytes);
    memcpy(w->buffer + w->used, data, bytes);
    w->used += bytes;
    return PL_OK;
}

uint64_t pl_file_writer_bytes(const pl_file_writer *w)
{
    return w->bytes;
}

uint64_t pl_file_writer_hash(const pl_file_writer *w)
{
    return XXH64_digest(&w->hash);
}

void pl_file_writer_sum_at(pl_file_writer *w, uint64_t offset)
{
    w->summed = true;
    w->sum_at = offset;
}

static pl_status write_sum(pl_file_writer *w)
{
    char digits[PL_SUM_DIGITS + 1];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)pl_file_writer_hash(w));
    for (size_t n = 0; n < PL_SUM_DIGITS;) {
        ssize_t r = pwrite(w->fd, digits + n, PL_SUM_DIGITS - n, (off_t)(w->sum_at + n));
        if (r < 0 && errno == EINTR) continue;
        w->failed = r < 0;
        PL_FAIL_IF(r < 0, PL_ERR_IO, "cannot write %.300s: %s", w->path, strerror(errno));
        n += (size_t)r;
    }
    return PL_OK;
}

pl_status pl_file_writer_commit(pl_file_writer *w)
{
    PL_FAIL_IF(w->failed, PL_ERR_IO, "%.300s: an earlier write failed", w->path);
    PL_TRY(flush_buffer(w));
    if (w->summed) PL_TRY(write_sum(w));
    int err = fsync(w->fd) != 0 ? errno : 0;
    if (close(w->fd) != 0 && !err) err = errno;
    w->fd = -1;
    w->failed = true; /* from here on nothing more can be written, even if the code below fails */
    if (!err && rename(w->temp, w->path) != 0) err = errno;
    PL_FAIL_IF(err, PL_ERR_IO, "cannot write %.300s: %s", w->path, strerror(err));
    w->committed = true;
    pl_sys_sync_folder(w->path);
    return PL_OK;
}

void pl_file_writer_free(pl_file_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (!w->committed) unlink(w->temp);
    pl_sys_free(w);
}

pl_status pl_file_copy(const char *from, const char *to, void *buffer, size_t cap)
{
    pl_file in = PL_FILE_NONE;
    pl_file_writer *w = NULL;
    PL_TRY(pl_file_open(from, PL_ERR_FILE, &in));
    pl_status rc = pl_file_writer_new(to, &w);
    for (uint64_t at = 0; at < in.size && rc == PL_OK;) {
        size_t n = in.size - at < cap ? (size_t)(in.size - at) : cap;
        rc = pl_file_read(&in, at, n, buffer);
        if (rc == PL_OK) rc = pl_file_writer_write(w, buffer, n);
        at += n;
    }
    if (rc == PL_OK) rc = pl_file_writer_commit(w);
    pl_file_writer_free(w);
    pl_file_close(&in);
    return rc;
}
