/* memory.c - device memory, and the host blocks that the device copies from and to.
 *
 * A block is a range of addresses with memory mapped at its beginning, by the driver's
 * virtual-memory calls: as much memory as requested, rounded up to the GPU's granularity (2 MiB);
 * no allocator in between holds more. The range has room for all memory of the GPU, so a block
 * grows in place.
 */
#include "base/sys.h"
#include "base/threads.h"
#include "cuda/device/device_int.h"

#include <pthread.h>
#include <string.h>

/* The driver's calls, looked up once per process; errors show these names. */
static struct {
    CUresult (*cuMemGetAllocationGranularity)(size_t *, const CUmemAllocationProp *,
                                              CUmemAllocationGranularity_flags);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*cuMemCreate)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                            unsigned long long);
    CUresult (*cuMemMap)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                         unsigned long long);
    CUresult (*cuMemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*cuMemUnmap)(CUdeviceptr, size_t);
    CUresult (*cuMemRelease)(CUmemGenericAllocationHandle);
    CUresult (*cuMemAddressFree)(CUdeviceptr, size_t);
    size_t grain, span;
} vm;
static pthread_mutex_t vm_lock = PTHREAD_MUTEX_INITIALIZER;

static CUmemAllocationProp on_device(void)
{
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = pl_cuda_props_get()->index;
    return p;
}

static size_t rounded(size_t bytes)
{
    return (bytes + vm.grain - 1) / vm.grain * vm.grain;
}

static pl_status look_up(void)
{
    struct {
        const char *name;
        void *to;
    } want[] = {{"cuMemGetAllocationGranularity", &vm.cuMemGetAllocationGranularity},
                {"cuMemAddressReserve", &vm.cuMemAddressReserve},
                {"cuMemCreate", &vm.cuMemCreate},
                {"cuMemMap", &vm.cuMemMap},
                {"cuMemSetAccess", &vm.cuMemSetAccess},
                {"cuMemUnmap", &vm.cuMemUnmap},
                {"cuMemRelease", &vm.cuMemRelease},
                {"cuMemAddressFree", &vm.cuMemAddressFree}};
    if (vm.grain) return PL_OK;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        void *entry;
        PL_TRY(pl_cuda_driver(want[i].name, 10020, &entry));
        memcpy(want[i].to, &entry, sizeof entry);
    }
    CUmemAllocationProp p = on_device();
    size_t grain = 0;
    PL_CU(vm.cuMemGetAllocationGranularity(&grain, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    vm.grain = grain;
    vm.span = rounded(pl_cuda_props_get()->total_bytes);
    return PL_OK;
}

/* Maps memory at [at, at + bytes). Maps nothing when it fails. */
static pl_status back(CUdeviceptr at, size_t bytes)
{
    CUmemAllocationProp p = on_device();
    CUmemAccessDesc access = {p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h;
    PL_CU(vm.cuMemCreate(&h, bytes, &p, 0));
    CUresult rc = vm.cuMemMap(at, bytes, 0, h, 0);
    vm.cuMemRelease(h); /* the mapping keeps the memory */
    if (rc != CUDA_SUCCESS) return pl_cuda_driver_failed(rc, "cuMemMap", __FILE__, __LINE__);
    rc = vm.cuMemSetAccess(at, bytes, &access, 1);
    if (rc == CUDA_SUCCESS) return PL_OK;
    vm.cuMemUnmap(at, bytes);
    return pl_cuda_driver_failed(rc, "cuMemSetAccess", __FILE__, __LINE__);
}

static pl_status map_block(size_t bytes, void **out)
{
    PL_TRY(look_up());
    CUdeviceptr at = 0;
    size_t span = rounded(bytes) > vm.span ? rounded(bytes) : vm.span;
    PL_CU(vm.cuMemAddressReserve(&at, span, 0, 0, 0));
    pl_status rc = back(at, rounded(bytes));
    if (rc != PL_OK) {
        vm.cuMemAddressFree(at, span);
        return pl__fail_prefix(rc, "%zu bytes of %s", bytes, pl_cuda_props_get()->name);
    }
    *out = (void *)(uintptr_t)at;
    return PL_OK;
}

pl_status pl_cuda_alloc(size_t bytes, void **out)
{
    *out = NULL;
    if (!bytes) return PL_OK;
    PL_TRY(pl_cuda_device_wait());
    pthread_mutex_lock(&vm_lock);
    pl_status rc = map_block(bytes, out);
    pthread_mutex_unlock(&vm_lock);
    PL_TRY(rc);
    PL_CUDA(cudaMemsetAsync(*out, 0, rounded(bytes), pl_cuda_stream()));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

static pl_status map_more(void *p, size_t from, size_t to)
{
    PL_FAIL_IF(to > vm.span, PL_ERR_MEMORY, "%zu bytes of %s were requested, which has %zu", to,
               pl_cuda_props_get()->name, pl_cuda_props_get()->total_bytes);
    pl_status rc = back((CUdeviceptr)(uintptr_t)p + from, to - from);
    return rc == PL_OK ? rc
                       : pl__fail_prefix(rc, "%zu bytes of %s in place of %zu", to,
                                         pl_cuda_props_get()->name, from);
}

pl_status pl_cuda_grow(void *p, size_t from, size_t to)
{
    size_t had = rounded(from), want = rounded(to);
    if (want <= had) return PL_OK;
    pthread_mutex_lock(&vm_lock);
    pl_status rc = map_more(p, had, want);
    pthread_mutex_unlock(&vm_lock);
    PL_TRY(rc);
    PL_CUDA(cudaMemsetAsync((char *)p + had, 0, want - had, pl_cuda_stream()));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

/* Unmaps the whole range, including its growth. */
void pl_cuda_free(void *p, size_t bytes)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)p;
    size_t span = rounded(bytes) > vm.span ? rounded(bytes) : vm.span;
    if (!p) return;
    cudaDeviceSynchronize(); /* running kernels must not lose their memory */
    vm.cuMemUnmap(at, rounded(bytes));
    vm.cuMemAddressFree(at, span);
}

pl_status pl_cuda_memory_fill(void *to, int byte, size_t bytes)
{
    PL_CUDA(cudaMemsetAsync(to, byte, bytes, pl_cuda_stream()));
    return PL_OK;
}

/* All threads touch the pages of host memory, large pages where the system has them, before the
 * driver locks them: the driver alone takes one second per gigabyte. */
enum { PAGES = 2 << 20, PAGE = 4 << 10 };
typedef struct host_block {
    char *at;
    size_t bytes;
} host_block;

static void touch(void *ctx, int64_t task, int worker)
{
    const host_block *b = ctx;
    size_t at = (size_t)task * PAGES, end = b->bytes - at < PAGES ? b->bytes : at + PAGES;
    (void)worker;
    for (; at < end; at += PAGE) ((volatile char *)b->at)[at] = 0;
}

pl_status pl_cuda_host_alloc(size_t bytes, void **out)
{
    *out = NULL;
    if (!bytes) return PL_OK;
    PL_TRY(pl_cuda_device_wait());
    PL_TRY(pl_sys_map(bytes, out));
    host_block b = {*out, bytes};
    pl_threads_for((int64_t)((bytes + PAGES - 1) / PAGES), touch, &b);
    cudaError_t rc = cudaHostRegister(*out, bytes, cudaHostRegisterDefault);
    if (rc == cudaSuccess) return PL_OK;
    pl_sys_unmap(*out, bytes);
    *out = NULL;
    return pl_cuda_failed(rc, "cudaHostRegister", __FILE__, __LINE__);
}

void pl_cuda_host_free(void *p, size_t bytes)
{
    if (cudaHostUnregister(p) != cudaSuccess) cudaGetLastError();
    pl_sys_unmap(p, bytes);
}

static pl_status copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (!bytes) return PL_OK;
    PL_CUDA(cudaMemcpyAsync(to, from, bytes, kind, pl_cuda_stream()));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_write(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, cudaMemcpyHostToDevice);
}

pl_status pl_cuda_read(void *to, const void *from, size_t bytes)
{
    return copy(to, from, bytes, cudaMemcpyDeviceToHost);
}
