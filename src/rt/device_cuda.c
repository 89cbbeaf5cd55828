/* device_cuda.c - GPUs: finds and opens the CUDA plug-in, or says why not.
 *
 * The program has no CUDA dependency: everything that needs a GPU is in libplimsoll_cuda.so
 * (base/sys.h says where; $PLIMSOLL_PLUGIN names another place). The plug-in stays open for the
 * life of the process, which owns at most one GPU: this file keeps the loaded plug-in, because the
 * driver's context also exists once per process.
 */
#include "base/sys.h"
#include "rt/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pl_status check(void *library, const char *path, const pl_cuda_plugin_info **out)
{
    const pl_cuda_plugin_info *info = dlsym(library, "pl_cuda_plugin");
    PL_FAIL_IF(!info, PL_ERR_DEVICE, "%s is not a Plimsoll plug-in", path);
    PL_FAIL_IF(info->abi != PL_CUDA_ABI || strcmp(info->version, PL_VERSION_STRING) != 0,
               PL_ERR_DEVICE,
               "%s was built for version %s (interface %d), this program is %s (interface %d): "
               "build both from the same sources",
               path, info->abi == PL_CUDA_ABI ? info->version : "another", info->abi,
               PL_VERSION_STRING, PL_CUDA_ABI);
    *out = info;
    return PL_OK;
}

static pl_status load(const pl_cuda_plugin_info **out)
{
    char text[4200];
    /* The driver first: without a driver, missing libraries of the plug-in are not the cause. */
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    PL_FAIL_IF(!driver, PL_ERR_DEVICE,
               "no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    dlclose(driver);
    void *library = pl_plugin_open("cuda", RTLD_NOW | RTLD_LOCAL, text, sizeof text);
    if (library) return check(library, text, out);
    PL_FAIL_IF(text[0], PL_ERR_DEVICE,
               "the CUDA plug-in cannot be loaded: %s; install the CUDA libraries it needs "
               "(cuBLAS 13, cuDNN 9, NVRTC 13) or set LD_LIBRARY_PATH",
               dlerror());
    pl_plugin_places("cuda", text, sizeof text);
    PL_FAIL(PL_ERR_DEVICE,
            "an NVIDIA driver is here, but no CUDA plug-in: %s is missing (make builds it "
            "where nvcc is installed)",
            text);
}

static struct {
    pthread_mutex_t lock;
    const pl_cuda_plugin_info *info;
} plugin = {PTHREAD_MUTEX_INITIALIZER, NULL};

pl_status pl_cuda_load(const pl_cuda_plugin_info **out)
{
    pthread_mutex_lock(&plugin.lock);
    pl_status rc = plugin.info ? PL_OK : load(&plugin.info);
    *out = plugin.info;
    pthread_mutex_unlock(&plugin.lock);
    return rc;
}

static bool cuda_has(const char *name)
{
    return strncmp(name, "cuda", 4) == 0;
}

static pl_status cuda_open(const char *name, const pl_device **out)
{
    const pl_cuda_plugin_info *info;
    int index = 0;
    char rest;
    PL_FAIL_IF(name[4] && sscanf(name + 4, ":%d%c", &index, &rest) != 1, PL_ERR_DEVICE,
               "no device \"%s\"; GPUs are called cuda, cuda:1, cuda:2, ...", name);
    PL_TRY(pl_cuda_load(&info));
    return info->open(index, out);
}

/* ---- the GPUs of this machine ------------------------------------------------------------ */
/* Lists the GPUs, or one entry that says why there are none; writes at most cap, returns how many
 * there are. */
static int cuda_list(pl_device_info *d, int cap)
{
    const pl_cuda_plugin_info *info;
    int n = 0;
    if (cap > 0) memset(d, 0, (size_t)cap * sizeof *d);
    pl_status rc = pl_cuda_load(&info);
    if (rc == PL_OK) rc = info->list(d, cap, &n);
    if (rc == PL_OK) return n;
    if (cap < 1) return 1;
    snprintf(d->name, sizeof d->name, "cuda");
    snprintf(d->about, sizeof d->about, "NVIDIA GPUs");
    snprintf(d->why_not, sizeof d->why_not, "%s", pl_error_text());
    return 1;
}

/* Returns the entry of a GPU: "cuda" and "cuda:0" are the first GPU. */
static const pl_device_info *find_entry(const pl_device_info *d, int n, const char *name)
{
    const char *number = strchr(name, ':');
    int at = 0;
    while (number && strcmp(number, ":0") != 0 && at < n && strcmp(d[at].name, name) != 0) at++;
    return at < n && d[at].usable && d[at].total_bytes ? &d[at] : NULL;
}

/* A run asks between steps, which allocate nothing: so the list is static. */
enum { MOST_GPUS = 16 };
static struct {
    pthread_mutex_t lock;
    pl_device_info list[MOST_GPUS];
} gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool cuda_memory(const char *name, uint64_t *total, uint64_t *available)
{
    pthread_mutex_lock(&gpus.lock);
    int n = cuda_list(gpus.list, MOST_GPUS);
    const pl_device_info *d = find_entry(gpus.list, n < MOST_GPUS ? n : MOST_GPUS, name);
    if (d) {
        *total = d->total_bytes;
        *available = d->free_bytes;
    }
    pthread_mutex_unlock(&gpus.lock);
    return d != NULL;
}

const pl_device_kind pl_device_kind_cuda = {
    .name = "cuda",
    .plugged = true,
    .has = cuda_has,
    .open = cuda_open,
    .list = cuda_list,
    .memory = cuda_memory,
};
