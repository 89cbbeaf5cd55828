/* levels.c - see levels.h.
 *
 * The host block comes from the device, which pins it. The file is made without a name where the
 * file system can (O_TMPFILE), else its name is removed at once; its blocks are reserved before the
 * first step.
 */
#include "rt/levels/levels.h"

#include "base/str.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pl_levels {
    const pl_device *dev;
    uint64_t bytes[PL_N_LEVELS];
    void *host;
    int file; /* -1: none */
};

static pl_status open_file(pl_levels *l, const char *dir)
{
    char path[4096], size[32];
    uint64_t bytes = l->bytes[PL_LEVEL_DISK];
    l->file = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (l->file < 0) {
        int n = snprintf(path, sizeof path, "%s/.plimsoll-XXXXXX", dir);
        PL_FAIL_IF(n < 0 || (size_t)n >= sizeof path, PL_ERR_IO, "disk: the path is too long");
        l->file = mkostemp(path, O_CLOEXEC);
        if (l->file >= 0) unlink(path);
    }
    PL_FAIL_IF(l->file < 0, PL_ERR_IO, "disk: no file can be made in %s: %s", dir, strerror(errno));
    int rc = posix_fallocate(l->file, 0, (off_t)bytes);
    PL_FAIL_IF(rc, PL_ERR_IO, "disk: %s has no room for a file of %s: %s", dir,
               pl_str_bytes(bytes, size, sizeof size), strerror(rc));
    return PL_OK;
}

pl_status pl_levels_open(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS],
                         const char *disk_dir, pl_levels **out)
{
    pl_levels *l = pl_sys_alloc(sizeof *l);
    if (!l) return PL_ERR_MEMORY;
    l->dev = dev;
    l->file = -1;
    memcpy(l->bytes, bytes, sizeof l->bytes);
    pl_status rc = PL_OK;
    if (bytes[PL_LEVEL_HOST]) rc = dev->host_alloc(bytes[PL_LEVEL_HOST], &l->host);
    if (rc == PL_OK && bytes[PL_LEVEL_DISK]) rc = open_file(l, disk_dir ? disk_dir : ".");
    if (rc != PL_OK) {
        pl_levels_free(l);
        return rc;
    }
    *out = l;
    return PL_OK;
}

void pl_levels_free(pl_levels *l)
{
    if (!l) return;
    if (l->host) l->dev->host_free(l->host, l->bytes[PL_LEVEL_HOST]);
    if (l->file >= 0) close(l->file);
    pl_sys_free(l);
}

void *pl_levels_host(const pl_levels *l)
{
    return l->host;
}

static pl_status transfer(pl_levels *l, uint64_t at, void *to, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n =
            to ? pread(l->file, (char *)to + done, bytes - done, (off_t)(at + done))
               : pwrite(l->file, (const char *)from + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        PL_FAIL_IF(n <= 0, PL_ERR_IO, "disk: %s %zu bytes at %llu of the run's file: %s",
                   to ? "reading" : "writing", bytes - done, (unsigned long long)(at + done),
                   n < 0 ? strerror(errno) : "the file has ended");
        done += (size_t)n;
    }
    return PL_OK;
}

pl_status pl_levels_read(pl_levels *l, int level, uint64_t at, void *to, size_t bytes)
{
    if (level == PL_LEVEL_DISK) return transfer(l, at, to, NULL, bytes);
    memcpy(to, (char *)l->host + at, bytes);
    return PL_OK;
}

pl_status pl_levels_write(pl_levels *l, int level, uint64_t at, const void *from, size_t bytes)
{
    if (level == PL_LEVEL_DISK) return transfer(l, at, NULL, from, bytes);
    memcpy((char *)l->host + at, from, bytes);
    return PL_OK;
}

pl_status pl_levels_begin(pl_levels *l, const pl_bound_unit *move)
{
    bool read = move->channel == PL_CHANNEL_READ;
    return transfer(l, move->disk_at, read ? move->to : NULL, read ? NULL : move->from,
                    move->bytes);
}

pl_status pl_levels_wait(pl_levels *l, pl_channel channel, uint32_t number)
{
    (void)l, (void)channel, (void)number;
    return PL_OK;
}

pl_status pl_levels_end_run(pl_levels *l)
{
    (void)l;
    return PL_OK;
}
