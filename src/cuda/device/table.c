/* table.c - all kernels by op. */
#include "cuda/device/cuda.h"

#include <string.h>

#define PL_CUDA_TABLE(t) extern const pl_cuda_entry pl_cuda_##t[];
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE

static const pl_cuda_entry *const tables[] = {
#define PL_CUDA_TABLE(t) pl_cuda_##t,
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE
    NULL};

const pl_kernel *pl_cuda_kernels_of(const char *op)
{
    for (const pl_cuda_entry *const *t = tables; *t; t++)
        for (const pl_cuda_entry *e = *t; e->op; e++)
            if (strcmp(e->op, op) == 0) return e->kernels;
    return NULL;
}
