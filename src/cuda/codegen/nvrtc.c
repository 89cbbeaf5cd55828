/* nvrtc.c - see nvrtc.h.
 *
 * pl_cuda_module_make adds a module to a list and starts a thread unless enough are running. A
 * thread takes module after module, from the disk cache (codegen_cache.h) or from the compiler, and
 * ends when none is left. The caller's thread loads the modules: loading is short, and the driver
 * serialises it anyway.
 *
 * --fmad=false and no fast mathematics: a value has the same bits in every group. The target is the
 * GPU's own architecture; for a GPU newer than the compiler it is PTX of the newest architecture
 * that the compiler supports, which the driver compiles.
 */
#include "cuda/codegen/nvrtc.h"

#include "base/sys.h"
#include "cuda/codegen/codegen.h"
#include "cuda/codegen/codegen_cache.h"

#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 16, BUCKETS = 1024, ERROR_BYTES = 1024 };

struct pl_cuda_module {
    pl_cuda_module *next, *chain; /* in order of creation; in its hash bucket */
    char *text;                   /* NULL once compiled */
    size_t len;
    uint32_t shared;
    bool own; /* with the instructions of this architecture alone */
    pl_code_key key;
    void *image; /* NULL once loaded */
    size_t image_bytes;
    pl_status rc;
    char error[ERROR_BYTES];
    cudaKernel_t kernel;
    bool spills;
};

/* A process has one GPU, and code cannot be unloaded while graphs hold it: so there is one
 * table. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t done;
    pl_cuda_module *first, *last, *waiting, *unloaded;
    pl_cuda_module *bucket[BUCKETS];
    int running, pending; /* threads; modules not compiled */
    char target[32], own[32], with[160];
    bool ptx;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

/* ---- compiling -------------------------------------------------------------------------- */
#define OPTIONS "--fmad=false", "-std=c++17", "-w"

static pl_status nvrtc_failed(nvrtcResult rc, const char *call)
{
    PL_FAIL(PL_ERR_DEVICE, "%s: %s", call, nvrtcGetErrorString(rc));
}
#define PL_NVRTC(call)                                                                             \
 do {                                                                                              \
  nvrtcResult pl_nvrtc_rc_ = (call);                                                               \
  if (pl_nvrtc_rc_ != NVRTC_SUCCESS) return nvrtc_failed(pl_nvrtc_rc_, #call);                     \
 } while (0)

/* Finds the compilation target; part of every key. */
static pl_status find_target(void)
{
    int n = 0, archs[64], best = 0, arch = pl_cuda_props_get()->arch, major = 0, minor = 0;
    PL_NVRTC(nvrtcVersion(&major, &minor));
    PL_NVRTC(nvrtcGetNumSupportedArchs(&n));
    PL_FAIL_IF(n < 1 || n > 64, PL_ERR_DEVICE,
               "NVRTC reports an invalid number of architectures: %d", n);
    PL_NVRTC(nvrtcGetSupportedArchs(archs));
    for (int i = 0; i < n; i++)
        if (archs[i] <= arch && archs[i] > best) best = archs[i];
    PL_FAIL_IF(best == 0, PL_ERR_DEVICE,
               "NVRTC %d.%d does not compile for a GPU as old as this one (sm_%d)", major, minor,
               arch);
    self.ptx = best != arch;
    snprintf(self.target, sizeof self.target, "-arch=%s_%d", self.ptx ? "compute" : "sm", best);
    snprintf(self.own, sizeof self.own, "%sa", self.target);
    snprintf(self.with, sizeof self.with, "%s nvrtc %d.%d", self.target, major, minor);
    const char *const options[] = {OPTIONS};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t used = strlen(self.with);
        snprintf(self.with + used, sizeof self.with - used, " %s", options[i]);
    }
    return PL_OK;
}

static pl_status take_image(pl_cuda_module *m, nvrtcProgram prog)
{
    size_t n = 0;
    PL_NVRTC(self.ptx ? nvrtcGetPTXSize(prog, &n) : nvrtcGetCUBINSize(prog, &n));
    m->image = pl_sys_alloc(n + 1);
    if (!m->image) return PL_ERR_MEMORY;
    m->image_bytes = n;
    PL_NVRTC(self.ptx ? nvrtcGetPTX(prog, m->image) : nvrtcGetCUBIN(prog, m->image));
    return PL_OK;
}

static pl_status refused(nvrtcProgram prog, nvrtcResult rc)
{
    size_t n = 0;
    char *log = nvrtcGetProgramLogSize(prog, &n) == NVRTC_SUCCESS ? pl_sys_alloc(n + 1) : NULL;
    if (log && nvrtcGetProgramLog(prog, log) != NVRTC_SUCCESS) log[0] = 0;
    pl_status s =
        pl__fail(PL_ERR_DEVICE, __FILE__, __LINE__, "NVRTC cannot compile a kernel: %s: %.600s",
                 nvrtcGetErrorString(rc), log ? log : "");
    pl_sys_free(log);
    return s;
}

static pl_status compile(pl_cuda_module *m)
{
    const char *dir = pl_cuda_cache_dir();
    m->image = pl_code_cache_read(dir, m->key, &m->image_bytes);
    if (m->image) return PL_OK;
    nvrtcProgram prog = NULL;
    PL_NVRTC(nvrtcCreateProgram(&prog, m->text, "group.cu", 0, NULL, NULL));
    const char *const options[] = {m->own ? self.own : self.target, OPTIONS};
    nvrtcResult rc = nvrtcCompileProgram(prog, (int)(sizeof options / sizeof *options), options);
    pl_status s = rc == NVRTC_SUCCESS ? take_image(m, prog) : refused(prog, rc);
    nvrtcDestroyProgram(&prog);
    if (s == PL_OK) pl_code_cache_write(dir, m->key, m->image, m->image_bytes);
    return s;
}

/* ---- threads ---------------------------------------------------------------------------- */
static void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&self.lock);
    while (self.waiting) {
        pl_cuda_module *m = self.waiting;
        self.waiting = m->next;
        pthread_mutex_unlock(&self.lock);
        m->rc = compile(m);
        if (m->rc != PL_OK) snprintf(m->error, sizeof m->error, "%s", pl_error_text());
        pl_sys_free(m->text);
        m->text = NULL;
        pthread_mutex_lock(&self.lock);
        if (--self.pending == 0) pthread_cond_broadcast(&self.done);
    }
    self.running--;
    pthread_mutex_unlock(&self.lock);
    return NULL;
}

/* Requires the lock. If no thread can be started, the wait does the work. */
static void start_thread(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t id;
    if (self.running >= MAX_THREADS || self.running >= (cores > 1 ? cores : 1)) return;
    self.running++;
    if (pthread_create(&id, NULL, worker, NULL) != 0)
        self.running--;
    else
        pthread_detach(id);
}

/* ---- modules ---------------------------------------------------------------------------- */
static pl_cuda_module *new_module(const char *text, size_t len, pl_code_key key)
{
    pl_cuda_module *m = pl_sys_alloc(sizeof *m);
    char *copy = pl_sys_alloc(len + 1);
    if (!m || !copy) {
        pl_sys_free(m);
        pl_sys_free(copy);
        return NULL;
    }
    memcpy(copy, text, len);
    m->text = copy;
    m->len = len;
    m->key = key;
    return m;
}

static pl_status find_or_add(const char *text, size_t len, uint32_t shared, bool own,
                             pl_cuda_module **out)
{
    if (!self.target[0]) PL_TRY(find_target());
    pl_code_key key = pl_code_key_of(text, len, self.with);
    pl_cuda_module **b = &self.bucket[key.lo % BUCKETS], *m = *b;
    while (m && (m->key.lo != key.lo || m->key.hi != key.hi || m->len != len)) m = m->chain;
    if (!m) {
        m = new_module(text, len, key);
        if (!m) return PL_ERR_MEMORY;
        m->own = own;
        m->chain = *b;
        *b = m;
        if (self.last)
            self.last->next = m;
        else
            self.first = m;
        self.last = m;
        if (!self.waiting) self.waiting = m;
        if (!self.unloaded) self.unloaded = m;
        self.pending++;
        start_thread();
    }
    if (shared > m->shared) m->shared = shared;
    *out = m;
    return PL_OK;
}

pl_status pl_cuda_module_make(const char *text, size_t len, uint32_t shared, bool own,
                              pl_cuda_module **out)
{
    pthread_mutex_lock(&self.lock);
    pl_status rc = find_or_add(text, len, shared, own, out);
    pthread_mutex_unlock(&self.lock);
    return rc;
}

/* Loads the module here and not at the first launch, which may be inside a capture. */
static pl_status load(pl_cuda_module *m)
{
    cudaLibrary_t lib;
    struct cudaFuncAttributes attr;
    PL_CUDA(cudaLibraryLoadData(&lib, m->image, NULL, NULL, 0, NULL, NULL, 0));
    PL_CUDA(cudaLibraryGetKernel(&m->kernel, lib, PL_CODE_ENTRY));
    if (m->shared)
        PL_CUDA(cudaFuncSetAttribute((const void *)m->kernel,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, (int)m->shared));
    if (cudaFuncGetAttributes(&attr, (const void *)m->kernel) != cudaSuccess)
        cudaGetLastError();
    else
        m->spills = attr.localSizeBytes > 0;
    pl_sys_free(m->image);
    m->image = NULL;
    return PL_OK;
}

pl_status pl_cuda_module_wait(void)
{
    pthread_mutex_lock(&self.lock);
    if (self.waiting && !self.running) { /* no thread could be started: compile here */
        self.running++;
        pthread_mutex_unlock(&self.lock);
        worker(NULL);
        pthread_mutex_lock(&self.lock);
    }
    while (self.pending) pthread_cond_wait(&self.done, &self.lock);
    pl_status rc = PL_OK;
    while (self.unloaded && rc == PL_OK) {
        pl_cuda_module *m = self.unloaded;
        rc = m->rc;
        if (rc != PL_OK)
            pl__fail(rc, __FILE__, __LINE__, "%s", m->error);
        else
            rc = load(m);
        if (rc == PL_OK) self.unloaded = m->next;
    }
    pthread_mutex_unlock(&self.lock);
    return rc;
}

cudaKernel_t pl_cuda_module_kernel(const pl_cuda_module *m)
{
    return m->kernel;
}

bool pl_cuda_module_spills(const pl_cuda_module *m)
{
    return m->spills;
}
