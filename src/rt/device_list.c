/* device_list.c - what this machine offers, in words. */
#include "base/pool.h"
#include "base/sys.h"
#include "rt/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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
    return pl_pool_threads();
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

static uint64_t meminfo_bytes(const char *field)
{
    char text[64];
    unsigned long long kib = 0;
    proc_field("/proc/meminfo", field, text, sizeof text);
    if (sscanf(text, "%llu", &kib) != 1) return 0;
    return kib * 1024;
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
    snprintf(out, cap, "%s, %d threads, %s", model[0] ? model : "processor", pl_pool_threads(),
             vector_unit());
}

static void describe_cpu(pl_device_info *d)
{
    snprintf(d->name, sizeof d->name, "cpu");
    pl_cpu_model(d->about, sizeof d->about);
    d->total_bytes = meminfo_bytes("MemTotal");
    d->free_bytes = meminfo_bytes("MemAvailable");
    d->usable = true;
}

/* This build has no CUDA plug-in; say what is missing rather than nothing. */
static void describe_cuda(pl_device_info *d)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    snprintf(d->name, sizeof d->name, "cuda");
    snprintf(d->about, sizeof d->about, "NVIDIA graphics cards");
    snprintf(d->why_not, sizeof d->why_not, "%s",
             driver ? "an NVIDIA driver is here, but this build has no CUDA plug-in "
                      "(libplimsoll_cuda.so)"
                    : "no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    if (driver) dlclose(driver);
}

int pl_device_list(pl_device_info *out, int cap)
{
    pl_device_info all[2];
    memset(all, 0, sizeof all);
    describe_cpu(&all[0]);
    describe_cuda(&all[1]);
    for (int i = 0; i < 2 && i < cap; i++) out[i] = all[i];
    return 2;
}
