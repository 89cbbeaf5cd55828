/* fault_paths.h - part of fault.c: allocations by the calls that lead to them.
 *
 * A program makes ten thousands of allocations, but reaches them on few hundred paths through its
 * own code. A path is a hash of the return addresses, as places in their files, so that it is the
 * same in every process.
 */
/* OWN: path_now, on_path, fails_alloc and malloc itself. */
enum { PATHS = 1 << 16, DEEPEST = 64, OWN = 4 };

typedef struct path_count {
    uint64_t path; /* 0: none */
    long n;
} path_count;

static path_count paths[PATHS];
static bool by_path;       /* paths are looked at */
static uint64_t only_path; /* FAULT_PATH; 0: any */
static int depth = 2;

static void read_path_settings(void)
{
    const char *d = getenv("FAULT_DEPTH"), *one = getenv("FAULT_PATH");
    if (d) depth = atoi(d);
    if (depth < 0 || depth > DEEPEST - OWN) depth = DEEPEST - OWN;
    only_path = one ? strtoull(one, NULL, 16) : 0;
    by_path = kinds == ALLOC && (one || getenv("FAULT_PATHS"));
}

/* A return address: its place in its file, and whether the file is the program or a plug-in.
 * Looking it up takes most of the time of a path, so places that were seen are kept. */
typedef struct seen {
    void *frame; /* NULL: none */
    uint64_t place;
    bool ours;
} seen;

static seen look_up(void *frame)
{
    static _Thread_local seen kept[1 << 11]; /* without a lock, which a fork could leave locked */
    seen *slot = &kept[((uint64_t)frame ^ (uint64_t)frame >> 11) % (sizeof kept / sizeof *kept)];
    if (slot->frame == frame) return *slot;
    Dl_info in;
    seen s = (seen){.frame = frame, .place = (uint64_t)frame};
    if (dladdr(frame, &in) && in.dli_fname) {
        const char *slash = strrchr(in.dli_fname, '/');
        s.ours = strstr(slash ? slash : in.dli_fname, "plimsoll") != NULL;
        s.place -= (uint64_t)in.dli_fbase;
        for (const char *c = slash ? slash : in.dli_fname; *c; c++)
            s.place = (s.place ^ (uint8_t)*c) * 1099511628211u;
    }
    *slot = s;
    return s;
}

/* Returns the number of the path to the allocation that is being made. */
static __attribute__((noinline)) uint64_t path_now(void)
{
    void *frame[DEEPEST];
    int n = backtrace(frame, DEEPEST);
    uint64_t h = 14695981039346656037u;
    for (int i = OWN; i < n; i++) {
        seen s = look_up(frame[i]);
        if (!s.ours && i >= OWN + depth) continue;
        h = (h ^ s.place) * 1099511628211u;
        h ^= h >> 29;
    }
    return h ? h : 1;
}

static void count_path(uint64_t path)
{
    pthread_mutex_lock(&lock);
    for (size_t i = path % PATHS;; i = (i + 1) % PATHS) {
        if (paths[i].path && paths[i].path != path) continue;
        paths[i].path = path;
        paths[i].n++;
        break;
    }
    pthread_mutex_unlock(&lock);
}

static void report_paths(void)
{
    const char *to = getenv("FAULT_PATHS");
    if (!to || !by_path) return;
    by_path = false;
    int fd = plain_open(to, O_WRONLY | O_CREAT | O_TRUNC);
    for (int i = 0; fd >= 0 && i < PATHS; i++) {
        char line[64];
        if (!paths[i].path) continue;
        int n = snprintf(line, sizeof line, "%016llx %ld\n", (unsigned long long)paths[i].path,
                         paths[i].n);
        if (syscall(SYS_write, fd, line, n) != n) _exit(9);
    }
    if (fd >= 0) close(fd);
}

/* Whether an allocation counts, by the calls that led to it. Finding out may allocate. */
static __attribute__((noinline)) bool on_path(void)
{
    static _Thread_local bool busy;
    if (busy) return false;
    busy = true;
    uint64_t path = path_now();
    if (!only_path) count_path(path);
    busy = false;
    return !only_path || path == only_path;
}
