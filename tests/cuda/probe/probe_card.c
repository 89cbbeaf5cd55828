/* probe_card.c - the GPU for programs that run kernels of the plug-in without the plug-in: GPU
 * 0, one stream; PROBE_TF32, PROBE_PLAIN, PROBE_CACHE set what the engine's options set. */
#include "tests/cuda/probe/probe_lib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_cuda_props card;
static cudaStream_t stream;
static bool tf32;
bool pl_probe_tune, pl_probe_split = true;

pl_status pl_probe_open(void)
{
    struct cudaDeviceProp p;
    PL_CUDA(cudaSetDevice(0));
    PL_CUDA(cudaGetDeviceProperties(&p, 0));
    PL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    card.sms = p.multiProcessorCount;
    card.arch = p.major * 10 + p.minor;
    card.shared_limit = (int)p.sharedMemPerBlockOptin;
    card.l2_bytes = (size_t)p.l2CacheSize;
    card.total_bytes = p.totalGlobalMem;
    snprintf(card.name, sizeof card.name, "%s", p.name);
    tf32 = getenv("PROBE_TF32") != NULL;
    return PL_OK;
}

const pl_cuda_props *pl_cuda_props_get(void)
{
    return &card;
}

cudaStream_t pl_cuda_stream(void)
{
    return stream;
}

bool pl_cuda_tf32(void)
{
    return tf32;
}

bool pl_cuda_split(void)
{
    return pl_probe_split && !getenv("PROBE_PLAIN") &&
           (card.arch == 80 || card.arch / 10 == 9 || card.arch / 10 == 10);
}

bool pl_cuda_autotune(void)
{
    return pl_probe_tune;
}

const char *pl_cuda_cache_dir(void)
{
    const char *dir = getenv("PROBE_CACHE");
    return dir ? dir : "";
}

pl_status pl_cuda_failed(cudaError_t rc, const char *call, const char *file, int line)
{
    return pl__fail(PL_ERR_DEVICE, file, line, "%s: %s (%s)", call, cudaGetErrorString(rc),
                    cudaGetErrorName(rc));
}

/* Choices of products, which convolutions need; the probe has no other table. */
extern const pl_cuda_entry pl_cuda_matmul[];
const pl_kernel *pl_cuda_kernels_of(const char *op)
{
    for (const pl_cuda_entry *e = pl_cuda_matmul; e->op; e++)
        if (strcmp(e->op, op) == 0) return e->kernels;
    return NULL;
}
