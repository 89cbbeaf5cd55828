/* sys.h - the only access to malloc, mmap, files and the clock.
 *
 * Everything that takes memory from the system goes through here, so that it can be counted and
 * made to fail. Allocation in long-lived structures goes through arenas (arena.h) instead.
 */
#ifndef PL_BASE_SYS_H
#define PL_BASE_SYS_H

#include "base/err.h"

#include <limits.h>

PL_SHARED_BEGIN

/* Returns zeroed memory, or NULL with the message set. Free with pl_sys_free (NULL is fine). */
void *pl_sys_alloc(size_t bytes);
void *pl_sys_realloc(void *p, size_t old_bytes, size_t new_bytes); /* new bytes are zero */
void pl_sys_free(void *p);

/* Maps page-aligned zero pages directly from the kernel: the arena, the state. Children of fork do
 * not have them. */
pl_status pl_sys_map(size_t bytes, void **out) PL_MUST_USE;
void pl_sys_unmap(void *p, size_t bytes);

/* Counters of calls since the process began; tests read them. */
typedef struct pl_sys_counts {
    uint64_t allocs, frees, maps, opens;
} pl_sys_counts;
pl_sys_counts pl_sys_counts_get(void);
/* Returns the bytes that this thread has asked pl_sys_alloc for so far, freed or not. */
uint64_t pl_sys_asked_bytes(void);
/* Makes the n-th allocation or mapping from here on (1 = the next) fail once; 0 switches it off. */
void pl_sys_fail_nth(uint64_t n);
/* True when a failure armed by pl_sys_fail_nth has happened since it was armed. */
bool pl_sys_fail_hit(void);

/* open(2), counted; -1 with errno set on failure. flags as for open, O_CLOEXEC is added, and
 * O_NONBLOCK for reading, so that a pipe does not wait for its writer. */
int pl_sys_open(const char *path, int flags, int mode);
/* fsyncs the folder that holds path, so that a rename in it survives a power cut. */
void pl_sys_sync_folder(const char *path);
/* Reads the whole file, with a NUL after its end; refused beyond max_bytes. The caller frees it. */
pl_status pl_sys_read_file(const char *path, size_t max_bytes, char **out, size_t *len) PL_MUST_USE;
/* Sets where a file that is written and then renamed must go, so that a link stays a link: *path,
 * or its target, in real. PL_ERR_IO: the path is neither file nor folder (a device, a pipe), and
 * would be replaced. */
pl_status pl_sys_target(const char **path, char real[PATH_MAX]) PL_MUST_USE;
/* Writes a temporary file beside it, fsyncs, renames over path, fsyncs the folder: a reader sees
 * the old file or the new one, never a part. */
pl_status pl_sys_write_file(const char *path, const void *data, size_t len) PL_MUST_USE;
/* mkdir -p. */
pl_status pl_sys_make_dirs(const char *path) PL_MUST_USE;

uint64_t pl_sys_now_ns(void); /* monotonic */
/* How long the calling thread has waited for a core while it could run, since it began; 0 where the
 * system does not count it. */
uint64_t pl_sys_waited_ns(void);
int pl_sys_cores(void);        /* that this process may use: affinity and CPU quota; at least 1 */
size_t pl_sys_rss_bytes(void); /* resident set now */
/* Returns $HOME, or NULL when it names no folder. A missing folder is not made: the home of a
 * service is often /nonexistent, which must not exist. */
const char *pl_sys_home(void);
size_t pl_sys_mapped_bytes(void); /* address space in use, as RLIMIT_AS counts it */
size_t pl_sys_data_bytes(void);   /* private writable mappings, as RLIMIT_DATA counts them */
size_t pl_sys_anon_bytes(void);   /* resident set now, without pages of files */
/* Returns memory that the allocator holds free to the system. */
void pl_sys_trim(void);
/* Returns to the kernel the resident pages of code and constants of the program and its libraries.
 * The kernel maps a page again when the program touches it, from the file cache, without reading a
 * disk. */
void pl_sys_drop_code(void);
size_t pl_sys_peak_rss_bytes(void); /* high-water mark of the process */
/* The high-water mark when this program, or the library with it, was loaded: the loader touches
 * libraries that training does not need. */
size_t pl_sys_start_peak_bytes(void);

PL_SHARED_END

/* ---- the container (cgroup.c) ----------------------------------------------------------------
 * The limits of the container, a control group, that this process runs in. A group has at most
 * what every group above it has, so the smallest limit up the tree counts. Both versions of control
 * groups and their mixture are read. Without /sys/fs/cgroup, and for limits that are not set, there
 * is no limit. In a container the path of /proc/self/cgroup may be that of the host, which the
 * container does not see: then the root that the container sees counts. */
PL_SHARED_BEGIN

typedef struct pl_cgroup {
    double cpus;           /* CPU quota, in cores; 0: none */
    uint64_t memory_bytes; /* memory limit; 0: none */
    char memory_path[512]; /* folder of the group with that limit; "": none */
    int version;           /* of that group: 1 or 2; 0: none */
    uint64_t memory_id;    /* of that group on this machine: equal for processes that share it */
} pl_cgroup;

/* self: a file like /proc/self/cgroup; root: a folder like /sys/fs/cgroup. */
void pl_cgroup_read(const char *self, const char *root, pl_cgroup *out);
/* The limits of this process, read once. The environment variable PLIMSOLL_CGROUP names a folder
 * whose entries `self` and `fs` replace the two paths, for tests. */
const pl_cgroup *pl_cgroup_own(void);
/* Bytes that the processes of the group with the memory limit hold, without file contents that the
 * kernel may drop; 0: unknown, or no limit. Opens its files once and allocates nothing. */
uint64_t pl_cgroup_memory_used(void);
PL_SHARED_END

/* ---- plug-ins of the program (plugin.c) ------------------------------------------------------
 * A plug-in (CUDA, MPI) lies beside the program, in ../lib/plimsoll, or where an environment
 * variable says; if the variable is set, it names the only place. */
/* Opens the file that pl_plugin_find finds, with dlopen's flags. NULL with path "":
 * no place has it. NULL with a path: dlopen refuses it, and dlerror() says why. */
void *pl_plugin_open(const char *name, int flags, char *path, size_t cap);
/* Writes the places that are searched, as text: "a or b". */
void pl_plugin_places(const char *name, char *out, size_t cap);

/* ---- libraries that are opened on first use (plugin.c) ---------------------------------------
 * Libraries of images, HDF5 and Unicode are loaded at run time, so that a run without them does not
 * take their memory and a machine without them still trains; their headers, where the compiler
 * finds them, define the types. The caller fills its table of functions once, by whichever thread
 * needs it first. */
/* Opens the first of the NULL-terminated names that exists and looks up n symbols into table[0..n);
 * false when no library exists, or a symbol is missing. */
bool pl_library_load(const char *const *names, const char *const *symbols, int n, void **table);

#endif
