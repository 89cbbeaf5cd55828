/* device_list.c - the devices of this machine: names, descriptions, total and free memory. */
#include "base/sys.h"
#include "base/threads.h"
#include "rt/device.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t pl_process_bytes(void)
{
    return pl_sys_rss_bytes();
}

uint64_t pl_process_peak_bytes(void)
{
    return pl_sys_peak_rss_bytes();
}

int pl_threads(void)
{
    return pl_threads_count();
}

/* The text after "field<blanks>: " in a /proc file, cut at the end of the line. */
static void proc_field(const char *path, const char *field, char *out, size_t cap)
{
    char line[512];
    out[0] = 0;
    FILE *f = fopen(path, "re");
    if (!f) return;
    while (!out[0] && fgets(line, sizeof line, f)) {
        if (strncmp(line, field, strlen(field)) != 0) continue;
        char *value = strchr(line, ':');
        if (!value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, cap, "%s", value);
    }
    fclose(f);
}

/* Opened once: a run reads it between steps, which open and allocate nothing. */
static pthread_once_t meminfo_once = PTHREAD_ONCE_INIT;
static int meminfo = -1;

static void open_meminfo(void)
{
    meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
}

static uint64_t meminfo_bytes(const char *field)
{
    char text[4096];
    pthread_once(&meminfo_once, open_meminfo);
    ssize_t n = meminfo < 0 ? -1 : pread(meminfo, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    const char *at = strstr(text, field);
    return at ? strtoull(at + strlen(field), NULL, 10) * 1024 : 0;
}

static const char *vector_unit(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "AVX-512";
    return __builtin_cpu_supports("avx2") ? "AVX2" : "SSE2";
}

void pl_cpu_model(char *out, size_t cap)
{
    char model[128];
    proc_field("/proc/cpuinfo", "model name", model, sizeof model);
    snprintf(out, cap, "%s, %d threads, %s", model[0] ? model : "processor", pl_threads_count(),
             vector_unit());
}

static void describe_cpu(pl_device_info *d)
{
    snprintf(d->name, sizeof d->name, "cpu");
    pl_cpu_model(d->about, sizeof d->about);
    d->total_bytes = meminfo_bytes("MemTotal:");
    d->free_bytes = meminfo_bytes("MemAvailable:");
    d->usable = true;
}

/* GPUs, or one entry that says why there are none; writes at most cap, returns how many there
 * are. */
static int describe_cuda(pl_device_info *d, int cap)
{
    const pl_cuda_plugin_info *plugin;
    int n = 0;
    if (cap > 0) memset(d, 0, (size_t)cap * sizeof *d);
    pl_status rc = pl_cuda_load(&plugin);
    if (rc == PL_OK) rc = plugin->list(d, cap, &n);
    if (rc == PL_OK) return n;
    if (cap < 1) return 1;
    snprintf(d->name, sizeof d->name, "cuda");
    snprintf(d->about, sizeof d->about, "NVIDIA graphics cards");
    snprintf(d->why_not, sizeof d->why_not, "%s", pl_error_text());
    return 1;
}

int pl_device_list(pl_device_info *out, int cap)
{
    if (cap > 0) {
        memset(out, 0, sizeof *out);
        describe_cpu(out);
    }
    return 1 + describe_cuda(out + (cap > 0), cap > 0 ? cap - 1 : 0);
}

/* The entry of a GPU: "cuda" and "cuda:0" are the first one. */
static const pl_device_info *find_entry(const pl_device_info *d, int n, const char *name)
{
    const char *number = strchr(name, ':');
    int at = 0;
    while (number && strcmp(number, ":0") != 0 && at < n && strcmp(d[at].name, name) != 0) at++;
    return at < n && d[at].usable && d[at].total_bytes ? &d[at] : NULL;
}

/* A run asks between steps, which allocate nothing: the list exists once. */
enum { MOST_GPUS = 16 };
static struct {
    pthread_mutex_t lock;
    pl_device_info list[MOST_GPUS];
} gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool pl_device_memory(const char *name, uint64_t *total, uint64_t *available)
{
    if (strcmp(name, "cpu") == 0) {
        *total = meminfo_bytes("MemTotal:");
        *available = meminfo_bytes("MemAvailable:");
        return *total != 0;
    }
    if (!pl_device_is_plugged(name)) return false;
    pthread_mutex_lock(&gpus.lock);
    int n = describe_cuda(gpus.list, MOST_GPUS);
    const pl_device_info *d = find_entry(gpus.list, n < MOST_GPUS ? n : MOST_GPUS, name);
    if (d) {
        *total = d->total_bytes;
        *available = d->free_bytes;
    }
    pthread_mutex_unlock(&gpus.lock);
    return d != NULL;
}
