/* link_rates.c - see link_rates.h.
 *
 * The file has a line for each owner: rates up and down in bytes per second, a blank, the owner. It
 * is written whole and renamed into its place.
 */
#include "rt/levels/link_rates.h"

#include "base/cache_dir.h"
#include "base/str.h"
#include "base/sys.h"
#include "rt/levels/levels.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- owners ------------------------------------------------------------------------------- */
void pl_link_owner(const pl_device *dev, char *out, size_t cap)
{
    snprintf(out, cap, "%s", dev->name);
    if (dev->model) dev->model(out, cap);
    out[strcspn(out, "\n")] = 0;
}

bool pl_link_disk_owner(const char *folder, char *out, size_t cap)
{
    struct stat st;
    if (stat(folder, &st) != 0) return false;
    snprintf(out, cap, "disk %llx", (unsigned long long)st.st_dev);
    return true;
}

/* ---- measuring ---------------------------------------------------------------------------- */
enum { BLOCK = 64 << 20, DISK_BLOCK = 16 << 20, TIMES = 4 };

/* Copies the block TIMES times, after one that does not count; returns bytes per second. */
static pl_status time_copies(pl_status (*copy)(void *, const void *, size_t), void *to,
                             const void *from, double *rate)
{
    PL_TRY(copy(to, from, BLOCK));
    uint64_t begin = pl_sys_now_ns();
    for (int i = 0; i < TIMES; i++) PL_TRY(copy(to, from, BLOCK));
    *rate = (double)TIMES * BLOCK * 1e9 / (double)(pl_sys_now_ns() - begin + 1);
    return PL_OK;
}

pl_status pl_link_measure(const pl_device *dev, pl_link_rates *out)
{
    void *host = NULL, *device = NULL;
    pl_status rc = dev->ready ? dev->ready() : PL_OK;
    if (rc == PL_OK) rc = dev->alloc(BLOCK, &device);
    if (rc == PL_OK) rc = dev->host_alloc(BLOCK, &host);
    if (rc == PL_OK) rc = time_copies(dev->write, device, host, &out->up);
    if (rc == PL_OK) rc = time_copies(dev->read, host, device, &out->down);
    if (host) dev->host_free(host, BLOCK);
    if (device) dev->free(device, BLOCK);
    return rc;
}

/* Moves TIMES blocks as a run does; returns bytes per second. */
static pl_status time_moves(pl_levels *l, pl_bound_unit *m, pl_channel channel, double *rate)
{
    uint64_t begin = pl_sys_now_ns();
    for (uint32_t i = 0; i < TIMES; i++) {
        m[i].channel = channel;
        m[i].move = i + 1;
        m[i].disk_at = (uint64_t)i * DISK_BLOCK;
        pl_levels_begin(l, &m[i]);
    }
    PL_TRY(pl_levels_end_run(l));
    *rate = (double)TIMES * DISK_BLOCK * 1e9 / (double)(pl_sys_now_ns() - begin + 1);
    return PL_OK;
}

pl_status pl_link_measure_disk(const char *folder, pl_link_rates *out)
{
    const uint64_t bytes[PL_N_LEVELS] = {[PL_LEVEL_DISK] = (uint64_t)TIMES * DISK_BLOCK};
    pl_bound_unit move[TIMES] = {{0}};
    pl_levels *l = NULL;
    void *block = NULL;
    double ignored;
    pl_status rc = pl_sys_map(DISK_BLOCK, &block);
    if (rc == PL_OK) rc = pl_levels_open(&pl_device_cpu, bytes, folder, &l);
    for (int i = 0; i < TIMES; i++) move[i] = (pl_bound_unit){.from = block, .bytes = DISK_BLOCK};
    /* the first writes give the file its blocks */
    if (rc == PL_OK) rc = time_moves(l, move, PL_CHANNEL_WRITE, &ignored);
    if (rc == PL_OK) rc = time_moves(l, move, PL_CHANNEL_WRITE, &out->down);
    for (int i = 0; i < TIMES; i++) move[i] = (pl_bound_unit){.to = block, .bytes = DISK_BLOCK};
    if (rc == PL_OK) rc = time_moves(l, move, PL_CHANNEL_READ, &out->up);
    pl_levels_free(l);
    pl_sys_unmap(block, DISK_BLOCK);
    return rc;
}

/* ---- the file ----------------------------------------------------------------------------- */
static bool find_path(char *path, size_t cap)
{
    return pl_cache_path("links.txt", path, cap) && pl_cache_trusts(path);
}

/* Reads one line and cuts its checksum off; false: it is not a line of rates, or is damaged. */
static bool read_line(char *line, pl_link_rates *r, const char **owner)
{
    int at = 0;
    size_t n = pl_cache_sealed(line, strcspn(line, "\n"));
    if (n == 0) return false;
    line[n] = 0;
    if (sscanf(line, "%lf %lf %n", &r->up, &r->down, &at) != 2 || !at) return false;
    *owner = line + at;
    return r->up > 1e3 && r->up < 1e15 && r->down > 1e3 && r->down < 1e15;
}

bool pl_link_rates_find(const char *owner, pl_link_rates *out)
{
    char path[2048], line[512];
    const char *of;
    bool found = false;
    FILE *f = find_path(path, sizeof path) ? fopen(path, "re") : NULL;
    while (f && !found && fgets(line, sizeof line, f))
        found = read_line(line, out, &of) && strcmp(of, owner) == 0;
    if (f) fclose(f);
    return found;
}

static void add_line(pl_str *s, const pl_link_rates *r, const char *owner)
{
    char line[512];
    snprintf(line, sizeof line, "%.6g %.6g %s", r->up, r->down, owner);
    if (pl_cache_seal(line, sizeof line)) pl_str_addf(s, "%s\n", line);
}

/* The lines of other owners, then the owner's. */
static void add_lines(const char *path, const char *owner, const pl_link_rates *rates, pl_str *s)
{
    char line[512];
    const char *of;
    pl_link_rates r;
    FILE *from = fopen(path, "re");
    while (from && fgets(line, sizeof line, from))
        if (read_line(line, &r, &of) && strcmp(of, owner) != 0) add_line(s, &r, of);
    if (from) fclose(from);
    add_line(s, rates, owner);
}

pl_status pl_link_rates_put(const char *owner, const pl_link_rates *rates)
{
    char path[2048];
    pl_str s = PL_STR_INIT;
    PL_FAIL_IF(!find_path(path, sizeof path), PL_ERR_IO,
               "there is no cache folder for measured rates: set PLIMSOLL_CACHE to a folder");
    PL_TRY(pl_cache_make(path));
    add_lines(path, owner, rates, &s);
    pl_status rc = s.failed ? PL_ERR_MEMORY : pl_sys_write_file(path, s.text, s.len);
    pl_str_release(&s);
    return rc;
}
