/* nvml.c - a management library that knows one card and three processes on it: this one, one with a
 * name and one whose share it does not tell.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHOW __attribute__((visibility("default")))

typedef struct memory {
    unsigned long long total, free, used;
} memory;

typedef struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} process;

SHOW int nvmlInit_v2(void);
SHOW int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out);
SHOW int nvmlDeviceGetMemoryInfo(void *card, memory *out);
SHOW int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *n, process *out);
SHOW int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned cap);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **out)
{
    static int card;
    *out = &card;
    return strcmp(id, "0000:0B:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetMemoryInfo(void *card, memory *out)
{
    (void)card;
    *out = (memory){16ull << 30, 7ull << 30, 9ull << 30};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned *n, process *out)
{
    (void)card;
    if (*n < 3) return 7;
    out[0] = (process){4242, 9ull << 30, 0, 0};
    out[1] = (process){(unsigned)getpid(), 1ull << 30, 0, 0};
    out[2] = (process){77, ~0ull, 0, 0};
    *n = 3;
    return 0;
}

int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned cap)
{
    if (pid != 4242) return 6;
    snprintf(out, cap, "/usr/bin/python3");
    return 0;
}
