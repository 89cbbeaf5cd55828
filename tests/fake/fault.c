/* fault.c - faults of a file system, for a program that is started with LD_PRELOAD=fault.so.
 *
 * The environment says which calls count and what happens at the k-th of them:
 *
 *     FAULT_KIND   open, write, sync, rename, unlink, mkdir, read, alloc, send (on a socket),
 *                  message (of MPI), folder (sync of a folder), or any (the first six)
 *     FAULT_RANK   only the process that mpirun started as this rank; -1: only one that it did not
 *     FAULT_NAME   only paths that contain this text
 *     FAULT_AT     k, from 1; 0: nothing happens
 *     FAULT_DO     kill: the process is killed before the call; lose: the same, and everything that
 *                  was not synced is undone; fail: the call fails with FAULT_ERRNO (28: no space)
 *                  once; always: this call and every later one fail; run: the shell command
 *                  FAULT_RUN runs, and the call goes on
 *     FAULT_SIGNAL a signal that the process sends itself before its main function begins
 *     FAULT_COUNT  file that gets the number of calls that counted, when the process exits
 *     FAULT_BYTES  alloc: only allocations of exactly this many bytes count
 *     FAULT_PATHS  alloc: file that gets the paths to the allocations, when the process exits: a
 *                  line for each, its number and how often it was taken. A path is the calls
 *                  inside the program and its plug-ins and the innermost FAULT_DEPTH (2) of others
 *     FAULT_PATH   alloc: only allocations on the path of this number count
 *
 * "lose" is a power cut of a file system that keeps only what was asked of it: bytes of a file
 * behind the last fsync of the file are cut off, and new names, renames and removals in a folder
 * are undone unless the folder was synced after them. Files that disappear are kept alive by an
 * open descriptor, and come back as a copy.
 *
 * Output through FILE counts at fflush, since stdio calls the kernel by itself.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHOW __attribute__((visibility("default")))

enum { FILES = 4096, NOTES = 16384, HIGH = 500 };
enum {
    OPEN = 1,
    WRITE = 2,
    SYNC = 4,
    RENAME = 8,
    UNLINK = 16,
    MKDIR = 32,
    READ = 64,
    ALLOC = 128,
    SEND = 512,
    MESSAGE = 1024,
    FOLDER = 2048,
    RMDIR = 256 /* of a note; the call counts as UNLINK */
};

/* A file that was opened for writing, with the bytes of it that are safe. */
typedef struct file {
    int fd; /* a duplicate that stays open */
    off_t safe;
} file;

/* A change of a folder that is not synced. */
typedef struct note {
    int kind; /* OPEN: `to` was made; RENAME; UNLINK, RMDIR: `to` was removed; MKDIR; 0: synced */
    char *from, *to;
    int old; /* what was at `to` before, kept open; -1: nothing */
} note;

static file files[FILES];
static note notes[NOTES];
static int n_files, n_notes, kinds;
static long at, count;
static size_t only_bytes; /* FAULT_BYTES; 0: any */
static bool elsewhere;    /* this process is not the one that FAULT_RANK names */
static const char *name, *action;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *real(const char *symbol)
{
    return dlsym(RTLD_NEXT, symbol);
}

static int plain_open(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0666);
}

#include "fault_paths.h"

static void read_settings(void)
{
    static const struct {
        const char *text;
        int bits;
    } rows[] = {{"open", OPEN},     {"write", WRITE},
                {"sync", SYNC},     {"rename", RENAME},
                {"unlink", UNLINK}, {"mkdir", MKDIR},
                {"read", READ},     {"alloc", ALLOC},
                {"send", SEND},     {"message", MESSAGE},
                {"folder", FOLDER}, {"any", OPEN | WRITE | SYNC | RENAME | UNLINK | MKDIR}};
    const char *kind = getenv("FAULT_KIND"), *k = getenv("FAULT_AT");
    for (size_t i = 0; kind && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(kind, rows[i].text) == 0) kinds = rows[i].bits;
    const char *only = getenv("FAULT_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    elsewhere = only && strcmp(only, rank ? rank : "-1") != 0;
    if (elsewhere) kinds = 0;
    at = k ? atol(k) : 0;
    const char *bytes = getenv("FAULT_BYTES");
    only_bytes = bytes ? strtoull(bytes, NULL, 10) : 0;
    name = getenv("FAULT_NAME");
    action = getenv("FAULT_DO");
    if (!action) action = "kill";
    read_path_settings();
}

__attribute__((constructor)) static void begin(void)
{
    const char *early = getenv("FAULT_SIGNAL");
    void *frame[2];
    backtrace(frame, 2); /* it allocates at its first call */
    read_settings();
    if (early) kill(getpid(), atoi(early));
}

__attribute__((destructor)) static void report(void)
{
    const char *to = getenv("FAULT_COUNT");
    char text[32];
    if (!to || elsewhere) return;
    int fd = plain_open(to, O_WRONLY | O_CREAT | O_TRUNC);
    int n = snprintf(text, sizeof text, "%ld\n", count);
    if (fd >= 0 && syscall(SYS_write, fd, text, n) != n) _exit(9);
    if (fd >= 0) close(fd);
    report_paths();
}

/* ---- what is lost ------------------------------------------------------------------------ */
static void path_of(int fd, char *out, size_t cap)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, cap - 1);
    out[n > 0 ? n : 0] = 0;
}

/* Makes a path absolute, relative to the folder `dir`. */
static void full(int dir, const char *path, char *out, size_t cap)
{
    char base[PATH_MAX / 2] = "";
    if (path[0] == '/') {
        snprintf(out, cap, "%s", path);
        return;
    }
    if (dir != AT_FDCWD)
        path_of(dir, base, sizeof base);
    else if (!getcwd(base, sizeof base))
        base[0] = 0;
    snprintf(out, cap, "%s/%s", base, path);
}

static int keep(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode)) return -1;
    int fd = plain_open(path, O_RDONLY);
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (fd >= 0) close(fd);
    return high;
}

static void add_note(int kind, const char *from, const char *to, int old)
{
    if (kinds == ALLOC) return; /* nothing is undone, and strdup may be the call that fails */
    if (n_notes == NOTES) abort();
    notes[n_notes++] =
        (note){.kind = kind, .from = from ? strdup(from) : NULL, .to = strdup(to), .old = old};
}

static bool is_in(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    return n == strlen(folder) && strncmp(path, folder, n) == 0;
}

/* A folder was synced: its changes are safe. */
static void settle(const char *folder)
{
    for (int i = 0; i < n_notes; i++) {
        if (!notes[i].kind || !is_in(notes[i].to, folder)) continue;
        notes[i].kind = 0;
        if (notes[i].old >= 0) close(notes[i].old);
    }
}

static void restore(int old, const char *path)
{
    static char block[65536];
    off_t offset = 0;
    int fd = plain_open(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return; /* the removal of its folder is safe */
    for (ssize_t n; (n = syscall(SYS_pread64, old, block, sizeof block, offset)) > 0; offset += n)
        if (syscall(SYS_write, fd, block, n) != n) abort();
    close(fd);
}

static void undo(const note *c)
{
    if (c->kind == OPEN) syscall(SYS_unlinkat, AT_FDCWD, c->to, 0);
    if (c->kind == RMDIR) syscall(SYS_mkdirat, AT_FDCWD, c->to, 0777);
    if (c->kind == MKDIR) syscall(SYS_unlinkat, AT_FDCWD, c->to, AT_REMOVEDIR);
    if (c->kind == RENAME) syscall(SYS_renameat, AT_FDCWD, c->to, AT_FDCWD, c->from);
    if (c->old >= 0) restore(c->old, c->to);
}

static void lose_unsynced(void)
{
    for (int i = 0; i < n_files; i++) {
        struct stat s;
        if (fstat(files[i].fd, &s) == 0 && s.st_size > files[i].safe)
            syscall(SYS_ftruncate, files[i].fd, files[i].safe);
    }
    for (int i = n_notes - 1; i >= 0; i--)
        if (notes[i].kind) undo(&notes[i]);
}

/* ---- the k-th call ------------------------------------------------------------------------ */
/* Returns whether this call is to fail. */
static bool meets(int kind, const char *path)
{
    if (!(kinds & kind) || (name && !strstr(path, name))) return false;
    count++;
    if (at == 0 || count < at || (count > at && strcmp(action, "always") != 0)) return false;
    if (strcmp(action, "lose") == 0) lose_unsynced();
    if (strcmp(action, "lose") == 0 || strcmp(action, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(action, "run") == 0) {
        const char *command = getenv("FAULT_RUN");
        unsetenv("LD_PRELOAD");
        if (!command || system(command) != 0) _exit(99);
        return false;
    }
    const char *number = getenv("FAULT_ERRNO");
    errno = number ? atoi(number) : ENOSPC;
    return true;
}

static bool meets_locked(int kind, const char *path)
{
    pthread_mutex_lock(&lock);
    bool fails = meets(kind, path);
    pthread_mutex_unlock(&lock);
    return fails;
}

static bool meets_fd(int kind, int fd)
{
    char path[PATH_MAX];
    if (!(kinds & kind)) return false;
    path_of(fd, path, sizeof path);
    return path[0] == '/' && meets_locked(kind, path);
}

/* ---- messages between ranks --------------------------------------------------------------- */
SHOW ssize_t send(int fd, const void *data, size_t n, int flags)
{
    static ssize_t (*next)(int, const void *, size_t, int);
    if (!next) *(void **)&next = real("send");
    return kinds & SEND && meets_locked(SEND, "/socket") ? -1 : next(fd, data, n, flags);
}

/* The types of Open MPI are pointers. */
SHOW int MPI_Isend(const void *data, int n, void *type, int to, int tag, void *comm,
                   void **request);
int MPI_Isend(const void *data, int n, void *type, int to, int tag, void *comm, void **request)
{
    enum { ERR_OTHER = 16 };
    static int (*next)(const void *, int, void *, int, int, void *, void **);
    if (!next) *(void **)&next = real("MPI_Isend");
    return kinds & MESSAGE && meets_locked(MESSAGE, "/mpi")
               ? ERR_OTHER
               : next(data, n, type, to, tag, comm, request);
}

SHOW int MPI_Comm_split_type(void *comm, int type, int key, void *info, void **out);
int MPI_Comm_split_type(void *comm, int type, int key, void *info, void **out)
{
    enum { ERR_OTHER = 16 };
    static int (*next)(void *, int, int, void *, void **);
    if (!next) *(void **)&next = real("MPI_Comm_split_type");
    return kinds & MESSAGE && meets_locked(MESSAGE, "/mpi") ? ERR_OTHER
                                                            : next(comm, type, key, info, out);
}

/* ---- opening ------------------------------------------------------------------------------ */
static void remember(int fd, bool made, const char *path)
{
    struct stat s;
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) return;
    pthread_mutex_lock(&lock);
    if (n_files == FILES) abort();
    int other = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (other >= 0) files[n_files++] = (file){.fd = other, .safe = s.st_size};
    if (made) add_note(OPEN, NULL, path, -1);
    pthread_mutex_unlock(&lock);
}

static int open_at(int dir, const char *path, int flags, int mode)
{
    char whole[PATH_MAX];
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    full(dir, path, whole, sizeof whole);
    if (meets_locked(writes ? OPEN : READ, whole)) return -1;
    bool made = writes && access(whole, F_OK) != 0;
    int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && writes) remember(fd, made, whole);
    return fd;
}

#define MODE(v, flags) ((flags) & (O_CREAT | O_TMPFILE) ? va_arg(v, int) : 0)
#define OPENS(symbol)                                                                              \
 SHOW int symbol(const char *path, int flags, ...)                                                 \
 {                                                                                                 \
  va_list v;                                                                                       \
  va_start(v, flags);                                                                              \
  int mode = MODE(v, flags);                                                                       \
  va_end(v);                                                                                       \
  return open_at(AT_FDCWD, path, flags, mode);                                                     \
 }
#define OPENS_AT(symbol)                                                                           \
 SHOW int symbol(int dir, const char *path, int flags, ...)                                        \
 {                                                                                                 \
  va_list v;                                                                                       \
  va_start(v, flags);                                                                              \
  int mode = MODE(v, flags);                                                                       \
  va_end(v);                                                                                       \
  return open_at(dir, path, flags, mode);                                                          \
 }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

static FILE *open_stream(const char *symbol, const char *path, const char *mode)
{
    char whole[PATH_MAX];
    FILE *(*next)(const char *, const char *) = real(symbol);
    bool writes = strpbrk(mode, "wa+") != NULL;
    full(AT_FDCWD, path, whole, sizeof whole);
    if (meets_locked(writes ? OPEN : READ, whole)) return NULL;
    bool made = writes && access(whole, F_OK) != 0;
    FILE *f = next(path, mode);
    if (f && writes) remember(fileno(f), made, whole);
    return f;
}

SHOW FILE *fopen(const char *path, const char *mode)
{
    return open_stream("fopen", path, mode);
}

SHOW FILE *fopen64(const char *path, const char *mode)
{
    return open_stream("fopen64", path, mode);
}

/* ---- bytes -------------------------------------------------------------------------------- */
SHOW ssize_t write(int fd, const void *data, size_t n)
{
    return meets_fd(WRITE, fd) ? -1 : syscall(SYS_write, fd, data, n);
}

SHOW ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    return meets_fd(WRITE, fd) ? -1 : syscall(SYS_pwrite64, fd, data, n, offset);
}

SHOW ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
    return pwrite(fd, data, n, offset);
}

SHOW int fflush(FILE *f)
{
    int (*next)(FILE *) = real("fflush");
    return f && meets_fd(WRITE, fileno(f)) ? EOF : next(f);
}

SHOW ssize_t read(int fd, void *data, size_t n)
{
    return meets_fd(READ, fd) ? -1 : syscall(SYS_read, fd, data, n);
}

SHOW ssize_t pread(int fd, void *data, size_t n, off_t offset)
{
    return meets_fd(READ, fd) ? -1 : syscall(SYS_pread64, fd, data, n, offset);
}

SHOW int fsync(int fd)
{
    char path[PATH_MAX];
    struct stat s, t;
    if (fstat(fd, &s) != 0) return -1;
    if (meets_fd(S_ISDIR(s.st_mode) ? SYNC | FOLDER : SYNC, fd)) return -1;
    path_of(fd, path, sizeof path);
    pthread_mutex_lock(&lock);
    if (S_ISDIR(s.st_mode)) settle(path);
    for (int i = 0; i < n_files && !S_ISDIR(s.st_mode); i++)
        if (fstat(files[i].fd, &t) == 0 && t.st_ino == s.st_ino && t.st_dev == s.st_dev)
            files[i].safe = s.st_size;
    pthread_mutex_unlock(&lock);
    return 0; /* the disk need not be asked */
}

SHOW int fdatasync(int fd)
{
    return fsync(fd);
}

/* ---- names -------------------------------------------------------------------------------- */
static int rename_at(int a, const char *from, int b, const char *to)
{
    static _Thread_local char x[PATH_MAX], y[PATH_MAX];
    full(a, from, x, sizeof x);
    full(b, to, y, sizeof y);
    if (meets_locked(RENAME, y)) return -1;
    pthread_mutex_lock(&lock);
    int old = keep(y), rc = (int)syscall(SYS_renameat, a, from, b, to), why = errno;
    if (rc == 0) add_note(RENAME, x, y, old);
    pthread_mutex_unlock(&lock);
    errno = why;
    return rc;
}

SHOW int rename(const char *from, const char *to)
{
    return rename_at(AT_FDCWD, from, AT_FDCWD, to);
}

SHOW int renameat(int a, const char *from, int b, const char *to)
{
    return rename_at(a, from, b, to);
}

SHOW int symlinkat(const char *target, int dir, const char *path)
{
    char whole[PATH_MAX];
    full(dir, path, whole, sizeof whole);
    if (meets_locked(OPEN, whole)) return -1;
    int rc = (int)syscall(SYS_symlinkat, target, dir, path);
    pthread_mutex_lock(&lock);
    if (rc == 0) add_note(OPEN, NULL, whole, -1);
    pthread_mutex_unlock(&lock);
    return rc;
}

SHOW int unlinkat(int dir, const char *path, int flags)
{
    char whole[PATH_MAX];
    full(dir, path, whole, sizeof whole);
    if (meets_locked(UNLINK, whole)) return -1;
    pthread_mutex_lock(&lock);
    int old = keep(whole), rc = (int)syscall(SYS_unlinkat, dir, path, flags), why = errno;
    if (rc == 0 && old >= 0) add_note(UNLINK, NULL, whole, old);
    if (rc == 0 && flags & AT_REMOVEDIR) add_note(RMDIR, NULL, whole, -1);
    pthread_mutex_unlock(&lock);
    errno = why;
    return rc;
}

SHOW int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

SHOW int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

SHOW int mkdir(const char *path, mode_t mode)
{
    char whole[PATH_MAX];
    full(AT_FDCWD, path, whole, sizeof whole);
    if (meets_locked(MKDIR, whole)) return -1;
    int rc = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode), why = errno;
    pthread_mutex_lock(&lock);
    if (rc == 0) add_note(MKDIR, NULL, whole, -1);
    pthread_mutex_unlock(&lock);
    errno = why;
    return rc;
}

/* ---- memory ------------------------------------------------------------------------------- */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t each);
void *__libc_realloc(void *p, size_t n);

/* Without the lock, and without a file: every allocation of the process counts. */
static __attribute__((noinline)) bool fails_alloc(size_t bytes)
{
    if (!(kinds & ALLOC) || (only_bytes && bytes != only_bytes)) return false;
    if (by_path && !on_path()) return false;
    long k = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    bool hit = at > 0 && (k == at || (k > at && strcmp(action, "always") == 0));
    if (hit && strcmp(action, "kill") == 0) kill(getpid(), SIGKILL);
    if (hit) errno = ENOMEM;
    if (only_path && k >= at && strcmp(action, "always") != 0) kinds = 0; /* the fault is over */
    return hit;
}

SHOW void *malloc(size_t n)
{
    return fails_alloc(n) ? NULL : __libc_malloc(n);
}

SHOW void *calloc(size_t n, size_t each)
{
    return fails_alloc(n * each) ? NULL : __libc_calloc(n, each);
}

SHOW void *realloc(void *p, size_t n)
{
    return fails_alloc(n) ? NULL : __libc_realloc(p, n);
}
