/* group_stub.c - stands in for the run-time compiler where its files are not built. */
#include "cuda/group.h"

#define WEAK __attribute__((weak))

WEAK pl_status pl_cuda_group_prepare(const pl_graph *g, const pl_unit *u, void **prep,
                                     size_t *work_bytes)
{
    (void)g, (void)u, (void)prep, (void)work_bytes;
    PL_FAIL(PL_ERR_UNSUPPORTED, "this plug-in is built without fused groups");
}

WEAK const pl_kernel pl_cuda_group_kernel = {.name = "none"};

WEAK bool pl_cuda_group_inplace(const void *prep, uint32_t k, uint32_t i)
{
    (void)prep, (void)k, (void)i;
    return false;
}

WEAK bool pl_cuda_group_takes(const pl_graph *g, uint32_t node)
{
    (void)g, (void)node;
    return false;
}

WEAK pl_status pl_cuda_group_wait(void)
{
    return PL_OK;
}
