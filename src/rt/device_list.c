/* device_list.c - what this machine offers, in words. */
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

/* Opened once: a run looks at it between steps, which open and allocate nothing. */
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

/* Cards, or one entry that says why there are none. */
static int describe_cuda(pl_device_info *d, int cap)
{
    const pl_cuda_plugin_info *plugin;
    int n = 0;
    memset(d, 0, (size_t)cap * sizeof *d);
    pl_status rc = pl_cuda_load(&plugin);
    if (rc == PL_OK) rc = plugin->list(d, cap, &n);
    if (rc == PL_OK) return n;
    snprintf(d->name, sizeof d->name, "cuda");
    snprintf(d->about, sizeof d->about, "NVIDIA graphics cards");
    snprintf(d->why_not, sizeof d->why_not, "%s", pl_error_text());
    return 1;
}

int pl_device_list(pl_device_info *out, int cap)
{
    enum { MOST = 17 };
    pl_device_info all[MOST];
    memset(all, 0, sizeof all);
    describe_cpu(&all[0]);
    int n = 1 + describe_cuda(&all[1], MOST - 1);
    for (int i = 0; i < n && i < cap; i++) out[i] = all[i];
    return n;
}

bool pl_device_memory(const char *name, uint64_t *total, uint64_t *available)
{
    enum { MOST = 16 };
    pl_device_info d[MOST];
    int at = 0;
    if (strcmp(name, "cpu") == 0) {
        *total = meminfo_bytes("MemTotal:");
        *available = meminfo_bytes("MemAvailable:");
        return *total != 0;
    }
    if (!pl_device_is_plugged(name)) return false;
    int n = describe_cuda(d, MOST);
    const char *card = strchr(name, ':');
    while (card && strcmp(card, ":0") != 0 && at < n && at < MOST && strcmp(d[at].name, name) != 0)
        at++;
    if (at >= n || at >= MOST || !d[at].usable || !d[at].total_bytes) return false;
    *total = d[at].total_bytes;
    *available = d[at].free_bytes;
    return true;
}
