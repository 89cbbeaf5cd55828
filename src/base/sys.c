/* sys.c - memory, files and time from the operating system; counted, and failing on demand. */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#ifdef __GLIBC__
# include <malloc.h>
#endif
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_uint_fast64_t n_allocs, n_frees, n_maps, n_opens;
static atomic_int_fast64_t fail_in; /* counts down to the failing call; 0 = off */
static atomic_bool fail_hit;
static _Thread_local uint64_t asked_bytes;

pl_sys_counts pl_sys_counts_get(void)
{
    return (pl_sys_counts){n_allocs, n_frees, n_maps, n_opens};
}

uint64_t pl_sys_asked_bytes(void)
{
    return asked_bytes;
}

void pl_sys_fail_nth(uint64_t n)
{
    fail_hit = false;
    fail_in = (int_fast64_t)n;
}

bool pl_sys_fail_hit(void)
{
    return fail_hit;
}

static bool must_fail(void)
{
    if (fail_in <= 0) return false;
    if (--fail_in > 0) return false;
    fail_hit = true;
    return true;
}

static void *out_of_memory(size_t bytes)
{
    (void)pl__fail(PL_ERR_MEMORY, __FILE__, __LINE__,
                   "the system cannot allocate %zu bytes of memory", bytes);
    return NULL;
}

void *pl_sys_alloc(size_t bytes)
{
    n_allocs++;
    asked_bytes += bytes;
    void *p = must_fail() ? NULL : calloc(1, bytes ? bytes : 1);
    return p ? p : out_of_memory(bytes);
}

void *pl_sys_realloc(void *p, size_t old_bytes, size_t new_bytes)
{
    n_allocs++;
    char *q = must_fail() ? NULL : realloc(p, new_bytes ? new_bytes : 1);
    if (!q) return out_of_memory(new_bytes);
    if (new_bytes > old_bytes) memset(q + old_bytes, 0, new_bytes - old_bytes);
    return q;
}

void pl_sys_free(void *p)
{
    if (!p) return;
    n_frees++;
    free(p);
}

pl_status pl_sys_map(size_t bytes, void **out)
{
    n_maps++;
    void *p = must_fail() ? MAP_FAILED
                          : mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PL_FAIL_IF(p == MAP_FAILED, PL_ERR_MEMORY, "cannot map %zu bytes of memory", bytes);
    /* Large pages where whole ones fit inside the map: fewer address translations for kernels
     * that stream, and never more resident bytes than were mapped. Refusal does no harm. */
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    /* A process that is forked does not see it: its pages would be copied at the next write. */
    (void)madvise(p, bytes, MADV_DONTFORK);
    *out = p;
    return PL_OK;
}

void pl_sys_unmap(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

int pl_sys_open(const char *path, int flags, int mode)
{
    n_opens++;
    /* O_NONBLOCK: opening a named pipe to read must not wait for a writer. Files ignore it. */
    if ((flags & O_ACCMODE) == O_RDONLY) flags |= O_NONBLOCK;
    int fd;
    do fd = open(path, flags | O_CLOEXEC, mode); /* a network file system can be interrupted */
    while (fd < 0 && errno == EINTR);
    return fd;
}

pl_status pl_sys_read_file(const char *path, size_t max_bytes, char **out, size_t *len)
{
    int fd = pl_sys_open(path, O_RDONLY, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    pl_status rc = PL_OK;
    char *buf = NULL;
    size_t n = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rc = pl__fail(PL_ERR_IO, __FILE__, __LINE__, "%s is not a regular file", path);
        goto out;
    }
    if ((uint64_t)st.st_size > max_bytes) {
        rc = pl__fail(PL_ERR_IO, __FILE__, __LINE__, "%s has %lld bytes, at most %zu are read",
                      path, (long long)st.st_size, max_bytes);
        goto out;
    }
    buf = pl_sys_alloc((size_t)st.st_size + 1);
    if (!buf) {
        rc = PL_ERR_MEMORY;
        goto out;
    }
    while (n < (size_t)st.st_size) {
        ssize_t r = read(fd, buf + n, (size_t)st.st_size - n);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            rc = pl__fail(PL_ERR_IO, __FILE__, __LINE__, "cannot read %s: %s", path,
                          strerror(errno));
            goto out;
        }
        if (r == 0) break;
        n += (size_t)r;
    }
    *out = buf;
    *len = n;
    buf = NULL;
out:
    close(fd);
    pl_sys_free(buf);
    return rc;
}

/* Not inlined: a caller's stack would hold its name too. */
__attribute__((noinline)) void pl_sys_sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) n = 0;
    memcpy(folder, path, n);
    folder[n] = 0;
    int fd = open(n ? folder : (slash ? "/" : "."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return; /* a folder that cannot be opened cannot be synced */
    fsync(fd);
    close(fd);
}

pl_status pl_sys_target(const char **path, char real[PATH_MAX])
{
    struct stat s;
    if (lstat(*path, &s) == 0 && S_ISLNK(s.st_mode) && realpath(*path, real)) *path = real;
    PL_FAIL_IF(stat(*path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode), PL_ERR_IO,
               "cannot write %.300s: it exists and is not a file", *path);
    return PL_OK;
}

static pl_status write_then_rename(const char *tmp, const char *path, const void *data, size_t len)
{
    int fd = pl_sys_open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    PL_FAIL_IF(fd < 0, PL_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    size_t n = 0;
    while (n < len) {
        ssize_t w = write(fd, (const char *)data + n, len - n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) break;
        n += (size_t)w;
    }
    int err = n < len ? errno : (fsync(fd) != 0 ? errno : 0);
    close(fd);
    if (!err && rename(tmp, path) != 0) err = errno;
    if (err) {
        unlink(tmp);
        PL_FAIL(PL_ERR_IO, "cannot write %s: %s", path, strerror(err));
    }
    pl_sys_sync_folder(path);
    return PL_OK;
}

pl_status pl_sys_write_file(const char *path, const void *data, size_t len)
{
    struct {
        char real[PATH_MAX], tmp[PATH_MAX];
    } *names = pl_sys_alloc(sizeof *names);
    if (!names) return PL_ERR_MEMORY;
    pl_status rc = pl_sys_target(&path, names->real);
    if (rc == PL_OK) {
        int n = snprintf(names->tmp, PATH_MAX, "%s.tmp-%ld", path, (long)getpid());
        if (n < PATH_MAX)
            rc = write_then_rename(names->tmp, path, data, len);
        else
            rc = pl__fail(PL_ERR_IO, __FILE__, __LINE__, "path too long: %.200s", path);
    }
    pl_sys_free(names);
    return rc;
}

pl_status pl_sys_make_dirs(const char *path)
{
    char buf[4096];
    size_t n = strlen(path);
    PL_FAIL_IF(n == 0 || n >= sizeof buf, PL_ERR_IO, "bad folder name \"%.100s\"", path);
    memcpy(buf, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (buf[i] != '/' && buf[i] != 0) continue;
        char keep = buf[i];
        buf[i] = 0;
        bool made = mkdir(buf, 0777) == 0;
        PL_FAIL_IF(!made && errno != EEXIST, PL_ERR_IO, "cannot make folder %s: %s", buf,
                   strerror(errno));
        if (made) pl_sys_sync_folder(buf);
        buf[i] = keep;
    }
    struct stat st;
    PL_FAIL_IF(stat(path, &st) != 0 || !S_ISDIR(st.st_mode), PL_ERR_IO,
               "%s exists and is not a folder", path);
    return PL_OK;
}

uint64_t pl_sys_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void pl_sys_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* /proc/self/status, opened once: a training step reads it and must open nothing. A forked child
 * opens its own, since the file is the opener's. */
static int status_file(void)
{
    static atomic_int fd = -1, owner;
    if (fd >= 0 && owner == getpid()) return fd;
    fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    owner = getpid();
    return fd;
}

/* A field of it in KiB; 0 if absent. Uses no stdio, so it allocates nothing. */
static size_t proc_status_kib(const char *field)
{
    char buf[4096]; /* the sizes are in the first lines */
    int fd = status_file();
    if (fd < 0) return 0;
    ssize_t n = pread(fd, buf, sizeof buf - 1, 0);
    if (n <= 0) return 0;
    buf[n] = 0;
    const char *p = strstr(buf, field);
    return p ? (size_t)strtoull(p + strlen(field), NULL, 10) : 0;
}

int pl_sys_cores(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    /* A quota of 1.5 cores is used by 2 threads: the kernel lets them run 3/4 of the time. */
    double quota = pl_cgroup_own()->cpus;
    if (quota > 0 && quota < cores) cores = (int)quota + (quota > (int)quota);
    return cores > 1 ? cores : 1;
}

size_t pl_sys_rss_bytes(void)
{
    return proc_status_kib("VmRSS:") * 1024;
}

size_t pl_sys_anon_bytes(void)
{
    size_t kib = proc_status_kib("RssAnon:");
    return kib ? kib * 1024 : pl_sys_rss_bytes();
}

/* The mapping that the lines of /proc/self/smaps describe. */
typedef struct mapping {
    uintptr_t begin, end;
    bool code; /* of a file, private, cannot be written */
} mapping;

/* Reads one line of smaps. A mapping with private pages (relocated constants, a breakpoint) is not
 * changed: MADV_DONTNEED would replace them by those of the file. */
static void drop_by_line(const char *line, mapping *m)
{
    char *at;
    uintptr_t begin = (uintptr_t)strtoull(line, &at, 16);
    if (at != line && *at == '-') { /* BEGIN-END PERMS OFFSET DEVICE INODE PATH */
        m->begin = begin;
        m->end = (uintptr_t)strtoull(at + 1, &at, 16);
        m->code = strlen(at) > 5 && at[2] == '-' && at[4] == 'p';
        for (int word = 0; word < 3; word++) /* to the inode; 0: no file */
            at = strchr(at + 1, ' ') ? strchr(at + 1, ' ') : at + strlen(at);
        m->code = m->code && strtoull(at, NULL, 10) != 0;
    } else if (m->code && strncmp(line, "Anonymous:", 10) == 0) {
        if (strtoull(line + 10, NULL, 10) == 0)
            (void)madvise((void *)m->begin, m->end - m->begin, MADV_DONTNEED);
        m->code = false;
    }
}

/* Uses no stdio, so it allocates nothing. Of lines longer than the buffer the beginning counts. */
void pl_sys_drop_code(void)
{
    char buf[4096];
    size_t n = 0;
    ssize_t got;
    mapping m = {0};
    bool rest = false; /* of a long line, to be skipped */
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    while ((got = read(fd, buf + n, sizeof buf - 1 - n)) > 0) {
        n += (size_t)got;
        buf[n] = 0;
        char *line = buf, *end;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = 0;
            if (!rest) drop_by_line(line, &m);
            rest = false;
            line = end + 1;
        }
        n -= (size_t)(line - buf);
        memmove(buf, line, n + 1);
        if (n < sizeof buf - 1) continue;
        if (!rest) drop_by_line(buf, &m);
        rest = true;
        n = 0;
    }
    close(fd);
}

const char *pl_sys_home(void)
{
    struct stat s;
    const char *home = getenv("HOME");
    return home && home[0] && stat(home, &s) == 0 && S_ISDIR(s.st_mode) ? home : NULL;
}

size_t pl_sys_mapped_bytes(void)
{
    return proc_status_kib("VmSize:") * 1024;
}

size_t pl_sys_data_bytes(void)
{
    return proc_status_kib("VmData:") * 1024;
}

static size_t start_peak;

__attribute__((constructor)) static void note_start(void)
{
    start_peak = pl_sys_peak_rss_bytes();
}

size_t pl_sys_start_peak_bytes(void)
{
    return start_peak;
}

uint64_t pl_sys_waited_ns(void)
{
    char text[96];
    unsigned long long ran, waited = 0;
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

size_t pl_sys_peak_rss_bytes(void)
{
    size_t kib = proc_status_kib("VmHWM:");
    if (kib) return kib * 1024;
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (size_t)ru.ru_maxrss * 1024;
}
