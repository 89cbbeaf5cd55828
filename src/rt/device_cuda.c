/* device_cuda.c - devices by name; finding and opening the CUDA plug-in, and saying why not.
 *
 * The program has no CUDA dependency: everything that needs a GPU is in libplimsoll_cuda.so
 * (base/sys.h says where; $PLIMSOLL_PLUGIN names another place). The plug-in stays open for the
 * life of the process, which owns at most one GPU: this file keeps the loaded plug-in because the
 * driver's context, too, exists once in a process.
 */
#include "base/sys.h"
#include "rt/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PLUGIN   "libplimsoll_cuda.so"
#define VARIABLE "PLIMSOLL_PLUGIN"

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
    /* The driver first: without it the plug-in's libraries are not the news. */
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    PL_FAIL_IF(!driver, PL_ERR_DEVICE,
               "no NVIDIA driver on this machine (libcuda.so.1 is not found)");
    dlclose(driver);
    void *library = pl_plugin_open(PLUGIN, VARIABLE, RTLD_NOW | RTLD_LOCAL, text, sizeof text);
    if (library) return check(library, text, out);
    PL_FAIL_IF(text[0], PL_ERR_DEVICE,
               "the CUDA plug-in cannot be loaded: %s; install the CUDA libraries it needs "
               "(cuBLAS 13, cuDNN 9, NVRTC 13) or set LD_LIBRARY_PATH",
               dlerror());
    pl_plugin_places(PLUGIN, VARIABLE, text, sizeof text);
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

static pl_status find_cuda(const char *name, const pl_device **out)
{
    const pl_cuda_plugin_info *info;
    int index = 0;
    char rest;
    PL_FAIL_IF(name[4] && sscanf(name + 4, ":%d%c", &index, &rest) != 1, PL_ERR_DEVICE,
               "no device \"%s\"; GPUs are called cuda, cuda:1, cuda:2, ...", name);
    PL_TRY(pl_cuda_load(&info));
    return info->open(index, out);
}

static const char cards[] = ""
#define PL_CARD(name, ...) " " name
#include "plan/cost/cards.def"
#undef PL_CARD
    ;

bool pl_device_is_plugged(const char *name)
{
    return name && strncmp(name, "cuda", 4) == 0;
}

pl_status pl_device_find(const char *name, const pl_device **out)
{
    if (pl_device_is_plugged(name)) {
        pl_status rc = find_cuda(name, out);
        return rc == PL_OK ? rc : pl__fail_prefix(rc, "device %s cannot be used", name);
    }
    *out = name ? pl_device_profile(name) : NULL;
    if (*out) return PL_OK;
    const pl_device *all[] = {&pl_device_cpu, &pl_device_guarded};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!name || strcmp(name, all[i]->name) != 0) continue;
        *out = all[i];
        return PL_OK;
    }
    PL_FAIL(PL_ERR_DEVICE, "no device \"%s\"; there are \"cpu\" and \"cuda\", and to plan for%s",
            name ? name : "", cards);
}
