/* table.c - all kernels by op. */
#include "cuda/device/trial.h"

#include <string.h>

#define PL_CUDA_TABLE(t) extern const pl_cuda_entry pl_cuda_##t[];
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE

extern const pl_cuda_entry pl_cuda_conv_alternatives[], pl_cuda_attention_alternatives[],
    pl_cuda_matmul_alternatives[];

static const pl_cuda_entry *const tables[] = {
#define PL_CUDA_TABLE(t) pl_cuda_##t,
#include "cuda/device/tables.def"
#undef PL_CUDA_TABLE
    NULL};

static const pl_kernel *find(const pl_cuda_entry *list, const char *op)
{
    for (const pl_cuda_entry *e = list; e->op; e++)
        if (strcmp(e->op, op) == 0) return e->kernels;
    return NULL;
}

const pl_kernel *pl_cuda_kernels_of(const char *op)
{
    const pl_kernel *found = NULL;
    for (const pl_cuda_entry *const *t = tables; *t && !found; t++) found = find(*t, op);
    return found;
}

const pl_kernel *pl_cuda_alternatives_of(const char *op, bool *all)
{
    const pl_kernel *found = find(pl_cuda_attention_alternatives, op);
    *all = found != NULL;
    if (!found) found = find(pl_cuda_conv_alternatives, op);
    return found || !pl_cuda_tf32() ? found : find(pl_cuda_matmul_alternatives, op);
}
