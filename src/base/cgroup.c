/* cgroup.c - the limits of a container; see sys.h.
 *
 *     version 2   0::/a/b                 ROOT/a/b/cpu.max, memory.max, memory.high,
 *                                         memory.current, memory.stat
 *     version 1   4:memory:/a/b           ROOT/memory/a/b/memory.limit_in_bytes, ...
 *                 5:cpu,cpuacct:/a/b      ROOT/cpu,cpuacct/a/b/cpu.cfs_quota_us, cpu.cfs_period_us
 *     both        some controllers of version 1, version 2 at ROOT/unified
 */
#include "base/sys.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 512, TEXT = 4096 };
/* Version 1 writes "no limit" as the largest number of whole pages. */
static const uint64_t no_limit = (uint64_t)1 << 60;

/* Reads the beginning of a file into text; false when there is none. */
static bool read_text(const char *path, char text[TEXT])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, TEXT - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool read_file(const char *folder, const char *name, char text[TEXT])
{
    char path[PATH + 64];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           read_text(path, text);
}

/* ---- the limits of one group ---------------------------------------------------------------- */
static void take_cpus(pl_cgroup *out, double quota, double period)
{
    if (!(quota > 0) || !(period > 0)) return;
    if (out->cpus == 0 || quota / period < out->cpus) out->cpus = quota / period;
}

static void take_memory(pl_cgroup *out, const char *folder, const char *text, int version)
{
    char *end;
    uint64_t bytes = strtoull(text, &end, 10); /* "max": no number */
    if (end == text || bytes == 0 || bytes >= no_limit) return;
    if (out->memory_bytes && bytes >= out->memory_bytes) return;
    out->memory_bytes = bytes;
    out->version = version;
    snprintf(out->memory_path, sizeof out->memory_path, "%s", folder);
}

static void read_v2(pl_cgroup *out, const char *folder)
{
    char text[TEXT];
    double quota, period;
    if (read_file(folder, "cpu.max", text) && sscanf(text, "%lf %lf", &quota, &period) == 2)
        take_cpus(out, quota, period);
    if (read_file(folder, "memory.max", text)) take_memory(out, folder, text, 2);
    /* above this, the kernel takes pages back until the processes crawl */
    if (read_file(folder, "memory.high", text)) take_memory(out, folder, text, 2);
}

static void read_v1_cpu(pl_cgroup *out, const char *folder)
{
    char text[TEXT];
    if (!read_file(folder, "cpu.cfs_quota_us", text)) return;
    double quota = strtod(text, NULL);
    if (read_file(folder, "cpu.cfs_period_us", text)) take_cpus(out, quota, strtod(text, NULL));
}

static void read_v1_memory(pl_cgroup *out, const char *folder)
{
    char text[TEXT];
    if (read_file(folder, "memory.limit_in_bytes", text)) take_memory(out, folder, text, 1);
}

/* ---- from the process's group up to the root ------------------------------------------------ */
typedef void (*read_fn)(pl_cgroup *out, const char *folder);

static void walk_up(pl_cgroup *out, const char *root, const char *controller, const char *group,
                    read_fn read)
{
    char folder[PATH];
    int top = snprintf(folder, sizeof folder, "%s%s%s", root, controller[0] ? "/" : "", controller);
    if (top < 0 || top >= (int)sizeof folder) return;
    int n = snprintf(folder + top, sizeof folder - (size_t)top, "%s", group);
    if (n < 0 || top + n >= (int)sizeof folder) folder[top] = 0; /* too long: the root alone */
    for (;;) {
        size_t len = strlen(folder);
        while (len > (size_t)top && folder[len - 1] == '/') folder[--len] = 0;
        read(out, folder);
        if (len <= (size_t)top) return;
        while (len > (size_t)top && folder[len - 1] != '/') folder[--len] = 0;
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return true;
    return false;
}

/* A line "NUMBER:CONTROLLERS:GROUP"; both texts end in place. */
static void read_line(char *line, const char *root, pl_cgroup *out)
{
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    if (!group) return;
    *group++ = 0;
    list++;
    if (!list[0]) {
        walk_up(out, root, "", group, read_v2);
        walk_up(out, root, "unified", group, read_v2);
        return;
    }
    if (has_controller(list, "memory")) walk_up(out, root, "memory", group, read_v1_memory);
    if (!has_controller(list, "cpu")) return;
    walk_up(out, root, "cpu", group, read_v1_cpu);
    if (strcmp(list, "cpu") != 0) walk_up(out, root, list, group, read_v1_cpu);
}

void pl_cgroup_read(const char *self, const char *root, pl_cgroup *out)
{
    char text[TEXT], *save = NULL;
    *out = (pl_cgroup){0};
    if (!read_text(self, text)) return;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        read_line(line, root, out);
    struct stat st;
    if (out->memory_path[0] && stat(out->memory_path, &st) == 0) out->memory_id = st.st_ino;
}

/* ---- of this process ------------------------------------------------------------------------ */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pl_cgroup own;
/* memory of the group, and the part of it that is file contents */
static int current_file = -1, stat_file = -1;

static int open_in_group(const char *v1, const char *v2)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", own.memory_path, own.version == 1 ? v1 : v2);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void read_own(void)
{
    const char *folder = getenv("PLIMSOLL_CGROUP");
    char self[PATH + 8] = "/proc/self/cgroup", root[PATH + 8] = "/sys/fs/cgroup";
    if (folder && strlen(folder) < PATH) {
        snprintf(self, sizeof self, "%s/self", folder);
        snprintf(root, sizeof root, "%s/fs", folder);
    }
    pl_cgroup_read(self, root, &own);
    if (!own.memory_bytes) return;
    current_file = open_in_group("memory.usage_in_bytes", "memory.current");
    stat_file = open_in_group("memory.stat", "memory.stat");
}

const pl_cgroup *pl_cgroup_own(void)
{
    pthread_once(&once, read_own);
    return &own;
}

uint64_t pl_cgroup_memory_used(void)
{
    char text[TEXT];
    pthread_once(&once, read_own);
    ssize_t n = current_file < 0 ? -1 : pread(current_file, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    uint64_t held = strtoull(text, NULL, 10), files = 0;
    n = stat_file < 0 ? -1 : pread(stat_file, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    /* Version 1 has two fields: of the group alone, and "total_" with the groups below. */
    const char *name = own.version == 1 ? "total_inactive_file " : "inactive_file ";
    const char *at = strstr(text, name);
    if (at) files = strtoull(at + strlen(name), NULL, 10);
    return held > files ? held - files : 0;
}
