/* levels.c - see levels.h.
 *
 * The host block comes from the device, which pins it. The file is made without a name where the
 * file system can (O_TMPFILE), else its name is removed at once; its blocks are reserved before the
 * first step. The file is read and written past the page cache (O_DIRECT) where the file system
 * can: the cache would take the memory that the plan has moved away. Such transfers need aligned
 * addresses, so they go through a buffer unless the memory side happens to be aligned.
 */
#include "rt/levels/levels.h"

#include "base/str.h"
#include "base/sys.h"
#include "rt/levels/channels.h"

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
    int file;     /* -1: none */
    bool direct;  /* the file is open with O_DIRECT */
    void *buffer; /* PL_PART_BYTES: for slots, between runs */
    pl_channels *channels;
    char dir[256]; /* of the file, for messages */
};

/* ---- the file ----------------------------------------------------------------------------- */
static pl_status transfer_error(const pl_levels *l, const pl_ring_transfer *t)
{
    if (!t->why) return PL_OK;
    PL_FAIL(PL_ERR_IO,
            "disk: %s %zu bytes at %llu of the run's file in %s failed: %s; checkpoints are not "
            "touched",
            t->writes ? "writing" : "reading", t->bytes - t->done,
            (unsigned long long)(t->at + t->done), l->dir, t->why);
}

/* Reads to `to`, or writes from `from`. */
static pl_status transfer(const pl_levels *l, uint64_t at, void *to, const void *from, size_t bytes)
{
    pl_ring_transfer t = {
        .memory = to ? to : (void *)(uintptr_t)from, .at = at, .bytes = bytes, .writes = !to};
    pl_ring_transfer_run(l->file, &t);
    return transfer_error(l, &t);
}

/* Goes past the page cache where the file system can: some accept the flag and refuse to read. */
static void try_direct(pl_levels *l)
{
    int flags = fcntl(l->file, F_GETFL);
    if (flags < 0 || fcntl(l->file, F_SETFL, flags | O_DIRECT) != 0) return;
    l->direct = pread(l->file, l->buffer, PL_LEVEL_ALIGN, 0) == (ssize_t)PL_LEVEL_ALIGN;
    if (!l->direct && fcntl(l->file, F_SETFL, flags) != 0) PL_BUG("fcntl takes no old flags back");
}

static pl_status open_file(pl_levels *l, const char *dir)
{
    char path[4096], size[32];
    uint64_t bytes = l->bytes[PL_LEVEL_DISK];
    snprintf(l->dir, sizeof l->dir, "%s", dir);
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
    PL_TRY(pl_sys_map(PL_PART_BYTES, &l->buffer));
    try_direct(l);
    return PL_OK;
}

/* ---- moves -------------------------------------------------------------------------------- */
static bool is_aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % PL_LEVEL_ALIGN == 0 && bytes % PL_LEVEL_ALIGN == 0;
}

static bool is_in_buffer(const pl_part *part)
{
    return part->transfer.memory == part->buffer;
}

/* Parts begin at multiples of PL_LEVEL_ALIGN of the file, and a value's last block is its own. */
static void before_part(void *ctx, pl_part *part)
{
    const pl_levels *l = ctx;
    const pl_bound_unit *m = part->move;
    char *to = m->to ? (char *)m->to + part->at : NULL;
    const char *from = m->from ? (const char *)m->from + part->at : NULL;
    if (m->channel == PL_CHANNEL_UP || m->channel == PL_CHANNEL_DOWN) {
        memcpy(to, from, part->bytes);
        return;
    }
    bool plain = !l->direct || is_aligned(to ? to : from, part->bytes);
    pl_ring_transfer *t = &part->transfer;
    t->at = m->disk_at + part->at;
    t->writes = !to;
    t->bytes = plain ? part->bytes : pl_level_round_up(part->bytes);
    t->memory = !plain ? part->buffer : to ? to : (void *)(uintptr_t)from;
    if (plain || to) return;
    memcpy(part->buffer, from, part->bytes);
    memset((char *)part->buffer + part->bytes, 0, t->bytes - part->bytes);
}

static pl_status after_part(void *ctx, pl_part *part)
{
    const pl_ring_transfer *t = &part->transfer;
    PL_TRY(transfer_error(ctx, t));
    if (t->bytes && !t->writes && is_in_buffer(part))
        memcpy((char *)part->move->to + part->at, part->buffer, part->bytes);
    return PL_OK;
}

static void used_channels(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS],
                          bool used[PL_N_CHANNELS])
{
    used[PL_CHANNEL_UP] = used[PL_CHANNEL_DOWN] = bytes[PL_LEVEL_HOST] && !dev->moves;
    used[PL_CHANNEL_READ] = used[PL_CHANNEL_WRITE] = bytes[PL_LEVEL_DISK] != 0;
}

uint64_t pl_levels_overhead(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS])
{
    bool used[PL_N_CHANNELS];
    used_channels(dev, bytes, used);
    return pl_channels_bytes(used) + (bytes[PL_LEVEL_DISK] ? PL_PART_BYTES : 0);
}

pl_status pl_levels_open(const pl_device *dev, const uint64_t bytes[PL_N_LEVELS],
                         const char *disk_dir, pl_levels **out)
{
    static const pl_part_steps steps = {before_part, after_part};
    pl_levels *l = pl_sys_alloc(sizeof *l);
    bool used[PL_N_CHANNELS];
    if (!l) return PL_ERR_MEMORY;
    l->dev = dev;
    l->file = -1;
    memcpy(l->bytes, bytes, sizeof l->bytes);
    used_channels(dev, bytes, used);
    pl_status rc = PL_OK;
    if (bytes[PL_LEVEL_HOST]) rc = dev->host_alloc(bytes[PL_LEVEL_HOST], &l->host);
    if (rc == PL_OK && bytes[PL_LEVEL_DISK]) rc = open_file(l, disk_dir ? disk_dir : ".");
    /* without O_DIRECT the system copies as it answers, and a ring gains nothing */
    if (rc == PL_OK) rc = pl_channels_open(used, l->file, l->direct, &steps, l, &l->channels);
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
    pl_channels_free(l->channels);
    if (l->host) l->dev->host_free(l->host, l->bytes[PL_LEVEL_HOST]);
    if (l->file >= 0) close(l->file);
    pl_sys_unmap(l->buffer, PL_PART_BYTES);
    pl_sys_free(l);
}

void *pl_levels_host(const pl_levels *l)
{
    return l->host;
}

pl_channels *pl_levels_channels(const pl_levels *l)
{
    return l->channels;
}

/* ---- slots, between runs ------------------------------------------------------------------ */
/* Bytes [*at, *at + n) of a file that is read and written in blocks; n, at most bytes, is
 * returned. */
static pl_status slot_part(const pl_levels *l, uint64_t at, void *to, const void *from,
                           size_t bytes, size_t *n)
{
    uint64_t begin = at / PL_LEVEL_ALIGN * PL_LEVEL_ALIGN;
    size_t skip = (size_t)(at - begin), room = PL_PART_BYTES - skip;
    *n = bytes < room ? bytes : room;
    size_t whole = pl_level_round_up(skip + *n);
    if (to || skip || (skip + *n) % PL_LEVEL_ALIGN)
        PL_TRY(transfer(l, begin, l->buffer, NULL, whole));
    if (to) memcpy(to, (char *)l->buffer + skip, *n);
    if (to) return PL_OK;
    memcpy((char *)l->buffer + skip, from, *n);
    return transfer(l, begin, NULL, l->buffer, whole);
}

static pl_status disk_slot(const pl_levels *l, uint64_t at, void *to, const void *from,
                           size_t bytes)
{
    if (!l->direct) return transfer(l, at, to, from, bytes);
    for (size_t done = 0, n; done < bytes; done += n)
        PL_TRY(slot_part(l, at + done, to ? (char *)to + done : NULL,
                         from ? (const char *)from + done : NULL, bytes - done, &n));
    return PL_OK;
}

pl_status pl_levels_read(pl_levels *l, int level, uint64_t at, void *to, size_t bytes)
{
    if (level == PL_LEVEL_DISK) return disk_slot(l, at, to, NULL, bytes);
    memcpy(to, (char *)l->host + at, bytes);
    return PL_OK;
}

pl_status pl_levels_write(pl_levels *l, int level, uint64_t at, const void *from, size_t bytes)
{
    if (level == PL_LEVEL_DISK) return disk_slot(l, at, NULL, from, bytes);
    memcpy((char *)l->host + at, from, bytes);
    return PL_OK;
}

/* ---- runs --------------------------------------------------------------------------------- */
void pl_levels_begin(pl_levels *l, const pl_bound_unit *move)
{
    pl_channels_begin(l->channels, move);
}

pl_status pl_levels_wait(pl_levels *l, pl_channel channel, uint32_t number)
{
    return pl_channels_wait(l->channels, channel, number);
}

pl_status pl_levels_end_run(pl_levels *l)
{
    return pl_channels_end_run(l->channels);
}

void pl_levels_move(const pl_bound_unit *move)
{
    pl_channels *c = move->levels->channels;
    pl_channels_begin(c, move);
    pl_status kept = pl_channels_wait(c, move->channel, move->move);
    (void)kept; /* until pl_levels_failure asks */
}

pl_status pl_levels_failure(pl_levels *l)
{
    return pl_channels_failure(l->channels);
}
