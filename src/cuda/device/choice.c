/* choice.c - see choice.h. The file has lines of "key value", each with its checksum
 * (pl_cache_seal); keys hold no blanks. Processes append under a lock, each after reading the lines
 * that the others appended. */
#include "cuda/device/choice.h"

#include "base/cache_dir.h"
#include "base/str.h"
#include "base/sys.h"
#include "cuda/device/lib.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_FILE = 8 << 20, REPEATS = 5, REPLAYED = 10 };

/* One table for the process: everything compiled in the process must choose alike. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pl_str table;
static bool loaded;
static off_t known; /* bytes of the file that are in the table */

static bool path_of(char *path, size_t cap)
{
    const char *dir = pl_cuda_cache_dir();
    if (!dir[0]) return false;
    char card[64];
    snprintf(card, sizeof card, "%s", pl_cuda_props_get()->name);
    for (char *c = card; *c; c++)
        if (*c == ' ' || *c == '/') *c = '_';
    int n = snprintf(path, cap, "%s/choices-%s-sm%d-lt%zu-dnn%zu.txt", dir, card,
                     pl_cuda_props_get()->arch, cublasLtGetVersion(), cudnnGetVersion());
    return n > 0 && (size_t)n < cap && pl_cache_trusts(path);
}

/* Adds the whole lines of a text whose checksums are right to the table. */
static void add_lines(const char *text, size_t n)
{
    for (const char *at = text, *end; at < text + n; at = end + 1) {
        end = memchr(at, '\n', (size_t)(text + n - at));
        size_t len = pl_cache_sealed(at, (size_t)(end - at));
        if (len && !memchr(at, 0, len)) pl_str_addf(&table, "%.*s\n", (int)len, at);
    }
}

/* Reads new lines of the file, whole lines only: a full disk or a killed process leaves part of a
 * line, which is not a choice. */
static void read_more(int fd)
{
    static char part[4096]; /* one reader at a time: callers hold the lock */
    ssize_t n;
    while (known < MAX_FILE && (n = pread(fd, part, sizeof part, known)) > 0) {
        while (n > 0 && part[n - 1] != '\n') n--;
        if (n == 0) return;
        add_lines(part, (size_t)n);
        known += n;
    }
}

static void load(void)
{
    char path[4096];
    loaded = true;
    if (!path_of(path, sizeof path)) return;
    int fd = pl_sys_open(path, O_RDONLY, 0);
    if (fd < 0) return;
    flock(fd, LOCK_SH);
    read_more(fd);
    close(fd);
}

/* Returns the value in the table, or NULL. */
static const char *find(const char *key)
{
    size_t n = strlen(key);
    const char *at = table.text;
    while (at && *at) {
        if (strncmp(at, key, n) == 0 && at[n] == ' ') return at + n + 1;
        at = strchr(at, '\n');
        if (at) at++;
    }
    return NULL;
}

bool pl_cuda_choice_get(const char *key, char *value, size_t cap)
{
    pthread_mutex_lock(&lock);
    if (!loaded) load();
    const char *v = find(key);
    if (v) snprintf(value, cap, "%.*s", (int)strcspn(v, "\n"), v);
    pthread_mutex_unlock(&lock);
    return v != NULL;
}

/* Adds the line to the file unless another process has chosen in the meantime. */
static void share(const char *key, const char *value)
{
    char path[4096], line[1024];
    int n = snprintf(line, sizeof line, "%s %s", key, value), fd = -1;
    bool fits = n > 0 && (size_t)n < sizeof line && pl_cache_seal(line, sizeof line - 1);
    if (fits) memcpy(line + strlen(line), "\n", 2);
    n = (int)strlen(line);
    if (fits && path_of(path, sizeof path))
        fd = pl_sys_open(path, O_RDWR | O_CREAT | O_APPEND, 0666);
    if (fd >= 0) {
        flock(fd, LOCK_EX);
        read_more(fd);
        /* truncates an incomplete line */
        bool room = !find(key) && known < MAX_FILE && ftruncate(fd, known) == 0;
        if (room && write(fd, line, (size_t)n) == n) read_more(fd);
        close(fd);
    }
    if (!find(key)) pl_str_addf(&table, "%s %s\n", key, value); /* at least in memory */
}

void pl_cuda_choice_put(const char *key, char *value, size_t cap)
{
    pthread_mutex_lock(&lock);
    if (!loaded) load();
    if (!find(key)) share(key, value);
    const char *v = find(key);
    if (v) snprintf(value, cap, "%.*s", (int)strcspn(v, "\n"), v);
    pthread_mutex_unlock(&lock);
}

/* ---- times ------------------------------------------------------------------------------ */
/* Threads that compile programs share the stream: one measurement at a time. */
static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static double spent_ms; /* of the GPU, on all measurements of this process */

bool pl_cuda_time_left(void)
{
    pthread_mutex_lock(&clock_lock);
    bool left = pl_cuda_autotune() || spent_ms < PL_CUDA_TIMING_MS;
    pthread_mutex_unlock(&clock_lock);
    return left;
}

typedef pl_status run_fn(void *ctx);

typedef struct clock_events {
    cudaEvent_t a, b;
} clock_events;

/* Returns the minimum of several runs. */
static pl_status least_of(run_fn *run, void *ctx, int repeats, const clock_events *e, float *ms)
{
    cudaStream_t s = pl_cuda_stream();
    for (int i = 0; i < repeats; i++) {
        float t = 0;
        PL_CUDA(cudaEventRecord(e->a, s));
        PL_TRY(run(ctx));
        PL_CUDA(cudaEventRecord(e->b, s));
        PL_CUDA(cudaEventSynchronize(e->b));
        PL_CUDA(cudaEventElapsedTime(&t, e->a, e->b));
        spent_ms += (double)t;
        if (i == 0 || t < *ms) *ms = t;
    }
    return PL_OK;
}

/* Captures REPLAYED runs as one graph, because a step is a graph too. */
static pl_status record(run_fn *run, void *ctx, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    pl_status rc = PL_OK;
    PL_CUDA(cudaStreamBeginCapture(pl_cuda_stream(), cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < REPLAYED && rc == PL_OK; i++) rc = run(ctx);
    cudaError_t end = cudaStreamEndCapture(pl_cuda_stream(), &graph);
    if (rc == PL_OK && end != cudaSuccess)
        rc = pl_cuda_failed(end, "cudaStreamEndCapture", __FILE__, __LINE__);
    if (rc == PL_OK) {
        end = cudaGraphInstantiate(out, graph, 0);
        if (end != cudaSuccess)
            rc = pl_cuda_failed(end, "cudaGraphInstantiate", __FILE__, __LINE__);
    }
    if (graph) cudaGraphDestroy(graph);
    if (rc != PL_OK) (void)cudaGetLastError();
    return rc;
}

static pl_status replay(void *graph)
{
    PL_CUDA(cudaGraphLaunch(graph, pl_cuda_stream()));
    return PL_OK;
}

static pl_status time_replayed(cudaGraphExec_t graph, const clock_events *e, float *ms)
{
    PL_TRY(replay(graph));
    PL_TRY(least_of(replay, graph, REPEATS, e, ms));
    *ms /= REPLAYED;
    return PL_OK;
}

/* The host takes longer to enqueue a short run than the GPU takes to run it, so short runs are
 * timed within a graph where capture works. */
static pl_status timed(run_fn *run, void *ctx, const clock_events *e, float *ms)
{
    const float SHORT = 0.1f;
    cudaGraphExec_t graph = NULL;
    PL_TRY(run(ctx));
    PL_TRY(least_of(run, ctx, 2, e, ms));
    if (*ms >= SHORT || record(run, ctx, &graph) != PL_OK)
        return least_of(run, ctx, REPEATS, e, ms);
    pl_status rc = time_replayed(graph, e, ms);
    cudaGraphExecDestroy(graph);
    return rc;
}

static pl_status timed_few(run_fn *run, void *ctx, const clock_events *e, float *ms)
{
    PL_TRY(run(ctx));
    return least_of(run, ctx, 2, e, ms);
}

typedef pl_status time_fn(run_fn *run, void *ctx, const clock_events *e, float *ms);

static pl_status with_events(time_fn *time, run_fn *run, void *ctx, float *ms)
{
    clock_events e = {NULL, NULL};
    PL_CUDA(cudaEventCreate(&e.a));
    cudaError_t made = cudaEventCreate(&e.b);
    pthread_mutex_lock(&clock_lock);
    pl_status rc = made == cudaSuccess
                       ? time(run, ctx, &e, ms)
                       : pl_cuda_failed(made, "cudaEventCreate", __FILE__, __LINE__);
    pthread_mutex_unlock(&clock_lock);
    cudaEventDestroy(e.a);
    if (e.b) cudaEventDestroy(e.b);
    return rc;
}

pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms)
{
    return with_events(timed, run, ctx, ms);
}

pl_status pl_cuda_time_few(pl_status (*run)(void *ctx), void *ctx, float *ms)
{
    return with_events(timed_few, run, ctx, ms);
}
