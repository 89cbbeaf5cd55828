/* open_device.c - opens the GPU of this process; its properties, streams and mode; error checks.
 *
 * A process drives one GPU for its whole life, because the driver's context does. So the state of
 * this file exists once, and does not change after the device was first opened.
 *
 * The driver takes a quarter of a second to create a context. A thread opens the GPU while the
 * graph is rewritten and split into units; code that needs the GPU waits for that thread
 * (pl_cuda_device_wait).
 */
#include "base/cache_dir.h"
#include "base/sys.h"
#include "cuda/device/device_int.h"
#include "cuda/device/lib.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Oldest compute capability whose code is in this plug-in, 75 or 80 (Makefile, CUDA_ARCHS). */
enum { OLDEST_ARCH = PL_CUDA_OLDEST };

/* Says what to do about a GPU that has no code in this plug-in. */
static const char *advice(int arch)
{
    return arch < 75 ? "at least 7.5 is needed" : "build the plug-in with make CUDA_ARCHS=75";
}

static struct {
    pthread_mutex_t lock;
    bool begun, running; /* running: the thread has not been joined */
    pthread_t thread;
    int index;
    pl_status rc; /* of opening, once it is joined */
    char error[512];
    pl_cuda_props card;
    cudaStream_t stream, upload;
    /* the mode; all programs of a run set the same mode, each from its thread */
    _Atomic bool tf32, autotune, plain;
    char cache[512];
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- checks ----------------------------------------------------------------------------- */
pl_status pl_cuda_failed(cudaError_t rc, const char *call, const char *file, int line)
{
    cudaGetLastError(); /* clears the error, otherwise the next call would report it again */
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s (%s)", call, cudaGetErrorString(rc),
                    cudaGetErrorName(rc));
}

pl_status pl_cuda_driver(const char *name, int version, void **out)
{
    enum cudaDriverEntryPointQueryResult found;
    PL_CUDA(
        cudaGetDriverEntryPointByVersion(name, out, (unsigned)version, cudaEnableDefault, &found));
    PL_FAIL_IF(found != cudaDriverEntryPointSuccess || !*out, PL_ERR_DEVICE,
               "the NVIDIA driver has no %s: it is too old", name);
    return PL_OK;
}

pl_status pl_cuda_driver_failed(CUresult rc, const char *call, const char *file, int line)
{
    CUresult (*name_of)(CUresult, const char **);
    void *entry;
    const char *name = NULL;
    if (pl_cuda_driver("cuGetErrorName", 6000, &entry) == PL_OK) {
        memcpy(&name_of, &entry, sizeof name_of);
        name_of(rc, &name);
    }
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s (%d)", call, name ? name : "error", (int)rc);
}

/* ---- listing GPUs ---------------------------------------------------------------------- */
/* Counts the GPUs that the driver shows; the error says why there are none. */
static pl_status count_cards(int *n)
{
    int driver = 0;
    cudaError_t rc = cudaGetDeviceCount(n);
    cudaGetLastError();
    cudaDriverGetVersion(&driver);
    PL_FAIL_IF(rc == cudaErrorInsufficientDriver, PL_ERR_DEVICE,
               "the NVIDIA driver is too old: it knows CUDA %d.%d, this plug-in is built with CUDA "
               "%d.%d; install a newer driver",
               driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
               CUDART_VERSION % 1000 / 10);
    PL_FAIL_IF(rc == cudaErrorNoDevice || (rc == cudaSuccess && *n == 0), PL_ERR_DEVICE,
               "an NVIDIA driver is installed, but it finds no GPU (CUDA_VISIBLE_DEVICES=%s)",
               getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
    PL_FAIL_IF(rc != cudaSuccess, PL_ERR_DEVICE, "the NVIDIA driver does not answer: %s (%s)",
               cudaGetErrorString(rc), cudaGetErrorName(rc));
    return PL_OK;
}

pl_status pl_cuda_device_list(pl_device_info *out, int cap, int *n)
{
    PL_TRY(count_cards(n));
    for (int i = 0; i < *n && i < cap; i++) {
        struct cudaDeviceProp p;
        pl_device_info *d = &out[i];
        memset(d, 0, sizeof *d);
        PL_CUDA(cudaGetDeviceProperties(&p, i));
        if (i)
            snprintf(d->name, sizeof d->name, "cuda:%d", i);
        else
            snprintf(d->name, sizeof d->name, "cuda");
        snprintf(d->about, sizeof d->about, "%s, %d multiprocessors, compute capability %d.%d",
                 p.name, p.multiProcessorCount, p.major, p.minor);
        d->total_bytes = p.totalGlobalMem;
        d->usable = 10 * p.major + p.minor >= OLDEST_ARCH;
        if (!d->usable)
            snprintf(d->why_not, sizeof d->why_not,
                     "the GPU is too old for this plug-in: compute capability %d.%d; %s", p.major,
                     p.minor, advice(10 * p.major + p.minor));
        char pci[32];
        PL_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, i));
        d->free_bytes = pl_cuda_free_bytes(pci);
    }
    return PL_OK;
}

/* ---- opening ---------------------------------------------------------------------------- */
static pl_status read_card(int index, pl_cuda_props *c)
{
    struct cudaDeviceProp p;
    PL_CUDA(cudaGetDeviceProperties(&p, index));
    *c = (pl_cuda_props){.index = index,
                         .sms = p.multiProcessorCount,
                         .arch = 10 * p.major + p.minor,
                         .shared_limit = (int)p.sharedMemPerBlockOptin,
                         .l2_bytes = (size_t)p.l2CacheSize,
                         .total_bytes = p.totalGlobalMem};
    snprintf(c->name, sizeof c->name, "%s", p.name);
    PL_FAIL_IF(c->arch < OLDEST_ARCH, PL_ERR_DEVICE,
               "%s is too old for this plug-in: compute capability %d.%d; %s", p.name, p.major,
               p.minor, advice(c->arch));
    return PL_OK;
}

static void find_cache_dir(void)
{
    static const char name[] = "/kernels"; /* of no file: the folder is asked for */
    char path[sizeof self.cache];
    self.cache[0] = 0;
    if (!pl_cache_path(name + 1, path, sizeof path) || pl_cache_make(path) != PL_OK) return;
    snprintf(self.cache, sizeof self.cache, "%.*s", (int)(strlen(path) - strlen(name)), path);
}

static pl_status open_card(int index)
{
    int n = 0;
    char pci[32];
    PL_TRY(count_cards(&n));
    PL_FAIL_IF(index < 0 || index >= n, PL_ERR_DEVICE,
               "there is no GPU %d: the machine has %d, counted from 0", index, n);
    PL_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, index));
    pl_cuda_used_begin(pci);
    PL_TRY(read_card(index, &self.card));
    PL_CUDA(cudaSetDevice(index));
    PL_CUDA(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
    PL_CUDA(cudaStreamCreateWithFlags(&self.upload, cudaStreamNonBlocking));
    find_cache_dir();
    return PL_OK;
}

static void *open_beside(void *unused)
{
    (void)unused;
    self.rc = open_card(self.index);
    if (self.rc == PL_OK)
        pl_cuda_lib_begin();
    else
        snprintf(self.error, sizeof self.error, "%s", pl_error_text());
    return NULL;
}

/* Requires the lock. Opens the GPU in this thread if no other thread can be created. */
static void begin(int index)
{
    self.begun = true;
    self.index = index;
    self.running = pthread_create(&self.thread, NULL, open_beside, NULL) == 0;
    if (!self.running) open_beside(NULL);
}

pl_status pl_cuda_device_open(int index)
{
    pl_status rc = PL_OK;
    pthread_mutex_lock(&self.lock);
    if (!self.begun)
        begin(index);
    else if (self.index != index)
        rc = pl__fail(PL_ERR_DEVICE, __FILE__, __LINE__,
                      "this process uses GPU %d already; one process drives one GPU", self.index);
    pthread_mutex_unlock(&self.lock);
    return rc;
}

static pl_status join(void)
{
    pthread_mutex_lock(&self.lock);
    if (self.running) pthread_join(self.thread, NULL);
    self.running = false;
    if (self.rc != PL_OK) self.begun = false; /* the next opening tries again */
    pl_status rc = self.rc;
    pthread_mutex_unlock(&self.lock);
    return rc;
}

pl_status pl_cuda_device_wait(void)
{
    static _Thread_local bool here; /* the CUDA runtime keeps the current GPU of each thread */
    if (here) return PL_OK;
    pl_status rc = join();
    PL_FAIL_IF(rc != PL_OK, rc, "device cuda cannot be used: %s", self.error);
    PL_CUDA(cudaSetDevice(self.index));
    here = true;
    return PL_OK;
}

/* A process that ends early must not unload the libraries while threads still use them. */
__attribute__((destructor)) static void wait_for_all(void)
{
    (void)join();
    pl_cuda_lib_wait();
}

const pl_cuda_props *pl_cuda_props_get(void)
{
    return &self.card;
}

cudaStream_t pl_cuda_stream(void)
{
    return self.stream;
}

cudaStream_t pl_cuda_upload_stream(void)
{
    return self.upload;
}

void pl_cuda_set_mode(const pl_device_mode *m)
{
    self.tf32 = m->tf32;
    self.autotune = m->autotune;
    self.plain = m->plain;
}

bool pl_cuda_tf32(void)
{
    return self.tf32;
}

/* Compute capabilities of data-centre GPUs, whose TF32 units have at least seven times the rate of
 * their f32 units. On other GPUs both rates are similar. */
bool pl_cuda_split(void)
{
    int major = self.card.arch / 10;
    bool fast = self.card.arch == 80 || major == 9 || major == 10;
    return fast && !self.plain;
}

bool pl_cuda_autotune(void)
{
    return self.autotune;
}

const char *pl_cuda_cache_dir(void)
{
    return self.cache;
}
