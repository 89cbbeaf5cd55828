/* used_memory.c - how much of the GPU's memory this process and other processes hold.
 *
 * NVML, the driver's management library, knows each process's share. In a container NVML sees other
 * process numbers than ours; then our share is the used memory of the whole GPU minus the used
 * memory before this process opened it. Without NVML all memory in use counts as ours, which is
 * never too little.
 *
 * NVML is opened by name at run time, and its few structures are declared here, because users do
 * not have its header.
 */
#include "base/str.h"
#include "cuda/device/device_int.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64 };

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process;

/* Filled once, before the GPU is opened. */
static struct {
    void *card; /* NULL: no NVML */
    int (*memory)(void *, nvml_memory *);
    int (*processes)(void *, unsigned *, nvml_process *);
    int (*process_name)(unsigned, char *, unsigned);
    uint64_t before; /* bytes in use on the whole GPU */
} nvml;

static bool take(void *library, const char *name, void *function)
{
    void *entry = dlsym(library, name);
    memcpy(function, &entry, sizeof entry);
    return entry != NULL;
}

/* Returns NVML's handle of the GPU at that address; NULL without NVML. */
static void *find_card(const char *pci_id)
{
    int (*init)(void), (*find)(const char *, void **);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), *card = NULL;
    if (!library || !take(library, "nvmlInit_v2", &init) ||
        !take(library, "nvmlDeviceGetHandleByPciBusId_v2", &find) ||
        !take(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) ||
        !take(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes) ||
        !take(library, "nvmlSystemGetProcessName", &nvml.process_name))
        return NULL;
    return init() == 0 && find(pci_id, &card) == 0 ? card : NULL;
}

uint64_t pl_cuda_free_bytes(const char *pci_id)
{
    void *card = find_card(pci_id);
    nvml_memory m;
    return card && nvml.memory(card, &m) == 0 ? m.free : 0;
}

void pl_cuda_used_begin(const char *pci_id)
{
    void *card = find_card(pci_id);
    nvml_memory m;
    if (!card || nvml.memory(card, &m) != 0) return;
    nvml.card = card;
    nvml.before = m.used;
}

/* Lists the GPU's processes; -1: not known. */
static int list_processes(nvml_process *list)
{
    unsigned n = MAX_PROCESSES;
    if (!nvml.card || nvml.processes(nvml.card, &n, list) != 0) return -1;
    return (int)n;
}

uint64_t pl_cuda_used_bytes(void)
{
    nvml_process list[MAX_PROCESSES];
    int n = list_processes(list);
    for (int i = 0; i < n; i++)
        if (list[i].pid == (unsigned)getpid() && list[i].bytes != ~0ull) return list[i].bytes;
    nvml_memory m;
    if (nvml.card && nvml.memory(nvml.card, &m) == 0)
        return m.used > nvml.before ? m.used - nvml.before : 0;
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) cudaGetLastError();
    return total - free_bytes;
}

pl_status pl_cuda_room(uint64_t bytes)
{
    size_t free_bytes = 0, total = 0;
    PL_CUDA(cudaMemGetInfo(&free_bytes, &total));
    if (bytes <= free_bytes) return PL_OK;
    char who[1024] = "", a[32], b[32], c[32];
    nvml_process list[MAX_PROCESSES];
    int n = list_processes(list);
    for (int i = 0; i < n; i++) {
        char name[256] = "a process", held[32];
        size_t used = strlen(who);
        if (list[i].pid == (unsigned)getpid()) continue;
        nvml.process_name(list[i].pid, name, sizeof name);
        bool told = list[i].bytes != ~0ull;
        snprintf(who + used, sizeof who - used, "%s%s (%u) holds %s", used ? ", " : "; ", name,
                 list[i].pid,
                 told ? pl_str_bytes(list[i].bytes, held, sizeof held) : "an unknown amount");
    }
    PL_FAIL(PL_ERR_FIT, "%s has %s free of %s, %s more are needed%s", pl_cuda_props_get()->name,
            pl_str_bytes(free_bytes, a, sizeof a), pl_str_bytes(total, b, sizeof b),
            pl_str_bytes(bytes, c, sizeof c),
            who[0] ? who : "; other programs may be using the GPU (nvidia-smi lists them)");
}
