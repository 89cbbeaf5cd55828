/* choice.c - see choice.h. The file is lines of "key value"; keys hold no blanks. Processes add to its end,
 * one at a time, each after it has read what the others added. */
#include "cuda/choice.h"

#include "base/str.h"
#include "base/sys.h"
#include "cuda/lib.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_FILE = 8 << 20, REPEATS = 5 };

/* One table for the process: choices must agree between all that is compiled in it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pl_str table;
static bool loaded;
static off_t known; /* bytes of the file that are in the table */

static bool path_of(char *path, size_t cap)
{
    const char *dir = pl_cuda_cache_dir();
    if (!dir[0]) return false;
    char card[64];
    snprintf(card, sizeof card, "%s", pl_cuda_card_get()->name);
    for (char *c = card; *c; c++)
        if (*c == ' ' || *c == '/') *c = '_';
    int n = snprintf(path, cap, "%s/choices-%s-sm%d-lt%zu-dnn%zu.txt", dir, card,
                     pl_cuda_card_get()->arch, cublasLtGetVersion(), cudnnGetVersion());
    return n > 0 && (size_t)n < cap;
}

/* What the file has beyond what is known. */
static void read_more(int fd)
{
    char part[4096];
    ssize_t n;
    while (known < MAX_FILE && (n = pread(fd, part, sizeof part, known)) > 0) {
        pl_str_addn(&table, part, (size_t)n);
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

/* The value's place in the table, or NULL. */
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

/* Adds the line to the file unless another process has chosen meanwhile. */
static void share(const char *key, const char *value)
{
    char path[4096], line[1024];
    int n = snprintf(line, sizeof line, "%s %s\n", key, value), fd = -1;
    if (n > 0 && (size_t)n < sizeof line && path_of(path, sizeof path))
        fd = pl_sys_open(path, O_RDWR | O_CREAT | O_APPEND, 0666);
    if (fd >= 0) {
        flock(fd, LOCK_EX);
        read_more(fd);
        if (!find(key) && known < MAX_FILE && write(fd, line, (size_t)n) == n) read_more(fd);
        close(fd);
    }
    if (!find(key)) pl_str_addf(&table, "%s %s\n", key, value); /* it stays in memory */
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

static pl_status timed(pl_status (*run)(void *ctx), void *ctx, cudaEvent_t a, cudaEvent_t b,
                       float *ms)
{
    cudaStream_t s = pl_cuda_stream();
    PL_TRY(run(ctx));
    for (int i = 0; i < REPEATS; i++) {
        float t = 0;
        PL_CUDA(cudaEventRecord(a, s));
        PL_TRY(run(ctx));
        PL_CUDA(cudaEventRecord(b, s));
        PL_CUDA(cudaEventSynchronize(b));
        PL_CUDA(cudaEventElapsedTime(&t, a, b));
        if (i == 0 || t < *ms) *ms = t;
    }
    return PL_OK;
}

pl_status pl_cuda_time(pl_status (*run)(void *ctx), void *ctx, float *ms)
{
    cudaEvent_t a = NULL, b = NULL;
    PL_CUDA(cudaEventCreate(&a));
    cudaError_t made = cudaEventCreate(&b);
    pl_status rc = made == cudaSuccess
                       ? timed(run, ctx, a, b, ms)
                       : pl_cuda_failed(made, "cudaEventCreate", __FILE__, __LINE__);
    cudaEventDestroy(a);
    if (b) cudaEventDestroy(b);
    return rc;
}
